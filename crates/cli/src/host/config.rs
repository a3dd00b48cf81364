// SPDX-License-Identifier: GPL-2.0-only
//! `corun host --config FILE`: its options, written down.
//!
//! Problem: options of a service belong in a file that can be read, checked and rolled out, and a slip in
//! it must not become another policy than was meant.
//!
//! How: a key is an option's long name, and what it accepts comes from the command line's own description, so there is
//! no option without a key, and none that means something else there. Values are checked one by one, each problem with
//! its line; then the options that the command line has not given are added to it, and all of them are parsed together.
//! [set] goes with the file's policy, key by key: where the command line names another policy, people are told that it
//! is left out. Whoever can change this file decides who gets the host's pCPUs: one that belongs to somebody else, or
//! that anybody may write, is refused.

use super::Args;
use super::said::Said;
use crate::compare::input;
use crate::compare::schedulers::known_host_policy;
use crate::failure::Invalid;
use crate::output;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use corun_policies::Settings;
use corun_scenario::tree::{self, Entry, Node, Table, Value};
use corun_scenario::{Place, Problem, Problems, or_nearest};
use corun_system::files;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// More than all options take, bytes.
const LONGEST: u64 = 64 << 10;

/// The table of the policy's parameters: `[set]` with a key for each.
const SET: &str = "set";

/// The options with those that `file` adds to what the command line said.
///
/// # Errors
/// [`Invalid`] with everything that is wrong with the file.
pub(super) fn read(file: &Path, said: &ArgMatches) -> anyhow::Result<(Args, Said)> {
    let document = document_of(file)?;
    let policy = said_policy(said).unwrap_or(super::DEFAULT_POLICY);
    let words = words_of(&document, policy);
    let mut words =
        words.map_err(|problems| Invalid::error(with_excluded(problems, &document, said)))?;
    for note in leave_out_parameters(&mut words, said) {
        output::note(&format!("corun: {note}"));
    }
    together(file, words, said)
}

/// The options that say where a run writes down what it has changed, whatever else is wrong with the file.
///
/// # Errors
/// [`Invalid`] if they cannot be found out.
pub(super) fn read_places(file: &Path, said: &ArgMatches) -> anyhow::Result<Args> {
    let document = document_of(file)?;
    let places = |entry: &&Entry| ["state", "state-dir"].contains(&entry.key.as_str());
    let words = each(document.iter().filter(places)).map_err(Invalid::error)?;
    together(file, words, said).map(|(args, _)| args)
}

fn document_of(file: &Path) -> anyhow::Result<Table> {
    let name = file.display().to_string();
    let bytes = trusted(file).map_err(|why| Invalid::error(format!("--config {name}: {why}")))?;
    let text = input::in_utf8(&name, bytes)
        .map_err(|why| Invalid::error(format!("--config {why} with options of `corun host`")))?;
    tree::parse(&name, &text).map_err(Invalid::error)
}

/// The policy that the command line names.
fn said_policy(said: &ArgMatches) -> Option<&str> {
    let named = said.value_source("policy") == Some(ValueSource::CommandLine);
    let policy = said.get_one::<String>("policy").filter(|_| named);
    policy.map(String::as_str)
}

/// The file's parameters are its policy's: another policy may use a parameter of that name for something else. Returns
/// what people should know.
fn leave_out_parameters(words: &mut Vec<Word>, said: &ArgMatches) -> Vec<String> {
    let of_file = words.iter().find(|word| word.long == "policy");
    let of_file = of_file.and_then(|word| word.value.clone());
    let (Some(theirs), Some(of_file)) = (said_policy(said), of_file) else {
        return Vec::new();
    };
    if theirs == of_file {
        return Vec::new();
    }
    let is_parameter = |word: &mut Word| word.long == SET;
    let note = |word: Word| {
        let (key, place) = (word.parameter().unwrap_or_default(), &word.place);
        format!(
            "{place}: {SET}.{key}: is for {of_file}, the file's policy; with --policy {theirs} it is left out"
        )
    };
    words.extract_if(.., is_parameter).map(note).collect()
}

