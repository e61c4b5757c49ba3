//! The exchange between a cluster's workers and the agents, which runs on the main thread.

use envoy_abi::{Answer, Configuration};
use envoy_policy::{
    call::Request,
    config::Settings,
    exchanger::{Exchanger, News, Purpose},
    statistics::{HandedOver, add, counted, counted_by_class, gauges},
    told::Told,
};

use crate::{
    lane::Lane,
    metrics::Metrics,
    system::{now, seed},
    waking::answered,
};

/// One cluster's exchange.
#[derive(Debug)]
pub struct Exchange {
    settings: Settings,
    exchanger: Exchanger,
    /// For each worker the report made at the end of its period, until it is sent or superseded by new shares.
    told: Vec<Option<Told>>,
    /// Number of the last shares after which a worker gave up much of its own.
    given_up: Option<u64>,
    counts: HandedOver,
    counts_by_class: [HandedOver; 2],
    /// Time that the last ring took to reach all workers, seconds; 0 before the first.
    ring_applied: f64,
}

impl Exchange {
    pub fn new(settings: Settings, workers: usize) -> Self {
        Exchange {
            settings,
            exchanger: Exchanger::new(seed()),
            told: (0..workers).map(|_| None).collect(),
            given_up: None,
            counts: HandedOver::default(),
            counts_by_class: Default::default(),
            ring_applied: 0.0,
        }
    }

    /// Replaces the settings. Returns true if they differ from those before.
    pub fn set(&mut self, settings: &Settings) -> bool {
        let are_others = self.settings != *settings;
        self.settings = settings.clone();
        are_others
    }

    /// Collects the reports of workers whose period is over, and makes the calls that are due. `ask` makes a call, with
    /// the name of the agents' cluster and the bearer token, and returns the token of the answer.
    pub fn look(
        &mut self,
        lanes: &[Lane],
        ask: impl Fn((&str, Option<&str>), &Request) -> Result<u64, String>,
    ) {
        let now = now();
        for (lane, told) in lanes.iter().zip(&mut self.told) {
            let state = &mut *lane.lock();
            if state.worker.is_due(now) {
                *told = Some(state.worker.tell(&mut state.engine, now));
            }
        }
        self.exchanger.look(lanes.len(), self.given_up, now);
        for purpose in [Purpose::Shares, Purpose::Ring] {
            if self.exchanger.is_due(&self.settings, purpose, now) {
                let request = match purpose {
                    Purpose::Shares => self.ask_shares(lanes, now),
                    Purpose::Ring => self.exchanger.ask_ring(&self.settings),
                };
                let agents = self.settings.agents.as_str();
                let called = ask((agents, self.settings.token.as_deref()), &request);
                self.exchanger.called(purpose, &request, called, now);
            }
        }
    }

    fn ask_shares(&mut self, lanes: &[Lane], now: f64) -> Request {
        let told = lanes.iter().zip(&mut self.told).map(|(lane, told)| {
            told.take().unwrap_or_else(|| {
                let state = &mut *lane.lock();
                state.worker.tell(&mut state.engine, now)
            })
        });
        let told = (0..).zip(told).collect();
        // No worker can be silent: each has just made a report.
        let (request, _) = self.exchanger.ask_shares(&self.settings, told, now);
        request
    }

    /// Takes an agent's answer.
    pub fn take(&mut self, lanes: &[Lane], token: u64, answer: &Answer) {
        let now = now();
        let news = self
            .exchanger
            .on_answer(&self.settings, token, answered(answer), now);
        match news {
            Some(News::Shares(granted)) => {
                let number = self.exchanger.numbers().0;
                for (worker, shares) in granted {
                    let Some(lane) = lanes.get(worker as usize) else {
                        continue;
                    };
                    let state = &mut *lane.lock();
                    if state.worker.take(&mut state.engine, number, shares, now) {
                        self.given_up = Some(number);
                    }
                    // The report was made before these shares.
                    self.told[worker as usize] = None;
                }
            }
            Some(News::Ring) => self.hand_out_ring(lanes, now),
            None => {}
        }
    }

    fn hand_out_ring(&mut self, lanes: &[Lane], since: f64) {
        if let Some(ring) = self.exchanger.ring() {
            for lane in lanes {
                lane.lock().engine.take_ring(ring);
            }
            self.ring_applied = now() - since;
        }
    }

    /// Adds the counts to Envoy's counters, and sets its gauges.
    pub fn show(&mut self, lanes: &[Lane], configuration: &Configuration, metrics: &Metrics) {
        let (mut counts, mut by_class) = ([0; 4], [[0; 4]; 2]);
        let (mut cost, mut requests) = (0.0, 0);
        for lane in lanes {
            let engine = &lane.lock().engine;
            let of_worker = engine.counts();
            add(&mut counts, counted(of_worker));
            for (sums, counts) in by_class.iter_mut().zip(counted_by_class(of_worker)) {
                add(sums, counts);
            }
            let (more_cost, more_requests) = engine.in_flight();
            cost += more_cost;
            requests += more_requests;
        }
        metrics.count(configuration, self.counts.more(counts));
        let handed_over = &mut self.counts_by_class;
        let more = std::array::from_fn(|at| handed_over[at].more(by_class[at]));
        metrics.count_by_class(configuration, more);
        let version = self.exchanger.ring().map_or(0, |ring| ring.table.version());
        metrics.show(
            configuration,
            gauges((cost, requests), version),
            self.ring_applied,
        );
    }
}
