// SPDX-License-Identifier: GPL-2.0-only
//! CFS with real-time VMs: how the balance-scheduling paper imitates co-scheduling.
//!
//! Sukwong & Kim, EuroSys 2011, Appendix B, compare their dynamic time-slice co-scheduling with "the
//! co-scheduling in \[Ousterhout1982\]", which they mimic "by changing vCPUs' scheduling class from
//! SCHED_OTHER (CFS) to SCHED_RR (RT scheduling) with the priority of 20". So the vCPUs of VMs that
//! are [`VmInfo::realtime`] go before all others, one per pCPU as long as there is room, until their
//! share of each period is spent; all other tasks are under [`cfs`](crate::sched::cfs).
//!
//! A model of Linux 2.6.32 and 2.6.33, `kernel/sched_rt.c`: [`queues`] has the runqueues and how
//! tasks move between them, [`bandwidth`] the throttling. All real-time tasks have one priority.
//! CFS's balancing considers pCPUs slower by the time that real-time tasks had of them
//! (`scale_rt_power()`). Left out: that the placing of a new CFS task does so, too, and that a
//! woken real-time task bound to one pCPU may push the current one to another
//! (`check_preempt_equal_prio()`).

mod bandwidth;
mod params;
mod queues;
#[cfg(test)]
mod tests;

pub use params::{RrParams, parameters};

use super::cfs::{CfsOrder, CfsParams, fair};
use super::fair::Fair;
use crate::host::{Host, HostParams};
use crate::load::{Cgroups, VmInfo};
use crate::sched::HostScheduler;
use bandwidth::Bandwidth;
use corun_model::{Nanos, PcpuId, TaskId};
use queues::Queues;

/// The token of the timer that begins periods; pCPUs' numbers are CFS's tokens.
const PERIOD: u64 = u64::MAX;

/// A host that runs CFS, and SCHED_RR for VMs that are to be co-scheduled.
pub struct Rr {
    fair: Fair<CfsOrder>,
    queues: Queues,
    bandwidth: Bandwidth,
    vms: Vec<bool>,
    timer_set: bool,
}

impl Rr {
    /// CFS and SCHED_RR with these settings on this host.
    pub fn new(params: RrParams, cfs: CfsParams, host: &HostParams) -> Self {
        let params = params.bounded();
        let pcpus = host.topology.pcpus() as usize;
        let tick = 1_000_000_000 / Nanos::from(host.hz.clamp(1, 10_000));
        Self {
            fair: fair(cfs, host),
            queues: Queues::new(host.topology, (params.slice / tick).max(1)),
            bandwidth: Bandwidth::new(&params, pcpus),
            vms: Vec::new(),
            timer_set: false,
        }
    }

    /// Charges the real-time task that has `cpu` (`update_curr_rt()`). True if it has to make way.
    fn charge(&mut self, cpu: PcpuId, now: Nanos) -> bool {
        match self.queues.charge(cpu, now) {
            Some(time) => {
                self.fair.book_above(cpu, time, now);
                self.bandwidth.spend(cpu, time)
            }
            None => false,
        }
    }

    /// Puts `task` on the runqueue of `cpu`.
    fn join(&mut self, host: &mut Host, task: TaskId, cpu: PcpuId) {
        self.queues.join(task, cpu);
        self.fair.above(cpu, true);
        host.queue_on(task, cpu);
        if !self.timer_set {
            self.timer_set = true;
            self.set_period_timer(host);
        }
    }

    fn leave(&mut self, task: TaskId, cpu: PcpuId) {
        self.queues.leave(task, cpu);
        self.fair.above(cpu, false);
    }

    fn shift(&mut self, host: &mut Host, task: TaskId, from: PcpuId, to: PcpuId) {
        self.leave(task, from);
        self.join(host, task, to);
    }

    fn set_period_timer(&self, host: &mut Host) {
        let period = self.bandwidth.period();
        host.sched_timer((host.now() / period + 1) * period, PERIOD);
    }

    /// Gives tasks that wait behind another real-time task to pCPUs without any (`push_rt_tasks()`).
    fn push(&mut self, host: &mut Host, cpu: PcpuId) {
        while let Some((task, to)) = self.queues.pushable(cpu) {
            self.shift(host, task, cpu, to);
            host.resched(to, Some(cpu));
        }
    }

