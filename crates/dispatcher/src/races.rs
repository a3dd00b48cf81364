// SPDX-License-Identifier: GPL-2.0-only
//! What other CPUs may do during a callback: the tap is where they come in between.

use crate::conf::{GroupConf, Knobs, PcpuConf};
use crate::layout::{CpuCtx, MAX_PCPUS, MAX_VMS, NO_VM, TaskStruct, VmCtx};
use crate::native::{Build, Kick, Native, Services};
use corun_model::{Boost, Gang, Nanos, PcpuId, PcpuSet, Placement, VmId, VmPlan};
use std::cell::Cell;
use std::rc::Rc;

/// `enum tap_kind`: a value that others change, as it was read.
const SHARED: u32 = 12;
/// Was a task moved to the dispatching pCPU?
const MOVED: u32 = 9;
/// What an addition to a shared value found there.
const FETCHED: u32 = 13;
/// The slot of a VM, as it was found.
const VM_SLOT: u32 = 16;

/// The shortest turn.
const SLICE_MIN: Nanos = 50_000;

/// `enum task_state`: it wants a pCPU.
const READY: u32 = 1;

const PCPUS: u32 = 2;

/// The VM whose slot is at stake, and another one.
const VM: u32 = 7;
const OTHER: u32 = 8;

/// When another CPU comes in between.
enum When {
    /// As soon as an input of this kind and value has been read.
    Read(u32, u64),
    /// As soon as this many more inputs have been read, of whatever kind.
    Inputs(u32),
}

/// What another CPU does, and when.
struct Between {
    when: When,
    does: Box<dyn FnOnce(&mut Host)>,
}

impl Between {
    /// An input has been read: is it time?
    fn comes(&mut self, kind: u32, value: u64) -> bool {
        match &mut self.when {
            When::Read(read, what) => (*read, *what) == (kind, value),
            When::Inputs(left) => {
                *left = left.saturating_sub(1);
                *left == 0
            }
        }
    }
}

/// A host where nothing is queued, unless another CPU comes in between.
#[derive(Default)]
struct Host {
    between: Option<Between>,
    /// How many tasks wait for each pCPU.
    waits: [u32; PCPUS as usize],
    /// pCPUs that idle as the kernel sees it, a bit each, until they are claimed.
    answer: u32,
    /// The delay of the timer that was started last.
    delay: Nanos,
    /// pCPUs that were asked to schedule, and how.
    kicked: Vec<(u32, Kick)>,
    /// How often the table of VMs was looked through.
    looks: u32,
}

impl Services for Host {
    const BUILD: Build = Build::Tapped;

    fn tap_in(&mut self, kind: u32, value: u64) -> u64 {
        if let Some(between) = self.between.take_if(|between| between.comes(kind, value)) {
            (between.does)(self);
        }
        self.looks += u32::from(kind == VM_SLOT);
        value
    }

    fn claim_idle(&mut self, cpu: u32) -> bool {
        let answers = self.answer >> cpu & 1 != 0;
        self.answer &= !(1 << cpu);
        answers
    }
    fn queue_length(&mut self, queue: u64) -> u32 {
        self.waits[queue as usize % self.waits.len()]
    }
    fn move_first(&mut self, _queue: u64) -> bool {
        false
    }
    fn next_queued(&mut self, _queue: u64, _after: Option<usize>) -> Option<usize> {
        None
    }
    fn move_queued(&mut self, _task: usize, _cpu: u32) -> bool {
        false
    }
    fn requeue(&mut self, _task: usize, _queue: u64, _vtime: u64) -> bool {
        false
    }
    fn insert(&mut self, _task: usize, _queue: u64, _slice: Nanos, _vtime: u64) {}
    fn insert_next(&mut self, _task: usize, _cpu: u32, _slice: Nanos) {}
    fn insert_local(&mut self, _task: usize, _slice: Nanos) {}
    fn kick(&mut self, cpu: u32, how: Kick) {
        self.kicked.push((cpu, how));
    }
    fn set_slice(&mut self, _task: usize, _slice: Nanos) {}
    fn start_timer(&mut self, _timer: u32, delay: Nanos) {
        self.delay = delay;
    }
}

