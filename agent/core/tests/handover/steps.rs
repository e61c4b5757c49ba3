//! Possible next events.

use super::*;

impl World {
    pub(super) fn tell(&mut self, proxy: usize) {
        let Proxy { id, follower, .. } = &self.proxies[proxy];
        if let (Some(id), Some((version, busy))) = (id, follower.report()) {
            self.letters.push(Letter::ToKeeper(*id, version, busy));
        }
    }

    pub(super) fn fetch(&mut self, proxy: usize) {
        let Proxy { id, follower, .. } = &self.proxies[proxy];
        let Some(id) = *id else { return };
        if follower
            .version()
            .is_some_and(|version| !self.has_been(version))
        {
            return;
        }
        match self.keeper.news(follower.version()) {
            News::None => {}
            News::Deltas(deltas) => {
                let letters = deltas.into_iter().map(|delta| Letter::Change(id, delta));
                self.letters.extend(letters);
            }
            News::Table(table) => self.letters.push(Letter::Whole(id, table)),
        }
    }

    pub(super) fn deliver(&mut self, letter: Letter) {
        let of = |world: &World, id: DispatcherId| {
            world.proxies.iter().position(|proxy| proxy.id == Some(id))
        };
        match letter {
            Letter::ToKeeper(id, version, busy) => {
                self.read();
                if !self.has_been(version) {
                    // It acted on the lost version: it is out, and its requests are in doubt.
                    if let Some(proxy) = of(self, id) {
                        self.proxies[proxy].follower.suspend();
                        self.proxies[proxy].id = None;
                    }
                    self.silent.retain(|silent| *silent != id);
                    return self.leave(id, false);
                }
                let heard = self.keeper.heard(id, version, &busy);
                if heard == Err(KeeperError::Unknown(id))
                    && let Some(proxy) = of(self, id)
                {
                    self.proxies[proxy].follower.suspend();
                    self.proxies[proxy].id = None;
                } else if !matches!(heard, Ok(()) | Err(KeeperError::Unknown(_))) {
                    panic!("{heard:?}");
                }
            }
            Letter::Change(id, delta) => {
                if let Some(proxy) = of(self, id)
                    && self.proxies[proxy].follower.on_delta(&delta) == Err(Gap::Missed)
                    && self.random.random()
                {
                    self.letters
                        .push(Letter::Whole(id, self.keeper.table().clone()));
                }
            }
            // A message to its former number may also arrive, and looks the same.
            Letter::Whole(id, table) => {
                let proxy = self
                    .proxies
                    .iter()
                    .position(|proxy| proxy.had.contains(&id));
                if let Some(proxy) = proxy {
                    self.proxies[proxy].follower.on_table(table);
                }
            }
        }
    }

    pub(super) fn send(&mut self, proxy: usize) {
        let name = NAMES[self.below(NAMES.len())];
        let request = self.number();
        let Proxy {
            id,
            follower,
            tickets,
            ..
        } = &mut self.proxies[proxy];
        let Route::Go(ticket) = follower.route(name).unwrap() else {
            return;
        };
        let node = ticket.node() as usize;
        if !self.alive[node] {
            // Refused at once.
            return follower.answered(ticket);
        }
        let sender = id.unwrap();
        tickets.insert(request, ticket);
        self.nodes[node].push(Running {
            request,
            name,
            sender,
            orphan: false,
        });
    }

    pub(super) fn end(&mut self, node: usize) {
        if self.nodes[node].is_empty() {
            return;
        }
        let which = self.below(self.nodes[node].len());
        let done = self.nodes[node].swap_remove(which);
        for proxy in &mut self.proxies {
            if let Some(ticket) = proxy.tickets.remove(&done.request) {
                proxy.follower.answered(ticket);
            }
        }
    }

    /// Vouches for nodes that have finished.
    pub(super) fn vouch(&mut self, node: usize) {
        for proxy in &mut self.proxies {
            let at_work = |running: &Running| running.orphan && proxy.had.contains(&running.sender);
            if !self.nodes[node].iter().any(at_work) {
                proxy.follower.vouched(node as u32);
            }
        }
        let departed = &self.departed;
        if !self.nodes[node]
            .iter()
            .any(|running| departed.contains(&running.sender))
        {
            self.keeper.vouched(node as u32);
        }
    }

    pub(super) fn plan(&mut self) {
        let to = self.below(NODES as usize) as u32;
        let name = NAMES[self.below(NAMES.len())];
        let set = self.keeper.table().set_of(name);
        let change = match self.below(4) {
            0 if !self.keeper.table().is_named(name) => Change::Name(name.into(), to),
            1 if self.keeper.table().is_named(name) => Change::Forget(name.into()),
            _ => Change::Move(set, to),
        };
        let before = self.keeper.table().version();
        match self.keeper.begin(&[change]) {
            Ok(()) | Err(KeeperError::Down(_)) => {}
            Err(error) => panic!("{error}"),
        }
        self.moved += u64::from(self.keeper.table().version() > before);
    }

    pub(super) fn crash(&mut self, proxy: usize) {
        let gone = std::mem::take(&mut self.proxies[proxy]);
        self.silent.extend(gone.id);
        for id in gone.had {
            for_each(&mut self.nodes, |running| {
                running.orphan |= running.sender == id;
            });
        }
    }

    pub(super) fn step(&mut self) {
        let proxy = self.below(self.proxies.len());
        let node = self.below(NODES as usize);
        match self.below(100) {
            0..25 => self.send(proxy),
            25..45 => self.end(node),
            45..50 => {
                let tickets: Vec<u64> = self.proxies[proxy].tickets.keys().copied().collect();
                if !tickets.is_empty() {
                    let request = tickets[self.below(tickets.len())];
                    self.cut(proxy, Some(request));
                }
            }
            50..58 => self.fetch(proxy),
            58..66 => self.tell(proxy),
            66..80 if !self.letters.is_empty() => {
                let which = self.below(self.letters.len());
                let letter = match self.below(10) {
                    // Lost, and doubled.
                    0 => return drop(self.letters.swap_remove(which)),
                    1 | 2 => self.letters[which].clone(),
                    _ => self.letters.swap_remove(which),
                };
                self.deliver(letter);
            }
            80..86 => self.plan(),
            86..90 => self.vouch(node),
            90 => self.crash(proxy),
            91 => {
                // The keeper was not heard for long.
                self.proxies[proxy].follower.suspend();
                self.silent.extend(self.proxies[proxy].id.take());
            }
            92 => {
                let leaving = &mut self.proxies[proxy];
                if leaving.tickets.is_empty()
                    && leaving.follower.in_doubt().is_empty()
                    && let Some(id) = leaving.id.take()
                {
                    self.proxies[proxy] = Proxy::default();
                    self.leave(id, true);
                }
            }
            93 | 94 => {
                if let Some(id) = self.silent.pop() {
                    self.leave(id, false);
                }
            }
            95 => {
                self.alive[node] = false;
                self.nodes[node].clear();
            }
            96 => self.keeper.node_down(node as u32),
            97 => {
                self.alive[node] = true;
                self.keeper.node_up(node as u32);
            }
            98 if self.random.random_ratio(1, 3) => self.lose(),
            98 if self.random.random() => self.replace_keeper(),
            98 => {
                let late = self.keeper.moving().next().cloned();
                late.iter().for_each(|set| self.keeper.give_up(set));
            }
            _ if self.proxies[proxy].id.is_none() => self.join(proxy),
            _ => self.read(),
        }
    }
}
