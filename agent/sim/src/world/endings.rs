//! Ends of requests, and the clients' reactions.

use super::{MIN_PAUSE, Request, World};
use crate::{events::Event, policy::Ended};

impl World<'_> {
    /// Ends a transaction at a node; if it `committed`, the other nodes apply it.
    pub(super) fn wrote(&mut self, slot: u32, node: u32, committed: bool) {
        let (Some(writes), request) = (self.scenario.writes, &self.requests[slot as usize]) else {
            return;
        };
        if !request.writes {
            return;
        }
        let items = request.items;
        let running = &mut self.writers[request.key as usize];
        if let Some(place) = running.iter().position(|at| *at == node) {
            running.swap_remove(place);
        }
        if committed {
            for other in (0..self.nodes.len() as u32).filter(|other| *other != node) {
                self.nodes[other as usize].apply(self.now, items, writes.apply);
                self.plan(other);
            }
        }
    }

    /// Reports the end of an attempt to the policy.
    pub(super) fn tell(&mut self, slot: u32, status: Option<u16>) {
        let proxy = self.proxy(slot);
        let request = &mut self.requests[slot as usize];
        let Some(node) = request.node.take() else {
            return;
        };
        let ended = Ended {
            now: self.now.get(),
            proxy,
            node: node as usize,
            delay: self.now.get() - request.accepted.max(request.sent).get(),
            found: request.found,
            key: request.key,
            items: request.items,
            status,
        };
        self.policy.ended(&ended, request.held.take());
    }

    pub(super) fn fail(&mut self, slot: u32, refused_connection: bool) {
        let request = &mut self.requests[slot as usize];
        if refused_connection {
            request.accepted = self.now;
        }
        let again = refused_connection && !std::mem::replace(&mut request.redispatched, true);
        self.tell(slot, if refused_connection { None } else { Some(500) });
        if again {
            return self.arrive(slot);
        }
        let sent = self.requests[slot as usize].sent.get();
        if !self.try_again(slot) {
            self.recorder.failed(self.now.get(), sent);
            self.next_request(slot);
        }
    }

    pub(super) fn refuse(&mut self, slot: u32) {
        let sent = self.requests[slot as usize].sent.get();
        if !self.try_again(slot) {
            self.recorder.refused(self.now.get(), sent);
            self.next_request(slot);
        }
    }

    /// Schedules a retry, if the client has retries left.
    pub(super) fn try_again(&mut self, slot: u32) -> bool {
        let request = &mut self.requests[slot as usize];
        if request.tries >= self.scenario.clients.retries {
            return false;
        }
        request.tries += 1;
        request.redispatched = false;
        request.held_since = None;
        request.syns = 0;
        request.turn = request.turn.wrapping_add(1);
        let (client, tries) = (request.client, request.tries);
        let wait = self.crowd.back_off(client, tries);
        self.wait_for(slot);
        self.events.put(self.now.after(wait), Event::Arrive(slot));
        true
    }

    pub(super) fn give_up(&mut self, slot: u32) {
        let request = &self.requests[slot as usize];
        if request.orphaned {
            return;
        }
        let (client, key, items, writes, sent, tries) = (
            request.client,
            request.key,
            request.items,
            request.writes,
            request.sent,
            request.tries,
        );
        let swallowed = request
            .node
            .is_some_and(|node| self.nodes[node as usize].forget(slot));
        // The proxy closes the connection, but the node continues to work.
        self.tell(slot, None);
        self.requests[slot as usize].orphaned = true;
        if swallowed {
            self.release_slot(slot);
        }
        let now = self.now.get();
        if tries < self.scenario.clients.retries {
            let again = self.free_slot();
            let fresh = &mut self.requests[again as usize];
            *fresh = Request {
                client,
                turn: fresh.turn.wrapping_add(1),
                key,
                items,
                writes,
                sent,
                tries,
                ..Request::default()
            };
            self.try_again(again);
        } else {
            self.recorder.failed(now, sent.get());
            self.pause(client);
        }
    }

    /// Schedules the client's next request after its think time.
    pub(super) fn pause(&mut self, client: u32) {
        if self.scenario.clients.count > 0 {
            let pause = self.crowd.pause(client, self.now.get());
            self.events
                .put(self.now.after(pause.max(MIN_PAUSE)), Event::Send(client));
        }
    }

    pub(super) fn next_request(&mut self, slot: u32) {
        let client = self.requests[slot as usize].client;
        self.release_slot(slot);
        self.pause(client);
    }

    pub(super) fn release_slot(&mut self, slot: u32) {
        let request = &mut self.requests[slot as usize];
        request.turn = request.turn.wrapping_add(1);
        self.free.push(slot);
    }
}
