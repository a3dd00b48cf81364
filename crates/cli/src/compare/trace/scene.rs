// SPDX-License-Identifier: GPL-2.0-only
//! From what the simulation reports to tracks, slices, instants and counters.

use super::lanes::{LIMITS, Lanes};
use super::names::{self, Names};
use super::shares::Shares;
use corun_model::{Nanos, PcpuId, TaskId, VmId};
use corun_report::timeline::{Look, NameId, Timeline, TrackId, Window};
use corun_sim::host::{Counter, Instant, Lane, Span, TaskSpec, TaskState, VcpuActivity};
use std::collections::BTreeMap;
use std::io::{self, Write};

struct Pcpu {
    track: TrackId,
    running: NameId,
    migration: NameId,
}

struct TaskRow {
    track: TrackId,
    name: NameId,
    ipi: NameId,
    vm: Option<VmId>,
    running: bool,
    /// The guest thread that has it, with a pCPU or without.
    thread: Option<u32>,
    /// Open inside the thread's slice, or inside that of its state.
    activity: Option<VcpuActivity>,
}

/// Everything on a timeline.
pub struct Scene<W: Write> {
    timeline: Timeline<W>,
    names: Names,
    host: TrackId,
    host_tasks: TrackId,
    policy: TrackId,
    runnable: TrackId,
    pcpus: Vec<Pcpu>,
    tasks: Vec<TaskRow>,
    pub lanes: Lanes,
    counters: BTreeMap<Counter, TrackId>,
    shares: Shares,
    /// pCPUs that lost their task at `idle_from`: they idle if they have none when time goes on.
    idle: Vec<PcpuId>,
    idle_from: Nanos,
}

impl<W: Write> Scene<W> {
    /// The timeline of this part of a run on a host with `pcpus` pCPUs.
    pub fn new(out: W, pcpus: u32, window: Window) -> Self {
        let mut timeline = Timeline::new(out, window);
        let group = timeline.track(None, "pCPUs", 0, Look::Plain);
        let pcpu = |cpu| Pcpu {
            track: timeline.track(Some(group), format!("pCPU {cpu}"), cpu, Look::Plain),
            running: timeline.name(&format!("running on pCPU {cpu}")),
            migration: timeline.name(&format!("migration from pCPU {cpu}")),
        };
        let all = (0..pcpus).map(pcpu).collect();
        let host = timeline.track(None, "host", 1, Look::Plain);
        let count = Look::Counter("vCPUs");
        Self {
            names: Names::new(&mut timeline),
            host,
            host_tasks: timeline.track(None, "host tasks", 2, Look::Plain),
            policy: timeline.track(Some(host), "policy", 0, Look::Plain),
            runnable: timeline.track(Some(host), "runnable vCPUs", 1, count),
            timeline,
            pcpus: all,
            tasks: Vec::new(),
            lanes: Lanes::default(),
            counters: BTreeMap::new(),
            shares: Shares::default(),
            idle: (0..pcpus).map(PcpuId).collect(),
            idle_from: 0,
        }
    }

    /// Is everything written that is wanted?
    pub fn is_over(&self) -> bool {
        self.timeline.is_over()
    }

    /// A task, waiting at first; they come in the order of their ids.
    pub fn task(&mut self, id: TaskId, spec: &TaskSpec) -> io::Result<()> {
        debug_assert_eq!(id.index(), self.tasks.len(), "tasks come in order");
        let (parent, rank) = match spec.vcpu {
            Some((vm, vcpu)) => {
                self.shares.know(vm);
                // vCPUs are named after their VM: `web/0`.
                let name = spec.name.rsplit_once('/').map(|(vm, _)| vm);
                (self.lanes.of_vm(&mut self.timeline, vm, name), vcpu)
            }
            None => (self.host_tasks, id.0),
        };
        let timeline = &mut self.timeline;
        let track = timeline.track(Some(parent), spec.name.as_str(), rank, Look::Plain);
        self.tasks.push(TaskRow {
            track,
            name: timeline.name(&spec.name),
            ipi: timeline.name(&format!("IPI to {}", spec.name)),
            vm: spec.vcpu.map(|(vm, _)| vm),
            running: false,
            thread: None,
            activity: None,
        });
        timeline.begin(0, track, self.names.waiting)
    }

