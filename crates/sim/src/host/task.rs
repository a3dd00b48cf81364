// SPDX-License-Identifier: GPL-2.0-only
//! A host task: a vCPU thread or anything else that wants a pCPU.

use super::hardware::{Lost, ONE, Pace, Progress};
use super::{Activity, Profile};
use crate::event_queue::EventId;
use crate::workload::Mix;
use corun_model::{CyclesSeen, LlcSeen, Nanos, PcpuId, PcpuSet, VmId};

/// Whether a task has, wants, or does not want a pCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// Halted, blocked or asleep.
    Waiting,
    /// Wants a pCPU and has none.
    Ready,
    /// Has this pCPU.
    Running(PcpuId),
}

/// What is known about a task before it first runs.
#[derive(Clone, Debug)]
pub struct TaskSpec {
    /// For people: `web/0` for vCPU 0 of VM `web`, or the thread's name.
    pub name: String,
    /// The VM and the vCPU's number in it; `None` for host tasks.
    pub vcpu: Option<(VmId, u32)>,
    /// The VM a helper thread (iothread, emulator) works for, if it is no vCPU.
    pub helper_of: Option<VmId>,
    /// Own weight, 1–10000, 100 = nice 0.
    pub weight: u32,
    /// pCPUs it may use.
    pub allowed: PcpuSet,
    /// The pCPU it was on before the run began; `None`: it is new.
    pub last_on: Option<PcpuId>,
    /// The slice it asks for (`sched_attr::sched_runtime`), ns; `None`: the scheduler's own.
    pub slice: Option<Nanos>,
}

/// Where a task runs, as vSMT-IO sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Is the hardware thread that it has, or had last, not the first of its core?
    pub second: bool,
    /// Does the policy consider it CPU-bound?
    pub computes: bool,
}

impl Place {
    /// vSMT-IO reserves second hardware threads for I/O-bound vCPUs, and only lends them to others.
    fn lent(self) -> bool {
        self.second && self.computes
    }
}

/// Where a task's time went, since the run began or the warm-up ended. ns and counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// On a pCPU.
    pub run: Nanos,
    /// Wanting a pCPU: steal time in a guest's terms, CPU Ready in VMware's.
    pub ready: Nanos,
    /// Not wanting one.
    pub wait: Nanos,
    /// Times it was given a pCPU.
    pub switches: u64,
    /// Times it started on another pCPU than the last.
    pub migrations: u64,
    /// Times it was woken.
    pub wakeups: u64,
    /// Of `run`: without progress because of what SMT siblings did.
    pub smt_lost: Nanos,
    /// Of `run`: without progress because its data had left the caches.
    pub cache_lost: Nanos,
    /// Of `run`: in MWAIT, its context retained on the hardware thread.
    pub retained: Nanos,
    /// Of `run`: polling for what would wake it, in KVM or in the guest.
    pub polled: Nanos,
    /// Of `run`: not on the first hardware thread of a core, which vSMT-IO reserves for CPU-bound
    /// vCPUs.
    pub second: Nanos,
    /// Of `retained`: the same.
    pub second_retained: Nanos,
    /// Of `second`: while the policy considered it CPU-bound, so that the hardware thread was lent to it.
    pub lent: Nanos,
    /// Of `second_retained`: the same.
    pub lent_retained: Nanos,
}

impl Totals {
    /// The sum of both.
    pub(super) fn plus(self, more: &Self) -> Self {
        Self {
            run: self.run + more.run,
            ready: self.ready + more.ready,
            wait: self.wait + more.wait,
            switches: self.switches + more.switches,
            migrations: self.migrations + more.migrations,
            wakeups: self.wakeups + more.wakeups,
            smt_lost: self.smt_lost + more.smt_lost,
            cache_lost: self.cache_lost + more.cache_lost,
            retained: self.retained + more.retained,
            polled: self.polled + more.polled,
            second: self.second + more.second,
            second_retained: self.second_retained + more.second_retained,
            lent: self.lent + more.lent,
            lent_retained: self.lent_retained + more.lent_retained,
        }
    }

    /// It was on a pCPU for `spent`.
    pub(super) fn ran(&mut self, spent: Nanos, place: Place) {
        self.run += spent;
        self.second += if place.second { spent } else { 0 };
        self.lent += if place.lent() { spent } else { 0 };
    }

    /// Of the time on a pCPU, `spent` went to this activity.
    pub(super) fn did(&mut self, spent: Nanos, activity: Activity, place: Place) {
        match activity {
            Activity::Retention => {
                self.retained += spent;
                self.second_retained += if place.second { spent } else { 0 };
                self.lent_retained += if place.lent() { spent } else { 0 };
            }
            Activity::HaltPolling | Activity::IdlePolling => self.polled += spent,
            Activity::Work | Activity::Rescheduling | Activity::Spinning => {}
        }
    }

    pub(super) fn lose(&mut self, lost: Lost) {
        self.smt_lost += lost.smt;
        self.cache_lost += lost.cache;
    }
}

