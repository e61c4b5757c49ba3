//! Metrics of adaptive update periods.

use plimsoll_exposition::{Catalogue, Label, Services};
use prometheus::{GaugeVec, IntCounterVec, Result};

use crate::updates::{FAILURES, UpdatesState};

/// Metrics of the services with `[service.updates]`.
#[derive(Clone, Debug)]
pub struct UpdateMetrics {
    items: GaugeVec,
    relaxed: GaugeVec,
    refused: GaugeVec,
    rate: GaugeVec,
    longest: GaugeVec,
    /// Items dropped for lack of room.
    pub forgotten: IntCounterVec,
    /// Failed fetches of the list, by kind.
    pub failures: IntCounterVec,
    /// Updates made, as the service reports them.
    pub made: IntCounterVec,
    /// Registry of the series per service.
    pub services: Services,
}

impl UpdateMetrics {
    /// Registers the metrics in the catalogue.
    pub fn new(catalogue: &mut Catalogue) -> Result<Self> {
        catalogue.section("Update periods of temporal data");
        let service = [Label::service()];
        let periods = Label::one_of("periods", ["own", "wanted"]);
        Ok(UpdateMetrics {
            items: catalogue.gauges(
                "plimsoll_update_items",
                "items",
                "Watched items of temporal data.",
                &service,
            )?,
            relaxed: catalogue.gauges(
                "plimsoll_update_items_relaxed",
                "items",
                "Items whose current period is longer than their own.",
                &service,
            )?,
            refused: catalogue.gauges(
                "plimsoll_update_items_refused",
                "items",
                "Items of the last list that were ignored, because their name, period or count is invalid or the name is a duplicate.",
                &service,
            )?,
            rate: catalogue.gauges(
                "plimsoll_update_rate",
                "updates a second",
                "Update rate of all items, at their own periods and at those currently wanted.",
                &[Label::service(), periods],
            )?,
            longest: catalogue.gauges(
                "plimsoll_update_longest_period_seconds",
                "seconds",
                "Longest current period of an item.",
                &service,
            )?,
            forgotten: catalogue.counters(
                "plimsoll_update_forgotten_total",
                "items",
                "Items no longer watched for lack of room, coldest first; they keep their own periods.",
                &service,
            )?,
            failures: catalogue.counters(
                "plimsoll_update_list_failures_total",
                "lists",
                "Failed requests for the list of items, by kind. The periods stay unchanged; after 60 s without a list the items return to their own.",
                &[Label::service(), Label::one_of("kind", FAILURES)],
            )?,
            made: catalogue.counters(
                "plimsoll_update_made_total",
                "updates",
                "Updates made by the service, if its list reports them. A rate above `plimsoll_update_rate{periods=\"wanted\"}` means that the feed ignores the periods.",
                &service,
            )?,
            services: catalogue.services(),
        })
    }

    /// Sets the gauges of a service.
    pub fn show(&self, service: &str, state: &UpdatesState) {
        for (gauge, value) in [
            (&self.items, state.items as f64),
            (&self.relaxed, state.relaxed as f64),
            (&self.refused, state.refused as f64),
            (&self.longest, state.longest_now.get()),
        ] {
            gauge.with_label_values(&[service]).set(value);
        }
        for (periods, rate) in [("own", state.rate_own), ("wanted", state.rate_wanted)] {
            self.rate.with_label_values(&[service, periods]).set(rate);
        }
    }
}
