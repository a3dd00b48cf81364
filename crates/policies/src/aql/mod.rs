// SPDX-License-Identifier: GPL-2.0-only
//! AQL_Sched: a slice for every application type (Teabe, Tchana and Hagimont,
//! "Application-specific quantum for multi-core platform scheduler", EuroSys 2016).
//!
//! Every 30 ms each vCPU's type is recognised ([`vtrs`]); vCPUs of types that want the same slice
//! share a pool of pCPUs with that slice ([`cluster`]). Which slice suits a type, and how types are told
//! apart, comes from [`calibration`]. A vCPU stays on its pool's pCPUs while it is in the pool; within a
//! pool fair order decides.
//!
//! A vCPU whose affinity excludes all of its pool's pCPUs goes to the first pool that it can use.

pub mod calibration;
pub mod cluster;
mod kind;
pub mod recognise;
pub mod vtrs;

pub use calibration::{Calibration, Machine, Slices};
pub use kind::{Kind, Type};
pub use vtrs::Limits;

use crate::{AGNOSTIC, Policy, usable};
use cluster::{Member, Pooled};
use corun_model::{
    Nanos, Parameter, PcpuId, PcpuSet, Placement, Plan, Pool, Snapshot, Status, TaskId, TaskPlan,
    Value,
};
use recognise::Recogniser;
use std::collections::BTreeMap;

/// Pools by type.
#[derive(Clone, Debug, Default)]
pub struct Aql {
    calibration: Calibration,
    recogniser: Recogniser,
    pools: Vec<Pooled>,
    /// Of which vCPUs and sockets the pools are made, if to make them again would change nothing.
    settled: Option<(Vec<Member>, Vec<PcpuSet>)>,
}

impl Aql {
    /// With what calibration found.
    pub fn new(calibration: Calibration) -> Self {
        Self {
            calibration,
            ..Self::default()
        }
    }

    /// Makes the pools of these vCPUs, if they or what they are taken for have changed.
    fn make_pools(&mut self, members: Vec<Member>, sockets: Vec<PcpuSet>) {
        let of = (members, sockets);
        if self.settled.as_ref() == Some(&of) {
            return;
        }
        let pcpus = |socket: &PcpuSet| socket.iter().collect();
        let sockets: Vec<Vec<PcpuId>> = of.1.iter().map(pcpus).collect();
        let pools = cluster::cluster(&of.0, &sockets, &self.calibration.slices, &self.pools);
        self.settled = (pools == self.pools).then_some(of);
        self.pools = pools;
    }

    /// What can be set of it.
    pub fn parameters() -> Vec<Parameter> {
        let default = Calibration::default();
        let mut rows = vec![Parameter::new(
            "policy.aql.calibration",
            "file of `corun calibrate`, which replaces all below",
            Value::None,
            "AQL_Sched, EuroSys 2016, §3.4: slices are platform-dependent",
            "none and one for the paper's machine",
        )];
        rows.extend(slices(&default.slices));
        rows.extend(limits(&default.limits));
        rows
    }
}

/// The best slices' rows of the table of parameters.
fn slices(of: &Slices) -> [Parameter; 6] {
    let row = |key, meaning, slice: Option<Nanos>| {
        let value = slice.map_or(Value::Choice(AGNOSTIC), Value::Time);
        let source = "AQL_Sched, EuroSys 2016, §3.4.2 (i7-3770, Xen); of a file: `corun calibrate`";
        let tried = "1 to 90 ms by `corun calibrate`";
        Parameter::new(key, meaning, value, source, tried)
    };
    [
        row(
            "policy.aql.default",
            "slice where types disagree, or none has a wish",
            Some(of.default),
        ),
        row(
            "policy.aql.IOInt",
            "best slice of I/O-intensive vCPUs",
            of.io_int,
        ),
        row(
            "policy.aql.ConSpin",
            "best slice of vCPUs that spin",
            of.con_spin,
        ),
        row(
            "policy.aql.LLCF",
            "best slice of the last-level cache's friends",
            of.llcf,
        ),
        row(
            "policy.aql.LLCO",
            "best slice of what overflows the last-level cache",
            of.llco,
        ),
        row(
            "policy.aql.LoLCF",
            "best slice of lower caches' friends",
            of.lo_lcf,
        ),
    ]
}

