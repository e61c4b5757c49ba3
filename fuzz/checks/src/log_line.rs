use plimsoll_signal::sources::haproxy_log::line::{End, Line, Node, parse};

const DAY_SECONDS: f64 = 86_400.0;
const MAX_ITEMS: f64 = 1e9;
const MAX_LEFT_JOBS: u32 = 1_000_000;
const MAX_WRITTEN_MILLIS: i64 = 100_000_000_000_000;

/// Lines of HAProxy's log for the server `q/n`.
pub fn log_line(data: &[u8]) {
    let node = Node::new("q/n");
    for text in data.split(|byte| *byte == b'\n') {
        let line = parse(text, &node);
        check(&line);
        let with_header = [b"<134>Nov 21 06:14:09 lb1 haproxy[7]: ", text].concat();
        assert_eq!(parse(&with_header, &node), line);
        if !matches!(line.end, End::OtherNode | End::Malformed) {
            let other = parse(text, &Node::new("q/m"));
            assert_eq!(other.end, End::OtherNode);
            assert_eq!((other.asked, other.stamp), (line.asked, line.stamp));
        }
    }
}

fn check(line: &Line) {
    match line.end {
        End::Finished {
            delay,
            in_node,
            cost,
        } => {
            let (delay, in_node) = (delay.get(), in_node.get());
            assert!((0.0..=4.0 * DAY_SECONDS).contains(&delay));
            assert!((0.0..=delay).contains(&in_node));
            let cost = cost.map(|cost| cost.get());
            assert!(cost.is_none_or(|cost| cost > 0.0 && cost <= MAX_ITEMS));
            let millis = |seconds: f64| (1000.0 * seconds).round() as i64;
            let queue = millis(delay) - millis(in_node);
            let own = millis(in_node);
            if (own.max(queue) as f64) <= 1000.0 * DAY_SECONDS {
                let cost = cost.map_or("-".to_owned(), |cost| cost.to_string());
                let text = format!("plimsoll q/n {queue} 0 {own} 0 200 -- {cost}");
                let again = parse(text.as_bytes(), &Node::new("q/n"));
                assert_eq!(again.end, line.end, "{text}");
            }
        }
        End::Failed { in_node } => {
            assert!((0.0..=4.0 * DAY_SECONDS).contains(&in_node.get()));
        }
        End::Left { age, in_node } => {
            assert!((0.0..=4.0 * DAY_SECONDS).contains(&age.get()));
            assert!((0.0..=age.get()).contains(&in_node.get()));
        }
        End::Refused | End::Excluded | End::OtherNode | End::Malformed => {}
    }
    if let Some(stamp) = line.stamp {
        assert!((0..=MAX_WRITTEN_MILLIS).contains(&stamp.written_millis));
        assert!(stamp.left.is_none_or(|left| left.jobs <= MAX_LEFT_JOBS));
    }
}
