// SPDX-License-Identifier: GPL-2.0-only
//! rt-app files that scenarios name: reading them, their threads, and what to say about them.
//!
//! A file is read once, with the scenario, so that all runs use the same text.

use super::input::{first_strange, named};
use crate::failure::Invalid;
use corun_model::counted;
use corun_model::time::show;
use corun_scenario::{Case, Problem, Problems, RtApp, Scenario, Vm, or_nearest};
use corun_sim::guest::ThreadSpec;
use corun_sim::workload::rtapp::{self, Converted};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Puts the texts of all files into the scenario.
///
/// # Errors
/// [`Invalid`] if one cannot be read.
pub fn load(scenario: &mut Scenario) -> anyhow::Result<()> {
    let mut problems = Problems::default();
    let mut texts: BTreeMap<PathBuf, Arc<str>> = BTreeMap::new();
    let vms = scenario.cases.iter_mut().flat_map(|case| &mut case.vms);
    for rt_app in vms.filter_map(|vm| vm.rt_app.as_mut()) {
        let path = named(&rt_app.file);
        if let Some(text) = texts.get(&path) {
            rt_app.text = Arc::clone(text);
            continue;
        }
        match read(&path) {
            Ok(text) => rt_app.text = Arc::clone(texts.entry(path).or_insert(text.into())),
            Err(message) => {
                problems.push(
                    rt_app
                        .file
                        .problem(format!("{}: {message}", path.display())),
                );
            }
        }
    }
    problems.or_ok(()).map_err(Invalid::error)
}

fn read(path: &Path) -> Result<String, String> {
    let most = rtapp::MOST_BYTES;
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(most as u64 + 1).read_to_end(&mut bytes))
        .map_err(|error| error.to_string())?;
    if bytes.len() > most {
        return Err(format!(
            "is larger than {most} bytes, the most that is read"
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        let (line, byte) = first_strange(&error);
        format!(
            "line {line}: byte {byte} of the file is not UTF-8: expected JSON as rt-app reads it"
        )
    })
}

/// The threads of a VM's file; none if it has no file.
///
/// # Errors
/// Everything that is wrong with the file or not supported.
pub fn threads(vm: &Vm) -> Result<Vec<ThreadSpec>, Problems> {
    let Some(rt_app) = &vm.rt_app else {
        return Ok(Vec::new());
    };
    let threads = converted(vm, rt_app)?.threads.into_iter();
    let spec = |thread: rtapp::Thread| ThreadSpec {
        name: thread.name,
        program: thread.program,
        vcpu: thread.vcpu,
    };
    Ok(threads.map(spec).collect())
}

fn converted(vm: &Vm, rt_app: &RtApp) -> Result<Converted, Problems> {
    let mut problems = Problems::default();
    let known: Vec<&str> = rtapp::event_names().collect();
    for name in &rt_app.ignore {
        if !known.contains(&name.value.as_str()) {
            let hint = or_nearest(&name.value, &known);
            problems.push(name.problem(format!("unknown event {:?}, {hint}", name.value)));
        }
    }
    let ignore: Vec<String> = rt_app
        .ignore
        .iter()
        .map(|name| name.value.clone())
        .collect();
    match rtapp::convert(&rt_app.text, vm.vcpus, &ignore) {
        Ok(converted) => problems.or_ok(converted),
        Err(faults) => {
            for fault in faults {
                problems.push(of_file(rt_app, &fault.to_string()));
            }
            problems.or_ok(()).map(|()| Converted::default())
        }
    }
}

/// A problem in the file, reported at the place where the scenario names it.
fn of_file(rt_app: &RtApp, message: &str) -> Problem {
    rt_app
        .file
        .problem(format!("{}: {message}", rt_app.file.value))
}

/// What is not done as a case's files say, for people to know.
pub fn unheeded(case: &Case) -> Vec<String> {
    let mut notes = Vec::new();
    let end = case.run.warm_up.saturating_add(case.run.duration);
    for vm in &case.vms {
        let Some(rt_app) = &vm.rt_app else {
            continue;
        };
        let Ok(converted) = converted(vm, rt_app) else {
            continue;
        };
        let (key, file) = (&rt_app.file.key, &rt_app.file.value);
        let of_file = |note: &dyn std::fmt::Display| format!("{key}: {file}: {note}");
        notes.extend(converted.notes.iter().map(|note| of_file(note)));
        if let Some(duration) = converted.duration.filter(|duration| *duration < end) {
            notes.push(of_file(&format!(
                "global.duration: rt-app would end after {}, the threads go on until the run ends \
                 at {}",
                show(duration),
                show(end)
            )));
        }
        let threads = converted.threads.iter();
        let mut late = threads.filter(|thread| thread.delay >= end);
        if let Some(first) = late.next() {
            let others = match late.count() {
                0 => String::new(),
                others => format!(", and so {}", counted(others, "more thread")),
            };
            notes.push(of_file(&format!(
                "thread {} does nothing: its delay is {}, the run ends at {}{others}",
                first.name,
                show(first.delay),
                show(end)
            )));
        }
    }
    notes
}
