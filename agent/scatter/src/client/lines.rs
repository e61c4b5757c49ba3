//! Line-by-line reading of an answer: only the values needed for ordering or reduction are parsed; everything else is
//! checked and forwarded unchanged.

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, SeqAccess, Visitor},
};
use tokio_util::bytes::{Buf, Bytes};

use super::plain;
use crate::answer::{Keys, Value};
use crate::client::MAX_ROW_BYTES;

/// Line other than a row.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Word {
    /// The first line: names of the columns.
    Columns(Vec<String>),
    /// The last line of a complete answer.
    End {
        /// Number of rows in the answer.
        rows: u64,
    },
    /// The last line of an answer that broke off.
    Error {
        /// `late`, `refused` or `down`.
        state: String,
        /// Message for the operator.
        problem: String,
    },
}

/// Error for a line longer than [`MAX_ROW_BYTES`].
#[derive(Debug, PartialEq)]
pub struct TooLong;

/// Splits chunks into lines. A line within one chunk is not copied.
#[derive(Debug, Default)]
pub struct Lines {
    chunk: Bytes,
    begun: Vec<u8>,
}

impl Lines {
    /// Adds a chunk; to be called only when [`Lines::next_line`] has returned `None`.
    pub fn push(&mut self, chunk: Bytes) {
        debug_assert!(self.chunk.is_empty());
        self.chunk = chunk;
    }

    /// The next complete line, without its newline.
    pub fn next_line(&mut self) -> Result<Option<Bytes>, TooLong> {
        let end = memchr::memchr(b'\n', &self.chunk);
        let length = end.unwrap_or(self.chunk.len());
        if self.begun.len() + length > MAX_ROW_BYTES {
            return Err(TooLong);
        }
        let part = self.chunk.split_to(length);
        if end.is_none() {
            self.begun.extend_from_slice(&part);
            self.chunk = Bytes::new();
            return Ok(None);
        }
        self.chunk.advance(1);
        if self.begun.is_empty() {
            return Ok(Some(part));
        }
        let mut line = std::mem::take(&mut self.begun);
        line.extend_from_slice(&part);
        Ok(Some(line.into()))
    }

    /// The bytes after the last line taken.
    pub fn rest(mut self) -> Bytes {
        if self.begun.is_empty() {
            return self.chunk;
        }
        self.begun.extend_from_slice(&self.chunk);
        self.begun.into()
    }

    /// Whether an incomplete line is buffered.
    pub fn has_begun(&self) -> bool {
        !self.begun.is_empty()
    }
}

/// Parses the needed values of rows.
#[derive(Clone, Debug)]
pub struct Picker {
    /// Index among the picked values, by column.
    places: Vec<Option<usize>>,
    /// Values picked more than once: source and destination indexes.
    copies: Vec<(usize, usize)>,
    wanted: usize,
}

impl Picker {
    /// Creates a picker of the values at `picks` in rows of this many columns.
    pub fn new(columns: usize, picks: &[usize]) -> Self {
        let mut places = vec![None; columns];
        let mut copies = Vec::new();
        for (place, pick) in picks.iter().enumerate() {
            match places[*pick] {
                Some(first) => copies.push((first, place)),
                None => places[*pick] = Some(place),
            }
        }
        Picker {
            places,
            copies,
            wanted: picks.len(),
        }
    }

    /// The picked values of a row, or the reason for which the row is malformed.
    pub fn pick(&self, row: &[u8]) -> Result<Keys, String> {
        let mut picked = self.nothing();
        if !plain::read(row, &self.places, &mut picked) {
            let row = std::str::from_utf8(row).map_err(|_| "no UTF-8".to_owned())?;
            picked = self.read(row).map_err(|error| error.to_string())?;
        }
        for (of, place) in &self.copies {
            picked[*place] = picked[*of].clone();
        }
        Ok(picked)
    }

