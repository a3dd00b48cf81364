// SPDX-License-Identifier: GPL-2.0-only
//! The formulas of one check, or of a table's row, with the names that they may use.

use super::{Over, Terms};
use crate::reproduce::formula::{Condition, Known, Lists, Names, Number, Template};
use crate::reproduce::measure::{Defaults, Reference};
use corun_model::Value as Default;
use corun_scenario::reader::Reader;
use corun_scenario::tree::{Entry, Node, Value};
use corun_scenario::{Located, nearest, or_nearest};
use std::collections::{BTreeMap, BTreeSet};

/// The beginning of a parameter's text, where a measured value has its policy.
const PARAMETER: &str = "parameter:";

/// Words of formulas that mean something other than a name.
const KEYWORDS: [&str; 6] = ["and", "or", "not", "paper", "for", "in"];

/// The default of a parameter of the models: ns, bytes or a number.
fn parameter(key: &str) -> Result<f64, String> {
    let all = corun_sim::parameters();
    let Some(found) = all.iter().find(|parameter| parameter.key == key) else {
        let guess = nearest(key, all.iter().map(|parameter| parameter.key));
        let guess = guess.map_or(String::new(), |guess| format!(", did you mean {guess:?}?"));
        return Err(format!("unknown parameter {key:?}{guess}"));
    };
    match &found.value {
        Default::Time(ns) => Ok(*ns as f64),
        Default::Bytes(bytes) => Ok(*bytes as f64),
        Default::Number(number, _) => Ok(*number),
        other => Err(format!("parameter {key:?} is {other}: expected a number")),
    }
}

/// Reads the formulas of one check or row.
pub struct Formulas<'r, 'a> {
    table: &'r Reader<'a>,
    paper: Names,
    defaults: Defaults,
    lists: &'r Lists,
    /// Definitions, in the order in which they were written.
    lets: Vec<(String, Number)>,
    names: Vec<String>,
    /// Those of them on which no run has an influence, with their values.
    fixed: Names,
    /// What replaces names: each name has its text.
    pub given: Vec<(String, String)>,
    /// The names that are used.
    pub named: BTreeSet<String>,
    /// Every measured value so far, by its text.
    pub references: BTreeMap<String, Reference>,
    /// Every parameter of the models so far, by its text.
    pub constants: BTreeMap<String, f64>,
}

impl<'r, 'a> Formulas<'r, 'a> {
    /// Reads beside these numbers of a paper, in a file with these lists.
    pub fn new(table: &'r Reader<'a>, paper: Names, defaults: Defaults, lists: &'r Lists) -> Self {
        Self {
            table,
            names: paper.keys().cloned().collect(),
            fixed: paper.clone(),
            paper,
            defaults,
            lists,
            lets: Vec::new(),
            given: Vec::new(),
            named: BTreeSet::new(),
            references: BTreeMap::new(),
            constants: BTreeMap::new(),
        }
    }

    /// The names so far.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// From here on there are these names.
    pub fn define_all(&mut self, said: &[&Entry]) {
        for Entry { key, node, .. } in said {
            let number = self.number(key, node);
            self.define(key, number.as_ref(), node);
            self.lets.extend(number.map(|number| (key.clone(), number)));
        }
    }

    /// From here on this name exists, with this number if that could be read.
    fn define(&mut self, name: &str, number: Option<&Number>, node: &Node) {
        let bare = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let keyword = KEYWORDS.contains(&name);
        let fine = name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(bare);
        if keyword || !fine {
            let others = KEYWORDS.join(", ");
            let expected = format!("a name of letters, digits and '_' other than {others}");
            self.refuse(node, &format!("let: found {name:?}, expected {expected}"));
        }
        self.names.push(name.to_string());
        if let Some(value) = number.and_then(|number| self.fixed(number)) {
            self.fixed.insert(name.to_string(), value);
        }
    }

    /// Everything that the formulas are made of; `key` is for problems that show only after the runs.
    pub fn terms(self, key: String, over: Over) -> Terms {
        Terms {
            paper: self.paper,
            lets: self.lets,
            references: self.references,
            constants: self.constants,
            over,
            place: Located {
                value: (),
                key,
                place: self.table.place().clone(),
            },
        }
    }

    /// The number, if no run has an influence on it.
    fn fixed(&self, number: &Number) -> Option<f64> {
        let mut is_fixed = true;
        number.visit(&mut |part| match part {
            Number::Measured(text) => is_fixed &= self.constants.contains_key(text),
            Number::Name(name) => is_fixed &= self.fixed.contains_key(name),
            _ => {}
        });
        is_fixed.then(|| self.evaluated(number))
    }

