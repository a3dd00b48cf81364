// SPDX-License-Identifier: GPL-2.0-only
//! Makes VMs ready to run from what a scenario says, with the checks that need all programs of a
//! VM: threads that receive what none sends, barriers of one thread, cycles, locks taken in
//! opposite orders.

use super::agent::{Agent, Migrater};
use super::barrier::{Barrier, SpinBarrier};
use super::block::{Block, PAGE};
use super::circles::{self, Need};
use super::condition::Condition;
use super::condition_barrier::ConditionBarrier;
use super::disks::Disks;
use super::group::Group;
use super::mutex::Mutex;
use super::net::Sockets;
use super::queue::Queue;
use super::spinlock::SpinLock;
use super::tell::Told;
use super::thread::Thread;
use super::vcpu::Vcpu;
use super::vm::Vm;
use super::wiring;
use super::{
    DiskSpec, GuestError, Guests, HaltPollParams, HostTask, HostTaskSpec, MOST, MOST_VCPUS, Role,
    Stats, ThreadSpec, VmSpec,
};
use crate::device::net::{Network, NetworkSpec};
use crate::host::{Profile, TaskSpec};
use crate::load::{Cgroups, VmInfo};
use crate::rng::Rng;
use crate::sched::fair::Decay;
use crate::workload::{Code, LockOrder, Names, Op};
use corun_model::{PcpuSet, TaskId, VmId, counted};

type Linked<T> = Result<T, GuestError>;

/// How many of the threads that wait for each other an error names.
const MOST_NAMED: usize = 4;

pub(super) fn link(
    vms: Vec<VmSpec>,
    host_tasks: Vec<HostTaskSpec>,
    disks: &[DiskSpec],
    network: &NetworkSpec,
    seed: u64,
) -> Linked<Guests> {
    if vms.len().max(host_tasks.len()) > MOST {
        let message = format!("more than {MOST} VMs or host tasks");
        return Err(GuestError::new("the host", message));
    }
    let mut guests = Guests {
        infos: Vec::new(),
        cgroups: Cgroups::default(),
        tasks: Vec::new(),
        roles: Vec::new(),
        vms: Vec::new(),
        units: Vec::new(),
        host_tasks: Vec::new(),
        emulators: Vec::new(),
        disks: Disks::new(disks, &vms, seed)?,
        network: Network::new(network, seed),
        channels: Vec::new(),
        reset_at: 0,
    };
    for spec in &vms {
        guests.add_vm(spec, seed)?;
    }
    for spec in host_tasks {
        guests.add_host_task(spec, vms.len(), seed)?;
    }
    guests.add_emulators(&vms)?;
    wiring::wire(&mut guests, network)?;
    Ok(guests)
}

impl Guests {
    fn add_vm(&mut self, spec: &VmSpec, seed: u64) -> Linked<()> {
        let id = self.vms.len() as u32;
        check_numbers(spec)?;
        let linker = Linker::new(spec)?;
        linker.check()?;
        self.units.push(linker.names.units.clone());
        self.infos.push(VmInfo {
            name: spec.name.clone(),
            weight: spec.weight,
            cookie: spec.cookie,
            cap: spec.cap,
            realtime: spec.realtime,
        });
        let first = self.tasks.len();
        for vcpu in 0..spec.vcpus {
            self.tasks.push(TaskSpec {
                name: format!("{}/{vcpu}", spec.name),
                vcpu: Some((VmId(id), vcpu)),
                helper_of: None,
                weight: spec.vcpu_weight,
                allowed: *spec
                    .vcpu_allowed
                    .get(vcpu as usize)
                    .unwrap_or(&spec.allowed),
                last_on: None,
                slice: spec.slice,
            });
            self.roles.push(Role::Vcpu { vm: id, vcpu });
        }
        let owners: usize = self.vms.iter().map(|vm| vm.threads.len()).sum();
        let mut vm = linker.into_vm(id, first, owners, seed);
        vm.block = self
            .disks
            .image(id)
            .map(|image| Block::new(image, &vm.threads));
        if let Some(name) = self.disks.name_for(id) {
            vm.told.set_disk(name);
        }
        self.vms.push(vm);
        Ok(())
    }

