// SPDX-License-Identifier: GPL-2.0-only
//! vSMT-IO: I/O-bound vCPUs lie dormant on a hardware thread while their SMT sibling computes ("vSMT-IO:
//! Improving I/O Performance and Efficiency on SMT Processors in Virtualized Clouds", USENIX ATC 2020;
//! here after the dissertation (vMigrater, vSMT-IO, Jupiter), ch. 3).
//!
//! A vCPU that waits for I/O keeps its hardware thread, idle, until the I/O is done or a timeout has
//! passed ([`ltcr`] finds that timeout). One hardware thread of each core is for CPU-bound vCPUs, the other for
//! I/O-bound ones ([`rass`]), so that a vCPU that retains its thread is beside one that computes. A hardware
//! thread whose class has nothing to run borrows a vCPU of the other class, and gives it back at once when it is
//! needed. vCPUs that only compute take turns where one class or core has more to give than another ([`turns`]). Where
//! two vCPUs that compute share a core, cycle accounting says which pairs get along ([`symbiosis`]); and where all
//! vCPUs of a core are of one class, one is swapped with another core's ([`adjuster`]).
//!
//! Division of work: this policy decides, once a period, about classes, cores and timeouts; the
//! dispatcher holds hardware threads, lends and takes back (`dispatcher/core.h`, `retention.h`).
//!
//! A core is never shared across core-scheduling cookies: it belongs to the cookie of the vCPUs
//! that have their home there, and the dispatcher gives a hardware thread to no vCPU beside one
//! with another cookie (`dispatcher/cookie.h`). Hosts whose cores do not have two hardware threads
//! are left to plain fair order.

pub mod adjuster;
pub mod calibration;
mod cores;
pub mod ltcr;
mod params;
pub mod rass;
pub mod symbiosis;
pub mod turns;

pub use params::{VsmtIoParams, constants};

use crate::wanting::{self, Wanting};
use crate::{Policy, place_all, pmu};
use adjuster::Rates;
use cores::{Cookies, Cores};
use corun_model::{
    Nanos, PcpuId, PcpuPlan, Placement, Plan, Signals, Snapshot, Status, TaskId, TaskPlan,
    TaskSeen, VmSeen, counted, time,
};
use ltcr::{Ltcr, Performance};
use rass::Ranked;
use std::collections::{BTreeMap, BTreeSet};
use symbiosis::Cycles;
use turns::{Computing, Service};

/// What [`Policy::recognised`] calls CPU-bound vCPUs.
pub const CPU_BOUND: &str = "CPU";
/// What it calls I/O-bound ones.
pub const IO_BOUND: &str = "I/O";

/// What is known of a vCPU.
#[derive(Clone, Copy, Debug, Default)]
struct Vcpu {
    /// Its core, if there is one for it.
    core: Option<usize>,
    io: bool,
    rate: u32,
    weight: u64,
    cycles: Option<Cycles>,
    /// Did it want to run in the last period?
    busy: bool,
    /// Has it wanted to lately, or retained? Has it begun to since cores were given out?
    wanting: Wanting,
    begins: bool,
    /// Did it do nothing but compute?
    computes: bool,
    /// What it had lately, and in the last period, and its class then.
    had: Service,
    latest: Service,
    was_io: bool,
    /// Was it dormant for most of its time on pCPUs, without the host's doing?
    dormant: bool,
}

impl Vcpu {
    /// Learns from what it did in a period. `timeout`: the one desired for its core. Returns whether it begins to
    /// compute.
    fn learn(&mut self, task: &TaskSeen, timeout: Nanos, params: &VsmtIoParams) -> bool {
        let accounted = task.run + task.ready + task.wait;
        let hidden = match params.guests && params.retain {
            true => 0,
            false => rass::hidden(task.wait, task.turns.wakeups, timeout),
        };
        let dormant_for = dormant(task, params.guests);
        let retained = task.turns.retained.max(hidden).max(dormant_for);
        let computed = self.computes;
        // A vCPU that a quota kept from pCPUs for the whole period shows nothing new.
        if accounted > 0 {
            self.rate = rass::rate(retained, accounted);
            self.computes = self.core.is_some() && computes(task, params);
            let wanted = wanting::part(task.run + task.ready, accounted);
            self.begins |= self.wanting.note(wanted + self.rate);
        }
        if self.core.is_some() {
            self.latest = Service::of(task.run, self.weight);
            self.had = self.had.and(self.latest);
            self.was_io = self.io;
        }
        self.dormant = rass::retains(self.dormant, dormant_for, task.run);
        self.busy = task.run + task.ready > 0;
        self.cycles = cycles(task).or(self.cycles);
        self.computes && !computed
    }

