// SPDX-License-Identifier: GPL-2.0-only
//! Do the vCPUs of a VM run at the same time?
//!
//! A guest expects its CPUs to make equal progress; a host gives them pCPUs as it sees fit. What
//! co-scheduling aims at is measured for every scheduler alike, in three ways:
//!
//! * *co-start skew*: a vCPU starts while no sibling runs; how long until each sibling that was ready then starts as
//!   well? A sibling that has not started by the time the VM has no running vCPU any more counts as never.
//! * *co-run share*: of the time in which a vCPU runs and two or more do not wait, the part in which
//!   none of these has to wait for a pCPU.
//! * *progress skew*: a vCPU makes progress while it runs or waits, none while it is ready. The skew
//!   is the difference between the fastest and the slowest sibling since the run began, measured when a vCPU that was
//!   ready starts. A lead from the warm-up counts until it has been made up for.

use super::TaskState;
use crate::waits::Waits;
use corun_model::{Nanos, VmId};

/// What matters about a vCPU to its siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Now {
    Waiting,
    Ready,
    Running,
}

#[derive(Clone, Copy, Debug)]
struct Vcpu {
    now: Now,
    since: Nanos,
    /// Time spent ready until `since`.
    ready: Nanos,
    /// Was ready when a sibling started alone, and has not started since.
    called: Option<Nanos>,
}

/// What was measured for a VM.
#[derive(Clone, Debug, Default)]
pub struct SiblingSkew {
    /// Co-start skews of those that started.
    pub co_starts: Waits,
    /// Siblings that did not start before the VM stood still.
    pub never: u64,
    /// Time in which a vCPU ran and two or more did not wait, ns.
    pub together_due: Nanos,
    /// The part of that time in which all of these ran, ns.
    pub together: Nanos,
    /// Progress skews.
    pub progress: Waits,
}

#[derive(Debug, Default)]
struct Vm {
    vcpus: Vec<Vcpu>,
    running: usize,
    ready: usize,
    since: Nanos,
    skew: SiblingSkew,
}

/// The meter, for all VMs.
#[derive(Debug, Default)]
pub struct Siblings {
    vms: Vec<Vm>,
}

impl Vcpu {
    fn lag(&self, now: Nanos) -> Nanos {
        let more = if self.now == Now::Ready {
            now - self.since
        } else {
            0
        };
        self.ready + more
    }
}

impl Vm {
    /// Books the time up to `now` under the state until then.
    fn settle(&mut self, now: Nanos) {
        let spent = now - self.since;
        self.since = now;
        if self.running == 0 || self.running + self.ready < 2 {
            return;
        }
        self.skew.together_due += spent;
        if self.ready == 0 {
            self.skew.together += spent;
        }
    }

    /// A vCPU starts while no sibling runs: notes which siblings are ready.
    fn call(&mut self, now: Nanos) {
        for vcpu in &mut self.vcpus {
            vcpu.called = (vcpu.now == Now::Ready).then_some(now);
        }
    }

    /// No vCPU runs any more.
    fn stand_still(&mut self) {
        for vcpu in &mut self.vcpus {
            self.skew.never += u64::from(vcpu.called.take().is_some());
        }
    }

    fn progress_skew(&self, now: Nanos) -> Nanos {
        let lags = self.vcpus.iter().map(|vcpu| vcpu.lag(now));
        let (least, most) = lags.fold((Nanos::MAX, 0), |(least, most), lag| {
            (least.min(lag), most.max(lag))
        });
        most.saturating_sub(least)
    }

    fn change(&mut self, index: usize, state: Now, now: Nanos) {
        self.settle(now);
        let old = std::mem::replace(&mut self.vcpus[index].now, state);
        self.running -= usize::from(old == Now::Running);
        self.ready -= usize::from(old == Now::Ready);
        let vcpu = &mut self.vcpus[index];
        if old == Now::Ready {
            vcpu.ready += now - vcpu.since;
        }
        vcpu.since = now;
        match state {
            Now::Waiting => {}
            Now::Ready => self.ready += 1,
            Now::Running => {
                if let Some(called) = vcpu.called.take() {
                    self.skew.co_starts.record(now - called);
                }
                if self.running == 0 {
                    self.call(now);
                }
                self.running += 1;
                if self.vcpus.len() > 1 {
                    let skew = self.progress_skew(now);
                    self.skew.progress.record(skew);
                }
            }
        }
        if old == Now::Running && self.running == 0 {
            self.stand_still();
        }
    }
}

