//! What goes between a cluster's workers and the agents, on the main thread.

use envoy_abi::{Answer, Configuration};
use envoy_policy::{
    call::Request,
    config::Settings,
    exchanger::{Exchanger, News, Purpose},
    statistics::{HandedOver, counted, gauges},
    told::Told,
};

use crate::{
    lane::Lane,
    metrics::Metrics,
    system::{now, seed},
    waking::answered,
};

/// One cluster's.
#[derive(Debug)]
pub struct Exchange {
    settings: Settings,
    exchanger: Exchanger,
    /// What each worker told at the end of its period, until that is passed on.
    told: Vec<Option<Told>>,
    /// The number of the shares of which a worker gave up much.
    given_up: Option<u64>,
    counts: HandedOver,
    /// Seconds that the last ring took to reach all workers.
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
            ring_applied: 0.0,
        }
    }

    /// Takes other settings over; whether they are others.
    pub fn set(&mut self, settings: &Settings) -> bool {
        let are_others = self.settings != *settings;
        self.settings = settings.clone();
        are_others
    }

    /// Makes the calls that are due.
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
        // None is silent: all were just asked.
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
                    // It was told before.
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

    /// Hands over what was counted to Envoy's statistics.
    pub fn show(&mut self, lanes: &[Lane], configuration: &Configuration, metrics: &Metrics) {
        let mut counts = [0; 4];
        let (mut cost, mut requests) = (0.0, 0);
        for lane in lanes {
            let engine = &lane.lock().engine;
            for (sum, count) in counts.iter_mut().zip(counted(engine.counts())) {
                *sum += count;
            }
            let (more_cost, more_requests) = engine.in_flight();
            cost += more_cost;
            requests += more_requests;
        }
        metrics.count(configuration, self.counts.more(counts));
        let version = self.exchanger.ring().map_or(0, |ring| ring.table.version());
        metrics.show(
            configuration,
            gauges((cost, requests), version),
            self.ring_applied,
        );
    }
}
