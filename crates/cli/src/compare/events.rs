// SPDX-License-Identifier: GPL-2.0-only
//! A simulated run as a recording: its scheduling events as text of ftrace.
//!
//! Problem: what is measured in traces of real hosts (wake-up delays, stacking, lengths of runs)
//! should be measured in simulated ones by the same code.
//! How: the events that a kernel would have traced (`sched_waking`, `sched_wakeup`,
//! `sched_migrate_task`, `sched_switch`), in the columns of `/sys/kernel/tracing/trace`, with
//! nanoseconds. A wake-up is traced where the host saw it come from: on the pCPU of the waker on whose behalf it is;
//! or, if a timer or a device is behind it, in an interrupt on the pCPU where the woken task was last, whatever runs
//! there. Which pCPUs timers and devices interrupt is not modelled, and schedulers, too, take it to be that one. The
//! warm-up is part of the trace. At the end of the run comes a marker, as writing to `trace_marker` leaves one: a
//! recording ends with its last event, and what ran until then did not switch.

use super::watched::{Watched, Watcher};
use corun_model::{Nanos, PcpuId, TaskId, VmId};
use corun_sim::host::{Observer, Task, TaskSpec, TaskState, Waker};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Numbers of threads start here, and so do those of VMs and host tasks as processes: beyond any pCPU's own threads,
/// and no two are equal.
const FIRST_THREAD: u32 = 10_000;
const FIRST_PROCESS: u32 = 1_000;

/// Events that are being written.
pub type Events = Watched<Writer<BufWriter<File>>>;

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Ran<'a> {
    /// Number of pCPUs.
    pub pcpus: u32,
    /// The policy.
    pub policy: &'a str,
    /// The kernel's version that it models, if it models one.
    pub kernel: Option<&'a str>,
    /// Is it a replay, in which threads other than vCPUs are named after the recorded ones, with their numbers?
    pub replay: bool,
}

/// Begins the events of a run.
///
/// # Errors
/// If the file cannot be written.
pub fn create(file: &Path, ran: Ran<'_>) -> anyhow::Result<Events> {
    Watched::create("--events", file, |out| {
        Writer::new(BufWriter::new(out), ran)
    })
}

impl<W: Write> Observer for Watcher<Writer<W>> {
    fn task(&mut self, _id: TaskId, spec: &TaskSpec) {
        self.write(|writer| {
            writer.meet(spec);
            Ok(())
        });
    }

    fn state(&mut self, now: Nanos, id: TaskId, task: &Task, old: TaskState) {
        self.write(|writer| {
            let thread = writer.introduce(id, task)?;
            match (old, task.state) {
                (TaskState::Running(cpu), state) => writer.leaves(now, cpu, thread, state),
                (_, TaskState::Running(cpu)) => {
                    writer.settle(now)?;
                    writer.takes(now, cpu, Some(thread))
                }
                _ => Ok(()),
            }
        });
    }

    fn woken(&mut self, now: Nanos, id: TaskId, task: &Task, by: Option<Waker>) {
        self.write(|writer| {
            let thread = writer.introduce(id, task)?;
            writer.woken(now, id, &thread, task.last_ran(), by)
        });
    }

    fn put_aside(&mut self, now: Nanos, id: TaskId, task: &Task) {
        self.write(|writer| {
            let thread = writer.introduce(id, task)?;
            writer.put_aside(now, id, &thread, task.last_ran())
        });
    }

    fn queued(&mut self, now: Nanos, id: TaskId, task: &Task, from: Option<PcpuId>, to: PcpuId) {
        self.write(|writer| {
            let thread = writer.introduce(id, task)?;
            match from {
                Some(from) => writer.moved(now, &thread, from, to),
                None => writer.queued(now, id, &thread, to),
            }
        });
    }

    fn finish(&mut self, now: Nanos) {
        self.write(|writer| writer.finish(now));
    }
}

/// A task as the trace shows it.
#[derive(Clone, Debug)]
struct Thread {
    tid: u32,
    comm: String,
}

impl Thread {
    fn idle(cpu: usize) -> Self {
        let comm = format!("swapper/{cpu}");
        Self { tid: 0, comm }
    }
}

/// A pCPU: the thread that has it, and one that has just left it, while its successor is not known yet.
#[derive(Debug, Default)]
struct Pcpu {
    current: Option<Thread>,
    left: Option<(Nanos, Thread, char)>,
}

/// In which context something happens, as shown by the trace's flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Context {
    /// On behalf of the thread that runs there.
    Task,
    /// In a hardware interrupt.
    Interrupt,
}

impl Context {
    /// Interrupts are off while the scheduler traces, and so is preemption.
    fn flags(self) -> &'static str {
        match self {
            Self::Task => "d..2.",
            Self::Interrupt => "d.h2.",
        }
    }
}

/// Where a wake-up comes from.
#[derive(Clone, Debug)]
struct Origin {
    cpu: usize,
    by: Thread,
    context: Context,
}