/// The same problems, and those of lines that do not go with the rest: all are reported at once.
fn with_excluded(mut problems: Problems, document: &Table, said: &ArgMatches) -> Problems {
    let value = |key: &str| document.get(key).map(|node| &node.value);
    let observe = said.get_flag("observe") || value("observe") == Some(&Value::Flag(true));
    let fair = match said.value_source("backend") {
        Some(ValueSource::CommandLine) => said.get_one("backend") == Some(&super::Backend::Fair),
        _ => matches!(value("backend"), Some(Value::Text(name)) if name == "fair"),
    };
    for (key, why) in super::excluded(observe, fair, |key| document.get(key).is_some()) {
        if let Some(entry) = document.iter().find(|entry| entry.key == key) {
            problems.push(problem(&entry.place, key, why));
        }
    }
    problems
}

/// What both give, the command line before the file.
fn together(file: &Path, words: Vec<Word>, said: &ArgMatches) -> anyhow::Result<(Args, Said)> {
    let command = options();
    let ours: Vec<&Arg> = (command.get_arguments())
        .filter(|arg| said_by(said, arg))
        .collect();
    let is_ours = |word: &Word| match word.long.as_str() {
        SET => word.parameter().is_some_and(|key| sets(said, key)),
        long => ours.iter().any(|arg| arg.get_long() == Some(long)),
    };
    let mut all: Vec<OsString> = Vec::new();
    let mut lines = BTreeMap::new();
    for word in words.into_iter().filter(|word| !is_ours(word)) {
        all.push(word.written().into());
        lines.entry(word.long).or_insert(word.place);
    }
    for arg in &ours {
        all.extend(as_written(arg, said));
        lines.remove(arg.get_long().unwrap_or_default());
    }
    let invalid =
        |error: &clap::Error| Invalid::error(format!("{}: {}", file.display(), in_short(error)));
    let matches = command.clone().try_get_matches_from(all);
    let matches = matches.map_err(|error| invalid(&error))?;
    let args = Args::from_arg_matches(&matches).map_err(|error| invalid(&error))?;
    Ok((args, Said::with_lines(matches, lines)))
}

/// Does the command line set this parameter?
fn sets(said: &ArgMatches, parameter: &str) -> bool {
    let mut all = said.get_many::<(String, String)>(SET).into_iter().flatten();
    all.any(|(key, _)| key == parameter)
}

/// The options of `corun host`, without the rest of a command line.
pub(super) fn options() -> Command {
    <Args as clap::Args>::augment_args(Command::new("corun host"))
        .no_binary_name(true)
        .disable_help_flag(true)
}

/// Did the command line say it?
fn said_by(said: &ArgMatches, arg: &Arg) -> bool {
    said.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine)
}

/// An option as given on the command line.
fn as_written(arg: &Arg, said: &ArgMatches) -> Vec<OsString> {
    let long = arg.get_long().unwrap_or_default();
    if is_flag(arg) {
        return vec![format!("--{long}").into()];
    }
    let values = said.get_raw(arg.get_id().as_str()).into_iter().flatten();
    let word = |value: &std::ffi::OsStr| {
        let mut word = OsString::from(format!("--{long}="));
        word.push(value);
        word
    };
    values.map(word).collect()
}

