// SPDX-License-Identifier: GPL-2.0-only
//! What a report says about where its numbers are from.

use corun_model::time;
use corun_scenario::Case;
use std::path::Path;

/// The command that was given, for somebody who wants to give it again elsewhere: directories of
/// this machine are left out.
pub fn command(args: impl IntoIterator<Item = String>) -> String {
    let words = args
        .into_iter()
        .skip(1)
        .map(|word| quoted(&portable(&word)));
    std::iter::once("corun".to_string())
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}

fn portable(word: &str) -> String {
    match word.split_once('=') {
        Some((option, path)) if option.starts_with("--") => format!("{option}={}", file_name(path)),
        _ => file_name(word),
    }
}

fn file_name(word: &str) -> String {
    let path = Path::new(word);
    match path.file_name() {
        Some(name) if path.is_absolute() => name.to_string_lossy().into_owned(),
        _ => word.to_string(),
    }
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// The settings that the scenario's text may not show, by name; said once if all cases agree.
pub fn facts(cases: &[Case]) -> Vec<(String, String)> {
    let host = |case: &Case| {
        let skew = if case.host.tick_skew {
            ", skewed ticks"
        } else {
            ""
        };
        format!("{}, {} Hz{skew}", case.host.topology, case.host.hz)
    };
    let length = |case: &Case| {
        let run = &case.run;
        format!(
            "{} after {} of warm-up",
            time::show(run.duration),
            time::show(run.warm_up)
        )
    };
    let seeds = |case: &Case| {
        let seeds: Vec<String> = case.run.seeds.iter().map(u64::to_string).collect();
        seeds.join(", ")
    };
    let mut facts = fact("Host", cases, host);
    facts.extend(fact("Measured", cases, length));
    facts.extend(fact("Seeds", cases, seeds));
    facts
}

fn fact(name: &str, cases: &[Case], of: impl Fn(&Case) -> String) -> Vec<(String, String)> {
    let mut values = cases.iter().map(|case| (&case.name, of(case)));
    let Some((_, first)) = values.next() else {
        return Vec::new();
    };
    if values.all(|(_, value)| value == first) {
        return vec![(name.to_string(), first)];
    }
    let each = cases
        .iter()
        .map(|case| (format!("{name}, {}", case.name), of(case)));
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_without_this_machine() {
        let args = [
            "/opt/x/corun",
            "compare",
            "/home/u/a b.toml",
            "--report=/tmp/r.html",
            "--case",
            "2 VMs",
            "x/y.toml",
        ];
        assert_eq!(
            command(args.map(String::from)),
            "corun compare 'a b.toml' --report=r.html --case '2 VMs' x/y.toml"
        );
    }
}
