// SPDX-License-Identifier: GPL-2.0-only
//! AQL_Sched: a slice for every application type (Teabe, Tchana and Hagimont,
//! "Application-specific quantum for multi-core platform scheduler", EuroSys 2016).
//!
//! Every 30 ms each vCPU's type is recognised ([`vtrs`]); vCPUs of types that want the same slice
//! share a pool of pCPUs with that slice ([`cluster`]). Which slice suits a type, and how types are told
//! apart, comes from [`calibration`]. A vCPU stays on its pool's pCPUs while it is in the pool; within a
//! pool fair order decides.
//!
//! vCPUs that do not want to run ([`crate::wanting`]) are left out (the paper has none): otherwise pools would be made
//! for them. Each waits in the pool with the best slice of its last type, so that it has that slice when it wakes up;
//! if there is no such pool, or the type is agnostic, in the pool with the least weight per pCPU. It is dealt out with
//! the others once it counts.
//!
//! Where there are [quotas](crate::quotas) or [cpusets](crate::cpusets), a vCPU counts for what it can use: otherwise
//! pools would be made for vCPUs that are throttled or crowded.
//!
//! Where cpusets divide a host, each part has pools of its own; within a part, vCPUs that may not use all of its pCPUs
//! are dealt out among the sockets that they may use. A vCPU that may still use none of its pool's pCPUs (it may use
//! only some of a socket's) goes to a pool that it can use: to one with its best slice, if it has one and there is such
//! a pool; of several, to the one with the least weight per pCPU that the vCPU can use there.

pub mod calibration;
pub mod cluster;
mod kind;
pub mod recognise;
pub mod vtrs;

pub use calibration::{Calibration, Machine, Slices};
pub use kind::{Kind, Type};
pub use vtrs::Limits;

use crate::cpusets;
use crate::parts::{self, Part};
use crate::quotas::{self, Claim, Whole};
use crate::{AGNOSTIC, OWN, Policy, usable};
use cluster::{Member, Pooled};
use corun_model::time::SEC;
use corun_model::{
    Nanos, Parameter, PcpuSet, Placement, Plan, Pool, Quota, Snapshot, Status, TaskId, TaskPlan,
    Value,
};
use recognise::Recogniser;
use std::iter::repeat_n;

/// How it decides.
#[derive(Clone, Copy, Debug, Default)]
pub struct AqlParams {
    /// What the machine is like.
    pub calibration: Calibration,
    /// One slice for all pools, which are still made as if each had its own, ns: shows what the slices contribute
    /// (Figure 7).
    pub uniform: Option<Nanos>,
}

/// Pools by type.
#[derive(Clone, Debug, Default)]
pub struct Aql {
    params: AqlParams,
    recogniser: Recogniser,
    /// The pools of each part into which cpusets divide the host.
    pools: Vec<(PcpuSet, Vec<Pooled>)>,
    /// What the pools were made from, if making them again from that would change nothing.
    settled: Option<Vec<Divided>>,
}

/// What is in one of the parts into which cpusets divide a host.
#[derive(Clone, Debug, PartialEq)]
struct Divided {
    pcpus: PcpuSet,
    /// Its pCPUs, socket by socket.
    sockets: Vec<PcpuSet>,
    /// The cpusets of members that may not use all of its pCPUs.
    cpusets: Vec<PcpuSet>,
    members: Vec<Member>,
}

impl Aql {
    /// With these parameters.
    pub fn new(params: AqlParams) -> Self {
        Self {
            params,
            ..Self::default()
        }
    }

    /// Makes the pools of these parts, if the vCPUs in them or their types have changed.
    fn make_pools(&mut self, parts: Vec<Divided>) {
        if self.settled.as_ref() == Some(&parts) {
            return;
        }
        let make = |part: &Divided| {
            let same = self.pools.iter().find(|(pcpus, _)| *pcpus == part.pcpus);
            let before = same.map_or(&[][..], |(_, pools)| pools);
            let slices = &self.params.calibration.slices;
            let pools =
                cluster::cluster(&part.members, &part.sockets, &part.cpusets, slices, before);
            (part.pcpus, pools)
        };
        let pools: Vec<_> = parts.iter().map(make).collect();
        self.settled = (pools == self.pools).then_some(parts);
        self.pools = pools;
    }