    /// What it weighs where it is at home: nothing while it does not want to run.
    fn load(&self) -> u64 {
        match self.wanting.counts() {
            true => self.weight,
            false => 0,
        }
    }
}

/// The vCPUs of a core.
type OnCore = Vec<(TaskId, Vcpu)>;

/// How many vCPUs of a core want to run: CPU-bound ones, and I/O-bound ones.
#[derive(Clone, Copy, Debug, Default)]
struct Busy([u64; 2]);

impl Busy {
    fn class(self, io: bool) -> u64 {
        self.0[usize::from(io)]
    }

    fn class_mut(&mut self, io: bool) -> &mut u64 {
        &mut self.0[usize::from(io)]
    }
}

/// Retention and two classes per core.
#[derive(Clone, Debug)]
pub struct VsmtIo {
    params: VsmtIoParams,
    vcpus: BTreeMap<TaskId, Vcpu>,
    cores: Cores,
    cookies: Cookies,
    timeouts: Vec<Ltcr>,
    looked_at: Option<Nanos>,
    /// Periods until vCPUs may be swapped again.
    cooldown: u32,
    smt: bool,
    /// What the host reported in the last period, of any vCPU; `None`: there was no vCPU.
    signals_seen: Option<Signals>,
    /// Has a period passed?
    learned: bool,
}

impl Default for VsmtIo {
    fn default() -> Self {
        Self::new(VsmtIoParams::default())
    }
}

impl VsmtIo {
    /// With these settings.
    pub fn new(params: VsmtIoParams) -> Self {
        Self {
            params,
            vcpus: BTreeMap::new(),
            cores: Cores::default(),
            cookies: Cookies::default(),
            timeouts: Vec::new(),
            looked_at: None,
            cooldown: 0,
            smt: true,
            signals_seen: None,
            learned: false,
        }
    }

    /// Learns from a period: what vCPUs did, and whether their timeouts served them.
    fn learn(&mut self, seen: &Snapshot) {
        let length = seen.now.saturating_sub(self.looked_at.unwrap_or(0));
        self.learned = true;
        let mut achieved = vec![Performance::default(); self.timeouts.len()];
        let mut begin = Vec::new();
        for task in seen.vms.iter().flat_map(|vm| &vm.vcpus) {
            let vcpu = self.vcpus.entry(task.task).or_default();
            let timeout = vcpu.core.and_then(|core| self.timeouts.get(core));
            if vcpu.learn(task, timeout.map_or(0, Ltcr::desired), &self.params) {
                begin.push(task.task);
            }
            if let Some(of) = vcpu.core.and_then(|core| achieved.get_mut(core)) {
                note(of, task, vcpu.io, self.params.guests, length);
            }
        }
        if self.params.adjust {
            for (timeout, seen) in self.timeouts.iter_mut().zip(achieved) {
                timeout.step(seen, &self.params.bounds);
            }
        }
        self.level(&begin);
    }

    /// These begin to compute: compared with vCPUs on their cores that did before, they are owed nothing for that time.
    fn level(&mut self, begin: &[TaskId]) {
        if begin.is_empty() {
            return;
        }
        let on = self.by_core();
        for task in begin {
            let core = self.vcpus.get(task).and_then(|vcpu| vcpu.core);
            let others = core.and_then(|core| on.get(core)).into_iter().flatten();
            let least = others
                .filter(|(other, it)| it.computes && !begin.contains(other))
                .map(|(_, it)| it.had)
                .min();
            if let (Some(least), Some(vcpu)) = (least, self.vcpus.get_mut(task)) {
                vcpu.had = vcpu.had.max(least);
            }
        }
    }

    /// Swaps vCPUs of different cores.
    fn swap(&mut self, seen: &Snapshot) {
        if self.cooldown > 0 {
            self.cooldown -= 1;
            return;
        }
        let swaps = self.swaps(seen);
        let core = |task| self.vcpus.get(&task).and_then(|vcpu| vcpu.core);
        let moves: Vec<_> = (swaps.iter())
            .flat_map(|&(one, other)| [(one, core(other)), (other, core(one))])
            .collect();
        for (task, core) in moves {
            if let Some(vcpu) = self.vcpus.get_mut(&task) {
                vcpu.core = core;
            }
        }
        if !swaps.is_empty() {
            self.cooldown = self.params.cooldown;
        }
    }

