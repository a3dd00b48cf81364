// SPDX-License-Identifier: GPL-2.0-only
//! Reads the JSON that people feed to rt-app, with the place of every key and value.
//!
//! It is laxer than the standard, as are json-c by default and rt-app's script workgen: comments
//! (`/* */`, `//`), a comma before a closing bracket, `True`, keys without a value, and keys given
//! twice, whose order is the order of events. Libraries for JSON accept none of that and do not
//! keep positions, which messages need.

use crate::workload::lexer::Place;

/// The deepest nesting of brackets; sensible files have five.
const DEEPEST: usize = 32;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Whole(i64),
    /// A number that is not whole, or does not fit.
    Number(String),
    Text(String),
    List(Vec<Node>),
    Object(Vec<Entry>),
}

/// A value where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub at: Place,
    pub value: Value,
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub key: String,
    pub at: Place,
    pub node: Node,
}

impl Value {
    /// As messages show it, shortened.
    pub fn show(&self) -> String {
        match self {
            Value::Null => "nothing".into(),
            Value::Bool(flag) => flag.to_string(),
            Value::Whole(number) => number.to_string(),
            Value::Number(text) => short(text),
            Value::Text(text) => format!("{:?}", short(text)),
            Value::List(_) => "a list".into(),
            Value::Object(_) => "an object".into(),
        }
    }
}

/// The beginning of a text that may be long.
pub(super) fn short(text: &str) -> String {
    let mut short: String = text.chars().take(40).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// What keeps a text from being read, and where.
pub(super) type Problem = (Place, String);

type Read<T> = Result<T, Problem>;

/// Reads a file.
pub(super) fn read(text: &str) -> Read<Node> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader {
        rest: text,
        at: Place { line: 1, column: 1 },
    };
    reader.skip_blank()?;
    let node = reader.node(0)?;
    reader.skip_blank()?;
    match reader.peek() {
        None => Ok(node),
        Some(_) => Err(reader.unexpected("the end of the file")),
    }
}

