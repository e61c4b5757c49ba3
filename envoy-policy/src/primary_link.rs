//! A worker's talk with an agent about primaries: when it tells, and what the answer does.

use crate::{
    call::{Answered, Call, Request, body},
    primaries::Primaries,
    random::Random,
};

const PURPOSE: &str = "primaries";

/// One worker's.
#[derive(Debug)]
pub struct PrimaryLink {
    call: Call,
    /// When the last message was.
    sent: f64,
    random: Random,
}

impl PrimaryLink {
    /// `seed` tells its jitter from another's.
    pub fn new(seed: u64) -> Self {
        PrimaryLink {
            call: Call::default(),
            sent: 0.0,
            random: Random::new(seed),
        }
    }

    /// The message that is due, if one is. The caller says then that it was sent ([`PrimaryLink::called`]).
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

    /// The call was made, and its answer will come by this token; or why it could not be.
    pub fn called(&mut self, request: &Request, called: Result<u64, String>, now: f64) {
        let random = self.random.fraction();
        self.call
            .started(PURPOSE, called, (now, request.timeout), random);
    }

    /// Takes the answer to a call; whether that was still waited for.
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