    /// The vCPUs of different cores that are to be swapped: two if a core needs it, otherwise those that take turns.
    fn swaps(&self, seen: &Snapshot) -> Vec<(TaskId, TaskId)> {
        let (on, may) = (self.by_core(), self.may_move(seen));
        let adjusts = self.params.adjuster;
        let mixes = adjusts.then(|| self.adjust_workloads(&on, &may)).flatten();
        mixes.map_or_else(|| self.change_cores(&on, &may), |pair| vec![pair])
    }

    /// The two vCPUs that are to be swapped so that a core is mixed, if one needs it.
    fn adjust_workloads(
        &self,
        on: &[OnCore],
        may: impl Fn(TaskId, usize) -> bool,
    ) -> Option<(TaskId, TaskId)> {
        // A vCPU that never runs is compared with no other.
        let wanting = |on: &OnCore| {
            let wanting = on.iter().filter(|(_, vcpu)| vcpu.wanting.counts());
            wanting.map(|&(task, vcpu)| (task, vcpu.rate)).collect()
        };
        let rates = |(core, on): (usize, &OnCore)| Rates {
            group: self.cores.group(core),
            vcpus: wanting(on),
        };
        let rates: Vec<Rates> = on.iter().enumerate().map(rates).collect();
        let threshold = self.params.homogeneous * rass::FULL / 100;
        adjuster::swap(&rates, threshold, may)
    }

    /// vCPUs of different cores that change places, so that all that compute have the same.
    fn change_cores(
        &self,
        on: &[OnCore],
        may: impl Fn(TaskId, usize) -> bool,
    ) -> Vec<(TaskId, TaskId)> {
        let cores: Vec<_> = on.iter().map(|on| computing(on)).collect();
        let weights: Vec<u64> = (on.iter())
            .map(|on| on.iter().map(|(_, vcpu)| vcpu.load()).sum())
            .collect();
        let group = |core| self.cores.group(core);
        turns::between(&cores, &weights, self.params.period, group, may)
    }

    /// May a vCPU have its home on that core?
    fn may_move<'a>(&'a self, seen: &'a Snapshot) -> impl Fn(TaskId, usize) -> bool + 'a {
        let all = seen
            .vms
            .iter()
            .flat_map(|vm| (vm.vcpus.iter()).map(|vcpu| (vcpu.task, (vm.cookie, &vcpu.allowed))));
        let all: BTreeMap<_, _> = all.collect();
        move |task, core| {
            let known = all.get(&task);
            known.is_some_and(|(cookie, allowed)| self.cores.admits(core, *cookie, allowed))
        }
    }

    /// The vCPUs of each core, as they are now.
    fn by_core(&self) -> Vec<OnCore> {
        let mut on = vec![OnCore::new(); self.cores.count()];
        for (&task, &vcpu) in &self.vcpus {
            if let Some(on) = vcpu.core.and_then(|core| on.get_mut(core)) {
                on.push((task, vcpu));
            }
        }
        on
    }

    /// Divides the vCPUs of each core into classes. Without RASS no vCPU is put anywhere for its class, but the timeout
    /// still has to serve both classes.
    fn classify(&mut self) {
        let compensate = self.params.compensate;
        for mut on in self.by_core() {
            let weight = |vcpu: Vcpu| match compensate {
                true => rass::compensated(vcpu.load(), vcpu.rate),
                false => vcpu.load(),
            };
            let ranked = |&(task, vcpu): &(TaskId, Vcpu)| Ranked {
                task,
                weight: weight(vcpu),
                rate: vcpu.rate,
                was_io: vcpu.io,
            };
            let mut ranked: Vec<Ranked> = on.iter().map(ranked).collect();
            let io = rass::split(&mut ranked);
            let io: BTreeSet<TaskId> = ranked.iter().take(io).map(|one| one.task).collect();
            for (task, vcpu) in &mut on {
                vcpu.io = io.contains(task);
            }
            self.belong(on.iter().map(|&(task, vcpu)| (task, vcpu.io)));
            if !self.params.rass {
                continue;
            }
            // Those that compute have the better class by turns.
            let mut computing = computing(&on);
            turns::even_out(&mut computing, || weights_of_others(&on, weight));
            turns::within(&mut computing, self.params.latency);
            self.belong(computing.iter().map(|one| (one.task, one.io)));
        }
    }

