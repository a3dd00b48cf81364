// SPDX-License-Identifier: GPL-2.0-only
//! What a guest kernel is like. One struct, each value with its unit, default and source; nothing
//! here is tuned per experiment.

use super::NetParams;
use corun_model::Nanos;
use corun_model::time::{MS, US};

/// How kernel spin locks are passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Test-and-set: a waiter that spins on a pCPU at the moment of the release gets it, chosen at
    /// random; if none does, the first that comes. Linux until 2.6.24, and its fall-back on
    /// hypervisors without paravirtual locks since 4.3 (`virt_spin_lock`).
    Unfair,
    /// Strictly first come, first served, even if the next one's vCPU is descheduled. Linux
    /// 2.6.25–4.1 (ticket locks).
    Ticket,
    /// Queued; waiters halt their vCPU after `pv_spin` and the releaser kicks the first. While the
    /// first is not running, newcomers may take the free lock. Linux since 4.2 as a KVM guest
    /// (`qspinlock_paravirt.h`).
    Paravirtual,
}

/// A guest kernel and what its work costs, ns unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestParams {
    /// Timer ticks per second of a busy vCPU, 1–10000; an idle one has none. 250: Debian and Ubuntu
    /// (`CONFIG_HZ`); Fedora has 1000.
    pub hz: u32,
    /// A tick: exit for the timer, injection, handler, exit to arm the next. 4 us: three exits of
    /// 0.7 us (kvm-unit-tests `vmexit`, 2000 cycles) and a 2 us handler.
    pub tick: Nanos,
    /// Receiving a reschedule IPI, kick or sleep timer. 2 us: one exit and injection and 1 us in
    /// the handler.
    pub interrupt: Nanos,
    /// Sending an IPI: the exit of the write to the APIC. 1.5 us: kvm-unit-tests `ipi`, 3000–5000
    /// cycles.
    pub ipi: Nanos,
    /// From one guest thread to another. 1.5 us: lmbench `lat_ctx` on x86, 1–2 us.
    pub thread_switch: Nanos,
    /// How late sleeps may end. 50 us: `PR_SET_TIMERSLACK`'s default.
    pub timer_slack: Nanos,
    /// Time in which each runnable thread of a vCPU should run once, for one vCPU; multiplied by
    /// 1 + log2(vCPUs, 8 at most) as the kernel does. 6 ms: `sched_latency_ns` of CFS.
    pub latency: Nanos,
    /// The least slice, scaled likewise. 0.75 ms: `sched_min_granularity_ns`.
    pub min_granularity: Nanos,
    /// How far behind in virtual time a woken thread must be to preempt, scaled likewise. 1 ms:
    /// `sched_wakeup_granularity_ns`.
    pub wakeup_granularity: Nanos,
    /// Kind of kernel spin locks. Paravirtual: today's distributions on KVM.
    pub lock: LockKind,
    /// Spinning before a paravirtual waiter halts. 150 us: `SPIN_THRESHOLD`, 2^15 rounds of some 12
    /// cycles (PAUSE before Skylake) at 2.6 GHz.
    pub pv_spin: Nanos,
    /// Spinning after which the CPU leaves the guest and the host lets others go first (PLE), at
    /// least 100 ns. `None`: the CPUs of the balance paper had none. Intel's default window is 4096 cycles.
    pub ple_window: Option<Nanos>,
    /// Its network path.
    pub net: NetParams,
}

impl Default for GuestParams {
    fn default() -> Self {
        Self {
            hz: 250,
            tick: 4 * US,
            interrupt: 2 * US,
            ipi: 1_500,
            thread_switch: 1_500,
            timer_slack: 50 * US,
            latency: 6 * MS,
            min_granularity: 750 * US,
            wakeup_granularity: MS,
            lock: LockKind::Paravirtual,
            pv_spin: 150 * US,
            ple_window: None,
            net: NetParams::default(),
        }
    }
}

/// The longest time any parameter may be: nothing in a kernel costs a second.
const MOST: Nanos = 1_000 * MS;

/// The most receive queues: one per vCPU of a large VM.
const MOST_QUEUES: u32 = 512;

/// The shortest PLE window: a few PAUSEs; below, a simulation would do nothing but exits.
const SHORTEST_PLE: Nanos = 100;

impl GuestParams {
    /// What is wrong with them, if anything.
    pub(super) fn fault(&self) -> Option<String> {
        if !(1..=10_000).contains(&self.hz) {
            return Some(format!("hz is {}; accepted: 1 to 10000", self.hz));
        }
        if let Some(window) = self.ple_window.filter(|window| *window < SHORTEST_PLE) {
            return Some(format!(
                "ple_window is {window} ns; accepted: at least {SHORTEST_PLE} ns, or none"
            ));
        }
        if !(1..=MOST_QUEUES).contains(&self.net.queues) {
            let queues = self.net.queues;
            return Some(format!(
                "net_queues is {queues}; accepted: 1 to {MOST_QUEUES}"
            ));
        }
        let times = [
            ("tick", self.tick),
            ("interrupt", self.interrupt),
            ("ipi", self.ipi),
            ("thread_switch", self.thread_switch),
            ("timer_slack", self.timer_slack),
            ("latency", self.latency),
            ("min_granularity", self.min_granularity),
            ("wakeup_granularity", self.wakeup_granularity),
            ("pv_spin", self.pv_spin),
            ("ple_window", self.ple_window.unwrap_or(0)),
            ("net_packet", self.net.packet),
            ("net_copy", self.net.copy),
            ("net_kick", self.net.kick),
        ];
        let (name, value) = times.into_iter().find(|(_, value)| *value > MOST)?;
        Some(format!("{name} is {value} ns; accepted: at most 1 s"))
    }

    /// Time between two ticks.
    pub(super) fn tick_period(&self) -> Nanos {
        1_000_000_000 / Nanos::from(self.hz)
    }

    /// The same with the scheduler's times scaled for so many vCPUs.
    pub(super) fn scaled(mut self, vcpus: u32) -> Self {
        let factor = 1 + Nanos::from(vcpus.clamp(1, 8).ilog2());
        self.latency *= factor;
        self.min_granularity *= factor;
        self.wakeup_granularity *= factor;
        self
    }
}
