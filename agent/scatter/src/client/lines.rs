//! An answer, line by line: only the values that rows are ordered by or reduced to are read, all else is checked and
//! passed on as it came.

use plimsoll_core::gather::{Keys, Value};
use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, SeqAccess, Visitor},
};
use tokio_util::bytes::{Buf, Bytes};

use super::plain;
use crate::client::MAX_ROW_BYTES;

/// A line that is no row.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Word {
    /// The first one.
    Columns(Vec<String>),
    /// The last one.
    End {
        /// Rows that there were.
        rows: u64,
    },
    /// In its place, where the answer broke off.
    Error {
        /// late, refused or down.
        state: String,
        /// For people.
        problem: String,
    },
}

/// A line is longer than any may be.
#[derive(Debug, PartialEq)]
pub struct TooLong;

/// Lines of chunks. One that is within a chunk is not copied.
#[derive(Debug, Default)]
pub struct Lines {
    chunk: Bytes,
    begun: Vec<u8>,
}

impl Lines {
    /// To be called where there is no whole line any more.
    pub fn push(&mut self, chunk: Bytes) {
        debug_assert!(self.chunk.is_empty());
        self.chunk = chunk;
    }

    /// The next whole line, without its end.
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

    /// What came after the last whole line that was taken.
    pub fn rest(mut self) -> Bytes {
        if self.begun.is_empty() {
            return self.chunk;
        }
        self.begun.extend_from_slice(&self.chunk);
        self.begun.into()
    }

    /// Whether a line has begun and not ended.
    pub fn has_begun(&self) -> bool {
        !self.begun.is_empty()
    }
}

/// Reads rows.
#[derive(Clone, Debug)]
pub struct Picker {
    /// For each column, where its value goes.
    places: Vec<Option<usize>>,
    /// Values that are those of others: of which, and where.
    copies: Vec<(usize, usize)>,
    wanted: usize,
}

impl Picker {
    /// Of so many columns, the values at these.
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

    /// The values that are picked of a row; what is wrong with it where it is none.
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

    /// The same without copies, of any row.
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
    fn lines_are_whole_however_they_are_cut() {
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
    fn a_line_has_an_end() {
        let mut lines = Lines::default();
        lines.push(vec![b'x'; MAX_ROW_BYTES].into());
        assert_eq!(lines.next_line(), Ok(None));
        lines.push("\n".into());
        assert_eq!(lines.next_line().unwrap().unwrap().len(), MAX_ROW_BYTES);
        lines.push(vec![b'x'; MAX_ROW_BYTES + 1].into());
        assert_eq!(lines.next_line(), Err(TooLong));
    }

    #[test]
    fn values_are_picked_and_all_is_checked() {
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
            ("[1,2,18446744073709551615]", "beyond the integers"),
            ("{}", "expected a row of 3 values"),
            ("[1,2", "EOF"),
        ] {
            let problem = picker.pick(row.as_bytes()).unwrap_err();
            assert!(problem.contains(said), "{row}: {problem}");
        }
        assert_eq!(picker.pick(b"[1,\"\xff\",3]"), Err("no UTF-8".to_owned()));
    }

    #[test]
    fn neighbours_stay_in_order() {
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
