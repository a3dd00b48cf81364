// SPDX-License-Identifier: GPL-2.0-only
//! Programs of the workload language, one per paragraph between zero bytes: what is refused is
//! refused at a place, what is read is printed so that it is read again, and what fits together runs
//! in a VM without a panic and in bounded time.

#![no_main]

use corun_model::time::US;
use corun_model::{DispatcherParams, PcpuSet, Topology};
use corun_sim::Simulation;
use corun_sim::guest::{GuestParams, Guests, LockKind, ThreadSpec, VmSpec};
use corun_sim::host::{Costs, HardwareParams, HostParams};
use corun_sim::sched::dispatcher::Dispatcher;
use corun_sim::workload::Program;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &str| {
    let programs: Vec<Program> = data.split('\0').take(4).filter_map(program).collect();
    for (_, lock) in LockKind::NAMES {
        simulate(&programs, lock);
    }
});

fn program(text: &str) -> Option<Program> {
    match Program::parse(text) {
        Ok(program) => {
            let printed = program.to_string();
            assert_eq!(Program::parse(&printed).as_ref(), Ok(&program), "{printed}");
            Some(program)
        }
        Err(error) => {
            assert!(error.line >= 1 && error.column >= 1 && !error.message.is_empty());
            None
        }
    }
}

/// Two threads of each program on two vCPUs and one pCPU: there is always somebody descheduled.
fn simulate(programs: &[Program], lock: LockKind) {
    let Ok(topology) = Topology::flat(1) else {
        return;
    };
    let host = HostParams {
        topology,
        hz: 10_000,
        tick_skew: false,
        costs: Costs::default(),
        idle_states: Vec::new(),
        hardware: HardwareParams::default(),
    };
    let threads = programs.iter().flat_map(|program| [program; 2]);
    let threads = threads.enumerate().map(|(at, program)| ThreadSpec {
        name: format!("t{at}"),
        program: program.clone(),
        vcpu: None,
    });
    let vm = VmSpec {
        threads: threads.collect(),
        params: GuestParams {
            hz: 10_000,
            lock,
            ple_window: Some(US),
            ..GuestParams::default()
        },
        ..VmSpec::new("fuzz", 2, PcpuSet::first(1))
    };
    let Ok(guests) = Guests::new(vec![vm], Vec::new(), 1) else {
        return;
    };
    let params = DispatcherParams {
        slice: 50 * US,
        ..DispatcherParams::default()
    };
    let sched = Dispatcher::new(params, &host);
    let outcome = Simulation::new(host, Box::new(sched), Box::new(guests), None).run(
        20 * US,
        400 * US,
        |_| {},
    );
    // Nothing takes no time: at most one event per ns, and far fewer in fact.
    assert!(outcome.events < 400_000, "{} events", outcome.events);
}
