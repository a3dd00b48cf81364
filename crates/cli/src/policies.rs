// SPDX-License-Identifier: GPL-2.0-only
//! `corun policies`: what can be compared.

use crate::compare::schedulers;
use crate::output;
use crate::parameters::in_json;

/// List the policies that can be compared, with their sources
#[derive(clap::Args)]
pub struct Args {
    /// Print one JSON array instead: name, summary, source, parameters, and whether `corun host` can
    /// run it
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// If nothing can be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let all = schedulers::policies();
    if args.json {
        let list: Vec<_> = all
            .iter()
            .map(|policy| {
                serde_json::json!({
                    "name": policy.name, "summary": policy.summary, "source": policy.source,
                    "host": corun_policies::find(policy.name).is_some(),
                    "parameters": in_json(&(policy.parameters)()),
                })
            })
            .collect();
        return output::json(&list);
    }
    let widest = all
        .iter()
        .map(|policy| policy.name.len())
        .max()
        .unwrap_or(0);
    let line = |policy: &schedulers::PolicyInfo| {
        let indent = " ".repeat(widest + 2);
        let settings = (policy.parameters)();
        let settings = settings.iter().map(|parameter| {
            let (key, value) = (parameter.key, &parameter.value);
            format!("{indent}  {key} = {value}: {}\n", parameter.meaning)
        });
        format!(
            "{:widest$}  {}\n{indent}{}\n{}",
            policy.name,
            policy.summary,
            policy.source,
            settings.collect::<String>()
        )
    };
    output::print(&all.iter().map(line).collect::<String>())
}
