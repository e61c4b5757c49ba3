//! Registers metric families and describes them in one place, so that the reference
//! (docs/metrics.md) cannot differ from the exported metrics.

use std::{collections::HashMap, fmt::Debug, sync::Arc};

use prometheus::{
    CounterVec, Gauge, GaugeVec, IntCounter, IntCounterVec, Opts, Registry,
    core::{Atomic, Collector, GenericCounterVec, MetricVec, MetricVecBuilder},
};

/// A label and its possible values.
#[derive(Clone, Debug)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// Its values.
    pub values: Values,
}

/// The values of a label.
#[derive(Clone, Debug)]
pub enum Values {
    /// These and no others.
    OneOf(Vec<&'static str>),
    /// A description of the values, which also bounds their number.
    Are(&'static str),
}

impl Label {
    /// A label with a closed set of values.
    pub fn one_of(name: &'static str, values: impl Into<Vec<&'static str>>) -> Self {
        let values = Values::OneOf(values.into());
        Label { name, values }
    }

    /// A label whose values the configuration bounds.
    pub fn are(name: &'static str, values: &'static str) -> Self {
        let values = Values::Are(values);
        Label { name, values }
    }

    /// The label `service`.
    pub fn service() -> Self {
        Label::are("service", SERVICE)
    }
}

const SERVICE: &str = "a `name` of `[[service]]`";

/// Description of a metric family.
#[derive(Clone, Debug)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// counter, gauge or histogram.
    pub kind: &'static str,
    /// Unit of what is counted or measured.
    pub unit: &'static str,
    /// The HELP text, one or two sentences.
    pub help: &'static str,
    /// Its labels.
    pub labels: Vec<Label>,
}

/// A family with series for each service.
trait PerService: Debug + Send + Sync {
    /// Creates a service's counters at zero, so that the first event is a change.
    fn announce(&self, service: &str);
    /// Removes every series of a service.
    fn forget(&self, service: &str);
}

/// Families of one part of the agent that have series for each service.
#[derive(Clone, Debug, Default)]
pub struct Services(Vec<Arc<dyn PerService>>);

impl Services {
    /// Creates a service's counters at zero.
    pub fn announce(&self, service: &str) {
        self.0.iter().for_each(|family| family.announce(service));
    }

    /// Removes every series of a service.
    pub fn forget(&self, service: &str) {
        self.0.iter().for_each(|family| family.forget(service));
    }
}

/// All families, by section.
pub struct Catalogue<'a> {
    registry: &'a Registry,
    sections: Vec<(&'static str, Vec<Family>)>,
    services: Services,
}

impl<'a> Catalogue<'a> {
    /// An empty catalogue.
    pub fn new(registry: &'a Registry) -> Self {
        Catalogue {
            registry,
            sections: Vec::new(),
            services: Services::default(),
        }
    }

    /// Starts a section.
    pub fn section(&mut self, title: &'static str) {
        self.sections.push((title, Vec::new()));
    }

    /// All sections with their families.
    pub fn sections(&self) -> &[(&'static str, Vec<Family>)] {
        &self.sections
    }

    /// The families registered since the last call that have series for each service.
    pub fn services(&mut self) -> Services {
        std::mem::take(&mut self.services)
    }

    /// Gauges.
    pub fn gauges(
        &mut self,
        name: &'static str,
        unit: &'static str,
        help: &'static str,
        labels: &[Label],
    ) -> prometheus::Result<GaugeVec> {
        let gauges = GaugeVec::new(Opts::new(name, help), &names(labels))?;
        self.register(name, "gauge", unit, help, labels, gauges.clone())?;
        if of_services(labels) {
            self.services.0.push(Arc::new(gauges.clone()));
        }
        Ok(gauges)
    }

    /// A gauge of the whole agent.
    pub fn gauge(
        &mut self,
        name: &'static str,
        unit: &'static str,
        help: &'static str,
    ) -> prometheus::Result<Gauge> {
        let gauges = self.gauges(name, unit, help, &[])?;
        Ok(gauges.with_label_values::<&str>(&[]))
    }

    /// Counters of whole numbers.
    pub fn counters(
        &mut self,
        name: &'static str,
        unit: &'static str,
        help: &'static str,
        labels: &[Label],
    ) -> prometheus::Result<IntCounterVec> {
        let counters = IntCounterVec::new(Opts::new(name, help), &names(labels))?;
        self.count(name, unit, help, labels, counters)
    }

    /// Counters of fractional amounts.
    pub fn amounts(
        &mut self,
        name: &'static str,
        unit: &'static str,
        help: &'static str,
        labels: &[Label],
    ) -> prometheus::Result<CounterVec> {
        let counters = CounterVec::new(Opts::new(name, help), &names(labels))?;
        self.count(name, unit, help, labels, counters)
    }

    /// A counter of the whole agent.
    pub fn counter(
        &mut self,
        name: &'static str,
        unit: &'static str,
        help: &'static str,
    ) -> prometheus::Result<IntCounter> {
        let counters = self.counters(name, unit, help, &[])?;
        Ok(counters.with_label_values::<&str>(&[]))
    }

    fn count<P: Atomic + Debug + 'static>(
        &mut self,
        name: &'static str,
        unit: &'static str,
        help: &'static str,
        labels: &[Label],
        counters: GenericCounterVec<P>,
    ) -> prometheus::Result<GenericCounterVec<P>> {
        self.register(name, "counter", unit, help, labels, counters.clone())?;
        let counted = Counted {
            combinations: combinations(labels),
            counters: counters.clone(),
        };
        if of_services(labels) {
            self.services.0.push(Arc::new(counted));
        } else {
            counted.announce("");
        }
        Ok(counters)
    }

