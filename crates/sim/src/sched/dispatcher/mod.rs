// SPDX-License-Identifier: GPL-2.0-only
//! corun's own dispatcher on the modelled host: the C code itself, under the sched_ext contract.
//!
//! This file is the kernel's side of the contract, as `kernel/sched/ext.c` implements it (6.12–7.x): which callback is
//! made when, and what follows from it.
//!
//! * wake-up: `select_cpu` (not for a task bound to one pCPU), then `enqueue`, unless select_cpu
//!   put the task straight into the local queue;
//! * a pCPU that must schedule: a task with slice left keeps it; else the local queue; else
//!   `dispatch`, after which the same two questions are asked again; a task that then still has the
//!   pCPU to itself is enqueued (`SCX_OPS_ENQ_LAST`);
//! * a switch: `stopping` and, if the old task wants to run on, `enqueue`; then `running`;
//! * a task that blocks: `stopping`;
//! * slices are charged at ticks and switches and end at the tick that finds them used up;
//!   `SCX_KICK_PREEMPT` ends one at once, and so does `SCX_ENQ_PREEMPT`, with which a task is put first
//!   into the local queue.
//!
//! Left out: bypass mode, the global queue (the dispatcher does not use it), scheduling classes
//! above sched_ext.

#[cfg(test)]
mod asymmetric_tests;
#[cfg(test)]
mod core_tests;
#[cfg(test)]
mod equals_tests;
#[cfg(test)]
mod gang_tests;
#[cfg(test)]
mod grace_tests;
#[cfg(test)]
mod group_tests;
mod groups;
mod helpers;
#[cfg(test)]
mod idle_tests;
#[cfg(test)]
mod jupiter_tests;
#[cfg(test)]
mod mixed_gang_tests;
#[cfg(test)]
mod placement_tests;
mod queues;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod turn_tests;
#[cfg(test)]
mod vsmtio_tests;
#[cfg(test)]
mod yield_tests;

use crate::event_queue::EventId;
use crate::host::{Host, HostParams, TaskState};
use crate::load::{Cgroups, VmInfo};
use crate::sched::HostScheduler;
use corun_dispatcher::{
    Kick, Knobs, MAX_PCPUS, Native, PcpuConf, PoolConf, TASK_THROTTLED, TaskConf, TaskCtx,
    TaskStruct,
};
use corun_model::{
    DispatcherParams, Doing, Gang, NEUTRAL_WEIGHT, Nanos, PcpuId, PcpuSet, Placement, Plan,
    Sharing, TaskId, Turns, VmId, VmPlan,
};
use groups::Groups;
use helpers::Helpers;
use queues::Queues;
pub use queues::{Counted, Indexed, Kind, Plain, Watch};

/// The dispatcher as a host scheduler. Tasks have the same index on both sides.
///
/// Decisions do not depend on `K`, its build: [`Indexed`] is for simulations; the others look at pCPUs one by one, as
/// the kernel's build does, and measure what that costs.
pub struct Dispatcher<K: Kind = Indexed> {
    native: Native<Queues<K>>,
    timers: Vec<EventId>,
    plans: Vec<VmPlan>,
    weights: Vec<Option<u32>>,
    /// The pCPUs that any vCPU of each VM may use.
    allowed: Vec<PcpuSet>,
    groups: Groups,
    helpers: Helpers,
}

/// The dispatcher's id of a VM: 0 means "none" there.
fn dispatcher_id(vm: VmId) -> u32 {
    vm.0 + 1
}

impl Dispatcher {
    /// The dispatcher for a host, all VMs placed freely until a policy says otherwise.
    pub fn new(params: DispatcherParams, host: &HostParams) -> Self {
        Self::build(params, host)
    }
}

impl Dispatcher<Plain> {
    /// The same, in the build whose instructions are counted; `watch` is told about its callbacks.
    pub fn plain(params: DispatcherParams, host: &HostParams, watch: Watch) -> Self {
        let mut plain = Self::build(params, host);
        plain.native.services().watch = Some(watch);
        plain
    }
}

impl Dispatcher<Counted> {
    /// The same, counting what passes the tap.
    pub fn counted(params: DispatcherParams, host: &HostParams) -> Self {
        Self::build(params, host)
    }

    /// How many single values the dispatcher has read from the world and told it so far.
    pub fn exchanges(&mut self) -> u64 {
        self.native.services().exchanges
    }
}

