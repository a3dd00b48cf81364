// SPDX-License-Identifier: GPL-2.0-only
//! Many VMs in few rows: where there are more than can be shown, those whose names differ only in their number, as
//! `count` in a scenario makes them, are shown together.

use crate::detail::{Detail, Times, VmTimes};
use crate::results::{ClientResult, Run, VmResult, round};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// What is shown as one.
pub(crate) struct Kind {
    /// `web1 … 120 (120 VMs)`, or the name of the only one.
    pub(crate) name: String,
    /// The places of its members.
    pub(crate) members: Vec<usize>,
}

/// The VMs of a run: by kind if there are more than `most`.
pub(crate) fn vms(run: &Run, most: usize) -> Vec<Kind> {
    let all = run.vms.iter();
    let all = all.map(|vm| (vm.name.as_str(), (vm.vcpus, vm.throughput_unit.as_str())));
    kinds(all.collect(), most, " VMs")
}

/// Its clients: by kind if there are more than `most`.
pub(crate) fn clients(run: &Run, most: usize) -> Vec<Kind> {
    let all = run.clients.iter();
    let all = all.map(|client| (client.name.as_str(), client.kind.as_str()));
    kinds(all.collect(), most, "")
}

/// Groups those that have the same name up to its number and are otherwise alike, if there are more than `most` in all.
fn kinds<T: PartialEq>(all: Vec<(&str, T)>, most: usize, unit: &str) -> Vec<Kind> {
    let stem = |name: &str| name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (at, (name, rest)) in all.iter().enumerate() {
        let alike = |group: &&mut Vec<usize>| {
            let first = group.first().map(|&first| &all[first]);
            let numbered = stem(name) < name.len();
            numbered
                && first.is_some_and(|(known, of)| {
                    stem(known) < known.len()
                        && known[..stem(known)] == name[..stem(name)]
                        && of == rest
                })
        };
        match groups.iter_mut().find(alike) {
            Some(group) if all.len() > most => group.push(at),
            _ => groups.push(vec![at]),
        }
    }
    let name = |members: &[usize]| match members {
        [first, .., last] => {
            let (first, last) = (all[*first].0, all[*last].0);
            let count = match unit.is_empty() {
                true => String::new(),
                false => format!(" ({}{unit})", members.len()),
            };
            format!("{first} … {}{count}", &last[stem(last)..])
        }
        few => few
            .first()
            .map_or(String::new(), |&at| all[at].0.to_string()),
    };
    let kind = |members: Vec<usize>| Kind {
        name: name(&members),
        members,
    };
    groups.into_iter().map(kind).collect()
}

/// How many members the kinds have that are not among the first `shown`.
pub(crate) fn beyond(kinds: &[Kind], shown: usize) -> usize {
    let rest = kinds.iter().skip(shown);
    rest.map(|kind| kind.members.len()).sum()
}

/// Are any of a case's VMs or clients shown together, because there are more than these of them?
pub(crate) fn any(runs: &[Vec<&Run>], most: [usize; 2]) -> bool {
    let first = runs.first().and_then(|runs| runs.first());
    first.is_some_and(|run| {
        let mut all = vms(run, most[0]).into_iter().chain(clients(run, most[1]));
        all.any(|kind| kind.members.len() > 1)
    })
}

/// The runs of a case, policy by policy, with kinds in place of VMs and of clients where there are more than `most` of
/// these: means of their numbers, and all of their waits. `None` if all are shown by themselves.
pub(crate) fn together(runs: &[Vec<&Run>], most: [usize; 2]) -> Option<Vec<Vec<Run>>> {
    let first = runs.first()?.first()?;
    if !any(runs, most) {
        return None;
    }
    let (vms, clients) = (vms(first, most[0]), clients(first, most[1]));
    let one = |run: &&Run| one(run, &vms, &clients);
    let of_policy = |runs: &Vec<&Run>| runs.iter().map(one).collect();
    Some(runs.iter().map(of_policy).collect())
}

/// What [`together`] made, or else what it was given.
pub(crate) fn shown<'a>(
    together: Option<&'a Vec<Vec<Run>>>,
    runs: &[Vec<&'a Run>],
) -> Vec<Vec<&'a Run>> {
    match together {
        Some(all) => all.iter().map(|runs| runs.iter().collect()).collect(),
        None => runs.to_vec(),
    }
}

fn one(run: &Run, vms: &[Kind], clients: &[Kind]) -> Run {
    let detail = &run.detail;
    let of_vms = |kind: &Kind| {
        let all: Vec<&VmTimes> = members(kind, &detail.vms).collect();
        let pooled = |of: fn(&VmTimes) -> &Times| Times::pooled(all.iter().map(|vm| of(vm)));
        VmTimes {
            ready: pooled(|vm| &vm.ready),
            wakeups: pooled(|vm| &vm.wakeups),
            turns: pooled(|vm| &vm.turns),
            locks: pooled(|vm| &vm.locks),
            io: pooled(|vm| &vm.io),
            left_alone: Vec::new(),
        }
    };
    let of_clients = |kind: &Kind| Times::pooled(members(kind, &detail.clients));
    Run {
        policy: run.policy.clone(),
        case: run.case.clone(),
        seed: run.seed,
        kernel: run.kernel.clone(),
        host: run.host.clone(),
        vms: vms
            .iter()
            .filter_map(|kind| {
                Some(VmResult {
                    name: kind.name.clone(),
                    ..mean(members(kind, &run.vms))?
                })
            })
            .collect(),
        tasks: run.tasks.clone(),
        disks: run.disks.clone(),
        clients: clients
            .iter()
            .filter_map(|kind| {
                Some(ClientResult {
                    name: kind.name.clone(),
                    ..mean(members(kind, &run.clients))?
                })
            })
            .collect(),
        detail: Detail {
            vms: vms.iter().map(of_vms).collect(),
            clients: clients.iter().map(of_clients).collect(),
            timeline: None,
        },
    }
}