    fn add_host_task(&mut self, spec: HostTaskSpec, vms: usize, seed: u64) -> Linked<()> {
        let subject = format!("host task {}", spec.name);
        check_weight(&subject, spec.weight)?;
        check_allowed(&subject, &spec.allowed)?;
        if let Some(vm) = spec.helper_of.filter(|vm| vm.index() >= vms) {
            let message = format!(
                "it helps VM number {vm}, but the host has {}",
                counted(vms, "VM")
            );
            return Err(GuestError::new(subject, message));
        }
        let (mut names, mut order) = (Names::default(), Vec::new());
        spec.check()?;
        let code = Code::new(&spec.program, &mut names, &mut order);
        let index = self.host_tasks.len() as u32;
        let task = TaskId::from(self.tasks.len());
        let rng = Rng::of(seed, "host task", u64::from(index));
        self.host_tasks.push(HostTask::new(index, task, code, rng));
        self.roles.push(Role::HostTask(index));
        self.tasks.push(TaskSpec {
            name: spec.name,
            vcpu: None,
            helper_of: spec.helper_of,
            weight: spec.weight,
            allowed: spec.allowed,
            last_on: None,
            slice: None,
        });
        Ok(())
    }
}

fn check_weight(subject: &str, weight: u32) -> Linked<()> {
    if (1..=10_000).contains(&weight) {
        return Ok(());
    }
    let message = format!("weight is {weight}; accepted: 1 to 10000");
    Err(GuestError::new(subject, message))
}

fn check_allowed(subject: &str, allowed: &PcpuSet) -> Linked<()> {
    if allowed.is_empty() {
        return Err(GuestError::new(subject, "it may use no pCPU at all"));
    }
    Ok(())
}

fn check_numbers(spec: &VmSpec) -> Linked<()> {
    let subject = format!("VM {}", spec.name);
    let fault = |message: String| GuestError::new(subject.clone(), message);
    let error = |message: String| Err(fault(message));
    if !(1..=MOST_VCPUS).contains(&spec.vcpus) {
        return error(format!(
            "vcpus is {}; accepted: 1 to {MOST_VCPUS}",
            spec.vcpus
        ));
    }
    check_weight(&subject, spec.weight.unwrap_or(1))?;
    check_weight(&subject, spec.vcpu_weight)?;
    for allowed in spec.vcpu_allowed.iter().chain([&spec.allowed]) {
        check_allowed(&subject, allowed)?;
    }
    if let Some(fault) = spec.params.fault() {
        return error(fault);
    }
    if spec.threads.len() > MOST {
        return error(format!("more than {MOST} threads"));
    }
    for (index, thread) in spec.threads.iter().enumerate() {
        if let Some(vcpu) = thread.vcpu.filter(|vcpu| *vcpu >= spec.vcpus) {
            let message = format!(
                "thread {} is bound to vCPU {vcpu}; accepted: 0 to {}",
                thread.name,
                spec.vcpus - 1
            );
            return Err(fault(message).of_thread(Some(index)));
        }
    }
    Ok(())
}

/// A VM's programs, brought together.
struct Linker<'a> {
    spec: &'a VmSpec,
    names: Names,
    order: Vec<LockOrder>,
    codes: Vec<Code>,
}

impl<'a> Linker<'a> {
    fn new(spec: &'a VmSpec) -> Linked<Self> {
        let (mut names, mut order) = (Names::default(), Vec::new());
        let mut codes = Vec::with_capacity(spec.threads.len());
        for thread in &spec.threads {
            codes.push(Code::new(&thread.program, &mut names, &mut order));
        }
        // Threads of one kind take locks in the same orders.
        order.sort_unstable();
        order.dedup();
        Ok(Self {
            spec,
            names,
            order,
            codes,
        })
    }

    /// An error in which this thread is involved.
    fn error<T>(&self, thread: Option<usize>, message: String) -> Linked<T> {
        let subject = format!("VM {}", self.spec.name);
        Err(GuestError::new(subject, message).of_thread(thread))
    }

