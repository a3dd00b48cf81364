// SPDX-License-Identifier: GPL-2.0-only
//! What tasks and phases specify besides events: CPUs, and scheduling attributes that are not
//! modelled.

use super::json::{Node, Value};
use super::log::{Log, Object};

/// The policies that rt-app knows.
pub(super) const POLICIES: [&str; 6] = [
    "SCHED_OTHER",
    "SCHED_BATCH",
    "SCHED_IDLE",
    "SCHED_RR",
    "SCHED_FIFO",
    "SCHED_DEADLINE",
];

/// What a task or phase may specify about how it is scheduled.
pub(super) const SCHEDULING: [&str; 9] = [
    "policy",
    "priority",
    "dl-runtime",
    "dl-period",
    "dl-deadline",
    "period",
    "deadline",
    "util_min",
    "util_max",
];

/// Notes what is not modelled: modelled guests have one class of threads, all of nice 0.
pub(super) fn scheduling(object: &Object<'_>, log: &mut Log) {
    for key in SCHEDULING {
        let Some(entry) = object.find(key) else {
            continue;
        };
        if key == "policy" {
            policy(object, key, log);
            continue;
        }
        if !matches!(entry.node.value, Value::Whole(0)) {
            let found = entry.node.value.show();
            let message = format!("{found} is not modelled: threads have nice 0 and no limits");
            log.note(entry.at, &object.key(key), message);
        }
    }
    for key in ["taskgroup", "nodes_membind"] {
        if let Some(entry) = object.find(key) {
            let message = "is not modelled: guests have neither cgroups nor NUMA nodes";
            log.note(entry.at, &object.key(key), message);
        }
    }
}

/// Notes a policy that is not modelled.
pub(super) fn policy(object: &Object<'_>, key: &str, log: &mut Log) {
    let (Some(entry), Some(found)) = (object.find(key), object.text(key, log)) else {
        return;
    };
    let path = object.key(key);
    match found {
        "SCHED_OTHER" => {}
        known if POLICIES.contains(&known) => {
            let message = format!("{known} is not modelled: threads run as SCHED_OTHER");
            log.note(entry.at, &path, message);
        }
        other => {
            let (other, all) = (super::json::short(other), POLICIES.join(", "));
            let message = format!("found {other:?}, expected one of {all}");
            log.fault(entry.node.at, &path, message);
        }
    }
}

/// The CPUs that a task's threads may use, phase by phase.
pub(super) struct Cpus {
    /// What the task says; `None`: any.
    task: Option<Vec<u32>>,
    /// What applies in each phase, if there are phases.
    phases: Vec<Option<Vec<u32>>>,
}

impl Cpus {
    pub fn of_task(object: &Object<'_>, vcpus: u32, log: &mut Log) -> Self {
        Self {
            task: cpus(object, vcpus, log),
            phases: Vec::new(),
        }
    }

    pub fn of_phase(&mut self, object: &Object<'_>, vcpus: u32, log: &mut Log) {
        let own = cpus(object, vcpus, log);
        self.phases.push(own.or_else(|| self.task.clone()));
    }

    /// The only vCPU that the threads ever use. Sets other than one vCPU or all are not modelled.
    pub fn bound(self, object: &Object<'_>, log: &mut Log) -> Option<u32> {
        let mut sets = self.phases;
        if sets.is_empty() {
            sets.push(self.task);
        }
        sets.dedup();
        match sets.as_slice() {
            [None] | [] => None,
            [Some(one)] if one.len() == 1 => one.first().copied(),
            _ => {
                let message = "sets of several CPUs, or one per phase, are not modelled: the \
                               threads use all vCPUs";
                log.note(object.at, &object.key("cpus"), message);
                None
            }
        }
    }
}

/// The CPUs listed, in order; `None` if none or all are.
fn cpus(object: &Object<'_>, vcpus: u32, log: &mut Log) -> Option<Vec<u32>> {
    let entry = object.find("cpus")?;
    let key = object.key("cpus");
    let Value::List(list) = &entry.node.value else {
        let found = entry.node.value.show();
        let message = format!("found {found}, expected a list of CPUs such as [0, 1]");
        log.fault(entry.node.at, &key, message);
        return None;
    };
    let mut one = |node: &Node| match node.value {
        Value::Whole(cpu) if (0..i64::from(vcpus)).contains(&cpu) => u32::try_from(cpu).ok(),
        _ => {
            let (found, last) = (node.value.show(), vcpus.saturating_sub(1));
            let message = format!("found {found}, expected vCPUs of the VM: 0 to {last}");
            log.fault(node.at, &key, message);
            None
        }
    };
    let mut cpus: Vec<u32> = list.iter().filter_map(&mut one).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let some = !cpus.is_empty() && cpus.len() < vcpus as usize;
    // On a VM of one vCPU, one vCPU is all.
    some.then_some(cpus)
}