fn is_flag(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

/// The content of a file, if nobody else could have written it.
fn trusted(path: &Path) -> Result<Vec<u8>, String> {
    let file = files::open_at_once(path).map_err(|cause| cause.to_string())?;
    let about = file.metadata().map_err(|cause| cause.to_string())?;
    if !about.is_file() {
        return Err("is no file, expected TOML with options of `corun host`".to_string());
    }
    let own = fs::metadata("/proc/self").map_or(0, |this| this.uid());
    if ![0, own].contains(&about.uid()) {
        let owner = about.uid();
        return Err(format!(
            "belongs to user {owner}, expected root or the user who runs this ({own}): chown root"
        ));
    }
    if about.mode() & 0o002 != 0 {
        let mode = about.mode() & 0o7777;
        return Err(format!("anybody may write it (mode {mode:04o}): chmod o-w"));
    }
    let mut bytes = Vec::new();
    let read = file.take(LONGEST + 1).read_to_end(&mut bytes);
    read.map_err(|cause| cause.to_string())?;
    match bytes.len() as u64 <= LONGEST {
        true => Ok(bytes),
        false => Err(format!(
            "has more than {LONGEST} bytes, expected TOML with options of `corun host`"
        )),
    }
}

/// An option as given in the file.
struct Word {
    /// Its long name.
    long: String,
    /// Its value; a flag has none.
    value: Option<String>,
    /// Where it is.
    place: Place,
}

impl Word {
    /// As it would be on a command line.
    fn written(&self) -> String {
        match &self.value {
            None => format!("--{}", self.long),
            Some(value) => format!("--{}={value}", self.long),
        }
    }

    /// The name of the policy's parameter, if it is one.
    fn parameter(&self) -> Option<&str> {
        let (key, _) = self.value.as_deref()?.split_once('=')?;
        Some(key)
    }
}

/// The options that a document names, all values checked; `policy` is in force unless it names one.
fn words_of(document: &Table, policy: &str) -> Result<Vec<Word>, Problems> {
    let (words, mut problems) = match each(document.iter()) {
        Ok(words) => (words, Problems::default()),
        Err(problems) => (Vec::new(), problems),
    };
    for problem in policy_problems(document, policy) {
        problems.push(problem);
    }
    problems.or_ok(words)
}

/// Turns these entries into options.
fn each<'a>(entries: impl Iterator<Item = &'a Entry>) -> Result<Vec<Word>, Problems> {
    let command = options();
    let mut problems = Problems::default();
    let mut words = Vec::new();
    for entry in entries {
        match words_of_entry(&command, entry) {
            Ok(more) => words.extend(more),
            Err(problem) => problems.push(problem),
        }
    }
    problems.or_ok(words)
}

fn problem(place: &Place, key: &str, message: String) -> Problem {
    Problem {
        place: place.clone(),
        key: key.to_string(),
        message,
    }
}

/// The options that an entry is: several if it is a list or a table.
fn words_of_entry(command: &Command, entry: &Entry) -> Result<Vec<Word>, Problem> {
    let arg = option_of(command, entry)?;
    if let (true, Value::Flag(flag)) = (is_flag(arg), &entry.node.value) {
        let word = Word {
            long: entry.key.clone(),
            value: None,
            place: entry.place.clone(),
        };
        return Ok(flag.then_some(word).into_iter().collect());
    }
    let word = |(node, text): (&Node, String)| {
        let word = Word {
            long: entry.key.clone(),
            value: Some(text),
            place: node.place.clone(),
        };
        match command.clone().try_get_matches_from([word.written()]) {
            Ok(_) => Ok(word),
            Err(error) => Err(wrong(entry, node, &expected(&error))),
        }
    };
    texts_of(arg, entry)?.into_iter().map(word).collect()
}

/// The option that an entry's key names.
fn option_of<'a>(command: &'a Command, entry: &Entry) -> Result<&'a Arg, Problem> {
    // A file that names a file would be read twice, or not at all; with `restore` in it no run would begin.
    let known =
        |arg: &&Arg| (arg.get_long()).is_some_and(|long| !["config", "restore"].contains(&long));
    let mut options = command.get_arguments().filter(known);
    let named = options.find(|arg| arg.get_long() == Some(&entry.key));
    named.ok_or_else(|| {
        let keys = command.get_arguments().filter(known);
        let keys: Vec<&str> = keys.filter_map(Arg::get_long).collect();
        let message = format!("unknown key, {}", or_nearest(&entry.key, &keys));
        problem(&entry.place, &entry.key, message)
    })
}

