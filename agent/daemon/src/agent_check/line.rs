//! The line a proxy sends: `<identity>[ <proxy name>]`.

use std::{io, time::Duration};

use tokio::{io::AsyncReadExt, net::TcpStream, time::Instant};

/// Longest line taken, in bytes, without its end.
pub const MAX_LINE: usize = 256;

/// What came before the answer was due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// Nothing, or an empty line: the default identity.
    Nothing,
    /// A line with its parts.
    Line {
        /// First word.
        identity: String,
        /// Second word.
        proxy: Option<String>,
    },
    /// More than [`MAX_LINE`] bytes without a line end.
    TooLong,
    /// Not text, or more than two words.
    Garbled,
}

/// Reads one line within `wait`. A line without its end counts once the time is over, since
/// `agent-send "name"` without `\n` is an easy slip.
pub async fn receive(stream: &mut TcpStream, wait: Duration) -> io::Result<Received> {
    let mut buffer = [0_u8; MAX_LINE + 2];
    let mut filled = 0;
    let until = Instant::now() + wait;
    loop {
        let free = &mut buffer[filled..];
        // A proxy that sends a line has mostly done so by the time of the accept: no timer then.
        let read = match stream.try_read(free) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                match tokio::time::timeout_at(until, stream.read(free)).await {
                    Ok(read) => read?,
                    Err(_) => return Ok(parse(&buffer[..filled])),
                }
            }
            other => other?,
        };
        let start = filled;
        filled += read;
        let ended = buffer[start..filled]
            .iter()
            .position(|&b| matches!(b, b'\n' | b'\r' | 0));
        if let Some(end) = ended {
            return Ok(parse(&buffer[..start + end]));
        }
        if read == 0 {
            return Ok(parse(&buffer[..filled]));
        }
        if filled > MAX_LINE {
            return Ok(Received::TooLong);
        }
    }
}

fn parse(line: &[u8]) -> Received {
    if line.len() > MAX_LINE {
        return Received::TooLong;
    }
    let Ok(text) = std::str::from_utf8(line) else {
        return Received::Garbled;
    };
    if text.chars().any(|c| c.is_control() && c != '\t') {
        return Received::Garbled;
    }
    let mut words = text.split_ascii_whitespace();
    let Some(identity) = words.next() else {
        return Received::Nothing;
    };
    let proxy = words.next().map(str::to_owned);
    if words.next().is_some() {
        return Received::Garbled;
    }
    Received::Line {
        identity: identity.to_owned(),
        proxy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(identity: &str, proxy: Option<&str>) -> Received {
        Received::Line {
            identity: identity.into(),
            proxy: proxy.map(str::to_owned),
        }
    }

    #[test]
    fn takes_one_or_two_words() {
        assert_eq!(parse(b""), Received::Nothing);
        assert_eq!(parse(b"  \t"), Received::Nothing);
        assert_eq!(parse(b"queries/node1"), line("queries/node1", None));
        assert_eq!(
            parse(b" queries/node1\tlb2 "),
            line("queries/node1", Some("lb2"))
        );
    }

    #[test]
    fn refuses_what_is_no_identity() {
        assert_eq!(parse(b"a b c"), Received::Garbled);
        assert_eq!(parse(b"\xff\xfe"), Received::Garbled);
        assert_eq!(parse(b"a\x1b[2J"), Received::Garbled);
        assert_eq!(parse(&[b'x'; MAX_LINE + 1]), Received::TooLong);
        assert!(matches!(parse(&[b'x'; MAX_LINE]), Received::Line { .. }));
    }
}
