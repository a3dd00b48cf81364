// SPDX-License-Identifier: GPL-2.0-only
//! Briefly, on this machine: programs work, take turns, and end.

use super::*;
use corun_model::time::MS;

/// Two threads of each program on one pCPU.
fn trial(program: Program, pcpus: usize) -> Trial {
    let online = crate::preflight::online().unwrap();
    Trial {
        subject: (program, 1),
        others: vec![program],
        pcpus: online.iter().take(pcpus).collect(),
        slice: 10 * MS,
        warm_up: 20 * MS,
        time: 300 * MS,
    }
}

#[test]
fn every_program_gets_something_done_and_ends() {
    if possible().is_err() {
        return; // an older kernel
    }
    for program in [Program::List(64 << 10), Program::Pages, Program::Spin] {
        let outcome = run(&trial(program, 1)).unwrap();
        assert!(outcome.time_per_work > 0.0, "{program:?}: {outcome:?}");
    }
    let both = run(&trial(Program::Spin, 2)).unwrap();
    assert!(both.time_per_work > 0.0, "{both:?}");
}

#[test]
fn threads_on_one_pcpu_take_turns() {
    if possible().is_err() {
        return; // an older kernel
    }
    let outcome = run(&trial(Program::List(64 << 10), 1)).unwrap();
    let sum: u64 = outcome.turns.iter().sum();
    assert!(outcome.turns.len() >= 4, "{:?}", outcome.turns);
    // One pCPU's time, less what others on this machine took and turns that were not whole.
    assert!(sum <= 330 * MS, "{:?}", outcome.turns);
}

#[test]
fn a_trial_without_pcpus_is_an_error() {
    let mut nowhere = trial(Program::Pages, 1);
    nowhere.pcpus.clear();
    assert!(run(&nowhere).unwrap_err().to_string().contains("no pCPUs"));
}
