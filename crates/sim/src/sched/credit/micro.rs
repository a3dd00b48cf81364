// SPDX-License-Identifier: GPL-2.0-only
//! Micro slices within Credit: short turns, spread over others' long ones (vSlicer, HPDC 2012).
//!
//! A short slice alone would cost a vCPU time here: it would have one short turn for each long turn
//! of its equals. So a vCPU with micro slices is due again as soon as the time that it ran is its
//! share, by weight, of the time since it was due, as under corun's own dispatcher
//! (`dispatcher/micro.h`). A vCPU that is due goes before its equals, and interrupts one that runs:
//! the interrupted vCPU is first afterwards, with the rest of its turn. Priorities stay as usual: a
//! vCPU in debt waits for vCPUs that are not, and credit enforces shares.

use super::Credit;
use super::accounts::Priority;
use super::params::LEAST_TIMER;
use crate::host::Host;
use corun_model::{Nanos, PcpuId, TaskId};

/// What is kept of a vCPU's micro slices.
#[derive(Debug, Default)]
pub(super) struct Micro {
    /// Are its slices micro slices?
    pub(super) has: bool,
    /// When it is due, once it has run.
    due: Nanos,
    /// When its turn began.
    began: Nanos,
}

impl Micro {
    /// It has a pCPU from now on.
    pub(super) fn begins(&mut self, now: Nanos) {
        self.began = now;
    }

    /// It ran until `now`; its share of time is 1000 / `parts`.
    fn ran(&mut self, now: Nanos, parts: u64) {
        let ran = now - self.began;
        let paid = ran.saturating_mul(parts) / 1000;
        let next = match self.began < self.due {
            true => self.due,
            false => self.due + paid,
        };
        self.due = next.max(now + paid.saturating_sub(ran) / 2);
    }
}

impl Credit {
    /// The current vCPU of `cpu`, not on its queue, goes off it: when is it due again?
    pub(super) fn micro_ran(&mut self, cpu: PcpuId, now: Nanos) {
        let pcpu = &self.pcpus[cpu.index()];
        let Some(task) = pcpu
            .current
            .filter(|task| self.units[task.index()].micro.has)
        else {
            return;
        };
        let own = self.accounts.weight(task).max(1);
        let others: u64 = pcpu.queue.iter().map(|&it| self.accounts.weight(it)).sum();
        let parts = (own + others).saturating_mul(1000) / own;
        self.unit(task).micro.ran(now, parts);
    }

    /// The place in the queue of `cpu` of a vCPU that is due and goes before all others there, and before the current
    /// vCPU, if there is one and that has no micro slices itself.
    pub(super) fn due(&self, cpu: PcpuId, now: Nanos) -> Option<usize> {
        if !self.micro {
            return None;
        }
        let pcpu = &self.pcpus[cpu.index()];
        let current = pcpu.current.map(|task| self.accounts.priority(task));
        let best = self.accounts.priority(*pcpu.queue.front()?);
        let fits = best >= current.unwrap_or(Priority::Over) && !self.current_is_micro(cpu);
        let is_due = |task: &TaskId| {
            let micro = &self.units[task.index()].micro;
            micro.has && micro.due <= now && self.accounts.priority(*task) == best
        };
        pcpu.queue.iter().position(is_due).filter(|_| fits)
    }

    fn current_is_micro(&self, cpu: PcpuId) -> bool {
        let current = self.pcpus[cpu.index()].current;
        current.is_some_and(|task| self.units[task.index()].micro.has)
    }

    /// How long `cpu` leaves the vCPU that gets it next alone: for `turn`, or until a vCPU that
    /// waits there is due, if that is earlier.
    pub(super) fn until_due(&self, cpu: PcpuId, turn: Nanos, now: Nanos) -> Nanos {
        if !self.micro || self.current_is_micro(cpu) {
            return turn;
        }
        let queue = self.pcpus[cpu.index()].queue.iter();
        let micro = queue.map(|task| &self.units[task.index()].micro);
        let dues = micro.filter(|micro| micro.has && micro.due > now);
        let first = dues.map(|micro| micro.due - now).min();
        first.map_or(turn, |first| first.max(LEAST_TIMER).min(turn))
    }

    /// What is left of the turn of the current vCPU of `cpu`, if only vCPUs that are due keep it
    /// from going on: it still wants to run, it may run, and no vCPU of higher priority waits.
    pub(super) fn turn_left(&self, cpu: PcpuId, now: Nanos) -> Option<Nanos> {
        let pcpu = &self.pcpus[cpu.index()];
        let task = pcpu.current.filter(|_| self.micro)?;
        let unit = &self.units[task.index()];
        let own = self.accounts.priority(task);
        let higher = pcpu
            .queue
            .front()
            .is_some_and(|&first| self.accounts.priority(first) > own);
        if unit.yields || unit.moves || self.accounts.parked(task) || higher {
            return None;
        }
        let slice = unit.rest.or(unit.slice).unwrap_or(pcpu.slice);
        slice.checked_sub(now - pcpu.since).filter(|left| *left > 0)
    }

    /// The current vCPU of `cpu` loses it to a vCPU that is due, and afterwards goes on with the part of its turn that
    /// is `left`.
    pub(super) fn interrupt(&mut self, host: &mut Host, cpu: PcpuId, left: Nanos, now: Nanos) {
        let Some(task) = self.pcpus[cpu.index()].current else {
            return;
        };
        self.put_down(cpu, now);
        self.unit(task).rest = Some(left);
        self.pcpus[cpu.index()].insert_first(task, |task| self.accounts.priority(task));
        host.queue_on(task, cpu);
    }
}