struct Reader<'a> {
    rest: &'a str,
    at: Place,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.rest = &self.rest[c.len_utf8()..];
        match c {
            '\n' => {
                self.at.line += 1;
                self.at.column = 1;
            }
            _ => self.at.column += 1,
        }
        Some(c)
    }

    /// Takes `c` if it is next.
    fn takes(&mut self, c: char) -> bool {
        let there = self.peek() == Some(c);
        if there {
            self.bump();
        }
        there
    }

    fn unexpected(&self, accepted: &str) -> Problem {
        let found = match self.peek() {
            None => "the end of the file".to_string(),
            Some(c) => format!("{c:?}"),
        };
        (self.at, format!("found {found}, expected {accepted}"))
    }

    /// Skips white space and comments.
    fn skip_blank(&mut self) -> Read<()> {
        loop {
            match self.peek() {
                Some(c) if c.is_whitespace() => {
                    self.bump();
                }
                Some('/') if self.rest.starts_with("//") => {
                    while self.peek().is_some_and(|c| c != '\n') {
                        self.bump();
                    }
                }
                Some('/') if self.rest.starts_with("/*") => self.skip_comment()?,
                _ => return Ok(()),
            }
        }
    }

    fn skip_comment(&mut self) -> Read<()> {
        let at = self.at;
        self.bump();
        self.bump();
        while !self.rest.starts_with("*/") {
            if self.bump().is_none() {
                return Err((at, "this comment has no end, expected `*/`".into()));
            }
        }
        self.bump();
        self.bump();
        Ok(())
    }

    fn node(&mut self, depth: usize) -> Read<Node> {
        let at = self.at;
        if depth > DEEPEST {
            return Err((at, format!("brackets are nested deeper than {DEEPEST}")));
        }
        let value = match self.peek() {
            Some('{') => self.object(depth)?,
            Some('[') => self.list(depth)?,
            Some('"') => Value::Text(self.text()?),
            Some(c) if c.is_ascii_digit() || c == '-' || c == '+' => self.number(),
            Some(c) if c.is_ascii_alphabetic() => self.word()?,
            _ => return Err(self.unexpected("a value")),
        };
        Ok(Node { at, value })
    }

    fn object(&mut self, depth: usize) -> Read<Value> {
        let mut entries = Vec::new();
        self.bump();
        loop {
            self.skip_blank()?;
            if self.takes('}') {
                return Ok(Value::Object(entries));
            }
            if self.peek() != Some('"') {
                return Err(self.unexpected("a key in double quotes or `}`"));
            }
            let at = self.at;
            let key = self.text()?;
            self.skip_blank()?;
            let node = match self.peek() {
                Some(':') => {
                    self.bump();
                    self.skip_blank()?;
                    self.node(depth + 1)?
                }
                Some(',' | '}') => Node {
                    at,
                    value: Value::Null,
                },
                _ => return Err(self.unexpected("`:` and a value after the key")),
            };
            entries.push(Entry { key, at, node });
            self.skip_blank()?;
            if !self.takes(',') && self.peek() != Some('}') {
                return Err(self.unexpected("`,` or `}`"));
            }
        }
    }

    fn list(&mut self, depth: usize) -> Read<Value> {
        let mut nodes = Vec::new();
        self.bump();
        loop {
            self.skip_blank()?;
            if self.takes(']') {
                return Ok(Value::List(nodes));
            }
            nodes.push(self.node(depth + 1)?);
            self.skip_blank()?;
            if !self.takes(',') && self.peek() != Some(']') {
                return Err(self.unexpected("`,` or `]`"));
            }
        }
    }

    fn text(&mut self) -> Read<String> {
        let at = self.at;
        let mut text = String::new();
        self.bump();
        loop {
            match self.peek() {
                None | Some('\n') => return Err((at, "this text has no closing `\"`".into())),
                Some('"') => {
                    self.bump();
                    return Ok(text);
                }
                Some('\\') => text.push(self.escaped()?),
                Some(c) => {
                    text.push(c);
                    self.bump();
                }
            }
        }
    }

    fn escaped(&mut self) -> Read<char> {
        let at = self.at;
        self.bump();
        let accepted = "one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX";
        let Some(c) = self.bump() else {
            return Err(self.unexpected(accepted));
        };
        Ok(match c {
            '"' | '\\' | '/' => c,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let digits: String = self.rest.chars().take(4).collect();
                let code = u32::from_str_radix(&digits, 16)
                    .ok()
                    .filter(|_| digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_hexdigit()));
                let Some(code) = code else {
                    return Err((at, format!("found \\u{}, expected \\uXXXX", short(&digits))));
                };
                (0..4).for_each(|_| {
                    self.bump();
                });
                // Halves of a surrogate pair do not stand for characters of their own.
                char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            other => return Err((at, format!("found \\{other}, expected {accepted}"))),
        })
    }

    fn number(&mut self) -> Value {
        let belongs = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        let text = self.take(belongs);
        match text.parse() {
            Ok(number) if !text.starts_with('+') => Value::Whole(number),
            _ => Value::Number(text),
        }
    }

    fn word(&mut self) -> Read<Value> {
        let at = self.at;
        let word = self.take(|c| c.is_ascii_alphanumeric() || c == '_');
        match word.to_ascii_lowercase().as_str() {
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            "null" => Ok(Value::Null),
            _ => {
                let found = short(&word);
                let accepted = "true, false, null, or text in double quotes";
                Err((at, format!("found {found}, expected {accepted}")))
            }
        }
    }

    fn take(&mut self, belongs: impl Fn(char) -> bool) -> String {
        let end = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        let (token, rest) = self.rest.split_at(end);
        self.rest = rest;
        self.at.column += token.chars().count();
        token.to_string()
    }
}
