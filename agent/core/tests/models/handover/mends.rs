//! Each safeguard against two primaries, removed in turn: the model must then find a violation.

use super::{Config, ONE_PRIMARY, ONE_TABLE, breaks, breaks_in, world::Left};

/// The removed safeguard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mend {
    /// After a failover the keeper waits for all dispatchers before a set in hand-over returns.
    WaitAfterALoss,
    /// A dispatcher that reports a version which Redis does not know is in doubt.
    DoubtOfUnknownVersions,
    /// Versions of a new term start in their own block.
    OwnBlocks,
    /// A keeper waits for dispatchers that only the former master knows.
    StandIn,
    /// A keeper goes on only once the replica has what it published.
    Replicated,
    /// A keeper that was replaced is refused, by its epoch and by the version from which it goes on.
    Fence,
    /// Requests of a dispatcher that went are in doubt.
    DoubtOfTheGone,
    /// A request that ended without an answer is in doubt.
    DoubtOfTheUnanswered,
    /// A dispatcher that holds admits nothing a lease after its last report.
    Lease,
    /// A hand-over waits for a reading of the dispatchers that was made after it had been published.
    ReadingAfterTheChange,
    /// A failover counts as dealt with only once nothing of before is on its way.
    SettledAtTheEnd,
    /// In a table that does not go on from one before, sets in hand-over stay so until all are heard.
    OpenedAsLeft,
}

/// Redis is replaced by a replica that lacks the end. Requests end before time passes.
pub const FAILOVER: Config = Config {
    lease: 0,
    request_limit: 0,
    left: Left {
        ticks: 1,
        claims: 1,
        failovers: 1,
        ..Config::QUIET.left
    },
    ..Config::QUIET
};

/// The same, while those left with the former server go on.
const FORK: Config = Config {
    holds: true,
    forks: true,
    lease: 0,
    request_limit: 0,
    margin: 0,
    left: Left {
        ticks: 0,
        claims: 1,
        failovers: 1,
        ..Config::QUIET.left
    },
    ..Config::QUIET
};

pub const HOLD: Config = Config {
    holds: true,
    lease: 0,
    request_limit: 0,
    left: Left {
        ticks: 2,
        ..Config::QUIET.left
    },
    ..Config::QUIET
};

#[test]
fn model_finds_two_primaries_if_a_keeper_does_not_wait_after_a_loss() {
    breaks(Mend::WaitAfterALoss, ONE_PRIMARY, FAILOVER);
}

#[test]
fn model_finds_two_primaries_if_unknown_versions_leave_no_doubt() {
    breaks(Mend::DoubtOfUnknownVersions, ONE_PRIMARY, FAILOVER);
}

#[test]
fn model_finds_two_tables_if_versions_are_used_again() {
    breaks(Mend::OwnBlocks, ONE_TABLE, FAILOVER);
}

#[test]
fn model_finds_two_primaries_if_versions_are_used_again() {
    breaks(Mend::OwnBlocks, ONE_PRIMARY, FAILOVER);
}

#[test]
fn model_finds_two_primaries_if_a_keeper_does_not_wait_for_replicas() {
    breaks(Mend::Replicated, ONE_PRIMARY, FAILOVER);
}

#[test]
fn model_finds_two_primaries_if_a_former_keeper_is_not_refused() {
    let config = Config {
        left: Left {
            claims: 1,
            ..Config::QUIET.left
        },
        ..Config::QUIET
    };
    breaks(Mend::Fence, ONE_PRIMARY, config);
}

#[test]
fn model_finds_two_primaries_if_the_gone_leave_no_doubt() {
    let config = Config {
        left: Left {
            restarts: 1,
            ..Config::QUIET.left
        },
        ..Config::QUIET
    };
    breaks(Mend::DoubtOfTheGone, ONE_PRIMARY, config);
}

#[test]
fn model_finds_two_primaries_if_unanswered_requests_leave_no_doubt() {
    let config = Config {
        left: Left {
            cuts: 1,
            ..Config::QUIET.left
        },
        ..Config::QUIET
    };
    breaks(Mend::DoubtOfTheUnanswered, ONE_PRIMARY, config);
}

#[test]
fn model_finds_two_primaries_if_a_dispatcher_does_not_heed_its_lease() {
    breaks(Mend::Lease, ONE_PRIMARY, HOLD);
}

#[test]
fn model_finds_two_primaries_if_dispatchers_were_read_before_the_change() {
    let config = Config {
        joined: 1,
        ..Config::QUIET
    };
    breaks(Mend::ReadingAfterTheChange, ONE_PRIMARY, config);
}

#[test]
fn model_finds_two_primaries_if_a_table_put_up_anew_returns_sets_at_once() {
    breaks(Mend::OpenedAsLeft, ONE_PRIMARY, FAILOVER);
}

#[test]
fn model_finds_two_primaries_if_a_failover_counts_as_dealt_with_at_once() {
    let config = Config {
        left: Left {
            ticks: 0,
            claims: 2,
            ..FAILOVER.left
        },
        ..FAILOVER
    };
    breaks(Mend::SettledAtTheEnd, ONE_PRIMARY, config);
}

#[test]
fn model_finds_two_primaries_if_dispatchers_known_to_a_former_master_alone_are_not_waited_for() {
    let config = Config { joined: 1, ..FORK };
    breaks(Mend::StandIn, ONE_PRIMARY, config);
}

/// docs/placement.md: with `serve`, a proxy that joins at a former master is unknown to the next one.
#[test]
fn model_finds_two_primaries_if_a_proxy_joins_at_a_former_master_and_serves() {
    let config = Config {
        holds: false,
        joined: 1,
        ..FORK
    };
    breaks_in(ONE_PRIMARY, config);
}
