// SPDX-License-Identifier: GPL-2.0-only
//! What a decision of the dispatcher costs, counted.
//!
//! Problem: according to Sukwong & Kim (EuroSys 2011, §4.3) a decision of balance scheduling costs O(N) for N pCPUs,
//! whatever the length of runqueues, and one of co-scheduling O(N R). Times on a machine cannot prove such claims. But
//! whatever the dispatcher reads from the world or tells it passes the tap, one exchange each, pCPU by pCPU as in the
//! kernel's build; so a decision's exchanges are counted, in simulations of busy hosts of growing size. (The build that
//! simulations use otherwise finds pCPUs in O(log N), by `dispatcher/platform/index.h`.)

use crate::Simulation;
use crate::host::{Costs, HardwareParams, Host, HostParams};
use crate::load::{Pattern, Patterns};
use crate::sched::HostScheduler;
use crate::sched::dispatcher::{Counted, Dispatcher, Watch};
use crate::sched::forward::forward;
use corun_dispatcher::Callback;
use corun_model::time::{MS, US};
use corun_model::{DispatcherParams, Nanos, PcpuId, TaskId};
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
    /// Hardware threads of a core: 2 for policies that schedule cores, else 1.
    pub threads: u32,
}

impl Size {
    /// A host with the kind of cores that `policy` needs.
    pub fn new(policy: &PolicyInfo, pcpus: u32, per_pcpu: u32, siblings: u32) -> Self {
        Self {
            pcpus,
            per_pcpu,
            siblings,
            threads: policy.threads,
        }
    }
}

/// Exchanges of decisions of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many decisions.
    pub decisions: u64,
    /// Their exchanges.
    pub exchanges: u64,
    /// Exchanges of the most expensive one.
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
    /// The choice of a pCPU's next task, including looks at other pCPUs for work.
    pub picks: Tally,
}

/// A busy host of this size; `None` if there can be no such host.
fn host(size: Size) -> Option<HostParams> {
    let cores = size.pcpus / size.threads.max(1);
    Some(HostParams {
        topology: format!("1n1l{cores}c{}t", size.threads).parse().ok()?,
        hz: 250,
        tick_skew: false,
        idle_states: Vec::new(),
        costs: Costs::default(),
        hardware: HardwareParams::default(),
    })
}

/// Runs such a host under `policy`, whatever schedules it: for a while until it is in a steady state, and then for as
/// long as is counted.
fn busy(policy: &PolicyInfo, size: Size, params: HostParams, sched: Box<dyn HostScheduler>) {
    let siblings = size.siblings.max(1);
    let pattern = |n: u32| Pattern {
        run: MS,
        sleep: 100 * US,
        ..Pattern::hog(Some((n / siblings, n % siblings)))
    };
    let vcpus = size.pcpus * size.per_pcpu;
    let vms = vec![Some(100); vcpus.div_ceil(siblings) as usize];
    let load = Patterns::new((0..vcpus).map(pattern).collect(), &vms, 1);
    let settled = settled(policy, size);
    let length = (1600 * MS / Nanos::from(size.pcpus)).max(10 * MS);
    let policy = (policy.make)(&corun_policies::Settings::default());
    Simulation::new(params, sched, Box::new(load), None)
        .with_policy(policy)
        .run(settled, settled + length, |_| {});
}

/// From when on a host is in a steady state. All vCPUs start at once on an empty host: two rounds later, and once a
/// policy that counts has counted.
fn settled(policy: &PolicyInfo, size: Size) -> Nanos {
    let rounds = 2 * MS * Nanos::from(size.per_pcpu);
    let policy = (policy.make)(&corun_policies::Settings::default());
    if policy.wants_signals() {
        rounds.max(policy.period() + MS)
    } else {
        rounds
    }
}

/// Counts the decisions of the dispatcher under `policy` on a host of this size; `None` if there can
/// be no such host.
pub fn count(policy: &PolicyInfo, size: Size) -> Option<Cost> {
    let params = host(size)?;
    let cost = Rc::new(RefCell::new(Cost::default()));
    let counting = Counting {
        sched: Dispatcher::counted(DispatcherParams::default(), &params),
        cost: Rc::clone(&cost),
        from: settled(policy, size),
    };
    busy(policy, size, params, Box::new(counting));
    let cost = *cost.borrow();
    Some(cost)
}

/// Runs such a host under the build that is most like the kernel's. `told` is called when a callback has returned, and
/// is told whether the host is in a steady state by then. False if there can be no such host.
pub fn watch(policy: &PolicyInfo, size: Size, mut told: Box<dyn FnMut(Callback, bool)>) -> bool {
    let Some(params) = host(size) else {
        return false;
    };
    let from = settled(policy, size);
    let watch: Watch = Box::new(move |callback, now| told(callback, now >= from));
    let sched = Dispatcher::plain(DispatcherParams::default(), &params, watch);
    busy(policy, size, params, Box::new(sched));
    true
}

/// Counts what the dispatcher exchanges for each decision.
struct Counting {
    sched: Dispatcher<Counted>,
    cost: Rc<RefCell<Cost>>,
    from: Nanos,
}

impl HostScheduler for Counting {
    forward! { sched: know_vms know_cgroups add block tick timer directs_yields yield_pcpu flush_ipi co_stopped throttled turns apply }

    fn wake(&mut self, host: &mut Host, task: TaskId, waker: Option<PcpuId>) {
        let before = self.sched.exchanges();
        self.sched.wake(host, task, waker);
        if host.now() >= self.from {
            let exchanges = self.sched.exchanges() - before;
            self.cost.borrow_mut().wakes.add(exchanges);
        }
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(policy: &str, pcpus: u32, per_pcpu: u32, siblings: u32) -> Cost {
        let policy = corun_policies::find(policy).unwrap();
        let size = Size::new(policy, pcpus, per_pcpu, siblings);
        let cost = count(policy, size).unwrap();
        println!("{} {size:?}: {cost:?}", policy.name);
        assert!(cost.wakes.decisions > 100 && cost.picks.decisions > 100);
        cost
    }

    /// From 64 to 256 pCPUs, a linear cost grows 4 times, a quadratic one 16 times.
    #[test]
    fn no_decision_costs_more_than_linear_in_pcpus() {
        for policy in corun_policies::all() {
            // The most expensive decisions are rare: a single small host may have none of them.
            let [other, small, large] = [60, 64, 256].map(|pcpus| cost(policy.name, pcpus, 4, 4));
            for (what, other, small, large) in [
                ("wakes", other.wakes, small.wakes, large.wakes),
                ("picks", other.picks, small.picks, large.picks),
            ] {
                let name = policy.name;
                assert!(large.mean() < 4.4 * small.mean(), "{name}: {what}");
                // The same holds for the most expensive one, which a pCPU may have to wait for.
                let most = small.most.max(other.most);
                assert!(large.most < most * 22 / 5, "{name}: {what}");
            }
        }
    }

    /// When a slot begins, one decision goes through all its VMs, whose number grows with that of pCPUs: each VM may
    /// cost as much as the pCPUs it gets, but not a look at every pCPU.
    #[test]
    fn a_time_slot_is_opened_in_linear_time_whatever_the_vms() {
        for siblings in [2, 4, 16] {
            let [small, large] =
                [64, 256].map(|pcpus| cost("cosched-strict", pcpus, 2, siblings).picks);
            assert!(large.most < small.most * 22 / 5, "{siblings} siblings");
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
