//! Periodic price updates: each stock has a period of its own, and an agent may ask for a longer one. Updates that
//! cost the node time are made by its workers, those that cost none are one commit at a time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Error;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::mpsc;

use crate::agent_periods::AgentPeriods;
use crate::database::PriceUpdate;
use crate::freshness::Quotes;
use crate::metrics::Metrics;
use crate::pool::Pool;

/// Interval at which updates are batched. Shorter periods are still kept on average.
const GATHERED: Duration = Duration::from_millis(200);
/// The same if updates keep workers busy.
const GATHERED_FOR_WORKERS: Duration = Duration::from_millis(20);
/// Maximum updates that a worker makes before the next request.
const AT_ONCE: usize = 16;

/// The stocks' own periods, the same on all nodes.
pub fn own_periods(seed: u64, symbols: u32, range: (Duration, Duration)) -> Vec<Duration> {
    let mut rng = SmallRng::seed_from_u64(seed ^ 0x7072_6963_6573);
    let draw = |_| rng.random_range(range.0..=range.1);
    (0..symbols).map(draw).collect()
}

/// Source of updates.
pub struct Feed {
    pub update: Mutex<PriceUpdate>,
    pub quotes: Arc<Quotes>,
    pub metrics: Arc<Metrics>,
    /// Worker time per update.
    pub latency: Duration,
    /// Receives the error that ends the process.
    pub failed: mpsc::Sender<Error>,
    /// Whether an update waits, by stock; further ones are skipped.
    pub waiting: Vec<AtomicBool>,
}

struct Move {
    stock: u32,
    /// Hundredths of a percent.
    change: i64,
    period: Duration,
}

impl Feed {
    /// Runs until the process ends.
    pub fn run<T: Send + 'static>(
        self: Arc<Self>,
        own: Vec<Duration>,
        seed: u64,
        asked: Option<&AgentPeriods>,
        pool: &Pool<T>,
    ) {
        let mut rng = SmallRng::seed_from_u64(seed ^ 0x6d_6f_76_65);
        let gathered = self
            .gathered()
            .min(own.iter().copied().min().unwrap_or_default());
        let mut schedule = Schedule::new(own, Instant::now(), &mut rng);
        let mut version = 0;
        loop {
            std::thread::sleep(gathered);
            let now = Instant::now();
            if let Some((news, periods)) = asked.and_then(|asked| asked.since(version)) {
                version = news;
                let longer = schedule.follow(&periods, now, &mut rng);
                self.metrics.feed_relaxed.set(longer as i64);
            }
            let mut moves = Vec::new();
            while let Some((stock, period)) = schedule.next(now) {
                let change = rng.random_range(-100..=100);
                if self.waiting[stock as usize].swap(true, Ordering::AcqRel) {
                    self.metrics.price_updates_skipped.inc();
                    continue;
                }
                moves.push(Move {
                    stock,
                    change,
                    period,
                });
            }
            if self.latency.is_zero() {
                self.make(&moves);
                continue;
            }
            while !moves.is_empty() {
                let some: Vec<Move> = moves.drain(..moves.len().min(AT_ONCE)).collect();
                let feed = Arc::clone(&self);
                pool.update(Box::new(move || {
                    feed.make(&some);
                    feed.latency * some.len() as u32
                }));
            }
        }
    }

    fn gathered(&self) -> Duration {
        if self.latency.is_zero() {
            GATHERED
        } else {
            GATHERED_FOR_WORKERS
        }
    }

    fn make(&self, moves: &[Move]) {
        if moves.is_empty() {
            return;
        }
        let changes: Vec<(u32, i64)> = moves.iter().map(|it| (it.stock, it.change)).collect();
        let mut update = self.update.lock().unwrap_or_else(PoisonError::into_inner);
        let made = update(&changes);
        drop(update);
        match made {
            // The database is away: the quotes stand still.
            Ok(0) => {}
            Ok(made) => {
                self.metrics.price_updates.inc_by(made as u64);
                self.note(moves);
            }
            // Full only if another failure ends the process already.
            Err(error) => drop(self.failed.try_send(error.context("cannot update prices"))),
        }
        for it in moves {
            self.waiting[it.stock as usize].store(false, Ordering::Release);
        }
    }

    fn note(&self, moves: &[Move]) {
        let now = Instant::now();
        for it in moves {
            let Some(passed) = self.quotes.updated(it.stock, now) else {
                continue;
            };
            let slack = 2 * self.gathered() + it.period / 10;
            if passed + slack < it.period {
                self.metrics.off_period("early");
            } else if passed > it.period + slack {
                self.metrics.off_period("late");
            }
        }
    }
}

