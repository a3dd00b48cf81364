// SPDX-License-Identifier: GPL-2.0-only
//! A run as a timeline for [Perfetto](https://ui.perfetto.dev): a track per pCPU (which task has
//! it) and a track per task, grouped by VM (running, ready, waiting).
//!
//! Written as it happens: memory is bounded by the numbers of tasks and names, not by the length
//! of the run. Same run, same bytes.

use crate::perfetto::{
    CLEARED, ChildOrder, EventKind, EventName, InternedData, NEEDS, TracePacket, TrackDescriptor,
    TrackEvent,
};
use corun_model::{Nanos, PcpuId, TaskId, VmId};
use std::collections::HashMap;
use std::io::{self, Write};

/// What a task does from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Halted, blocked or asleep.
    Waiting,
    /// Wants a pCPU and has none.
    Ready,
    /// Has this pCPU.
    Running(PcpuId),
}

/// What the timeline shows of a task at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    /// It has no track.
    Unknown,
    /// It has a track without a slice: the wait before its first wake-up has no beginning.
    Nothing,
    /// A slice of this state is open.
    Slice(State),
}

/// Writes a timeline.
pub struct Timeline<W: Write> {
    out: W,
    tasks: Vec<Shown>,
    vms: Vec<bool>,
    pcpus: Vec<Option<TaskId>>,
    names: HashMap<String, u64>,
    flags: u32,
    packet: Vec<u8>,
}

// Numbers of tracks: one range per kind.
const PCPUS: u64 = 1;
const HOST_TASKS: u64 = 2;
const PCPU: u64 = 1 << 16;
const VM: u64 = 1 << 32;
const TASK: u64 = 1 << 48;
/// All packets are of one sequence.
const SEQUENCE: u32 = 1;

