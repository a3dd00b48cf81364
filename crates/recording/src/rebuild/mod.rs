// SPDX-License-Identifier: GPL-2.0-only
//! From events in order of time to which tasks ran, which were ready and which waited.
//!
//! Each pCPU has a current task and each task a state; an event changes both. An event that
//! contradicts them (a switch from a task that was not there, a task running without a wake-up)
//! is counted as an oddity and believed, so that one lost event harms little else.

mod causes;
mod contested;
mod finish;
mod stacking;
mod track;
mod vms;

pub(crate) use finish::finish;

use crate::event::{Context, Event, Left, TaskRef};
use crate::order::Stamped;
use corun_model::Nanos;
use corun_model::time::US;
use std::collections::{BTreeMap, HashMap};
use track::{By, Oddity, State, Track, Woken};

/// A recording with more tasks than this is not believed.
const MAX_TASKS: usize = 1 << 20;
/// More switches than this need more memory than is reasonable.
const MAX_SWITCHES: u64 = 1 << 24;
/// More reasons for guest exits than any kernel has.
const MAX_REASONS: usize = 512;
/// How long after an interrupt's entry a wake-up is attributed to it, if the context is not
/// recorded.
const INTERRUPT: Nanos = 100 * US;

/// The recording is larger than can be rebuilt; the variant says in which respect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge {
    pub what: &'static str,
    pub max: u64,
}

/// How often events contradicted each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Oddities {
    pub no_wakeup: u64,
    pub no_switch: u64,
    pub after_exit: u64,
    /// Wake-ups whose context is not recorded.
    pub context_unknown: u64,
}

/// How often which task woke which: known to be on the waker's behalf, and with unknown context.
type Edges = HashMap<(usize, usize), (u32, u32)>;

/// The state of everything at the last event.
#[derive(Default)]
pub(crate) struct Rebuild {
    tracks: Vec<Track>,
    slots: BTreeMap<u32, usize>,
    cpus: Vec<Cpu>,
    edges: Edges,
    start: Option<Nanos>,
    now: Nanos,
    switches: u64,
    pub oddities: Oddities,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    current: Current,
    /// Whether any event of this pCPU has been seen.
    begun: bool,
    last: Nanos,
    /// Since when its current task has been on it.
    since: Nanos,
    busy: Nanos,
    switches: u64,
    interrupt: Option<Nanos>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Current {
    #[default]
    Unknown,
    Idle,
    Slot(usize),
}

impl Rebuild {
    /// Time of the last event, ns on the recorded clock.
    pub(crate) fn latest(&self) -> Option<Nanos> {
        self.start.map(|start| start + self.now)
    }

    /// Time between the first and the last event, ns.
    pub(crate) fn duration(&self) -> Nanos {
        self.now
    }

    /// Takes in the next event in order of time.
    pub(crate) fn apply(&mut self, seen: Stamped) -> Result<(), TooLarge> {
        let start = *self.start.get_or_insert(seen.at);
        self.now = self.now.max(seen.at.saturating_sub(start));
        if self.aside(&seen) {
            return Ok(());
        }
        let cpu = seen.cpu as usize;
        if self.cpus.len() <= cpu {
            self.cpus.resize(cpu + 1, Cpu::default());
        }
        if seen.event == Event::Lost {
            self.lose(cpu);
            return Ok(());
        }
        self.ensure_current(cpu, seen.tid);
        self.event(cpu, &seen);
        self.describe(&seen);
        if let Some(cpu) = self.cpus.get_mut(cpu) {
            cpu.last = self.now;
            cpu.begun = true;
        }
        if self.tracks.len() > MAX_TASKS {
            return Err(TooLarge {
                what: "tasks",
                max: MAX_TASKS as u64,
            });
        }
        if self.switches > MAX_SWITCHES {
            return Err(TooLarge {
                what: "context switches",
                max: MAX_SWITCHES,
            });
        }
        Ok(())
    }

