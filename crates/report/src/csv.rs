// SPDX-License-Identifier: GPL-2.0-only
//! Every number of every run as comma-separated values, for spreadsheets and programs that plot.
//!
//! Long form: a line for each number, so that columns are the same whatever was measured, and what is added to results
//! later adds only lines. Names of measures are those of the JSON. What was not measured (`null`) has no line.

use crate::results::Run;
use crate::sensitivity::Point;
use csv::Writer;
use serde::Serialize;
use serde_json::Value;
use std::io;

const COLUMNS: [&str; 7] = ["case", "policy", "seed", "of", "name", "measure", "value"];

/// The runs of `corun compare`.
///
/// # Errors
/// If results cannot be written as JSON, which would be a defect of this crate.
pub fn runs(runs: &[Run]) -> io::Result<String> {
    let mut out = Writer::from_writer(Vec::new());
    out.write_record(COLUMNS)?;
    for run in runs {
        add(&mut out, &[], run)?;
    }
    text(out)
}

/// The runs of `corun sensitivity`: the same, preceded by the value of the parameter, as in scenarios.
///
/// # Errors
/// As [`runs`].
pub fn points(points: &[Point]) -> io::Result<String> {
    let mut out = Writer::from_writer(Vec::new());
    out.write_record(["parameter"].iter().chain(&COLUMNS))?;
    for point in points {
        for run in &point.runs {
            add(&mut out, &[&point.value], run)?;
        }
    }
    text(out)
}

/// One line, its end included.
///
/// # Errors
/// None known: the line is made in memory.
pub fn line<Cell: AsRef<[u8]>>(cells: impl IntoIterator<Item = Cell>) -> io::Result<String> {
    let mut out = Writer::from_writer(Vec::new());
    out.write_record(cells)?;
    text(out)
}

fn text(out: Writer<Vec<u8>>) -> io::Result<String> {
    let bytes = out.into_inner().map_err(|error| error.into_error())?;
    String::from_utf8(bytes).map_err(io::Error::other)
}

/// A run's lines, each beginning with `before`.
fn add(out: &mut Writer<Vec<u8>>, before: &[&str], run: &Run) -> io::Result<()> {
    let seed = run.seed.to_string();
    let mut of = |kind: &str, name: &str, result: Value| {
        let mut before = before.to_vec();
        before.extend([&run.case, &run.policy, &seed, kind, name]);
        numbers(&result, "", &mut |measure, value| {
            let value = value.to_string();
            let cells = before.iter().copied().chain([measure, &value]);
            Ok(out.write_record(cells)?)
        })
    };
    of("host", "", json(&run.host)?)?;
    for vm in &run.vms {
        of("vm", &vm.name, json(vm)?)?;
    }
    for client in &run.clients {
        of("client", &client.name, json(client)?)?;
    }
    for disk in &run.disks {
        of("disk", &disk.name, json(disk)?)?;
    }
    for task in &run.tasks {
        of("task", &task.name, json(task)?)?;
    }
    Ok(())
}

fn json(result: &impl Serialize) -> io::Result<Value> {
    Ok(serde_json::to_value(result)?)
}

/// Calls `each` with all numbers below `value` and their paths, such as `stacking.two`.
fn numbers(
    value: &Value,
    path: &str,
    each: &mut impl FnMut(&str, &serde_json::Number) -> io::Result<()>,
) -> io::Result<()> {
    match value {
        Value::Number(number) => each(path, number),
        Value::Object(inside) => inside.iter().try_for_each(|(key, value)| match path {
            "" => numbers(value, key, each),
            _ => numbers(value, &format!("{path}.{key}"), each),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{ClientResult, HostResult, VmResult};

    fn run() -> Run {
        Run {
            policy: "balance".to_string(),
            case: "2 VMs, full".to_string(),
            seed: 7,
            kernel: None,
            host: HostResult::default(),
            vms: vec![VmResult {
                name: "web".to_string(),
                ready_wait_p99_us: Some(12.5),
                ..VmResult::default()
            }],
            tasks: Vec::new(),
            disks: Vec::new(),
            clients: vec![ClientResult {
                name: "clients of web".to_string(),
                response_p99_us: Some(3.0),
                ..ClientResult::default()
            }],
            detail: Default::default(),
        }
    }

    #[test]
    fn a_line_for_each_number_that_was_measured() {
        let text = runs(&[run()]).unwrap();
        for line in [
            "\"2 VMs, full\",balance,7,host,,stacking.two,0.0",
            "\"2 VMs, full\",balance,7,vm,web,ready_wait_p99_us,12.5",
            "\"2 VMs, full\",balance,7,client,clients of web,response_p99_us,3.0",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}: {text}");
        }
        assert!(!text.contains("ready_wait_p50_us"), "not measured: {text}");
        assert!(!text.contains("throughput_unit"), "no number: {text}");
    }

    #[test]
    fn values_of_a_parameter_come_first() {
        let point = |value: &str| Point {
            value: value.to_string(),
            shown: value.to_string(),
            number: None,
            runs: vec![run()],
        };
        let text = points(&[point("1"), point("a,b")]).unwrap();
        let mut lines = text.lines();
        assert_eq!(
            lines.next(),
            Some("parameter,case,policy,seed,of,name,measure,value")
        );
        assert!(
            lines
                .next()
                .is_some_and(|line| line.starts_with("1,\"2 VMs, full\",balance,7,host,,"))
        );
        assert!(text.contains("\n\"a,b\",\"2 VMs, full\","));
    }

    #[test]
    fn names_cannot_make_columns() {
        let text = line(["web", "a,\"b\"", ""]).unwrap();
        assert_eq!(text, "web,\"a,\"\"b\"\"\",\n");
    }
}
