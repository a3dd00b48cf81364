// SPDX-License-Identifier: GPL-2.0-only
//! Formulas in files of checks: how a claim's value is read off measured ones.
//!
//! Numbers, names, measured values in square brackets, `+ - * /`, functions, lists and comparisons; docs/reproduce.md
//! describes the language. Whether a formula is a number or a condition is known when it is read, so that nothing can
//! go wrong after the runs. What was not measured is NaN: it goes through arithmetic, and a comparison with it is
//! neither true nor false.

mod aql;
mod each;
pub mod functions;
mod jupiter;
mod lexer;
mod papers;
mod parser;
#[cfg(test)]
mod tests;
mod vmigrater;
mod vsmtio;

pub use each::{Lists, Template, list as items};
use functions::Function;
use std::collections::BTreeMap;

/// A formula that is a number.
#[derive(Clone, Debug, PartialEq)]
pub enum Number {
    /// Itself.
    Constant(f64),
    /// A name, defined elsewhere.
    Name(String),
    /// A measured value, as written within the brackets.
    Measured(String),
    /// The negative.
    Negative(Box<Number>),
    /// A sum, difference, product or quotient.
    Operation(Box<Number>, Operator, Box<Number>),
    /// A function of some numbers.
    Call(&'static Function, Vec<Number>),
    /// The one of some numbers that is the greatest over all seeds.
    Greatest(Vec<Number>),
}

/// What two numbers are combined by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `+`
    Plus,
    /// `-`
    Minus,
    /// `*`
    Times,
    /// `/`
    By,
}

/// A formula that is true or not.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// The first number, compared with the second.
    Compare(Number, Comparison, Number),
    /// Do the two differ by no more than this many per cent of the larger?
    Near(Box<[Number; 3]>),
    /// Not so.
    Not(Box<Condition>),
    /// Both.
    And(Box<Condition>, Box<Condition>),
    /// At least one.
    Or(Box<Condition>, Box<Condition>),
}

/// How numbers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    More,
    /// `>=`
    AtLeast,
}

/// What names stand for.
pub type Names = BTreeMap<String, f64>;

/// What is known when a formula is evaluated.
pub struct Known<'a> {
    /// The value of each name.
    pub names: &'a Names,
    /// The measured value that the text within brackets refers to; NaN if it was not measured.
    pub measured: &'a dyn Fn(&str) -> f64,
    /// What a number comes to over all seeds; NaN if something was not measured.
    pub overall: &'a dyn Fn(&Number) -> f64,
}

impl Number {
    /// Reads one; `lists` are what `for … in` may go through.
    ///
    /// # Errors
    /// What was found and what was expected.
    pub fn parse(text: &str, lists: &Lists) -> Result<Self, String> {
        parser::number(text, lists)
    }

    /// Its value; NaN if something was not measured.
    pub fn value(&self, known: &Known<'_>) -> f64 {
        match self {
            Self::Constant(value) => *value,
            Self::Name(name) => known.names.get(name).copied().unwrap_or(f64::NAN),
            Self::Measured(text) => (known.measured)(text),
            Self::Negative(of) => -of.value(known),
            Self::Operation(a, operator, b) => {
                let (a, b) = (a.value(known), b.value(known));
                match operator {
                    Operator::Plus => a + b,
                    Operator::Minus => a - b,
                    Operator::Times => a * b,
                    Operator::By => a / b,
                }
            }
            Self::Call(function, of) => {
                let of: Vec<f64> = of.iter().map(|of| of.value(known)).collect();
                (function.call)(&of)
            }
            Self::Greatest(of) => greatest(of, known).map_or(f64::NAN, |of| of.value(known)),
        }
    }

    /// Calls `see` with all its names and measured values.
    pub fn visit(&self, see: &mut dyn FnMut(&Self)) {
        match self {
            Self::Constant(_) => {}
            Self::Name(_) | Self::Measured(_) => see(self),
            Self::Negative(of) => of.visit(see),
            Self::Operation(a, _, b) => {
                a.visit(see);
                b.visit(see);
            }
            Self::Call(_, of) | Self::Greatest(of) => of.iter().for_each(|of| of.visit(see)),
        }
    }
}

/// The first of the greatest over all seeds; `None` if one of them was not measured.
fn greatest<'n>(of: &'n [Number], known: &Known<'_>) -> Option<&'n Number> {
    let mut best: Option<(&Number, f64)> = None;
    for number in of {
        let overall = (known.overall)(number);
        if overall.is_nan() {
            return None;
        }
        if best.is_none_or(|(_, so_far)| overall > so_far) {
            best = Some((number, overall));
        }
    }
    best.map(|(number, _)| number)
}

/// The values of some numbers, if all have one.
fn numbers<const N: usize>(of: [&Number; N], known: &Known<'_>) -> Option<[f64; N]> {
    let all = of.map(|of| of.value(known));
    all.iter().all(|value| value.is_finite()).then_some(all)
}

/// Two truths as one: if one of them is `decides`, the other does not matter.
fn both(a: Option<bool>, b: Option<bool>, decides: bool) -> Option<bool> {
    match a == Some(decides) || b == Some(decides) {
        true => Some(decides),
        false => a.and(b),
    }
}

impl Condition {
    /// Reads one; `lists` are what `for … in` may go through.
    ///
    /// # Errors
    /// What was found and what was expected.
    pub fn parse(text: &str, lists: &Lists) -> Result<Self, String> {
        parser::condition(text, lists)
    }

    /// Is it true? `None` if that depends on what was not measured, or on a division by zero.
    pub fn holds(&self, known: &Known<'_>) -> Option<bool> {
        match self {
            Self::Compare(a, comparison, b) => {
                let [a, b] = numbers([a, b], known)?;
                Some(match comparison {
                    Comparison::Less => a < b,
                    Comparison::AtMost => a <= b,
                    Comparison::More => a > b,
                    Comparison::AtLeast => a >= b,
                })
            }
            Self::Near(of) => {
                let [a, b, percent] = numbers(of.each_ref(), known)?;
                Some((a - b).abs() <= percent / 100.0 * a.abs().max(b.abs()))
            }
            Self::Not(of) => of.holds(known).map(|so| !so),
            Self::And(a, b) => both(a.holds(known), b.holds(known), false),
            Self::Or(a, b) => both(a.holds(known), b.holds(known), true),
        }
    }

    /// Calls `see` with all its names and measured values.
    pub fn visit(&self, see: &mut dyn FnMut(&Number)) {
        match self {
            Self::Compare(a, _, b) => {
                a.visit(see);
                b.visit(see);
            }
            Self::Near(of) => of.iter().for_each(|of| of.visit(see)),
            Self::Not(of) => of.visit(see),
            Self::And(a, b) | Self::Or(a, b) => {
                a.visit(see);
                b.visit(see);
            }
        }
    }
}
