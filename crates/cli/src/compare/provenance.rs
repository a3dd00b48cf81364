// SPDX-License-Identifier: GPL-2.0-only
//! What a report says about where its numbers are from.

use super::runs::RunArgs;
use corun_model::time;
use corun_scenario::Case;
use std::path::Path;

/// The command that was given, for somebody who wants to give it again elsewhere: directories of
/// this machine are left out.
fn command(args: impl IntoIterator<Item = String>) -> String {
    let words = args
        .into_iter()
        .skip(1)
        .map(|word| quoted(&portable(&word)));
    std::iter::once("corun".to_string())
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The arguments of this command. Names of files need not be UTF-8; parts that are not UTF-8 cannot be shown.
fn arguments() -> impl Iterator<Item = String> {
    std::env::args_os().map(|arg| arg.to_string_lossy().into_owned())
}

/// This command.
pub fn this() -> String {
    command(arguments())
}

/// Options for what is written besides a command's results, each with a value.
const WRITES: [&str; 6] = [
    "--report",
    "--csv",
    "--trace",
    "--trace-from",
    "--trace-for",
    "--events",
];

/// The same command for other programs: with the same numbers, as JSON, and without its other files.
fn as_json(args: impl IntoIterator<Item = String>) -> String {
    let mut args = args.into_iter();
    let mut words = Vec::new();
    while let Some(word) = args.next() {
        let (option, value) = word
            .split_once('=')
            .map_or((word.as_str(), None), |(option, value)| {
                (option, Some(value))
            });
        if WRITES.contains(&option) {
            if value.is_none() {
                args.next();
            }
        } else if option != "--json" {
            words.push(word);
        }
    }
    // After `--` it would be a file's name.
    let end = words.iter().position(|word| word == "--");
    words.insert(end.unwrap_or(words.len()), "--json".to_string());
    command(words)
}

/// Commands to go on with after a comparison of the file `input`, and what they do; `selection` selects one of its
/// runs. What the command line sets is set there, too.
pub fn next(input: &Path, args: &RunArgs, selection: &str) -> Vec<(String, String)> {
    let length = args.duration.iter();
    let length: String = length
        .map(|length| format!(" --duration {}", quoted(length)))
        .collect();
    let one = format!("{length} {selection} --trace out.perfetto-trace");
    vec![
        (
            "One run as a timeline for ui.perfetto.dev, with guests and locks".to_string(),
            again("compare", input, &args.sets, &one),
        ),
        same_numbers(),
    ]
}

/// How other programs get the same numbers as this command shows.
pub fn same_numbers() -> (String, String) {
    (
        "The same numbers for other programs".to_string(),
        as_json(arguments()),
    )
}

/// A command on the file `input` with the same keys set, followed by `rest`.
pub fn again(command: &str, input: &Path, sets: &[String], rest: &str) -> String {
    let input = quoted(&file_name(&input.to_string_lossy()));
    let sets = sets.iter().map(|set| format!(" --set {}", quoted(set)));
    format!("corun {command} {input}{}{rest}", sets.collect::<String>())
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

/// A word, quoted so that shells take it for one.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// The settings that the scenario's text may not show, by name; stated once if all cases agree.
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
    fn what_was_set_is_set_again() {
        let args = RunArgs {
            sets: vec!["vm.web.count=3".to_string()],
            duration: Some("2s".to_string()),
            ..RunArgs::default()
        };
        let next = next(
            Path::new("/home/u/a b.toml"),
            &args,
            "--policies cfs --seed 1",
        );
        let command = "corun compare 'a b.toml' --set vm.web.count=3 --duration 2s --policies cfs \
            --seed 1 --trace out.perfetto-trace";
        assert_eq!(next[0].1, command);
    }

    #[test]
    fn the_same_numbers_as_json() {
        let same = |args: &[&str]| as_json(args.iter().map(|word| word.to_string()));
        let given = "corun compare tr.toml --policies fair,cfs --seeds 3,1 --case c --set a=b --report \
            r.html --csv=x.csv --trace t --trace-from=2s -q";
        let given: Vec<&str> = given.split_whitespace().collect();
        let expected =
            "corun compare tr.toml --policies fair,cfs --seeds 3,1 --case c --set a=b -q --json";
        assert_eq!(same(&given), expected);
        let given = ["corun", "advise", "--json", "--starts", "5", "--", "x"];
        assert_eq!(
            same(&given),
            "corun advise --starts 5 --json -- x",
            "said once"
        );
    }

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