    /// These are I/O-bound, or not.
    fn belong(&mut self, classes: impl Iterator<Item = (TaskId, bool)>) {
        for (task, io) in classes {
            if let Some(vcpu) = self.vcpus.get_mut(&task) {
                vcpu.io = io;
            }
        }
    }

    /// CFS's slice (`sched_slice()`) for a vCPU: those that want its hardware thread have one turn each within the
    /// latency. Which vCPU of a class is next is left to fair order, but how long it runs matters: a vCPU that retains
    /// its context is back only when the others of its class have had their turns.
    fn slice(&self, vcpu: Vcpu, busy: &[Busy]) -> Option<Nanos> {
        let core = vcpu.core?;
        let of = busy.get(core)?;
        let sharing = match self.params.rass {
            true => of.class(vcpu.io),
            false => (of.class(false) + of.class(true)).div_ceil(2),
        };
        let slice = self.params.latency / sharing.max(1);
        let slice = slice.max(self.params.slice_least);
        let dormant = self.timeouts.get(core).filter(|_| self.limits(vcpu));
        Some(dormant.map_or(slice, |timeout| slice.min(timeout.effective())))
    }

    /// How many vCPUs of each core want to run.
    fn busy(&self) -> Vec<Busy> {
        let mut busy = vec![Busy::default(); self.cores.count()];
        for vcpu in self.vcpus.values().filter(|vcpu| vcpu.busy) {
            if let Some(of) = vcpu.core.and_then(|core| busy.get_mut(core)) {
                *of.class_mut(vcpu.io) += 1;
            }
        }
        busy
    }

    /// Does this vCPU retain its context without limit, so that the host has to end that?
    fn limits(&self, vcpu: Vcpu) -> bool {
        vcpu.dormant && self.params.retain
    }

    /// Does symbiosis pick by how vCPUs share a core? It is a part of RASS (§3.4.3), for what its classes run.
    fn symbiosis(&self) -> bool {
        self.params.symbiosis && self.params.rass
    }

    /// Does symbiosis choose by this vCPU's demand? In the paper it does for the CPU-bound ones, and on its slides for
    /// all that retain little: what I/O-bound vCPUs need of a core changes with each wait. vCPUs that do nothing but
    /// compute need the same all the time, even in the I/O class, where they are only because both classes are to weigh
    /// alike.
    fn picks(&self, vcpu: Vcpu) -> bool {
        self.symbiosis() && (!vcpu.io || vcpu.computes)
    }

    /// The plan for a vCPU that follows from its class and core.
    fn told(&self, task: &TaskSeen, cookie: u64, busy: &[Busy]) -> TaskPlan {
        let vcpu = self.vcpus.get(&task.task).copied().unwrap_or_default();
        let threads = vcpu.core.map(|core| self.cores.threads(core));
        let home = threads.map(|[cpu, io]| if vcpu.io { io } else { cpu });
        let cycles = vcpu.cycles.filter(|_| self.picks(vcpu));
        TaskPlan {
            slice: self.slice(vcpu, busy),
            home: home.filter(|home| self.params.rass && task.allowed.contains(*home)),
            demand: cycles.map(|cycles| corun_model::Demand {
                alone: self.params.coefficients.alone(cycles) as u32 / 100,
                wait: cycles.wait,
                miss: cycles.miss,
            }),
            dormant: vcpu.core.is_some() && self.limits(vcpu),
            cookie: self.cookies.number(cookie),
            ..TaskPlan::of(task.task)
        }
    }

    /// These VMs are left to fair order, but like all VMs they are kept off cores of other cookies.
    fn tell_cookies(&self, others: &[VmSeen], plan: &mut Plan) {
        for vm in others {
            let cookie = self.cookies.number(vm.cookie);
            plan.tasks.extend(vm.vcpus.iter().map(|task| TaskPlan {
                cookie,
                ..TaskPlan::of(task.task)
            }));
        }
    }

