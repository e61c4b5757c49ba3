//! Prometheus' text format, written and read: metric families that describe themselves, and the series of another
//! program's scrape with their increase since the last one.

mod catalogue;
mod delta;
mod error;
mod text;

use std::collections::BTreeMap;

pub use catalogue::{Catalogue, Family, Label, Services, Values, forget, forget_where, show};
pub use delta::{CounterDelta, Delta, HistogramDelta};
pub use error::ExpositionError;
pub use text::{Exposition, HistogramSeries, Selector};

/// Labels and values that a series must have.
pub type Labels = BTreeMap<String, String>;