/// A host with this many vCPUs of [`VM`], each of which has run and waits.
fn host(vcpus: u32) -> Native<Host> {
    host_of(PCPUS, vcpus)
}

/// The same on this many pCPUs.
fn host_of(pcpus: u32, vcpus: u32) -> Native<Host> {
    let knobs = Knobs {
        slice: 3_000_000,
        wakeup_gran: 1_000_000,
        sleeper_credit: 3_000_000,
        max_lead: 6_000_000,
        balance_interval: 4_000_000,
        online: PcpuSet::first(pcpus),
        pcpus,
        placement: 0,
        slice_timer: 0,
        groups: 0,
        gangs: 0,
        cores: 0,
        tasks: 0,
        micro: 0,
        llcs: 1,
        online_pcpus: PCPUS,
        pad: 0,
        sibling: [0; MAX_PCPUS],
        llc: [0; MAX_PCPUS],
    };
    let mut native = Native::new(knobs, Host::default());
    for number in 0..vcpus {
        let vcpu = add_vcpu(&mut native, number);
        native.task(vcpu).allowed = PcpuSet::first(pcpus);
        native.select_cpu(0, 0, vcpu, 0, None);
        assert_eq!(native.task(vcpu).ctx.vm, VM);
        native.running(0, 0, vcpu);
        native.stopping(0, 0, vcpu, false);
    }
    native
}

/// A vCPU that has not been seen in KVM_RUN yet.
fn add_vcpu(native: &mut Native<Host>, number: u32) -> usize {
    let vcpu = TaskStruct {
        id: 100 + number,
        vcpu_of: VM,
        weight: 100,
        allowed: PcpuSet::first(PCPUS),
        ..TaskStruct::default()
    };
    native.add_task(vcpu, 0)
}

/// The VM that the slot belongs to, and how many vCPUs it counts.
fn seats(native: &Native<Host>, slot: u32) -> (u32, u32) {
    let vm = native.vm(slot as usize % MAX_VMS);
    (vm.id, vm.vcpus)
}

/// From now on another CPU `does` this to the slot of [`VM`] once an input of `kind` and `value` is read.
fn between(native: &mut Native<Host>, kind: u32, value: u64, does: fn(&mut VmCtx)) {
    let slot = native.vms().wrapping_add(VM as usize);
    // SAFETY: a slot of the table that the native build works on, which it does not while it asks the host.
    let does = Box::new(move |_: &mut Host| does(unsafe { &mut *slot }));
    native.services().between = Some(Between {
        when: When::Read(kind, value),
        does,
    });
}

/// The last vCPU exits; before it has freed the slot, a new one of the same VM is counted there.
#[test]
fn a_slot_is_not_freed_under_a_vcpu_that_has_just_come() {
    let mut native = host(1);
    between(&mut native, FETCHED, 1, |slot| slot.vcpus += 1);
    native.exit_task(0, 0);
    assert!(
        native.services().between.is_none(),
        "nobody came in between"
    );
    assert_eq!(seats(&native, VM), (VM, 1));
}

/// A vCPU has found its VM's slot; before it is counted there, the last sibling goes and another VM comes. Then it is
/// counted in no slot, and in a slot of its own VM when it wakes next.
#[test]
fn nobody_is_counted_in_the_slot_of_another_vm() {
    let mut native = host(1);
    let late = add_vcpu(&mut native, 1);
    between(&mut native, VM_SLOT, VM.into(), |slot| {
        slot.id = OTHER;
        slot.vcpus = 1;
    });
    native.select_cpu(0, 0, late, 0, None);
    assert!(
        native.services().between.is_none(),
        "nobody came in between"
    );
    assert_eq!(seats(&native, VM), (OTHER, 1));
    native.select_cpu(0, 0, late, 0, None);
    let slot = native.task(late).ctx.vm;
    assert_ne!(slot, VM);
    assert_eq!(seats(&native, slot), (VM, 1));
}