    /// What was found out in the last period, for people.
    fn summary(&self) -> Option<String> {
        let known: Vec<&Vcpu> = (self.vcpus.values())
            .filter(|vcpu| vcpu.core.is_some())
            .collect();
        let io = known.iter().filter(|vcpu| vcpu.io);
        let rates: u64 = io.clone().map(|vcpu| u64::from(vcpu.rate)).sum();
        let (io, all) = (io.count(), known.len());
        if !self.learned || all == 0 {
            return None;
        }
        let percent = 100 * rates / (io.max(1) as u64 * u64::from(rass::FULL));
        let classes = match self.params.rass {
            true => format!(
                "{io} of {all} vCPUs are taken for I/O-bound and have waited within retentions, or might have, for \
                 {percent} % of the last period"
            ),
            false => format!(
                "{}, without classes, and so no swaps between cores (adjuster, cooldown) and no symbiosis",
                counted(all, "vCPU")
            ),
        };
        let timeouts = self.timeouts.iter().map(Ltcr::effective);
        let range = timeouts.clone().min().zip(timeouts.max());
        Some(match range.filter(|_| self.params.retain) {
            Some((least, most)) if least == most => {
                format!("{classes}; timeouts are {}", time::show(least))
            }
            Some((least, most)) => format!(
                "{classes}; timeouts are {} to {}",
                time::show(least),
                time::show(most)
            ),
            None => classes,
        })
    }

    /// The signals that this host does not provide, and what is not done without them.
    fn missing_signals(&self, signals: &Signals) -> Vec<String> {
        let (params, timeout) = (&self.params, time::show(self.params.timeout));
        let missing = [
            (
                params.retain && params.adjust && signals.instructions.is_none(),
                format!(
                    "instructions executed (no performance counter): whether CPU-bound vCPUs gain is not known, and \
                     timeouts stay at {timeout}, where they begin"
                ),
            ),
            (
                self.symbiosis() && signals.cycles.is_none(),
                "how the cycles of a vCPU divide: no symbiosis, fair order picks among CPU-bound vCPUs"
                    .to_string(),
            ),
            (
                params.retain && !params.guests && signals.unhalted.is_none(),
                "unhalted cycles: guests with MWAIT passed through are not recognised".to_string(),
            ),
        ];
        let missing = missing.into_iter().filter(|(is, _)| *is);
        missing
            .map(|(_, what)| format!("this host does not report {what}"))
            .collect()
    }

    /// The hardware threads of each core, and for how long contexts are retained there.
    fn hardware(&self) -> Vec<PcpuPlan> {
        let coefficients = self.params.coefficients;
        let thread = |own: PcpuId, other: PcpuId, io: bool, timeout: Nanos| PcpuPlan {
            cpu: own,
            partner: other,
            hold: if io && !self.params.guests {
                timeout
            } else {
                0
            },
            // A guest's idle loop does not know its vCPU's class.
            retention: if self.params.guests { timeout } else { 0 },
            gives_way: self.params.give_way,
            cookies: self.cookies.matter(),
            wait_wait: coefficients.wait_wait,
            miss_miss: coefficients.miss_miss,
        };
        let core = |(core, timeout): (usize, &Ltcr)| {
            let [cpu, io] = self.cores.threads(core);
            let timeout = if self.params.retain {
                timeout.effective()
            } else {
                0
            };
            let both = !self.params.rass;
            [
                thread(cpu, io, both, timeout),
                thread(io, cpu, true, timeout),
            ]
        };
        self.timeouts.iter().enumerate().flat_map(core).collect()
    }
}

/// The vCPUs of a core that compute.
fn computing(on: &[(TaskId, Vcpu)]) -> Vec<Computing> {
    let computing = |&(task, vcpu): &(TaskId, Vcpu)| {
        vcpu.computes.then_some(Computing {
            task,
            weight: vcpu.weight,
            had: vcpu.had,
            latest: vcpu.latest,
            was_io: vcpu.was_io,
            io: vcpu.io,
        })
    };
    on.iter().filter_map(computing).collect()
}

/// What a core's vCPUs weigh that do not compute: the CPU-bound ones, the I/O-bound ones.
fn weights_of_others(on: &[(TaskId, Vcpu)], weight: impl Fn(Vcpu) -> u64) -> [u64; 2] {
    let mut weights = [0; 2];
    for &(_, vcpu) in on.iter().filter(|(_, vcpu)| !vcpu.computes) {
        weights[usize::from(vcpu.io)] += weight(vcpu);
    }
    weights
}

/// How the cycles of a vCPU divided in a period, as far as that could be counted without interference.
fn cycles(task: &TaskSeen) -> Option<Cycles> {
    let counted = task.signals.cycles?;
    Cycles::of(counted.cycles, counted.base, counted.miss)
}

/// How many waits of a vCPU ended: each begins with a retention, or would. If the guest retains (`guests`), a wait ends
/// within the retention, or has become a halt, whose end is a wake-up; if the host holds a hardware thread, a wait is a
/// halt from the beginning.
fn waits(task: &TaskSeen, guests: bool) -> u64 {
    let within = if guests { task.turns.kept } else { 0 };
    within + task.turns.wakeups
}

