// SPDX-License-Identifier: GPL-2.0-only
//! The two native builds side by side: the untapped one, which simulations use, does exactly what the tapped one does,
//! which replays compare with the kernel.

// Helpers of tests, too, say what they expect by panicking.
#![allow(clippy::unwrap_used)]

use corun_dispatcher::{
    Build, GroupConf, Kick, Knobs, MAX_PCPUS, Native, PcpuConf, PoolConf, Services, TASK_THROTTLED,
    TaskStruct,
};
use corun_model::{
    Boost, Gang, Nanos, PcpuId, PcpuSet, Placement, Sharing, Skew, Slots, Topology, VmId, VmPlan,
};
use proptest::prelude::*;
use std::collections::VecDeque;

/// Small hosts, where all tasks meet, and one whose pCPU masks have several words.
const HOSTS: [u32; 3] = [5, 64, 150];

/// On the larger ones, pairs of pCPUs share a core, and many cores a last-level cache.
fn shape(pcpus: u32) -> Topology {
    let shape = match pcpus {
        64 => "2n2l8c2t".into(),
        150 => "1n3l25c2t".into(),
        _ => format!("1n1l{pcpus}c1t"),
    };
    shape.parse().unwrap()
}

/// Number of tasks on a host of this many pCPUs.
fn tasks_on(pcpus: u32) -> usize {
    3 * pcpus as usize - 1
}

