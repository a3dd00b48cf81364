// SPDX-License-Identifier: GPL-2.0-only
//! From a scenario's case, a policy and a seed to a simulation: the one place that knows both the
//! scenario's words for hosts and guests and the simulator's. Schedulers: see [`schedulers`].

use super::rtapp;
use super::schedulers::{self, elsewhere, set, unknown};
use corun_model::{Nanos, PcpuSet};
use corun_scenario::{Case, Demand, Located, Problem, Problems, Vm};
use corun_sim::Simulation;
use corun_sim::guest::{
    GuestError, GuestParams, Guests, HostTaskSpec, LockKind, ThreadSpec, VmSpec,
};
use corun_sim::host::{Costs, HostParams, Observer};
use corun_sim::workload::{Program, preset, preset_names};

/// Can this case be run at all?
///
/// # Errors
/// Everything wrong with its names and programs.
pub fn check(case: &Case) -> Result<(), Problems> {
    let mut problems = Problems::default();
    let params = host_params(case);
    push(&mut problems, schedulers::check(&case.schedulers, &params));
    push(&mut problems, guests(case, 0));
    for policy in case.run.policies.iter().flatten() {
        push(
            &mut problems,
            schedulers::known_policy(&policy.value).map_err(|message| policy.problem(message)),
        );
    }
    problems.or_ok(())
}

fn push<T>(problems: &mut Problems, result: Result<T, impl Into<Problems>>) {
    if let Err(found) = result {
        found
            .into()
            .iter()
            .for_each(|problem| problems.push(problem.clone()));
    }
}

/// The simulation of `case` under `policy`.
///
/// # Errors
/// As [`check`] and [`known_policy`].
pub fn simulation(
    case: &Case,
    policy: &str,
    seed: u64,
    observer: Option<Box<dyn Observer>>,
) -> Result<Simulation, Problems> {
    let params = host_params(case);
    let load = Box::new(guests(case, seed)?);
    schedulers::put_together(params, policy, &case.schedulers, load, observer)
}

/// The machine of a case.
pub fn host_params(case: &Case) -> HostParams {
    let (said, default) = (case.host.costs, Costs::default());
    HostParams {
        topology: case.host.topology,
        hz: case.host.hz,
        tick_skew: case.host.tick_skew,
        costs: Costs {
            switch: said.switch.unwrap_or(default.switch),
            ipi: said.ipi.unwrap_or(default.ipi),
            idle_wake: said.idle_wake.unwrap_or(default.idle_wake),
        },
    }
}

fn guests(case: &Case, seed: u64) -> Result<Guests, Problems> {
    let mut problems = Problems::default();
    let all = PcpuSet::first(case.host.topology.pcpus());
    let mut vms = Vec::new();
    for vm in &case.vms {
        match vm_spec(vm, all) {
            Ok(spec) => vms.push(spec),
            Err(found) => found
                .iter()
                .for_each(|problem| problems.push(problem.clone())),
        }
    }
    let mut tasks = Vec::new();
    for task in &case.tasks {
        match program(&task.program) {
            Ok(program) => tasks.push(HostTaskSpec {
                name: task.name.clone(),
                helper_of: task.helper_of.map(Into::into),
                weight: task.weight,
                allowed: task.allowed.unwrap_or(all),
                program,
            }),
            Err(problem) => problems.push(problem),
        }
    }
    problems.or_ok(())?;
    Guests::new(vms, tasks, seed).map_err(|error| unfit(case, &error))
}

/// A problem between programs, told at the place of what it concerns.
fn unfit(case: &Case, error: &GuestError) -> Problems {
    let named = |kind| error.subject.strip_prefix(kind);
    let vm = named("VM ").and_then(|name| case.vms.iter().find(|vm| vm.name == name));
    let task =
        named("host task ").and_then(|name| case.tasks.iter().find(|task| task.name == name));
    let place = vm.and_then(said_demand).or(task.map(|task| &task.program));
    match place {
        Some(place) => place.problem(error.to_string()).into(),
        None => elsewhere(&error.to_string()),
    }
}

