// SPDX-License-Identifier: GPL-2.0-only
//! Xen's Credit scheduler, the host of many vCPU scheduling papers (Xen's default until 4.11).
//!
//! A model written from how `xen/common/sched/credit.c` of current Xen works. Each pCPU has a queue
//! sorted by priority, first come first served within one: BOOST for vCPUs that woke up having
//! credit, UNDER for those having credit, OVER for those in debt ([`queue`]). Running burns credit;
//! every slice all credit is handed out anew by weight ([`accounts`]). No vCPU is placed at a
//! wake-up: a vCPU is queued where it ran last and an idle pCPU is told to fetch it; a pCPU that
//! has nothing better than OVER looks for something of strictly higher priority elsewhere, and a
//! tick moves a running vCPU to an idler core ([`placement`]).
//!
//! BOOST is what makes a vCPU that only serves I/O fast. A vCPU that also computes loses it: the
//! first tick (10 ms) that finds it running takes BOOST away, and once in debt it is not boosted.
//!
//! Where summaries differ from the code: the AQL_Sched paper (§2.1) has credit bounded by the cap
//! and OVER vCPUs kept from pCPUs. The cap bounds what is earned per slice, and OVER runs whenever
//! nothing better is ready: only a capped VM's vCPUs are taken off (parked). Credit is burnt by the
//! clock, not by the tick that happens to find a vCPU running, as Xen did until 4.0.
//!
//! A VM's own `cpu.max` is its cap, in whole percent. Credit has no groups of VMs, no burst and no
//! tasks that run only when others do not want to (`cpu.idle`).
//!
//! Domains are VMs. A domain's weight counts once per active vCPU, unlike `cpu.weight`, so of two
//! VMs of equal weight the one with more vCPUs gets more. A VM without a weight gets 256 scaled by
//! its vCPUs' weight; Credit has no weights within a VM. Host tasks that are no vCPUs behave as
//! domains with one vCPU. An LLC or core is as the topology says, a node is a socket.
//!
//! A policy may give pCPUs and vCPUs slices of their own and bind vCPUs to pools ([`pools`]), and have short slices
//! spread ([`micro`]).
//!
//! None of the timers are in step: Xen starts each pCPU's tick when that pCPU comes up and accounting when the first
//! pCPU does (`init_pdata()`); both set themselves anew from when they ran, however late that was (50 us in the papers'
//! versions, `timer_slop`); and a slice begins when its vCPU does. So ticks and accounting have
//! phases from the run's seed, as on a host that has been up for long. In Xen the tick of a pCPU that idled goes on at
//! a multiple of its period by the clock; here it goes on in its own phase.
//!
//! Not modelled: soft affinity, Xen's own cpupools, core scheduling and the migration delay (none
//! by default); that Xen 4.3 to 4.12 sent a preempted vCPU on to an idle pCPU if none suited the
//! woken one (`__runq_tickle()`: later versions only ask for idle pCPUs that suit the woken vCPU,
//! and then there is none); what came with Xen 4.18: a vCPU that has yielded is not stolen, and a
//! pCPU looks for work elsewhere once a millisecond at most; what the papers' 4.2 did differently:
//! the rate limit held yields up, too, and a vCPU that was only moved was boosted. All VMs exist
//! when the run begins. The kernel's tick (`host.hz`) plays no role: Credit has its own.

mod accounts;
mod micro;
mod params;
mod placement;
mod pools;
mod queue;
#[cfg(test)]
mod tests;

pub use params::{CreditParams, parameters};

use super::HostScheduler;
use crate::event_queue::EventId;
use crate::host::{Host, HostParams, TaskState};
use crate::load::{Cgroups, VmInfo};
use crate::rng::Rng;
use accounts::{Accounts, Priority};
use corun_model::{Nanos, PcpuId, PcpuSet, Plan, TaskId, Topology};
use micro::Micro;
use queue::Pcpu;

/// A vCPU as placement sees it (`struct csched_unit`); its credit is in [`Accounts`].
#[derive(Debug)]
struct Unit {
    allowed: PcpuSet,
    /// The pCPU whose queue it is on, or ran on last.
    home: PcpuId,
    /// It is to leave its pCPU for an idler one.
    moves: bool,
    /// It was moved, so that Credit does not count its next wake-up as one.
    moved: bool,
    yields: bool,
    /// Its own slice; `None`: its pCPU's.
    slice: Option<Nanos>,
    micro: Micro,
    /// What is left of its turn, which a vCPU with micro slices interrupted.
    rest: Option<Nanos>,
    /// Where it goes when it moves, if that is decided.
    goes_to: Option<PcpuId>,
}