/// A host of a few queues that notes everything asked of it.
#[derive(Default)]
struct Host<const TAPPED: bool> {
    queues: Vec<Vec<(u64, u64, usize)>>,
    local: Vec<VecDeque<usize>>,
    idle: Vec<bool>,
    dispatching: u32,
    order: u64,
    direct: Option<usize>,
    taps: usize,
    deeds: Vec<(&'static str, u64, u64, u64)>,
}

impl<const TAPPED: bool> Host<TAPPED> {
    /// Where a queue is: those of the pCPUs, then those of parked tasks.
    fn place(&self, queue: u64) -> usize {
        let queue = queue as usize;
        queue
            .checked_sub(MAX_PCPUS)
            .map_or(queue, |cpu| self.queues.len() / 2 + cpu)
    }
}

impl<const TAPPED: bool> Services for Host<TAPPED> {
    const BUILD: Build = if TAPPED {
        Build::Tapped
    } else {
        Build::Indexed
    };
    fn tap_in(&mut self, _kind: u32, value: u64) -> u64 {
        self.taps += 1;
        value
    }
    fn claim_idle(&mut self, cpu: u32) -> bool {
        std::mem::take(&mut self.idle[cpu as usize])
    }
    fn queue_length(&mut self, queue: u64) -> u32 {
        self.queues[self.place(queue)].len() as u32
    }
    fn move_first(&mut self, queue: u64) -> bool {
        let first = self.queues[self.place(queue)].first().copied();
        first.is_some_and(|(_, _, task)| self.move_queued(task, self.dispatching))
    }
    fn next_queued(&mut self, queue: u64, after: Option<usize>) -> Option<usize> {
        let queue = &self.queues[self.place(queue)];
        let behind = after.map(|task| queue.iter().position(|place| place.2 == task).unwrap() + 1);
        queue.get(behind.unwrap_or(0)).map(|place| place.2)
    }
    fn move_queued(&mut self, task: usize, cpu: u32) -> bool {
        let queue = self.queues.iter_mut();
        let mut queue = queue.filter(|queue| queue.iter().any(|place| place.2 == task));
        let Some(queue) = queue.next() else {
            return false;
        };
        queue.retain(|place| place.2 != task);
        self.local[cpu as usize].push_back(task);
        self.deeds.push(("move", task as u64, cpu.into(), 0));
        true
    }
    fn insert(&mut self, task: usize, queue: u64, slice: Nanos, vtime: u64) {
        self.order += 1;
        let queue = self.place(queue);
        let places = &mut self.queues[queue];
        places.push((vtime, self.order, task));
        places.sort_unstable();
        self.deeds.push(("insert", task as u64, slice, vtime));
    }
    fn requeue(&mut self, task: usize, queue: u64, vtime: u64) -> bool {
        let mut from = self.queues.iter_mut();
        let Some(from) = from.find(|queue| queue.iter().any(|place| place.2 == task)) else {
            return false;
        };
        from.retain(|place| place.2 != task);
        self.insert(task, queue, 0, vtime);
        true
    }
    fn insert_next(&mut self, task: usize, cpu: u32, slice: Nanos) {
        // The next task must have been undecided.
        assert!(self.local[cpu as usize].is_empty(), "pCPU {cpu}");
        self.local[cpu as usize].push_front(task);
        self.deeds.push(("next", task as u64, slice, cpu.into()));
    }
    fn insert_local(&mut self, task: usize, slice: Nanos) {
        self.direct = Some(task);
        self.deeds.push(("local", task as u64, slice, 0));
    }
    fn kick(&mut self, cpu: u32, how: Kick) {
        let how = u64::from(how == Kick::Preempt);
        self.deeds.push(("kick", cpu.into(), how, 0));
    }
    fn set_slice(&mut self, task: usize, slice: Nanos) {
        self.deeds.push(("slice", task as u64, slice, 0));
    }
    fn start_timer(&mut self, cpu: u32, delay: Nanos) {
        self.deeds.push(("timer", cpu.into(), delay, 0));
    }
}

fn plan(placement: Placement, gang: Gang) -> VmPlan {
    VmPlan {
        gang,
        ..VmPlan::placed(VmId(0), placement)
    }
}

/// Two pools, divided somewhere; the second has no slice of its own.
fn pools(pcpus: u32, seed: u64) -> [PoolConf; 2] {
    let divide = seed as u32 % (pcpus + 1);
    let pool = |slice, pcpus: std::ops::Range<u32>| PoolConf {
        slice,
        pcpus: pcpus.map(PcpuId).collect(),
    };
    [pool(7_000_000, 0..divide), pool(0, divide..pcpus)]
}

/// The pCPUs that a VM's vCPUs may use, for its slots: those of the second VM only half of the host.
fn allowed_to(vm: u32, pcpus: u32) -> PcpuSet {
    let from = if vm == 2 { pcpus / 2 } else { 0 };
    (from..pcpus).map(PcpuId).collect()
}

/// Every gang mode.
fn gangs() -> impl Strategy<Value = Gang> {
    prop::sample::select(vec![
        Gang::None,
        Gang::Dynamic,
        Gang::Strict(Slots::default()),
        Gang::Strict(Slots {
            fill: true,
            ..Slots::default()
        }),
        Gang::Demand(Boost::default()),
        Gang::Relaxed(Skew::default()),
        Gang::RelaxedAll(Skew::default()),
    ])
}

/// A build at work: which task runs where, and which tasks wait.
struct Machine<const TAPPED: bool> {
    native: Native<Host<TAPPED>>,
    gang: Gang,
    running: Vec<Option<usize>>,
    waiting: Vec<bool>,
    now: Nanos,
}

impl<const TAPPED: bool> Machine<TAPPED> {
    fn new(pcpus: u32, placement: Placement, gang: Gang, slice_timer: bool) -> Self {
        let sharing = Sharing::of_topology(&shape(pcpus));
        let knobs = Knobs {
            slice: 3_000_000,
            wakeup_gran: 1_000_000,
            sleeper_credit: 3_000_000,
            max_lead: 6_000_000,
            balance_interval: 4_000_000,
            online: PcpuSet::first(pcpus),
            pcpus,
            placement: 0,
            slice_timer: slice_timer.into(),
            groups: 0,
            gangs: 0,
            cores: 0,
            tasks: 0,
            micro: 0,
            llcs: sharing.llcs,
            online_pcpus: pcpus,
            pad: 0,
            sibling: sharing.sibling,
            llc: sharing.llc,
        };
        let host = Host {
            queues: vec![Vec::new(); 2 * pcpus as usize],
            local: vec![VecDeque::new(); pcpus as usize],
            idle: vec![true; pcpus as usize],
            ..Host::default()
        };
        let mut native = Native::new(knobs, host);
        native.configure_pools(pools(pcpus, 1));
        (1..3).for_each(|vm| {
            let allowed = allowed_to(vm, pcpus);
            native.configure_vm(
                vm,
                &plan(placement, gang),
                (vm == 1).then_some(300),
                &allowed,
            );
        });
        for task in 0..tasks_on(pcpus) as u32 {
            let known = TaskStruct {
                id: task + 1,
                vcpu_of: task % 3,
                group: [0, 2, 3][task as usize % 3],
                weight: 100 + 50 * (task % 4),
                allowed: match task % 9 {
                    5 => PcpuSet::first(2),
                    6 => [PcpuId(task % pcpus)].into_iter().collect(),
                    7 => (pcpus / 2..pcpus).step_by(3).map(PcpuId).collect(),
                    _ => PcpuSet::first(pcpus),
                },
                ..TaskStruct::default()
            };
            let index = native.add_task(known, 0);
            native.task(index).conf.home = (task % 4) as i32; // for some of them, fixed
            native.task(index).conf.pool = task % 3; // and for some, pooled
            // For some it is known what they ask of their cores.
            native.task(index).conf.demand = task % 5 * (1000 | 20 << 16 | 30 << 24);
            // Some have micro slices, which count from some time on.
            native.task(index).conf.micro = u32::from(task % 4 == 1);
        }
        Self {
            native,
            gang,
            running: vec![None; pcpus as usize],
            waiting: vec![true; tasks_on(pcpus)],
            now: 1,
        }
    }

