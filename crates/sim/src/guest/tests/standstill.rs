// SPDX-License-Identifier: GPL-2.0-only
//! Guests that do so much in one moment that the run is given up.

use super::*;

/// A timer of 1 ns makes up for all the time that another VM had the pCPU, fifty million times at once.
#[test]
fn programs_that_never_let_time_go_on_are_given_up() {
    let run = || {
        let programs = ["loop { timer t 1ns absolute }", "loop { compute 1s }"];
        let vms = programs.map(|program| vm("a", free(), &[program]));
        let guests = Guests::new(vms.to_vec(), Vec::new(), 1).unwrap();
        let sched = Box::new(RoundRobin::new(50 * MS));
        Simulation::new(machine(1, FREE), sched, Box::new(guests), None)
            .try_run(0, SEC, |_| {})
            .unwrap_err()
    };
    let given_up = run();
    assert!((50 * MS..51 * MS).contains(&given_up.at), "{given_up}");
    let (what, times) = &given_up.busiest[0];
    assert_eq!(what, "a/0 goes on with its programs");
    assert!(*times >= given_up.witnessed / 2, "{given_up}");
    assert_eq!(given_up, run());
}
