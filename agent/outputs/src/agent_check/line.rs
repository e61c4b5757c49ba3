//! The line sent by a proxy: `<identity>[ <proxy name>]`.

use std::{io, time::Duration};

use tokio::{io::AsyncReadExt, net::TcpStream, time::Instant};

/// Maximum length of the line in bytes, without its end.
pub const MAX_LINE: usize = 256;

/// Input received before the answer is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// Nothing or an empty line: use the default identity.
    Nothing,
    /// End of the stream before any byte. Proxies do not do this: it is a port probe.
    Closed,
    /// A line.
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

/// Assembles a line from any number of reads.
#[derive(Debug)]
pub struct LineBuffer {
    bytes: [u8; MAX_LINE + 2],
    filled: usize,
}

impl Default for LineBuffer {
    fn default() -> Self {
        LineBuffer {
            bytes: [0; MAX_LINE + 2],
            filled: 0,
        }
    }
}

impl LineBuffer {
    /// Buffer for the next read.
    pub fn space(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled..]
    }

    /// Adds the bytes of a read; 0 bytes mean the end of the stream. Returns the line once it is complete.
    pub fn took(&mut self, read: usize) -> Option<Received> {
        let start = self.filled;
        self.filled = (start + read).min(self.bytes.len());
        let new = &self.bytes[start..self.filled];
        if let Some(end) = new.iter().position(|&b| matches!(b, b'\n' | b'\r' | 0)) {
            return Some(parse(&self.bytes[..start + end]));
        }
        if read == 0 {
            let closed = self.filled == 0;
            return Some(if closed {
                Received::Closed
            } else {
                self.so_far()
            });
        }
        (self.filled > MAX_LINE).then_some(Received::TooLong)
    }

    /// A line without its end is accepted after the timeout: `agent-send "name"` without `\n` is a common mistake.
    fn so_far(&self) -> Received {
        parse(&self.bytes[..self.filled])
    }
}

/// Receives the rest of a line.
pub async fn receive(
    stream: &mut TcpStream,
    buffer: &mut LineBuffer,
    wait: Duration,
) -> io::Result<Received> {
    let until = Instant::now() + wait;
    loop {
        match tokio::time::timeout_at(until, stream.read(buffer.space())).await {
            Ok(read) => {
                if let Some(received) = buffer.took(read?) {
                    return Ok(received);
                }
            }
            Err(_) => return Ok(buffer.so_far()),
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
    fn a_line_may_come_in_pieces() {
        let mut buffer = LineBuffer::default();
        for piece in [&b"quer"[..], b"ies/node1 l", b"b2"] {
            buffer.space()[..piece.len()].copy_from_slice(piece);
            assert_eq!(buffer.took(piece.len()), None);
        }
        buffer.space()[0] = b'\n';
        assert_eq!(buffer.took(1), Some(line("queries/node1", Some("lb2"))));

        let mut buffer = LineBuffer::default();
        buffer.space()[..4].copy_from_slice(b"quer");
        assert_eq!(buffer.took(4), None);
        assert_eq!(buffer.took(0), Some(line("quer", None)));

        assert_eq!(LineBuffer::default().took(0), Some(Received::Closed));

        let mut buffer = LineBuffer::default();
        let all = buffer.space().len();
        buffer.space().fill(b'x');
        assert_eq!(buffer.took(all), Some(Received::TooLong));
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
