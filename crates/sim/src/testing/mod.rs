// SPDX-License-Identifier: GPL-2.0-only
//! For tests of schedulers: small loads, a witness of every switch, and a scheduler's auditor; the
//! tests that every scheduler has to pass are in [`shared`].

pub(crate) mod shared;

use crate::host::{
    Activity, HardwareParams, Host, HostParams, Observer, Task, TaskSpec, TaskState,
};
use crate::load::{Achieved, Cgroups, Load, Offered, VmInfo};
use crate::rng::Rng;
use crate::sched::HostScheduler;
use crate::sched::forward::forward;
use crate::{Outcome, Simulation};
use corun_model::{Nanos, PcpuId, PcpuSet, Plan, TaskId, VmId};
use std::cell::RefCell;
use std::rc::Rc;

/// What a task does.
#[derive(Clone, Debug)]
pub(crate) enum Does {
    /// Computes without end, from this time on.
    Hog { from: Nanos },
    /// Computes for this time and then sleeps for good.
    Once { work: Nanos },
    /// Computes and sleeps for random times of these means, each within ±`spread` percent.
    Cycles {
        work: Nanos,
        sleep: Nanos,
        spread: u32,
    },
    /// Computes without end and yields each time it has done so much, as a spinning vCPU does.
    Spins { each: Nanos },
    /// Computes without end and wakes another task each time it has done so much.
    Sends { each: Nanos, to: u32 },
    /// Keeps its pCPU with this activity.
    Keeps(Activity),
    /// Computes for a time, wakes another task, and waits to be woken.
    Hands { work: Nanos, to: u32, first: bool },
    /// The same, but the wake-up comes before it begins to wait, as from a guest that goes idle.
    Asks { work: Nanos, to: u32, first: bool },
}

/// One task of a test.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) does: Does,
    pub(crate) weight: u32,
    pub(crate) vcpu: Option<(u32, u32)>,
    pub(crate) helper_of: Option<u32>,
    pub(crate) allowed: PcpuSet,
    pub(crate) slice: Option<Nanos>,
}

impl Job {
    pub(crate) fn new(does: Does) -> Self {
        Self {
            does,
            weight: 100,
            vcpu: None,
            helper_of: None,
            allowed: PcpuSet::first(512),
            slice: None,
        }
    }

    pub(crate) fn hog() -> Self {
        Self::new(Does::Hog { from: 0 })
    }

    pub(crate) fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    pub(crate) fn vcpu(mut self, vm: u32, number: u32) -> Self {
        self.vcpu = Some((vm, number));
        self
    }

    pub(crate) fn helper_of(mut self, vm: u32) -> Self {
        self.helper_of = Some(vm);
        self
    }

    pub(crate) fn slice(mut self, slice: Nanos) -> Self {
        self.slice = Some(slice);
        self
    }

    pub(crate) fn on(mut self, allowed: &str) -> Self {
        self.allowed = allowed.parse().unwrap();
        self
    }
}

/// A load of independent jobs.
pub(crate) struct Jobs {
    jobs: Vec<Job>,
    rngs: Vec<Rng>,
    left: Vec<Nanos>,
    vms: Vec<VmInfo>,
    cgroups: Cgroups,
    begin: Nanos,
}

impl Jobs {
    pub(crate) fn new(jobs: Vec<Job>, seed: u64) -> Self {
        let vms = jobs
            .iter()
            .filter_map(|job| job.vcpu)
            .map(|(vm, _)| vm + 1)
            .max();
        Self {
            rngs: (0..jobs.len() as u64)
                .map(|n| Rng::of(seed, "job", n))
                .collect(),
            left: vec![0; jobs.len()],
            jobs,
            vms: (0..vms.unwrap_or(0))
                .map(|n| VmInfo {
                    name: format!("vm{n}"),
                    weight: None,
                    cookie: 0,
                    cap: 0,
                    realtime: false,
                })
                .collect(),
            cgroups: Cgroups::default(),
            begin: 0,
        }
    }