/// A sibling that came at the same moment has claimed slot [`OTHER`], since [`VM`]'s was another VM's until now. A vCPU
/// that claims [`VM`]'s sees that once it has, and joins the sibling; `then` is what else happens before it could give
/// its own slot up. Returns the slot in which it is counted.
fn claims_beside_a_sibling(native: &mut Native<Host>, then: fn(&mut VmCtx)) -> u32 {
    native.exit_task(0, 0);
    let late = add_vcpu(native, 1);
    let (own, twin) = (VM as usize, OTHER as usize);
    let slots = native.vms();
    let does = Box::new(move |_: &mut Host| {
        // SAFETY: as in between(): slots of the table, and the native build works on neither while it asks.
        let (own, twin) = unsafe {
            (
                &mut *slots.wrapping_add(own),
                &mut *slots.wrapping_add(twin),
            )
        };
        (twin.id, twin.vcpus) = (VM, 1);
        then(own);
    });
    // It has not found its VM, and then a free slot, whose owner it reads as it claims it.
    native.services().between = Some(Between {
        when: When::Read(FETCHED, 0),
        does,
    });
    native.select_cpu(0, 0, late, 0, None);
    assert!(
        native.services().between.is_none(),
        "nobody came in between"
    );
    native.task(late).ctx.vm
}

#[test]
fn two_that_come_at_once_share_a_slot() {
    let mut native = host(1);
    let slot = claims_beside_a_sibling(&mut native, |_| {});
    assert_eq!(slot, OTHER);
    assert_eq!(seats(&native, OTHER), (VM, 2));
    assert_eq!(seats(&native, VM), (0, 0), "given up");
}

#[test]
fn a_slot_in_which_a_sibling_is_counted_is_not_given_up() {
    let mut native = host(1);
    let slot = claims_beside_a_sibling(&mut native, |own| own.vcpus = 1);
    assert_eq!(slot, VM);
    assert_eq!(seats(&native, VM), (VM, 2));
}

#[test]
fn the_last_of_a_vm_frees_its_slot() {
    let mut native = host(2);
    native.exit_task(0, 0);
    assert_eq!(seats(&native, VM), (VM, 1));
    native.exit_task(1, 0);
    assert_eq!(seats(&native, VM), (0, 0));
}

/// The table takes 2 MiB: looking through it at each wake-up of a vCPU that has no place in it would be most of what
/// the wake-up costs.
#[test]
fn a_full_table_is_looked_through_again_once_a_vm_has_ended() {
    let mut native = host(1);
    for at in (0..MAX_VMS).filter(|at| *at != VM as usize) {
        // SAFETY: as in between(): a slot, and nobody is at work on it now.
        let slot = unsafe { &mut *native.vms().wrapping_add(at) };
        (slot.id, slot.vcpus) = (10_000 + at as u32, 1);
    }
    let late = add_vcpu(&mut native, 1);
    native.task(late).vcpu_of = OTHER;
    let mut looks = || {
        let before = native.services().looks;
        native.select_cpu(0, 0, late, 0, None);
        native.services().looks - before
    };
    // For its VM, and for a free slot.
    assert_eq!([(); 4].map(|()| looks()), [2, 2, 0, 0]);
    assert_eq!(native.task(late).ctx.vm, NO_VM);
    native.exit_task(0, 0);
    native.select_cpu(0, 0, late, 0, None);
    assert_eq!(native.task(late).ctx.vm, VM, "the slot that is free now");
    assert_eq!(seats(&native, VM), (OTHER, 1));
}

/// Holds of the second hardware thread that have begun: a number that nothing else has.
const BEGUN: u64 = 7_777;

/// A host of cores of two hardware threads, which may be held for a millisecond, with this many vCPUs, the first of
/// which runs on the second thread of the first core.
fn with_cores(tasks: u32, gives_way: bool) -> Native<Host> {
    let mut native = host(tasks);
    let plan = VmPlan::placed(VmId(0), Placement::Core);
    native.configure_vm(VM, &plan, None, &PcpuSet::first(PCPUS));
    for cpu in 0..PCPUS {
        let conf = PcpuConf {
            hold: 1_000_000,
            partner: (cpu ^ 1) + 1,
            gives_way: gives_way.into(),
            ..PcpuConf::default()
        };
        native.configure_pcpu(cpu, conf);
    }
    native.select_cpu(1, 1, 0, 1, None);
    native.task(0).cpu = 1;
    native.running(2, 1, 0);
    native
}

