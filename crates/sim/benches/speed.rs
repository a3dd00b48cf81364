// SPDX-License-Identifier: GPL-2.0-only
//! How fast the simulator is, with criterion's statistics; `corun bench` measures the same cases.
//!
//! Throughput is in events. Each group ends with the cost of its cases in turns of the bare event
//! queue, timed in the same rounds: that can be compared between machines.

#![allow(clippy::expect_used)] // the cases are ours

use corun_sim::bench::{self, BareQueue, Case, PENDING};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn cases(c: &mut Criterion, name: &str, cases: &[Case]) {
    let mut group = c.benchmark_group(name);
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(3));
    for case in cases {
        let outcome = case.run().expect("a valid case");
        group.throughput(Throughput::Elements(outcome.events));
        group.bench_function(BenchmarkId::from_parameter(&case.name), |b| {
            b.iter(|| case.run().expect("a valid case"));
        });
    }
    group.finish();
    for case in cases {
        let measured = bench::measure(case, 5).expect("a valid case");
        println!(
            "{}: {:.2} turns of the bare queue per event, {:.2} M switches/s, {:.2} s simulated per s",
            case.name,
            measured.ratio_to_bare(),
            measured.switches_per_s() / 1e6,
            case.length as f64 / 1e9 / measured.seconds(),
        );
    }
}

fn simulation(c: &mut Criterion) {
    cases(c, "run/sleep mix", &bench::mixes());
    cases(c, "scaling", &bench::scaling());
    cases(c, "two-level host", &bench::two_level());
}

/// Pop and schedule again.
fn event_queue(c: &mut Criterion) {
    let mut queue = BareQueue::new(PENDING);
    let mut group = c.benchmark_group("event queue");
    group.throughput(Throughput::Elements(1));
    group.bench_function(format!("{PENDING} pending"), |b| b.iter(|| queue.turn(1)));
    group.finish();
}

/// Several policies and seeds, on one thread and on two.
fn sweep(c: &mut Criterion) {
    let cases = bench::sweep();
    let mut group = c.benchmark_group("sweep");
    group.sample_size(10);
    for threads in [1, 2] {
        group.bench_function(BenchmarkId::new("threads", threads), |b| {
            b.iter(|| {
                let next = AtomicUsize::new(0);
                let work = || {
                    while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                        case.run().expect("a valid case");
                    }
                };
                std::thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(work)));
            });
        });
    }
    group.finish();
}

criterion_group!(benches, event_queue, simulation, sweep);
criterion_main!(benches);