impl<W: Write> Timeline<W> {
    /// Begins a timeline of a host with `pcpus` pCPUs. `out` should be buffered.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(out: W, pcpus: u32) -> io::Result<Self> {
        let mut timeline = Self {
            out,
            tasks: Vec::new(),
            vms: Vec::new(),
            pcpus: vec![None; pcpus as usize],
            names: HashMap::new(),
            flags: CLEARED,
            packet: Vec::new(),
        };
        timeline.track(PCPUS, "pCPUs", None, 0)?;
        for cpu in 0..pcpus {
            let name = format!("pCPU {cpu}");
            timeline.track(PCPU + u64::from(cpu), &name, Some(PCPUS), cpu)?;
        }
        Ok(timeline)
    }

    /// Makes a task known, before its first [`Timeline::state`]: its name and, for a vCPU, its VM
    /// and that VM's name.
    ///
    /// # Errors
    /// Those of the output.
    pub fn task(&mut self, task: TaskId, name: &str, vm: Option<(VmId, &str)>) -> io::Result<()> {
        if self.knows(task) {
            return Ok(());
        }
        let parent = match vm {
            Some((vm, vm_name)) => self.vm(vm, vm_name)?,
            None => self.host_tasks()?,
        };
        self.track(TASK + u64::from(task.0), name, Some(parent), task.0)?;
        if self.tasks.len() <= task.index() {
            self.tasks.resize(task.index() + 1, Shown::Unknown);
        }
        self.tasks[task.index()] = Shown::Nothing;
        Ok(())
    }

    /// Is this task known?
    pub fn knows(&self, task: TaskId) -> bool {
        let shown = self.tasks.get(task.index());
        shown.is_some_and(|shown| *shown != Shown::Unknown)
    }

    fn vm(&mut self, vm: VmId, name: &str) -> io::Result<u64> {
        let (uuid, rank) = (VM + u64::from(vm.0), vm.0.saturating_add(2));
        self.group(vm.index() + 1, uuid, name, rank)
    }

    fn host_tasks(&mut self) -> io::Result<u64> {
        self.group(0, HOST_TASKS, "host tasks", 1)
    }

    /// A track of tracks, written when it is first needed.
    fn group(&mut self, slot: usize, uuid: u64, name: &str, rank: u32) -> io::Result<u64> {
        if self.vms.len() <= slot {
            self.vms.resize(slot + 1, false);
        }
        if !std::mem::replace(&mut self.vms[slot], true) {
            self.track(uuid, name, None, rank)?;
        }
        Ok(uuid)
    }

    /// `task`, called `name`, is in this state from `now` on.
    ///
    /// # Errors
    /// Those of the output.
    pub fn state(&mut self, now: Nanos, task: TaskId, name: &str, state: State) -> io::Result<()> {
        self.task(task, name, None)?;
        let track = TASK + u64::from(task.0);
        match std::mem::replace(&mut self.tasks[task.index()], Shown::Slice(state)) {
            Shown::Slice(State::Running(cpu)) => {
                self.leave(now, cpu, task)?;
                self.end(now, track)?;
            }
            Shown::Slice(_) => self.end(now, track)?,
            Shown::Unknown | Shown::Nothing => {}
        }
        match state {
            State::Waiting => self.begin(now, track, "waiting"),
            State::Ready => self.begin(now, track, "ready"),
            State::Running(cpu) => {
                self.begin(now, track, &format!("running on pCPU {}", cpu.0))?;
                self.enter(now, cpu, task, name)
            }
        }
    }

    fn enter(&mut self, now: Nanos, cpu: PcpuId, task: TaskId, name: &str) -> io::Result<()> {
        let Some(slot) = self.pcpus.get_mut(cpu.index()) else {
            return Ok(());
        };
        let track = PCPU + u64::from(cpu.0);
        if slot.replace(task).is_some() {
            self.end(now, track)?;
        }
        self.begin(now, track, name)
    }

    fn leave(&mut self, now: Nanos, cpu: PcpuId, task: TaskId) -> io::Result<()> {
        match self.pcpus.get_mut(cpu.index()) {
            Some(slot) if *slot == Some(task) => *slot = None,
            _ => return Ok(()),
        }
        self.end(now, PCPU + u64::from(cpu.0))
    }

    /// Ends all slices: the run is over.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(&mut self, now: Nanos) -> io::Result<()> {
        for cpu in 0..self.pcpus.len() {
            if self.pcpus[cpu].take().is_some() {
                self.end(now, PCPU + cpu as u64)?;
            }
        }
        for task in 0..self.tasks.len() {
            let shown = std::mem::replace(&mut self.tasks[task], Shown::Nothing);
            if matches!(shown, Shown::Slice(_)) {
                self.end(now, TASK + task as u64)?;
            }
        }
        self.out.flush()
    }

    fn track(&mut self, uuid: u64, name: &str, parent: Option<u64>, rank: u32) -> io::Result<()> {
        self.write(TracePacket {
            track_descriptor: Some(TrackDescriptor {
                uuid: Some(uuid),
                name: Some(name.to_string()),
                parent_uuid: parent,
                child_ordering: Some(ChildOrder::Explicit.into()),
                sibling_order_rank: i32::try_from(rank).ok(),
            }),
            ..TracePacket::default()
        })
    }

    fn begin(&mut self, now: Nanos, track: u64, name: &str) -> io::Result<()> {
        let mut packet = TracePacket::default();
        let next = self.names.len() as u64 + 1;
        let iid = match self.names.get(name) {
            Some(&iid) => iid,
            None => {
                self.names.insert(name.to_string(), next);
                let name = Some(name.to_string());
                let event_names = vec![EventName {
                    iid: Some(next),
                    name,
                }];
                packet.interned_data = Some(InternedData { event_names });
                next
            }
        };
        self.event(packet, now, track, EventKind::SliceBegin, Some(iid))
    }

    fn end(&mut self, now: Nanos, track: u64) -> io::Result<()> {
        self.event(
            TracePacket::default(),
            now,
            track,
            EventKind::SliceEnd,
            None,
        )
    }

    fn event(
        &mut self,
        mut packet: TracePacket,
        now: Nanos,
        track: u64,
        kind: EventKind,
        name_iid: Option<u64>,
    ) -> io::Result<()> {
        packet.timestamp = Some(now);
        packet.track_event = Some(TrackEvent {
            kind: Some(kind.into()),
            name_iid,
            track_uuid: Some(track),
        });
        self.write(packet)
    }

    fn write(&mut self, mut packet: TracePacket) -> io::Result<()> {
        packet.trusted_packet_sequence_id = Some(SEQUENCE);
        packet.sequence_flags = Some(std::mem::replace(&mut self.flags, NEEDS));
        self.packet.clear();
        // Field 1 of `Trace`, length-delimited; writing to a `Vec` cannot fail.
        prost::encoding::message::encode(1, &packet, &mut self.packet);
        self.out.write_all(&self.packet)
    }
}

#[cfg(test)]
#[path = "timeline_tests.rs"]
mod tests;