/// The rows of the limits between types.
fn limits(of: &Limits) -> [Parameter; 4] {
    let row = |key, meaning, value: u64, unit| {
        let value = Value::Number(value as f64, unit);
        let source = "`corun calibrate` on a model of the paper's machine: half-way (on a \
                      logarithmic scale) between the calibration programs' medians; the paper gives none";
        Parameter::new(key, meaning, value, source, "the shipped ones only")
    };
    [
        row(
            "policy.aql.io_events",
            "I/O events of a vCPU from which on it is IOInt",
            of.io_events,
            "per 30 ms",
        ),
        row(
            "policy.aql.pause_exits",
            "pause-loop exits of a VM from which on it is ConSpin",
            of.pause_exits,
            "per 30 ms",
        ),
        row(
            "policy.aql.llc_references",
            "LLC references from which on a vCPU is no LoLCF",
            of.llc_references,
            "per million instructions",
        ),
        row(
            "policy.aql.llc_misses",
            "LLC misses from which on it is no LLCF",
            of.llc_misses,
            "per million references",
        ),
    ]
}

impl Policy for Aql {
    fn period(&self) -> Nanos {
        vtrs::PERIOD
    }

    fn decide(&mut self, seen: &Snapshot, plan: &mut Plan) {
        self.recogniser.look(seen, &self.calibration.limits);
        let members = members(seen, |task| self.recogniser.of(task));
        // A socket in the paper is a group of pCPUs that share a last-level cache.
        self.make_pools(members, seen.host.llcs.clone());
        let pools = self
            .pools
            .iter()
            .map(|pool| (pool.slice, pool.pcpus, &pool.members[..]));
        pooled(seen, plan, &pools.collect::<Vec<_>>());
    }

    fn wants_signals(&self) -> bool {
        true
    }

    fn status(&self) -> Status {
        self.recogniser.status()
    }

    fn recognised(&self, task: TaskId) -> Option<&'static str> {
        Some(self.recogniser.name(task))
    }
}

/// All vCPUs, VM by VM, each with what it weighs against all others.
pub(crate) fn members(seen: &Snapshot, of: impl Fn(TaskId) -> Type) -> Vec<Member> {
    let mut members = Vec::new();
    for vm in &seen.vms {
        let each = vm.vcpus.iter().zip(usable::weights(vm));
        members.extend(each.map(|(vcpu, weight)| Member {
            task: vcpu.task,
            of: of(vcpu.task),
            weight,
        }));
    }
    members
}

/// Says which vCPU is in which of these pools.
pub(crate) fn pooled(seen: &Snapshot, plan: &mut Plan, pools: &[(Nanos, PcpuSet, &[Member])]) {
    let members = (pools.iter().enumerate())
        .flat_map(|(at, (_, _, members))| members.iter().map(move |member| (member.task, at)));
    let home: BTreeMap<TaskId, usize> = members.collect();
    crate::place_all(seen, plan, Placement::Pool);
    let vcpus = seen.vms.iter().flat_map(|vm| &vm.vcpus);
    plan.tasks.extend(vcpus.map(|vcpu| {
        let usable = |&at: &usize| !pools[at].1.and(&vcpu.allowed).is_empty();
        let own = home.get(&vcpu.task).copied().filter(usable);
        TaskPlan {
            pool: own.or_else(|| (0..pools.len()).find(usable)),
            ..TaskPlan::of(vcpu.task)
        }
    }));
    let pool = |&(slice, pcpus, _): &(Nanos, PcpuSet, &[Member])| Pool { slice, pcpus };
    plan.pools = pools.iter().map(pool).collect();
}

#[cfg(test)]
mod tests;