    /// Its parameters.
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
        rows.push(Parameter::new(
            "policy.aql.uniform",
            "one slice for all pools, which are formed as without it: what clustering does by itself",
            Value::Choice(OWN),
            "AQL_Sched, EuroSys 2016, §4.2, Figure 7: 1, 30 and 90 ms",
            "1, 30, 90 ms (docs/aql.md)",
        ));
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
        self.recogniser.look(seen, &self.params.calibration.limits);
        let members = members(seen, |task| self.recogniser.wanting(task));
        self.make_pools(divided(seen, members));
        let pools = self.pools.iter().flat_map(|(_, pools)| pools);
        let pools = pools.map(|pool| (pool.slice, pool.pcpus, &pool.members[..]));
        let wish = |task| {
            self.params
                .calibration
                .slices
                .best(self.recogniser.of(task).kind)
        };
        pooled(seen, plan, &pools.collect::<Vec<_>>(), wish);
        if let Some(slice) = self.params.uniform {
            plan.pools.iter_mut().for_each(|pool| pool.slice = slice);
        }
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

/// All vCPUs, VM by VM, each with what it weighs against all others: nothing if it does not want to run. `of`: its
/// type, and whether it wants to run.
pub(crate) fn members(seen: &Snapshot, of: impl Fn(TaskId) -> (Type, bool)) -> Vec<Member> {
    let mut members = Vec::with_capacity(seen.vms.iter().map(|vm| vm.vcpus.len()).sum());
    let (mut types, mut want) = (Vec::new(), Vec::new());
    for vm in &seen.vms {
        types.clear();
        want.clear();
        for (kind, wants) in vm.vcpus.iter().map(|vcpu| of(vcpu.task)) {
            types.push(kind);
            want.push(wants);
        }
        let each = usable::weights_of_wanting(vm, &want).zip(&want);
        let each = each.map(|(weight, want)| if *want { weight } else { 0 });
        let vcpus = vm.vcpus.iter().zip(&types).zip(each);
        members.extend(vcpus.map(|((vcpu, &of), weight)| Member {
            task: vcpu.task,
            of,
            weight,
            bound: None,
        }));
    }
    members
}

/// Where there are quotas or cpusets, vCPUs weigh what they can use: at most a pCPU each, or the vCPU's own quota, and
/// no more than the quotas around it and the vCPUs beside it leave.
fn limit(seen: &Snapshot, allowed: &[&PcpuSet], parts: &[Part], members: &mut [Member]) {
    let vcpus = || seen.vms.iter().flat_map(|vm| &vm.vcpus);
    let is_free = |part: &Part| part.members.iter().all(|&at| *allowed[at] == part.pcpus);
    let without_quotas = seen.vms.iter().all(|vm| vm.quotas.is_empty());
    if without_quotas && vcpus().all(|vcpu| vcpu.quota.is_none()) && parts.iter().all(is_free) {
        return;
    }
    let most: Vec<Nanos> = vcpus().map(|vcpu| vcpu.most(SEC)).collect();
    let quotas = (seen.vms.iter()).flat_map(|vm| repeat_n(&vm.quotas[..], vm.vcpus.len()));
    let quotas: Vec<&[Quota]> = quotas.collect();
    let weights = members.iter().map(|member| member.weight);
    let whole = Whole::of(weights.zip(quotas.iter().copied()), parts.len());
    for part in parts {
        let want = part.members.iter().copied();
        let want: Vec<usize> = want.filter(|&at| members[at].weight > 0).collect();
        let claim = |&at: &usize| Claim {
            weight: members[at].weight,
            most: most[at],
            limit: Nanos::MAX,
            quotas: quotas[at],
        };
        let mut claims: Vec<Claim<'_>> = want.iter().map(claim).collect();
        let allowed: Vec<PcpuSet> = want.iter().map(|&at| *allowed[at]).collect();
        if allowed.iter().any(|it| *it != part.pcpus) {
            cpusets::limit(&mut claims, &allowed, SEC, &whole);
        }
        let time = u64::from(part.pcpus.len()) * SEC;
        let shares = quotas::shares(&claims, time, SEC, &whole);
        for (at, share) in want.into_iter().zip(shares) {
            members[at].weight = share.max(1);
        }
    }
}

/// Those of a part that want to run; all, if none does.
fn wanting(mut members: Vec<Member>) -> Vec<Member> {
    if members.iter().any(|member| member.weight > 0) {
        members.retain(|member| member.weight > 0);
    } else {
        members.iter_mut().for_each(|member| member.weight = 1);
    }
    members
}

/// The parts that cpusets divide the host into, with those vCPUs of each that want to run.
fn divided(seen: &Snapshot, mut members: Vec<Member>) -> Vec<Divided> {
    let vcpus = seen.vms.iter().flat_map(|vm| &vm.vcpus);
    let allowed: Vec<&PcpuSet> = vcpus.map(|vcpu| &vcpu.allowed).collect();
    let parts = parts::parts(allowed.iter().copied());
    let is_one = parts.len() == 1;
    limit(seen, &allowed, &parts, &mut members);
    let divide = |part: Part| {
        // A socket in the paper is a group of pCPUs that share a last-level cache.
        let sockets = seen.host.llcs.iter().map(|llc| llc.and(&part.pcpus));
        let sockets: Vec<PcpuSet> = sockets.filter(|socket| !socket.is_empty()).collect();
        let mut cpusets = Vec::new();
        for &at in part.members.iter().filter(|_| sockets.len() > 1) {
            members[at].bound = bound(allowed[at], &part.pcpus, &mut cpusets);
        }
        Divided {
            pcpus: part.pcpus,
            sockets,
            cpusets,
            members: wanting(match is_one {
                true => std::mem::take(&mut members),
                false => part.members.iter().map(|&at| members[at]).collect(),
            }),
        }
    };
    parts.into_iter().map(divide).collect()
}

/// Which of the `cpusets` binds a vCPU that may use these of a part's pCPUs; a new one is added to the list. `None`: it
/// may use all of them.
fn bound(allowed: &PcpuSet, part: &PcpuSet, cpusets: &mut Vec<PcpuSet>) -> Option<usize> {
    let allowed = allowed.and(part);
    if allowed == *part {
        return None;
    }
    let known = cpusets.iter().position(|cpuset| *cpuset == allowed);
    Some(known.unwrap_or_else(|| {
        cpusets.push(allowed);
        cpusets.len() - 1
    }))
}

/// Writes into the plan which vCPU is in which of these pools. `wish`: the slice that a vCPU should have if it is in no
/// pool, or may use none of its pool's pCPUs; `None`: any will do.
pub(crate) fn pooled(
    seen: &Snapshot,
    plan: &mut Plan,
    pools: &[(Nanos, PcpuSet, &[Member])],
    wish: impl Fn(TaskId) -> Option<Nanos>,
) {
    crate::place_all(seen, plan, Placement::Pool);
    let all = pools.iter().enumerate();
    let all = all.flat_map(|(at, (.., members))| members.iter().map(move |member| (at, member)));
    let mut homes: Vec<(usize, &Member)> = all.collect();
    homes.sort_by_key(|(_, member)| member.task);
    // Mostly, vCPUs come in the order of their numbers.
    let mut next = 0;
    let mut home_of = |task: TaskId| {
        let is_next = homes.get(next).is_some_and(|(_, it)| it.task == task);
        let found = match is_next {
            true => Ok(next),
            false => homes.binary_search_by_key(&task, |(_, member)| member.task),
        };
        next = found.ok()? + 1;
        homes.get(next - 1).copied()
    };
    let mut weights = vec![0; pools.len()];
    let mut barred = Vec::new();
    for vcpu in seen.vms.iter().flat_map(|vm| &vm.vcpus) {
        let home = home_of(vcpu.task);
        let own = home.filter(|(at, _)| !pools[*at].1.and(&vcpu.allowed).is_empty());
        match own {
            Some((at, member)) => weights[at] += member.weight,
            None => barred.push((plan.tasks.len(), vcpu, home)),
        }
        plan.tasks.push(TaskPlan {
            pool: own.map(|(at, _)| at),
            ..TaskPlan::of(vcpu.task)
        });
    }
    // These vCPUs have no pool, or may use no pCPU of it.
    for (told, vcpu, home) in barred {
        let slice = wish(vcpu.task);
        let rank = |at: usize| {
            let usable = u64::from(pools[at].1.and(&vcpu.allowed).len());
            let crowd = (weights[at] * 1000).checked_div(usable)?;
            let other = slice.is_some_and(|slice| slice != pools[at].0);
            Some((other, crowd, at))
        };
        let best = (0..pools.len()).filter_map(rank).min();
        if let Some((_, _, at)) = best {
            weights[at] += home.map_or(0, |(_, member)| member.weight);
            plan.tasks[told].pool = Some(at);
        }
    }
    let pool = |&(slice, pcpus, _): &(Nanos, PcpuSet, &[Member])| Pool { slice, pcpus };
    plan.pools = pools.iter().map(pool).collect();
}

#[cfg(test)]
mod tests;