    /// The first thread whose program has an operation for which `is_it` holds.
    fn first(&self, is_it: impl Fn(&Op) -> bool) -> Option<usize> {
        let uses = |code: &Code| code.ops().iter().any(&is_it);
        self.codes.iter().position(uses)
    }

    /// Threads whose program has this operation.
    fn users(&self, op: Op) -> usize {
        self.users_of(|other| *other == op)
    }

    /// Threads whose program has such an operation.
    fn users_of(&self, is_it: impl Fn(&Op) -> bool) -> usize {
        let uses = |code: &&Code| code.ops().iter().any(&is_it);
        self.codes.iter().filter(uses).count()
    }

    /// Threads that come to a spin barrier.
    fn spinning_at(&self, index: u32) -> usize {
        self.users_of(|op| matches!(op, Op::SpinBarrier { barrier, .. } if *barrier == index))
    }

    /// Threads that come to a condition barrier, and whether some of them spin there.
    fn meeting_at(&self, index: u32) -> (usize, bool) {
        let comes =
            |op: &Op| matches!(op, Op::ConditionBarrier { barrier, .. } if *barrier == index);
        let spins = |op: &Op| comes(op) && matches!(op, Op::ConditionBarrier { spin: Some(_), .. });
        (self.users_of(comes), self.users_of(spins) > 0)
    }

    fn check(&self) -> Linked<()> {
        for (index, name) in self.names.queues.iter().enumerate() {
            let index = index as u32;
            let (send, recv) = (Op::Send(index), Op::Recv(index));
            let first = |op: &Op| self.first(|other| other == op);
            match (first(&send), first(&recv)) {
                (None, lone) => {
                    return self.error(lone, format!("queue {name} has receivers, but no sender"));
                }
                (lone, None) => {
                    return self.error(lone, format!("queue {name} has senders, but no receiver"));
                }
                _ => self.places(name)?,
            };
        }
        self.check_conditions()?;
        let barriers = (0..).zip(&self.names.barriers);
        let barriers = barriers.map(|(index, name)| (Need::Barrier(index), name));
        let spinning = (0..).zip(&self.names.spin_barriers);
        let spinning = spinning.map(|(index, name)| (Need::SpinBarrier(index), name));
        let conditions = (0..).zip(&self.names.condition_barriers);
        let conditions = conditions.map(|(index, name)| (Need::ConditionBarrier(index), name));
        for (need, name) in barriers.chain(spinning).chain(conditions) {
            let comes = |op: &Op| circles::meeting(op) == Some(need);
            if self.users_of(comes) < 2 {
                let message = format!("only one thread comes to barrier {name}");
                return self.error(self.first(comes), message);
            }
        }
        self.check_circles()?;
        self.check_disk()?;
        self.check_order()
    }

    /// Checks that no thread waits for something that no thread can get to.
    fn check_circles(&self) -> Linked<()> {
        let stuck = circles::stuck(&self.codes);
        if stuck.is_empty() {
            return Ok(());
        }
        let mut waits: Vec<String> = Vec::new();
        for (thread, need) in &stuck {
            let wait = self.waiting(*need);
            if !waits.iter().any(|known| known.ends_with(&wait)) {
                let name = &self.spec.threads[*thread].name;
                waits.push(format!("{name} for ever in {wait}"));
            }
        }
        let more = waits.len().saturating_sub(MOST_NAMED);
        waits.truncate(MOST_NAMED);
        if more > 0 {
            waits.push(format!("{more} more"));
        }
        let message = format!(
            "threads wait in a circle, each for what another would do later: {}",
            waits.join(", ")
        );
        self.error(stuck.first().map(|(thread, _)| *thread), message)
    }

    /// The statement in which threads wait for this.
    fn waiting(&self, need: Need) -> String {
        let names = &self.names;
        let (keyword, table, index) = match need {
            Need::Item(index) => ("recv", &names.queues, index),
            Need::Signal(index) => ("wait", &names.conditions, index),
            Need::Barrier(index) => ("barrier", &names.barriers, index),
            Need::SpinBarrier(index) => ("spin-barrier", &names.spin_barriers, index),
            Need::ConditionBarrier(index) => {
                ("condition-barrier", &names.condition_barriers, index)
            }
        };
        format!("`{keyword} {}`", table[index as usize])
    }

