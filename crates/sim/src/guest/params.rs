// SPDX-License-Identifier: GPL-2.0-only
//! What a guest kernel is like. One struct, each value with its unit, default and source; nothing
//! here is tuned per experiment.

use super::{Agent, IdleMode, NetParams, PleFavours, TlbFlush};
use corun_model::guests::SHORTEST_PLE;
use corun_model::time::{MS, US};
use corun_model::{Nanos, Parameter, Value};

/// How kernel spin locks are passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Test-and-set: one of the waiters that spin on a pCPU at the moment of the release gets the
    /// lock, chosen at random; if none spins, the first that comes. Linux until 2.6.24, and its
    /// fall-back on hypervisors without paravirtual locks since 4.3 (`virt_spin_lock`).
    Unfair,
    /// Strictly first come, first served, even if the next waiter's vCPU is descheduled. Linux
    /// 2.6.25–4.1 (ticket locks).
    Ticket,
    /// Queued; waiters halt their vCPU after `pv_spin` and the releaser kicks the first. From when the first waiter has
    /// halted until it spins again, newcomers do not queue: they spin until they have the lock.
    /// Linux since 4.15 as a KVM guest (`qspinlock_paravirt.h`; from 4.2 on newcomers tried once, and queued).
    Paravirtual,
}

impl LockKind {
    /// Every kind by the name that scenarios use.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("ticket", Self::Ticket),
        ("unfair", Self::Unfair),
        ("paravirtual", Self::Paravirtual),
    ];

    /// What scenarios call it.
    pub fn name(self) -> &'static str {
        let found = Self::NAMES.iter().find(|(_, kind)| *kind == self);
        found.map_or("", |(name, _)| name)
    }
}

/// Which vCPU gets a disk's interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockIrq {
    /// The one that issued the request: a queue per vCPU (QEMU's default since 5.2).
    Issuer,
    /// vCPU 0: a single queue with its interrupt where guests without irqbalance leave it.
    Vcpu0,
    /// vCPU 0, which does nothing else: threads are there only if they are bound to it, nor does vMigrater
    /// use it. The published vMigrater expects that of its guests ("vCPU 0 is dedicated to handle all the
    /// interrupts", src/main.c of github.com/hku-systems/vMigrater).
    Reserved,
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
    /// A futex call that neither sleeps nor wakes. 300 ns: measured on Linux 6.18 on an AMD EPYC with its
    /// mitigations, `FUTEX_WAIT` for another value and `FUTEX_WAKE` without waiters 0.3-0.45 us.
    pub futex: Nanos,
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
    /// How it makes other vCPUs flush their TLBs. Paravirtual: today's distributions on KVM.
    pub tlb_flush: TlbFlush,
    /// Flushing a TLB when asked to, on top of the interrupt. 0.5 us: a CR3 write and the refills
    /// that follow (assumed; KVM's own flush benchmarks show the same order).
    pub flush: Nanos,
    /// What its idle vCPUs do.
    pub idle: IdleMode,
    /// How long a vCPU spins in the kernel before the CPU leaves the guest and the host lets a sibling or others go
    /// first (PLE), at least 100 ns. `None`: the CPUs of the balance paper had no PLE. Intel's default
    /// window is 4096 cycles.
    pub ple_window: Option<Nanos>,
    /// The factor by which KVM widens that window with each such exit, 1–100, until the vCPU is scheduled anew
    /// (`ple_window_grow`: 2 since Linux 3.18). 1: fixed, as before, and as in Xen.
    pub ple_grow: u32,
    /// Which vCPUs KVM then lets go first. Default: the rule since Linux 5.13 on Intel's CPUs with
    /// APICv.
    pub ple_favours: PleFavours,
    /// Which vCPU gets a disk's interrupts. The issuer: QEMU since 5.2.
    pub block_irq: BlockIrq,
    /// A request to the disk: 2.5 us in file system, block layer and driver (about half of what
    /// `null_blk` takes for 4 KiB, both ways) and 1.5 us for the exit of the kick.
    pub block_submit: Nanos,
    /// A read that the page cache answers, without the copying. 500 ns: a system call and the
    /// look-up (lmbench: `read` of a byte, 0.2–0.5 us).
    pub cached_read: Nanos,
    /// Copying 1 KiB out of the page cache. 100 ns: 10 GB/s, one core's copy rate.
    pub copy_kib: Nanos,
    /// Bytes of a read-ahead window, a multiple of 4 KiB up to 1 GiB. 128 KiB: `read_ahead_kb`.
    pub read_ahead: u64,
    /// Its network path.
    pub net: NetParams,
    /// What it runs against I/O inactivity. Default: nothing.
    pub agent: Option<Agent>,
    /// Is vMigrater told how long each vCPU was kept from a pCPU (KVM's steal time)? Default: no, the paper goes by
    /// heartbeats alone.
    pub steal_time: bool,
}