    /// One thing happens: a task wakes, a pCPU's task blocks, a slice or a timer is over.
    fn step(&mut self, (what, which, later): (u8, usize, u64)) {
        self.now += later;
        let cpu = which % self.running.len();
        let pcpus = self.running.len() as u32;
        match what % 6 {
            0 | 4 => self.wake(which % self.waiting.len(), cpu as u32),
            1 => {
                if let Some(task) = self.running[cpu].take() {
                    self.native.stopping(self.now, cpu as u32, task, false);
                    self.waiting[task] = true;
                    self.schedule(cpu);
                }
            }
            2 => self.schedule(cpu),
            5 if which % 8 == 0 => self.configure(Placement::Balance, Some(300)),
            5 if which % 8 == 1 => self.configure(Placement::Fixed, None),
            5 if which % 8 == 3 => self.native.configure_pools(pools(pcpus, later)),
            5 if which % 8 == 4 => self.configure_cores(which as u64 % 5),
            5 if which % 8 == 5 => self.configure(Placement::Core, None),
            5 if which % 8 == 2 => {
                let task = which % self.waiting.len();
                if !self.waiting[task] && !self.running.contains(&Some(task)) {
                    self.native.flush_ipi(self.now, cpu as u32, task);
                }
            }
            5 if which % 8 == 6 => self.native.release(self.now, cpu as u32),
            5 if which % 16 == 15 => self.native.look_at_micro_slices(),
            5 => self.schedule(cpu),
            _ => self.native.timer(self.now, cpu as u32),
        }
    }

    /// Every second pCPU is held for so long, beside another one, ms.
    fn configure_cores(&mut self, ms: u64) {
        for cpu in 0..self.running.len() as u32 / 2 * 2 {
            let conf = PcpuConf {
                hold: if cpu % 2 == 1 || ms > 3 {
                    ms * 1_000_000
                } else {
                    0
                },
                partner: (cpu ^ 1) + 1,
                wait_wait: 277,
                miss_miss: 910,
                gives_way: cpu / 2 % 2,
                cookies: cpu / 4 % 2,
                pad: 0,
            };
            self.native.configure_pcpu(cpu, conf);
        }
    }

    /// Each VM has a cgroup with a quota within one of the host's; the second is idle.
    fn configure_groups(&mut self, quota: Nanos) {
        let group = |weight, parent, quota| GroupConf {
            quota,
            period: 5_000_000,
            burst: quota / 2,
            weight,
            parent,
            limited: u32::from(quota != 0),
            pad: 0,
        };
        self.native.configure_group(0, group(2048, 0, 0));
        self.native.configure_group(1, group(300, 1, quota));
        self.native.configure_group(2, group(3, 1, 2 * quota));
    }

    fn configure(&mut self, placement: Placement, weight: Option<u32>) {
        let allowed = allowed_to(1, self.running.len() as u32);
        self.native
            .configure_vm(1, &plan(placement, self.gang), weight, &allowed);
    }

    fn wake(&mut self, task: usize, here: u32) {
        if !std::mem::take(&mut self.waiting[task]) {
            return;
        }
        let current = self.running[here as usize];
        if let Some(bound) = self.bound(task) {
            self.native.task(task).cpu = bound as i32;
            self.native.enqueue_woken(self.now, here, task, current);
            return;
        }
        let cpu = (self.native).select_cpu(self.now, here, task, here % 2, current);
        self.native.task(task).cpu = cpu as i32;
        if self.native.services().direct.take().is_some() {
            self.native.services().local[cpu as usize].push_back(task);
        } else {
            self.native.enqueue(self.now, here, task);
        }
    }

    /// The only pCPU that a task may run on, if there is only one: then the kernel does not call select_cpu.
    fn bound(&self, task: usize) -> Option<u32> {
        let mut allowed = self.native.peek(task).allowed.iter();
        let first = allowed.next()?;
        allowed.next().is_none().then_some(first.0)
    }

    /// What happens in the kernel only, which is like the tapped build, now and then; else, a step.
    fn kernel_step(&mut self, step: (u8, usize, u64)) {
        if step.0 > 230 {
            self.change(step.1 % self.waiting.len(), step.2);
        } else {
            self.step(step);
        }
    }