/// How long a vCPU was dormant on pCPUs in the period of its own accord, without a hold, as far as its cycles show. A
/// guest that is told to retain (`guests`) reports that itself.
fn dormant(task: &TaskSeen, guests: bool) -> Nanos {
    let counted = task.signals.unhalted.filter(|_| !guests);
    counted.map_or(0, |counted| counted.dormant(task.run))
}

/// Did a vCPU work, or want to, for all of the period, except for as little as cores that count as alike differ by?
fn computes(task: &TaskSeen, params: &VsmtIoParams) -> bool {
    let within = match params.guests {
        true => task.turns.retained,
        false => dormant(task, false),
    };
    let idle = task.wait + within;
    let all = task.run + task.ready + task.wait;
    u128::from(idle) * 100 <= u128::from(all) * u128::from(params.homogeneous)
}

/// What a vCPU achieved in a period of `length`.
fn note(of: &mut Performance, task: &TaskSeen, io: bool, guests: bool, length: Nanos) {
    const THOUSAND_S: u128 = 1_000_000_000_000;
    let rate = |count: u64, unit: u128, time: Nanos| {
        u64::try_from(u128::from(count) * unit / u128::from(time.max(1))).unwrap_or(u64::MAX)
    };
    if io {
        let waits = waits(task, guests);
        of.io.insert(task.task, rate(waits, THOUSAND_S, length));
        return;
    }
    let awake = task.run - dormant(task, guests);
    if let Some(instructions) = task.signals.instructions.filter(|_| awake > 0) {
        const MS: u128 = 1_000_000;
        of.cpu.insert(task.task, rate(instructions, MS, awake));
    }
}

impl Policy for VsmtIo {
    fn period(&self) -> Nanos {
        self.params.period
    }

    fn decide(&mut self, seen: &Snapshot, plan: &mut Plan) {
        self.smt = seen.host.smt.is_some();
        let vcpus = seen.vms.iter().flat_map(|vm| &vm.vcpus);
        self.signals_seen = vcpus.map(|task| task.signals).reduce(Signals::or);
        if !self.smt {
            return place_all(seen, plan, Placement::Free);
        }
        if self.cores.know(&seen.host) {
            self.vcpus.clear();
            let new = || Ltcr::new(self.params.timeout);
            self.timeouts = (0..self.cores.count()).map(|_| new()).collect();
        }
        if self.looked_at.is_some_and(|before| before < seen.now) {
            self.learn(seen);
        }
        self.looked_at = Some(seen.now);
        if cores::settle(&mut self.cores, &mut self.vcpus, seen) {
            // As after a swap.
            self.cooldown = self.params.cooldown;
        }
        if self.params.rass {
            self.swap(seen);
        }
        self.classify();
        let placement = match self.params.rass {
            true => Placement::Core,
            false => Placement::Free,
        };
        place_all(seen, plan, placement);
        self.cookies.know(seen.all().map(|vm| vm.cookie));
        let busy = self.busy();
        for vm in &seen.vms {
            let told = |task| self.told(task, vm.cookie, &busy);
            plan.tasks.extend(vm.vcpus.iter().map(told));
        }
        if self.cookies.matter() {
            self.tell_cookies(&seen.others, plan);
        }
        plan.pcpus = self.hardware();
    }

    fn wants_signals(&self) -> bool {
        self.params.adjust || self.params.retain || self.params.rass
    }

    fn wants_cycles(&self) -> Option<pmu::Choice> {
        let calibrated = self.params.events.map(pmu::Choice::These);
        let by = calibrated.unwrap_or(pmu::Choice::OfHost);
        (self.symbiosis() && self.smt).then_some(by)
    }

    fn status(&self) -> Status {
        let notes = match &self.signals_seen {
            _ if !self.smt => vec![
                "the cores of this host do not have two hardware threads each: plain fair order"
                    .to_string(),
            ],
            Some(signals) => {
                let mut notes = self.missing_signals(signals);
                notes.extend(self.summary());
                notes
            }
            None => Vec::new(),
        };
        Status {
            notes,
            ..Status::default()
        }
    }

    fn recognised(&self, task: TaskId) -> Option<&'static str> {
        let vcpu = self
            .vcpus
            .get(&task)
            .filter(|_| self.params.rass && self.smt)?;
        vcpu.core?;
        Some(if vcpu.io { IO_BOUND } else { CPU_BOUND })
    }
}

#[cfg(test)]
mod tests;