    /// The same on a host with these cgroups.
    pub(crate) fn in_cgroups(mut self, cgroups: Cgroups) -> Self {
        self.cgroups = cgroups;
        self
    }

    /// The same, but beginning at `begin`.
    pub(crate) fn beginning_at(mut self, begin: Nanos) -> Self {
        self.begin = begin;
        self
    }

    /// The same with weights for the VMs.
    pub(crate) fn with_vm_weights(mut self, weights: &[u32]) -> Self {
        for (vm, weight) in self.vms.iter_mut().zip(weights) {
            vm.weight = Some(*weight);
        }
        self
    }

    /// The same with caps for the VMs, percent of a pCPU.
    pub(crate) fn with_vm_caps(mut self, caps: &[u32]) -> Self {
        for (vm, cap) in self.vms.iter_mut().zip(caps) {
            vm.cap = *cap;
        }
        self
    }

    /// The same with real-time VMs.
    pub(crate) fn with_realtime_vms(mut self, vms: &[usize]) -> Self {
        for &vm in vms {
            self.vms[vm].realtime = true;
        }
        self
    }

    fn draw(&mut self, task: usize) -> (Nanos, Nanos) {
        match self.jobs[task].does {
            Does::Hog { .. } | Does::Keeps(_) => (Nanos::MAX, 0),
            Does::Cycles {
                work,
                sleep,
                spread,
            } => (
                self.rngs[task].about(work, spread).max(1),
                self.rngs[task].about(sleep, spread).max(1),
            ),
            Does::Hands { work, .. }
            | Does::Asks { work, .. }
            | Does::Spins { each: work }
            | Does::Sends { each: work, .. }
            | Does::Once { work } => (work, 0),
        }
    }
}

impl Load for Jobs {
    fn vms(&self) -> Vec<VmInfo> {
        self.vms.clone()
    }

    fn cgroups(&self) -> Cgroups {
        self.cgroups.clone()
    }

    fn tasks(&self) -> Vec<TaskSpec> {
        let spec = |(n, job): (usize, &Job)| TaskSpec {
            name: format!("job{n}"),
            vcpu: job.vcpu.map(|(vm, number)| (VmId(vm), number)),
            helper_of: job.helper_of.map(VmId),
            weight: job.weight,
            allowed: job.allowed,
            last_on: None,
            slice: job.slice,
        };
        self.jobs.iter().enumerate().map(spec).collect()
    }

    fn start(&mut self, host: &mut Host) {
        for n in 0..self.jobs.len() {
            let at = match self.jobs[n].does {
                Does::Hog { from } => from,
                Does::Cycles { sleep, .. } => self.rngs[n].between(0, sleep),
                Does::Hands { first: true, .. }
                | Does::Asks { first: true, .. }
                | Does::Spins { .. }
                | Does::Sends { .. }
                | Does::Once { .. }
                | Does::Keeps(_) => 0,
                Does::Hands { first: false, .. } | Does::Asks { first: false, .. } => continue,
            };
            host.load_timer(self.begin + at, n as u64);
        }
    }

    fn run(&mut self, host: &mut Host, task: TaskId) {
        let n = task.index();
        if let Does::Keeps(activity) = self.jobs[n].does {
            host.set_activity(task, activity);
        }
        if self.left[n] == 0 {
            self.left[n] = self.draw(n).0;
        }
        if self.left[n] != Nanos::MAX {
            host.step_after(task, self.left[n]);
        }
    }

    fn stop(&mut self, _host: &mut Host, task: TaskId, done: Nanos) {
        let left = &mut self.left[task.index()];
        if *left != Nanos::MAX {
            *left = left.saturating_sub(done).max(1);
        }
    }