    /// If a task is in a queue, the kernel takes it out, changes its weight and where it may run, and puts it back.
    /// There is no callback for taking it out.
    fn change(&mut self, task: usize, seed: u64) {
        let queues = &mut self.native.services().queues;
        let Some(queue) = queues
            .iter_mut()
            .find(|queue| queue.iter().any(|at| at.2 == task))
        else {
            return;
        };
        queue.retain(|at| at.2 != task);
        let pcpus = self.running.len() as u32;
        let first = PcpuId(seed as u32 % pcpus);
        let changed = self.native.task(task);
        changed.weight = 1 + seed as u32 % 500;
        changed.allowed = match seed % 3 {
            0 => [first].into_iter().collect(),
            1 => (first.0..pcpus).map(PcpuId).collect(),
            _ => PcpuSet::first(pcpus),
        };
        if let Some(bound) = self.bound(task) {
            self.native.task(task).cpu = bound as i32;
        }
        self.native.enqueue(self.now, 0, task);
        let changed = self.native.peek(task);
        if changed.vcpu_of == 0 && changed.group == 0 {
            assert_eq!(changed.ctx.load, changed.weight, "it is known to weigh");
        }
    }

    /// Each task that is ready or runs is counted where it is, once; and no other task is counted. A task that a quota
    /// has released is counted where it is queued, though its own struct does not say so yet.
    fn counts_those_that_are_there(&self) -> Result<(), TestCaseError> {
        for cpu in 0..self.running.len() as u32 {
            let known = self.native.cpu(cpu);
            let mut expected = (0, 0);
            for task in (0..self.waiting.len()).map(|task| &self.native.peek(task).ctx) {
                let let_go = task.state == TASK_THROTTLED && task.released != 0;
                if task.cpu == cpu as i32 || (let_go && task.parked_for == cpu as i32) {
                    expected = (expected.0 + 1, expected.1 + u64::from(task.load));
                }
            }
            if known.incoming != 0 {
                expected = (expected.0 + 1, expected.1 + u64::from(known.incoming_load));
            }
            prop_assert_eq!((known.nr, known.load), expected, "pCPU {}", cpu);
        }
        for (task, &waits) in self.waiting.iter().enumerate() {
            prop_assert!(
                !waits || self.native.peek(task).ctx.cpu == -1,
                "task {}",
                task
            );
        }
        Ok(())
    }

    fn schedule(&mut self, cpu: usize) {
        let prev = self.running[cpu];
        self.native.services().dispatching = cpu as u32;
        self.native.services().idle[cpu] = false;
        if self.native.services().local[cpu].is_empty() {
            self.native.dispatch(self.now, cpu as u32, prev);
        }
        let next = self.native.services().local[cpu].pop_front();
        let Some(next) = next else {
            self.native.services().idle[cpu] = prev.is_none();
            return;
        };
        if let Some(prev) = prev {
            self.native.stopping(self.now, cpu as u32, prev, true);
            self.native.enqueue(self.now, cpu as u32, prev);
        }
        self.native.task(next).cpu = cpu as i32;
        self.native.running(self.now, cpu as u32, next);
        self.running[cpu] = Some(next);
    }

