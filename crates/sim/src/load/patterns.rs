// SPDX-License-Identifier: GPL-2.0-only
//! Tasks that compute and sleep in turn: the plainest load, for tests and benchmarks.

use crate::host::{Host, TaskSpec};
use crate::load::{Achieved, Cgroups, Load, VmInfo};
use crate::rng::Rng;
use corun_model::time::{MS, SEC};
use corun_model::{Nanos, PcpuSet, TaskId, VmId};

/// A task that computes and sleeps in turn.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// Its VM and number there, if it is a vCPU.
    pub vcpu: Option<(u32, u32)>,
    /// Mean work between sleeps, ns; varies evenly by half of it.
    pub run: Nanos,
    /// Mean sleep, ns, exponentially distributed; 0: never sleeps.
    pub sleep: Nanos,
    /// Own weight, 100 = nice 0.
    pub weight: u32,
    /// pCPUs it may use.
    pub allowed: PcpuSet,
}

impl Pattern {
    /// A task that never sleeps.
    pub fn hog(vcpu: Option<(u32, u32)>) -> Self {
        Self {
            vcpu,
            run: SEC,
            sleep: 0,
            weight: 100,
            allowed: PcpuSet::first(512),
        }
    }
}

/// Such tasks together.
pub struct Patterns {
    tasks: Vec<Pattern>,
    vms: Vec<VmInfo>,
    left: Vec<Nanos>,
    rng: Rng,
    quiet_from: Nanos,
    cgroups: Cgroups,
}

impl Patterns {
    /// The load of `tasks`; `weights` has an entry for each VM they belong to.
    pub fn new(tasks: Vec<Pattern>, weights: &[Option<u32>], seed: u64) -> Self {
        let vm = |(n, &weight): (usize, &Option<u32>)| VmInfo {
            name: format!("vm{n}"),
            weight,
            cookie: 0,
            cap: 0,
            realtime: false,
        };
        let left = tasks.iter().map(|task| task.run).collect();
        let vms = weights.iter().enumerate().map(vm).collect();
        Self {
            tasks,
            vms,
            left,
            rng: Rng::of(seed, "patterns", 0),
            quiet_from: Nanos::MAX,
            cgroups: Cgroups::default(),
        }
    }

    /// Puts the tasks on a host with these cgroups.
    #[must_use]
    pub fn in_cgroups(mut self, cgroups: Cgroups) -> Self {
        self.cgroups = cgroups;
        self
    }

    /// From `time` on all tasks go to sleep for good, hogs included.
    #[must_use]
    pub fn quiet_from(mut self, time: Nanos) -> Self {
        self.quiet_from = time;
        self
    }
}

impl Load for Patterns {
    fn vms(&self) -> Vec<VmInfo> {
        self.vms.clone()
    }
    fn cgroups(&self) -> Cgroups {
        self.cgroups.clone()
    }
    fn tasks(&self) -> Vec<TaskSpec> {
        let spec = |task: &Pattern| TaskSpec {
            name: task
                .vcpu
                .map_or_else(|| "task".into(), |(vm, n)| format!("vm{vm}/{n}")),
            vcpu: task.vcpu.map(|(vm, n)| (VmId(vm), n)),
            helper_of: None,
            weight: task.weight,
            allowed: task.allowed,
            last_on: None,
            slice: None,
        };
        self.tasks.iter().map(spec).collect()
    }
    fn start(&mut self, host: &mut Host) {
        for task in 0..self.tasks.len() {
            host.load_timer(self.rng.between(0, MS), task as u64);
        }
    }
    fn run(&mut self, host: &mut Host, task: TaskId) {
        host.step_after(task, self.left[task.index()]);
    }
    fn stop(&mut self, _host: &mut Host, task: TaskId, done: Nanos) {
        let left = &mut self.left[task.index()];
        *left = left.saturating_sub(done).max(1);
    }
    fn step(&mut self, host: &mut Host, task: TaskId) {
        let pattern = &self.tasks[task.index()];
        self.left[task.index()] = self.rng.about(pattern.run, 50).max(1);
        let over = host.now() >= self.quiet_from;
        if pattern.sleep == 0 && !over {
            host.step_after(task, self.left[task.index()]);
            return;
        }
        host.block(task);
        if !over {
            let sleep = self.rng.exponential(pattern.sleep);
            host.load_timer(host.now() + sleep, u64::from(task.0));
        }
    }
    fn timer(&mut self, host: &mut Host, token: u64) {
        host.wake(TaskId(token as u32), None);
    }
    fn reset(&mut self, _now: Nanos) {}
    fn achieved(&self, _vm: VmId, _now: Nanos) -> Achieved {
        Achieved::default()
    }
}