    fn step(&mut self, host: &mut Host, task: TaskId) {
        let n = task.index();
        self.left[n] = 0;
        if let Does::Spins { each } = self.jobs[n].does {
            self.left[n] = each;
            host.step_after(task, each);
            host.pause_exit(task);
            return;
        }
        let here = host.task(task).running_on();
        if let Does::Sends { each, to } = self.jobs[n].does {
            self.left[n] = each;
            host.step_after(task, each);
            host.wake(TaskId(to), here);
            return;
        }
        if let Does::Asks { to, .. } = self.jobs[n].does {
            host.wake(TaskId(to), here);
        }
        host.block(task);
        match self.jobs[n].does {
            Does::Hands { to, .. } => host.wake(TaskId(to), here),
            Does::Once { .. } | Does::Asks { .. } => {}
            _ => {
                let sleep = self.draw(n).1;
                host.load_timer(host.now() + sleep, n as u64);
            }
        }
    }

    /// A vCPU that spins may wait for any of the others.
    fn on_spin(
        &mut self,
        host: &mut Host,
        task: TaskId,
        offer: &mut dyn FnMut(&mut Host, TaskId) -> Offered,
    ) {
        let count = self.jobs.len();
        let others = (1..count).map(|step| TaskId::from((task.index() + step) % count));
        let mut others = others.map(|other| offer(host, other));
        others.find(|answer| *answer == Offered::Taken);
    }

    fn timer(&mut self, host: &mut Host, token: u64) {
        host.wake(TaskId(token as u32), None);
    }

    fn reset(&mut self, _now: Nanos) {}

    fn achieved(&self, _vm: VmId, _now: Nanos) -> Achieved {
        Achieved::default()
    }
}

/// Which task began to run where and when.
pub(crate) type Runs = Rc<RefCell<Vec<(Nanos, PcpuId, TaskId)>>>;

/// Writes down which tasks run.
pub(crate) struct Witness(pub(crate) Runs);

impl Observer for Witness {
    fn state(&mut self, now: Nanos, id: TaskId, task: &Task, _old: TaskState) {
        if let TaskState::Running(cpu) = task.state {
            self.0.borrow_mut().push((now, cpu, id));
        }
    }

    fn finish(&mut self, _now: Nanos) {}
}

/// Checks a scheduler: affinity, one pCPU per task, no task lost, no pCPU left idle for longer than
/// `patience` while a task that may use it waits elsewhere.
pub(crate) struct Audited<S> {
    pub(crate) sched: S,
    pub(crate) patience: Nanos,
    /// Per pCPU: since when it idles while others wait.
    wasted_since: Vec<Option<Nanos>>,
}

impl<S: HostScheduler> Audited<S> {
    pub(crate) fn new(sched: S, patience: Nanos) -> Self {
        Self {
            sched,
            patience,
            wasted_since: Vec::new(),
        }
    }

    /// `picked`: a pCPU and the task that is about to get it; the host does not know yet.
    fn audit(&mut self, host: &Host, picked: Option<(PcpuId, TaskId)>) {
        self.wasted_since.resize(host.pcpus(), None);
        let mut current: Vec<Option<TaskId>> = vec![None; host.pcpus()];
        for (id, task) in host.tasks() {
            match task.state {
                TaskState::Waiting => {}
                TaskState::Ready => assert!(task.runqueue().is_some(), "{id} is lost"),
                TaskState::Running(cpu) => {
                    assert!(task.spec.allowed.contains(cpu), "{id} may not use {cpu}");
                    let other = current[cpu.index()].replace(id);
                    assert_eq!(other, None, "two tasks on {cpu}");
                }
            }
        }
        for cpu in host.all_pcpus() {
            assert_eq!(host.current(cpu), current[cpu.index()]);
            let waits = |(id, task): (TaskId, &Task)| {
                let runs = picked.is_some_and(|(_, next)| next == id);
                !runs && task.state == TaskState::Ready && task.spec.allowed.contains(cpu)
            };
            let given = picked.is_some_and(|(to, _)| to == cpu);
            let idle = host.current(cpu).is_none() && !given;
            let wasted = idle && host.tasks().any(waits);
            let since = &mut self.wasted_since[cpu.index()];
            match wasted {
                true => {
                    let since = *since.get_or_insert(host.now());
                    let wasted = host.now() - since;
                    assert!(
                        wasted <= self.patience,
                        "{cpu} idled {wasted} ns with work to do: {}",
                        queues(host)
                    );
                }
                false => *since = None,
            }
        }
    }
}