fn members<'a, T>(kind: &'a Kind, all: &'a [T]) -> impl Iterator<Item = &'a T> {
    kind.members.iter().filter_map(|&at| all.get(at))
}

/// The results of several with the means of their numbers, over those that have them; `None` if there are none.
fn mean<'a, T: Clone + Serialize + DeserializeOwned + 'a>(
    all: impl Iterator<Item = &'a T>,
) -> Option<T> {
    let all: Vec<&T> = all.collect();
    match all[..] {
        [] => None,
        [only] => Some(only.clone()),
        [first, ..] => {
            let values = all.iter().filter_map(|one| serde_json::to_value(one).ok());
            let values: Vec<Value> = values.collect();
            let merged = merged(&values.iter().collect::<Vec<_>>());
            Some(serde_json::from_value(merged).unwrap_or_else(|_| first.clone()))
        }
    }
}

fn merged(all: &[&Value]) -> Value {
    let there: Vec<&Value> = all.iter().filter(|it| !it.is_null()).copied().collect();
    match there.first() {
        None => Value::Null,
        Some(Value::Bool(_)) => Value::Bool(there.contains(&&Value::Bool(true))),
        Some(Value::Number(_)) => {
            let numbers: Vec<f64> = there.iter().filter_map(|it| it.as_f64()).collect();
            let mean = numbers.iter().sum::<f64>() / numbers.len().max(1) as f64;
            match there.iter().all(|it| it.is_u64()) {
                true => Value::from(mean.round() as u64),
                false => Value::from(round(mean)),
            }
        }
        Some(Value::Object(_)) => {
            let tables: Vec<&Map<String, Value>> =
                there.iter().filter_map(|it| it.as_object()).collect();
            // Each key once: all have the same ones.
            let keys: BTreeSet<&String> = tables.iter().flat_map(|table| table.keys()).collect();
            let of = |key: &String| {
                let values: Vec<&Value> = tables.iter().filter_map(|it| it.get(key)).collect();
                (key.clone(), merged(&values))
            };
            Value::Object(keys.into_iter().map(of).collect())
        }
        Some(other) => (*other).clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[(&str, u32)], most: usize) -> Vec<String> {
        let kinds = kinds(all.to_vec(), most, " VMs");
        kinds.into_iter().map(|kind| kind.name).collect()
    }

    /// With each key merged once for each that has it, this would not end.
    #[test]
    fn thousands_are_merged_at_once() {
        let one = serde_json::json!({ "io": { "wait": { "p50": 2.0, "p99": 4.0 } }, "vcpus": 1 });
        let all = vec![&one; 4096];
        assert_eq!(merged(&all), one);
    }

    #[test]
    fn names_that_differ_in_their_number_only_are_one_kind() {
        let all = [
            ("web1", 2),
            ("web2", 2),
            ("web3", 4),
            ("db", 2),
            ("db2", 2),
            ("web10", 2),
        ];
        assert_eq!(names(&all, 5), ["web1 … 10 (3 VMs)", "web3", "db", "db2"]);
        let each = ["web1", "web2", "web3", "db", "db2", "web10"];
        assert_eq!(names(&all, 6), each, "few are shown by themselves");
        assert_eq!(
            names(&[("1", 0), ("2", 0), ("a", 0), ("a", 0)], 1),
            ["1 … 2 (2 VMs)", "a", "a"]
        );
        assert!(names(&[], 0).is_empty());
    }

    #[test]
    fn numbers_of_a_kind_are_means_of_those_that_have_them() {
        let vm = |at: u32| VmResult {
            name: format!("web{at}"),
            vcpus: 2,
            throughput: f64::from(at),
            throughput_unit: "pages/s".to_string(),
            lock_waits: u64::from(at),
            lock_wait_p99_us: (at > 1).then_some(f64::from(at)),
            other_throughputs: [("b".to_string(), f64::from(at))].into(),
            ..VmResult::default()
        };
        let all = [vm(1), vm(2), vm(4)];
        let merged = mean(all.iter()).unwrap();
        let expected = VmResult {
            throughput: 2.333_333,
            lock_waits: 2,
            lock_wait_p99_us: Some(3.0),
            other_throughputs: [("b".to_string(), 2.333_333)].into(),
            ..vm(1)
        };
        assert_eq!(merged, expected);
        assert_eq!(mean(all[..1].iter()), Some(vm(1)));
        assert_eq!(mean(all[..0].iter()), None);
    }
}