    /// Registers a collector of any kind.
    pub fn register(
        &mut self,
        name: &'static str,
        kind: &'static str,
        unit: &'static str,
        help: &'static str,
        labels: &[Label],
        collector: impl Collector + 'static,
    ) -> prometheus::Result<()> {
        self.registry.register(Box::new(collector))?;
        let family = Family {
            name,
            kind,
            unit,
            help,
            labels: labels.to_vec(),
        };
        match self.sections.last_mut() {
            Some((_, families)) => families.push(family),
            None => self.sections.push(("", vec![family])),
        }
        Ok(())
    }
}

fn names(labels: &[Label]) -> Vec<&'static str> {
    labels.iter().map(|label| label.name).collect()
}

fn of_services(labels: &[Label]) -> bool {
    labels.iter().any(|label| label.name == "service")
}

/// Counters, and the combinations of label values, other than the service, that are known in advance.
#[derive(Debug)]
struct Counted<P: Atomic> {
    counters: GenericCounterVec<P>,
    combinations: Vec<HashMap<&'static str, &'static str>>,
}

impl<P: Atomic + Debug + 'static> PerService for Counted<P> {
    fn announce(&self, service: &str) {
        for known in &self.combinations {
            let mut labels: HashMap<&str, &str> = known.clone();
            if let Some(name) = labels.get_mut("service") {
                *name = service;
            }
            // The labels are the family's own, so this cannot fail.
            let _ = self.counters.get_metric_with(&labels);
        }
    }

    fn forget(&self, service: &str) {
        forget(&self.counters, service);
    }
}

impl PerService for GaugeVec {
    fn announce(&self, _: &str) {}

    fn forget(&self, service: &str) {
        forget(self, service);
    }
}

/// Every combination of label values, with the service left empty; none if some label's values are not known.
fn combinations(labels: &[Label]) -> Vec<HashMap<&'static str, &'static str>> {
    let mut all = vec![HashMap::new()];
    for label in labels {
        let values = match &label.values {
            Values::OneOf(values) => values.as_slice(),
            Values::Are(SERVICE) => &[""],
            Values::Are(_) => &[],
        };
        let with = |known: &HashMap<_, _>, value| {
            let mut known = known.clone();
            known.insert(label.name, value);
            known
        };
        let longer = all
            .iter()
            .flat_map(|known| values.iter().map(move |value| with(known, *value)));
        all = longer.collect();
    }
    all
}

/// Sets a gauge, or removes it if the value is unknown, so that an old value does not pass for a current one.
pub fn show(gauge: &GaugeVec, labels: &[&str], value: Option<f64>) {
    match value {
        Some(value) => gauge.with_label_values(labels).set(value),
        // A missing series is no error.
        None => drop(gauge.remove_label_values(labels)),
    }
}

/// Removes every series with this `service` label.
pub fn forget<T: MetricVecBuilder>(metrics: &MetricVec<T>, service: &str) {
    forget_where(metrics, "service", service);
}

/// Removes every series whose label has this value.
pub fn forget_where<T: MetricVecBuilder>(metrics: &MetricVec<T>, label: &str, value: &str) {
    for family in metrics.collect() {
        for metric in family.get_metric() {
            let labels: HashMap<&str, &str> = metric
                .get_label()
                .iter()
                .map(|label| (label.name(), label.value()))
                .collect();
            if labels.get(label) == Some(&value) {
                // A missing series is no error.
                let _ = metrics.remove(&labels);
            }
        }
    }
}