impl<K: Kind> Dispatcher<K> {
    fn build(params: DispatcherParams, host: &HostParams) -> Self {
        let pcpus = host.topology.pcpus();
        let sharing = Sharing::of_topology(&host.topology);
        let knobs = Knobs::of(&params, &PcpuSet::first(pcpus), &sharing);
        Self {
            native: Native::new(knobs, Queues::new(pcpus as usize)),
            timers: vec![EventId::NONE; 2 * pcpus as usize],
            plans: Vec::new(),
            weights: Vec::new(),
            allowed: Vec::new(),
            groups: Groups::default(),
            helpers: Helpers::default(),
        }
    }

    fn configure(&mut self, vm: usize) {
        let id = dispatcher_id(VmId::from(vm));
        self.native
            .configure_vm(id, &self.plans[vm], self.weights[vm], &self.allowed[vm]);
    }

    /// A vCPU of a VM may use these pCPUs.
    fn allow(&mut self, vm: VmId, pcpus: &PcpuSet) {
        let vm = vm.index();
        if let Some(allowed) = self.allowed.get_mut(vm) {
            *allowed = allowed.or(pcpus);
            self.configure(vm);
        }
    }

    /// Passes on to the host what the dispatcher asked for during a callback made on `here`.
    fn pass_on(&mut self, host: &mut Host, here: Option<PcpuId>) {
        let runs = here.and_then(|cpu| host.current(cpu));
        self.pass_on_beside(host, here, runs);
    }

    /// The same if `runs` runs on `here`, or is just being switched in there.
    fn pass_on_beside(&mut self, host: &mut Host, here: Option<PcpuId>, runs: Option<TaskId>) {
        let queues = self.native.services();
        if queues.nothing_asked() {
            return;
        }
        for (task, cpu) in queues.moves.drain(..) {
            host.queue_on(TaskId::from(task), PcpuId(cpu));
        }
        let pcpus = self.timers.len() / 2;
        for (timer, delay) in queues.timer_starts.drain(..) {
            let at = match (timer as usize).checked_sub(MAX_PCPUS) {
                Some(cpu) => pcpus + cpu,
                None => timer as usize,
            };
            let due = host.now() + delay;
            if !host.put_off(self.timers[at], due) {
                self.timers[at] = host.sched_timer(due, at as u64);
            }
        }
        for (cpu, how) in queues.kicks.drain(..) {
            let cpu = PcpuId(cpu);
            let current = match here == Some(cpu) {
                true => runs,
                false => host.current(cpu),
            };
            match (how, current) {
                (Kick::Preempt, Some(task)) => queues.tasks[task.index()].slice = 0,
                // It is busy, unless it is just giving its task up.
                (Kick::Idle, Some(_)) if here != Some(cpu) => continue,
                _ => {}
            }
            host.resched(cpu, here);
        }
    }

    /// Charges the running task's slice.
    fn charge(&mut self, now: Nanos, task: TaskId) {
        let task = &mut self.native.services().tasks[task.index()];
        task.slice = task.slice.saturating_sub(now - task.charged);
        task.charged = now;
    }

    fn slice_left(&mut self, task: TaskId) -> bool {
        self.native.services().tasks[task.index()].slice > 0
    }

    /// What `balance_one` does: is there something to run on `cpu`? [`Next::Keep`]: `prev` keeps
    /// the pCPU.
    fn find_next(&mut self, host: &mut Host, cpu: PcpuId, prev: Option<TaskId>) -> Next {
        let now = host.now();
        if let Some(prev) = prev {
            self.charge(now, prev);
            if self.slice_left(prev) {
                return Next::Keep;
            }
        }
        if let Some(task) = self.native.services().take_local(cpu) {
            return Next::Switch(task);
        }
        self.native.dispatch(now, cpu.0, prev.map(TaskId::index));
        self.pass_on(host, Some(cpu));
        if prev.is_some_and(|prev| self.slice_left(prev)) {
            return Next::Keep;
        }
        match self.native.services().take_local(cpu) {
            Some(task) => Next::Switch(task),
            None => Next::Nothing,
        }
    }

    /// `prev` loses `cpu` and wants to run on.
    fn put_back(&mut self, host: &mut Host, cpu: PcpuId, prev: TaskId) {
        let now = host.now();
        self.native.stopping(now, cpu.0, prev.index(), true);
        self.native.enqueue(now, cpu.0, prev.index());
        self.pass_on(host, Some(cpu));
    }
}

/// How long a pCPU has been held for a task up to now, where that is not booked yet.
fn held_now(ctx: &TaskCtx, now: Nanos) -> Nanos {
    match ctx.held_since {
        0 => 0,
        since => now.min(ctx.held_until).saturating_sub(since),
    }
}

/// What a pCPU does next.
enum Next {
    Keep,
    Switch(TaskId),
    Nothing,
}

