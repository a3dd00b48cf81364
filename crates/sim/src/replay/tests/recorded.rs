// SPDX-License-Identifier: GPL-2.0-only
//! The committed recordings, replayed.

use crate::replay::*;
use crate::sched::HostScheduler;
use crate::sched::dispatcher::Dispatcher;
use crate::sched::eevdf::{Eevdf, EevdfParams};
use crate::{Outcome, Simulation};
use corun_model::DispatcherParams;
use corun_recording::Recording;

const NAMES: [&str; 2] = [
    "kvm-2pcpu-bursty-io-compute.ftrace.gz",
    "kvm-2pcpu-compute-sync-io.ftrace.gz",
];

fn read(name: &str) -> Recording {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/recordings/");
    let path = format!("{folder}{name}");
    corun_recording::read(path.as_ref()).unwrap().recording
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Under {
    Dispatcher,
    Eevdf,
}

fn run(recording: &Recording, under: Under, beyond: Beyond) -> (Outcome, ReplayReport) {
    let host = suggested_host(recording).unwrap().params;
    let sched: Box<dyn HostScheduler> = match under {
        Under::Dispatcher => Box::new(Dispatcher::new(DispatcherParams::default(), &host)),
        Under::Eevdf => {
            let pcpus = recording.host.pcpus.value;
            let params = EevdfParams::preset("7.x", pcpus).unwrap();
            Box::new(Eevdf::new(params, &host))
        }
    };
    let replay = Replay::new(
        recording,
        host.topology.pcpus(),
        Options {
            beyond,
            ..Options::default()
        },
    );
    let simulation = Simulation::new(host, sched, Box::new(replay.clone()), None);
    let outcome = simulation.run(0, recording.duration(), |_| {});
    (outcome, replay.report())
}

#[test]
fn replays_finish_add_up_and_repeat() {
    for name in NAMES {
        let recording = read(name);
        for under in [Under::Dispatcher, Under::Eevdf] {
            for beyond in [Beyond::Repeat, Beyond::Wait] {
                let (outcome, report) = run(&recording, under, beyond);
                for (task, _, totals) in &outcome.tasks {
                    let sum = totals.run + totals.ready + totals.wait;
                    assert_eq!(sum, recording.duration(), "{task}");
                }
                // The recording does not contradict itself.
                assert_eq!((report.released, report.unknown_wakers), (0, 0));
                let again = run(&recording, under, beyond);
                assert_eq!(outcome.tasks, again.0.tasks);
                assert_eq!(report, again.1);
            }
        }
    }
}

#[test]
fn run_time_is_near_the_recorded() {
    for name in NAMES {
        let recording = read(name);
        let (outcome, _) = run(&recording, Under::Eevdf, Beyond::Repeat);
        let fidelity = fidelity(&recording, &outcome);
        let run = fidelity.overall.run.unwrap();
        let ready = fidelity.overall.ready.unwrap();
        assert!(run < 0.08, "{name}: {run}");
        assert!(ready < 0.12, "{name}: {ready}");
        assert_eq!(fidelity.vcpus.len(), 6);
        assert_eq!(
            fidelity.vcpus[1].name,
            format!("{}/1", recording.vms[0].name)
        );
        let sum: f64 = fidelity.vms.iter().map(|vm| vm.run.recorded).sum();
        let vcpus: f64 = fidelity.vcpus.iter().map(|v| v.run.recorded).sum();
        assert_eq!(sum, vcpus);
        assert!(
            fidelity
                .notes
                .iter()
                .all(|note| !note.to_string().is_empty())
        );
    }
}

#[test]
fn the_hosts_clock_is_seen() {
    for name in NAMES {
        let host = suggested_host(&read(name)).unwrap();
        assert_eq!(host.params.hz, 250);
        println!("{name}: {host:?}");
        // There was no idle time that would show the costs of waking up.
        assert_eq!(host.costs, Source::Assumed);
        assert_eq!(host.params.costs.switch, 0);
    }
}