/// A vCPU halts on the second hardware thread of a core, which may be held for it. All reasons against a hold have been
/// checked, and nobody can see the hold yet, when another CPU `does` something to the host and the first hardware
/// thread. Is the second held, and has the hold that began ended for another task?
fn halts(gives_way: bool, does: fn(&mut Host, &mut CpuCtx)) -> (bool, bool) {
    let mut native = with_cores(1, gives_way);
    let first = native.cpus();
    // SAFETY: as in between(): a pCPU's books, and nobody is at work on them now.
    unsafe { (*first.wrapping_add(1)).holds.begun = BEGUN };
    native.services().between = Some(Between {
        when: When::Read(FETCHED, BEGUN),
        // SAFETY: the same.
        does: Box::new(move |host| does(host, unsafe { &mut *first })),
    });
    native.stopping(3, 1, 0, false);
    assert!(native.services().between.is_none(), "no hold began");
    let second = native.cpu(1);
    let (held, ended) = (second.held != 0, second.holds.gave_way == 1);
    assert_eq!(held, second.held_since != 0);
    assert_eq!(held, native.peek(0).ctx.held_since != 0);
    (held, ended)
}

/// A vCPU that is queued, under the lock of another runqueue, for a pCPU held for a sibling ends the hold. Before the
/// hold is over, the sibling is back and runs.
#[test]
fn a_hold_that_ends_while_its_vcpu_comes_back_leaves_no_busy_pcpu_idle() {
    let began = 1_003;
    let mut native = with_cores(2, true);
    native.stopping(began, 1, 0, false);
    let cpus = native.cpus();
    // SAFETY: as in between(): pCPUs' books, and nobody is at work on them now.
    let (first, second) = unsafe { (&mut *cpus, &mut *cpus.wrapping_add(1)) };
    assert_ne!(second.held, 0);
    first.load = 10_000;
    let second = cpus.wrapping_add(1);
    native.services().between = Some(Between {
        when: When::Read(FETCHED, began),
        does: Box::new(move |_| {
            // SAFETY: the same.
            let second = unsafe { &mut *second };
            (second.idle, second.held, second.runs) = (0, 0, 1);
        }),
    });
    native.enqueue(began + 10, 0, 1);
    assert_eq!(native.peek(1).ctx.cpu, 1);
    assert!(native.services().between.is_none(), "no hold ended");
    assert_eq!(native.cpu(1).idle, 0);
}

/// The timer of a held pCPU fires on another one. Before it has ended the hold, the vCPU is back and runs.
#[test]
fn a_hold_that_a_timer_on_another_pcpu_ends_leaves_no_busy_pcpu_idle() {
    let began = 1_003;
    let mut native = with_cores(1, false);
    native.stopping(began, 1, 0, false);
    let second = native.cpus().wrapping_add(1);
    native.services().between = Some(Between {
        when: When::Read(FETCHED, began),
        does: Box::new(move |_| {
            // SAFETY: as in between(): a pCPU's books, and nobody is at work on them now.
            let second = unsafe { &mut *second };
            (second.idle, second.held, second.runs) = (0, 0, 1);
        }),
    });
    native.timer_elsewhere(began + 2_000_000, 0, 1);
    assert!(native.services().between.is_none(), "no hold ended");
    assert_eq!(native.cpu(1).idle, 0);
    assert_eq!(native.services().kicked.last(), Some(&(1, Kick::Idle)));
}

/// The same where the vCPU is not back: the pCPU is asked for its next task, and is not held any more.
#[test]
fn a_hold_that_another_runqueue_ends_is_over_once_its_pcpu_is_asked() {
    let mut native = with_cores(2, true);
    native.stopping(3, 1, 0, false);
    // SAFETY: as above.
    unsafe { (*native.cpus()).load = 10_000 };
    native.enqueue(10, 0, 1);
    assert_eq!(native.cpu(1).holds.gave_way, 1);
    native.dispatch(11, 1, None);
    let second = native.cpu(1);
    assert_eq!((second.held, second.idle, second.holds.gave_way), (0, 1, 1));
}

