//! Possible events.

/// Events that can still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Left {
    pub ticks: u8,
    pub moves: u8,
    pub claims: u8,
    pub failovers: u8,
    pub cuts: u8,
    pub restarts: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Time passes for all.
    Tick,
    /// A dispatcher admits a request.
    Send(usize, usize),
    /// A node finishes a request.
    End(usize),
    /// The connection of a request ends, and the node goes on with it.
    Cut(usize),
    /// A dispatcher dies, and another one begins under its name.
    Restart(usize),
    /// A dispatcher reports, or joins.
    Report(usize),
    /// The dispatcher gets the answer.
    Take(usize),
    Reconnect(usize),
    ReconnectAgent(usize),
    /// An agent looks at the table, and claims.
    Claim(usize),
    Begin(usize),
    /// The keeper reads, and decides; it may be asked to move a set.
    Read(usize, Option<usize>),
    Publish(usize),
    /// The replica has what was published.
    Waited(usize),
    /// The replica gets all that was written.
    Replicate,
    /// The replica takes over.
    Failover,
}