/// A task in the run.
///
/// Thousands of them do not fit into a processor's nearer caches, and most events touch one or two. So
/// its fields are in this order in memory, and what is rarely looked at comes last.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Task {
    /// What it does.
    pub state: TaskState,
    /// Since when, or since the accounts were last settled.
    pub(super) since: Nanos,
    /// Up to when the accounts that depend on its activity are booked.
    pub(super) booked: Nanos,
    /// Since when it has waited for a pCPU; the wait goes to the meter when it runs.
    pub(super) ready_since: Nanos,
    /// The pCPU whose runqueue it is on while ready or running, else the last one.
    pub(super) home: Option<PcpuId>,
    /// The pCPU it ran on last.
    pub(super) last_ran: Option<PcpuId>,
    /// Its VM and number there, as its spec has them.
    vcpu: Option<(VmId, u32)>,
    /// Was the pCPU taken from it, so that it is charged for that when it runs again?
    pub(super) preempted: bool,
    /// Which hardware thread it has, or had last.
    pub(super) place: Place,
    /// What it does with its hardware thread while it has one.
    pub(super) activity: Activity,
    /// Its work since it got its pCPU, which advances once the switch to it is over.
    pub(super) progress: Progress,
    /// The progress at which the work it ordered is done; `Nanos::MAX`: none is ordered.
    pub(super) due: Nanos,
    /// The time at which, whatever work is done by then, it is to be asked what it does next.
    pub(super) due_at: Nanos,
    /// The event of whichever comes first.
    pub(super) step: EventId,
    /// The progress up to which its instructions are counted.
    pub(super) counted: Nanos,
    /// What its performance counters had counted when its work ended last.
    pub(super) llc: LlcSeen,
    /// Its cycles while no SMT sibling interfered; a ns counts as one.
    pub(super) cycles: CyclesSeen,
    /// What its present work is like, if it said that.
    pub(super) profile: Option<Profile>,
    /// Its accounts.
    pub(super) totals: Totals,
    /// Its accounts from before `totals` was reset.
    pub(super) earlier: Totals,
    /// What it is.
    pub spec: TaskSpec,
}

impl Task {
    pub(super) fn new(spec: TaskSpec) -> Self {
        let last_on = spec.last_on;
        Self {
            vcpu: spec.vcpu,
            spec,
            state: TaskState::Waiting,
            since: 0,
            home: last_on,
            last_ran: last_on,
            preempted: false,
            place: Place::default(),
            progress: Progress::new(0, Pace::FULL),
            due: Nanos::MAX,
            due_at: Nanos::MAX,
            step: EventId::NONE,
            totals: Totals::default(),
            earlier: Totals::default(),
            profile: None,
            activity: Activity::Work,
            llc: LlcSeen::default(),
            booked: 0,
            cycles: CyclesSeen::default(),
            counted: 0,
            ready_since: 0,
        }
    }

    /// Its VM, if it is a vCPU.
    pub fn vm(&self) -> Option<VmId> {
        self.vcpu.map(|(vm, _)| vm)
    }

    /// Its VM and its number there, if it is a vCPU.
    pub(super) fn vcpu(&self) -> Option<(VmId, u32)> {
        self.vcpu
    }

    /// The pCPU it has, if it is running.
    pub fn running_on(&self) -> Option<PcpuId> {
        match self.state {
            TaskState::Running(cpu) => Some(cpu),
            _ => None,
        }
    }

    /// The pCPU it ran on last.
    pub fn last_ran(&self) -> Option<PcpuId> {
        self.last_ran
    }

    /// The pCPU whose runqueue it is on while ready or running, else the last one it was on.
    pub fn runqueue(&self) -> Option<PcpuId> {
        self.home
    }

    /// Adds the time since the last settlement to the account of its state.
    pub(super) fn settle(&mut self, now: Nanos) {
        let spent = now.saturating_sub(self.since);
        match self.state {
            TaskState::Waiting => self.totals.wait += spent,
            TaskState::Ready => self.totals.ready += spent,
            TaskState::Running(_) => {
                self.totals.ran(spent, self.place);
                self.book(now);
                let lost = self.progress.advance(now);
                self.totals.lose(lost);
            }
        }
        self.since = now;
        self.booked = now;
    }

    /// Time on a pCPU up to now under its present activity, alongside the current task on the SMT
    /// sibling.
    pub(super) fn unbooked(&self, now: Nanos) -> Nanos {
        now.saturating_sub(self.booked)
    }

    /// Its activity, its mix of cycles or the task on the SMT sibling is about to change: books
    /// what it did.
    pub(super) fn book(&mut self, now: Nanos) {
        let spent = self.unbooked(now);
        self.booked = now;
        if self.running_on().is_none() {
            return;
        }
        self.totals.did(spent, self.activity, self.place);
        if self.activity == Activity::Work && self.progress.pace().smt == ONE {
            let mix = self.profile.and_then(|profile| profile.mix);
            let mix = mix.unwrap_or(Mix::TYPICAL);
            self.cycles.cycles += spent;
            self.cycles.base += spent * Nanos::from(mix.base) / 100;
            self.cycles.miss += spent * Nanos::from(mix.miss) / 100;
        }
    }
}
