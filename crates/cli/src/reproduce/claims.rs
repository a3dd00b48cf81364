// SPDX-License-Identifier: GPL-2.0-only
//! Reads `claims.toml`: what the papers say.

use super::library::Library;
use crate::failure::Invalid;
use corun_report::claims::{Figure, Kind};
use corun_scenario::reader::{Collected, Reader};
use corun_scenario::tree::{self, Entry, Value};
use corun_scenario::{Problems, nearest, or_nearest};
use std::collections::BTreeMap;

/// A claim as written in the file.
pub struct Said {
    /// Its name.
    pub id: String,
    /// The system that it is about.
    pub system: String,
    /// Where in which paper.
    pub source: String,
    /// What kind of claim it is.
    pub kind: Kind,
    /// In which setting.
    pub setting: String,
    /// What was measured.
    pub metric: String,
    /// The value.
    pub value: Figure,
    /// Which way it goes.
    pub direction: String,
}

impl Said {
    /// Its numbers, by the names that formulas have for them: `paper` or `paper.KEY`.
    pub fn numbers(&self) -> BTreeMap<String, f64> {
        let mut all = BTreeMap::new();
        match &self.value {
            Figure::Number(value) => _ = all.insert("paper".to_string(), *value),
            Figure::Text(_) => {}
            Figure::Several(values) => {
                let numbers = values.iter().filter_map(|(name, value)| match value {
                    Figure::Number(number) => Some((format!("paper.{name}"), *number)),
                    _ => None,
                });
                all.extend(numbers);
            }
        }
        all
    }
}

/// All claims in order.
///
/// # Errors
/// [`Invalid`] if there is no such file, or everything that is wrong with it.
pub fn read(library: &Library) -> anyhow::Result<Vec<Said>> {
    let file = library
        .get("claims.toml")
        .ok_or_else(|| Invalid::error("there is no claims.toml among the experiments"))?;
    parse(&file.name, &file.text).map_err(Invalid::error)
}

fn parse(name: &str, text: &str) -> Result<Vec<Said>, Problems> {
    let document = tree::parse(name, text)?;
    let problems = Collected::default();
    let top = Reader::top(&document, name, &problems);
    let mut all: Vec<Said> = Vec::new();
    for table in top.tables("claim").unwrap_or_default() {
        if let Some(said) = claim(&table) {
            if all.iter().any(|other| other.id == said.id) {
                table.problem("id", format!("there are two claims {:?}", said.id));
            }
            all.push(said);
        }
        table.finish();
    }
    top.finish();
    problems.into_result()?;
    Ok(all)
}

fn claim(table: &Reader<'_>) -> Option<Said> {
    let text = |key: &'static str| table.required(key, "text").map(|text| text.value);
    let all = [
        "id",
        "system",
        "source",
        "kind",
        "setting",
        "metric",
        "baseline",
        "direction",
        "notes",
    ];
    let [id, system, source, kind, setting, metric, _, direction, _] = all.map(text);
    let kind = kind.and_then(|name| {
        let found = Kind::NAMES.into_iter().find(|(known, _)| *known == name);
        if found.is_none() {
            let hint = or_nearest(&name, &Kind::NAMES.map(|(name, _)| name));
            table.problem("kind", format!("found {name:?}, {hint}"));
        }
        found.map(|(_, kind)| kind)
    });
    let value = match table.find("value") {
        Some(node) => figure(&node.value),
        None => {
            table.missing("value", "a number, a text, or a table of them");
            None
        }
    };
    if table.has("value") && value.is_none() {
        table.problem("value", "expected a number, a text, or a table of them");
    }
    Some(Said {
        id: id?,
        system: system?,
        source: source?,
        kind: kind?,
        setting: setting?,
        metric: metric?,
        value: value?,
        direction: direction?,
    })
}

fn figure(value: &Value) -> Option<Figure> {
    match value {
        Value::Text(text) => Some(Figure::Text(text.clone())),
        Value::Whole(number) => Some(Figure::Number(*number as f64)),
        // Values that the tree has no type for, fractions among them.
        Value::Other(text) => text.parse().ok().map(Figure::Number),
        Value::Flag(flag) => Some(Figure::Text(if *flag { "yes" } else { "no" }.to_string())),
        Value::List(_) => None,
        Value::Table(table) => {
            let one = |Entry { key, node, .. }: &Entry| Some((key.clone(), figure(&node.value)?));
            let all: Option<BTreeMap<_, _>> = table.iter().map(one).collect();
            all.map(Figure::Several)
        }
    }
}

/// The claims that the command line selects, each by its name or a pattern with `*`; all if it selects none.
///
/// # Errors
/// [`Invalid`] if one selects nothing.
pub fn select<'a>(all: &'a [Said], wanted: &[String]) -> anyhow::Result<Vec<&'a Said>> {
    let ids = || all.iter().map(|claim| claim.id.as_str());
    for pattern in wanted {
        if !ids().any(|id| matches(pattern, id)) {
            let group = format!("{}.*", pattern.trim_end_matches(['.', '*']));
            let guess = match ids().any(|id| matches(&group, id)) {
                true => Some(group.as_str()),
                false => nearest(pattern, ids()),
            };
            let guess = guess.map_or(String::new(), |guess| format!(", did you mean {guess:?}?"));
            return Err(Invalid::error(format!(
                "CLAIM {pattern:?}: there is no such claim{guess} (known are those of \
                 experiments/claims.toml; 'balance.*' is all that begin so)"
            )));
        }
    }
    let is_wanted = |claim: &&Said| {
        let mut wanted = wanted.iter();
        wanted.len() == 0 || wanted.any(|pattern| matches(pattern, &claim.id))
    };
    Ok(all.iter().filter(is_wanted).collect())
}

/// Does `text` match `pattern`, in which each `*` stands for anything?
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut text) = text.strip_prefix(head) else {
        return false;
    };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let tail = parts.pop().unwrap_or_default();
    for part in parts {
        match text.find(part) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
    }
    text.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_claims_that_are_built_in_can_be_read() {
        let all = read(&Library::built_in()).unwrap();
        assert!(all.len() > 280);
        let table = all.iter().find(|claim| claim.id == "balance.table1.2vm");
        assert_eq!(table.unwrap().numbers()["paper.two"], 31.903);
        let names = ["balance.table1.*", "aql.boost"].map(String::from);
        assert_eq!(select(&all, &names).unwrap().len(), 4);
    }

    #[test]
    fn what_is_wrong_with_claims_is_told_with_its_line() {
        let claim = "[[claim]]\nid = \"a\"\nsystem = \"s\"\nsource = \"p\"\nkind = \"exakt\"\n\
            setting = \"\"\nmetric = \"\"\nbaseline = \"\"\nvalue = [1]\ndirection = \"\"\nnotes = 1";
        let problems = parse("c.toml", claim).err().unwrap().to_string();
        let expected = [
            "c.toml:5: claim.kind: found \"exakt\", did you mean \"exact\"? Accepted are exact, \
             analytic, quantitative, qualitative",
            "c.toml:9: claim.value: expected a number, a text, or a table of them",
            "c.toml:11: claim.notes: found 1, expected text in quotes",
        ];
        assert_eq!(problems.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn stars_stand_for_anything() {
        assert!(matches("a*c", "abc") && matches("a*", "a") && matches("*", ""));
        assert!(matches("a*b*c", "a1b2b3c") && matches("*exp*", "balance.exp1"));
        assert!(!matches("a*a", "a") && !matches("a*b*b", "ab") && !matches("ab", "abc"));
    }
}