impl Unit {
    /// Is `cpu` its home, or will it be after the move that is decided?
    fn stays_on(&self, cpu: PcpuId) -> bool {
        self.goes_to.unwrap_or(self.home) == cpu
    }
}

/// A host that runs Xen's Credit scheduler.
pub struct Credit {
    params: CreditParams,
    /// The settings that hold unless a policy wants another slice.
    configured: CreditParams,
    topology: Topology,
    accounts: Accounts,
    units: Vec<Unit>,
    pcpus: Vec<Pcpu>,
    /// Per node: the pCPU that work was last stolen from.
    steal_bias: Vec<PcpuId>,
    /// Does any vCPU have micro slices, or did one have them before?
    micro: bool,
    /// Counts accountings; queues are sorted once after each.
    epoch: u64,
    /// When the first accounting is, counted from the first vCPU's arrival.
    first_account: Nanos,
}

/// What a timer is for; the pCPU is in the lower half of the token.
const TICK: u64 = 0;
const SLICE: u64 = 1;
const ACCOUNT: u64 = 2;

fn token(kind: u64, cpu: PcpuId) -> u64 {
    kind << 32 | u64::from(cpu.0)
}

impl Credit {
    /// Credit with these settings on this host. The phases of its timers are of the run with `seed`.
    pub fn new(params: CreditParams, seed: u64, host: &HostParams) -> Self {
        let params = params.bounded();
        let topology = host.topology;
        let pcpus = topology.pcpus();
        let nodes = topology.all().map(|cpu| topology.node(cpu)).max();
        let first = |node| topology.all().find(|&cpu| topology.node(cpu) == node);
        let phase = |cpu| Rng::of(seed, "Credit tick", cpu).between(0, params.tick() - 1);
        let pcpu = |cpu| Pcpu::new(params.slice, phase(u64::from(cpu)), pcpus);
        Self {
            params,
            configured: params,
            topology,
            accounts: Accounts::new(&params, pcpus),
            units: Vec::new(),
            pcpus: (0..pcpus).map(pcpu).collect(),
            steal_bias: (0..=nodes.unwrap_or(0)).filter_map(first).collect(),
            micro: false,
            epoch: 0,
            first_account: Rng::of(seed, "Credit accounting", 0).between(1, params.slice),
        }
    }

    fn pcpu(&mut self, cpu: PcpuId) -> &mut Pcpu {
        &mut self.pcpus[cpu.index()]
    }

    fn unit(&mut self, task: TaskId) -> &mut Unit {
        &mut self.units[task.index()]
    }

    /// Puts a ready vCPU on the queue of its home.
    fn enqueue(&mut self, host: &mut Host, task: TaskId) {
        let unit = &self.units[task.index()];
        let (home, yields) = (unit.home, unit.yields);
        self.pcpus[home.index()].insert(task, yields, |task| self.accounts.priority(task));
        host.queue_on(task, home);
    }

    /// Queues a vCPU that became ready on its home and tells a pCPU about it
    /// (`csched_unit_wake()`, but for the boost).
    fn arrive(&mut self, host: &mut Host, task: TaskId, waker: Option<PcpuId>) {
        self.enqueue(host, task);
        self.tickle(host, task, waker);
    }

    /// Charges the current vCPU of `cpu` and takes it off; it is queued nowhere.
    fn put_down(&mut self, cpu: PcpuId, now: Nanos) {
        self.micro_ran(cpu, now);
        if let Some(task) = self.pcpu(cpu).current.take() {
            self.accounts.stop(task, now);
        }
    }

    /// The best vCPU of the own queue; if that is OVER or there is none, preferably one of higher
    /// priority from elsewhere.
    fn take_best(&mut self, host: &mut Host, cpu: PcpuId) -> Option<TaskId> {
        let head = self.pcpu(cpu).queue.front().copied();
        let priority = head.map(|task| self.accounts.priority(task));
        if priority <= Some(Priority::Over)
            && let Some(stolen) = self.steal(cpu, priority)
        {
            host.queue_on(stolen, cpu);
            return Some(stolen);
        }
        let at = self.due(cpu, host.now()).unwrap_or(0);
        self.pcpu(cpu).queue.remove(at)
    }

    /// The time for which the current vCPU of `cpu` is still protected by the rate limit. The protection ends with its
    /// slice: a policy's slice may be shorter than that of the scheduler.
    fn protected(&self, cpu: PcpuId, now: Nanos) -> Option<Nanos> {
        let pcpu = &self.pcpus[cpu.index()];
        let task = pcpu.current?;
        let unit = &self.units[task.index()];
        let ran = now.saturating_sub(pcpu.since);
        let ratelimit = (self.params.ratelimit).min(unit.slice.unwrap_or(pcpu.slice));
        if unit.yields || unit.moves || self.accounts.parked(task) || ran >= ratelimit {
            return None;
        }
        Some(match ran < params::LEAST_TIMER {
            true => params::LEAST_TIMER,
            false => ratelimit - ran,
        })
    }

