//! Workload of the clients. Each draws from a generator of its own, so that every policy gets the same work.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::scenario::{Clients, Phase};

/// A client's next step.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// Key of the requested data.
    pub key: u32,
    /// Items that the request touches.
    pub items: f64,
    /// Whether it goes to the nodes and not to the master.
    pub query: bool,
}

/// All clients, or one open stream.
pub struct Crowd {
    settings: Clients,
    generators: Vec<Xoshiro256PlusPlus>,
    /// Requests/s at load 1.
    full_rate: f64,
}

impl Crowd {
    /// Creates the clients. `capacity` in items/s corresponds to an open load of 1.
    pub fn new(settings: &Clients, capacity: f64, seed: u64) -> Self {
        let mean = (settings.items[0] + settings.items[1]) / 2.0;
        let mean = settings.long.map_or(mean, |long| {
            mean * (1.0 - long.part) + long.part * (long.items[0] + long.items[1]) / 2.0
        });
        let count = u64::from(settings.count.max(1));
        let of_client = |client| {
            // Neighbouring seeds give independent streams.
            Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ client)
        };
        Crowd {
            settings: settings.clone(),
            generators: (0..count).map(of_client).collect(),
            full_rate: capacity / mean,
        }
    }

    /// Number of clients, or 1 for an open stream.
    pub fn count(&self) -> u32 {
        self.settings.count.max(1)
    }

    fn phase(&self, now: f64) -> Phase {
        let at = self
            .settings
            .phases
            .partition_point(|phase| phase.from <= now);
        self.settings.phases[at.saturating_sub(1)]
    }

    /// Time of the first request: spread over the first think time, so that clients do not act in step.
    pub fn first(&mut self, client: u32) -> f64 {
        match self.settings.phases[0].think {
            Some([_, high]) => high * self.generators[client as usize].random::<f64>(),
            None => self.pause(client, 0.0),
        }
    }

    /// Time until the next request: since the response in a closed loop, since the last request in an open stream.
    pub fn pause(&mut self, client: u32, now: f64) -> f64 {
        let phase = self.phase(now);
        let generator = &mut self.generators[client as usize];
        let drawn = generator.random::<f64>();
        match (phase.think, phase.load) {
            (Some([low, high]), _) => low + (high - low) * drawn,
            (None, Some(load)) if load > 0.0 => -(1.0 - drawn).ln() / (load * self.full_rate),
            // No load: check again after a while.
            _ => 0.1,
        }
    }

    /// Whether requests are sent now.
    pub fn sends(&self, now: f64) -> bool {
        self.phase(now).load.is_none_or(|load| load > 0.0)
    }

    /// Next request of a client.
    pub fn wish(&mut self, client: u32) -> Wish {
        let generator = &mut self.generators[client as usize];
        let query =
            self.settings.queries >= 1.0 || generator.random::<f64>() < self.settings.queries;
        let key = generator.random_range(0..self.settings.keys);
        let [low, high] = match self.settings.long {
            Some(long) if generator.random::<f64>() < long.part => long.items,
            _ => self.settings.items,
        };
        let items = (low + (high - low + 1.0) * generator.random::<f64>())
            .floor()
            .min(high);
        Wish { key, items, query }
    }

    /// Backoff before retry number `tries`, from 1.
    pub fn back_off(&mut self, client: u32, tries: u32) -> f64 {
        let [low, high] = self.settings.retry_wait;
        let drawn = self.generators[client as usize].random::<f64>();
        (low + (high - low) * drawn) * f64::from(1u32 << (tries - 1).min(16))
    }
}