/// The values of an entry that is no flag, as a command line would have them, each with its place.
fn texts_of<'a>(arg: &Arg, entry: &'a Entry) -> Result<Vec<(&'a Node, String)>, Problem> {
    let node = &entry.node;
    let wrong = |expected: &str| wrong(entry, node, expected);
    match &node.value {
        _ if is_flag(arg) => Err(wrong("true or false")),
        Value::Table(table) if entry.key == SET => assignments(table),
        _ if entry.key == SET => Err(wrong("a table such as [set] with slot = \"5ms\"")),
        // A template that renders no canary must not put the whole host under the policy.
        Value::List(list) if matches!(arg.get_action(), ArgAction::Append) => {
            if list.is_empty() {
                return Err(wrong("one at least, or no such key"));
            }
            let one = |node| Some((node, scalar(node)?));
            let all: Option<Vec<_>> = list.iter().map(one).collect();
            all.ok_or_else(|| wrong("a list of texts such as [\"web1\", \"db\"]"))
        }
        _ => {
            let text = scalar(node).ok_or_else(|| wrong("text in quotes, or a number"))?;
            Ok(vec![(node, text)])
        }
    }
}

/// That an entry, or this item of it, is something else than expected.
fn wrong(entry: &Entry, node: &Node, expected: &str) -> Problem {
    let found = node.value.show();
    let message = format!("found {found}, expected {expected}");
    problem(&node.place, &entry.key, message)
}

/// A value as it would be on a command line.
fn scalar(node: &Node) -> Option<String> {
    match &node.value {
        Value::Text(text) | Value::Other(text) => Some(text.clone()),
        Value::Whole(number) => Some(number.to_string()),
        Value::Flag(flag) => Some(flag.to_string()),
        Value::List(_) | Value::Table(_) => None,
    }
}

/// KEY=VALUE for each parameter.
fn assignments(table: &Table) -> Result<Vec<(&Node, String)>, Problem> {
    let one = |entry: &'_ Entry| -> Result<String, Problem> {
        let text = scalar(&entry.node).ok_or_else(|| {
            let key = format!("{SET}.{}", entry.key);
            let found = entry.node.value.show();
            problem(
                &entry.place,
                &key,
                format!("found {found}, expected text or a number"),
            )
        })?;
        Ok(format!("{}={text}", entry.key))
    };
    table
        .iter()
        .map(|entry| Ok((&entry.node, one(entry)?)))
        .collect()
}

/// Is there such a policy, and does it have these parameters? `in_force` is the policy if the file names none.
fn policy_problems(document: &Table, in_force: &str) -> Vec<Problem> {
    let policy = match document.get("policy") {
        Some(node) => match &node.value {
            Value::Text(name) => match known_host_policy(name) {
                Ok(policy) => policy,
                Err(message) => return vec![problem(&node.place, "policy", message)],
            },
            // Reported already.
            _ => return Vec::new(),
        },
        None => match known_host_policy(in_force) {
            Ok(policy) => policy,
            // Nothing in the file is wrong.
            Err(_) => return Vec::new(),
        },
    };
    let Some(Value::Table(set)) = document.get(SET).map(|node| &node.value) else {
        return Vec::new();
    };
    let mut settings = Settings::default();
    let wrong = |entry: &Entry| {
        let value = scalar(&entry.node)?;
        let error = settings.set(policy, &entry.key, &value).err()?;
        let key = format!("{SET}.{}", entry.key);
        let why = super::settings_refused(policy, &error);
        Some(problem(&entry.place, &key, why))
    };
    set.iter().filter_map(wrong).collect()
}

/// What clap accepts in place of what it refused.
fn expected(error: &clap::Error) -> String {
    if let Some(ContextValue::Strings(values)) = error.get(ContextKind::ValidValue)
        && !values.is_empty()
    {
        return format!("one of {}", values.join(", "));
    }
    let why = std::error::Error::source(error).map(ToString::to_string);
    let why = why.unwrap_or_else(|| match error.kind() {
        // The only way for a path to be wrong.
        ErrorKind::InvalidValue => "something that is not empty".to_string(),
        other => other.to_string(),
    });
    why.strip_prefix("expected ")
        .map_or(why.clone(), str::to_string)
}

/// The first paragraph of clap's message.
fn in_short(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = first.split_whitespace().collect();
    words.join(" ").trim_start_matches("error: ").to_string()
}

#[cfg(test)]
mod tests;
