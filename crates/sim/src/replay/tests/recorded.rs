// SPDX-License-Identifier: GPL-2.0-only
//! The committed recordings, replayed.

use crate::replay::*;
use crate::sched::dispatcher::{Dispatcher, DispatcherParams};
use crate::{Outcome, Simulation};
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

fn dispatch(recording: &Recording, beyond: Beyond) -> (Outcome, ReplayReport) {
    let host = suggested_host(recording).unwrap();
    let sched = Dispatcher::new(DispatcherParams::default(), &host.params);
    let replay = Replay::new(recording, Options { beyond });
    let load = Box::new(replay.clone());
    let simulation = Simulation::new(host.params, Box::new(sched), load, None);
    let outcome = simulation.run(0, recording.duration(), |_| {});
    (outcome, replay.report())
}

#[test]
fn look() {
    for name in NAMES {
        let recording = read(name);
        println!("{:?}", suggested_host(&recording).unwrap());
        for beyond in [Beyond::Repeat, Beyond::Wait] {
            let start = std::time::Instant::now();
            let (outcome, report) = dispatch(&recording, beyond);
            println!("{name} {beyond:?} {:?}", start.elapsed());
            let f = fidelity(&recording, &outcome);
            for v in f.vcpus.iter().chain([&f.host]) {
                println!(
                    "{:16} run {:5.0}/{:5.0} ready {:5.0}/{:5.0} wait {:5.0}/{:5.0} sw {}/{} mig {}/{}",
                    v.name,
                    v.run.recorded / 1e6,
                    v.run.replayed / 1e6,
                    v.ready.recorded / 1e6,
                    v.ready.replayed / 1e6,
                    v.wait.recorded / 1e6,
                    v.wait.replayed / 1e6,
                    v.switches.recorded,
                    v.switches.replayed,
                    v.migrations.recorded,
                    v.migrations.replayed
                );
            }
            println!("{:?} {:?} {:?}", f.stacking, f.overall, report);
        }
    }
}
