//! Mathematics for tuning and partitioning, without I/O: models of a node's delay, closed loops and gains for them,
//! and clustering.
//!
//! Nothing here runs in the agent's loop or in a proxy, so that `plimsoll-core`, which does, needs no linear algebra.

mod arx;
pub mod cluster;
mod control_loop;
mod identify;
mod polynomial;
mod regression;
mod residuals;
mod trace;
mod tuning;

pub use arx::{Arx, MAX_ORDER, ModelError};
pub use control_loop::{ControlLoop, Margins, SETTLED, Step};
pub use identify::{
    Candidate, Identified, MIN_ROWS, MIN_VARIATION, ORDERS, Quality, Refusal, TraceError, WORTH,
    identify,
};
pub use nalgebra::Complex;
pub use polynomial::{Polynomial, RootError};
pub use residuals::Residuals;
pub use trace::{Scale, Segment};
pub use tuning::{Limits, MODULUS_MARGIN, REACTION, TuneError, Tuned, tune};
