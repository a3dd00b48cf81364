// SPDX-License-Identifier: GPL-2.0-only
//! One task followed through the recording: its state, its times, its bursts.
//!
//! A state lasts until an event ends it, so that run, ready and wait time always add up to the
//! task's life within the recording, even where events are missing.

use crate::event::{Context, Left};
use crate::model::{AtEnd, AtStart, BurstEnd, KvmSeen, TaskObserved};
use corun_model::{Nanos, PcpuId};

/// A wake-up as it was seen; what caused it is decided when all roles are known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Woken {
    pub at: Nanos,
    pub by: By,
}

/// What woke a task.
#[derive(Clone, Copy, Debug)]
pub(super) enum By {
    /// Nothing: it was awake when the recording began.
    Start,
    /// Whatever interrupted the pCPU.
    Interrupt,
    /// A timer.
    Timer,
    /// Something unknown.
    Unseen,
    /// The task in this slot, in this context, having used this much CPU time.
    Slot {
        waker: usize,
        work: Nanos,
        context: Context,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    /// No event has shown it yet.
    Unseen,
    /// Created, but not known to be ready yet.
    Created {
        woken: Woken,
    },
    Running {
        since: Nanos,
        cpu: u32,
    },
    Ready {
        since: Nanos,
    },
    Waiting {
        since: Nanos,
    },
    Gone,
}

/// A task's state as it matters to siblings, which may be waiting for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Being {
    Running,
    /// It wants a pCPU and has none.
    Ready,
    Neither,
}

/// A burst before its cause is settled.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawBurst {
    pub woken: Woken,
    /// When the task had last blocked, or the recording began.
    pub blocked_at: Nanos,
    pub work: Nanos,
    pub end: BurstEnd,
}

/// Something that cannot have happened as recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Oddity {
    /// It ran without a wake-up.
    NoWakeup,
    /// It left or entered a pCPU without the preceding switch.
    NoSwitch,
}

#[derive(Debug)]
pub(super) struct Track {
    pub tid: u32,
    pub tgid: Option<u32>,
    pub comm: String,
    /// The task that created it, if that was seen.
    pub parent: Option<usize>,
    pub state: State,
    /// The pCPU on whose runqueue it is or last was.
    pub cpu: Option<u32>,
    pub at_start: AtStart,
    pub bursts: Vec<RawBurst>,
    pub seen: TaskObserved,
    pub kvm: KvmSeen,
    /// vCPU number as KVM gives it; `Some(None)` if KVM was seen without a number.
    pub kvm_vcpu: Option<Option<u32>>,
    /// On which runqueue it was from when on (`None`: on none). Times need not be in order.
    pub queue: Vec<(Nanos, Option<u32>)>,
    /// What it was from when on.
    pub life: Vec<(Nanos, Being)>,
    /// Runqueues it was moved between before any other event.
    early: Vec<(Nanos, Option<u32>)>,
    /// A `sched_waking` that has had no effect yet.
    pending: Option<Woken>,
    /// Whether the runqueue it was woken on is known.
    queued: bool,
    /// It was woken and has not run since.
    fresh: bool,
    blocked_at: Nanos,
}

impl Track {
    pub(super) fn new(tid: u32, comm: String) -> Self {
        Self {
            tid,
            tgid: None,
            comm,
            parent: None,
            state: State::Unseen,
            cpu: None,
            at_start: AtStart::Waiting,
            bursts: Vec::new(),
            seen: TaskObserved::default(),
            kvm: KvmSeen::default(),
            kvm_vcpu: None,
            queue: Vec::new(),
            life: Vec::new(),
            early: Vec::new(),
            pending: None,
            queued: false,
            fresh: false,
            blocked_at: 0,
        }
    }

    /// CPU time used until `now`.
    pub(super) fn work_by(&self, now: Nanos) -> Nanos {
        match self.state {
            State::Running { since, .. } => self.seen.run + now.saturating_sub(since),
            _ => self.seen.run,
        }
    }

    /// It was created.
    pub(super) fn born(&mut self, woken: Woken, parent: Option<usize>) {
        self.at_start = AtStart::Unborn;
        self.state = State::Created { woken };
        self.parent = parent;
    }