    /// The last real-time task of `cpu` has gone: takes tasks that wait behind a real-time task
    /// elsewhere (`pull_rt_task()`).
    fn pull(&mut self, host: &mut Host, cpu: PcpuId) {
        for from in host.all_pcpus() {
            // Once there is one here, others are no more urgent than it.
            if !self.queues.is_empty(cpu) {
                break;
            }
            if let Some(task) = self.queues.pullable(from, cpu) {
                self.shift(host, task, from, cpu);
            }
        }
    }

    fn begin_period(&mut self, host: &mut Host) {
        let mut busy = false;
        for cpu in host.all_pcpus() {
            let ready = !self.queues.is_empty(cpu);
            if self.bandwidth.begin_period(cpu) && ready {
                host.resched(cpu, None);
            }
            busy |= ready || self.bandwidth.spent(cpu) > 0;
        }
        self.timer_set = busy;
        if busy {
            self.set_period_timer(host);
        }
    }
}

impl HostScheduler for Rr {
    fn know_vms(&mut self, vms: &[VmInfo]) {
        self.vms = vms.iter().map(|vm| vm.realtime).collect();
        self.fair.know_vms(vms);
    }

    fn know_cgroups(&mut self, groups: &Cgroups) {
        self.fair.know_cgroups(&groups.weights_only());
    }

    fn add(&mut self, host: &mut Host, task: TaskId) {
        let known = host.task(task);
        let vm = known.vm().and_then(|vm| self.vms.get(vm.index()));
        // A VM's helpers, such as iothreads, are no vCPUs: they keep their class.
        let realtime = known.spec.vcpu.is_some() && vm.copied().unwrap_or(false);
        let (allowed, last) = (known.spec.allowed, known.spec.last_on);
        self.queues.add(realtime, allowed, last);
        self.fair.add(host, task);
    }

    fn wake(&mut self, host: &mut Host, task: TaskId, waker: Option<PcpuId>) {
        if !self.queues.is_realtime(task) {
            return self.fair.wake(host, task, waker);
        }
        let cpu = match self.queues.last(task) {
            // Threads are created under CFS.
            None => self.fair.place_as_new(task, waker, host.now()),
            Some(last) => self.queues.place(task, last, waker.unwrap_or(last)),
        };
        self.join(host, task, cpu);
        if self.queues.current(cpu).is_none() {
            if !self.bandwidth.is_throttled(cpu) {
                host.resched(cpu, waker);
            }
        } else {
            self.push(host, cpu);
        }
    }

    fn block(&mut self, host: &mut Host, task: TaskId, cpu: PcpuId) {
        if !self.queues.is_realtime(task) {
            return self.fair.block(host, task, cpu);
        }
        self.charge(cpu, host.now());
        self.leave(task, cpu);
    }

    fn pick(&mut self, host: &mut Host, cpu: PcpuId) -> Option<TaskId> {
        let now = host.now();
        self.charge(cpu, now);
        if self.queues.had_pcpu(cpu) && self.queues.is_empty(cpu) {
            self.pull(host, cpu);
        }
        let next = match self.bandwidth.is_throttled(cpu) {
            true => None,
            false => self.queues.first(cpu),
        };
        self.queues.set_current(cpu, next, now);
        match next {
            Some(_) => {
                self.fair.step_aside(host, cpu);
                self.push(host, cpu);
                next
            }
            None => self.fair.pick(host, cpu),
        }
    }

    fn tick(&mut self, host: &mut Host, cpu: PcpuId) {
        if self.queues.current(cpu).is_some() {
            let over = self.charge(cpu, host.now());
            if self.queues.tick(cpu) || over {
                host.resched(cpu, Some(cpu));
            }
        }
        self.fair.tick(host, cpu);
    }

    fn timer(&mut self, host: &mut Host, token: u64) {
        match token {
            PERIOD => self.begin_period(host),
            _ => self.fair.timer(host, token),
        }
    }

    fn directs_yields(&self) -> bool {
        self.fair.directs_yields()
    }

    fn yield_pcpu(
        &mut self,
        host: &mut Host,
        task: TaskId,
        cpu: PcpuId,
        to: Option<TaskId>,
    ) -> bool {
        let classes = [Some(task), to].map(|task| task.map(|task| self.queues.is_realtime(task)));
        match classes {
            [Some(false), Some(false) | None] => self.fair.yield_pcpu(host, task, cpu, to),
            // The real-time class has no `yield_to_task`, and no task yields to another class.
            [_, Some(_)] => false,
            [_, None] => {
                if self.queues.rotate(cpu) {
                    host.resched(cpu, Some(cpu));
                }
                true
            }
        }
    }
}