impl Default for GuestParams {
    fn default() -> Self {
        Self {
            hz: 250,
            tick: 4 * US,
            interrupt: 2 * US,
            ipi: 1_500,
            thread_switch: 1_500,
            futex: 300,
            timer_slack: 50 * US,
            latency: 6 * MS,
            min_granularity: 750 * US,
            wakeup_granularity: MS,
            lock: LockKind::Paravirtual,
            pv_spin: 150 * US,
            tlb_flush: TlbFlush::Paravirtual,
            flush: 500,
            idle: IdleMode::Halt,
            ple_window: None,
            ple_grow: 1,
            ple_favours: PleFavours::Interrupted,
            block_irq: BlockIrq::Issuer,
            block_submit: 4 * US,
            cached_read: 500,
            copy_kib: 100,
            read_ahead: 128 << 10,
            net: NetParams::default(),
            agent: None,
            steal_time: false,
        }
    }
}

/// The guest's parameters of reading and writing.
pub fn block_parameters() -> Vec<Parameter> {
    let default = GuestParams::default();
    let entry =
        |key, meaning, value, source| Parameter::new(key, meaning, value, source, "not varied");
    vec![
        entry(
            "vm.*.guest.block_submit",
            "issuing a request to the disk, kick included",
            Value::Time(default.block_submit),
            "assumed: half of null_blk's time for 4 KiB, and an exit",
        ),
        entry(
            "vm.*.guest.cached_read",
            "a read that the page cache answers",
            Value::Time(default.cached_read),
            "lmbench read, 0.2-0.5 us",
        ),
        entry(
            "vm.*.guest.copy_kib",
            "copying 1 KiB from the page cache",
            Value::Time(default.copy_kib),
            "assumed: 10 GB/s, one core's copy rate",
        ),
        entry(
            "vm.*.guest.read_ahead",
            "window of sequential reads",
            Value::Bytes(default.read_ahead),
            "Linux' read_ahead_kb",
        ),
    ]
}

/// The longest time any parameter may be: nothing in a kernel costs a second.
const MOST: Nanos = 1_000 * MS;

/// The most receive queues: one per vCPU of a large VM.
const MOST_QUEUES: u32 = 512;

/// The most by which the window may grow at once.
const MOST_GROWTH: u32 = 100;

/// The shortest heartbeat; with a shorter one, a vCPU would do nothing else.
const SHORTEST_BEAT: Nanos = 50 * US;