impl Siblings {
    /// vCPU number `vcpu` of `vm` enters `state`.
    pub(super) fn change(&mut self, (vm, vcpu): (VmId, u32), state: TaskState, now: Nanos) {
        let state = match state {
            TaskState::Waiting => Now::Waiting,
            TaskState::Ready => Now::Ready,
            TaskState::Running(_) => Now::Running,
        };
        if self.vms.len() <= vm.index() {
            self.vms.resize_with(vm.index() + 1, Vm::default);
        }
        let vm = &mut self.vms[vm.index()];
        let (index, waiting) = (
            vcpu as usize,
            Vcpu {
                now: Now::Waiting,
                since: now,
                ready: 0,
                called: None,
            },
        );
        if vm.vcpus.len() <= index {
            vm.vcpus.resize(index + 1, waiting);
        }
        vm.change(index, state, now);
    }

    /// Forgets the past except which siblings are ahead: the warm-up is over.
    pub(super) fn reset(&mut self, now: Nanos) {
        for vm in &mut self.vms {
            vm.since = now;
            vm.skew = SiblingSkew::default();
            for vcpu in &mut vm.vcpus {
                vcpu.ready = vcpu.lag(now);
                (vcpu.since, vcpu.called) = (now, None);
            }
        }
    }

    /// What was measured for `vm` up to now.
    pub fn skew(&mut self, vm: VmId, now: Nanos) -> SiblingSkew {
        let Some(vm) = self.vms.get_mut(vm.index()) else {
            return SiblingSkew::default();
        };
        vm.settle(now);
        vm.skew.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corun_model::PcpuId;

    const RUNS: TaskState = TaskState::Running(PcpuId(0));

    fn after(changes: &[(u32, TaskState, Nanos)], end: Nanos) -> SiblingSkew {
        let mut siblings = Siblings::default();
        for &(vcpu, state, now) in changes {
            siblings.change((VmId(0), vcpu), state, now);
        }
        siblings.skew(VmId(0), end)
    }

    #[test]
    fn one_starts_and_the_others_follow_or_never_do() {
        let skew = after(
            &[
                (0, TaskState::Ready, 0),
                (1, TaskState::Ready, 0),
                (2, TaskState::Ready, 0),
                (0, RUNS, 10),
                (1, RUNS, 40),
                (0, TaskState::Ready, 60),
                (1, TaskState::Ready, 70), // nobody runs: vCPU 2 never did
                (2, RUNS, 100),            // alone; 0 and 1 are called
                (0, RUNS, 105),
            ],
            105,
        );
        assert_eq!((skew.co_starts.count(), skew.co_starts.max()), (2, 30));
        assert_eq!(skew.never, 1);
    }

    #[test]
    fn running_together_counts_if_there_is_somebody_to_run_with() {
        let skew = after(
            &[
                (0, TaskState::Ready, 0),
                (0, RUNS, 0), // alone: 50 ns that count for nothing
                (1, TaskState::Ready, 50),
                (1, RUNS, 80),
                (1, TaskState::Waiting, 100),
            ],
            500,
        );
        assert_eq!((skew.together_due, skew.together), (50, 20));
    }

    #[test]
    fn a_vcpu_that_is_ready_falls_behind() {
        let skew = after(
            &[
                (0, TaskState::Ready, 0),
                (0, RUNS, 0),
                (1, TaskState::Ready, 0),
                (1, RUNS, 700),
            ],
            700,
        );
        assert_eq!(skew.progress.max(), 700);
    }

    /// A lead of 600 from before, then turns of 100.
    #[test]
    fn a_lead_outlasts_the_warm_up() {
        let mut siblings = Siblings::default();
        let go = |siblings: &mut Siblings, changes: &[(u32, TaskState, Nanos)]| {
            for &(vcpu, state, now) in changes {
                siblings.change((VmId(0), vcpu), state, now);
            }
        };
        let ready = TaskState::Ready;
        go(&mut siblings, &[(0, ready, 0), (0, RUNS, 0), (1, ready, 0)]);
        siblings.reset(600);
        assert_eq!(siblings.skew(VmId(0), 600).progress.count(), 0);
        go(&mut siblings, &[(1, RUNS, 600), (0, ready, 600)]);
        go(
            &mut siblings,
            &[(0, RUNS, 700), (1, ready, 700), (1, RUNS, 800)],
        );
        let progress = siblings.skew(VmId(0), 800).progress;
        assert_eq!((progress.count(), progress.max()), (3, 600));
    }
}
