// SPDX-License-Identifier: GPL-2.0-only
//! The formulas of one check, with the names that they may use.

use crate::reproduce::claims::Said;
use crate::reproduce::formula::{Condition, Number};
use crate::reproduce::measure::{Defaults, Reference};
use corun_scenario::or_nearest;
use corun_scenario::reader::Reader;
use corun_scenario::tree::{Node, Value};
use std::collections::BTreeMap;

/// Reads the formulas of one check.
pub struct Formulas<'r, 'a> {
    table: &'r Reader<'a>,
    claim: &'r Said,
    defaults: Defaults,
    names: Vec<String>,
    /// Every measured value so far, by its text.
    pub references: BTreeMap<String, Reference>,
}

impl<'r, 'a> Formulas<'r, 'a> {
    /// For the check of `claim`.
    pub fn new(table: &'r Reader<'a>, claim: &'r Said, defaults: Defaults) -> Self {
        Self {
            table,
            claim,
            defaults,
            names: claim.numbers().into_keys().collect(),
            references: BTreeMap::new(),
        }
    }

    /// From here on there is this name.
    pub fn define(&mut self, name: &str, node: &Node) {
        let bare = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let keyword = ["and", "or", "not", "paper"].contains(&name);
        let fine = name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(bare);
        if keyword || !fine {
            let expected = "a name of letters, digits and '_' other than and, or, not, paper";
            self.refuse(node, &format!("let: found {name:?}, expected {expected}"));
        }
        self.names.push(name.to_string());
    }

    /// Says what is wrong at a value.
    fn refuse(&self, node: &Node, message: &str) {
        self.table.problem_at(&node.place, message);
    }

    /// The number that a value says; `key` is for messages.
    pub fn number(&mut self, key: &str, node: &Node) -> Option<Number> {
        let text = self.text(key, node)?;
        let parsed = Number::parse(&text);
        self.checked(key, node, &text, parsed, |number, see| number.visit(see))
    }

    /// The paper's number for `name`; `node` says ours.
    pub fn of_the_paper(&mut self, key: &str, name: &str, node: &Node) -> Option<Number> {
        let said = match name {
            "" => "paper".to_string(),
            name => format!("paper.{name}"),
        };
        if self.claim.numbers().contains_key(&said) {
            return Some(Number::Name(said));
        }
        let numbers: Vec<String> = self.claim.numbers().into_keys().collect();
        let known = match &numbers[..] {
            [] => "the claim has no number".to_string(),
            known => format!("the claim has {}", known.join(", ")),
        };
        self.refuse(
            node,
            &format!("{key}: there is no {said}: {known}; expected paper = a formula beside ours"),
        );
        None
    }

    /// The conditions of the key, each with its text.
    pub fn conditions(&mut self, key: &'static str) -> Vec<(String, Condition)> {
        let Some(node) = self.table.find(key) else {
            return Vec::new();
        };
        let Value::List(list) = &node.value else {
            self.refuse(
                node,
                &format!(
                    "{key}: found {}, expected a list of conditions such as [\"[balance] < [cfs]\"]",
                    node.value.show()
                ),
            );
            return Vec::new();
        };
        let mut all = Vec::new();
        for node in list {
            let Some(text) = self.text(key, node) else {
                continue;
            };
            let parsed = Condition::parse(&text);
            let condition = self.checked(key, node, &text, parsed, |it, see| it.visit(see));
            all.extend(condition.map(|condition| (text, condition)));
        }
        all
    }

    fn text(&self, key: &str, node: &Node) -> Option<String> {
        match &node.value {
            Value::Text(text) => Some(text.clone()),
            Value::Whole(number) => Some(number.to_string()),
            Value::Other(text) => Some(text.clone()),
            other => {
                let message = format!("{key}: found {}, expected a formula", other.show());
                self.refuse(node, &message);
                None
            }
        }
    }

    fn checked<T>(
        &mut self,
        key: &str,
        node: &Node,
        text: &str,
        parsed: Result<T, String>,
        visit: impl Fn(&T, &mut dyn FnMut(&Number)),
    ) -> Option<T> {
        let mut wrong = Vec::new();
        let formula = match parsed {
            Ok(formula) => {
                visit(&formula, &mut |number| {
                    wrong.extend(self.note(number).err())
                });
                Some(formula)
            }
            Err(message) => {
                wrong.push(message);
                None
            }
        };
        for message in &wrong {
            self.refuse(node, &format!("{key}: formula {text:?}: {message}"));
        }
        formula.filter(|_| wrong.is_empty())
    }

    /// Remembers a measured value; a name must be known.
    fn note(&mut self, number: &Number) -> Result<(), String> {
        match number {
            Number::Measured(text) => {
                let reference = Reference::parse(text, &self.defaults)?;
                self.references.insert(text.clone(), reference);
            }
            Number::Name(name) if !self.names.contains(name) => {
                let known: Vec<&str> = self.names.iter().map(String::as_str).collect();
                return Err(format!(
                    "unknown name {name:?}, {}",
                    or_nearest(name, &known)
                ));
            }
            _ => {}
        }
        Ok(())
    }
}
