// SPDX-License-Identifier: GPL-2.0-only
//! Recordings that were never made: the same host with VMs that begin later, or with more VMs.
//!
//! Problem: one recording is one sample. Which VM happened to be ahead of which when it began matters a lot, and what
//! another VM would do to the host was not recorded at all. How: a VM's demand moves as a whole, its inner dependencies
//! with it, so it can begin later ([`Recording::delayed`]) or exist twice ([`Recording::with_copy`]). The *observed*
//! figures stay those of the recorded host, and say nothing about the host that results here.

use crate::model::{AtStart, Burst, Recording, Role, Task, Vm, WakeCause};
use corun_model::{Nanos, TaskId, VmId};
use std::collections::BTreeMap;

impl Recording {
    /// The same, but the demand of `vm` that no task wakes begins `by` ns later.
    ///
    /// Tasks of the host and of other VMs that wake its threads still do so when they did: a recording cannot show what
    /// caused these wake-ups. An unknown VM changes nothing.
    #[must_use]
    pub fn delayed(&self, vm: VmId, by: Nanos) -> Self {
        let mut recording = self.clone();
        for task in &mut recording.tasks {
            if by > 0 && task.vm() == Some(vm) {
                delay(task, by);
            }
        }
        recording
    }

    /// The same with a second VM called `name` that does what `vm` does, but begins `by` ns later.
    ///
    /// Its threads wake each other; wake-ups by others reach them as they reach the original's. It wakes no task
    /// outside itself: the others' work needs only the original. An unknown VM changes nothing.
    #[must_use]
    pub fn with_copy(&self, vm: VmId, name: &str, by: Nanos) -> Self {
        let Some(original) = self.vms.get(vm.index()) else {
            return self.clone();
        };
        let mut recording = self.clone();
        let copy = VmId::from(recording.vms.len());
        // Thread ids must differ; those of the kernel end at 2^22.
        let mut tid = self.tasks.iter().map(|task| task.tid).max().unwrap_or(0);
        let mut twins = BTreeMap::new();
        for &id in original.vcpus.iter().chain(&original.threads) {
            twins.insert(id, TaskId::from(self.tasks.len() + twins.len()));
        }
        for id in twins.keys() {
            let Some(task) = self.task(*id) else { continue };
            tid = tid.saturating_add(1);
            let mut twin = Task {
                tid,
                tgid: None,
                role: task.role.in_vm(copy),
                bursts: task
                    .bursts
                    .iter()
                    .map(|burst| twin_of(burst, &twins))
                    .collect(),
                ..task.clone()
            };
            delay(&mut twin, by);
            recording.tasks.push(twin);
        }
        let twin = |id: &TaskId| twins.get(id).copied();
        recording.vms.push(Vm {
            name: name.to_string(),
            tgid: None,
            vcpus: original.vcpus.iter().filter_map(twin).collect(),
            threads: original.threads.iter().filter_map(twin).collect(),
            grouping: original.grouping,
        });
        recording
    }
}

impl Role {
    /// The same in another VM.
    fn in_vm(self, vm: VmId) -> Self {
        match self {
            Role::Vcpu { index, .. } => Role::Vcpu { vm, index },
            Role::VmThread { kind, .. } => Role::VmThread { vm, kind },
            Role::Host => Role::Host,
        }
    }
}

/// The first burst begins later, unless a task decides when.
fn delay(task: &mut Task, by: Nanos) {
    let Some(first) = task.bursts.first_mut() else {
        return;
    };
    match &mut first.wake {
        WakeCause::Task { .. } => {}
        WakeCause::External { delay } => *delay = delay.saturating_add(by),
        WakeCause::AtStart if by == 0 => {}
        WakeCause::AtStart => {
            first.wake = WakeCause::External { delay: by };
            task.at_start = AtStart::Waiting;
        }
    }
}

