// SPDX-License-Identifier: GPL-2.0-only
//! `corun policies`: what can be compared.

use crate::compare::schedulers;
use crate::failure::Invalid;
use crate::output;
use crate::parameters::in_json;

/// List the policies that can be compared, with their sources
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only this one
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// Print one JSON array instead: name, summary, source, parameters, and whether `corun host` can
    /// run it
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  corun policies
      all of them
  corun policies jupiter
      one, with what can be set of it

Exit codes: 0 done; 2 wrong usage, or no policy of this name.";

/// Runs the command.
///
/// # Errors
/// [`Invalid`] if there is no policy of this name; anything else if nothing can be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut all = schedulers::policies();
    if let Some(name) = &args.name {
        schedulers::known_policy(name)
            .map_err(|message| Invalid::error(format!("NAME: {message}")))?;
        all.retain(|policy| policy.name == name);
    }
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
    output::print(&text(&all, usize::from(output::width())))
}

/// Names on the left, descriptions on the right, for a terminal of `columns` columns.
fn text(all: &[schedulers::PolicyInfo], columns: usize) -> String {
    let widest = all.iter().map(|policy| policy.name.len()).max();
    let widest = widest.unwrap_or(0);
    let columns = columns.clamp(60, 120);
    let indent = " ".repeat(widest + 2);
    let wrapped = |first: &str, rest: &str, text: &str| {
        let options = textwrap::Options::new(columns);
        let options = options.initial_indent(first).subsequent_indent(rest);
        textwrap::fill(text, options) + "\n"
    };
    let policy = |policy: &schedulers::PolicyInfo| {
        let name = format!("{:widest$}  ", policy.name);
        let mut out = wrapped(&name, &indent, policy.summary);
        out += &wrapped(&indent, &indent, policy.source);
        for parameter in (policy.parameters)() {
            let (key, value) = (parameter.key, &parameter.value);
            let text = format!("{key} = {value}: {}", parameter.meaning);
            out += &wrapped(&format!("{indent}  "), &format!("{indent}    "), &text);
        }
        out
    };
    all.iter().map(policy).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_wider_than_the_terminal() {
        for columns in [60, 80, 120] {
            let text = text(&schedulers::policies(), columns);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(columns), "{columns}: {text}");
        }
    }
}
