//! A worker's exchange with an agent about primaries: when it sends a message, and what follows from the answer.

use crate::{
    call::{Answered, Call, Request, body},
    primaries::Primaries,
    random::Random,
};

const PURPOSE: &str = "primaries";

/// One worker's exchange about one cluster.
#[derive(Debug)]
pub struct PrimaryLink {
    call: Call,
    /// Send time of the last message, seconds.
    sent: f64,
    random: Random,
}

impl PrimaryLink {
    /// `seed` starts the jitter; each worker needs its own.
    pub fn new(seed: u64) -> Self {
        PrimaryLink {
            call: Call::default(),
            sent: 0.0,
            random: Random::new(seed),
        }
    }

    /// The next message, if one is due at `now`, seconds. The caller sends it and reports that to
    /// [`PrimaryLink::called`].
    pub fn ask(&mut self, primaries: &mut Primaries, now: f64) -> Option<Request> {
        if primaries.is_due(now) && self.call.is_well() {
            self.call.due = now;
        }
        if !self.call.is_due(now) {
            return None;
        }
        self.sent = now;
        Some(Request {
            path: "/v1/placement".to_owned(),
            body: Some(primaries.message(now)),
            timeout: primaries.settings().timeout,
        })
    }

    /// Records that the call was made, with the token of its answer, or why it could not be.
    pub fn called(&mut self, request: &Request, called: Result<u64, String>, now: f64) {
        let random = self.random.fraction();
        self.call
            .started(PURPOSE, called, (now, request.timeout), random);
    }

    /// Takes the answer to the call with this token. Returns false if no such call is in flight; the answer is then
    /// ignored.
    pub fn on_answer(
        &mut self,
        primaries: &mut Primaries,
        token: u64,
        answered: Answered,
        now: f64,
    ) -> bool {
        if !self.call.takes(token) {
            return false;
        }
        let random = self.random.fraction();
        let taken = body(answered).and_then(|body| primaries.on_answer(body, self.sent, now));
        match taken {
            // Jittered, so that dispatchers do not act in step.
            Ok(due) => {
                let due = due + 0.1 * (due - now) * (random - 1.0);
                self.call.succeeded(PURPOSE, due);
            }
            Err(problem) => self.call.failed(PURPOSE, problem, now, random),
        }
        true
    }
}
