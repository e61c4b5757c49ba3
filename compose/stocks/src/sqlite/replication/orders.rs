//! The orders of a slave that is a primary, on their way to the master and back.

use std::collections::HashMap;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};

use super::wire::{FromSlave, Outcome, encode};
use crate::database::{InDoubt, Unavailable};
use crate::transaction::{Order, Refusal, Transaction};

/// Bounded by the workers, each of which waits for one answer at most.
pub struct Orders {
    limit: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// To the master, while this node is level with it.
    socket: Option<TcpStream>,
    next: u64,
    waiting: HashMap<u64, SyncSender<Outcome>>,
}

impl Orders {
    /// `limit` is how long an answer is waited for.
    pub fn new(limit: Duration) -> Self {
        Self {
            limit,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes something else to the master, so that it does not fall into the midst of an order.
    pub fn locked<T>(&self, write: impl FnOnce() -> T) -> T {
        let _state = self.lock();
        write()
    }

    pub fn connected(&self, socket: TcpStream) {
        self.lock().socket = Some(socket);
    }

    /// Leaves waiting orders in doubt, as the master may have committed them.
    pub fn disconnected(&self) {
        let mut state = self.lock();
        state.socket = None;
        state.waiting.clear();
    }

    pub fn answered(&self, id: u64, outcome: Outcome) {
        // Callers that timed out are no longer in the map.
        if let Some(waiting) = self.lock().waiting.remove(&id) {
            let _ = waiting.try_send(outcome);
        }
    }

    /// Sends an order once and waits for its answer. It is never sent again, so that it cannot be
    /// made twice.
    pub fn commit(&self, order: Order) -> Result<Result<Transaction, Refusal>> {
        let (answer, answered) = sync_channel(1);
        let id = {
            let mut state = self.lock();
            let id = state.next;
            state.next += 1;
            let line = encode(&FromSlave::Order { id, order })?;
            let Some(socket) = &mut state.socket else {
                return Err(Unavailable("not caught up with the master".to_owned()).into());
            };
            if let Err(error) = socket.write_all(line.as_bytes()) {
                // A part of the line may be out, so that no other may follow. Fails only on a
                // connection that has ended already.
                let _ = socket.shutdown(Shutdown::Both);
                state.socket = None;
                return Err(InDoubt(format!("the master cannot be reached: {error}")).into());
            }
            state.waiting.insert(id, answer);
            id
        };
        match answered.recv_timeout(self.limit) {
            Ok(Outcome::Made(made)) => Ok(Ok(made)),
            Ok(Outcome::Refused(refusal)) => Ok(Err(refusal)),
            Ok(Outcome::Unavailable(why)) => Err(Unavailable(why).into()),
            Ok(Outcome::Failed(why)) => bail!("the master could not commit: {why}"),
            Err(RecvTimeoutError::Timeout) => {
                self.lock().waiting.remove(&id);
                let why = format!("the master has not answered within {:?}", self.limit);
                Err(InDoubt(why).into())
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(InDoubt("the connection to the master ended".to_owned()).into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;
    use std::sync::Arc;

    use super::*;
    use crate::transaction::Side;

    const ORDER: Order = Order {
        side: Side::Purchase,
        account: 1,
        stock: 2,
        shares: 3,
    };

    fn made() -> Transaction {
        ORDER.at(1, 100, 1_000, 0).unwrap()
    }

    /// Orders connected to the other end of a socket.
    fn connected(limit: Duration) -> (Arc<Orders>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let orders = Arc::new(Orders::new(limit));
        orders.connected(socket);
        (orders, listener.accept().unwrap().0)
    }

    fn committing(orders: &Arc<Orders>) -> std::thread::JoinHandle<Result<Transaction, String>> {
        let orders = Arc::clone(orders);
        std::thread::spawn(move || match orders.commit(ORDER) {
            Ok(Ok(made)) => Ok(made),
            Ok(Err(refusal)) => Err(format!("{refusal:?}")),
            Err(error) if error.is::<InDoubt>() => Err("in doubt".to_owned()),
            Err(error) if error.is::<Unavailable>() => Err("unavailable".to_owned()),
            Err(error) => Err(error.to_string()),
        })
    }

    fn sent(far: &TcpStream) -> String {
        let mut line = String::new();
        BufReader::new(far).read_line(&mut line).unwrap();
        line
    }

    #[test]
    fn order_without_a_master_changes_nothing() {
        let orders = Arc::new(Orders::new(Duration::from_secs(10)));
        assert_eq!(
            committing(&orders).join().unwrap().unwrap_err(),
            "unavailable"
        );
    }

    #[test]
    fn answer_reaches_its_waiting_order() {
        let (orders, far) = connected(Duration::from_secs(10));
        let waiting = committing(&orders);
        let line = sent(&far);
        assert!(line.contains(r#""id":0"#), "{line}");
        // An answer without a waiting order is ignored.
        orders.answered(7, Outcome::Failed("of whom?".to_owned()));
        orders.answered(0, Outcome::Made(made()));
        assert_eq!(waiting.join().unwrap().unwrap().sequence, 1);
        let waiting = committing(&orders);
        assert!(sent(&far).contains(r#""id":1"#));
        orders.answered(1, Outcome::Refused(Refusal::NotEnoughShares { held: 0 }));
        assert!(
            waiting
                .join()
                .unwrap()
                .unwrap_err()
                .contains("NotEnoughShares")
        );
    }

    #[test]
    fn broken_link_leaves_waiting_orders_in_doubt() {
        let (orders, far) = connected(Duration::from_secs(10));
        let waiting = committing(&orders);
        sent(&far);
        orders.disconnected();
        assert_eq!(waiting.join().unwrap().unwrap_err(), "in doubt");
        assert_eq!(
            committing(&orders).join().unwrap().unwrap_err(),
            "unavailable"
        );
    }

    #[test]
    fn a_silent_master_leaves_an_order_in_doubt() {
        let (orders, _far) = connected(Duration::from_millis(20));
        assert_eq!(committing(&orders).join().unwrap().unwrap_err(), "in doubt");
        assert!(orders.lock().waiting.is_empty());
    }
}
