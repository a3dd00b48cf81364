// SPDX-License-Identifier: GPL-2.0-only
//! What a decision of the dispatcher costs, counted.
//!
//! Problem: Sukwong & Kim (EuroSys 2011, §4.3) have a decision of balance scheduling cost O(N) for N
//! pCPUs, whatever the length of runqueues, and one of co-scheduling O(N R). Times on a machine
//! prove nothing of that kind. But whatever the dispatcher reads of the world or tells it passes the
//! tap, one exchange each, pCPU by pCPU as in the kernel's build; so a decision's exchanges are
//! counted, in simulations of busy hosts of growing size. (The build that simulations use otherwise
//! finds pCPUs in O(log N), by `dispatcher/platform/index.h`.)

use crate::Simulation;
use crate::host::{Costs, HardwareParams, Host, HostParams};
use crate::load::{Pattern, Patterns, VmInfo};
use crate::sched::HostScheduler;
use crate::sched::dispatcher::Dispatcher;
use corun_model::time::{MS, US};
use corun_model::{DispatcherParams, Nanos, PcpuId, Plan, TaskId, Topology};
use corun_policies::PolicyInfo;
use std::cell::RefCell;
use std::rc::Rc;

/// A host, busy all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Its pCPUs, 1 to 512.
    pub pcpus: u32,
    /// vCPUs for each of them; nearly all of them are ready at any time.
    pub per_pcpu: u32,
    /// vCPUs of a VM.
    pub siblings: u32,
}

/// Exchanges of decisions of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many decisions.
    pub decisions: u64,
    /// Their exchanges.
    pub exchanges: u64,
    /// Those of the dearest one.
    pub most: u64,
}

impl Tally {
    fn add(&mut self, exchanges: u64) {
        self.decisions += 1;
        self.exchanges += exchanges;
        self.most = self.most.max(exchanges);
    }

    /// Exchanges per decision; 0 if there was none.
    pub fn mean(&self) -> f64 {
        match self.decisions {
            0 => 0.0,
            decisions => self.exchanges as f64 / decisions as f64,
        }
    }
}

/// What decisions cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Where a vCPU that wakes up goes.
    pub wakes: Tally,
    /// Who has a pCPU next, looks at others for work included.
    pub picks: Tally,
}

/// Counts the decisions of the dispatcher under `policy` on a host of this size; `None` if there can
/// be no such host.
pub fn count(policy: &PolicyInfo, size: Size) -> Option<Cost> {
    let params = HostParams {
        topology: Topology::flat(size.pcpus).ok()?,
        hz: 250,
        tick_skew: false,
        idle_states: Vec::new(),
        costs: Costs::default(),
        hardware: HardwareParams::default(),
    };
    let siblings = size.siblings.max(1);
    let pattern = |n: u32| Pattern {
        run: MS,
        sleep: 100 * US,
        ..Pattern::hog(Some((n / siblings, n % siblings)))
    };
    let vcpus = size.pcpus * size.per_pcpu;
    let vms = vec![Some(100); vcpus.div_ceil(siblings) as usize];
    let load = Patterns::new((0..vcpus).map(pattern).collect(), &vms, 1);
    let cost = Rc::new(RefCell::new(Cost::default()));
    // All start at once, on an empty host; after two rounds of that it is as usual.
    let settled = 2 * MS * Nanos::from(size.per_pcpu);
    let counting = Counting {
        sched: Dispatcher::counted(DispatcherParams::default(), &params),
        cost: Rc::clone(&cost),
        from: settled,
    };
    let simulation = Simulation::new(params, Box::new(counting), Box::new(load), None);
    let length = (1600 * MS / Nanos::from(size.pcpus)).max(10 * MS);
    let simulation = simulation.with_policy((policy.make)(&corun_policies::Settings::default()));
    simulation.run(settled, settled + length, |_| {});
    let cost = *cost.borrow();
    Some(cost)
}

/// Counts what the dispatcher exchanges for each decision.
struct Counting {
    sched: Dispatcher<true>,
    cost: Rc<RefCell<Cost>>,
    from: Nanos,
}

impl HostScheduler for Counting {
    fn know_vms(&mut self, vms: &[VmInfo]) {
        self.sched.know_vms(vms);
    }

    fn add(&mut self, host: &mut Host, task: TaskId) {
        self.sched.add(host, task);
    }

    fn wake(&mut self, host: &mut Host, task: TaskId, waker: Option<PcpuId>) {
        let before = self.sched.exchanges();
        self.sched.wake(host, task, waker);
        if host.now() >= self.from {
            let exchanges = self.sched.exchanges() - before;
            self.cost.borrow_mut().wakes.add(exchanges);
        }
    }

    fn block(&mut self, host: &mut Host, task: TaskId, cpu: PcpuId) {
        self.sched.block(host, task, cpu);
    }

    fn pick(&mut self, host: &mut Host, cpu: PcpuId) -> Option<TaskId> {
        let before = self.sched.exchanges();
        let next = self.sched.pick(host, cpu);
        if host.now() >= self.from {
            let exchanges = self.sched.exchanges() - before;
            self.cost.borrow_mut().picks.add(exchanges);
        }
        next
    }

    fn tick(&mut self, host: &mut Host, cpu: PcpuId) {
        self.sched.tick(host, cpu);
    }

    fn timer(&mut self, host: &mut Host, token: u64) {
        self.sched.timer(host, token);
    }

    fn directs_yields(&self) -> bool {
        self.sched.directs_yields()
    }

    fn yield_pcpu(
        &mut self,
        host: &mut Host,
        task: TaskId,
        cpu: PcpuId,
        to: Option<TaskId>,
    ) -> bool {
        self.sched.yield_pcpu(host, task, cpu, to)
    }

    fn apply(&mut self, host: &mut Host, plan: &Plan) {
        self.sched.apply(host, plan);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(policy: &str, pcpus: u32, per_pcpu: u32, siblings: u32) -> Cost {
        let size = Size {
            pcpus,
            per_pcpu,
            siblings,
        };
        let cost = count(corun_policies::find(policy).unwrap(), size).unwrap();
        println!("{policy} {size:?}: {cost:?}");
        assert!(cost.wakes.decisions > 100 && cost.picks.decisions > 100);
        cost
    }

    /// Linear is 8 times, and the square 64.
    #[test]
    fn no_policy_costs_more_than_linear_in_pcpus() {
        for policy in corun_policies::all() {
            let [small, large] = [16, 128].map(|pcpus| cost(policy.name, pcpus, 4, 4));
            assert!(
                large.wakes.mean() < 8.5 * small.wakes.mean(),
                "{}",
                policy.name
            );
            assert!(
                large.picks.mean() < 8.5 * small.picks.mean(),
                "{}",
                policy.name
            );
        }
    }

    /// §4.3: with N fixed, a decision of balance scheduling is O(1).
    #[test]
    fn placing_costs_the_same_whatever_the_runqueues() {
        for policy in ["fair", "balance"] {
            let [short, long] = [2, 16].map(|per_pcpu| cost(policy, 16, per_pcpu, 4).wakes);
            assert!((long.mean() / short.mean() - 1.0).abs() < 0.25, "{policy}");
        }
        let [few, many] = [2, 16].map(|siblings| cost("balance", 16, 4, siblings).wakes);
        assert!((many.mean() / few.mean() - 1.0).abs() < 0.25);
    }
}