/// Writes the trace.
pub struct Writer<W> {
    out: W,
    pcpus: Vec<Pcpu>,
    known: BTreeMap<TaskId, Thread>,
    /// Names of VMs.
    vms: BTreeMap<VmId, String>,
    /// Tasks that were woken and are on no runqueue yet.
    woken: BTreeMap<TaskId, Origin>,
    /// Tasks that were put aside when they were woken, with the pCPU that the wake-up names.
    aside: BTreeMap<TaskId, PcpuId>,
    /// The process named in the last comment line: threads named next belong to it.
    process: Option<u32>,
    /// Do names of threads end with numbers that are not part of them?
    replay: bool,
}

impl<W: Write> Writer<W> {
    fn new(mut out: W, ran: Ran<'_>) -> io::Result<Self> {
        let Ran {
            pcpus,
            policy,
            kernel,
            replay,
        } = ran;
        let kernel = kernel.map_or("simulated".to_string(), |known| {
            format!("simulated {known}")
        });
        writeln!(
            out,
            "# host: {pcpus} pCPUs, kernel {kernel}, scheduler {policy}, clock mono"
        )?;
        writeln!(out, "# tracer: nop")?;
        Ok(Self {
            out,
            pcpus: (0..pcpus).map(|_| Pcpu::default()).collect(),
            known: BTreeMap::new(),
            vms: BTreeMap::new(),
            woken: BTreeMap::new(),
            aside: BTreeMap::new(),
            process: None,
            replay,
        })
    }

    /// A task of the host, before anything is written about it.
    fn meet(&mut self, spec: &TaskSpec) {
        // vCPUs are named after their VM: `web/0`.
        if let (Some((vm, _)), Some((name, _))) = (spec.vcpu, spec.name.rsplit_once('/')) {
            self.vms.entry(vm).or_insert_with(|| name.to_string());
        }
    }

    /// The name of a VM.
    fn vm(&self, vm: VmId) -> &str {
        self.vms.get(&vm).map_or("vm", String::as_str)
    }

    /// The thread of a task; comment lines name it when it is first seen.
    fn introduce(&mut self, id: TaskId, task: &Task) -> io::Result<Thread> {
        if let Some(thread) = self.known.get(&id) {
            return Ok(thread.clone());
        }
        let name = &task.spec.name;
        let numbered = name.rsplit_once('-').filter(|(_, number)| {
            let is_number = number.parse::<u32>().is_ok();
            self.replay && task.spec.vcpu.is_none() && is_number
        });
        let name = numbered.map_or(name.as_str(), |(name, _)| name);
        let tid = FIRST_THREAD + id.0;
        let cut = |comm: &str| comm.chars().take(15).collect::<String>();
        let (vm, comm) = match (task.spec.vcpu, task.spec.helper_of) {
            (Some((vm, number)), _) => (Some(vm), format!("CPU {number}/KVM")),
            (None, Some(vm)) => {
                // QEMU names its I/O threads like this: `web/emulator` is `IO emulator` of web.
                let own = name.strip_prefix(self.vm(vm));
                let own = own.and_then(|rest| rest.strip_prefix('/'));
                let comm = own.map_or_else(|| cut(name), |part| cut(&format!("IO {part}")));
                (Some(vm), comm)
            }
            // A thread that is named like a vCPU would be read as one.
            (None, None) => match corun_recording::vcpu_index(name) {
                Some(_) => (None, cut(&format!("task {name}"))),
                None => (None, cut(name)),
            },
        };
        let process = vm.map_or(tid, |vm| FIRST_PROCESS + vm.0);
        if self.process.replace(process) != Some(process) {
            let about = match vm {
                Some(vm) => format!("simulated -name guest={}", self.vm(vm)),
                None => name.to_string(),
            };
            writeln!(self.out, "# process {process} {about}")?;
        }
        writeln!(self.out, "# thread {tid} {comm}")?;
        let thread = Thread { tid, comm };
        self.known.insert(id, thread.clone());
        Ok(thread)
    }

    /// A thread is on its way out: its successor comes with the next event; there is none if time goes on.
    fn leaves(&mut self, now: Nanos, cpu: PcpuId, thread: Thread, to: TaskState) -> io::Result<()> {
        self.settle(now)?;
        let letter = if to == TaskState::Waiting { 'S' } else { 'R' };
        let slot = &mut self.pcpus[cpu.index()];
        slot.current = None;
        slot.left = Some((now, thread, letter));
        Ok(())
    }

    /// `next` gets `cpu`; `None`: it idles.
    fn takes(&mut self, now: Nanos, cpu: PcpuId, next: Option<Thread>) -> io::Result<()> {
        let index = cpu.index();
        if let Some(next) = &next {
            self.left_by(next)?;
        }
        let idle = || Thread::idle(index);
        let slot = &mut self.pcpus[index];
        let (before, letter) = match slot.left.take() {
            Some((_, thread, letter)) => (thread, letter),
            None => (idle(), 'R'),
        };
        slot.current.clone_from(&next);
        let next = next.unwrap_or_else(idle);
        let text = format!(
            "sched_switch: prev_comm={} prev_pid={} prev_prio=120 prev_state={letter} ==> \
             next_comm={} next_pid={} next_prio=120",
            before.comm, before.tid, next.comm, next.tid
        );
        self.line(now, index, &before, Context::Task, &text)
    }

