//! The outcome of a state without further faults.

use super::*;

impl World {
    /// Whether each hand-over ends, and another one after it, once nothing goes wrong any more.
    pub fn comes_to_rest(&self, config: &Config) -> bool {
        let config = Config {
            joins: u8::MAX,
            ..config.at_once()
        };
        let mut world = self.clone();
        let keeper = 0;
        world.left.claims = u8::MAX;
        world.replica = None;
        world.former = None;
        for number in 0..DISPATCHERS {
            world.dispatchers[number].post = Post::None;
            world.apply(Action::Reconnect(number), &config);
        }
        if world.agents[keeper].server != world.master.server {
            world.apply(Action::ReconnectAgent(keeper), &config);
        }
        world.agents[keeper].replicated(world.master.server);
        for round in 0..2 {
            let was = world.master.at.entries[0].node();
            let mut wish = (round > 0).then_some(0);
            for _ in 0..config.rounds() {
                wish = world.act_in_turn(keeper, wish, &config);
            }
            let is_moved = round == 0 || world.master.at.entries[0].node() != was;
            if !world.is_at_rest(keeper) || !is_moved {
                return false;
            }
        }
        true
    }

    /// Returns the wish if it was not heeded.
    fn act_in_turn(
        &mut self,
        keeper: usize,
        wish: Option<usize>,
        config: &Config,
    ) -> Option<usize> {
        while !self.runs.is_empty() {
            self.end(0);
        }
        self.left.ticks = u8::MAX;
        self.tick(config);
        for number in 0..DISPATCHERS {
            self.apply(Action::Report(number), config);
        }
        if self.agents[keeper].term.is_none() {
            self.claim(keeper, config);
        }
        if self.agents[keeper].has_claimed() {
            self.begin(keeper, config);
            self.waited(keeper, config);
            return wish;
        }
        self.left.moves = 1;
        if self.agents[keeper].is_idle() {
            self.read(keeper, wish, config);
        }
        let began = self.agents[keeper].is_moving();
        self.publish(keeper, config);
        self.waited(keeper, config);
        wish.filter(|_| !began)
    }

    fn is_at_rest(&mut self, keeper: usize) -> bool {
        let at = self.master.at;
        let routes = |dispatcher: &mut Dispatcher| {
            dispatcher.refresh();
            let nodes = dispatcher.view.map(|(.., nodes)| nodes);
            nodes == Some(at.entries.map(|entry| Some(entry.node())))
        };
        let is_moving = self.agents[keeper].is_moving();
        !at.is_moving() && !is_moving && self.dispatchers.iter_mut().all(routes)
    }
}