/// A task that runs on is interrupted for a look at other pCPUs only if a task waits for one.
#[test]
fn nobody_is_interrupted_for_a_look_where_nobody_waits() {
    let mut native = host(1);
    native.select_cpu(0, 0, 0, 0, None);
    native.running(2, 0, 0);
    for (waits, kicked) in [(0, None), (1, Some((0, Kick::Preempt)))] {
        native.services().waits[1] = waits;
        native.services().kicked.clear();
        native.timer(1_000_000_000 * u64::from(1 + waits), 0);
        assert_eq!(native.services().kicked.last().copied(), kicked);
    }
}

/// A pCPU that is asked for its next task lets go of its runqueue as it takes one from a queue. Meanwhile the task that
/// runs there becomes a real-time task, so that it is counted nowhere; and the queue has none to give.
#[test]
fn a_task_that_leaves_for_another_class_meanwhile_is_not_counted_again() {
    let mut native = host(2);
    let weigh = |native: &mut Native<Host>, weight| {
        native.configure_vm(
            VM,
            &VmPlan::placed(VmId(0), Placement::Free),
            Some(weight),
            &PcpuSet::first(PCPUS),
        );
    };
    weigh(&mut native, 100);
    native.select_cpu(1, 0, 0, 0, None);
    native.running(2, 0, 0);
    assert_ne!(native.cpu(0).load, 0);
    weigh(&mut native, 10_000);
    assert!(native.yields(3, 0, 0, None));
    native.services().waits[0] = 1;
    let (first, leaves) = (native.cpus(), std::ptr::from_mut(native.task(0)));
    native.services().between = Some(Between {
        when: When::Read(MOVED, 0),
        does: Box::new(move |_| {
            // SAFETY: as above, and of a task's books.
            let (first, ctx) = unsafe { (&mut *first, &mut (*leaves).ctx) };
            first.load -= u64::from(ctx.load);
            first.nr -= 1;
            ctx.cpu = -1;
        }),
    });
    native.dispatch(4_000_000, 0, Some(0));
    assert!(native.services().between.is_none(), "nobody was looked for");
    assert_eq!((native.cpu(0).load, native.cpu(0).nr), (0, 0));
}

/// The one that comes first sees nothing of the other: so both look again.
#[test]
fn of_two_hardware_threads_that_fall_idle_at_once_not_both_are_held_while_somebody_waits() {
    let sibling_halts = |host: &mut Host, first: &mut CpuCtx| {
        host.waits[0] = 1;
        (first.held, first.held_since) = (1, 3);
    };
    assert_eq!(halts(false, sibling_halts), (false, true));
    let nobody_waits = |_: &mut Host, first: &mut CpuCtx| first.held = 1;
    assert_eq!(halts(true, nobody_waits), (true, false));
}

#[test]
fn a_task_queued_while_a_hold_begins_is_not_overlooked() {
    let queued = |host: &mut Host, _: &mut CpuCtx| host.waits[1] = 1;
    assert_eq!(halts(true, queued), (false, true));
    // The queued task may be owed more, and saw no hold that would have had to end for it.
    assert_eq!(halts(false, queued), (false, true));
    // A task that waits for the other hardware thread only does not end it.
    let beside = |host: &mut Host, _: &mut CpuCtx| host.waits[0] = 1;
    assert_eq!(halts(true, beside), (true, false));
    assert_eq!(halts(true, |_, _| ()), (true, false));
}

/// All tasks that wait for a quota look for its next period when it begins. One opens it; another one finds it open
/// before it is filled, with nothing left.
#[test]
fn a_task_that_finds_a_period_begun_and_not_filled_yet_does_not_wait_for_the_next_one() {
    const PERIOD: Nanos = 100_000_000;
    let mut native = host(1);
    let conf = GroupConf {
        quota: 1_000_000,
        period: PERIOD,
        weight: 100,
        limited: 1,
        ..GroupConf::default()
    };
    native.configure_group(0, conf);
    native.task(0).group = 1;
    native.select_cpu(1, 0, 0, 0, None);
    native.running(1, 0, 0);
    native.stopping(1_000_001, 0, 0, false);
    let (left, end) = match native.group(0) {
        Some(group) => (group.left, group.period_end),
        None => panic!("the group is known"),
    };
    assert_eq!(left, 0, "it has used its quota up");
    let group = native.groups();
    native.services().between = Some(Between {
        when: When::Read(SHARED, end),
        // SAFETY: as in between(): a cgroup's books, and nobody is at work on them now.
        does: Box::new(move |_| unsafe { (*group).period_end = end + PERIOD }),
    });
    native.select_cpu(end, 0, 0, 0, None);
    native.enqueue(end, 0, 0);
    assert!(
        native.services().between.is_none(),
        "nobody came in between"
    );
    let delay = native.services().delay;
    assert!(delay <= 100_000, "{delay}");
}

