// SPDX-License-Identifier: GPL-2.0-only
//! `[group.NAME]`, the host's cgroups, and what VMs say about their own: the files of cgroup v2 with the same names
//! (`cpu.weight`, `cpu.max`, `cpu.max.burst`, `cpu.idle`).

use crate::limits;
use crate::names;
use crate::reader::Reader;
use crate::suggest::or_nearest;
use corun_model::time::{MS, SEC};
use corun_model::{NEUTRAL_WEIGHT, Nanos, time};
use std::ops::RangeInclusive;
use std::str::FromStr;

/// `cpu.max`: this much pCPU time in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuMax {
    /// pCPU time, ns.
    pub time: Nanos,
    /// Period, ns.
    pub period: Nanos,
}

/// What is said about a cgroup besides its weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupKeys {
    /// `cpu_max`; `None`: no limit.
    pub max: Option<CpuMax>,
    /// `cpu_burst`, ns.
    pub burst: Nanos,
    /// `cpu_idle`.
    pub idle: bool,
    /// The group around it, by its place; `None`: the root.
    pub within: Option<usize>,
}

/// A `[group.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// `cpu.weight`.
    pub weight: u32,
    /// The rest.
    pub keys: CgroupKeys,
}

/// `cpu.weight` in cgroup v2, and what else has weights.
pub(crate) const WEIGHT: RangeInclusive<u32> = 1..=10_000;
/// The kernel's limits (kernel/sched/core.c: `min_cfs_quota_period`, `max_cfs_quota_period`).
const PERIOD: RangeInclusive<Nanos> = MS..=SEC;
/// The kernel's default.
const DEFAULT_PERIOD: Nanos = 100 * MS;
/// More would limit nothing on any existing host.
const MOST_TIME: Nanos = 1000 * SEC;
/// How deep groups may be nested, with the VM's own: as deep as the dispatcher looks.
const DEEPEST: usize = 9;

impl FromStr for CpuMax {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "found {text:?}, expected pCPU time per period such as \"20ms/100ms\", at least 1 ms each, \
                 the period 1 s at most"
            )
        };
        let (quota, period) = text.split_once('/').unwrap_or((text, ""));
        let quota = time::parse(quota).ok_or_else(expected)?;
        let period = match text.contains('/') {
            true => time::parse(period).ok_or_else(expected)?,
            false => DEFAULT_PERIOD,
        };
        if !PERIOD.contains(&period) || !(MS..=MOST_TIME).contains(&quota) {
            return Err(expected());
        }
        Ok(Self {
            time: quota,
            period,
        })
    }
}

/// What a table says about `cpu.max` under this key.
fn cpu_max(table: &Reader<'_>, key: &'static str) -> Option<CpuMax> {
    table.parsed(key, "pCPU time per period such as \"20ms/100ms\"")
}

/// What limits the cgroup that each vCPU of a VM has to itself, if any. `within`: the group around the VM's own.
pub(crate) fn of_each_vcpu(
    table: &Reader<'_>,
    within: Option<usize>,
    groups: &[Group],
) -> Option<CpuMax> {
    let max = cpu_max(table, "vcpu_max");
    if max.is_some() && depth(groups, within) >= DEEPEST {
        let most = DEEPEST - 1;
        let message = format!("groups can be nested {most} deep around a VM with vcpu_max");
        table.problem("group", message);
    }
    max
}

/// What a table says about a cgroup; `outer`: the key that names the group around it.
pub(crate) fn keys(table: &Reader<'_>, outer: &'static str, groups: &[String]) -> CgroupKeys {
    let max = cpu_max(table, "cpu_max");
    let burst = table.duration("cpu_burst", 0..=MOST_TIME);
    if burst.is_some() && !table.has("cpu_max") {
        table.problem("cpu_burst", "goes with cpu_max only");
    }
    if let (Some(burst), Some(max)) = (burst, max)
        && burst > max.time
    {
        refuse_burst(table, max);
    }
    CgroupKeys {
        max,
        burst: burst.unwrap_or(0),
        idle: table.flag("cpu_idle").unwrap_or(false),
        within: within(table, outer, groups),
    }
}

/// The kernel answers EINVAL to such a burst (kernel/sched/core.c: `tg_set_cfs_bandwidth()`).
fn refuse_burst(table: &Reader<'_>, max: CpuMax) {
    let key = "cpu_burst";
    let found = table.find(key).map(|node| node.value.show());
    let message = format!(
        "found {}, expected a duration from 0 ns to {}, the pCPU time in cpu_max (Linux takes no more)",
        found.unwrap_or_default(),
        time::exact(max.time)
    );
    table.problem(key, message);
}

fn within(table: &Reader<'_>, key: &'static str, groups: &[String]) -> Option<usize> {
    let name = table.text(key)?;
    let at = groups.iter().position(|group| *group == name);
    if at.is_none() {
        let known: Vec<&str> = groups.iter().map(String::as_str).take(20).collect();
        let hint = match known.is_empty() {
            true => "there are none: [group.NAME] makes one".to_string(),
            false => or_nearest(&name, &known),
        };
        table.problem(
            key,
            format!("there is no group {name:?} before this, {hint}"),
        );
    }
    at
}