/// Which task is where, and with what weight; running ones are marked with a star.
fn queues(host: &Host) -> String {
    let on = |cpu: PcpuId| -> Vec<String> {
        let here = |(_, task): &(TaskId, &Task)| {
            task.state != TaskState::Waiting && task.runqueue() == Some(cpu)
        };
        let say = |(id, task): (TaskId, &Task)| {
            let star = if task.running_on().is_some() { "*" } else { "" };
            format!("{id}:{}{star}", task.spec.weight)
        };
        host.tasks().filter(here).map(say).collect()
    };
    let all: Vec<String> = host
        .all_pcpus()
        .map(|cpu| format!("{cpu} {:?}", on(cpu)))
        .collect();
    all.join(", ")
}

impl<S: HostScheduler> HostScheduler for Audited<S> {
    forward! { sched: know_vms know_cgroups add block timer directs_yields yield_pcpu flush_ipi co_stopped throttled turns }

    fn wake(&mut self, host: &mut Host, task: TaskId, waker: Option<PcpuId>) {
        self.sched.wake(host, task, waker);
        let home = host.task(task).runqueue();
        assert!(home.is_some_and(|cpu| host.task(task).spec.allowed.contains(cpu)));
        self.audit(host, None);
    }

    fn pick(&mut self, host: &mut Host, cpu: PcpuId) -> Option<TaskId> {
        let next = self.sched.pick(host, cpu);
        if let Some(task) = next {
            let known = host.task(task);
            assert!(known.spec.allowed.contains(cpu), "{task} may not use {cpu}");
            assert!(
                known.state == TaskState::Ready || known.state == TaskState::Running(cpu),
                "{task} is {:?}, picked on {cpu}",
                known.state
            );
            assert_eq!(known.runqueue(), Some(cpu), "{task} is queued elsewhere");
        }
        self.audit(host, next.map(|task| (cpu, task)));
        next
    }

    fn tick(&mut self, host: &mut Host, cpu: PcpuId) {
        self.sched.tick(host, cpu);
        self.audit(host, None);
    }

    fn apply(&mut self, host: &mut Host, plan: &Plan) {
        self.sched.apply(host, plan);
        self.audit(host, None);
    }
}

/// A host for tests, where nothing costs time, so that times can be computed by hand.
pub(crate) fn host(topology: &str, hz: u32) -> HostParams {
    HostParams {
        topology: topology.parse().unwrap(),
        hz,
        tick_skew: false,
        idle_states: Vec::new(),
        costs: crate::host::Costs::NONE,
        hardware: HardwareParams::UNSHARED,
    }
}

/// Runs `load` and says what came out and which task ran when.
pub(crate) fn run(
    params: &HostParams,
    sched: impl HostScheduler + 'static,
    load: Jobs,
    warm_up: Nanos,
    end: Nanos,
) -> (Outcome, Vec<(Nanos, PcpuId, TaskId)>) {
    let runs = Runs::default();
    let witness = Box::new(Witness(runs.clone()));
    let simulation = Simulation::new(
        params.clone(),
        Box::new(sched),
        Box::new(load),
        Some(witness),
    );
    let outcome = simulation.run(warm_up, end, |_| {});
    (outcome, runs.take())
}

/// Each task's run time, as a share of the measured time.
pub(crate) fn run_shares(outcome: &Outcome) -> Vec<f64> {
    let share =
        |task: &(String, bool, crate::host::Totals)| task.2.run as f64 / outcome.measured as f64;
    outcome.tasks.iter().map(share).collect()
}
