//! Data loss in Redis, with dispatchers in `hold`.

use plimsoll_wire::placement_keys;

use super::*;

const BOTH: [&str; 2] = ["node1", "node2"];
/// Keeps all sets on one node, without moves by plans.
const STILL: &str = "moves = false\ninitial = \"node1\"";

/// A master and its replica.
fn replicated() -> (Redis, Redis) {
    let master = Redis::start(&["--repl-diskless-sync-delay", "0"]);
    let replica = Redis::replica_of(&master);
    (master, replica)
}

#[test]
fn those_that_hold_are_taken_for_gone() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let more = "moves = false\nwhen_lost = \"hold\"\ninitial = \"node1\"";
    let first = started(&service, &redis, "node1", more);
    let _second = started(&service, &redis, "node2", more);
    redis::wait_nodes(&first, &["node1", "node2"]);
    let mut dispatcher = Dispatcher::join(&first, "lb1/1#a");
    let mut silent = Dispatcher::join(&first, "lb2/1#b");
    assert_eq!(Dispatcher::ask(&first, "lb3/1#c")["when_lost"], "hold");
    wait_show(&first, "they are gone", |shown| {
        dispatcher.idle(&first) && shown["dispatchers"].as_array().unwrap().len() == 1
    });
    wait_show(&first, "the doubt is over", |shown| {
        dispatcher.idle(&first) && shown["gone"] == json!([])
    });
    assert_eq!(moved(&first, "*1", "node2").0, 200);
    dispatcher.until(&first, "*1", "node2");
    assert!(!silent.idle(&first), "it joins anew");
}

#[test]
fn hold_is_refused_where_redis_goes_on_when_it_is_cut_off() {
    let service = Service::start();
    let (redis, replica) = replicated();
    let set = |name: &str, value: &str| redis.cli(&["CONFIG", "SET", name, value]);
    let agent = patient(&service, &redis, "node1", "when_lost = \"hold\"");
    wait_logged(
        &agent,
        "takes no writes once a replica is put in its place: min-replicas-to-write is 0, must be at least 1",
    );
    assert_eq!(Dispatcher::ask(&agent, "lb1/1#a")["status"], "wait");
    set("min-replicas-to-write", "1");
    wait_logged(
        &agent,
        "min-replicas-max-lag is 10 s, must be at least 1 s and below placement.lease, 3 s",
    );
    set("min-replicas-max-lag", "1");
    wait_for("it keeps", || is_keeper(&agent).then_some(()));
    assert_eq!(
        redis
            .cli(&["HGET", "plimsoll:{c}:placement", "margin"])
            .trim(),
        "4000"
    );
    // While it keeps: nothing moves any more, and nobody is taken for gone.
    set("min-replicas-to-write", "0");
    wait_for("it does not keep", || (!is_keeper(&agent)).then_some(()));
    // One that took over has no replica, and somebody may be left with the one before.
    set("min-replicas-to-write", "1");
    wait_for("it keeps", || is_keeper(&agent).then_some(()));
    replica.cli(&["REPLICAOF", "NO", "ONE"]);
    let promoted = patient(&service, &replica, "node2", "when_lost = \"hold\"");
    wait_logged(&promoted, "min-replicas-to-write is 0, must be at least 1");
}

