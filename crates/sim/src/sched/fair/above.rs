// SPDX-License-Identifier: GPL-2.0-only
//! What the fair class is told about a higher class ([`rr`](crate::sched::rr)) that uses its pCPUs.

use super::{Fair, Order};
use crate::host::Host;
use corun_model::{Nanos, PcpuId};

impl<O: Order> Fair<O> {
    /// A task of a higher class joined the pCPU's runqueue, or left it.
    pub(crate) fn above(&mut self, cpu: PcpuId, joins: bool) {
        let rq = self.books.rq_mut(cpu);
        let old = rq.above;
        rq.above = match joins {
            true => old + 1,
            false => old.saturating_sub(1),
        };
        if rq.above != old {
            self.crowd(cpu, joins);
        }
    }

    /// A higher class had `cpu` for `time` until now.
    pub(crate) fn book_above(&mut self, cpu: PcpuId, time: Nanos, now: Nanos) {
        self.shared_above = true;
        self.books.rq_mut(cpu).book_above(time, now);
    }

    /// A higher class has `cpu` from now on; the current task waits until the pCPU comes back.
    pub(crate) fn step_aside(&mut self, host: &mut Host, cpu: PcpuId) {
        let now = host.now();
        self.update(cpu, now);
        if let Some(target) = self.books.rq_mut(cpu).push_to.take() {
            self.push_one(host, cpu, target);
        }
        if self.books.rq(cpu).current.is_some() {
            self.set_current(cpu, None, now);
        }
        self.end_idling(cpu, now);
        self.set_stop_timer(host, cpu);
        self.check(cpu);
    }
}