impl<K: Kind> HostScheduler for Dispatcher<K> {
    fn know_vms(&mut self, vms: &[VmInfo]) {
        let free = |vm| VmPlan::placed(VmId::from(vm), Placement::Free);
        self.plans = (0..vms.len()).map(free).collect();
        self.weights = vms.iter().map(|vm| vm.weight).collect();
        self.allowed = vec![PcpuSet::default(); vms.len()];
        (0..vms.len()).for_each(|vm| self.configure(vm));
    }

    fn know_cgroups(&mut self, groups: &Cgroups) {
        self.groups = Groups::of(groups, &self.weights);
        for (place, &conf) in self.groups.table.iter().enumerate() {
            self.native.configure_group(place, conf);
        }
    }

    fn add(&mut self, host: &mut Host, task: TaskId) {
        let spec = &host.task(task).spec;
        let vm = spec.vcpu.map(|(vm, _)| vm);
        let mut known = TaskStruct {
            id: task.0 + 1,
            vcpu_of: vm.map_or(0, dispatcher_id),
            weight: spec.weight,
            allowed: spec.allowed,
            group: self.groups.of_vm(vm.or(spec.helper_of)),
            ..TaskStruct::default()
        };
        if let Some(own) = self.groups.add_vcpu(vm, spec.weight) {
            let place = own as usize - 1;
            (self.native).configure_group(place, self.groups.table[place]);
            (known.group, known.weight) = (own, NEUTRAL_WEIGHT);
        }
        self.helpers.add(task.index(), vm, spec.helper_of);
        self.native.services().add_task();
        self.native.add_task(known, host.now());
        if let Some(vm) = vm {
            self.allow(vm, &host.task(task).spec.allowed);
        }
    }

    fn wake(&mut self, host: &mut Host, task: TaskId, waker: Option<PcpuId>) {
        let now = host.now();
        let last = host.task(task).last_ran();
        let allowed = &self.native.peek(task.index()).allowed;
        let prev = last
            .filter(|&cpu| allowed.contains(cpu))
            .or_else(|| allowed.iter().next())
            .unwrap_or(PcpuId(0));
        let free = allowed.has_several();
        // An interrupt is taken on the pCPU where the task ran last.
        let here = waker.unwrap_or(prev);
        let current = host.current(here).map(TaskId::index);
        self.native.set_interrupt(waker.is_none());
        let mut cpu = prev;
        if free {
            cpu = PcpuId(
                self.native
                    .select_cpu(now, here.0, task.index(), prev.0, current),
            );
            if !self.native.peek(task.index()).allowed.contains(cpu) {
                cpu = prev;
            }
        }
        self.native.task(task.index()).cpu = cpu.0 as i32;
        if self.native.services().put_direct(task, cpu) {
            host.resched(cpu, waker);
        } else if free {
            self.native.enqueue(now, here.0, task.index());
        } else {
            let woken = task.index();
            self.native.enqueue_woken(now, here.0, woken, current);
        }
        self.native.set_interrupt(false);
        self.pass_on(host, waker);
    }

    fn block(&mut self, host: &mut Host, task: TaskId, cpu: PcpuId) {
        let now = host.now();
        self.charge(now, task);
        self.native.stopping(now, cpu.0, task.index(), false);
        self.pass_on(host, Some(cpu));
    }

    fn pick(&mut self, host: &mut Host, cpu: PcpuId) -> Option<TaskId> {
        let prev = host.current(cpu);
        self.native.services().set_idle(cpu, false);
        self.native.services().dispatching = cpu.0;
        let next = match self.find_next(host, cpu, prev) {
            Next::Keep => return prev,
            Next::Switch(task) => Some(task),
            Next::Nothing => None,
        };
        if let Some(prev) = prev {
            self.put_back(host, cpu, prev);
        }
        match next {
            Some(task) => {
                let now = host.now();
                self.native.services().tasks[task.index()].charged = now;
                self.native.task(task.index()).cpu = cpu.0 as i32;
                self.native.running(now, cpu.0, task.index());
                self.pass_on_beside(host, Some(cpu), Some(task));
            }
            None => self.native.services().set_idle(cpu, true),
        }
        next
    }

    fn tick(&mut self, host: &mut Host, cpu: PcpuId) {
        if let Some(task) = host.current(cpu) {
            self.charge(host.now(), task);
            if !self.slice_left(task) {
                host.resched(cpu, Some(cpu));
            }
        }
    }

    fn timer(&mut self, host: &mut Host, token: u64) {
        let pcpus = self.timers.len() / 2;
        let at = token as usize;
        self.timers[at] = EventId::NONE;
        let cpu = PcpuId::from(at % pcpus);
        match at < pcpus {
            true => self.native.timer(host.now(), cpu.0),
            false => self.native.release(host.now(), cpu.0),
        }
        self.pass_on(host, Some(cpu));
    }

