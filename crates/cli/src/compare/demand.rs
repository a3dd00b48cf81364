// SPDX-License-Identifier: GPL-2.0-only
//! From what a scenario says that VMs do to the threads that do it.

use super::rtapp;
use corun_scenario::{Located, Problem, Problems, Thread, Vm, Workload, limits, nearest};
use corun_sim::guest::ThreadSpec;
use corun_sim::workload::{NUMBER, Program, preset, preset_names};

/// Where the scenario says what a VM does.
pub fn said(vm: &Vm) -> Option<&Located<String>> {
    let preset = vm.demand.workloads.first().map(|workload| &workload.preset);
    let program = vm.demand.threads.first().map(|thread| &thread.program);
    let file = vm.rt_app.as_ref().map(|rt_app| &rt_app.file);
    preset.or(program).or(file)
}

/// Where the scenario says what this thread of a VM does; `thread` counts those that [`threads`] gives.
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

/// How many threads a VM has, as far as that is given outside rt-app's files: those have limits of their own.
fn said_count(vm: &Vm) -> usize {
    let of_workload = |workload: &Workload| {
        let made = || preset(&workload.preset.value).map_or(0, |it| it.default_threads(vm.vcpus));
        workload.threads.unwrap_or_else(made) as usize
    };
    let programs = vm.demand.threads.iter().map(|thread| thread.count as usize);
    programs
        .chain(vm.demand.workloads.iter().map(of_workload))
        .sum()
}

/// Makes sure, before threads are made, that they do not take all memory: those of `vm`, where the VMs before it have
/// `before`.
///
/// # Errors
/// If there are too many.
pub fn few_enough(vm: &Vm, before: usize) -> Result<(), Problem> {
    let (own, most) = (said_count(vm), limits::ALL_THREADS);
    if before + own <= most {
        return Ok(());
    }
    let message = format!(
        "{own} threads in VM {} and {before} in those before it, expected at most {most} of all VMs together",
        vm.name
    );
    Err(match said(vm) {
        Some(said) => said.problem(message),
        None => Problem::nowhere(message),
    })
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

/// What may have been meant by an unknown workload, or all that exist: a hundred names would bury a guess.
pub fn of_workloads(name: &str) -> String {
    let all: Vec<&str> = preset_names().collect();
    match nearest(name, all.iter().copied()) {
        Some(guess) => format!("did you mean {guess:?}? `corun workloads` lists all"),
        None => format!("accepted are {}", all.join(", ")),
    }
}

fn of_workload(
    workload: &Workload,
    within: Option<&str>,
    vcpus: u32,
) -> Result<Vec<ThreadSpec>, Problems> {
    let name = &workload.preset;
    let Some(preset) = preset(&name.value) else {
        let hint = of_workloads(&name.value);
        return Err(name
            .problem(format!("found {:?}, {hint}", name.value))
            .into());
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
    let numbered = thread.program.value.contains(NUMBER);
    let mut program = of_instance(&thread.program, 0)?;
    let spec = |i| {
        if numbered && i > 0 {
            program = of_instance(&thread.program, i)?;
        }
        let name = format!("thread{number}");
        *number += 1;
        Ok(ThreadSpec {
            name,
            program: program.clone(),
            vcpu: thread.vcpu,
        })
    };
    (0..thread.count).map(spec).collect()
}

/// The program of the `i`-th of several equal threads, with its own number where the text has `{i}`.
fn of_instance(text: &Located<String>, i: u32) -> Result<Program, Problem> {
    let own = text.value.replace(NUMBER, &i.to_string());
    Program::parse(&own).map_err(|error| text.problem(error.to_string()))
}

/// Reads a program.
///
/// # Errors
/// What is wrong with it, at its place.
pub fn program(text: &Located<String>) -> Result<Program, Problem> {
    Program::parse(&text.value).map_err(|error| text.problem(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_alike_may_have_a_number_in_their_program() {
        let said = |text: &str| Thread {
            count: 3,
            vcpu: None,
            program: Located {
                value: text.to_string(),
                key: "program".into(),
                place: corun_scenario::Place {
                    source: "test".into(),
                    line: 1,
                },
            },
        };
        let mut number = 4;
        let threads = of_program(&said("loop { request redis{i} }"), &mut number).unwrap();
        let programs = threads.iter().map(|thread| thread.program.to_string());
        let programs: Vec<_> = programs.collect();
        assert_eq!(
            programs,
            [
                "loop { request redis0 }",
                "loop { request redis1 }",
                "loop { request redis2 }"
            ]
        );
        assert_eq!((threads[0].name.as_str(), number), ("thread4", 7));
        assert!(of_program(&said("loop { requests redis{i} }"), &mut number).is_err());
    }
}