    /// Takes in an event that says nothing about the pCPU it came from; false if it is another
    /// event.
    fn aside(&mut self, seen: &Stamped) -> bool {
        match &seen.event {
            Event::Mark => {}
            Event::Named { task, tgid } => {
                let tgid = *tgid;
                if let Some(track) = self.find(task) {
                    track.tgid = tgid.or(track.tgid);
                }
            }
            Event::KvmExits {
                vcpu,
                reason,
                count,
            } => self.kvm_exits(seen.tid, *vcpu, reason, *count),
            _ => return false,
        }
        true
    }

    fn event(&mut self, cpu: usize, seen: &Stamped) {
        match &seen.event {
            Event::Switch { prev, left, next } => self.switch(cpu, prev, *left, next),
            Event::Waking { task, .. } => self.wake(cpu, seen, task, |t, woken| t.waking(woken)),
            Event::Wakeup { task, cpu: to } | Event::WakeupNew { task, cpu: to } => {
                self.wake(cpu, seen, task, |t, woken| t.wakeup(woken, *to));
            }
            Event::Migrate { task, from, to } => {
                let now = self.now;
                if let Some(track) = self.find(task) {
                    track.migrate(now, *from, *to);
                }
            }
            Event::Fork { parent, child } => self.fork(*parent, child),
            Event::Free { tid } => self.free(*tid),
            Event::Irq(entry) => {
                if let Some(cpu) = self.cpus.get_mut(cpu) {
                    cpu.interrupt = entry.then_some(self.now);
                }
            }
            // `Lost` was dealt with before, `Other` needs nothing else, and `aside` has taken in
            // the rest.
            Event::Lost
            | Event::Other
            | Event::Mark
            | Event::Named { .. }
            | Event::KvmExits { .. } => {}
            kvm => self.kvm(seen.tid, kvm),
        }
    }

    /// Name and process of the running task, as the line's head gives them.
    fn describe(&mut self, seen: &Stamped) {
        let Some(slot) = self.slots.get(&seen.tid) else {
            return;
        };
        let Some(track) = self.tracks.get_mut(*slot) else {
            return;
        };
        track.tgid = seen.tgid.or(track.tgid);
        if let Some(comm) = seen.comm.as_ref().filter(|comm| **comm != track.comm) {
            track.comm.clone_from(comm);
        }
    }

    /// Events of a pCPU are missing from its last event until now.
    fn lose(&mut self, cpu: usize) {
        let Some(state) = self.cpus.get_mut(cpu) else {
            return;
        };
        if let Current::Slot(slot) = state.current {
            state.busy += state.last.saturating_sub(state.since);
            if let Some(track) = self.tracks.get_mut(slot) {
                track.switch_out(state.last, Left::Ready);
            }
        }
        state.current = Current::Unknown;
        state.begun = true;
    }

    /// If it is not known what the pCPU runs, it is this task.
    fn ensure_current(&mut self, cpu: usize, tid: u32) {
        let Some(state) = self.cpus.get(cpu) else {
            return;
        };
        if state.current != Current::Unknown {
            return;
        }
        let since = if state.begun { self.now } else { 0 };
        self.put_on(cpu, tid, since);
    }

    fn put_on(&mut self, cpu: usize, tid: u32, since: Nanos) {
        let mut current = Current::Idle;
        if tid != 0 {
            let slot = self.living(tid, "");
            if let Some(track) = self.tracks.get_mut(slot) {
                track.found_running(since, cpu as u32);
            }
            current = Current::Slot(slot);
        }
        self.set_current(cpu, current, since);
    }

    fn set_current(&mut self, cpu: usize, current: Current, since: Nanos) {
        if let Some(state) = self.cpus.get_mut(cpu) {
            if matches!(state.current, Current::Slot(_)) {
                state.busy += since.saturating_sub(state.since);
            }
            (state.current, state.since) = (current, since);
        }
    }

