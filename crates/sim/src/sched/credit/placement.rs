// SPDX-License-Identifier: GPL-2.0-only
//! Which pCPU is told about a ready vCPU, which one fetches it, and to which one a running vCPU
//! should move.

use super::Credit;
use super::accounts::Priority;
use crate::host::Host;
use corun_model::{PcpuId, PcpuSet, TaskId};

/// The first of `set` after `cpu`, going round (`cpumask_cycle()`).
pub(super) fn next_of(cpu: PcpuId, set: &PcpuSet) -> Option<PcpuId> {
    let behind = set.iter().find(|other| other.0 > cpu.0);
    behind.or_else(|| set.iter().next())
}

impl Credit {
    fn idlers(&self) -> PcpuSet {
        let idle = |cpu: &PcpuId| self.pcpus[cpu.index()].idler;
        self.topology.all().filter(idle).collect()
    }

    /// `__runq_tickle()`: tells a pCPU about a vCPU just queued on its home. An idle one fetches it
    /// from there; if no idle one may, it preempts at home if its priority is higher.
    pub(super) fn tickle(&mut self, host: &mut Host, task: TaskId, waker: Option<PcpuId>) {
        let (home, allowed) = (
            self.units[task.index()].home,
            self.units[task.index()].allowed,
        );
        let idlers = self.idlers();
        let current = self.pcpu(home).current;
        let beats = match current {
            Some(current) => self.accounts.priority(task) > self.accounts.priority(current),
            None => true,
        };
        let bound_here = allowed.len() == 1 && idlers.contains(home);
        let here = waker.unwrap_or(home);
        let told = if bound_here || current.is_none() {
            Some(home)
        } else {
            let last = self.pcpu(here).last_tickled;
            let idle = next_of(last, &idlers.and(&allowed));
            if let Some(cpu) = idle {
                self.pcpu(here).last_tickled = cpu;
            }
            idle.or(beats.then_some(home))
        };
        if let Some(cpu) = told {
            self.pcpu(cpu).idler = false;
            host.resched(cpu, waker);
        }
    }

    /// `csched_load_balance()`: takes from another pCPU the first vCPU of strictly higher priority
    /// than `than` that may run on `cpu`, nearest node first.
    pub(super) fn steal(&mut self, cpu: PcpuId, than: Option<Priority>) -> Option<TaskId> {
        let nodes = self.steal_bias.len();
        let own = self.topology.node(cpu) as usize;
        for node in (0..nodes).map(|n| (own + n) % nodes) {
            let busy = |other: &PcpuId| {
                let pcpu = &self.pcpus[other.index()];
                self.topology.node(*other) as usize == node && *other != cpu && !pcpu.idler
            };
            let busy: PcpuSet = self.topology.all().filter(busy).collect();
            let mut peer = self.steal_bias[node];
            for _ in 0..busy.len() {
                peer = next_of(peer, &busy).unwrap_or(peer);
                if let Some(task) = self.candidate(peer, cpu, than) {
                    self.pcpu(peer).remove(task);
                    self.unit(task).home = cpu;
                    self.steal_bias[node] = peer;
                    return Some(task);
                }
            }
        }
        None
    }

    /// `csched_runq_steal()`. A pCPU that is about to pick from its own queue is left alone.
    fn candidate(&self, peer: PcpuId, cpu: PcpuId, than: Option<Priority>) -> Option<TaskId> {
        let peer = &self.pcpus[peer.index()];
        if peer.current.is_none() || peer.ready() < 2 {
            return None;
        }
        let better = |task: &&TaskId| Some(self.accounts.priority(**task)) > than;
        let fits = |task: &&TaskId| self.units[task.index()].allowed.contains(cpu);
        peer.queue.iter().take_while(better).find(fits).copied()
    }

    /// `_csched_cpu_pick()`: the pCPU for `task`: its home unless another one idles and has more
    /// idle neighbours (on another socket, twice as many). `commit`: the next search goes on from
    /// there.
    pub(super) fn idlest(&mut self, task: TaskId, commit: bool) -> PcpuId {
        let (home, allowed) = (
            self.units[task.index()].home,
            self.units[task.index()].allowed,
        );
        let mut idlers = self.idlers();
        let mut best = match allowed.contains(home) {
            true => home,
            false => next_of(home, &allowed).unwrap_or(home),
        };
        if best == home && self.pcpu(home).queue.is_empty() {
            idlers.insert(home);
        }
        let mut rest = idlers.and(&allowed);
        if !rest.contains(best) {
            best = next_of(best, &rest).unwrap_or(best);
        }
        rest = rest.iter().filter(|&cpu| cpu != best).collect();
        let mut from = None;
        while let Some(next) = next_of(best, &rest) {
            let (here, there) = self.idle_neighbours(best, next, &idlers);
            if self.factor(best, next) * here.len() >= there.len() {
                rest = rest.iter().filter(|&cpu| !there.contains(cpu)).collect();
                continue;
            }
            from = Some(next);
            let bias = self.pcpu(next).idle_bias;
            best = next_of(bias, &there.and(&rest)).unwrap_or(next);
            let core = |cpu| self.topology.core(cpu);
            rest = rest.iter().filter(|&cpu| core(cpu) != core(best)).collect();
        }
        if commit && let Some(from) = from {
            self.pcpu(from).idle_bias = best;
        }
        best
    }

    /// How many times as idle as `a` must `b` be?
    fn factor(&self, a: PcpuId, b: PcpuId) -> u32 {
        1 + u32::from(self.topology.node(a) != self.topology.node(b))
    }

    /// The idle pCPUs about each of the two: of their cores on one socket, else of their sockets.
    fn idle_neighbours(&self, a: PcpuId, b: PcpuId, idlers: &PcpuSet) -> (PcpuSet, PcpuSet) {
        let topology = self.topology;
        let one_socket = topology.node(a) == topology.node(b);
        let place = |cpu| match one_socket {
            true => topology.core(cpu),
            false => topology.node(cpu),
        };
        let of = |cpu| {
            idlers
                .iter()
                .filter(|&other| place(other) == place(cpu))
                .collect()
        };
        (of(a), of(b))
    }
}