    /// `sched_waking`.
    pub(super) fn waking(&mut self, woken: Woken) {
        match self.state {
            State::Unseen | State::Waiting { .. } | State::Created { .. } => self.make_ready(woken),
            // If it is just about to block, this will turn out to be the wake-up.
            State::Running { .. } => self.pending = Some(woken),
            State::Ready { .. } | State::Gone => {}
        }
    }

    /// `sched_wakeup` and `sched_wakeup_new`.
    pub(super) fn wakeup(&mut self, woken: Woken, cpu: Option<u32>) {
        let pending = self.pending.take();
        match self.state {
            State::Waiting { since } => {
                let at_least = |w: Woken| Woken {
                    at: w.at.max(since),
                    ..w
                };
                self.make_ready(pending.map_or(woken, at_least));
            }
            State::Unseen | State::Created { .. } => self.make_ready(woken),
            State::Ready { .. } => {}
            // It had not blocked yet: it simply goes on.
            State::Running { .. } | State::Gone => return,
        }
        if let Some(cpu) = cpu.or(self.cpu).filter(|_| !self.queued) {
            self.enqueue(woken.at, cpu);
        }
    }

    /// It goes to another runqueue.
    pub(super) fn migrate(&mut self, at: Nanos, from: u32, to: u32) {
        if self.cpu.is_none() {
            self.cpu = Some(from);
        }
        if matches!(self.state, State::Unseen) {
            // If it turns out to have been ready all along, these are the runqueues it was on.
            if self.early.is_empty() {
                self.early.push((0, Some(from)));
            }
            self.early.push((at, Some(to)));
        }
        if self.queued {
            self.enqueue(at, to);
        } else {
            self.set_cpu(to);
        }
    }

    /// It begins to run.
    pub(super) fn switch_in(&mut self, at: Nanos, cpu: u32) -> Option<Oddity> {
        let mut odd = None;
        match self.state {
            State::Unseen => {
                self.at_start = AtStart::Ready;
                self.make_ready(Woken {
                    at: 0,
                    by: By::Start,
                });
                self.queue.append(&mut self.early);
                self.queued = !self.queue.is_empty();
            }
            State::Created { woken } => self.make_ready(woken),
            State::Waiting { since } => {
                // Without sched_wakeup events, a sched_waking just before it blocked was its
                // wake-up.
                let woken = self.pending.map(|w| Woken {
                    at: w.at.max(since),
                    ..w
                });
                odd = woken.is_none().then_some(Oddity::NoWakeup);
                self.make_ready(woken.unwrap_or(Woken { at, by: By::Unseen }));
            }
            State::Running { .. } => {
                odd = Some(Oddity::NoSwitch);
                self.switch_out(at, Left::Ready);
            }
            State::Ready { .. } | State::Gone => {}
        }
        self.start_running(at, cpu);
        odd
    }

    fn start_running(&mut self, at: Nanos, cpu: u32) {
        if let State::Ready { since } = self.state {
            self.seen.ready += at.saturating_sub(since);
            if self.fresh {
                self.seen.wake_to_run.push(at.saturating_sub(since));
            }
            if !self.queued {
                self.enqueue(since, cpu);
            }
        }
        if self.cpu != Some(cpu) {
            self.enqueue(at, cpu);
        }
        self.fresh = false;
        self.pending = None;
        self.seen.switches_in += 1;
        self.become_at(at, State::Running { since: at, cpu });
    }

    /// It turns out to be running: since the recording began (`at` is 0), or since events of its
    /// pCPU were lost.
    pub(super) fn found_running(&mut self, at: Nanos, cpu: u32) {
        let mut at = at;
        match self.state {
            State::Running { cpu: known, .. } if known == cpu => return,
            State::Running { since, .. } => {
                at = at.max(since);
                self.switch_out(at, Left::Ready);
            }
            State::Unseen if at == 0 => {
                self.at_start = AtStart::Running(PcpuId(cpu));
                self.begin(Woken { at, by: By::Start });
            }
            State::Unseen | State::Gone => self.make_ready(Woken { at, by: By::Unseen }),
            State::Waiting { since } => {
                at = at.max(since);
                self.make_ready(Woken { at, by: By::Unseen });
            }
            State::Created { woken } => self.make_ready(woken),
            State::Ready { .. } => {}
        }
        if let State::Ready { since } = self.state {
            at = at.max(since);
            self.seen.ready += at - since;
        }
        self.enqueue(at, cpu);
        self.fresh = false;
        self.pending = None;
        self.become_at(at, State::Running { since: at, cpu });
    }