/// When each stock is due.
struct Schedule {
    own: Vec<Duration>,
    /// In force.
    periods: Vec<Duration>,
    /// When it was due last.
    last: Vec<Instant>,
    due: BinaryHeap<Reverse<(Instant, u32)>>,
}

impl Schedule {
    /// All at their own periods, spread over them.
    fn new(own: Vec<Duration>, now: Instant, rng: &mut SmallRng) -> Self {
        let first = own.iter().map(|period| now + period.mul_f64(rng.random()));
        let due = first.zip(0..).map(Reverse).collect();
        Self {
            periods: own.clone(),
            last: vec![now; own.len()],
            own,
            due,
        }
    }

    /// The next one that is due by now, and its period.
    fn next(&mut self, now: Instant) -> Option<(u32, Duration)> {
        let Reverse((at, stock)) = self.due.peek().copied().filter(|it| it.0.0 <= now)?;
        self.due.pop();
        let period = self.periods[stock as usize];
        self.last[stock as usize] = now;
        // A node that fell behind skips updates rather than making them in a burst.
        self.due.push(Reverse(((at + period).max(now), stock)));
        Some((stock, period))
    }

    /// Other periods; stocks that are not there have their own. Returns how many are longer than that.
    fn follow(
        &mut self,
        wanted: &HashMap<u32, Duration>,
        now: Instant,
        rng: &mut SmallRng,
    ) -> usize {
        let mut longer = 0;
        let mut due = std::mem::take(&mut self.due).into_vec();
        for Reverse((at, stock)) in &mut due {
            let index = *stock as usize;
            let period = wanted.get(stock).copied().unwrap_or(self.own[index]);
            longer += usize::from(period > self.own[index]);
            if std::mem::replace(&mut self.periods[index], period) == period {
                continue;
            }
            *at = self.last[index] + period;
            if *at < now {
                // Not all at once.
                *at = now + period.mul_f64(rng.random());
            }
        }
        self.due = due.into();
        longer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Duration = Duration::from_millis(500);

    fn updates(schedule: &mut Schedule, from: Instant, seconds: u64) -> Vec<u32> {
        let mut made = vec![0; schedule.own.len()];
        for tick in 0..seconds * 50 {
            let now = from + Duration::from_millis(20 * tick);
            while let Some((stock, _)) = schedule.next(now) {
                made[stock as usize] += 1;
            }
        }
        made
    }

    #[test]
    fn each_stock_keeps_its_own_or_requested_period() {
        let (mut rng, start) = (SmallRng::seed_from_u64(1), Instant::now());
        let mut schedule = Schedule::new(vec![OWN; 3], start, &mut rng);
        assert!(
            updates(&mut schedule, start, 10)
                .iter()
                .all(|made| (19..=21).contains(made))
        );

        let later = start + Duration::from_secs(10);
        let wanted = HashMap::from([(1, Duration::from_secs(5)), (2, Duration::from_secs(1))]);
        assert_eq!(schedule.follow(&wanted, later, &mut rng), 2);
        let made = updates(&mut schedule, later, 20);
        assert!((38..=42).contains(&made[0]), "{made:?}");
        assert!((4..=5).contains(&made[1]), "{made:?}");
        assert!((19..=21).contains(&made[2]), "{made:?}");

        // Back at once, not when the long period is over.
        let back = later + Duration::from_secs(20);
        assert_eq!(schedule.follow(&HashMap::new(), back, &mut rng), 0);
        let made = updates(&mut schedule, back, 10);
        assert!(made.iter().all(|made| (19..=21).contains(made)), "{made:?}");
    }

    #[test]
    fn missed_updates_are_not_made_up_for() {
        let (mut rng, start) = (SmallRng::seed_from_u64(1), Instant::now());
        let mut schedule = Schedule::new(vec![OWN; 10], start, &mut rng);
        let late = start + Duration::from_secs(3600);
        let mut made = 0;
        while schedule.next(late).is_some() && made < 1000 {
            made += 1;
        }
        assert!(made <= 20, "{made}");
    }

    #[test]
    fn periods_follow_from_the_seed() {
        let range = (OWN, 10 * OWN);
        let periods = own_periods(7, 100, range);
        assert_eq!(periods, own_periods(7, 100, range));
        assert_ne!(periods, own_periods(8, 100, range));
        assert!(
            periods
                .iter()
                .all(|period| (range.0..=range.1).contains(period))
        );
    }
}