    fn nothing(&self) -> Keys {
        let mut nothing = Keys::new();
        nothing.resize_with(self.wanted, || Value::Null);
        nothing
    }

    /// The same without copies, with a full JSON parser.
    pub fn read(&self, row: &str) -> serde_json::Result<Keys> {
        let mut json = serde_json::Deserializer::from_str(row);
        let picked = json.deserialize_seq(self)?;
        json.end().map(|()| picked)
    }
}

impl<'de> Visitor<'de> for &Picker {
    type Value = Keys;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a row of {} values", self.places.len())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut row: A) -> Result<Keys, A::Error> {
        let mut picked = self.nothing();
        for (at, place) in self.places.iter().enumerate() {
            let found = match place {
                Some(place) => row.next_element()?.map(|value| picked[*place] = value),
                None => row.next_element::<IgnoredAny>()?.map(drop),
            };
            found.ok_or_else(|| A::Error::invalid_length(at, &self))?;
        }
        if row.next_element::<IgnoredAny>()?.is_some() {
            return Err(A::Error::invalid_length(self.places.len() + 1, &self));
        }
        Ok(picked)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lines_are_joined_across_chunks() {
        let text = b"{}\n[1]\n\n[22]\n[3";
        for size in 1..=text.len() {
            let (mut lines, mut all) = (Lines::default(), Vec::new());
            for chunk in text.chunks(size) {
                lines.push(Bytes::copy_from_slice(chunk));
                while let Some(line) = lines.next_line().unwrap() {
                    all.push(String::from_utf8(line.to_vec()).unwrap());
                }
            }
            assert_eq!(all, ["{}", "[1]", "", "[22]"], "{size}");
            assert!(lines.has_begun());
        }
    }

    #[test]
    fn too_long_line_is_an_error() {
        let mut lines = Lines::default();
        lines.push(vec![b'x'; MAX_ROW_BYTES].into());
        assert_eq!(lines.next_line(), Ok(None));
        lines.push("\n".into());
        assert_eq!(lines.next_line().unwrap().unwrap().len(), MAX_ROW_BYTES);
        lines.push(vec![b'x'; MAX_ROW_BYTES + 1].into());
        assert_eq!(lines.next_line(), Err(TooLong));
    }

    #[test]
    fn values_are_picked_and_rows_validated() {
        let picker = Picker::new(3, &[2, 0, 2]);
        let picked = picker.pick(br#" [1.5, {"a": [1]}, "x\u00e9"] "#).unwrap();
        let text = || Value::Text("xé".into());
        assert_eq!(picked[..], [text(), Value::Float(1.5), text()]);
        for (row, said) in [
            ("[1,2]", "invalid length 2"),
            ("[1,2,3,4]", "invalid length 4"),
            ("[1,2,[3]]", "expected null, a boolean, a number or a text"),
            ("[1,nul,3]", "expected ident"),
            ("[1,\"\\x\",3]", "invalid escape"),
            ("[1,2,3] [", "trailing characters"),
            ("[1,2,18446744073709551615]", "maximum 9223372036854775807"),
            ("{}", "expected a row of 3 values"),
            ("[1,2", "EOF"),
        ] {
            let problem = picker.pick(row.as_bytes()).unwrap_err();
            assert!(problem.contains(said), "{row}: {problem}");
        }
        assert_eq!(picker.pick(b"[1,\"\xff\",3]"), Err("no UTF-8".to_owned()));
    }

    #[test]
    fn adjacent_floats_stay_in_order() {
        let picker = Picker::new(1, &[0]);
        let of = |text: &str| match picker.pick(format!("[{text}]").as_bytes()).unwrap()[..] {
            [Value::Float(float)] => float,
            _ => f64::NAN,
        };
        let mut float = 0.1_f64;
        for _ in 0..1000 {
            let next = float.next_up();
            assert!(of(&next.to_string()) > of(&float.to_string()), "{float}");
            float = next;
        }
    }
}