    /// Lets `cpu` schedule again after `time`.
    fn set_slice_timer(&mut self, host: &mut Host, cpu: PcpuId, time: Option<Nanos>) {
        let timer = match time {
            Some(time) => host.sched_timer(host.now() + time, token(SLICE, cpu)),
            None => EventId::NONE,
        };
        host.cancel(std::mem::replace(&mut self.pcpu(cpu).slice_timer, timer));
    }

    /// The tick stops while a pCPU idles, and goes on in the same phase.
    fn set_ticker(&mut self, host: &mut Host, cpu: PcpuId) {
        let busy = self.pcpu(cpu).current.is_some();
        let ticker = self.pcpu(cpu).ticker;
        if busy && ticker == EventId::NONE {
            let period = self.params.tick();
            let (phase, now) = (self.pcpu(cpu).tick_phase % period, host.now());
            let since = (now % period + period - phase) % period;
            self.pcpu(cpu).ticker = host.sched_timer(now + period - since, token(TICK, cpu));
        } else if !busy && ticker != EventId::NONE {
            host.cancel(ticker);
            self.pcpu(cpu).ticker = EventId::NONE;
        }
    }

    /// `csched_tick()`: a vCPU that is found running counts as using its pCPU.
    fn on_tick(&mut self, host: &mut Host, cpu: PcpuId) {
        self.pcpu(cpu).ticker = EventId::NONE;
        self.pcpu(cpu).tick_phase = host.now();
        if let Some(task) = self.pcpu(cpu).current {
            let was_active = self.accounts.found_running(task, host.now());
            if was_active && self.idlest(task, false) != cpu {
                self.unit(task).moves = true;
                host.resched(cpu, Some(cpu));
            }
        }
        // Accounting may have changed the order.
        if self.due(cpu, host.now()).is_some() {
            host.resched(cpu, Some(cpu));
        }
        let epoch = self.epoch;
        self.pcpus[cpu.index()].sort(epoch, |task| self.accounts.priority(task));
        self.set_ticker(host, cpu);
    }

    /// `csched_acct()`: hands out credit, parks and unparks.
    fn on_account(&mut self, host: &mut Host) {
        let master = PcpuId(0);
        let changes = self.accounts.hand_out();
        for task in changes.parked {
            let home = self.units[task.index()].home;
            match self.pcpu(home).current == Some(task) {
                true => host.resched(home, Some(master)),
                false => self.pcpu(home).remove(task),
            }
        }
        for task in changes.unparked {
            let home = self.units[task.index()].home;
            let runs = self.pcpu(home).current == Some(task);
            if host.task(task).state == TaskState::Ready && !runs {
                self.unit(task).moved = false;
                self.arrive(host, task, Some(master));
            }
        }
        self.epoch += 1;
        let next = host.now() + self.params.slice;
        host.sched_timer(next, token(ACCOUNT, master));
    }

    /// Where a new vCPU begins: one pCPU after its VM's previous vCPU; a VM's first vCPU where
    /// there are fewest vCPUs so far (`default_vcpu0_location()`, today
    /// `sched_select_initial_cpu()`).
    fn first_home(&self, allowed: &PcpuSet, before: Option<TaskId>) -> PcpuId {
        let home = match before {
            Some(task) => placement::next_of(self.units[task.index()].home, allowed),
            None => allowed.iter().min_by_key(|cpu| {
                let here = self.units.iter().filter(|unit| unit.home == *cpu);
                here.count()
            }),
        };
        home.unwrap_or(PcpuId(0))
    }

    fn check(&self, cpu: PcpuId) {
        if cfg!(debug_assertions) {
            let pcpu = &self.pcpus[cpu.index()];
            for &task in &pcpu.queue {
                let unit = &self.units[task.index()];
                assert_eq!(unit.home, cpu, "{task} is queued on {cpu}");
                assert!(unit.allowed.contains(cpu), "{task} may not be on {cpu}");
                assert!(!self.accounts.parked(task), "{task} is parked");
                assert_ne!(pcpu.current, Some(task), "{task} is queued and running");
            }
        }
    }
}

impl HostScheduler for Credit {
    fn know_vms(&mut self, vms: &[VmInfo]) {
        self.accounts.know_vms(vms);
    }

    fn know_cgroups(&mut self, groups: &Cgroups) {
        self.accounts.know_cgroups(groups);
    }