    /// The kernel takes a task that runs off its pCPU, changes it, and puts it back: on the pCPU of the task that asked
    /// for that, and without queueing it.
    fn change_running(&mut self, task: usize, asked_on: u32) {
        self.native.stopping(self.now, asked_on, task, false);
        self.native.running(self.now, asked_on, task);
    }
}

#[test]
fn a_task_changed_while_it_runs_is_counted_where_it_runs() {
    let mut machine = Machine::<true>::new(HOSTS[0], Placement::Free, Gang::None, true);
    machine.wake(0, 0);
    machine.schedule(0);
    assert_eq!(machine.running[0], Some(0), "it runs");
    machine.now += 1_000_000;
    machine.change_running(0, 1);
    assert_eq!(machine.native.peek(0).ctx.cpu, 0);
    let counted = |cpu| (machine.native.cpu(cpu).nr, machine.native.cpu(cpu).idle);
    assert_eq!(counted(0), (1, 0));
    assert_eq!(counted(1).0, 0);
}

/// Otherwise any process could have itself changed all the time, and be first for ever.
#[test]
fn a_task_that_has_itself_changed_is_forgiven_nothing() {
    let mut machine = Machine::<true>::new(HOSTS[0], Placement::Free, Gang::None, true);
    machine.wake(0, 0);
    machine.schedule(0);
    let before = machine.native.peek(0).ctx.vtime;
    for _ in 0..3 {
        machine.now += 1_000_000;
        machine.change_running(0, 0);
    }
    let ran = machine.native.peek(0).ctx.vtime - before;
    assert!(ran >= 2_000_000, "{ran}");
}

/// Kernels may fail to start a timer, and do not report that.
#[test]
fn a_release_that_did_not_come_is_asked_for_again() {
    let mut machine = Machine::<true>::new(HOSTS[0], Placement::Free, Gang::None, true);
    machine.configure_groups(1);
    let asked = |machine: &mut Machine<true>| {
        let timers = machine.native.services().deeds.iter();
        let of_parked = timers.filter(|deed| deed.0 == "timer" && deed.1 >= MAX_PCPUS as u64);
        of_parked.count()
    };
    machine.wake(1, 0);
    (0..HOSTS[0] as usize).for_each(|cpu| machine.schedule(cpu));
    assert_eq!(asked(&mut machine), 0, "it runs");
    machine.wake(4, 0);
    assert_eq!(asked(&mut machine), 1, "nothing is left for it");
    machine.wake(7, 0);
    assert_eq!(asked(&mut machine), 1, "as soon as for the one before");
    machine.now += 10_000_000_000;
    machine.wake(10, 0);
    assert_eq!(asked(&mut machine), 2, "long after it was due");
}

/// A sched_ext scheduler is not told that a task of a higher class has a pCPU: the pCPU seems to idle.
#[test]
fn where_a_pcpu_that_seems_to_idle_does_not_answer_another_one_is_called() {
    let mut machine = Machine::<true>::new(HOSTS[0], Placement::Free, Gang::None, true);
    (0..HOSTS[0] as usize).for_each(|cpu| machine.schedule(cpu));
    machine.native.services().idle[0] = false;
    machine.native.services().deeds.clear();
    machine.wake(0, 0);
    let kicks = machine.native.services().deeds.iter();
    let kicks: Vec<_> = kicks
        .filter(|deed| deed.0 == "kick")
        .map(|deed| deed.1)
        .collect();
    assert_eq!(kicks, [0, 1]);
    machine.schedule(1);
    assert_eq!(machine.running[1], Some(0), "it is taken from there");
}

proptest! {
    #[test]
    fn both_builds_do_the_same(
        steps in prop::collection::vec((any::<u8>(), any::<usize>(), 0u64..3_000_000), 1..1000),
        pcpus in prop::sample::select(&HOSTS),
        placement in prop_oneof![
            Just(Placement::Free),
            Just(Placement::Fixed),
            Just(Placement::Balance),
            Just(Placement::LoadConscious),
            Just(Placement::Pool),
            Just(Placement::Core)
        ],
        gang in gangs(),
        slice_timer: bool,
        cores in prop::option::of(0u64..5),
        quota in prop::option::of(0u64..8_000_000),
    ) {
        let mut tapped = Machine::<true>::new(pcpus, placement, gang, slice_timer);
        let mut untapped = Machine::<false>::new(pcpus, placement, gang, slice_timer);
        if let Some(ms) = cores {
            tapped.configure_cores(ms);
            untapped.configure_cores(ms);
        }
        if let Some(quota) = quota {
            tapped.configure_groups(quota);
            untapped.configure_groups(quota);
        }
        for step in steps {
            tapped.step(step);
            untapped.step(step);
        }
        let (with, without) = (tapped.native.services(), untapped.native.services());
        prop_assert_eq!(&with.deeds, &without.deeds);
        prop_assert_eq!(without.taps, 0);
        prop_assert_eq!(&tapped.running, &untapped.running);
        for task in 0..tasks_on(pcpus) {
            prop_assert_eq!(tapped.native.task(task).ctx, untapped.native.task(task).ctx);
        }
        tapped.counts_those_that_are_there()?;
    }

    #[test]
    fn a_task_changed_in_a_queue_is_counted_once(
        steps in prop::collection::vec((any::<u8>(), any::<usize>(), 0u64..3_000_000), 1..1000),
        pcpus in prop::sample::select(&HOSTS),
        placement in prop::sample::select(vec![Placement::Free, Placement::Fixed, Placement::Balance]),
        gang in gangs(),
        quota in prop::option::of(0u64..8_000_000),
    ) {
        let mut tapped = Machine::<true>::new(pcpus, placement, gang, true);
        if let Some(quota) = quota {
            tapped.configure_groups(quota);
        }
        for step in steps {
            tapped.kernel_step(step);
        }
        tapped.counts_those_that_are_there()?;
    }
}
