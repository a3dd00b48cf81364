// SPDX-License-Identifier: GPL-2.0-only
//! Calibration's programs in real guests, briefly. Where KVM runs no guests, the test says so and passes.

// Test helpers, too, panic when an expectation fails.
#![allow(clippy::unwrap_used, clippy::panic)]

use corun_microvm::MachineError;
use corun_microvm::machine::{Ring, tsc_khz};
use corun_microvm::native::{Guest, Job, Running, TABLE};
use std::thread::sleep;
use std::time::{Duration, Instant};

fn guest(job: Job, vcpus: usize) -> Guest {
    Guest {
        job,
        vcpus,
        ring: Ring::User,
        gap: 1_000_000,
        per_us: 1_000,
    }
}

/// Runs the guest until every vCPU has done `work`.
fn run(guest: &Guest, work: u64) -> Result<Running, MachineError> {
    let running = guest.start(|_| Ok(()))?;
    let end = Instant::now() + Duration::from_secs(20);
    while (0..guest.vcpus).any(|vcpu| running.look(vcpu).work < work) {
        running.check()?;
        assert!(Instant::now() < end, "{guest:?} does not get on");
        sleep(Duration::from_millis(1));
    }
    Ok(running)
}

/// Can guests run here? If not, prints why.
fn possible() -> bool {
    let tried = run(&guest(Job::Measure { rounds: 100 }, 1), 1).and_then(Running::stop);
    match tried {
        Ok(()) => true,
        Err(error @ (MachineError::Stopped { .. } | MachineError::Stuck)) => panic!("{error}"),
        Err(error) => {
            eprintln!("skipped, this machine runs no guests: {error}");
            false
        }
    }
}

#[test]
fn every_program_works_and_stops() {
    if !possible() {
        return;
    }
    let circle = (0..1000).map(|line| (line + 1) % 1000).collect();
    let jobs = [
        (Job::List { next: circle }, 1),
        (
            Job::Pages {
                gaps: vec![100_000; TABLE],
            },
            1,
        ),
        (
            Job::Spin {
                rounds: vec![20_000; TABLE],
            },
            2,
        ),
    ];
    for (job, vcpus) in jobs {
        let running = run(&guest(job.clone(), vcpus), 3).unwrap();
        let seen = running.look(0);
        assert!(seen.last > 0);
        if let Job::Pages { .. } = job {
            assert!(seen.ticks > 0, "pages were waited for");
        }
        running.stop().unwrap();
    }
}

#[test]
fn programs_run_at_full_speed_in_ring_3() {
    if !possible() {
        return;
    }
    let rounds = 20_000;
    let running = run(&guest(Job::Measure { rounds }, 1), 20).unwrap();
    let ticks = running.look(0).ticks;
    running.stop().unwrap();
    // A round is two instructions: less than 10 ns on any processor, hundreds if they are emulated.
    let ns = ticks * 1_000_000 / u64::from(tsc_khz().unwrap());
    assert!(ns < rounds * 10, "{ns} ns for {rounds} rounds");
}

/// With the bound beyond any jump of the clock no turn is noted, with a bound of 0 one at every look.
#[test]
fn turns_are_noted_where_the_clock_jumps() {
    if !possible() {
        return;
    }
    let circle: Vec<u32> = (0..1000).map(|line| (line + 1) % 1000).collect();
    let with_gap = |gap| {
        let list = guest(
            Job::List {
                next: circle.clone(),
            },
            1,
        );
        let running = run(&Guest { gap, ..list }, 100_000).unwrap();
        let turns = (running.look(0).turns, running.turns(0, 2).len());
        running.stop().unwrap();
        turns
    };
    assert_eq!(with_gap(u64::MAX), (0, 0));
    let (noted, kept) = with_gap(0);
    assert!(noted > 100 && kept + 2 >= noted, "{noted} {kept}");
}

/// A guest that does something forbidden ends with a message.
#[test]
fn a_guest_that_crashes_says_so() {
    if !possible() {
        return;
    }
    // The guest's list leads out of its memory.
    let guest = guest(
        Job::List {
            next: vec![u32::MAX],
        },
        1,
    );
    let running = guest.start(|_| Ok(())).unwrap();
    let error = running.stop().unwrap_err().to_string();
    assert!(error.contains("vCPU 0: "), "{error}");
}

#[test]
fn a_thread_that_cannot_be_prepared_is_an_error() {
    if !possible() {
        return;
    }
    let guest = guest(Job::Measure { rounds: 1 }, 1);
    let running = guest
        .start(|_| Err(std::io::Error::other("no pCPU")))
        .unwrap();
    let error = running.stop().unwrap_err().to_string();
    assert!(error.contains("no pCPU"), "{error}");
}
