//! The reference of every key, from the same names the parser knows.

use crate::sources::LOG_FORMAT;

/// Table, then key, values with unit and range, default, meaning.
type Row = (&'static str, &'static str, &'static str, &'static str);

const TABLES: &[(&str, &str, &[Row])] = &[
    (
        "[agent]",
        "The agent as a whole.",
        &[
            (
                "period",
                "duration, 10ms to 1day",
                "`\"1s\"`",
                "Sampling period *P*: one controller step in each.",
            ),
            (
                "jitter",
                "0 to 0.5",
                "`0.05`",
                "Share of the period each one is moved by at random, so that agents do not act in step.",
            ),
            (
                "log_level",
                "`error`, `warn`, `info`, `debug`, `trace`",
                "`\"info\"`",
                "Least severe level that is logged, to standard error.",
            ),
            (
                "log_format",
                "`text`, `json`",
                "`\"text\"`",
                "How log lines look. Needs a restart to change.",
            ),
            (
                "state_directory",
                "path",
                "none",
                "Keeps drains, operators' overrides and what was learned of the node over a restart; what was learned is dropped when it is 30 days old. Needs a restart to change.",
            ),
        ],
    ),
    (
        "[http]",
        "What it answers: docs/http-api.md.",
        &[
            (
                "listen",
                "IP:port",
                "`\"127.0.0.1:9464\"`",
                "Needs a restart to change.",
            ),
            (
                "allow",
                "1 to 256 of network or address, as `192.0.2.0/24`",
                "all",
                "Who may connect, and to `envoy.orca_listen`; loopback, too, only where it is named. Others are closed at once and counted.",
            ),
            (
                "token_file",
                "path",
                "none",
                "File with 16 to 4096 printable characters, read at start and reload. `POST` to `/v1/observe`, `/v1/placement` and `/v1/partition-query` must carry them as `Authorization: Bearer …`. Without it whoever reaches `listen` can take shares of every node's bound, and ask the partitions' queries.",
            ),
        ],
    ),
    (
        "[agent_check]",
        "What HAProxy polls; one port for all services.",
        &[
            (
                "listen",
                "IP:port",
                "`\"127.0.0.1:9101\"`",
                "HAProxy on another host needs this node's address here. Needs a restart to change.",
            ),
            (
                "allow",
                "1 to 256 of network or address, as `192.0.2.0/24`",
                "all",
                "Who may ask; others are closed at once and counted. Whoever may can take a share of the bound: name HAProxy's hosts, here or in the firewall.",
            ),
            (
                "max_proxies_per_address",
                "1 to 64",
                "`8`",
                "Proxies of one address that share a service's bound; one that asks under two identities is two. More are told nothing, and counted.",
            ),
            (
                "max_connections",
                "1 to 65536",
                "`256`",
                "Open connections; over that the oldest is closed and counted.",
            ),
            (
                "identity_wait",
                "duration, 1ms to 1day",
                "`\"30ms\"`",
                "How long to wait for the `agent-send` line.",
            ),
            (
                "proxy_lease",
                "duration, 100ms to 1day",
                "`\"10s\"`",
                "A proxy that has not polled for this long gives its share of the bound back.",
            ),
            (
                "on_shutdown",
                "`drain`, `hold`",
                "`\"drain\"`",
                "What proxies are told at the end; `drain` needs `state_directory`.",
            ),
            (
                "shutdown_grace",
                "duration, 0s to 1day",
                "`\"3s\"`",
                "How long the end may wait for each known proxy to hear it.",
            ),
        ],
    ),
    (
        "[control]",
        "Operators' overrides (`plimsoll node`).",
        &[(
            "socket",
            "path",
            "none",
            "Unix socket, mode 0660. Needs a restart to change.",
        )],
    ),
    (
        "[redis]",
        "The Redis (7.0 or later) or Valkey that shares rings among proxies. Needed for `[service.ring]` and `[placement]`.",
        &[
            (
                "urls",
                "1 to 16 of `redis://host:port`, `rediss://` for TLS",
                "required",
                "Servers; the first that may be written to is used.",
            ),
            (
                "mode",
                "`single`, `sentinel`, `cluster`",
                "`\"single\"`",
                "What the URLs are: servers, sentinels, or seeds of a Redis Cluster.",
            ),
            (
                "sentinel_master",
                "name",
                "`\"mymaster\"`",
                "What sentinels call it.",
            ),
            ("user", "name", "none", "ACL user; needs `password_file`."),
            (
                "password_file",
                "path",
                "none",
                "File with the password, read at start and reload.",
            ),
            (
                "ca_file",
                "path",
                "the system's",
                "PEM file with the authorities that are trusted for `rediss://`, in place of the system's; read at start and reload.",
            ),
            (
                "timeout",
                "duration, 1ms to 1day",
                "`\"500ms\"`",
                "For connecting, and for each answer.",
            ),
        ],
    ),
    (
        "[placement]",
        "Which node is the primary of which object set: docs/placement.md. Needs `[redis]`, and a `[service.ring]` of the same cluster. All agents of a cluster have the same.",
        &[
            (
                "cluster",
                "1 to 120 of `A-Za-z0-9._:/-`",
                "required",
                "The `cluster` of a `[service.ring]`: its nodes are the primaries, their bounds what they may hold.",
            ),
            (
                "period",
                "duration, 100ms to 1m",
                "`\"1s\"`",
                "Between two looks at loads, each of which may end in a plan.",
            ),
            (
                "threshold",
                "0 to 10",
                "`0.2`",
                "Nothing moves while the standard deviation of the primaries' loads is at most this part of their mean, and what chance makes.",
            ),
            (
                "gain",
                "0 to 1",
                "`0.5`",
                "Nothing moves unless that takes away this part of the variance.",
            ),
            (
                "moves",
                "`true`, `false`",
                "`true`",
                "`false`: only what is pinned, what an operator moves and what has no live primary.",
            ),
            (
                "request_limit",
                "duration, 100ms to 1hour",
                "`\"60s\"`",
                "No request that writes runs for longer, which the proxies' time-outs have to see to: `timeout server` in HAProxy, the route's `timeout` in Envoy.",
            ),
            (
                "lease",
                "duration, 3 periods to 1hour",
                "`\"10s\"`, at least 3 periods",
                "A keeper that is not heard for so long is replaced, a dispatcher is silent, a node that has left the ring is down.",
            ),
            (
                "when_lost",
                "`serve`, `hold`",
                "`\"serve\"`",
                "What a dispatcher does that cannot reach Redis for a lease: goes on with its table, and nothing moves; or lets nobody in, and is taken for gone. `hold` asks for settings of a Redis that has replicas: docs/placement.md.",
            ),
            (
                "initial",
                "`even`, or a node's name",
                "`\"even\"`",
                "Where the rests are in a table that is made from nothing.",
            ),
            (
                "pins",
                "table: object set = node; up to 1024",
                "none",
                "`[placement.pins]`, such as `\"=A17\" = \"node3\"`: never moved by a plan, not even when that node is down.",
            ),
        ],
    ),
    (
        "[envoy]",
        "What Envoy is answered, beside this node: `POST /v3/discovery:endpoints`, see docs/envoy.md.",
        &[
            (
                "orca_listen",
                "IP:port",
                "none",
                "Load reports over gRPC: ORCA, out of band. The same port on all nodes, on the address that proxies connect to. Needs a restart to change.",
            ),
            (
                "peers",
                "up to 256 of `http://host:port`",
                "`[]`",
                "The agents of the cluster's nodes, by their `http.listen`; this one may be among them, so that the list can be the same everywhere.",
            ),
            (
                "lease",
                "duration, 2 periods to 1hour",
                "3 periods",
                "A node whose agent is silent for this long is told to be unhealthy, and after ten times this long is gone; but where more than half of the nodes are silent, all stay as they were.",
            ),
        ],
    ),
    (
        "[[service]]",
        "One service on this node; at least one.",
        &[
            (
                "name",
                "1 to 120 printable characters",
                "required",
                "Also a valid `agent-send` identity.",
            ),
            (
                "identities",
                "list of the same",
                "`[]`",
                "Further `agent-send` identities, by custom `backend/server`. No two services share one.",
            ),
            (
                "address",
                "host:port; IP address (IPv6 in brackets) or name",
                "none",
                "Where proxies connect to for this node's service. Shown in `/v1/node`.",
            ),
        ],
    ),
    (
        "[service.sla]",
        "What was promised.",
        &[
            (
                "delay",
                "duration above 0",
                "required",
                "Service delay: connect, queue and processing of a finished request.",
            ),
            (
                "settling",
                "duration above 0",
                "`\"10s\"`",
                "Time within which a transient must be over.",
            ),
            (
                "objective",
                "`mean`, `p50` to `p99.9`",
                "`\"p95\"`",
                "Which figure of the delays is held.",
            ),
            (
                "set_point",
                "above 0, to 1",
                "`0.9`",
                "The figure is held at this share of `delay`.",
            ),
        ],
    ),
    (
        "[service.bound]",
        "Where the backlog bound may move, in cost units (requests, where no cost is known). `load-line` needs none of it.",
        &[
            (
                "nominal",
                "above 0",
                "none; required by every other `controller.kind`",
                "For `load-line` the bound until 20 requests were seen. For the others where they begin, and where they return to when the node is idle.",
            ),
            (
                "min",
                "above 0",
                "one request; others than `load-line`: `nominal` / 32, at least 1",
                "Never below.",
            ),
            (
                "max",
                "at least `min`",
                "none; others than `load-line`: 1024 × `nominal`",
                "Never above.",
            ),
        ],
    ),
    (
        "[service.controller]",
        "The control law.",
        &[
            (
                "kind",
                "`load-line`, `pi`, `parabola`, `inverse-delay`, `proportional`, `fixed`",
                "`\"load-line\"`",
                "See docs/control.md.",
            ),
            (
                "gains",
                "`fixed`, `auto`",
                "`\"fixed\"`",
                "`auto`: `pi` and `parabola` find their gains from how the delay answers to the bound; `kp` and `ki` are where they begin and what they fall back to.",
            ),
            (
                "kp",
                "above 0",
                "`0.25`",
                "Proportional gain of `pi` and `parabola`, on the relative error.",
            ),
            (
                "ki",
                "0 or more",
                "`1.0`",
                "Integral gain of `pi` and `parabola`, on the relative error.",
            ),
            (
                "form",
                "`velocity`, `double-integrating`",
                "`\"velocity\"`",
                "Which reading of the papers' PI law.",
            ),
            ("gain", "above 0, to 1", "`0.5`", "Gain of `proportional`."),
        ],
    ),
    (
        "[service.rules]",
        "When `pi` and the other laws of the papers do not act; of these `load-line` has `max_failed` alone. See docs/control.md.",
        &[
            (
                "min_samples",
                "1 or more",
                "`20`",
                "Requests the objective waits for.",
            ),
            (
                "window_periods",
                "1 or more",
                "`5`",
                "Periods added up to reach `min_samples`.",
            ),
            (
                "light_load",
                "0 to 1",
                "`0.8`",
                "No growth while the peak backlog is under this share of the bound.",
            ),
            (
                "headroom",
                "1 or more",
                "`4.0`",
                "The bound stays within this multiple of the recent peak backlog.",
            ),
            (
                "empty_hold_periods",
                "0 or more",
                "`5`",
                "Empty periods before the bound drifts to the nominal one.",
            ),
            (
                "max_failed",
                "above 0, to 1",
                "`0.5`",
                "Share of failed requests from which the bound is lowered as for the worst delay.",
            ),
        ],
    ),
    (
        "[service.output]",
        "What HAProxy is told.",
        &[
            (
                "full_weight_bound",
                "above 0, cost units",
                "2 × `nominal`; `load-line`: the most this node could carry of late",
                "The bound that stands for 100 %; where it is set, the same on all nodes of a backend.",
            ),
            (
                "weight_dead_band",
                "0 to 0.5",
                "`0.05`",
                "A weight stays while it is off by no more than this share of itself.",
            ),
            (
                "send",
                "`both`, `weight`, `maxconn`",
                "`\"both\"`",
                "Words in the answer.",
            ),
        ],
    ),
    (
        "[service.source]",
        "Where delays come from. Keys of the other kind are refused.",
        &[
            (
                "kind",
                "`prometheus`, `haproxy-log`, `proxies`, `partitions`",
                "required",
                "A scrape of the service, HAProxy's log lines, what the proxies told Redis (the Lua policies do; needs `[service.ring]`), or the queries in the partitions that name the service (docs/scatter.md).",
            ),
            (
                "url",
                "`http://host[:port]/path`",
                "required for `prometheus`",
                "What is scraped; no TLS.",
            ),
            (
                "histogram",
                "metric name",
                "required for `prometheus`",
                "Delay histogram in seconds, without `_bucket`.",
            ),
            (
                "labels",
                "table",
                "`{}`",
                "Labels that series of `histogram`, `failed` and `cost` must have. All that match are added up.",
            ),
            (
                "failed",
                "metric name",
                "none",
                "Counter of requests that failed.",
            ),
            (
                "cost",
                "metric name",
                "none",
                "Counter of items touched by finished requests.",
            ),
            (
                "oldest_age",
                "metric name",
                "none",
                "Gauge: age of the oldest unfinished request, in seconds.",
            ),
            (
                "timeout",
                "duration, 1ms to `agent.period`",
                "500ms, at most the period",
                "For the whole scrape.",
            ),
            (
                "max_body",
                "bytes, 1KiB to 64MiB",
                "`\"4MiB\"`",
                "Largest body.",
            ),
            (
                "listen",
                "`udp://IP:port`, `tcp://IP:port`, `unix:///path`",
                "required for `haproxy-log`",
                "Where log lines arrive: a line a datagram, or lines that end in a newline. Lines over 8192 bytes are dropped and counted, and so is the idlest of more than 64 connections. The unix socket takes datagrams and has mode 0666, as `/dev/log` has. Who can write there can feign delays, so put it in a directory that only HAProxy can enter.",
            ),
            (
                "node",
                "`backend/server`",
                "required for `haproxy-log`",
                "Only lines of this server count.",
            ),
        ],
    ),
    (
        "[service.jobs]",
        "Where the number of jobs in the node comes from.",
        &[
            (
                "kind",
                "`prometheus`, `backlog`, `sockets`, `mysql`, `postgresql`, `none`",
                "with source `prometheus` `backlog` where the port is known, else `\"none\"`",
                "A gauge, connections that wait to be accepted, established ones, the active clients of a database, or unknown: docs/load-and-jobs.md.",
            ),
            (
                "gauge",
                "metric name",
                "required for `prometheus`",
                "All matching series are added up.",
            ),
            ("labels", "table", "`{}`", "Labels they must have."),
            (
                "url",
                "`http://host[:port]/path`",
                "the source's",
                "Where the gauge is.",
            ),
            (
                "port",
                "1 to 65535",
                "required for `sockets`; for `backlog` this or `unix`",
                "Local port; all its listeners count together. For `sockets` an idle kept-alive connection counts too.",
            ),
            (
                "unix",
                "path",
                "none",
                "Of `backlog`: the unix socket that the service listens on, such as PHP-FPM's.",
            ),
            (
                "sample_interval",
                "duration, 10ms to 1day",
                "`\"100ms\"`",
                "Time between looks, so that the peak is known. A look is followed by a rest of 332 times what it took, of 1 s at most, so that looks take 0.3 % of a core at most.",
            ),
            (
                "address",
                "host:port, `unix:///path`",
                "required for `mysql`, `postgresql`",
                "Where the database (MySQL, MariaDB; PostgreSQL) listens; no TLS. The path is that of the socket itself, such as `unix:///run/postgresql/.s.PGSQL.5432`.",
            ),
            (
                "user",
                "1 to 120 bytes",
                "required for `mysql`, `postgresql`",
                "Who asks, once a period. In MySQL it needs no privilege but to log in, in PostgreSQL the role `pg_monitor` or `pg_read_all_stats`.",
            ),
            (
                "password_file",
                "path",
                "none",
                "File with the password, read at start and reload.",
            ),
            (
                "database",
                "1 to 120 bytes",
                "`\"postgres\"`",
                "Of `postgresql`: the database to connect to. Active clients of all databases count.",
            ),
        ],
    ),
    (
        "[service.load]",
        "What the schedulers `load_informed` of the second tier take for this node's load, and what the metrics show: docs/load-and-jobs.md. The same kind on all nodes of a ring.",
        &[
            (
                "kind",
                "`delay`, `cpu`, `network`, `cpu+network`",
                "`\"delay\"`",
                "The delay over the SLA's target; the CPUs' load; the load of the busiest network interface; or the sum of both. While the host's load cannot be read, the last one stands for 10s or three periods, and the delay's after that.",
            ),
            (
                "cgroup",
                "path below `/sys/fs/cgroup`",
                "the agent's own",
                "Control group of the service, such as `/system.slice/mariadb.service`. Where it or one above it is limited to fewer CPUs than there are, by quota or by number, the CPU load is that of what it may use; otherwise that of the machine.",
            ),
            (
                "interface",
                "interface name",
                "all but `lo`",
                "Network interface whose load counts; of all of those whose speed is known, the busiest.",
            ),
            (
                "speed",
                "1e3 to 1e13, bits per second",
                "the kernel's",
                "Speed of `interface`, each way. Virtual interfaces often have none or a wrong one in `/sys/class/net/*/speed`.",
            ),
        ],
    ),
    (
        "[service.health]",
        "A local probe; without this table the node is always up.",
        &[
            (
                "kind",
                "`tcp`, `http`",
                "required",
                "A connect, or a GET answered with 2xx or 3xx.",
            ),
            (
                "address",
                "host:port",
                "required for `tcp`",
                "Where to connect.",
            ),
            (
                "url",
                "`http://host[:port]/path`",
                "required for `http`",
                "What to get.",
            ),
            (
                "interval",
                "duration, 10ms to 1day",
                "`\"1s\"`",
                "Time between probes.",
            ),
            (
                "timeout",
                "duration, 1ms to 1day",
                "`\"500ms\"`",
                "For one probe.",
            ),
            ("fall", "1 to 1000", "`3`", "Failures in a row until down."),
            ("rise", "1 to 1000", "`2`", "Successes in a row until up."),
        ],
    ),
    (
        "[service.ring]",
        "This node's place in a ring that proxies share through Redis.",
        &[
            (
                "cluster",
                "1 to 120 of `A-Za-z0-9._:/-`",
                "required",
                "Nodes and proxies of one ring; part of every key in Redis.",
            ),
            (
                "node",
                "the same",
                "required",
                "This node's name: the name of its server in the proxies.",
            ),
            (
                "slots",
                "1 to 1048576",
                "`16384`",
                "Slots of the hash circle, *H*; the same on all nodes.",
            ),
            (
                "dead_band",
                "0 to 1",
                "`0.05`",
                "No key moves while every node's share is off by less than this part of itself.",
            ),
            (
                "lease",
                "duration, 2 periods and 100ms to 1hour",
                "3 periods, at least 100ms",
                "Without a report for this long the node leaves the ring.",
            ),
        ],
    ),
    (
        "[service.updates]",
        "Temporal data of the service, whose updates give way under overload: docs/freshness.md. The feed asks `GET /v1/updates` for the periods.",
        &[
            (
                "url",
                "`http://host[:port]/path`",
                "required",
                "What lists the items with their own periods and how often they were read, as JSON; got once a period, within 500 ms, at most the period. No TLS; at most 16 MiB.",
            ),
            (
                "longest",
                "duration, 1ms to 1day",
                "`\"5s\"`",
                "The longest period that is ever asked for, *P_max*. Items whose own period is longer keep theirs.",
            ),
            (
                "update_cost",
                "above 0, to 1e9, cost units",
                "`1`",
                "What one update costs the node: its time over the time that a cost unit of a request takes.",
            ),
        ],
    ),
    (
        "[service.role]",
        "What this node's PostgreSQL is among its replicas: only the primary takes writes (`GET /v1/role`), and a standby that is too far behind answers no reads: docs/failover.md.",
        &[
            (
                "address",
                "host:port, `unix:///path`",
                "required",
                "Where PostgreSQL listens; no TLS. The path is that of the socket itself.",
            ),
            (
                "user",
                "1 to 120 bytes",
                "required",
                "Who asks, once a period; needs the role `pg_monitor` or `pg_read_all_stats`.",
            ),
            (
                "password_file",
                "path",
                "none",
                "File with the password, read at start and reload.",
            ),
            (
                "database",
                "1 to 120 bytes",
                "`\"postgres\"`",
                "The database to connect to.",
            ),
            (
                "lock_url",
                "`http://host[:port]/path`",
                "none",
                "What answers 200 while this node holds the leader's lock, such as Patroni's `http://127.0.0.1:8008/primary`; without that answer it takes no writes, even if its PostgreSQL would. No TLS.",
            ),
            (
                "max_lag",
                "duration, 5 periods to 1day",
                "`\"10s\"`, at least 5 periods",
                "A standby that may be further behind its primary answers no reads. It stops two periods before that, three where `envoy.peers` tell Envoy of each other, and begins again after three looks at half of it or less.",
            ),
            (
                "without_primary",
                "duration, 0s to 1day",
                "`\"30s\"`",
                "The same limit, where it is larger, for a standby that was fresh when its primary stopped feeding it; so that reads go on while there is no primary. At least Patroni's `ttl` and some seconds.",
            ),
        ],
    ),
    (
        "[[partition]]",
        "A part of the data, in a PostgreSQL database of this node or, with `url`, in a service that answers as an agent does; `POST /v1/partition-query` asks it: docs/scatter.md. No TLS.",
        &[
            (
                "name",
                "1 to 120 visible ASCII characters",
                "required",
                "The partition's name, no two alike.",
            ),
            (
                "address",
                "`host:port` or `unix:///path`",
                "required, or `url`",
                "Where PostgreSQL listens.",
            ),
            (
                "user",
                "1 to 120 visible ASCII characters",
                "required, or `url`",
                "Who asks. Should have no right but to read what is asked for.",
            ),
            (
                "password_file",
                "path",
                "none",
                "File with the password, read at start and reload.",
            ),
            (
                "database",
                "1 to 120 visible ASCII characters",
                "required, or `url`",
                "The database's name at the server.",
            ),
            (
                "url",
                "`http://host[:port]/path`",
                "none",
                "The service that is asked in place of a database; the keys above, but for `name`, and `free_sql` do not go with it.",
            ),
            (
                "token_file",
                "path",
                "none",
                "With `url`: file with 16 to 4096 printable characters, read at start and reload, that the service is shown as `Authorization: Bearer …`.",
            ),
            (
                "service",
                "a `name` of `[[service]]`",
                "none",
                "The service in whose backlog and bound the queries count; its `source.kind` must be `partitions`. Without it they count in none.",
            ),
            (
                "queries",
                "table of name and SQL; with `url`, of name and 1 to 120 visible ASCII characters",
                "none",
                "Queries that may be asked for by name: in SQL, with `$1`, `$2`… for parameters, or the name that the service has for each. One at least, or `free_sql`.",
            ),
            (
                "free_sql",
                "`true`, `false`",
                "`false`",
                "Answer any SQL query that only reads; needs `http.token_file`. Functions that `user` may call may still do more than read.",
            ),
        ],
    ),
];

