// SPDX-License-Identifier: GPL-2.0-only
//! Benchmarks by name: all run, and what papers say about some holds because of their structure.

use super::*;
use crate::workload::{preset, preset_names};

/// Presets with their disks, clients and the VMs that they call: each gets something done.
#[test]
fn presets_run() {
    for name in preset_names() {
        let preset = preset(name).unwrap();
        // Some take longer than the rest until they finish a first unit.
        let done = [50 * MS, 2 * SEC].into_iter().any(|duration| {
            let (guests, pcpus) = crate::alone::guests(&preset, 1).unwrap();
            let sched = Box::new(RoundRobin::new(10 * MS));
            let host = machine(pcpus, Costs::default());
            let simulation = Simulation::new(host, sched, Box::new(guests), None);
            let outcome = simulation.run(0, duration, |_| {});
            let answers: u64 = outcome.clients.iter().map(|it| it.responses.count()).sum();
            throughput(&outcome, 0) > 0.0 || answers > 0
        });
        assert!(done, "{name}");
    }
}

/// How much longer a benchmark takes alongside a VM that computes all the time: four vCPUs each,
/// four pCPUs, turns of 5 ms.
fn slowdown(name: &str) -> f64 {
    let spec = |name: &str| {
        let threads = preset(name).unwrap().threads(4).unwrap().into_iter();
        let mut spec = vm(name, GuestParams::default(), &["compute 1ms"; 4]);
        let thread = |(vcpu, thread): (usize, crate::workload::PresetThread)| ThreadSpec {
            name: thread.name,
            program: thread.program,
            vcpu: Some(vcpu as u32),
        };
        spec.threads = threads.enumerate().map(thread).collect();
        spec
    };
    let rate = |names: &[&str]| {
        let vms = names.iter().map(|name| spec(name)).collect();
        let guests = Guests::new(vms, Vec::new(), 1).unwrap();
        let outcome = simulate(machine(4, Costs::default()), 5 * MS, guests);
        throughput(&outcome, 0)
    };
    rate(&[name]) / rate(&[name, "cpu"])
}

/// Jupiter (dissertation, §4.5.1) calls streamcluster synchronisation-intensive and freqmine
/// computation-intensive: a program whose threads never wait for each other loses no more than what
/// is taken from it.
#[test]
fn a_program_that_meets_often_suffers_more_than_its_share() {
    let streamcluster = slowdown("streamcluster");
    assert!(streamcluster > 2.3, "{streamcluster}");
    for name in ["freqmine", "swaptions"] {
        let alone = slowdown(name);
        assert!((1.9..2.15).contains(&alone), "{name}: {alone}");
    }
}