    /// It leaves its pCPU.
    pub(super) fn switch_out(&mut self, at: Nanos, left: Left) {
        if !matches!(self.state, State::Running { .. }) {
            return;
        }
        self.settle(at);
        self.become_at(at, State::Ready { since: at });
        match left {
            Left::Ready => {}
            Left::Blocked(letter) => {
                self.close(at, BurstEnd::Blocked(letter));
                self.become_at(at, State::Waiting { since: at });
            }
            Left::Exited => self.gone(at),
        }
    }

    /// The kernel has freed it.
    pub(super) fn gone(&mut self, at: Nanos) {
        self.settle(at);
        if matches!(self.state, State::Ready { .. } | State::Running { .. }) {
            self.close(at, BurstEnd::Exited);
        }
        self.become_at(at, State::Gone);
    }

    /// The recording ends.
    pub(super) fn finish(&mut self, end: Nanos) -> AtEnd {
        self.settle(end);
        match self.state {
            State::Running { cpu, .. } => AtEnd::Running(PcpuId(cpu)),
            State::Ready { .. } => AtEnd::Ready,
            State::Gone => AtEnd::Exited,
            State::Unseen | State::Created { .. } | State::Waiting { .. } => AtEnd::Waiting,
        }
    }

    /// Books the time in the present state.
    fn settle(&mut self, at: Nanos) {
        match self.state {
            State::Running { since, .. } => {
                let piece = at.saturating_sub(since);
                self.seen.run += piece;
                if let Some(burst) = self.bursts.last_mut() {
                    burst.work += piece;
                }
            }
            State::Ready { since } => self.seen.ready += at.saturating_sub(since),
            State::Waiting { since } => self.seen.wait += at.saturating_sub(since),
            State::Created { woken } => self.seen.wait += at.saturating_sub(woken.at),
            State::Unseen => self.seen.wait += at,
            State::Gone => {}
        }
    }

    /// From waiting to ready.
    fn make_ready(&mut self, woken: Woken) {
        self.settle(woken.at);
        self.fresh = !matches!(woken.by, By::Start);
        self.seen.wakeups += u64::from(self.fresh);
        self.begin(woken);
        self.pending = None;
        self.become_at(woken.at, State::Ready { since: woken.at });
    }

    fn become_at(&mut self, at: Nanos, state: State) {
        let being = match state {
            State::Running { .. } => Being::Running,
            State::Ready { .. } => Being::Ready,
            _ => Being::Neither,
        };
        // A task that blocks leaves its pCPU first: count one change, not two.
        if let Some(last) = self.life.last_mut().filter(|last| last.0 == at) {
            last.1 = being;
        } else {
            self.life.push((at, being));
        }
        self.state = state;
    }

    fn begin(&mut self, woken: Woken) {
        self.bursts.push(RawBurst {
            woken,
            blocked_at: self.blocked_at,
            work: 0,
            end: BurstEnd::RecordingEnded,
        });
    }

    fn close(&mut self, at: Nanos, end: BurstEnd) {
        if let Some(burst) = self.bursts.last_mut() {
            burst.end = end;
        }
        self.blocked_at = at;
        self.queued = false;
        self.queue.push((at, None));
    }

    fn enqueue(&mut self, at: Nanos, cpu: u32) {
        self.set_cpu(cpu);
        self.queued = true;
        self.queue.push((at, Some(cpu)));
    }

    fn set_cpu(&mut self, cpu: u32) {
        self.seen.migrations += u64::from(self.cpu.is_some_and(|old| old != cpu));
        self.cpu = Some(cpu);
    }
}
