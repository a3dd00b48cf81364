// SPDX-License-Identifier: GPL-2.0-only
//! The sections about VMs and host tasks.

use crate::cgroups::{self, CgroupKeys, Group, WEIGHT};
use crate::disks::{self, Disk};
use crate::limits;
use crate::names;
use crate::reader::Reader;
use crate::settings::{Demand, EmulatorKeys, GuestKeys, HostTask, RtApp, Thread, Vm, Workload};
use crate::suggest::or_nearest;
use corun_model::guests::SHORTEST_PLE;
use corun_model::time::{self, MS, SEC, US};
use corun_model::{NEUTRAL_WEIGHT, PcpuSet, nearest};
use std::sync::Arc;

/// What `sched_setattr()` takes as a slice; the kernel clamps to it.
const SLICE: std::ops::RangeInclusive<u64> = 100 * US..=100 * MS;

/// The VMs of a scenario.
pub(crate) struct Vms<'a> {
    /// The VMs that could be read completely.
    pub(crate) read: Vec<Vm>,
    /// Names of the sections of the other VMs, in which something is wrong; that is reported where it is.
    faulty: Vec<&'a str>,
}

impl Vms<'_> {
    /// Adds the problem that there is no VM of this name, unless there is one whose own section could not be read.
    pub(crate) fn is_unknown(&self, table: &Reader<'_>, key: &str, name: &str) {
        // With a count `web` makes `web1`, `web2` …
        let is_of = |section: &&str| {
            let number = name.strip_prefix(*section);
            number.is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()))
        };
        if self.faulty.iter().any(is_of) || (self.read.is_empty() && self.faulty.is_empty()) {
            return;
        }
        let read = self.read.iter().map(|vm| vm.name.as_str());
        let names: Vec<&str> = read.chain(self.faulty.iter().copied()).take(20).collect();
        let hint = or_nearest(name, &names);
        table.problem(key, format!("there is no VM {name:?}, {hint}"));
    }
}

/// All VMs, `count` spelled out.
pub(crate) fn vms<'a>(
    top: &Reader<'a>,
    pcpus: Option<u32>,
    disks: &[Disk],
    groups: &[Group],
) -> Vms<'a> {
    let tables = top.named("vm");
    let mut faulty: Vec<&str> = tables.iter().map(|(name, _)| *name).collect();
    let read = those_read(tables, pcpus, disks, groups);
    faulty.retain(|name| !read.iter().any(|vm| vm.table == *name));
    Vms { read, faulty }
}