/// Where it was said what a VM does.
fn said_demand(vm: &Vm) -> Option<&Located<String>> {
    match &vm.demand {
        Demand::Workload { preset, .. } => Some(preset),
        Demand::Threads(threads) => {
            let first = threads.first().map(|thread| &thread.program);
            first.or(vm.rt_app.as_ref().map(|rt_app| &rt_app.file))
        }
    }
}

fn vm_spec(vm: &Vm, all: PcpuSet) -> Result<VmSpec, Problems> {
    Ok(VmSpec {
        name: vm.name.clone(),
        vcpus: vm.vcpus,
        weight: vm.weight,
        vcpu_weight: vm.vcpu_weight,
        cap: vm.cap.unwrap_or(0),
        slice: vm.slice,
        allowed: vm.allowed.unwrap_or(all),
        threads: all_threads(vm)?,
        params: guest_params(vm)?,
    })
}

fn all_threads(vm: &Vm) -> Result<Vec<ThreadSpec>, Problems> {
    let mut problems = Problems::default();
    let mut all = Vec::new();
    for found in [threads(vm), rtapp::threads(vm)] {
        match found {
            Ok(threads) => all.extend(threads),
            Err(found) => push::<()>(&mut problems, Err(found)),
        }
    }
    problems.or_ok(all)
}

fn threads(vm: &Vm) -> Result<Vec<ThreadSpec>, Problems> {
    match &vm.demand {
        Demand::Workload {
            preset: name,
            threads,
        } => {
            let Some(preset) = preset(&name.value) else {
                return Err(unknown(Some(name), &preset_names().collect::<Vec<_>>()));
            };
            let count = threads.unwrap_or_else(|| preset.default_threads(vm.vcpus));
            let made = preset
                .threads(count)
                .map_err(|error| name.problem(error.to_string()))?;
            let spec = |thread: corun_sim::workload::PresetThread| ThreadSpec {
                name: thread.name,
                program: thread.program,
                vcpu: None,
            };
            Ok(made.into_iter().map(spec).collect())
        }
        Demand::Threads(threads) => {
            let mut problems = Problems::default();
            let mut specs = Vec::new();
            for thread in threads {
                match program(&thread.program) {
                    Ok(program) => specs.extend((0..thread.count).map(|_| ThreadSpec {
                        name: String::new(),
                        program: program.clone(),
                        vcpu: thread.vcpu,
                    })),
                    Err(problem) => problems.push(problem),
                }
            }
            let named = specs.into_iter().enumerate().map(|(at, spec)| ThreadSpec {
                name: format!("thread{at}"),
                ..spec
            });
            problems.or_ok(named.collect())
        }
    }
}

fn program(text: &Located<String>) -> Result<Program, Problem> {
    Program::parse(&text.value).map_err(|error| text.problem(error.to_string()))
}

fn guest_params(vm: &Vm) -> Result<GuestParams, Problems> {
    let (keys, mut params) = (&vm.guest, GuestParams::default());
    set(&mut params.hz, keys.hz);
    set(&mut params.tick, keys.tick);
    set(&mut params.interrupt, keys.interrupt);
    set(&mut params.ipi, keys.ipi);
    set(&mut params.thread_switch, keys.thread_switch);
    set(&mut params.timer_slack, keys.timer_slack);
    set(&mut params.latency, keys.latency);
    set(&mut params.min_granularity, keys.min_granularity);
    set(&mut params.wakeup_granularity, keys.wakeup_granularity);
    set(&mut params.pv_spin, keys.pv_spin);
    let some = |window: Nanos| (window > 0).then_some(window);
    set(&mut params.ple_window, keys.ple_window.map(some));
    if let Some(said) = &keys.lock {
        let known = LockKind::NAMES;
        let found = known.iter().find(|(name, _)| *name == said.value);
        let kind = found.map(|(_, kind)| *kind);
        params.lock = kind.ok_or_else(|| unknown(Some(said), &known.map(|(name, _)| name)))?;
    }
    Ok(params)
}