/// A burst of the twin: woken by the waker's twin, if it has one.
fn twin_of(burst: &Burst, twins: &BTreeMap<TaskId, TaskId>) -> Burst {
    let wake = match burst.wake {
        WakeCause::Task { waker, waker_work } => WakeCause::Task {
            waker: twins.get(&waker).copied().unwrap_or(waker),
            waker_work,
        },
        other => other,
    };
    Burst { wake, ..*burst }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_bytes;
    use proptest::prelude::*;

    /// Two vCPUs of VM `a` wake each other; `b` computes.
    const TEXT: &[u8] = b"\
# process 10 qemu-system-x86 -name guest=a,debug-threads=on
# thread 11 CPU 0/KVM
# thread 12 CPU 1/KVM
# process 20 qemu-system-x86 -name guest=b,debug-threads=on
# thread 21 CPU 0/KVM
 CPU 0/KVM-11 [000] d..2. 1.000000: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=CPU 0/KVM next_pid=11 next_prio=120
 CPU 0/KVM-21 [001] d..2. 1.000000: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=CPU 0/KVM next_pid=21 next_prio=120
 CPU 0/KVM-11 [000] d..2. 1.002000: sched_waking: comm=CPU 1/KVM pid=12 prio=120 target_cpu=000
 CPU 0/KVM-11 [000] d..2. 1.003000: sched_switch: prev_comm=CPU 0/KVM prev_pid=11 prev_prio=120 prev_state=S ==> next_comm=CPU 1/KVM next_pid=12 next_prio=120
 CPU 1/KVM-12 [000] d..2. 1.005000: sched_switch: prev_comm=CPU 1/KVM prev_pid=12 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
 CPU 0/KVM-21 [001] d..2. 1.009000: sched_switch: prev_comm=CPU 0/KVM prev_pid=21 prev_prio=120 prev_state=R ==> next_comm=swapper/1 next_pid=0 next_prio=120
";

    fn recording() -> Recording {
        read_bytes("test", TEXT).unwrap().recording
    }

    fn task(recording: &Recording, vm: usize, vcpu: usize) -> &Task {
        recording.task(recording.vms[vm].vcpus[vcpu]).unwrap()
    }

    #[test]
    fn a_copy_is_woken_by_its_own_siblings() {
        let recorded = recording();
        let more = recorded.with_copy(VmId(0), "a, again", 700);
        assert_eq!(more.vms.len(), 3);
        assert_eq!(more.vms[2].name, "a, again");
        let [first, second] = [0, 1].map(|vcpu| more.vms[2].vcpus[vcpu]);
        assert!(first.index() >= recorded.tasks.len());
        let woken = task(&more, 2, 1).bursts[0].wake;
        assert!(
            matches!(woken, WakeCause::Task { waker, waker_work: 2_000_000 } if waker == first),
            "{woken:?}"
        );
        assert_eq!(
            task(&more, 2, 0).bursts[0].wake,
            WakeCause::External { delay: 700 }
        );
        assert_eq!(task(&more, 2, 0).at_start, AtStart::Waiting);
        assert_eq!(
            task(&more, 2, 0).bursts[0].work,
            task(&recorded, 0, 0).bursts[0].work
        );
        assert_ne!(first, second);
        // The original is unchanged.
        assert_eq!(more.tasks[..recorded.tasks.len()], recorded.tasks[..]);
    }

    #[test]
    fn a_delay_moves_what_begins_by_itself() {
        let recorded = recording();
        let later = recorded.delayed(VmId(0), 5_000);
        assert_eq!(
            task(&later, 0, 0).bursts[0].wake,
            WakeCause::External { delay: 5_000 }
        );
        assert_eq!(
            task(&later, 0, 1),
            task(&recorded, 0, 1),
            "woken by its sibling"
        );
        assert_eq!(task(&later, 1, 0), task(&recorded, 1, 0), "another VM");
        assert_eq!(recorded.delayed(VmId(0), 0), recorded);
        assert_eq!(recorded.delayed(VmId(9), 5_000), recorded);
        assert_eq!(recorded.with_copy(VmId(9), "none", 0), recorded);
    }

    proptest! {
        /// Whatever is copied and delayed: thread ids differ, and no task's work changes.
        #[test]
        fn work_stays(copies in prop::collection::vec((0_u32..2, 0_u64..1 << 40), 0..6)) {
            let recorded = recording();
            let mut made = recorded.clone();
            for &(vm, by) in &copies {
                made = made.with_copy(VmId(vm), "copy", by).delayed(VmId(vm), by);
            }
            let mut tids: Vec<u32> = made.tasks.iter().map(|task| task.tid).collect();
            tids.sort_unstable();
            tids.dedup();
            prop_assert_eq!(tids.len(), made.tasks.len());
            let work = |task: &Task| task.bursts.iter().map(|burst| burst.work).sum::<Nanos>();
            let of = |vm: usize| made.vms[vm].vcpus.iter().map(|&id| work(made.task(id).unwrap())).sum::<Nanos>();
            for (n, &(vm, _)) in copies.iter().enumerate() {
                prop_assert_eq!(of(2 + n), of(vm as usize));
            }
        }
    }
}
