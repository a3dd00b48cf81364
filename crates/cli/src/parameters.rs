// SPDX-License-Identifier: GPL-2.0-only
//! `corun parameters`: the numbers that the models stand on.

use crate::failure::Invalid;
use crate::output;
use corun_model::{Parameter, Value, nearest};
use corun_report::parameters;
use serde_json::{Value as Json, json};

/// List the models' parameters: default, source, and what was tried
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only those with this text in their key or meaning
    #[arg(value_name = "FILTER")]
    filter: Option<String>,

    /// Print one JSON array instead: key, meaning, default, unit, source, tried
    #[arg(long, conflicts_with = "markdown")]
    json: bool,

    /// Print the page docs/parameters.md instead
    #[arg(long)]
    markdown: bool,
}

const EXAMPLES: &str = "\
Examples:
  corun parameters guest
      what a guest's kernel is assumed to cost
  corun sensitivity experiments/example.toml --param host.costs.switch --range 1us..10us
      how results move with one of them

Exit codes: 0 done; 2 wrong usage, or no parameter fits FILTER.";

/// Runs the command.
///
/// # Errors
/// [`Invalid`] if nothing fits; anything else if nothing can be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut all = corun_sim::parameters();
    let keys: Vec<&str> = all.iter().map(|parameter| parameter.key).collect();
    if let Some(filter) = &args.filter {
        let filter = filter.to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&filter);
        all.retain(|parameter| has(parameter.key) || has(parameter.meaning));
        if all.is_empty() {
            let guess = near(&filter, &keys);
            let guess = guess.map_or(String::new(), |guess| format!("did you mean {guess:?}? "));
            return Err(Invalid::error(format!(
                "FILTER {filter:?}: no parameter has this in its key or meaning; {guess}\
                 `corun parameters` lists all"
            )));
        }
    }
    if args.json {
        return output::json(&in_json(&all));
    }
    output::print(&match args.markdown {
        true => parameters::markdown(&all),
        false => parameters::text(&all, output::width()),
    })
}

/// The key, the beginning of keys or the part of one that `filter` is nearest to.
fn near<'a>(filter: &str, keys: &[&'a str]) -> Option<&'a str> {
    let beginnings = |key: &&'a str| {
        let key = *key;
        let dots = key.match_indices('.').map(move |(at, _)| &key[..at]);
        dots.chain([key])
    };
    let parts = keys.iter().flat_map(|key| key.split('.'));
    nearest(filter, keys.iter().flat_map(beginnings).chain(parts))
}

/// Parameters as programs read them.
pub fn in_json(list: &[Parameter]) -> Vec<Json> {
    list.iter().map(one_in_json).collect()
}

fn one_in_json(parameter: &Parameter) -> Json {
    let (default, unit) = match &parameter.value {
        Value::Time(time) => (json!(time), "ns"),
        Value::Scaled(time) => (json!(time), "ns × (1 + log2(min(pCPUs, 8)))"),
        Value::Bytes(bytes) => (json!(bytes), "B"),
        Value::Number(number, unit) => (json!(number), *unit),
        Value::Choice(name) => (json!(name), ""),
        Value::Switch(on) => (json!(on), ""),
        Value::None => (Json::Null, ""),
    };
    json!({
        "key": parameter.key,
        "meaning": parameter.meaning,
        "default": default,
        "unit": unit,
        "source": parameter.source,
        "tried": parameter.tried,
    })
}
