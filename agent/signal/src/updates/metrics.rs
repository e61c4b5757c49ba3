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
                "Items of temporal data that are watched.",
                &service,
            )?,
            relaxed: catalogue.gauges(
                "plimsoll_update_items_relaxed",
                "items",
                "Items whose period is longer than their own.",
                &service,
            )?,
            refused: catalogue.gauges(
                "plimsoll_update_items_refused",
                "items",
                "Items of the last list that were left out: their name, period or count cannot be, or the name was there before.",
                &service,
            )?,
            rate: catalogue.gauges(
                "plimsoll_update_rate",
                "updates a second",
                "Updates that all items are to have, at their own periods and at those that are wanted now.",
                &[Label::service(), periods],
            )?,
            longest: catalogue.gauges(
                "plimsoll_update_longest_period_seconds",
                "seconds",
                "The longest period that an item has now.",
                &service,
            )?,
            forgotten: catalogue.counters(
                "plimsoll_update_forgotten_total",
                "items",
                "Items that were forgotten for lack of room, the coldest first; they have their own periods.",
                &service,
            )?,
            failures: catalogue.counters(
                "plimsoll_update_list_failures_total",
                "lists",
                "Lists of items that could not be had, by kind; the periods stay, and after 60 s without a list they are the items' own.",
                &[Label::service(), Label::one_of("kind", FAILURES)],
            )?,
            made: catalogue.counters(
                "plimsoll_update_made_total",
                "updates",
                "Updates that the service made, where its list tells. A rate above `plimsoll_update_rate{periods=\"wanted\"}` is that of a feed which does not obey.",
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