    fn evaluated(&self, number: &Number) -> f64 {
        number.value(&Known {
            names: &self.fixed,
            measured: &|text| self.constants.get(text).copied().unwrap_or(f64::NAN),
            overall: &|number| self.evaluated(number),
        })
    }

    /// The number that a value says for ours, as [`Self::number`]: one that no run changes must be a number.
    pub fn ours(&mut self, key: &str, node: &Node) -> Option<Number> {
        let number = self.number(key, node)?;
        self.finite(key, node, self.fixed(&number))?;
        Some(number)
    }

    /// The same for the paper's, which is never measured.
    pub fn papers(&mut self, key: &str, node: &Node) -> Option<Number> {
        let number = self.number(key, node)?;
        let value = self.fixed(&number);
        if value.is_none() {
            let expected = "expected a formula of the paper's numbers";
            self.refuse(
                node,
                &format!("{key}: found what is measured here, {expected}"),
            );
        }
        self.finite(key, node, Some(value?))?;
        Some(number)
    }

    fn finite(&self, key: &str, node: &Node, value: Option<f64>) -> Option<()> {
        let Some(value) = value.filter(|value| !value.is_finite()) else {
            return Some(());
        };
        let found = if value.is_nan() {
            "what is no number"
        } else {
            "infinity"
        };
        self.refuse(
            node,
            &format!("{key}: its formula comes to {found}, expected a number"),
        );
        None
    }

    /// Reports what is wrong at a value.
    fn refuse(&self, node: &Node, message: &str) {
        self.table.problem_at(&node.place, message);
    }

    /// The number that a value gives; `key` is for messages.
    pub fn number(&mut self, key: &str, node: &Node) -> Option<Number> {
        let text = self.text(key, node)?;
        let parsed = Number::parse(&text, self.lists).and_then(|number| {
            let mut given = self.given.iter();
            given.try_fold(number, |number, (name, item)| number.with(name, item))
        });
        self.checked(key, node, &text, parsed, |number, see| number.visit(see))
    }

    /// The paper's number for `name`; `node` says ours.
    pub fn of_the_paper(&mut self, key: &str, name: &str, node: &Node) -> Option<Number> {
        let said = match name {
            "" => "paper".to_string(),
            name => format!("paper.{name}"),
        };
        if self.paper.contains_key(&said) {
            self.named.insert(said.clone());
            return Some(Number::Name(said));
        }
        let numbers: Vec<&str> = self.paper.keys().map(String::as_str).collect();
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

    /// The conditions of the key, each with its name or its text.
    pub fn conditions(&mut self, key: &'static str) -> Vec<(String, Condition)> {
        let Some(node) = self.table.find(key) else {
            return Vec::new();
        };
        let said: Vec<(Option<&str>, &Node)> = match &node.value {
            Value::List(list) => list.iter().map(|node| (None, node)).collect(),
            Value::Table(named) => {
                let named = named.iter();
                named.map(|it| (Some(it.key.as_str()), &it.node)).collect()
            }
            other => {
                let found = other.show();
                let expected = "conditions such as [\"[balance] < [cfs]\"], or a table of them";
                self.refuse(node, &format!("{key}: found {found}, expected {expected}"));
                return Vec::new();
            }
        };
        said.into_iter()
            .filter_map(|(name, node)| self.condition(key, name, node))
            .collect()
    }

    fn condition(
        &mut self,
        key: &str,
        name: Option<&str>,
        node: &Node,
    ) -> Option<(String, Condition)> {
        let text = self.text(key, node)?;
        let parsed = Condition::parse(&text, self.lists);
        let condition = self.checked(key, node, &text, parsed, |it, see| it.visit(see))?;
        Some((name.map_or(text, str::to_string), condition))
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
            let text = excerpt(text);
            self.refuse(node, &format!("{key}: formula {text:?}: {message}"));
        }
        formula.filter(|_| wrong.is_empty())
    }

    /// Remembers a measured value; a name must be known.
    fn note(&mut self, number: &Number) -> Result<(), String> {
        match number {
            Number::Measured(text) if text.starts_with(PARAMETER) => {
                let value = parameter(text[PARAMETER.len()..].trim())?;
                self.constants.insert(text.clone(), value);
            }
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
            Number::Name(name) => _ = self.named.insert(name.clone()),
            _ => {}
        }
        Ok(())
    }
}

/// The beginning of a formula that would fill the screen.
fn excerpt(text: &str) -> String {
    const LONGEST: usize = 200;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text.to_owned(),
    }
}
