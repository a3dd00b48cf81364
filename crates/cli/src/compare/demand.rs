// SPDX-License-Identifier: GPL-2.0-only
//! From what a scenario says that VMs do to the threads that do it.

use super::rtapp;
use super::schedulers::unknown;
use corun_scenario::{Located, Problem, Problems, Thread, Vm, Workload};
use corun_sim::guest::ThreadSpec;
use corun_sim::workload::{Program, preset, preset_names};

/// Where it was said what a VM does.
pub fn said(vm: &Vm) -> Option<&Located<String>> {
    let preset = vm.demand.workloads.first().map(|workload| &workload.preset);
    let program = vm.demand.threads.first().map(|thread| &thread.program);
    let file = vm.rt_app.as_ref().map(|rt_app| &rt_app.file);
    preset.or(program).or(file)
}

/// Where it was said what this thread of a VM does, of those that [`threads`] gives.
pub fn said_of(vm: &Vm, thread: usize) -> Option<&Located<String>> {
    let workloads = vm.demand.workloads.iter().map(|workload| {
        let threads = of_workload(workload, None, vm.vcpus);
        (&workload.preset, threads.map_or(0, |threads| threads.len()))
    });
    let programs = vm.demand.threads.iter();
    let programs = programs.map(|thread| (&thread.program, thread.count as usize));
    let mut end = 0;
    let mut said = workloads.chain(programs);
    let found = said.find(|(_, count)| {
        end += count;
        thread < end
    });
    let file = vm.rt_app.as_ref().map(|rt_app| &rt_app.file);
    found.map(|(said, _)| said).or(file)
}

/// All threads of a VM.
///
/// # Errors
/// Unknown workloads and programs that cannot be read.
pub fn threads(vm: &Vm) -> Result<Vec<ThreadSpec>, Problems> {
    let (mut all, mut problems) = (Vec::new(), Problems::default());
    for (at, workload) in vm.demand.workloads.iter().enumerate() {
        let alone = vm.demand.workloads.len() == 1;
        // Workloads know nothing of each other's locks and queues.
        let within = (!alone).then(|| format!("{}{}", workload.preset.value, at + 1));
        let threads = of_workload(workload, within.as_deref(), vm.vcpus);
        all.extend(problems.take(threads).unwrap_or_default());
    }
    let mut number = 0;
    for thread in &vm.demand.threads {
        let threads = of_program(thread, &mut number);
        all.extend(problems.take(threads).unwrap_or_default());
    }
    all.extend(problems.take(rtapp::threads(vm)).unwrap_or_default());
    problems.or_ok(all)
}

fn of_workload(
    workload: &Workload,
    within: Option<&str>,
    vcpus: u32,
) -> Result<Vec<ThreadSpec>, Problems> {
    let name = &workload.preset;
    let Some(preset) = preset(&name.value) else {
        return Err(unknown(Some(name), &preset_names().collect::<Vec<_>>()));
    };
    let count = workload
        .threads
        .unwrap_or_else(|| preset.default_threads(vcpus));
    let made = preset
        .threads(count)
        .map_err(|error| name.problem(error.to_string()))?;
    let spec = |thread: corun_sim::workload::PresetThread| match within {
        Some(within) => ThreadSpec {
            name: format!("{within}/{}", thread.name),
            program: thread.program.within(within),
            vcpu: None,
        },
        None => ThreadSpec {
            name: thread.name,
            program: thread.program,
            vcpu: None,
        },
    };
    Ok(made.into_iter().map(spec).collect())
}

/// The threads of one `[[vm.….thread]]`; `number` counts them over the VM.
fn of_program(thread: &Thread, number: &mut u32) -> Result<Vec<ThreadSpec>, Problem> {
    let program = program(&thread.program)?;
    let spec = |_| {
        let name = format!("thread{number}");
        *number += 1;
        ThreadSpec {
            name,
            program: program.clone(),
            vcpu: thread.vcpu,
        }
    };
    Ok((0..thread.count).map(spec).collect())
}

/// Reads a program.
///
/// # Errors
/// What is wrong with it, at its place.
pub fn program(text: &Located<String>) -> Result<Program, Problem> {
    Program::parse(&text.value).map_err(|error| text.problem(error.to_string()))
}
