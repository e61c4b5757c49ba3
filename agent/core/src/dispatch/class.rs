//! Classes of requests: when a node is full, the lower ones are refused first.

/// Fraction of the higher classes' cost that may be refused while lower ones are admitted.
const REFUSED_PART: f64 = 0.0025;
/// Part of a reserve that is left after a period in which nobody needed it.
const KEPT_PART: f64 = 0.7;
/// Reserve, as a multiple of the least cost, below which it is 0.
const MIN_RESERVE: f64 = 0.01;

/// Importance of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class(u8);

impl Class {
    /// Number of classes.
    pub const COUNT: usize = 4;
    /// The most important class, 0, which is refused last.
    pub const HIGHEST: Class = Class(0);
    /// The least important class, 3, which is refused first.
    pub const LOWEST: Class = Class(Class::COUNT as u8 - 1);

    /// The class of this number, 0..=3; larger ones are the lowest class.
    pub fn new(number: u64) -> Class {
        u8::try_from(number).map_or(Class::LOWEST, |number| Class(number).min(Class::LOWEST))
    }

    /// Its number, 0..=3.
    pub fn number(self) -> usize {
        usize::from(self.0)
    }
}

/// Room of a node that each class leaves free for higher ones, in items.
///
/// This is trunk reservation: a little free room is enough, and its size depends on how the higher classes arrive, not
/// on the size of the node. So it is learned: it rises with each request of a higher class that is refused, and falls
/// with each that is admitted, so much that [`REFUSED_PART`] of them are refused in the long run (stochastic
/// approximation; Robbins and Monro, 1951).
#[derive(Clone, Debug, Default)]
pub(super) struct Reserves {
    /// By class, from 1.
    rooms: [f64; Class::COUNT - 1],
    /// The highest class that needed room left free for it in this period, if any did.
    highest_needed: Option<Class>,
}

impl Reserves {
    /// Room that the class leaves free.
    pub(super) fn of(&self, class: Class) -> f64 {
        match class.number() {
            0 => 0.0,
            number => self.rooms[number - 1],
        }
    }

    pub(super) fn admitted(&mut self, class: Class, cost: f64) {
        // The highest class has an overdraft, and needs a reserve only while it uses that.
        if class != Class::HIGHEST {
            self.needed(class);
        }
        let mut higher = self.of(class);
        for reserve in &mut self.rooms[class.number()..] {
            let fall = REFUSED_PART * step(*reserve, cost);
            // A class leaves at least as much free as the one above it.
            *reserve = (*reserve - fall).max(higher);
            higher = *reserve;
        }
    }

    /// `part` is the node's part in the refusal, 0..=1, and `room` the most to leave free, in items.
    pub(super) fn refused(&mut self, class: Class, cost: f64, part: f64, room: f64) {
        self.needed(class);
        for reserve in &mut self.rooms[class.number()..] {
            let rise = (1.0 - REFUSED_PART) * part * step(*reserve, cost);
            *reserve = (*reserve + rise).min(room);
        }
    }

    pub(super) fn needed(&mut self, class: Class) {
        let highest = self.highest_needed.unwrap_or(class);
        self.highest_needed = Some(highest.min(class));
    }

    pub(super) fn end_period(&mut self, least_cost: f64) {
        let highest = self
            .highest_needed
            .take()
            .map_or(Class::COUNT, Class::number);
        for reserve in self.rooms.iter_mut().take(highest) {
            *reserve *= KEPT_PART;
            if *reserve < MIN_RESERVE * least_cost {
                *reserve = 0.0;
            }
        }
    }
}

/// A large reserve changes in larger steps, so that it does not outlive a burst by long.
fn step(reserve: f64, cost: f64) -> f64 {
    cost.max(0.5 * reserve)
}
