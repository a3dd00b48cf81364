// SPDX-License-Identifier: GPL-2.0-only
//! From a scenario's case, a policy and a seed to a simulation: the one place that knows both the
//! scenario's words and the simulator's.

use corun_model::{Nanos, PcpuSet};
use corun_scenario::{Case, Demand, Located, Problem, Problems, Vm, or_nearest};
use corun_sim::Simulation;
use corun_sim::guest::{
    GuestError, GuestParams, Guests, HostTaskSpec, LockKind, ThreadSpec, VmSpec,
};
use corun_sim::host::{Costs, HostParams, Observer};
use corun_sim::sched::HostScheduler;
use corun_sim::sched::cfs::{Cfs, CfsParams};
use corun_sim::sched::dispatcher::{Dispatcher, DispatcherParams};
use corun_sim::sched::eevdf::{Eevdf, EevdfParams};
use corun_sim::workload::{Program, preset, preset_names};

/// A policy as users see it.
pub struct PolicyInfo {
    /// What it is called.
    pub name: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// Where it is from.
    pub source: &'static str,
}

/// Everything that can be compared: models of host schedulers, then corun's policies.
pub fn policies() -> Vec<PolicyInfo> {
    vec![
        PolicyInfo {
            name: "cfs",
            summary: "Linux' Completely Fair Scheduler, as the papers' hosts ran it (a model)",
            source: "Linux 2.6.33 to 6.5, kernel/sched/fair.c; parameters: [scheduler.cfs]",
        },
        PolicyInfo {
            name: "eevdf",
            summary: "Linux' present scheduler: earliest eligible virtual deadline first (a model)",
            source: "Linux 6.6 to 7.x, kernel/sched/fair.c; parameters: [scheduler.eevdf]",
        },
        PolicyInfo {
            name: "fair",
            summary: "corun's dispatcher without a policy: fair order, any allowed pCPU",
            source: "corun; parameters: [scheduler.corun]",
        },
    ]
}

/// Is there such a policy?
///
/// # Errors
/// What is accepted.
pub fn known_policy(name: &str) -> Result<(), String> {
    let known: Vec<&str> = policies().iter().map(|policy| policy.name).collect();
    match known.contains(&name) {
        true => Ok(()),
        false => Err(format!(
            "unknown policy {name:?}, {}",
            or_nearest(name, &known)
        )),
    }
}

