//! The section of the reference on log lines.

use super::line::LOG_FORMAT;

/// The section on HAProxy's log lines, in Markdown.
pub fn log_lines() -> String {
    format!(
        "\n## Log lines for `haproxy-log`\n\nIn HAProxy's frontend, with a `log` line to `source.listen`:\n\n```\n\
         log-format \"{LOG_FORMAT}\"\n```\n\n\
         Delay is queue, connect, response and data time (`%Tw + %Tc + %Tr + %Td`, in milliseconds). The last field \
         is the request's cost in items: set it with `http-response set-var(txn.plimsoll_items) res.hdr(x-items)`; \
         otherwise HAProxy writes `-`. A 5xx from the server and a timeout count as failed; requests that HAProxy \
         refused before they reached the node are not samples.\n\n\
         Requests whose last field is `excluded` are ignored, however they ended: `http-request \
         set-var(txn.plimsoll_items) str(excluded) if {{ path_beg /events }}`, and then `unless {{ \
         var(txn.plimsoll_items) -m found }}` at the end of the line that sets the cost. Use this for streams, long \
         polls, uploads and monitoring checks, whose delay the SLA does not cover. They still occupy the node's \
         `maxconn`: long-lived ones belong in a separate backend, whose server has the node's address and no \
         `agent-check`; lines of other backends never count.\n\n\
         A client that leaves (`C…` and `c…` in `%ts`) is not a failure of the node. The time it had waited for the \
         node is `%Ta` minus `%TR`, or `%Tw + %Tc + %Tr` if the answer had begun. Above the SLA's target, the \
         request was late by at least that time; below it, the request does not count. Lines without `%TR/%Ta` are \
         accepted, but give no such time for clients that left before the answer began. These times include the \
         client's time for sending a body or reading an answer; `option http-buffer-request` removes the former.\n\n\
         The mean number of jobs in the node (`plimsoll_source_mean_jobs`) is the total time that the requests \
         which ended in a period spent after HAProxy's queue, divided by the length of the period. The refused \
         share (`plimsoll_source_refused_share`) counts the lines of all servers of the node's backend, including \
         those without a server: `sQ` and `SQ` in `%ts` are refusals, while requests that HAProxy denied or \
         answered itself do not count. If a node receives only its own lines, the share refers to those.\n\n\
         `@%[date(0,ms)]/%rt` gives the time at which a line was written, and identifies it. A line that arrives \
         over 10 s later than usual, for example from a relay after an outage, counts as `late`, and a duplicate as \
         `repeated`; neither is a sample. Jumps of this node's clock have no effect. If the clocks of proxies \
         differ by over 10 s, the lines of the slower one are late relative to the other's. If all lines are late \
         by the same amount for 10 s, the clock is considered wrong and they count again. `%sc` is the number of \
         connections that the process still has at the server, and `%H/%pid` identifies the process: unless \
         `[service.jobs]` configures another source, the number of jobs is the sum over all processes, each from \
         its last line within 10 s. Lines without these fields are always accepted, even late or repeated.\n\n\
         Over TCP, lines come from a HAProxy `ring` whose server has `log-proto legacy`, the default, which ends \
         lines with a newline.\n"
    )
}
