// SPDX-License-Identifier: GPL-2.0-only
//! What the control loops of the policies with most to decide cost: one decision for a host of 512 vCPUs on 128
//! pCPUs, all of their parts at work. At a period of 100 ms, Jupiter's and vSMT-IO's, half a per cent of a
//! pCPU is 500 µs; at AQL_Sched's 30 ms, 150 µs.

#![allow(clippy::expect_used)] // the host is ours

use corun_policies::bench::{ControlLoop, VMS};
use corun_policies::find;
use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;

fn decisions(c: &mut Criterion) {
    for policy in ["jupiter", "vsmtio", "aql"] {
        let info = find(policy).expect("a policy of ours");
        let mut host = ControlLoop::new(info, VMS).expect("a host of 128 pCPUs");
        // Whatever is only done at first is over.
        for _ in 0..100 {
            black_box(host.decide());
        }
        c.bench_function(&format!("{policy}, 512 vCPUs on 128 pCPUs"), |b| {
            b.iter(|| black_box(host.decide()));
        });
    }
}

criterion_group!(benches, decisions);
criterion_main!(benches);
