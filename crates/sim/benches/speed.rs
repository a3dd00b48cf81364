// SPDX-License-Identifier: GPL-2.0-only
//! How fast the simulator is: the run/sleep mix that other scheduler simulators are measured with.
//!
//! Each task computes about 0.2 ms and sleeps about 2.2 ms. One iteration simulates 100 ms; the
//! throughput criterion prints is in events. The event queue alone is the reference in the same
//! run: what a simulation costs beyond it is models and scheduling.

#![allow(clippy::expect_used)] // the input is ours

use corun_model::time::{MS, US};
use corun_model::{DispatcherParams, Topology};
use corun_sim::engine::EventQueue;
use corun_sim::host::{Costs, HardwareParams, HostParams};
use corun_sim::load::{Pattern, Patterns};
use corun_sim::sched::dispatcher::Dispatcher;
use corun_sim::{Outcome, Simulation};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;

fn mix(pcpus: u32, tasks: u32) -> Outcome {
    let topology = Topology::flat(pcpus).expect("a host of this size");
    let params = HostParams {
        topology,
        hz: 250,
        tick_skew: false,
        costs: Costs::default(),
        hardware: HardwareParams::default(),
    };
    let pattern = Pattern {
        run: 200 * US,
        sleep: 2_200 * US,
        ..Pattern::hog(None)
    };
    let load = Patterns::new(vec![pattern; tasks as usize], &[], 1);
    let sched = Dispatcher::new(DispatcherParams::default(), &params);
    Simulation::new(params, Box::new(sched), Box::new(load), None).run(0, 100 * MS, |_| {})
}

fn simulation(c: &mut Criterion) {
    let mut group = c.benchmark_group("run/sleep mix");
    for (pcpus, tasks) in [(8, 96), (48, 1000)] {
        let outcome = mix(pcpus, tasks);
        group.throughput(Throughput::Elements(outcome.events));
        let name = BenchmarkId::from_parameter(format!("{pcpus} pCPUs, {tasks} tasks"));
        group.bench_function(name, |b| b.iter(|| mix(black_box(pcpus), black_box(tasks))));
    }
    group.finish();
}

/// Pop and schedule again, with 1000 events pending.
fn event_queue(c: &mut Criterion) {
    let mut queue = EventQueue::default();
    (0..1000u64).for_each(|n| {
        queue.schedule(n * 7919 % 1000, n);
    });
    let mut group = c.benchmark_group("event queue");
    group.throughput(Throughput::Elements(1));
    group.bench_function("1000 pending", |b| {
        b.iter(|| {
            if let Some((at, event)) = queue.pop() {
                queue.schedule(at + 1 + event * 31 % 997, event);
            }
        });
    });
    group.finish();
}

criterion_group!(benches, simulation, event_queue);
criterion_main!(benches);
