// SPDX-License-Identifier: GPL-2.0-only
//! The words of a formula.

/// A word.
#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    /// A number without a sign.
    Number(f64),
    /// A name or a keyword; `paper.two` is one.
    Word(String),
    /// What stands in square brackets.
    Measured(String),
    /// Anything else.
    Sign(&'static str),
}

/// Longer ones first: `<=` is not `<` and `=`.
const SIGNS: [&str; 11] = ["<=", ">=", "<", ">", "+", "-", "*", "/", "(", ")", ","];

/// All words, each with the rest of the text from it on, for messages.
///
/// # Errors
/// What is no word.
pub fn tokens(text: &str) -> Result<Vec<(Token, &str)>, String> {
    let mut all = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, length) = match first {
            '[' => measured(rest)?,
            '0'..='9' | '.' => number(rest)?,
            c if c.is_ascii_alphabetic() || c == '_' => {
                let length = run(rest, |c| c.is_ascii_alphanumeric() || "_.".contains(c));
                (Token::Word(rest[..length].to_string()), length)
            }
            _ => sign(rest)?,
        };
        all.push((token, rest));
        rest = rest[length..].trim_start();
    }
    Ok(all)
}

fn run(text: &str, fits: impl Fn(char) -> bool) -> usize {
    text.find(|c: char| !fits(c)).unwrap_or(text.len())
}

fn measured(rest: &str) -> Result<(Token, usize), String> {
    let end = rest
        .find(']')
        .ok_or_else(|| format!("at {rest:?}: expected ] at the end of a measured value"))?;
    let inner = rest[1..end].trim();
    Ok((Token::Measured(inner.to_string()), end + 1))
}

fn number(rest: &str) -> Result<(Token, usize), String> {
    let length = run(rest, |c| c.is_ascii_digit() || c == '.');
    match rest[..length].parse() {
        Ok(number) => Ok((Token::Number(number), length)),
        Err(_) => Err(format!(
            "found {:?}, expected a number such as 12 or 0.5",
            &rest[..length]
        )),
    }
}

fn sign(rest: &str) -> Result<(Token, usize), String> {
    let found = SIGNS.iter().find(|sign| rest.starts_with(**sign));
    found
        .map(|sign| (Token::Sign(sign), sign.len()))
        .ok_or_else(|| {
            format!(
                "at {rest:?}: expected a number, a name, [a measured value], or one of {}",
                SIGNS.join(" ")
            )
        })
}