    /// Checks that a thread gives each signal that is waited for: otherwise the waiter waits for
    /// ever.
    fn check_conditions(&self) -> Linked<()> {
        for (index, name) in self.names.conditions.iter().enumerate() {
            let index = index as u32;
            let waits = |op: &Op| matches!(op, Op::Wait { condition, .. } if *condition == index);
            let waiter = self.first(waits);
            let signals = self.users(Op::Signal(index)) + self.users(Op::Broadcast(index));
            if waiter.is_some() && signals == 0 {
                let message = format!("threads wait on condition {name}, but none signals it");
                return self.error(waiter, message);
            }
        }
        Ok(())
    }

    /// Checks that threads that read or write have a disk, and that their image has room for their
    /// files and for logs.
    fn check_disk(&self) -> Linked<()> {
        let accesses = self.codes.iter().enumerate();
        let accesses = accesses.filter_map(|(thread, code)| Some((thread, code.largest_access()?)));
        let accesses: Vec<(usize, u64)> = accesses.collect();
        let users = accesses.len() as u64;
        let first = accesses.first().map(|(thread, _)| *thread);
        // Of several equal ones the first.
        let most = accesses.iter().rev().max_by_key(|(_, bytes)| *bytes);
        let largest = most.map_or(0, |(_, bytes)| *bytes).max(PAGE);
        let logs = self.names.logs.len() as u64;
        let each = |size: u64| size / (users + logs);
        match self.spec.disk {
            None if users > 0 => self.error(
                first,
                "its threads read or write, but it has no disk".into(),
            ),
            Some(disk) if users > 0 && largest > each(disk.size) => self.error(
                most.map(|(thread, _)| *thread),
                format!(
                    "a thread accesses {largest} bytes at once; its image has {} bytes for each \
                     of {users} threads{}",
                    each(disk.size),
                    if logs > 0 { " and each log" } else { "" }
                ),
            ),
            _ => Ok(()),
        }
    }

    /// The capacity of a queue, and what is left when senders are woken: what the programs declare, or 1.
    fn places(&self, name: &str) -> Linked<(u32, Option<u32>)> {
        let threads = self.spec.threads.iter().enumerate();
        let mut declared = threads.flat_map(|(thread, spec)| {
            let queues = spec.program.queues().iter();
            let named = queues.filter(|declared| declared.name == name);
            named.map(move |queue| (thread, (queue.places, queue.writable)))
        });
        let places = declared.next().map_or((1, None), |(_, places)| places);
        let said = |(places, writable): (u32, Option<u32>)| match writable {
            Some(left) => format!("{places} {left}"),
            None => places.to_string(),
        };
        match declared.find(|(_, other)| *other != places) {
            Some((thread, other)) => self.error(
                Some(thread),
                format!(
                    "queue {name} is declared with a capacity of {} and of {}",
                    said(places),
                    said(other)
                ),
            ),
            None => Ok(places),
        }
    }

    /// Threads that nest locks in a cycle would sooner or later wait for each other. Locks inside
    /// which no other is taken are removed again and again; what remains is in a cycle.
    fn check_order(&self) -> Linked<()> {
        let mut left: Vec<&LockOrder> = self.order.iter().collect();
        loop {
            let before = left.len();
            let taken_around: Vec<&str> = left.iter().map(|edge| edge.outer.as_str()).collect();
            left.retain(|edge| taken_around.contains(&edge.inner.as_str()));
            match left.first() {
                None => return Ok(()),
                Some(edge) if left.len() == before => {
                    let message = format!(
                        "{} is taken inside {}, and elsewhere the other way round: they would \
                         wait for each other for ever",
                        edge.inner, edge.outer
                    );
                    return self.error(self.first_to_take(edge), message);
                }
                Some(_) => {}
            }
        }
    }