    /// A task goes from one state to another.
    pub fn state(
        &mut self,
        now: Nanos,
        id: TaskId,
        new: TaskState,
        old: TaskState,
    ) -> io::Result<()> {
        self.reach(now)?;
        let row = &mut self.tasks[id.index()];
        row.activity = None;
        row.running = matches!(new, TaskState::Running(_));
        let (track, task, vm, thread) = (row.track, row.name, row.vm, row.thread);
        while self.timeline.depth(track) > 0 {
            self.timeline.end(now, track)?;
        }
        if let TaskState::Running(cpu) = old {
            self.timeline.end(now, self.pcpus[cpu.index()].track)?;
            self.idle.push(cpu);
            self.idle_from = now;
        }
        match new {
            TaskState::Waiting => self.timeline.begin(now, track, self.names.waiting)?,
            TaskState::Ready => self.timeline.begin(now, track, self.names.ready)?,
            TaskState::Running(cpu) => {
                let pcpu = &self.pcpus[cpu.index()];
                self.idle.retain(|idle| *idle != cpu);
                self.timeline.end_named(now, pcpu.track, self.names.idle)?;
                self.timeline.begin(now, pcpu.track, task)?;
                self.timeline.begin(now, track, pcpu.running)?;
            }
        }
        let Some(vm) = vm else { return Ok(()) };
        if let (TaskState::Running(_), Some(thread)) = (new, thread) {
            let name = self.lanes.thread_slice(&mut self.timeline, vm, thread);
            self.timeline.begin(now, track, name)?;
        }
        self.shares.state(now, vm, old, new);
        let runnable = self.shares.runnable() as i64;
        self.timeline.value(now, self.runnable, runnable)
    }

    /// A vCPU has this guest thread.
    pub fn guest_thread(
        &mut self,
        now: Nanos,
        vcpu: TaskId,
        thread: Option<u32>,
    ) -> io::Result<()> {
        self.reach(now)?;
        let row = &mut self.tasks[vcpu.index()];
        let Some(vm) = row.vm.filter(|_| row.thread != thread) else {
            return Ok(());
        };
        row.thread = thread;
        row.activity = None;
        if !row.running {
            return Ok(());
        }
        let track = row.track;
        while self.timeline.depth(track) > 1 {
            self.timeline.end(now, track)?;
        }
        let Some(thread) = thread else { return Ok(()) };
        let name = self.lanes.thread_slice(&mut self.timeline, vm, thread);
        self.timeline.begin(now, track, name)
    }

    /// What a running vCPU does.
    pub fn activity(&mut self, now: Nanos, vcpu: TaskId, activity: VcpuActivity) -> io::Result<()> {
        self.reach(now)?;
        let row = &mut self.tasks[vcpu.index()];
        if !row.running || row.activity == Some(activity) {
            return Ok(());
        }
        if row.activity.replace(activity).is_some() {
            self.timeline.end(now, row.track)?;
        }
        let name = self.timeline.name(names::activity(activity));
        self.timeline.begin(now, row.track, name)
    }

    /// The track of a lane; `begins`: a request without one gets one.
    fn track(&mut self, lane: Lane, begins: bool) -> Option<TrackId> {
        let timeline = &mut self.timeline;
        match lane {
            Lane::Host => Some(self.policy),
            Lane::Pcpu(cpu) => Some(self.pcpus[cpu.index()].track),
            Lane::Task(task) => Some(self.tasks[task.index()].track),
            Lane::Thread { vm, thread } => Some(self.lanes.of_thread(timeline, vm, thread)),
            Lane::Request {
                vm,
                device,
                request,
            } => self
                .lanes
                .of_request(timeline, (vm, device, request), begins),
        }
    }

    /// A span begins, unless it is open.
    pub fn span_begin(
        &mut self,
        now: Nanos,
        lane: Lane,
        kind: Span,
        about: &str,
    ) -> io::Result<()> {
        self.reach(now)?;
        let name = self.names.span(&mut self.timeline, kind, about);
        match self.track(lane, true) {
            Some(track) if !self.timeline.is_open(track, name) => {
                self.timeline.begin(now, track, name)
            }
            _ => Ok(()),
        }
    }