    fn switch(&mut self, cpu: usize, prev: &TaskRef, left: Left, next: &TaskRef) {
        self.switches += 1;
        self.leave(cpu, prev, left);
        let mut current = Current::Idle;
        if next.tid != 0 {
            let slot = self.living(next.tid, &next.comm);
            let odd = self
                .tracks
                .get_mut(slot)
                .and_then(|t| t.switch_in(self.now, cpu as u32));
            match odd {
                Some(Oddity::NoWakeup) => self.oddities.no_wakeup += 1,
                Some(Oddity::NoSwitch) => self.oddities.no_switch += 1,
                None => {}
            }
            current = Current::Slot(slot);
        }
        self.set_current(cpu, current, self.now);
        if let Some(state) = self.cpus.get_mut(cpu) {
            state.switches += 1;
            state.interrupt = None;
        }
    }

    /// `prev` leaves the pCPU, where it should have been.
    fn leave(&mut self, cpu: usize, prev: &TaskRef, left: Left) {
        let expected = match self.cpus.get(cpu).map(|state| state.current) {
            Some(Current::Slot(slot)) => self.tracks.get(slot).map(|track| (slot, track.tid)),
            _ => None,
        };
        if expected.map_or(0, |(_, tid)| tid) != prev.tid {
            self.oddities.no_switch += 1;
            if let Some(track) = expected.and_then(|(slot, _)| self.tracks.get_mut(slot)) {
                track.switch_out(self.now, Left::Ready);
            }
            self.put_on(cpu, prev.tid, self.now);
        }
        let now = self.now;
        let Some(track) = self.find(prev) else { return };
        match track.state {
            State::Running { cpu: at, .. } if at as usize == cpu => track.switch_out(now, left),
            // It has been seen running elsewhere since: that information is newer.
            _ => self.oddities.no_switch += 1,
        }
    }

    fn wake(
        &mut self,
        cpu: usize,
        seen: &Stamped,
        task: &TaskRef,
        apply: impl FnOnce(&mut Track, Woken),
    ) {
        if task.tid == 0 {
            return;
        }
        let slot = self.living(task.tid, &task.comm);
        let by = self.waker(cpu, seen, slot);
        let woken = Woken { at: self.now, by };
        if let Some(track) = self.tracks.get_mut(slot) {
            let before = track.seen.wakeups;
            apply(track, woken);
            if track.seen.wakeups > before {
                self.note_edge(slot, by);
            }
        }
    }

    /// `wakee` became ready by a wake-up: if a task caused that, it is counted between the two.
    fn note_edge(&mut self, wakee: usize, by: By) {
        let By::Slot { waker, context, .. } = by else {
            return;
        };
        let (on_behalf, unknown) = self.edges.entry((waker, wakee)).or_default();
        if context == Context::Task {
            *on_behalf = on_behalf.saturating_add(1);
        } else {
            *unknown = unknown.saturating_add(1);
            self.oddities.context_unknown += 1;
        }
    }

    /// What caused the wake-up that this line reports.
    fn waker(&self, cpu: usize, seen: &Stamped, wakee: usize) -> By {
        let interrupt = self.cpus.get(cpu).and_then(|state| state.interrupt);
        let recent = interrupt.is_some_and(|at| self.now - at < INTERRUPT);
        match seen.context {
            Context::Timer => return By::Timer,
            Context::Interrupt => return By::Interrupt,
            Context::Unknown if recent => return By::Interrupt,
            Context::Unknown | Context::Task => {}
        }
        let Some(&waker) = self.slots.get(&seen.tid).filter(|&&it| it != wakee) else {
            return By::Unseen;
        };
        self.by(waker, seen.context)
    }

    /// The task in a slot as the cause of a wake-up, with the work it has done by now.
    fn by(&self, waker: usize, context: Context) -> By {
        let track = self.tracks.get(waker);
        By::Slot {
            waker,
            work: track.map_or(0, |track| track.work_by(self.now)),
            context,
        }
    }