/// All tasks that a quota has kept waiting begin at the same moment, and each looks at what is left before any of them
/// has taken something.
#[test]
fn what_others_take_of_a_quota_meanwhile_is_not_taken_twice() {
    let mut native = host(1);
    let conf = GroupConf {
        quota: 10_000_000,
        period: 100_000_000,
        weight: 100,
        limited: 1,
        ..GroupConf::default()
    };
    native.configure_group(0, conf);
    native.task(0).group = 1;
    native.select_cpu(1, 0, 0, 0, None);
    native.enqueue(1, 0, 0);
    let group = native.groups();
    // SAFETY: as in between(): a cgroup's books, and nobody is at work on them now.
    unsafe { (*group).left = 9_999_999 };
    native.services().between = Some(Between {
        when: When::Read(SHARED, 9_999_999),
        // SAFETY: the same.
        does: Box::new(move |_| unsafe { (*group).left = 0 }),
    });
    native.running(2, 0, 0);
    assert!(native.services().between.is_none(), "nobody looked");
    assert_eq!(native.peek(0).ctx.reserved, SLICE_MIN);
    let left = native.group(0).map(|group| group.left);
    assert_eq!(left, Some(-(SLICE_MIN as i64)));
}

/// A task that ran where no other wanted to owes nothing for that, however soon it is back, and however little it
/// weighs.
#[test]
fn who_ran_alone_owes_nothing() {
    let mut native = host(1);
    native.task(0).weight = 10;
    native.select_cpu(1_000, 0, 0, 0, None);
    native.enqueue(1_000, 0, 0);
    native.running(1_000, 0, 0);
    native.stopping(50_000_000, 0, 0, false);
    native.select_cpu(50_000_001, 0, 0, 0, None);
    assert!(native.peek(0).ctx.vtime <= native.cpu(0).vnow);
}

/// Of four pCPUs, a task of a higher class has the first, whose own task has been pulled away: as far as the dispatcher
/// knows, nothing runs or waits there. The second is busy. Another task wakes, and is placed on the first. The same may
/// happen on a pCPU that a task of a higher class has taken while it idled.
#[test]
fn a_task_placed_where_a_higher_class_runs_has_another_pcpu_called() {
    for (first, third, called) in [(0, 1, 2), (1, 1, 2), (0, 0, 3), (1, 0, 3)] {
        let mut native = host_of(4, 2);
        native.select_cpu(1_000, 1, 1, 1, None);
        native.task(1).cpu = 1;
        native.running(1_000, 1, 1);
        native.task(0).cpu = 0;
        for cpu in [0, 2, 3] {
            // SAFETY: as in between(): a pCPU's books, and nobody is at work on them now.
            let books = unsafe { &mut *native.cpus().wrapping_add(cpu) };
            assert_eq!((books.load, books.runs), (0, 0));
            books.idle = if cpu == 0 { first } else { 1 };
        }
        native.services().answer = third << 2 | 1 << 3;
        native.services().kicked.clear();
        assert_eq!(native.select_cpu(2_000, 1, 0, 0, Some(1)), 0);
        native.enqueue(2_000, 1, 0);
        let kicked = &native.services().kicked;
        assert!(
            kicked.contains(&(called, Kick::Idle)),
            "{kicked:?}, wanted {called}; idle {first}"
        );
    }
}

/// A task with a pCPU, in the middle of its turn, that may not be moved for a moment; it was once queued by another
/// pCPU's clock.
fn pinned() -> Native<Host> {
    let mut native = host(1);
    native.select_cpu(1_000, 0, 0, 0, None);
    native.enqueue(1_000, 0, 0);
    native.running(2_000, 0, 0);
    native.task(0).queued_vtime = 65_000_000_000;
    native.task(0).pinned = 1;
    native.services().kicked.clear();
    native
}

