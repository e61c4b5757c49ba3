//! Fast path for rows of plain values, without nesting and escapes, as most rows are.

use crate::answer::Value;

/// Parses a row with one value per entry of `places`, and stores those that have a place. False if the row is not plain
/// or malformed: serde_json parses all that this does to the same values, and reports errors of the rest.
pub fn read(row: &[u8], places: &[Option<usize>], picked: &mut [Value]) -> bool {
    let mut rest = Rest { row, at: 0 };
    rest.row(places, picked).is_some()
}

struct Rest<'a> {
    row: &'a [u8],
    at: usize,
}

impl Rest<'_> {
    fn row(&mut self, places: &[Option<usize>], picked: &mut [Value]) -> Option<()> {
        self.skip_blanks();
        self.expect(b'[')?;
        for (number, place) in places.iter().enumerate() {
            if number > 0 {
                self.expect(b',')?;
            }
            self.skip_blanks();
            let begin = self.at;
            self.value()?;
            if let Some(place) = place {
                picked[*place] = plain(self.row.get(begin..self.at)?)?;
            }
            self.skip_blanks();
        }
        self.expect(b']')?;
        self.skip_blanks();
        (self.at == self.row.len()).then_some(())
    }

    fn peek(&self) -> Option<u8> {
        self.row.get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn value(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.text(),
            b'-' | b'0'..=b'9' => self.number(),
            b'n' => self.word("null"),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            _ => None,
        }
    }

    fn word(&mut self, word: &str) -> Option<()> {
        let found = self.row[self.at..].starts_with(word.as_bytes());
        found.then(|| self.at += word.len())
    }

    fn text(&mut self) -> Option<()> {
        let inside = &self.row[self.at + 1..];
        let length = memchr::memchr2(b'"', b'\\', inside)?;
        let has_control = inside[..length]
            .iter()
            .fold(false, |found, byte| found | (*byte < 0x20));
        // Only strings may contain non-ASCII bytes.
        std::str::from_utf8(&inside[..length]).ok()?;
        self.at += 1 + length;
        (!has_control).then(|| self.expect(b'"'))?
    }

    fn number(&mut self) -> Option<()> {
        let _ = self.expect(b'-');
        if self.expect(b'0').is_none() {
            self.digits()?;
        }
        if self.expect(b'.').is_some() {
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            let _ = self.expect(b'-').or_else(|| self.expect(b'+'));
            self.digits()?;
        }
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let length = digits(&self.row[self.at..]);
        self.at += length;
        (length > 0).then_some(())
    }
}

/// Number of leading digits, eight bytes at a time: an addition sets the high bit of each byte that is not a digit.
fn digits(text: &[u8]) -> usize {
    let (eights, rest) = text.as_chunks::<8>();
    for (number, eight) in eights.iter().enumerate() {
        let from_zero = u64::from_le_bytes(*eight) ^ 0x3030_3030_3030_3030;
        let beyond_nine = (from_zero & 0x7f7f_7f7f_7f7f_7f7f) + 0x7676_7676_7676_7676;
        let others = (beyond_nine | from_zero) & 0x8080_8080_8080_8080;
        if others != 0 {
            return number * 8 + others.trailing_zeros() as usize / 8;
        }
    }
    let more = rest.iter().take_while(|byte| byte.is_ascii_digit());
    eights.len() * 8 + more.count()
}

fn plain(text: &[u8]) -> Option<Value> {
    let is_whole = |byte: &u8| byte.is_ascii_digit() || *byte == b'-';
    // serde_json parses -0 as a float.
    if text != b"-0" && text.iter().all(is_whole) {
        return whole(text).map(Value::Int);
    }
    serde_json::from_slice(text).ok()
}

/// The integer; `None` if it does not fit 64 bits.
fn whole(text: &[u8]) -> Option<i64> {
    let (sign, digits) = match text {
        [b'-', digits @ ..] => (-1, digits),
        _ => (1, text),
    };
    digits.iter().try_fold(0_i64, |number, digit| {
        let digit = i64::from(*digit - b'0');
        number.checked_mul(10)?.checked_add(sign * digit)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::{collection::vec, prelude::*, sample::Index};

    use crate::answer::Keys;

    use super::{super::lines::Picker, *};

    fn quick(row: &str, picks: &[usize], columns: usize) -> Option<Keys> {
        let mut places = vec![None; columns];
        for (place, pick) in picks.iter().enumerate() {
            places[*pick] = Some(place);
        }
        let mut picked = Keys::from_elem(Value::Null, picks.len());
        read(row.as_bytes(), &places, &mut picked).then_some(picked)
    }

    fn value() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<i64>().prop_map(|it| it.to_string()),
            any::<f64>().prop_map(|it| format!("{it:e}")),
            any::<f64>().prop_map(|it| it.to_string()),
            "[a-zé \\\\\"\u{1}]{0,6}".prop_map(|it| serde_json::to_string(&it).unwrap()),
            "-?[0-9]{0,25}(\\.[0-9]{0,3})?([eE][-+]?[0-9]{0,4})?",
            Just("null".to_owned()),
            Just("true".to_owned()),
            Just("false".to_owned()),
            Just("[1, {}]".to_owned()),
            "[-+.0-9a-fA-Fnul\"\\\\ \u{0}\u{1f}]{0,5}",
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn plain_parser_agrees_with_serde_json(
            cells in vec((value(), any::<bool>(), "[ \t\r]{0,2}"), 0..6),
            (at, other) in (any::<Index>(), "[-+\\[\\]{},:.\"\\\\ 0e\u{0}]{0,2}"),
        ) {
            let columns = cells.len();
            let picks: Vec<usize> = (0..columns).filter(|at| cells[*at].1).collect();
            let texts = cells.iter().map(|(text, _, blank)| format!("{blank}{text}{blank}"));
            let whole = format!("[{}]", texts.collect::<Vec<_>>().join(","));
            let at = (0..=at.index(whole.len() + 1)).rev().find(|at| whole.is_char_boundary(*at)).unwrap_or(0);
            let (begin, end) = whole.split_at(at);
            for row in [&whole, &format!("{begin}{other}{end}"), &format!("{begin}{other}")] {
                if let Some(picked) = quick(row, &picks, columns) {
                    let careful = Picker::new(columns, &picks).read(row);
                    prop_assert_eq!(Some(picked), careful.ok(), "{}", row);
                }
            }
        }
    }

    #[test]
    fn plain_rows_are_read() {
        for row in [
            "[1,-2.5e-7,\"é\"]",
            " [ null , true,\"\"] ",
            "[0, -0.5, 12345678901234567890.0]",
        ] {
            assert!(quick(row, &[0, 1, 2], 3).is_some(), "{row}");
        }
        for row in [
            "[1,2,\"\\n\"]",
            "[01,2,3]",
            "[1,2,[3]]",
            "[1,2]",
            "[1,2,3,4]",
            "[1,2,99999999999999999999]",
            "[1,2,3] 4",
            "[1,,3]",
            "[1,2,3",
            "[1,2,\"3",
            "",
        ] {
            assert!(quick(row, &[0, 1, 2], 3).is_none(), "{row}");
        }
    }
}