    fn fork(&mut self, parent: u32, child: &TaskRef) {
        if child.tid == 0 {
            return;
        }
        self.free(child.tid);
        let parent = self.slots.get(&parent).copied();
        let slot = self.add(child.tid, &child.comm);
        let by = parent.map_or(By::Unseen, |waker| self.by(waker, Context::Task));
        if let Some(track) = self.tracks.get_mut(slot) {
            track.born(Woken { at: self.now, by }, parent);
        }
    }

    /// The kernel has freed the task, unless it is running (then it is another one with the same
    /// number).
    fn free(&mut self, tid: u32) {
        let Some(track) = self
            .slots
            .get(&tid)
            .and_then(|&slot| self.tracks.get_mut(slot))
        else {
            return;
        };
        if !matches!(track.state, State::Gone | State::Running { .. }) {
            track.gone(self.now);
        }
    }

    fn kvm(&mut self, tid: u32, event: &Event) {
        let Some(&slot) = self.slots.get(&tid) else {
            return;
        };
        let Some(track) = self.tracks.get_mut(slot) else {
            return;
        };
        match event {
            Event::KvmEntry { vcpu } => {
                track.kvm.entries += 1;
                track.kvm_vcpu = Some(vcpu.or(track.kvm_vcpu.flatten()));
            }
            Event::KvmExit { vcpu, reason } => {
                track.kvm_vcpu = Some(vcpu.or(track.kvm_vcpu.flatten()));
                exits(track, reason, 1);
            }
            Event::KvmWakeup { polled } => {
                track.kvm.halts += 1;
                if let Some(ns) = polled {
                    track.kvm.polled_halts += 1;
                    track.kvm.polled = track.kvm.polled.saturating_add(*ns);
                }
            }
            Event::KvmIpi => track.kvm.ipis += 1,
            _ => {}
        }
    }

    /// Books so many exits of a vCPU for one reason, or interrupts that it sent to siblings.
    fn kvm_exits(&mut self, tid: u32, vcpu: Option<u32>, reason: &str, count: u64) {
        let comm = String::new();
        let Some(track) = self.find(&TaskRef { tid, comm }) else {
            return;
        };
        track.kvm_vcpu = Some(vcpu.or(track.kvm_vcpu.flatten()));
        if reason == "ipi" {
            track.kvm.ipis = track.kvm.ipis.saturating_add(count);
            return;
        }
        // A vCPU that leaves a guest has entered it.
        track.kvm.entries = track.kvm.entries.saturating_add(count);
        exits(track, reason, count);
    }

    /// The living task with this number, which may be one not seen before.
    fn living(&mut self, tid: u32, comm: &str) -> usize {
        let Some(&known) = self.slots.get(&tid) else {
            return self.add(tid, comm);
        };
        let track = self.tracks.get_mut(known);
        if let Some(track) = track.filter(|track| !matches!(track.state, State::Gone)) {
            if !comm.is_empty() && track.comm != comm {
                track.comm = comm.to_string();
            }
            return known;
        }
        // Its number is used again, and the fork was not seen.
        self.oddities.after_exit += 1;
        let slot = self.add(tid, comm);
        let woken = Woken {
            at: self.now,
            by: By::Unseen,
        };
        if let Some(track) = self.tracks.get_mut(slot) {
            track.born(woken, None);
        }
        slot
    }

    fn add(&mut self, tid: u32, comm: &str) -> usize {
        let slot = self.tracks.len();
        self.tracks.push(Track::new(tid, comm.to_string()));
        self.slots.insert(tid, slot);
        slot
    }

    fn find(&mut self, task: &TaskRef) -> Option<&mut Track> {
        if task.tid == 0 {
            return None;
        }
        let slot = self.living(task.tid, &task.comm);
        self.tracks.get_mut(slot)
    }
}

/// Counts guest exits.
fn exits(track: &mut Track, reason: &str, count: u64) {
    if let Some(seen) = track.kvm.exits.get_mut(reason) {
        *seen = seen.saturating_add(count);
    } else if track.kvm.exits.len() < MAX_REASONS {
        track.kvm.exits.insert(reason.to_string(), count);
    }
}
