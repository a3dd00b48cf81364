// SPDX-License-Identifier: GPL-2.0-only
//! Splits program text into tokens with their positions.

use corun_model::time::MICRO;
use std::fmt;

/// A token; texts are parts of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A keyword or name.
    Word(&'a str),
    /// Digits, perhaps with a point or a unit.
    Number(&'a str),
    /// `±` or `+-`.
    PlusMinus,
    Percent,
    Slash,
    Open,
    Close,
    Semicolon,
    /// A character that belongs to no token.
    Odd(char),
    End,
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Word(text) | Token::Number(text) => {
                let short: String = text.chars().take(40).collect();
                let more = if short.len() < text.len() { "…" } else { "" };
                write!(f, "`{short}{more}`")
            }
            Token::PlusMinus => f.write_str("`±`"),
            Token::Percent => f.write_str("`%`"),
            Token::Slash => f.write_str("`/`"),
            Token::Open => f.write_str("`{`"),
            Token::Close => f.write_str("`}`"),
            Token::Semicolon => f.write_str("`;`"),
            Token::Odd(c) => write!(f, "{c:?}"),
            Token::End => f.write_str("the end of the program"),
        }
    }
}

/// Where a token begins, from 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub line: usize,
    pub column: usize,
}

/// Reads tokens one by one.
pub(super) struct Lexer<'a> {
    rest: &'a str,
    at: Place,
}

impl<'a> Lexer<'a> {
    pub fn new(text: &'a str) -> Self {
        Self {
            rest: text,
            at: Place { line: 1, column: 1 },
        }
    }

    /// The next token and where it begins. After the end, the end again.
    pub fn next(&mut self) -> (Token<'a>, Place) {
        self.skip_blank();
        let at = self.at;
        let Some(first) = self.rest.chars().next() else {
            return (Token::End, at);
        };
        let token = match first {
            '{' => self.symbol(1, Token::Open),
            '}' => self.symbol(1, Token::Close),
            ';' => self.symbol(1, Token::Semicolon),
            '%' => self.symbol(1, Token::Percent),
            '/' => self.symbol(1, Token::Slash),
            '±' => self.symbol(1, Token::PlusMinus),
            '+' if self.rest.starts_with("+-") => self.symbol(2, Token::PlusMinus),
            c if c.is_ascii_digit() => Token::Number(
                self.take(|c| c.is_ascii_alphanumeric() || c == '.' || MICRO.contains(&c)),
            ),
            c if c.is_ascii_alphabetic() || c == '_' => {
                Token::Word(self.take(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'))
            }
            c => self.symbol(1, Token::Odd(c)),
        };
        (token, at)
    }

    fn symbol(&mut self, chars: usize, token: Token<'a>) -> Token<'a> {
        for _ in 0..chars {
            self.bump();
        }
        token
    }

    fn take(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        let (token, rest) = self.rest.split_at(end);
        self.rest = rest;
        self.at.column += token.chars().count();
        token
    }

    fn bump(&mut self) {
        let mut chars = self.rest.chars();
        if chars.next() == Some('\n') {
            self.at.line += 1;
            self.at.column = 1;
        } else {
            self.at.column += 1;
        }
        self.rest = chars.as_str();
    }

    /// Skips white space and comments.
    fn skip_blank(&mut self) {
        while let Some(c) = self.rest.chars().next() {
            if c == '#' {
                self.take(|c| c != '\n');
            } else if c.is_whitespace() {
                self.bump();
            } else {
                break;
            }
        }
    }
}
