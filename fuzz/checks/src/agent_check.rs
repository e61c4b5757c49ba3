use plimsoll_outputs::agent_check::{LineBuffer, MAX_LINE, Received};

/// What a proxy sends, in pieces of as many bytes as the first byte says.
pub fn agent_check(data: &[u8]) {
    let Some((size, sent)) = data.split_first() else {
        return;
    };
    let received = receive(sent, usize::from(*size).max(1));
    assert_eq!(received, receive(sent, MAX_LINE + 2));
    let Received::Line { identity, proxy } = &received else {
        return;
    };
    let words = [Some(identity), proxy.as_ref()].into_iter().flatten();
    for word in words.clone() {
        let is_bad = |c: char| c.is_ascii_whitespace() || c.is_control();
        assert!(!word.is_empty() && !word.contains(is_bad));
    }
    assert!(words.map(String::len).sum::<usize>() <= MAX_LINE);
    let proxy = proxy.as_deref().unwrap_or_default();
    let again = receive(format!("{identity} {proxy}\n").as_bytes(), MAX_LINE + 2);
    assert!(again == received || again == Received::TooLong);
}

fn receive(mut sent: &[u8], size: usize) -> Received {
    let mut buffer = LineBuffer::default();
    loop {
        let space = buffer.space();
        let (piece, rest) = sent.split_at(sent.len().min(size).min(space.len()));
        space[..piece.len()].copy_from_slice(piece);
        sent = rest;
        if let Some(received) = buffer.took(piece.len()) {
            return received;
        }
    }
}
