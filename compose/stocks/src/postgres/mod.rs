//! PostgreSQL: the master's node on a primary, each slave's on a standby of its own.

mod data;
mod follower;
mod pulse;
mod session;
mod source;
mod standbys;
mod transact;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use crate::catalog::Dimensions;
use crate::cli::{Role, ServeArgs};
use crate::database::{Opened, PriceUpdate, spawn};
use crate::metrics::Metrics;
use follower::Follower;
use pulse::Pulse;
use session::{Commit, Session, Settings};
pub use source::Source;
use standbys::Keeper;

pub struct Store {
    pulse: Arc<Pulse>,
}

impl Store {
    pub fn ready(&self) -> Result<(), &'static str> {
        self.pulse.ready()
    }
}

/// Waits for the database and starts what watches it.
pub fn open(
    args: &ServeArgs,
    database: &str,
    dimensions: Dimensions,
    metrics: &Arc<Metrics>,
) -> Result<Opened<Store, Source>> {
    let timeout = args.replication_timeout;
    let own = Settings::new(args, database, Commit::Local)?;
    let clients = Settings::new(args, database, Commit::Applied)?;
    let catalog = data::load(&own, dimensions)?;
    let pulse = Arc::new(Pulse::new(timeout / 2, Arc::clone(metrics)));
    let (watched, shared) = (Arc::clone(&pulse), Arc::clone(metrics));
    let prices = match args.role {
        Role::Master => {
            let keeper = Keeper::new(Arc::clone(&own), timeout, shared, watched)?;
            spawn("standbys", move || keeper.run())?;
            Some(prices(own)?)
        }
        // Quotes come with the rest.
        Role::Slave => {
            let follower = Follower::new(own, args.name.clone(), timeout, shared, watched)?;
            spawn("follower", move || follower.run())?;
            None
        }
    };
    let sources: Result<Vec<_>> = (0..args.service.workers)
        .map(|_| {
            // A standby that dies holds a commit up for the timeout and the heartbeat after it.
            Source::new(Arc::clone(&clients), Arc::clone(metrics), timeout * 2)
        })
        .collect();
    Ok(Opened {
        store: Store { pulse },
        catalog,
        sources: sources?,
        prices,
    })
}

/// No client waits for a quote, so its commit does not wait for the standbys.
fn prices(settings: Arc<Settings>) -> Result<PriceUpdate> {
    let mut session: Session<()> = Session::new(settings)?;
    Ok(Box::new(move |moves| {
        let (stocks, changes): (Vec<i64>, Vec<i64>) = moves
            .iter()
            .map(|&(stock, change)| (i64::from(stock), change))
            .unzip();
        let moved = session.run(1, Duration::ZERO, async |open| {
            let update = "UPDATE quotes SET
                    change_cents = greatest(100, least(10000000,
                        price_cents + price_cents * change / 10000)) - price_cents,
                    price_cents = greatest(100, least(10000000,
                        price_cents + price_cents * change / 10000)),
                    updates = updates + 1
                FROM unnest($1::bigint[], $2::bigint[]) AS moved (stock, change)
                WHERE stock_id = stock";
            open.client.execute(update, &[&stocks, &changes]).await
        });
        match moved {
            Ok(rows) => Ok(rows as usize),
            // Quotes stand still while the database is away.
            Err(failure) if failure.is_passing() => Ok(0),
            Err(failure) => Err(failure.into()),
        }
    }))
}