    fn add(&mut self, host: &mut Host, task: TaskId) {
        if self.units.is_empty() {
            let first = host.now() + self.first_account;
            host.sched_timer(first, token(ACCOUNT, PcpuId(0)));
        }
        let known = host.task(task);
        let before = self.accounts.add(task, known.vm(), known.spec.weight);
        let (allowed, last) = (known.spec.allowed, known.spec.last_on);
        let last = last.filter(|&cpu| allowed.contains(cpu));
        self.units.push(Unit {
            allowed,
            home: last.unwrap_or_else(|| self.first_home(&allowed, before)),
            moves: false,
            // Finding a pCPU for a new vCPU counts as moving it (`csched_unit_insert()`).
            moved: last.is_none(),
            yields: false,
            slice: None,
            micro: Micro::default(),
            rest: None,
            goes_to: None,
        });
    }

    fn wake(&mut self, host: &mut Host, task: TaskId, waker: Option<PcpuId>) {
        if self.accounts.parked(task) {
            // It is paused: not woken before it is unparked.
            let home = self.units[task.index()].home;
            host.queue_on(task, home);
            return;
        }
        let moved = std::mem::take(&mut self.unit(task).moved);
        if self.params.boost && !moved {
            self.accounts.boost(task);
        }
        self.arrive(host, task, waker);
    }

    fn block(&mut self, host: &mut Host, task: TaskId, cpu: PcpuId) {
        self.put_down(cpu, host.now());
        let unit = self.unit(task);
        unit.yields = false;
        unit.rest = None;
        if std::mem::take(&mut unit.moves) {
            unit.moved = true;
            let goes_to = unit.goes_to.take();
            let home = goes_to.unwrap_or_else(|| self.idlest(task, true));
            self.unit(task).home = home;
        }
    }

    /// `csched_schedule()`.
    fn pick(&mut self, host: &mut Host, cpu: PcpuId) -> Option<TaskId> {
        let now = host.now();
        if let Some(time) = self.protected(cpu, now) {
            self.set_slice_timer(host, cpu, Some(time));
            return self.pcpu(cpu).current;
        }
        if let Some(left) = self.turn_left(cpu, now) {
            if self.due(cpu, now).is_none() {
                let time = self.until_due(cpu, left, now);
                self.set_slice_timer(host, cpu, Some(time));
                return self.pcpu(cpu).current;
            }
            self.interrupt(host, cpu, left, now);
        }
        let old = self.pcpu(cpu).current;
        self.put_down(cpu, now);
        let moves = old.filter(|&task| std::mem::take(&mut self.unit(task).moves));
        if let Some(task) = old {
            if moves.is_none() && !self.accounts.parked(task) {
                self.enqueue(host, task);
            }
            self.unit(task).yields = false;
            self.unit(task).rest = None;
        }
        let next = self.take_best(host, cpu);
        let pcpu = self.pcpu(cpu);
        pcpu.current = next;
        pcpu.idler = next.is_none();
        if next != old {
            pcpu.since = now;
        }
        let of_pcpu = pcpu.slice;
        let slice = next.map(|task| {
            let unit = &self.units[task.index()];
            let turn = unit.rest.or(unit.slice).unwrap_or(of_pcpu);
            self.until_due(cpu, turn, now)
        });
        if let Some(task) = next {
            self.accounts.start(task, now);
            self.unit(task).micro.begins(now);
        }
        self.set_slice_timer(host, cpu, slice);
        self.set_ticker(host, cpu);
        // A vCPU that moves arrives elsewhere once it is off its pCPU, and is not boosted.
        if let Some(task) = moves.filter(|&task| !self.accounts.parked(task)) {
            let goes_to = self.unit(task).goes_to.take();
            let home = goes_to.unwrap_or_else(|| self.idlest(task, true));
            self.unit(task).home = home;
            self.arrive(host, task, Some(cpu));
        }
        self.check(cpu);
        next
    }

    fn tick(&mut self, _host: &mut Host, _cpu: PcpuId) {
        // Credit's ticks are its own timers.
    }

    fn timer(&mut self, host: &mut Host, token: u64) {
        let cpu = PcpuId(token as u32);
        match token >> 32 {
            TICK => self.on_tick(host, cpu),
            SLICE => {
                self.pcpu(cpu).slice_timer = EventId::NONE;
                host.resched(cpu, Some(cpu));
            }
            _ => self.on_account(host),
        }
    }

    fn weighs_each_vcpu(&self) -> bool {
        true
    }

    fn apply(&mut self, host: &mut Host, plan: &Plan) {
        self.carry_out(host, plan);
    }

    fn yield_pcpu(
        &mut self,
        host: &mut Host,
        task: TaskId,
        cpu: PcpuId,
        _to: Option<TaskId>,
    ) -> bool {
        self.unit(task).yields = true;
        host.resched(cpu, Some(cpu));
        true
    }
}