/// The whole reference.
pub fn markdown() -> String {
    let mut text = String::from(
        "# Agent configuration\n\n\
         Written by `plimsoll config-reference`; change it there.\n\n\
         TOML, read by `plimsoll agent --config FILE`, checked by `--check-config`, tried on this machine by `--check-config --probe`, read again on SIGHUP. \
         Unknown keys and impossible values are refused with file, line and key, and on a reload the old \
         configuration stays, as it does where the new one needs a restart. Durations look like `250ms`, `1s`, `1m 30s`. `localhost` is 127.0.0.1 to listen on, and 127.0.0.1 and ::1 to connect to. \
         `agent/daemon/packaging/agent.toml` is an annotated example.\n",
    );
    for (table, about, rows) in TABLES {
        text.push_str(&format!(
            "\n## `{table}`\n\n{about}\n\n| key | values | default | meaning |\n|---|---|---|---|\n"
        ));
        for (key, values, default, meaning) in *rows {
            text.push_str(&format!("| `{key}` | {values} | {default} | {meaning} |\n"));
        }
    }
    text.push_str(&format!(
        "\n## Log lines for `haproxy-log`\n\nIn HAProxy's frontend, with a `log` line to `source.listen`:\n\n```\n\
         log-format \"{LOG_FORMAT}\"\n```\n\n\
         Delay is queue, connect, response and data time (`%Tw + %Tc + %Tr + %Td`, in milliseconds). \
         The last field is the request's cost in items: set it with \
         `http-response set-var(txn.plimsoll_items) res.hdr(x-items)`; without it HAProxy writes `-`. \
         A 5xx from the server and a timeout count as failed; what HAProxy refused before it reached the \
         node is no sample.\n\n\
         A request whose last field is `excluded` is left out, however it ended: \
         `http-request set-var(txn.plimsoll_items) str(excluded) if {{ path_beg /events }}`, and then \
         `unless {{ var(txn.plimsoll_items) -m found }}` behind the line that sets the cost. Use it for streams, long \
         polls, uploads and checks by monitoring, for whose delay the SLA promises nothing. They hold the node's places \
         in `maxconn` all the same: those that stay long belong in a backend of their own, whose server has the \
         node's address and no `agent-check`; lines of another backend never count.\n\n\
         A client that leaves (`C…` and `c…` in `%ts`) is no failure of the node's. How long the node had kept \
         it waiting is `%Ta` less `%TR`, or `%Tw + %Tc + %Tr` where the answer had begun: over the SLA's target \
         the request was late, by that time at least; below it the request says nothing. Lines without \
         `%TR/%Ta` are read too, but of those who left before the answer began they tell no age. What a client \
         takes to send a body or to read an answer is in these times: `option http-buffer-request` keeps the \
         first out.\n\n\
         Jobs in the node on average (`plimsoll_source_mean_jobs`) are the time that the requests which ended in a \
         period spent behind HAProxy's queue, over the period's length. For the share that was refused for want of \
         room (`plimsoll_source_refused_share`) the lines of all servers of the node's backend count, with those that no \
         server was found for: `sQ` and `SQ` in `%ts` are refusals, and what HAProxy denied or answered itself \
         did not ask. Where a node gets its own lines only, the share is of those.\n\n\
         `@%[date(0,ms)]/%rt` says when a line was written, and which it is. One that comes over 10 s later than lines \
         usually do, as when a relay makes up for an outage, counts as `late`, and one that comes twice as `repeated`; \
         neither is a sample. A jump of this node's clock changes nothing. Clocks of proxies that differ by over 10 s do: the \
         lines of the slower one are late beside the other's. If all are late by the same for 10 s, it is the clock, \
         and they count again. `%sc` is what the process still has at the server, `%H/%pid` which process that is: the sum \
         over all processes, each by its last line within 10 s, is the jobs in the node where `[service.jobs]` names \
         nothing else. Lines without these fields are read too, at whatever time and however often.\n\n\
         By TCP the lines go through a `ring` of HAProxy whose server has `log-proto legacy`, the default: \
         it ends lines with a newline.\n"
    ));
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;
    use plimsoll_settings::expected;

    fn known(table: &str) -> Vec<String> {
        let service = "[[service]]\nname = \"s\"\n";
        let text = match table {
            "[[service]]" => format!("{service}zzz = 1\n"),
            _ if table.starts_with("[service.") => format!("{service}{table}\nzzz = 1\n"),
            _ => format!("{table}\nzzz = 1\n"),
        };
        let error = Config::parse(Path::new("x"), &text)
            .map(|_| ())
            .map_err(|e| e.to_string());
        expected(&error.err().unwrap_or_default())
    }

    #[test]
    fn has_every_key_and_no_other() {
        for (table, _, rows) in TABLES {
            let mut documented: Vec<_> = rows.iter().map(|row| row.0.to_owned()).collect();
            if *table == "[[service]]" {
                let inner = TABLES.iter().filter_map(|t| t.0.strip_prefix("[service."));
                documented.extend(inner.map(|name| name.trim_end_matches(']').to_owned()));
            }
            documented.sort();
            assert_eq!(documented, known(table), "{table}");
        }
    }
}