fn those_read(
    tables: Vec<(&str, Reader<'_>)>,
    pcpus: Option<u32>,
    disks: &[Disk],
    groups: &[Group],
) -> Vec<Vm> {
    let mut all = Vec::new();
    let (mut vcpus, mut cgroups) = (0, groups.len() as u32);
    let whole = tables.iter().filter(|(_, table)| table.has("vcpus"));
    let whole: Vec<&str> = whole.map(|(name, _)| *name).collect();
    for (name, table) in tables {
        names::check(&table, name);
        if !table.has("vcpus") {
            // An override with a slip in a VM's name makes a new VM with few keys.
            let meant = nearest(name, whole.iter().copied());
            let or = meant.map(|meant| format!("; or did you mean the VM {meant:?}?"));
            let expected = format!("the number of vCPUs{}", or.unwrap_or_default());
            table.missing("vcpus", &expected);
        }
        let count = table.whole("count", 1..=limits::VCPUS);
        let count = count.or((!table.has("count")).then_some(1));
        let vm = vm(name, &table, pcpus, disks, groups);
        let (Some(vm), Some(count)) = (vm, count) else {
            table.finish();
            continue;
        };
        vcpus += count * vm.vcpus;
        if vcpus > limits::VCPUS {
            let message = format!(
                "{vcpus} vCPUs with the VMs before, expected at most {} in all",
                limits::VCPUS
            );
            table.problem("count", message);
            table.finish();
            return all;
        }
        cgroups += count * (1 + vm.vcpu_max.map_or(0, |_| vm.vcpus));
        if vm.vcpu_max.is_some() && cgroups > limits::CGROUPS {
            let message = format!(
                "makes {cgroups} cgroups with those before, expected at most {}",
                limits::CGROUPS
            );
            table.problem("vcpu_max", message);
        }
        let names = numbered(name, count, table.has("count"));
        let is_taken = |name: &str| all.iter().any(|other: &Vm| other.name == name);
        refuse_namesakes(&table, "VMs", &names, is_taken);
        all.extend(names.into_iter().map(|name| Vm { name, ..vm.clone() }));
        table.finish();
    }
    all
}

/// Reports names that another one of `what` already has.
fn refuse_namesakes(
    table: &Reader<'_>,
    what: &str,
    names: &[String],
    is_taken: impl Fn(&str) -> bool,
) {
    for name in names.iter().filter(|name| is_taken(name)) {
        let message = format!("there would be two {what} of the name {name:?}");
        table.problem("count", message);
    }
}

/// `web`, or `web1`, `web2` … where a count is given.
fn numbered(name: &str, count: u32, counted: bool) -> Vec<String> {
    match counted {
        false => vec![name.to_string()],
        true => (1..=count).map(|n| format!("{name}{n}")).collect(),
    }
}

fn vm(
    name: &str,
    table: &Reader<'_>,
    pcpus: Option<u32>,
    disks: &[Disk],
    groups: &[Group],
) -> Option<Vm> {
    let vcpus = table.whole("vcpus", 1..=limits::VCPUS_PER_VM);
    let weight = table.whole("weight", WEIGHT);
    let vcpu_weight = table.whole("vcpu_weight", WEIGHT).unwrap_or(NEUTRAL_WEIGHT);
    let names: Vec<String> = groups.iter().map(|group| group.name.clone()).collect();
    let cgroup = cgroups::keys(table, "group", &names);
    let vcpu_max = cgroups::of_each_vcpu(table, cgroup.within, groups);
    let has_cgroup = vcpu_max.is_some() || cgroup != CgroupKeys::default();
    let cookie = table.whole("cookie", 0..=u32::MAX).unwrap_or(0);
    let cap = table.whole("cap", 1..=limits::CAP);
    let realtime = table.flag("realtime").unwrap_or(false);
    let slice = table.duration("slice", SLICE);
    let allowed = table.pcpu_set("allowed", pcpus);
    let vcpu_allowed = vcpu_allowed(table, vcpus, pcpus);
    let last = vcpus.unwrap_or(limits::VCPUS_PER_VM) - 1;
    let guest = table.table("guest").map(|table| guest(table, last));
    let guest = guest.unwrap_or_default();
    let emulator = table.table("emulator").map(emulator);
    let disk = disks::disk_use(table, disks);
    let rt_app = rt_app(table);
    let demand = demand(table, vcpus);
    Some(Vm {
        name: name.to_string(),
        table: name.to_string(),
        vcpus: vcpus?,
        weight,
        vcpu_weight,
        cgroup: has_cgroup.then_some(cgroup),
        vcpu_max,
        cookie: cookie.into(),
        cap,
        realtime,
        slice,
        allowed,
        vcpu_allowed,
        disk,
        demand: demand?,
        rt_app,
        guest,
        emulator,
    })
}

/// The pCPUs that each vCPU may use, if they are given one by one.
fn vcpu_allowed(table: &Reader<'_>, vcpus: Option<u32>, pcpus: Option<u32>) -> Vec<PcpuSet> {
    let sets = table.pcpu_sets("vcpu_allowed", pcpus).unwrap_or_default();
    if sets.is_empty() {
        return sets;
    }
    if table.has("allowed") {
        table.problem(
            "vcpu_allowed",
            "goes without allowed: it says the same of each vCPU",
        );
    }
    if let Some(vcpus) = vcpus.filter(|&vcpus| sets.len() != vcpus as usize) {
        let found = sets.len();
        table.problem(
            "vcpu_allowed",
            format!("found {found}, expected one for each of {vcpus} vCPUs"),
        );
    }
    sets
}

fn demand(table: &Reader<'_>, vcpus: Option<u32>) -> Option<Demand> {
    let presets = table.text_or_texts("workload", "[\"mysql\", \"clamav\"]");
    let threads = table.whole("threads", 1..=limits::THREADS);
    let programs = table.tables("thread");
    let several = presets.as_ref().is_some_and(|presets| presets.len() > 1);
    if table.has("threads") && (!table.has("workload") || several) {
        table.problem(
            "threads",
            "goes with one workload only; with [[….thread]] say count there",
        );
    }
    if !["workload", "thread", "rt_app"]
        .iter()
        .any(|key| table.has(key))
    {
        table.missing(
            "workload",
            "the name of a workload or several, threads as [[….thread]], or a file as rt_app",
        );
    }
    let presets = match (presets, table.has("workload")) {
        (None, true) => return None,
        (presets, _) => presets.unwrap_or_default(),
    };
    let programs = programs.unwrap_or_default().into_iter();
    let own = programs.map(|table| thread(table, vcpus));
    let workload = |preset| Workload { preset, threads };
    Some(Demand {
        workloads: presets.into_iter().map(workload).collect(),
        threads: own.collect::<Option<Vec<_>>>()?,
    })
}

fn rt_app(table: &Reader<'_>) -> Option<RtApp> {
    let ignore = table.texts("rt_app_ignore", "[\"mem\", \"fork\"]");
    if ignore.is_some() && !table.has("rt_app") {
        table.problem("rt_app_ignore", "goes with rt_app only");
    }
    Some(RtApp {
        file: table.located("rt_app")?,
        ignore: ignore.unwrap_or_default(),
        text: Arc::default(),
    })
}

/// Pages of a guest are 4 KiB.
const PAGE: u64 = 4 << 10;

/// The read-ahead window: some pages.
fn read_ahead(table: &Reader<'_>) -> Option<u64> {
    let window = disks::size(table, "read_ahead")?;
    if !(PAGE..=1 << 30).contains(&window) || !window.is_multiple_of(PAGE) {
        let found = table.text("read_ahead").unwrap_or_default();
        let message = format!("found {found:?}, expected a multiple of 4KB from 4KB to 1GB");
        table.problem("read_ahead", message);
    }
    Some(window)
}

fn thread(table: Reader<'_>, vcpus: Option<u32>) -> Option<Thread> {
    let count = table.whole("count", 1..=limits::THREADS).unwrap_or(1);
    let last = vcpus.unwrap_or(limits::VCPUS_PER_VM) - 1;
    let vcpu = table.whole("vcpu", 0..=last);
    let program = table.required(
        "program",
        "what the thread does, such as \"loop { compute 1ms }\"",
    );
    table.finish();
    Some(Thread {
        count,
        vcpu,
        program: program?,
    })
}

/// vMigrater's heartbeats: with shorter periods a vCPU would do nothing else; with longer ones no slice would be seen.
const HEARTBEAT: std::ops::RangeInclusive<u64> = 50 * US..=100 * MS;
/// The most slices that its prediction looks at.
const MOST_SLICES: u32 = corun_policies::vmigrater::MOST_SLICES as u32;
/// Nothing that a guest kernel does once takes longer.
const GUEST: std::ops::RangeInclusive<u64> = 0..=SEC;

/// The window of pause-loop exits; 0: there are none.
fn ple_window(table: &Reader<'_>) -> Option<u64> {
    let window = table.duration("ple_window", GUEST)?;
    if (1..SHORTEST_PLE).contains(&window) {
        let found = time::show(window);
        let message = format!("found {found}, expected 0 or a duration from 100 ns to 1.00 s");
        table.problem("ple_window", message);
        return None;
    }
    Some(window)
}

fn guest(table: Reader<'_>, last_vcpu: u32) -> GuestKeys {
    let keys = GuestKeys {
        hz: table.whole("hz", 1..=10_000),
        tick: table.duration("tick", GUEST),
        interrupt: table.duration("interrupt", GUEST),
        ipi: table.duration("ipi", GUEST),
        thread_switch: table.duration("thread_switch", GUEST),
        futex: table.duration("futex", GUEST),
        timer_slack: table.duration("timer_slack", GUEST),
        latency: table.duration("latency", GUEST),
        min_granularity: table.duration("min_granularity", GUEST),
        wakeup_granularity: table.duration("wakeup_granularity", GUEST),
        lock: table.located("lock"),
        pv_spin: table.duration("pv_spin", GUEST),
        ple_window: ple_window(&table),
        ple_grow: table.whole("ple_grow", 1..=100),
        ple_favours: table.located("ple_favours"),
        tlb_flush: table.located("tlb_flush"),
        flush: table.duration("flush", GUEST),
        idle: table.located("idle"),
        retention: table.duration("retention", GUEST),
        block_irq: table.located("block_irq"),
        block_submit: table.duration("block_submit", GUEST),
        cached_read: table.duration("cached_read", GUEST),
        copy_kib: table.duration("copy_kib", GUEST),
        read_ahead: read_ahead(&table),
        net_irq: table.whole("net_irq", 0..=last_vcpu),
        net_queues: table.whole("net_queues", 1..=limits::VCPUS_PER_VM),
        net_packet: table.duration("net_packet", GUEST),
        net_copy: table.duration("net_copy", GUEST),
        net_kick: table.duration("net_kick", GUEST),
        agent: table.located("agent"),
        heartbeat: table.duration("heartbeat", HEARTBEAT),
        heartbeat_idle: table.duration("heartbeat_idle", HEARTBEAT),
        predict_from: table.whole("predict_from", 0..=MOST_SLICES),
        steal_time: table.flag("steal_time"),
        balloon_sleep: table.whole("balloon_sleep", 0..=100),
    };
    let (idle, agent) = (("idle", &keys.idle), ("agent", &keys.agent));
    let belongs = [
        ("retention", idle, "retention"),
        ("heartbeat", agent, "vmigrater"),
        ("heartbeat_idle", agent, "vmigrater"),
        ("predict_from", agent, "vmigrater"),
        ("steal_time", agent, "vmigrater"),
        ("balloon_sleep", agent, "xballoon"),
    ];
    for (key, (to, said), value) in belongs {
        let fits = said.as_ref().is_some_and(|it| it.value == value);
        if table.has(key) && !fits {
            table.problem(key, format!("goes with {to} = \"{value}\" only"));
        }
    }
    table.finish();
    keys
}

fn emulator(table: Reader<'_>) -> EmulatorKeys {
    let keys = EmulatorKeys {
        transmit_timer: table.duration("transmit_timer", GUEST),
        shortest_alarm: table.duration("shortest_alarm", GUEST),
        ioeventfd: table.flag("ioeventfd"),
    };
    table.finish();
    keys
}

/// All host tasks, `count` spelled out.
pub(crate) fn tasks(top: &Reader<'_>, pcpus: Option<u32>, vms: &Vms<'_>) -> Vec<HostTask> {
    let mut all: Vec<HostTask> = Vec::new();
    for (name, table) in top.named("task") {
        names::check(&table, name);
        let count = table.whole("count", 1..=limits::VCPUS).unwrap_or(1);
        let weight = table.whole("weight", WEIGHT).unwrap_or(NEUTRAL_WEIGHT);
        let allowed = table.pcpu_set("allowed", pcpus);
        let helper_of = helper_of(&table, vms);
        let program = table.required(
            "program",
            "what the task does, such as \"loop { compute 1ms; sleep 9ms }\"",
        );
        let too_many = all.len() as u32 + count > limits::VCPUS;
        if too_many {
            table.problem(
                "count",
                format!("more than {} host tasks in all", limits::VCPUS),
            );
        }
        if let Some(program) = program.filter(|_| !too_many) {
            let task = |name| HostTask {
                name,
                weight,
                allowed,
                helper_of,
                program: program.clone(),
            };
            let names = numbered(name, count, table.has("count"));
            let is_taken = |name: &str| all.iter().any(|other| other.name == name);
            refuse_namesakes(&table, "host tasks", &names, is_taken);
            all.extend(names.into_iter().map(task));
        }
        table.finish();
    }
    all
}

fn helper_of(table: &Reader<'_>, vms: &Vms<'_>) -> Option<usize> {
    let name = table.text("helper_of")?;
    let at = vms.read.iter().position(|vm| vm.name == name);
    if at.is_none() {
        vms.is_unknown(table, "helper_of", &name);
    }
    at
}
