// SPDX-License-Identifier: GPL-2.0-only
//! The host's side: competitors for CPUs, which stand for other VMs' vCPUs.
//!
//! One turn follows the other, on one CPU after the other. A turn lasts as long as specified, give or take half a
//! hundredth, so that nothing is in step by accident; every thread works out the same turns from the same start. On
//! other hosts' pCPUs turns do not end together, either: the second CPU's turns are some milliseconds late, so that
//! sometimes both CPUs are free for that long and sometimes both are taken.

use crate::system;
use anyhow::{Context, bail};
use serde::Serialize;
use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// The least real-time priority: QEMU's own threads get more.
const PRIORITY: libc::c_int = 1;
/// How late the turns of each further CPU are, as a part of a turn.
const LATE: u64 = 9;

#[derive(Default)]
struct Taken {
    turns: AtomicU64,
    time: AtomicU64,
}

#[derive(Serialize)]
struct Report {
    cpu: u64,
    turns: u64,
    taken_ns: u64,
}

/// Takes CPUs until standard input ends; reports for each line.
pub fn run(on: u64, cpus: &[u64]) -> anyhow::Result<()> {
    if !(1..=1000).contains(&on) {
        bail!("a turn of {on} ms: 1 to 1000 are accepted");
    }
    let start = system::now() + 10_000_000;
    let mut all = Vec::new();
    for (index, &cpu) in cpus.iter().enumerate() {
        let taken = Arc::new(Taken::default());
        all.push((cpu, Arc::clone(&taken)));
        let (index, count) = (index as u64, cpus.len() as u64);
        let (said, heard) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let ready = system::pin(cpu)
                .map_err(anyhow::Error::from)
                .and_then(|()| raise());
            let failed = ready.is_err();
            // The thread that waits for this still exists.
            let _ = said.send(ready);
            if !failed {
                take(index, count, start, on * 1_000_000, &taken);
            }
        });
        heard.recv()??;
    }
    for line in std::io::stdin().lock().lines() {
        line?;
        let report = |(cpu, taken): &(u64, Arc<Taken>)| Report {
            cpu: *cpu,
            turns: taken.turns.load(Ordering::Relaxed),
            taken_ns: taken.time.load(Ordering::Relaxed),
        };
        let reports: Vec<_> = all.iter().map(report).collect();
        println!("{}", serde_json::to_string(&reports)?);
    }
    Ok(())
}

fn raise() -> anyhow::Result<()> {
    let param = libc::sched_param {
        sched_priority: PRIORITY,
    };
    // SAFETY: `param` is readable; the calling thread only.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()).context("no real-time priority (not root?)"),
    }
}

/// The turns of the CPU that is the `index`-th of `count`.
fn take(index: u64, count: u64, start: u64, on: u64, taken: &Taken) {
    let (mut begin, mut chance) = (start, 1u64);
    for turn in 0u64.. {
        chance = chance
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let end = begin + on - on / 200 + (chance >> 33) % (on / 100 + 1);
        if turn % count == index {
            let late = index * on / LATE;
            system::sleep_until(begin + late);
            let since = system::now();
            while system::now() < end + late {
                std::hint::spin_loop();
            }
            taken.turns.fetch_add(1, Ordering::Relaxed);
            taken
                .time
                .fetch_add(system::now() - since, Ordering::Relaxed);
        }
        begin = end;
    }
}