    /// The first thread that takes locks in this order.
    fn first_to_take(&self, order: &LockOrder) -> Option<usize> {
        let takes = |thread: &ThreadSpec| {
            let mut own = Vec::new();
            Code::new(&thread.program, &mut Names::default(), &mut own);
            own.contains(order)
        };
        self.spec.threads.iter().position(takes)
    }

    /// The threads, which are dealt out to the vCPUs in turn unless bound to one. `first_owner`: the number by which
    /// caches know the first thread.
    fn threads(&self, id: u32, first_owner: usize, seed: u64) -> Vec<Thread> {
        let spec = &self.spec;
        let says = |op: &Op| matches!(op, Op::Memory(_) | Op::Mix(_));
        let profiled = self.codes.iter().any(|code| code.ops().iter().any(says));
        let first = spec.params.first_vcpu(spec.vcpus);
        let thread = |(index, thread): (usize, &ThreadSpec)| {
            let vcpu = thread.vcpu;
            let vcpu = vcpu.unwrap_or(first + index as u32 % (spec.vcpus - first));
            let rng = Rng::of(seed, "guest thread", u64::from(id) << 32 | index as u64);
            let pinned = thread.vcpu.is_some();
            Thread {
                profile: profiled.then(|| Profile::new((first_owner + index) as u32)),
                ..Thread::new(self.codes[index].clone(), rng, vcpu, pinned)
            }
        };
        spec.threads.iter().enumerate().map(thread).collect()
    }

    fn into_vm(self, id: u32, first_task: usize, first_owner: usize, seed: u64) -> Vm {
        let spec = self.spec;
        let entity = |index: usize| u64::from(id) << 32 | index as u64;
        let count = |table: &[String]| 0..table.len();
        let place = |index: usize| self.places(&self.names.queues[index]).unwrap_or((1, None));
        let parties = |index: usize| self.users(Op::Barrier(index as u32));
        let spinning = |index: usize| self.spinning_at(index as u32);
        let lock = |index| SpinLock::new(Rng::of(seed, "spin lock", entity(index)));
        let period = spec.params.tick_period();
        let agent = spec.params.agent;
        Vm {
            id,
            params: spec.params.scaled(spec.vcpus),
            halt_poll: HaltPollParams::default(),
            vcpus: (0..spec.vcpus)
                .map(|vcpu| Vcpu::new(TaskId::from(first_task + vcpu as usize), vcpu))
                .collect(),
            threads: self.threads(id, first_owner, seed),
            locks: count(&self.names.locks).map(lock).collect(),
            mutexes: count(&self.names.mutexes)
                .map(|_| Mutex::default())
                .collect(),
            groups: vec![Group::default(); self.names.mutexes.len()],
            barriers: count(&self.names.barriers)
                .map(|i| Barrier::new(parties(i)))
                .collect(),
            spin_barriers: count(&self.names.spin_barriers)
                .map(|i| SpinBarrier::new(spinning(i)))
                .collect(),
            condition_barriers: (0..self.names.condition_barriers.len() as u32)
                .map(|index| self.meeting_at(index))
                .map(|(parties, spins)| ConditionBarrier::new(parties, spins))
                .collect(),
            queues: count(&self.names.queues)
                .map(|i| Queue::new(place(i)))
                .collect(),
            timers: vec![0; self.names.timers.len()],
            conditions: count(&self.names.conditions)
                .map(|_| Condition::default())
                .collect(),
            block: None,
            migrater: match agent {
                Some(Agent::VMigrater(params)) => {
                    Some(Box::new(Migrater::new(params, spec.vcpus, id, seed)))
                }
                _ => None,
            },
            balloon: match agent {
                Some(Agent::XBalloon(params)) => Some(params),
                _ => None,
            },
            net: Sockets::new(&self.names.ports, spec.threads.len()),
            stats: Stats::default(),
            decay: Decay::new(),
            tick_phase: Rng::of(seed, "guest tick", u64::from(id)).between(0, period - 1),
            begins: Vec::new(),
            begun: false,
            favoured: 0,
            dirty: Vec::new(),
            told: Told::new(&self.names, &spec.threads),
        }
    }
}