/// When the task is interrupted, the kernel does not have it queued, but keeps it for its pCPU, which may idle
/// meanwhile.
#[test]
fn a_pcpu_that_keeps_a_task_to_itself_does_not_idle() {
    for pinned_down in [true, false] {
        let mut native = pinned();
        native.task(0).pinned = pinned_down.into();
        native.stopping(3_002_000, 0, 0, true);
        let kicked = native.services().kicked.contains(&(0, Kick::Idle));
        assert_eq!(kicked, pinned_down);
    }
}

/// Its turn begins anew, by the clock of its pCPU.
#[test]
fn a_task_that_was_not_queued_since_it_was_interrupted_does_not_go_on_where_it_was_queued_last() {
    let mut native = pinned();
    native.stopping(1_002_000, 0, 0, true);
    native.running(1_003_000, 0, 0);
    assert_eq!(native.cpu(0).turn_vtime, native.peek(0).ctx.vtime);
}

/// What came of an interrupt that a sibling waits for.
struct Awaited {
    /// Was the vCPU ready then?
    ready: bool,
    /// Which pCPUs were asked to schedule, and how?
    kicked: Vec<(u32, Kick)>,
}

/// A vCPU wakes, or was `queued` and has to leave its pCPU. KVM reports that a sibling waits for it
/// (crates/linux/bpf/awaited.bpf.c) once this many inputs have been read. `None`: there are not so many.
fn awaited_after(inputs: u32, queued: bool) -> Option<Awaited> {
    let mut native = host(1);
    let plan = VmPlan {
        gang: Gang::Demand(Boost::default()),
        ..VmPlan::placed(VmId(0), Placement::LoadConscious)
    };
    native.configure_vm(VM, &plan, None, &PcpuSet::first(PCPUS));
    if queued {
        native.select_cpu(1_000, 0, 0, 0, None);
        native.enqueue(1_000, 0, 0);
        native.task(0).allowed = PcpuSet::from_iter([PcpuId(1)]);
    }
    for cpu in 0..PCPUS {
        // SAFETY: as in between(): a pCPU's books, and nobody is at work on them now.
        let books = unsafe { &mut *native.cpus().wrapping_add(cpu as usize) };
        (books.idle, books.nr, books.load) = (0, 1, 100);
    }
    let vcpu: *mut TaskStruct = native.task(0);
    let ready = Rc::new(Cell::new(false));
    let seen = Rc::clone(&ready);
    native.services().kicked.clear();
    native.services().between = Some(Between {
        when: When::Inputs(inputs),
        // SAFETY: a task of the context whose callback is under way on this thread.
        does: Box::new(move |_| unsafe {
            seen.set((*vcpu).ctx.state == READY);
            Native::<Host>::flush_ipi_within(vcpu);
        }),
    });
    if !queued {
        native.select_cpu(1_000, 0, 0, 0, None);
    }
    native.enqueue(1_000, 0, 0);
    let host = native.services();
    host.between.is_none().then(|| Awaited {
        ready: ready.get(),
        kicked: host.kicked.clone(),
    })
}

/// A vCPU without a pCPU has none that could be asked to schedule: the kernel would end the dispatcher if one were. The
/// vCPU is next where it is placed.
#[test]
fn a_sibling_may_wait_for_one_that_has_no_pcpu_yet() {
    for queued in [false, true] {
        let mut placed = 0;
        for inputs in 1.. {
            let Some(awaited) = awaited_after(inputs, queued) else {
                break;
            };
            let kicked = awaited.kicked;
            let there = kicked.iter().all(|(cpu, _)| *cpu < PCPUS);
            assert!(there, "after {inputs} inputs: {kicked:?}");
            let next = kicked.iter().any(|(_, how)| *how == Kick::Preempt);
            assert_eq!(next, awaited.ready, "after {inputs} inputs: {kicked:?}");
            placed += u32::from(next);
        }
        assert!(placed > 20, "ready for {placed} inputs only");
    }
}