#[test]
fn a_version_that_redis_lost_is_not_taken_for_a_later_one_of_its_number() {
    let service = Service::start();
    let (mut old, new) = replicated();
    let mut former = BOTH.map(|node| patient(&service, &old, node, STILL));
    redis::wait_nodes(&former[0], &BOTH);
    let mut dispatcher = Dispatcher::join(&former[0], "lb1/1#a");
    let kept = dispatcher.version;
    assert_eq!(old.cli(&["WAIT", "1", "10000"]).trim(), "1");
    new.cli(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(moved(&former[0], "*5", "node2").0, 200);
    wait_for("*5 leaves", || {
        assert!(dispatcher.report(&former[0], &["*5"], &json!({})));
        (dispatcher.table["*5"] == ">node1").then_some(())
    });
    // The master, the keeper and all who knew of it die together, but for one dispatcher.
    former.iter_mut().for_each(Agent::kill);
    old.kill();
    let agents = BOTH.map(|node| patient(&service, &new, node, STILL));
    redis::wait_nodes(&agents[0], &BOTH);
    wait_for("another keeps", || {
        agents.iter().any(is_keeper).then_some(())
    });
    assert_eq!(moved(&agents[0], "*7", "node2").0, 200);
    let shown = wait_show(&agents[0], "*7 leaves", |shown| {
        shown["moving"] == json!(["*7"])
    });
    assert_eq!(shown["generation"], dispatcher.generation.as_str());
    assert!(shown["version"].as_u64() > Some(kept));
    assert!(!dispatcher.report(&agents[0], &["*5"], &json!({})));
    wait_for("it is told", || {
        let mut logs = agents.iter().map(Agent::log);
        let told = format!("used version {}, which Redis has lost", dispatcher.version);
        logs.any(|log| log.contains(&told)).then_some(())
    });
    // What it may have sent is waited for.
    let mut next = Dispatcher::join(&agents[0], "lb1/1#b");
    assert_eq!(next.table["*5"], "node1");
    next.until(&agents[0], "*7", "node2");
}

#[test]
fn a_set_in_hand_over_stays_so_in_another_generation_until_all_are_heard() {
    let service = Service::start();
    let (mut old, new) = replicated();
    let mut former = BOTH.map(|node| patient(&service, &old, node, STILL));
    redis::wait_nodes(&former[0], &BOTH);
    let ids = ["lb1/1#a", "lb2/1#a"];
    let mut dispatchers = ids.map(|id| Dispatcher::join(&former[0], id));
    assert_eq!(moved(&former[0], "*5", "node2").0, 200);
    for dispatcher in &mut dispatchers {
        wait_for("*5 leaves", || {
            assert!(dispatcher.report(&former[0], &["*5"], &json!({})));
            (dispatcher.table["*5"] == ">node1").then_some(())
        });
    }
    wait_for("the replica has it", || {
        let state = new.cli(&["HGET", "plimsoll:{c}:placement:table", "*5"]);
        (state.trim() == ">node1").then_some(())
    });
    new.cli(&["REPLICAOF", "NO", "ONE"]);
    for dispatcher in &mut dispatchers {
        assert!(dispatcher.idle(&former[0]));
    }
    for dispatcher in &mut dispatchers {
        dispatcher.until(&former[0], "*5", "node2");
    }
    former.iter_mut().for_each(Agent::kill);
    old.kill();
    // One of them reports to the server that lacks the move before there is a keeper; the other is cut off.
    let [cut_off, heard] = &mut dispatchers;
    let keys = placement_keys("c");
    let mut call = vec!["FCALL", "plimsoll_placement_report", "7"];
    call.extend(keys.iter().map(String::as_str));
    let version = heard.version.to_string();
    call.extend([&heard.id, &heard.generation, &version, "-", "-"]);
    assert!(new.cli(&call).contains("UNKNOWN"));
    let agents = BOTH.map(|node| patient(&service, &new, node, STILL));
    wait_show(&agents[0], "another generation", |shown| {
        shown["generation"].as_str() > Some(&heard.generation)
    });
    let mut next = Dispatcher::join(&agents[0], "lb2/1#b");
    wait_show(&agents[0], "the doubt is over", |shown| {
        next.idle(&agents[0]) && shown["gone"] == json!([])
    });
    assert_eq!(next.table["*5"], ">node1", "lb1 may send it to node2");
    assert!(!cut_off.idle(&agents[0]));
    Dispatcher::join(&agents[0], "lb1/1#b");
    next.until(&agents[0], "*5", "node1");
}

#[test]
fn an_exhausted_numbering_starts_another_generation() {
    let (service, redis) = (Service::start(), Redis::start(&[]));
    let mut agent = started(&service, &redis, "node1", "");
    let before = Dispatcher::join(&agent, "lb1/1#a");
    agent.kill();
    let last = (1_u64 << 53) - 2;
    redis.cli(&[
        "HSET",
        "plimsoll:{c}:placement",
        "version",
        &last.to_string(),
    ]);
    agent.start_again();
    wait_logged(&agent, "version numbers are used up");
    wait_show(&agent, "another generation", |shown| {
        shown["generation"].as_str() > Some(&before.generation)
    });
    let mut after = Dispatcher::join(&agent, "lb1/1#b");
    assert!(after.version < last && after.idle(&agent));
}
