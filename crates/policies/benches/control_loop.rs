// SPDX-License-Identifier: GPL-2.0-only
//! What Jupiter's control loop costs: one decision for a host of 512 vCPUs on 128 pCPUs, all of its
//! parts at work. At a period of 100 ms, half a per cent of a pCPU is 500 µs.

#![allow(clippy::expect_used)] // the host is ours

use corun_model::time::MS;
use corun_model::{
    Doing, HostSeen, PcpuId, PcpuSet, Plan, Signals, Snapshot, TaskId, TaskSeen, Topology, Turns,
    VmId, VmSeen,
};
use corun_policies::{Settings, find};
use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;

const PCPUS: u32 = 128;
const VMS: u32 = 32;
const VCPUS: u32 = 16;

/// A vCPU of a VM that computes, that synchronises, or that waits for requests.
fn vcpu(vm: u32, number: u32, period: u64) -> TaskSeen {
    let task = vm * VCPUS + number;
    // Never twice the same, so that every part has something to do.
    let varies = u64::from((task * 7919 + period as u32 * 104_729) % 10);
    let (used, doing) = match vm % 3 {
        0 => (25, Doing::Ready),
        1 => (10 + varies, Doing::Running),
        _ => (5 + varies / 2, Doing::Waiting),
    };
    let sibling = vm * VCPUS + (number + 1) % VCPUS;
    TaskSeen {
        task: TaskId(task),
        allowed: PcpuSet::first(PCPUS),
        run: used * MS,
        ready: 40 * MS,
        wait: (60 - used) * MS,
        turns: Turns {
            doing,
            cpu: Some(PcpuId(task % PCPUS)),
            depleted: if vm.is_multiple_of(3) { 8 } else { 0 },
            preempted: varies,
            late: varies / 3,
            wakeups: 50,
            wakers: vec![TaskId(sibling)],
            ..Turns::default()
        },
        signals: Signals::default(),
    }
}

fn snapshot(period: u64) -> Snapshot {
    let vm = |vm| VmSeen {
        vm: VmId(vm),
        weight: None,
        cookie: 0,
        vcpus: (0..VCPUS).map(|number| vcpu(vm, number, period)).collect(),
    };
    Snapshot {
        now: period * 100 * MS,
        host: HostSeen::of(Topology::flat(PCPUS).expect("a host of 128 pCPUs")),
        vms: (0..VMS).map(vm).collect(),
    }
}

fn decisions(c: &mut Criterion) {
    let info = find("jupiter").expect("a policy of ours");
    let mut policy = (info.make)(&Settings::default());
    let mut seen: Vec<Snapshot> = (0..16).map(snapshot).collect();
    let mut period = 0;
    c.bench_function("jupiter, 512 vCPUs on 128 pCPUs", |b| {
        b.iter(|| {
            let at = (period % 16) as usize;
            seen[at].now = period * 100 * MS;
            period += 1;
            let mut plan = Plan::default();
            policy.decide(&seen[at], &mut plan);
            black_box(plan)
        });
    });
}

criterion_group!(benches, decisions);
criterion_main!(benches);