/// All groups, in their order: one can only be within an earlier one.
pub(crate) fn groups(top: &Reader<'_>) -> Vec<Group> {
    let mut names: Vec<String> = Vec::new();
    let mut all: Vec<Group> = Vec::new();
    for (name, table) in top.named("group") {
        names::check(&table, name);
        let group = Group {
            name: name.to_string(),
            weight: table.whole("weight", WEIGHT).unwrap_or(NEUTRAL_WEIGHT),
            keys: keys(&table, "within", &names),
        };
        if depth(&all, group.keys.within) >= DEEPEST {
            table.problem("within", format!("groups can be nested {DEEPEST} deep"));
        }
        if all.len() as u32 >= limits::GROUPS {
            table.problem_here(format!("more than {} groups", limits::GROUPS));
        }
        table.finish();
        names.push(group.name.clone());
        all.push(group);
    }
    all
}

/// How many groups are around one in this place, itself included.
fn depth(all: &[Group], mut at: Option<usize>) -> usize {
    let mut depth = 0;
    while let Some(group) = at.and_then(|at| all.get(at)) {
        depth += 1;
        at = group.keys.within;
    }
    depth
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_read_as_they_are_written() {
        let read = |text: &str| text.parse::<CpuMax>();
        let max = |time, period| CpuMax { time, period };
        assert_eq!(read("20ms/100ms"), Ok(max(20 * MS, 100 * MS)));
        assert_eq!(read("1.5s / 1s"), Ok(max(1500 * MS, SEC)));
        assert_eq!(read("5ms"), Ok(max(5 * MS, 100 * MS)));
        for wrong in ["", "20", "20ms/", "20ms/2s", "0ms/100ms", "20ms/1us", "max"] {
            let message = read(wrong).unwrap_err();
            assert!(message.contains("20ms/100ms"), "{message}");
        }
    }

    const HOST: &str = "[host]\npcpus = 2\n[vm.a]\nvcpus = 1\nworkload = \"compute\"\n";

    /// The case of a host with a VM `a` that has the keys `vm`, and then `groups`.
    fn case(vm: &str, groups: &str) -> Result<crate::Case, String> {
        let text = format!("{HOST}{vm}\n{groups}");
        let read = crate::read("test.toml", &text, &[]);
        let mut scenario = read.map_err(|problems| problems.to_string())?;
        Ok(scenario.cases.remove(0))
    }

    #[test]
    fn groups_are_within_each_other_and_vms_in_them() {
        let vm = "group = \"gold\"\ncpu_max = \"20ms/100ms\"\ncpu_burst = \"10ms\"";
        let groups =
            "[group.tenants]\nweight = 300\n[group.gold]\nwithin = \"tenants\"\ncpu_idle = true";
        let case = case(vm, groups).unwrap();
        let said: Vec<_> = case
            .groups
            .iter()
            .map(|it| (it.weight, it.keys.within, it.keys.idle))
            .collect();
        assert_eq!(said, [(300, None, false), (100, Some(0), true)]);
        assert_eq!(case.vms[0].vcpu_max, None);
        let own = case.vms[0].cgroup.unwrap();
        assert_eq!((own.within, own.burst, own.idle), (Some(1), 10 * MS, false));
        assert_eq!(own.max.map(|max| max.time), Some(20 * MS));
        assert_eq!(case_without().vms[0].cgroup, None);
    }

    #[test]
    fn vcpus_with_quotas_are_in_a_cgroup_of_their_vm() {
        let case = case("vcpu_max = \"5ms/20ms\"", "").unwrap();
        let (time, period) = (5 * MS, 20 * MS);
        assert_eq!(case.vms[0].vcpu_max, Some(CpuMax { time, period }));
        assert_eq!(case.vms[0].cgroup, Some(CgroupKeys::default()));
    }

    fn case_without() -> crate::Case {
        case("", "").unwrap()
    }

    #[test]
    fn what_is_wrong_with_groups_is_said() {
        let wrong = |vm: &str, groups: &str| case(vm, groups).unwrap_err();
        let message = wrong("group = \"gld\"", "[group.gold]\nweight = 200");
        assert!(
            message.contains("\"gld\"") && message.contains("gold"),
            "{message}"
        );
        let message = wrong("", "[group.a]\nwithin = \"b\"\n[group.b]\nweight = 1");
        assert!(message.contains("no group \"b\" before this"), "{message}");
        let message = wrong("cpu_burst = \"10ms\"", "");
        assert!(message.contains("goes with cpu_max only"), "{message}");
        let message = wrong("", "[group.a]\nweight = 0");
        assert!(message.contains("test.toml:8"), "{message}");
        let nested = (1..11).map(|n| format!("[group.g{n}]\nwithin = \"g{}\"\n", n - 1));
        let nested: String = nested.collect();
        let message = wrong("", &format!("[group.g0]\n{nested}"));
        assert!(message.contains("nested 9 deep"), "{message}");
        let message = wrong("vcpu_max = \"20\"", "");
        assert!(message.contains("test.toml:6: vm.a.vcpu_max"), "{message}");
        let nested = (1..9).map(|n| format!("[group.g{n}]\nwithin = \"g{}\"\n", n - 1));
        let nested: String = nested.collect();
        let vm = "group = \"g8\"\nvcpu_max = \"20ms\"";
        let message = wrong(vm, &format!("[group.g0]\n{nested}"));
        assert!(message.contains("nested 8 deep"), "{message}");
        let many = "cpu_max = \"1ms\"\ncount = 4096\nvcpu_max = \"20ms\"";
        let message = wrong(many, "");
        assert!(message.contains("8192 cgroups"), "{message}");
    }
}
