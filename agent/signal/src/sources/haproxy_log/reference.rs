//! The section of the reference on log lines.

use super::line::LOG_FORMAT;

/// The section on HAProxy's log lines, in Markdown.
pub fn log_lines() -> String {
    format!(
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
    )
}
