// SPDX-License-Identifier: GPL-2.0-only
//! `mean([balance @ {app}] for app in programs)`: an argument written once for a list of cases.
//!
//! Problem: papers give means over a dozen programs, and a formula that says the same for each cannot
//! be read. How: what stands before `for` is repeated for each item of a list of the file's `[each]`,
//! with `{name}` within brackets, and the bare name elsewhere, replaced by the item.

use super::{Condition, Number};
use corun_scenario::or_nearest;
use std::collections::BTreeMap;

/// Lists of items by name; an item has one text, or several that go together.
pub type Lists = BTreeMap<String, Vec<Vec<String>>>;

/// The list of this name, whose items must have as many texts as there are `variables`.
///
/// # Errors
/// If there is no such list, or its items have other lengths.
pub fn list<'a>(
    lists: &'a Lists,
    name: &str,
    variables: &[String],
) -> Result<&'a [Vec<String>], String> {
    let known: Vec<&str> = lists.keys().map(String::as_str).collect();
    let Some(items) = lists.get(name) else {
        return Err(format!(
            "for … in {name}: [each] has no such list, {}",
            or_nearest(name, &known)
        ));
    };
    match items.iter().find(|item| item.len() != variables.len()) {
        None => Ok(items),
        Some(item) => Err(format!(
            "for {} in {name}: found an item of {}, expected {}",
            variables.join(", "),
            item.len(),
            variables.len()
        )),
    }
}

/// A formula in which names can be replaced.
pub trait Template: Sized {
    /// With `text` in place of the name `variable`.
    ///
    /// # Errors
    /// If `text` stands where only a number can, and is not one.
    fn with(&self, variable: &str, text: &str) -> Result<Self, String>;
}

impl Template for Number {
    fn with(&self, variable: &str, text: &str) -> Result<Self, String> {
        let of = |number: &Self| number.with(variable, text);
        Ok(match self {
            Self::Name(name) if name == variable => match text.parse() {
                Ok(number) => Self::Constant(number),
                Err(_) => {
                    return Err(format!("{variable}: found {text:?}, expected a number"));
                }
            },
            Self::Constant(_) | Self::Name(_) => self.clone(),
            Self::Measured(inner) => {
                Self::Measured(inner.replace(&format!("{{{variable}}}"), text))
            }
            Self::Negative(inner) => Self::Negative(of(inner)?.into()),
            Self::Operation(a, operator, b) => {
                Self::Operation(of(a)?.into(), *operator, of(b)?.into())
            }
            Self::Call(function, all) => {
                Self::Call(function, all.iter().map(of).collect::<Result<_, _>>()?)
            }
            Self::Greatest(all) => Self::Greatest(all.iter().map(of).collect::<Result<_, _>>()?),
        })
    }
}

impl Template for Condition {
    fn with(&self, variable: &str, text: &str) -> Result<Self, String> {
        let number = |number: &Number| number.with(variable, text);
        let of = |condition: &Self| condition.with(variable, text);
        Ok(match self {
            Self::Compare(a, comparison, b) => Self::Compare(number(a)?, *comparison, number(b)?),
            Self::Near(three) => {
                let [a, b, percent] = &**three;
                Self::Near([number(a)?, number(b)?, number(percent)?].into())
            }
            Self::Not(inner) => Self::Not(of(inner)?.into()),
            Self::And(a, b) => Self::And(of(a)?.into(), of(b)?.into()),
            Self::Or(a, b) => Self::Or(of(a)?.into(), of(b)?.into()),
        })
    }
}

/// `template` for each of these items.
///
/// # Errors
/// As [`Template::with`].
pub fn each<T: Template + Clone>(
    template: &T,
    variables: &[String],
    items: &[Vec<String>],
) -> Result<Vec<T>, String> {
    let of = |item: &Vec<String>| {
        let mut pairs = variables.iter().zip(item);
        pairs.try_fold(template.clone(), |made, (name, text)| made.with(name, text))
    };
    items.iter().map(of).collect()
}