impl GuestParams {
    /// What is wrong with the parameters, if anything.
    pub(super) fn fault(&self) -> Option<String> {
        if !(1..=10_000).contains(&self.hz) {
            return Some(format!("hz is {}; accepted: 1 to 10000", self.hz));
        }
        if let Some(window) = self.ple_window.filter(|window| *window < SHORTEST_PLE) {
            return Some(format!(
                "ple_window is {window} ns; accepted: at least {SHORTEST_PLE} ns, or none"
            ));
        }
        if !(1..=MOST_GROWTH).contains(&self.ple_grow) {
            let grow = self.ple_grow;
            return Some(format!("ple_grow is {grow}; accepted: 1 to {MOST_GROWTH}"));
        }
        let retention = match self.idle {
            IdleMode::Retention(limit) => limit,
            IdleMode::Halt | IdleMode::Poll | IdleMode::Told => 0,
        };
        if !(1..=MOST_QUEUES).contains(&self.net.queues) {
            let queues = self.net.queues;
            return Some(format!(
                "net_queues is {queues}; accepted: 1 to {MOST_QUEUES}"
            ));
        }
        let windows = 4096..=1 << 30;
        if !windows.contains(&self.read_ahead) || !self.read_ahead.is_multiple_of(4096) {
            return Some(format!(
                "read_ahead is {} bytes; accepted: multiples of 4 KiB up to 1 GiB",
                self.read_ahead
            ));
        }
        match self.agent {
            Some(Agent::VMigrater(params)) if params.heartbeat < SHORTEST_BEAT => {
                return Some(format!(
                    "heartbeat is {} ns; accepted: at least {SHORTEST_BEAT} ns",
                    params.heartbeat
                ));
            }
            Some(Agent::XBalloon(params)) if params.period == 0 => {
                return Some("xBalloon's period is 0; accepted: more".to_owned());
            }
            _ => {}
        }
        let times = [
            ("block_submit", self.block_submit),
            ("cached_read", self.cached_read),
            ("copy_kib", self.copy_kib),
            ("tick", self.tick),
            ("interrupt", self.interrupt),
            ("ipi", self.ipi),
            ("thread_switch", self.thread_switch),
            ("futex", self.futex),
            ("timer_slack", self.timer_slack),
            ("latency", self.latency),
            ("min_granularity", self.min_granularity),
            ("wakeup_granularity", self.wakeup_granularity),
            ("pv_spin", self.pv_spin),
            ("ple_window", self.ple_window.unwrap_or(0)),
            ("flush", self.flush),
            ("idle (retention)", retention),
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

    /// The first of so many vCPUs that threads may be on without being bound to it.
    pub(super) fn first_vcpu(&self, vcpus: u32) -> u32 {
        u32::from(self.block_irq == BlockIrq::Reserved && vcpus > 1)
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

/// A guest kernel's parameters.
pub fn parameters() -> Vec<Parameter> {
    let default = GuestParams::default();
    let mut all = work(&default);
    all.extend(scheduling(&default));
    all.extend(locks(&default));
    all
}

fn time(
    key: &'static str,
    meaning: &'static str,
    value: Nanos,
    source: &'static str,
    tried: &'static str,
) -> Parameter {
    Parameter::new(key, meaning, Value::Time(value), source, tried)
}

/// What a guest kernel does by itself, and what that costs.
fn work(default: &GuestParams) -> Vec<Parameter> {
    vec![
        Parameter {
            key: "vm.*.guest.hz",
            meaning: "timer ticks of a busy vCPU; an idle one has none",
            value: Value::Number(f64::from(default.hz), "/s"),
            source: "`CONFIG_HZ` of Debian and Ubuntu; Fedora has 1000",
            tried: "100, 250, 1000 on experiments/example.toml",
        },
        time(
            "vm.*.guest.tick",
            "a tick: exit for the timer, injection, handler, exit to arm the next",
            default.tick,
            "three exits of 0.7 µs (kvm-unit-tests `vmexit`, 2000 cycles) and a handler of 2 µs",
            "1 to 20 µs on experiments/example.toml",
        ),
        time(
            "vm.*.guest.interrupt",
            "receiving a reschedule IPI, kick or sleep timer",
            default.interrupt,
            "one exit and injection, and 1 µs in the handler",
            "0.5 to 8 µs on experiments/example.toml",
        ),
        time(
            "vm.*.guest.ipi",
            "sending an IPI: the exit of the write to the APIC",
            default.ipi,
            "kvm-unit-tests `ipi`: 3000-5000 cycles",
            "0.5 to 6 µs on experiments/example.toml",
        ),
        time(
            "vm.*.guest.thread_switch",
            "from one guest thread to another",
            default.thread_switch,
            "lmbench `lat_ctx` on x86: 1-2 µs",
            "0.5 to 6 µs on experiments/example.toml",
        ),
        time(
            "vm.*.guest.futex",
            "a futex call that neither sleeps nor wakes; a waiter also takes this long to fall asleep",
            default.futex,
            "measured: 0.3-0.45 µs (Linux 6.18, AMD EPYC, with mitigations)",
            "100 to 1200 ns on experiments/example.toml, its locks as mutexes",
        ),
        time(
            "vm.*.guest.timer_slack",
            "how late sleeps end",
            default.timer_slack,
            "default of `PR_SET_TIMERSLACK`",
            "0 to 200 µs on experiments/example.toml",
        ),
    ]
}

/// The guest's scheduler.
fn scheduling(default: &GuestParams) -> Vec<Parameter> {
    vec![
        time(
            "vm.*.guest.latency",
            "time in which each runnable thread of a vCPU runs once; scaled by 1 + log2(min(vCPUs, 8)), a set value, \
             too",
            default.latency,
            "CFS: `sched_latency_ns` (kernel/sched/fair.c until 6.5)",
            "3 to 24 ms on experiments/example.toml",
        ),
        time(
            "vm.*.guest.min_granularity",
            "the least slice, scaled likewise",
            default.min_granularity,
            "CFS: `sched_min_granularity_ns`",
            "0.25 to 3 ms on experiments/example.toml",
        ),
        time(
            "vm.*.guest.wakeup_granularity",
            "how far behind in virtual time a woken thread must be to preempt, scaled likewise",
            default.wakeup_granularity,
            "CFS: `sched_wakeup_granularity_ns`",
            "0.25 to 4 ms on experiments/example.toml",
        ),
    ]
}

/// The guest's spin locks and what the CPU does about spinning.
fn locks(default: &GuestParams) -> Vec<Parameter> {
    vec![
        Parameter {
            key: "vm.*.guest.lock",
            meaning: "kind of kernel spin locks: ticket, unfair or paravirtual",
            value: Value::Choice(default.lock.name()),
            source: "Linux since 4.15 as a KVM guest (kernel/locking/qspinlock_paravirt.h); from 4.2 on \
                     newcomers tried once, and queued",
            tried: "all three",
        },
        time(
            "vm.*.guest.pv_spin",
            "spinning before a paravirtual waiter halts",
            default.pv_spin,
            "`SPIN_THRESHOLD`: 2^15 rounds of some 12 cycles (PAUSE before Skylake) at 2.6 GHz",
            "10 µs to 1 ms on experiments/example.toml",
        ),
        Parameter {
            key: "vm.*.guest.ple_window",
            meaning: "spinning in the kernel after which the CPU leaves the guest (pause-loop exit)",
            value: default.ple_window.map_or(Value::None, Value::Time),
            source: "the CPUs of the balance paper (EuroSys 2011) had none; Intel's default window \
                     is 4096 cycles",
            tried: "none, 2, 8 and 32 µs on experiments/example.toml",
        },
        Parameter {
            key: "vm.*.guest.ple_grow",
            meaning: "by how many times each pause-loop exit widens that, until the vCPU is scheduled anew",
            value: Value::Number(f64::from(default.ple_grow), ""),
            source: "1: fixed, as in Xen and in KVM until Linux 3.17; since 3.18 KVM's `ple_window_grow` is 2 \
                     (arch/x86/kvm/vmx.c)",
            tried: "1 and 2 in tests",
        },
        Parameter {
            key: "vm.*.guest.ple_favours",
            meaning: "which vCPUs KVM lets go first at a pause-loop exit, by the first Linux that does so: 4.14, 5.3 \
                      or 5.13",
            value: Value::Choice("5.13"),
            source: "kvm_vcpu_on_spin() (virt/kvm/kvm_main.c): those preempted in their kernel; since 5.3 also those \
                     that were woken; since 5.13 also those with an interrupt to take, with Intel's APICv \
                     (pi_has_pending_interrupt(); svm_dy_apicv_has_pending_interrupt() is false)",
            tried: "all three in tests",
        },
        Parameter {
            key: "vm.*.guest.tlb_flush",
            meaning: "how other vCPUs flush their TLBs: ipi, ipi-lazy (also those that idle) or paravirtual",
            value: Value::Choice("paravirtual"),
            source: "Linux since 4.16 as a KVM guest (arch/x86/kernel/kvm.c, kvm_flush_tlb_multi); idle vCPUs are \
                     interrupted until 4.13 (arch/x86/mm/tlb.c, leave_mm())",
            tried: "all three in tests",
        },
        time(
            "vm.*.guest.flush",
            "a TLB flush on request, on top of the interrupt",
            default.flush,
            "assumed: a CR3 write and the refills that follow",
            "not varied",
        ),
        Parameter {
            key: "vm.*.guest.idle",
            meaning: "what idle vCPUs do: halt, poll (idle=poll), retention (MWAIT), or told: retention for as long as the host says",
            value: Value::Choice("halt"),
            source: "every Linux guest unless told otherwise",
            tried: "all four in tests",
        },
    ]
}