    fn directs_yields(&self) -> bool {
        true
    }

    fn yield_pcpu(
        &mut self,
        host: &mut Host,
        task: TaskId,
        cpu: PcpuId,
        to: Option<TaskId>,
    ) -> bool {
        self.charge(host.now(), task);
        let to = to.map(TaskId::index);
        let yields = self.native.yields(host.now(), cpu.0, task.index(), to);
        self.pass_on(host, Some(cpu));
        if yields {
            host.resched(cpu, Some(cpu));
        }
        yields
    }

    fn flush_ipi(&mut self, host: &mut Host, task: TaskId) {
        let here = self.native.task(task.index()).cpu.max(0) as u32;
        self.native.flush_ipi(host.now(), here, task.index());
        self.pass_on(host, None);
    }

    fn co_stopped(&self, now: Nanos, task: TaskId) -> Nanos {
        let ctx = &self.native.peek(task.index()).ctx;
        let gang = self.native.gang(ctx.vm as usize);
        let place = (ctx.member as usize).checked_sub(1);
        let Some((gang, vcpu)) = gang.and_then(|gang| Some((gang, gang.vcpu.get(place?)?))) else {
            return 0;
        };
        let since = |since: Nanos| {
            if since == 0 {
                0
            } else {
                now.saturating_sub(since)
            }
        };
        // A gang is stopped as a whole, which only affects those of its vCPUs that are ready. For a vCPU that was
        // stopped by itself before, only that time counts (relaxed_all_release()).
        let stopped = match vcpu.stopped {
            0 => gang.stopped,
            own => own,
        };
        vcpu.costop + since(stopped).min(since(vcpu.since))
    }

    fn throttled(&self, now: Nanos, task: TaskId) -> Nanos {
        let ctx = &self.native.peek(task.index()).ctx;
        let since = match ctx.state {
            TASK_THROTTLED => ctx.since,
            _ => now,
        };
        ctx.sum.throttled + now.saturating_sub(since)
    }

    fn turns(&self, host: &Host, task: TaskId, since: Nanos) -> Turns {
        let ctx = &self.native.peek(task.index()).ctx;
        let wakers = ctx.wakers.iter().zip(&ctx.woken_at);
        let woke = |(id, at): &(&u32, &u64)| **id != 0 && **at >= since;
        let (doing, cpu) = match host.task(task).state {
            TaskState::Waiting => (Doing::Waiting, host.task(task).last_ran()),
            // As the daemon reports it: the vCPU is not to have a pCPU.
            TaskState::Ready if ctx.state == TASK_THROTTLED => {
                (Doing::Waiting, host.task(task).runqueue())
            }
            TaskState::Ready => (Doing::Ready, host.task(task).runqueue()),
            TaskState::Running(cpu) => (Doing::Running, Some(cpu)),
        };
        Turns {
            doing,
            cpu,
            depleted: ctx.sum.depleted,
            preempted: ctx.sum.preempted,
            late: ctx.sum.late,
            wakeups: ctx.sum.wakeups,
            wakers: wakers.filter(woke).map(|(id, _)| TaskId(id - 1)).collect(),
            retained: ctx.sum.held + held_now(ctx, host.now()),
            kept: ctx.sum.kept,
        }
    }

    fn apply(&mut self, host: &mut Host, plan: &Plan) {
        for wanted in &plan.pcpus {
            self.native
                .configure_pcpu(wanted.cpu.0, PcpuConf::of(wanted));
            host.retain_on(wanted.cpu, wanted.retention, wanted.gives_way);
        }
        // Pools come before the tasks that are to be in them.
        self.native
            .configure_pools(plan.pools.iter().map(|pool| PoolConf {
                slice: pool.slice,
                pcpus: pool.pcpus,
            }));
        for wanted in &plan.vms {
            if let Some(plan) = self.plans.get_mut(wanted.vm.index()) {
                *plan = wanted.clone();
                self.configure(wanted.vm.index());
            }
        }
        // The same way as the daemon does it.
        let gangs = self.plans.iter().any(|vm| vm.gang != Gang::None);
        self.native.look_at_gangs(gangs);
        if plan.tasks.iter().any(|wanted| wanted.micro) {
            self.native.look_at_micro_slices();
        }
        let known = self.native.tasks();
        for wanted in plan
            .tasks
            .iter()
            .filter(|wanted| wanted.task.index() < known)
        {
            self.native.task(wanted.task.index()).conf = TaskConf::of(wanted);
        }
        self.tell_helpers();
    }
}