    /// Who is on a pCPU, as far as the trace shows.
    fn on(&self, cpu: usize) -> Thread {
        let slot = &self.pcpus[cpu];
        let left = slot.left.as_ref().map(|(_, thread, _)| thread);
        let there = slot.current.as_ref().or(left);
        there.cloned().unwrap_or_else(|| Thread::idle(cpu))
    }

    /// A task, last on the pCPU `last`, is woken by `by`, or by a timer or a device.
    fn woken(
        &mut self,
        now: Nanos,
        id: TaskId,
        thread: &Thread,
        last: Option<PcpuId>,
        by: Option<Waker>,
    ) -> io::Result<()> {
        self.settle(now)?;
        self.left_by(thread)?;
        let last = last.unwrap_or(PcpuId(0));
        let (cpu, context) = match by {
            Some(waker) => (waker.cpu.index(), Context::Task),
            None => (last.index(), Context::Interrupt),
        };
        let waker = by.and_then(|waker| self.known.get(&waker.task?));
        let by = waker.cloned().unwrap_or_else(|| self.on(cpu));
        let origin = Origin { cpu, by, context };
        self.wakes("sched_waking", now, &origin, thread, last)?;
        self.woken.insert(id, origin);
        Ok(())
    }

    /// A woken task, last on the pCPU `last`, waits on no runqueue. To a kernel it is woken nevertheless: a task of a
    /// throttled cgroup is enqueued there.
    fn put_aside(
        &mut self,
        now: Nanos,
        id: TaskId,
        thread: &Thread,
        last: Option<PcpuId>,
    ) -> io::Result<()> {
        let to = last.unwrap_or(PcpuId(0));
        self.queued(now, id, thread, to)?;
        self.aside.insert(id, to);
        Ok(())
    }

    /// A woken task is put on the runqueue of `to`.
    fn queued(&mut self, now: Nanos, id: TaskId, thread: &Thread, to: PcpuId) -> io::Result<()> {
        self.settle(now)?;
        if let Some(from) = self.aside.remove(&id) {
            return match from == to {
                true => Ok(()),
                false => self.moved(now, thread, from, to),
            };
        }
        let origin = self.woken.remove(&id).unwrap_or_else(|| Origin {
            cpu: to.index(),
            by: self.on(to.index()),
            context: Context::Interrupt,
        });
        self.wakes("sched_wakeup", now, &origin, thread, to)
    }

    fn wakes(
        &mut self,
        event: &str,
        now: Nanos,
        origin: &Origin,
        thread: &Thread,
        to: PcpuId,
    ) -> io::Result<()> {
        let Thread { tid, comm } = thread;
        let text = format!(
            "{event}: comm={comm} pid={tid} prio=120 target_cpu={:03}",
            to.0
        );
        self.line(now, origin.cpu, &origin.by, origin.context, &text)
    }

    /// A ready task is moved. That is traced on the pCPU it goes to.
    fn moved(&mut self, now: Nanos, thread: &Thread, from: PcpuId, to: PcpuId) -> io::Result<()> {
        self.settle(now)?;
        self.left_by(thread)?;
        let text = format!(
            "sched_migrate_task: comm={} pid={} prio=120 orig_cpu={} dest_cpu={}",
            thread.comm, thread.tid, from.0, to.0
        );
        let by = self.on(to.index());
        self.line(now, to.index(), &by, Context::Task, &text)
    }

    /// If `thread` has just left a pCPU and its successor there is not known yet, that pCPU idles at first: a thread that
    /// is woken, moved or switched in has been switched out before.
    fn left_by(&mut self, thread: &Thread) -> io::Result<()> {
        for index in 0..self.pcpus.len() {
            if let Some((at, left, _)) = &self.pcpus[index].left
                && left.tid == thread.tid
            {
                let at = *at;
                self.takes(at, PcpuId::from(index), None)?;
            }
        }
        Ok(())
    }

    /// pCPUs that were left before `now` and not taken have idled since.
    fn settle(&mut self, now: Nanos) -> io::Result<()> {
        for index in 0..self.pcpus.len() {
            if let Some(&(at, ..)) = self.pcpus[index].left.as_ref()
                && at < now
            {
                self.takes(at, PcpuId::from(index), None)?;
            }
        }
        Ok(())
    }

    fn finish(&mut self, now: Nanos) -> io::Result<()> {
        self.settle(now + 1)?;
        let by = self.on(0);
        self.line(
            now,
            0,
            &by,
            Context::Task,
            "tracing_mark_write: the run ends here",
        )?;
        self.out.flush()
    }

    fn line(
        &mut self,
        now: Nanos,
        cpu: usize,
        by: &Thread,
        context: Context,
        text: &str,
    ) -> io::Result<()> {
        let flags = context.flags();
        let (seconds, rest) = (now / 1_000_000_000, now % 1_000_000_000);
        let Thread { tid, comm } = by;
        writeln!(
            self.out,
            "{comm:>16}-{tid:<7} [{cpu:03}] {flags} {seconds:>5}.{rest:09}: {text}"
        )
    }
}
