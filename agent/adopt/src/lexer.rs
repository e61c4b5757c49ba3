//! Splits a line of haproxy.cfg into words, like HAProxy's `parse_line`.

use std::ops::Range;

/// Maximum words of a line in HAProxy.
const MAX_WORDS: usize = 64;

/// Lookup of a variable in HAProxy's environment.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Word with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// Text without quotes and escapes, with variables expanded; invalid UTF-8 is replaced.
    pub text: String,
    /// Byte range in the file.
    pub span: Range<usize>,
    /// Name of a variable in it that is not set.
    pub unset: Option<String>,
}

/// Words of a line.
#[derive(Debug, Default)]
pub struct Words {
    pub words: Vec<Word>,
    /// Offset of the comment or the end of the line.
    pub end: usize,
}

struct Lexer<'a> {
    line: &'a [u8],
    at: usize,
    offset: usize,
    environment: Environment<'a>,
    words: Vec<Word>,
    text: Vec<u8>,
    /// Offset at which the current word begins.
    begin: Option<usize>,
    unset: Option<String>,
}

/// Splits a line that begins at `offset` of its file. The error is a sentence without the line's number.
pub fn words(line: &[u8], offset: usize, environment: Environment) -> Result<Words, String> {
    let mut lexer = Lexer {
        line,
        at: 0,
        offset,
        environment,
        words: Vec::new(),
        text: Vec::new(),
        begin: None,
        unset: None,
    };
    lexer.run()?;
    if lexer.words.len() > MAX_WORDS {
        return Err(format!(
            "the line has {} words, more than HAProxy's limit of {MAX_WORDS}",
            lexer.words.len()
        ));
    }
    Ok(Words {
        words: lexer.words,
        end: offset + lexer.at,
    })
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.line.get(self.at + ahead).copied().unwrap_or(b'\n')
    }

    fn run(&mut self) -> Result<(), String> {
        let mut quote: Option<u8> = None;
        loop {
            let byte = self.peek(0);
            match byte {
                0 => return Err("the line has a NUL character".to_owned()),
                b'\n' | b'\r' => break,
                b'#' if quote.is_none() => break,
                b'"' | b'\'' if quote.is_none() => {
                    self.start();
                    quote = Some(byte);
                    self.at += 1;
                }
                _ if quote == Some(byte) => {
                    quote = None;
                    self.at += 1;
                }
                b'\\' if quote != Some(b'\'') => self.escape(quote)?,
                b'$' if quote == Some(b'"') => self.variable()?,
                _ if quote.is_none() && is_space(byte) => {
                    self.finish();
                    self.at += 1;
                }
                _ => {
                    self.start();
                    self.text.push(byte);
                    self.at += 1;
                }
            }
        }
        if let Some(quote) = quote {
            return Err(format!("a quote ({}) is never closed", char::from(quote)));
        }
        self.finish();
        Ok(())
    }

    fn start(&mut self) {
        self.begin.get_or_insert(self.at);
    }

    fn finish(&mut self) {
        if let Some(begin) = self.begin.take() {
            self.words.push(Word {
                text: String::from_utf8_lossy(&self.text).into_owned(),
                span: self.offset + begin..self.offset + self.at,
                unset: self.unset.take(),
            });
            self.text.clear();
        }
    }

    fn escape(&mut self, quote: Option<u8>) -> Result<(), String> {
        self.start();
        let next = self.peek(1);
        let (byte, length) = match next {
            b' ' | b'\\' | b'#' | b'\'' | b'"' => (next, 2),
            b't' => (b'\t', 2),
            b'n' => (b'\n', 2),
            b'r' => (b'\r', 2),
            b'$' if quote.is_some() => (b'$', 2),
            b'x' => {
                let digits = [self.peek(2), self.peek(3)].map(|it| char::from(it).to_digit(16));
                match digits {
                    [Some(high), Some(low)] => ((high * 16 + low) as u8, 4),
                    _ => return Err("\\x needs two hexadecimal digits".to_owned()),
                }
            }
            _ => (b'\\', 1),
        };
        self.text.push(byte);
        self.at += length;
        Ok(())
    }

    /// Expands a variable within double quotes: `$NAME`, `${NAME}`, `${NAME-default}`, `${NAME[*]}`.
    fn variable(&mut self) -> Result<(), String> {
        self.start();
        self.at += 1;
        let brace = self.peek(0) == b'{';
        self.at += usize::from(brace);
        let begin = self.at;
        self.at += usize::from(self.peek(0) == b'.');
        if !(self.peek(0).is_ascii_alphabetic() || self.peek(0) == b'_') {
            return Err("a variable's name must begin with a letter or _".to_owned());
        }
        while self.peek(0).is_ascii_alphanumeric() || self.peek(0) == b'_' {
            self.at += 1;
        }
        let name = String::from_utf8_lossy(&self.line[begin..self.at]).into_owned();
        let mut value = (self.environment)(&name).map(String::into_bytes);
        let mut split = false;
        if brace {
            if self.line[self.at..].starts_with(b"[*]") {
                split = true;
                self.at += 3;
            }
            let left = &self.line[self.at..];
            let Some(length) = left.iter().position(|&byte| byte == b'}') else {
                return Err(format!("${{{name} has no closing brace"));
            };
            match left[0] {
                b'}' => {}
                b'-' => value = value.or(Some(left[1..length].to_vec())),
                _ => return Err(format!("${{{name} has no closing brace")),
            }
            self.at += length + 1;
        }
        let Some(value) = value else {
            if split {
                // As if the quotes were not there.
                self.begin = self.begin.filter(|_| !self.text.is_empty());
                return Ok(());
            }
            self.unset.get_or_insert(name);
            return Ok(());
        };
        for byte in value {
            if split && is_space(byte) {
                if !self.text.is_empty() {
                    let begin = self.begin;
                    self.finish();
                    self.begin = begin;
                }
            } else {
                self.text.push(byte);
            }
        }
        Ok(())
    }
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Vec<String>, String> {
        let environment = |name: &str| match name {
            "PORT" => Some("8080".to_owned()),
            "TWO" => Some("a  b".to_owned()),
            _ => None,
        };
        let found = words(line.as_bytes(), 0, &environment)?;
        Ok(found.words.into_iter().map(|word| word.text).collect())
    }

    #[test]
    fn words_are_split_like_haproxy() {
        for (line, expected) in [
            ("", vec![]),
            ("  # only a comment", vec![]),
            ("server  a\tb#c", vec!["server", "a", "b"]),
            ("a 'b # c' \"d # e\"", vec!["a", "b # c", "d # e"]),
            ("a b\\ c \\# \\d", vec!["a", "b c", "#", "\\d"]),
            (
                "a '$PORT' \"$PORT\" $PORT",
                vec!["a", "$PORT", "8080", "$PORT"],
            ),
            ("\"x:${PORT}\"y'z'", vec!["x:8080yz"]),
            (
                "\"${NONE-fall back}\" \"\\$PORT\" \"${NONE}\"",
                vec!["fall back", "$PORT", ""],
            ),
            ("\"${TWO[*]}\"", vec!["a", "b"]),
            ("a \"${NONE[*]}\" b", vec!["a", "b"]),
            ("'a\\nb' \"a\\nb\" \\x41", vec!["a\\nb", "a\nb", "A"]),
            ("a '' b\r", vec!["a", "", "b"]),
        ] {
            assert_eq!(
                read(line).as_deref(),
                Ok(&expected
                    .iter()
                    .map(|it| (*it).to_owned())
                    .collect::<Vec<_>>()[..]),
                "{line}"
            );
        }
    }

    #[test]
    fn spans_are_of_the_text_as_written() {
        let line = b"  server \"a\"'b' # c";
        let found = words(line, 100, &|_| None).unwrap_or_default();
        assert_eq!(found.words[1].span, 109..115);
        assert_eq!(found.end, 116);
    }

    #[test]
    fn lines_that_haproxy_refuses_are_errors() {
        for line in ["a 'b", "a \"b", "\\xq1", "\"${A\"", "\"$1\"", "a\0b"] {
            assert!(read(line).is_err(), "{line}");
        }
        assert!(read(&"a ".repeat(64)).is_ok());
        assert!(read(&"a ".repeat(65)).is_err());
    }
}