    /// A span ends, if it is open.
    pub fn span_end(&mut self, now: Nanos, lane: Lane, kind: Span, about: &str) -> io::Result<()> {
        self.reach(now)?;
        let name = self.names.span(&mut self.timeline, kind, about);
        let Some(track) = self.track(lane, false) else {
            return Ok(());
        };
        self.timeline.end_named(now, track, name)?;
        if let Lane::Request {
            vm,
            device,
            request,
        } = lane
            && self.timeline.depth(track) == 0
        {
            self.lanes.request_over((vm, device, request));
        }
        Ok(())
    }

    /// Something happened.
    pub fn instant(&mut self, now: Nanos, lane: Lane, kind: Instant) -> io::Result<()> {
        self.reach(now)?;
        let name = match kind {
            Instant::PauseLoopExit => self.names.pause_loop_exit,
            Instant::Ipi(to) => self.tasks[to.index()].ipi,
            Instant::Migration(from) => self.pcpus[from.index()].migration,
            Instant::DeviceInterrupt => self.names.device_interrupt,
            Instant::PolicyDecision => self.names.policy_decision,
        };
        match self.track(lane, false) {
            Some(track) => self.timeline.instant(now, track, name),
            None => Ok(()),
        }
    }

    /// A counter has a value.
    pub fn counter(&mut self, now: Nanos, counter: Counter, value: u64) -> io::Result<()> {
        self.reach(now)?;
        let track = match self.counters.get(&counter) {
            Some(track) => *track,
            None => {
                let track = self.counter_track(counter);
                self.counters.insert(counter, track);
                track
            }
        };
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.timeline.value(now, track, value)
    }

    fn counter_track(&mut self, counter: Counter) -> TrackId {
        let of_task = |task: TaskId| self.tasks[task.index()].vm.map(|vm| (vm, task));
        let (vm, name, unit) = match counter {
            Counter::StackedRunqueues => (None, "runqueues with siblings".to_string(), "pCPUs"),
            Counter::PollLimit(task) => (of_task(task), "poll limit".to_string(), "ns"),
            Counter::RetentionLimit(cpu) => {
                (None, format!("pCPU {}: retention limit", cpu.0), "ns")
            }
            Counter::Weight(task) => (of_task(task), "weight".to_string(), "per mille"),
            Counter::Latency(task) => (of_task(task), "latency".to_string(), "ns"),
            Counter::Enforced(vm) => return self.vm_counter(vm, "policy enforced", "1: yes"),
            Counter::Borrowed(vm) => return self.vm_counter(vm, "borrowed", "per mille"),
            Counter::Lent(vm) => return self.vm_counter(vm, "lent", "per mille"),
            Counter::RequestsInFlight { vm, device } => {
                let name = self.lanes.device_name(vm, device);
                return self.vm_counter(vm, format!("{name}: requests"), "requests");
            }
        };
        let look = Look::Counter(unit);
        let Some((vm, task)) = vm else {
            return self.timeline.track(Some(self.host), name, 2, look);
        };
        let parent = self.lanes.of_vm(&mut self.timeline, vm, None);
        let vcpu = self.tasks[task.index()].name;
        let name = format!("{}: {name}", self.timeline.text(vcpu));
        self.timeline.track(Some(parent), name, LIMITS, look)
    }

    /// A counter of a VM as a whole.
    fn vm_counter(&mut self, vm: VmId, name: impl Into<String>, unit: &'static str) -> TrackId {
        let parent = self.lanes.of_vm(&mut self.timeline, vm, None);
        self.timeline
            .track(Some(parent), name, LIMITS, Look::Counter(unit))
    }

    /// The run is over.
    pub fn finish(&mut self, now: Nanos) -> io::Result<()> {
        self.reach(now)?;
        self.timeline.finish(now)
    }

    /// Time goes on to `now`: notes who has idled since the last time, and intervals that are over.
    fn reach(&mut self, now: Nanos) -> io::Result<()> {
        if now > self.idle_from {
            let mut idle = std::mem::take(&mut self.idle);
            for cpu in idle.drain(..) {
                let track = self.pcpus[cpu.index()].track;
                self.timeline
                    .begin(self.idle_from, track, self.names.idle)?;
            }
            self.idle = idle;
        }
        while let Some((end, shares)) = self.shares.over(now) {
            for (vm, percent) in shares {
                let track = self.lanes.share(&mut self.timeline, vm);
                self.timeline.value(end, track, percent)?;
            }
        }
        Ok(())
    }
}
