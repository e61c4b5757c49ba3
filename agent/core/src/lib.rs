//! Plimsoll's decisions, without I/O: a node's distance from its SLA, its backlog bound, and the weight and
//! connection limit that a proxy gets for it.
//!
//! Time and randomness are passed in. The crate builds for `wasm32-wasip1`.

mod blind;
mod buckets;
mod controller;
pub mod dispatch;
pub mod freshness;
mod histogram;
mod md5;
mod mpl;
mod observation;
pub mod placement;
mod reason;
pub mod ring;
pub mod role;
pub mod schedule;
mod shed;
mod silence;
mod sla;
mod units;
mod weight;

pub use blind::{BlindWatch, Sight, Waiting};
pub use buckets::{Advice, advise};
pub use controller::{
    BoundLimits, Decision, Law, Learned, NodeController, PiForm, PiGains, Rules, ServiceMode,
    Settings, SettingsError,
};
pub use histogram::{DelayHistogram, HistogramError};
pub use md5::md5_word;
pub use observation::Observation;
pub use reason::Reason;
pub use shed::{Flow, FlowMeter, Shedder};
pub use silence::Silence;
pub use sla::{Objective, Sla};
pub use units::{Cost, MAX_NAME_BYTES, MAX_NUMBER, Seconds};
pub use weight::{DeadBand, WeightScale, share_of_jobs};