/// Can this case be run at all?
///
/// # Errors
/// Everything wrong with its names and programs.
pub fn check(case: &Case) -> Result<(), Problems> {
    let mut problems = Problems::default();
    let params = host_params(case);
    push(&mut problems, cfs_params(case, &params));
    push(&mut problems, eevdf_params(case, &params));
    push(&mut problems, guests(case, 0));
    for policy in case.run.policies.iter().flatten() {
        push(
            &mut problems,
            known_policy(&policy.value).map_err(|message| policy.problem(message)),
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
    let sched = scheduler(case, policy, &params)?;
    let load = Box::new(guests(case, seed)?);
    Ok(Simulation::new(params, sched, load, observer))
}

fn host_params(case: &Case) -> HostParams {
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

fn scheduler(
    case: &Case,
    policy: &str,
    host: &HostParams,
) -> Result<Box<dyn HostScheduler>, Problems> {
    match policy {
        "cfs" => Ok(Box::new(Cfs::new(cfs_params(case, host)?, host))),
        "fair" => Ok(Box::new(Dispatcher::new(dispatcher_params(case), host))),
        "eevdf" => Ok(Box::new(Eevdf::new(eevdf_params(case, host)?, host))),
        other => Err(elsewhere(&format!("unknown policy {other:?}"))),
    }
}

/// A problem that has no place in the scenario.
fn elsewhere(message: &str) -> Problems {
    Problem::nowhere(message).into()
}

/// Replaces a default by what was said.
fn set<T>(value: &mut T, said: Option<T>) {
    if let Some(said) = said {
        *value = said;
    }
}

const CFS_PRESET: &str = "2.6.33";

fn cfs_params(case: &Case, host: &HostParams) -> Result<CfsParams, Problems> {
    let keys = &case.schedulers.cfs;
    let pcpus = host.topology.pcpus();
    let name = keys
        .preset
        .as_ref()
        .map_or(CFS_PRESET, |preset| preset.value.as_str());
    let Some(mut params) = CfsParams::preset(name, pcpus) else {
        return Err(unknown(keys.preset.as_ref(), &CfsParams::PRESETS));
    };
    set(&mut params.latency, keys.latency);
    set(&mut params.min_granularity, keys.min_granularity);
    set(&mut params.wakeup_granularity, keys.wakeup_granularity);
    set(&mut params.migration_cost, keys.migration_cost);
    set(&mut params.gentle_fair_sleepers, keys.gentle_fair_sleepers);
    set(&mut params.start_debit, keys.start_debit);
    set(&mut params.wakeup_preemption, keys.wakeup_preemption);
    params.balance_interval = keys.balance_interval.or(params.balance_interval);
    Ok(params)
}

const EEVDF_PRESET: &str = "6.12";

fn eevdf_params(case: &Case, host: &HostParams) -> Result<EevdfParams, Problems> {
    let keys = &case.schedulers.eevdf;
    let pcpus = host.topology.pcpus();
    let name = keys
        .preset
        .as_ref()
        .map_or(EEVDF_PRESET, |preset| preset.value.as_str());
    let Some(mut params) = EevdfParams::preset(name, pcpus) else {
        return Err(unknown(keys.preset.as_ref(), &EevdfParams::PRESETS));
    };
    set(&mut params.base_slice, keys.base_slice);
    set(&mut params.migration_cost, keys.migration_cost);
    set(&mut params.place_lag, keys.place_lag);
    set(
        &mut params.place_deadline_initial,
        keys.place_deadline_initial,
    );
    set(&mut params.run_to_parity, keys.run_to_parity);
    set(&mut params.preempt_short, keys.preempt_short);
    set(&mut params.delay_dequeue, keys.delay_dequeue);
    set(&mut params.wakeup_preemption, keys.wakeup_preemption);
    set(&mut params.hrtick, keys.hrtick);
    set(&mut params.protect_shortest, keys.protect_shortest);
    params.balance_interval = keys.balance_interval.or(params.balance_interval);
    Ok(params)
}

fn dispatcher_params(case: &Case) -> DispatcherParams {
    let (keys, mut params) = (&case.schedulers.corun, DispatcherParams::default());
    set(&mut params.slice, keys.slice);
    set(&mut params.wakeup_granularity, keys.wakeup_granularity);
    set(&mut params.sleeper_credit, keys.sleeper_credit);
    set(&mut params.max_lead, keys.max_lead);
    set(&mut params.balance_interval, keys.balance_interval);
    set(&mut params.slice_timer, keys.slice_timer);
    params
}

/// The problem that a name is none of those accepted.
fn unknown(said: Option<&Located<String>>, known: &[&str]) -> Problems {
    match said {
        Some(said) => {
            let hint = or_nearest(&said.value, known);
            said.problem(format!("found {:?}, {hint}", said.value))
                .into()
        }
        None => elsewhere("a default is missing"),
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
    let subject = error
        .subject
        .split([' ', ',', '/'])
        .find(|word| !word.is_empty());
    let vm = case.vms.iter().find(|vm| Some(vm.name.as_str()) == subject);
    let task = case
        .tasks
        .iter()
        .find(|task| Some(task.name.as_str()) == subject);
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
        Demand::Threads(threads) => threads.first().map(|thread| &thread.program),
    }
}

fn vm_spec(vm: &Vm, all: PcpuSet) -> Result<VmSpec, Problems> {
    Ok(VmSpec {
        name: vm.name.clone(),
        vcpus: vm.vcpus,
        weight: vm.weight,
        vcpu_weight: vm.vcpu_weight,
        allowed: vm.allowed.unwrap_or(all),
        threads: threads(vm)?,
        params: guest_params(vm)?,
    })
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

const LOCKS: [(&str, LockKind); 3] = [
    ("ticket", LockKind::Ticket),
    ("unfair", LockKind::Unfair),
    ("paravirtual", LockKind::Paravirtual),
];

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
        let found = LOCKS.iter().find(|(name, _)| *name == said.value);
        let kind = found.map(|(_, kind)| *kind);
        params.lock = kind.ok_or_else(|| unknown(Some(said), &LOCKS.map(|(name, _)| name)))?;
    }
    Ok(params)
}
