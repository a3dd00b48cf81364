// SPDX-License-Identifier: GPL-2.0-only
//! A simulated run as a recording: its scheduling events as text of ftrace.
//!
//! Problem: what is measured in traces of real hosts (wake-up delays, stacking, lengths of runs)
//! should be measured in simulated ones by the same code.
//! How: the events that a kernel would have traced (`sched_waking`, `sched_wakeup`,
//! `sched_migrate_task`, `sched_switch`), in the columns of `/sys/kernel/tracing/trace`, with
//! nanoseconds. The warm-up is part of it. At the end of the run comes a marker, as writing to
//! `trace_marker` leaves one: a recording ends with its last event, and what ran until then did not switch.

use super::watched::{Watched, Watcher};
use corun_model::{Nanos, PcpuId, TaskId};
use corun_sim::host::{Observer, Task, TaskState};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Threads are numbered from here on, VMs and host tasks likewise as processes below: beyond any
/// pCPU's own threads, and no two alike.
const FIRST_THREAD: u32 = 10_000;
const FIRST_PROCESS: u32 = 1_000;

/// Events that are being written.
pub type Events = Watched<Writer<BufWriter<File>>>;

/// Begins the events of a host with `pcpus` pCPUs under `policy`.
///
/// # Errors
/// If the file cannot be written.
pub fn create(file: &Path, pcpus: u32, policy: &str) -> anyhow::Result<Events> {
    Watched::create("--events", file, |out| {
        Writer::new(BufWriter::new(out), pcpus, policy)
    })
}

impl<W: Write> Observer for Watcher<Writer<W>> {
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

    fn queued(&mut self, now: Nanos, id: TaskId, task: &Task, from: Option<PcpuId>, to: PcpuId) {
        self.write(|writer| {
            let thread = writer.introduce(id, task)?;
            writer.queued(now, &thread, from, to)
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

/// A pCPU: who has it, and who has just left it for whom is not known yet.
#[derive(Debug, Default)]
struct Pcpu {
    current: Option<Thread>,
    left: Option<(Nanos, Thread, char)>,
}

/// Writes the trace.
pub struct Writer<W> {
    out: W,
    pcpus: Vec<Pcpu>,
    known: BTreeMap<TaskId, Thread>,
    /// The process that the last comment line told of: threads told of next are its own.
    process: Option<u32>,
}

impl<W: Write> Writer<W> {
    fn new(mut out: W, pcpus: u32, policy: &str) -> io::Result<Self> {
        writeln!(
            out,
            "# host: {pcpus} pCPUs, kernel simulated, scheduler {policy}, clock mono"
        )?;
        writeln!(out, "# tracer: nop")?;
        Ok(Self {
            out,
            pcpus: (0..pcpus).map(|_| Pcpu::default()).collect(),
            known: BTreeMap::new(),
            process: None,
        })
    }

    /// The thread of a task; comment lines tell of it when it is first seen.
    fn introduce(&mut self, id: TaskId, task: &Task) -> io::Result<Thread> {
        if let Some(thread) = self.known.get(&id) {
            return Ok(thread.clone());
        }
        let name = &task.spec.name;
        let tid = FIRST_THREAD + id.0;
        let (process, vm, comm) = match task.spec.vcpu {
            // vCPUs are called after their VM: `web/0`.
            Some((vm, number)) => (
                FIRST_PROCESS + vm.0,
                name.rsplit_once('/').map_or(name.as_str(), |(vm, _)| vm),
                format!("CPU {number}/KVM"),
            ),
            None => (tid, name.as_str(), name.chars().take(15).collect()),
        };
        if self.process.replace(process) != Some(process) {
            match task.spec.vcpu {
                Some(_) => writeln!(self.out, "# process {process} simulated -name guest={vm}")?,
                None => writeln!(self.out, "# process {process} {name}")?,
            }
        }
        writeln!(self.out, "# thread {tid} {comm}")?;
        let thread = Thread { tid, comm };
        self.known.insert(id, thread.clone());
        Ok(thread)
    }

    /// A thread is on its way out: to whom comes with the next event, to nobody if time goes on.
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
        self.line(now, index, &before, &text)
    }

    /// A wake-up, or a move of a ready task. It is traced on the pCPU where it goes.
    fn queued(
        &mut self,
        now: Nanos,
        thread: &Thread,
        from: Option<PcpuId>,
        to: PcpuId,
    ) -> io::Result<()> {
        self.settle(now)?;
        let by = self.pcpus[to.index()].current.clone();
        let by = by.unwrap_or_else(|| Thread::idle(to.index()));
        let about = format!("comm={} pid={} prio=120", thread.comm, thread.tid);
        if let Some(from) = from {
            let text = format!(
                "sched_migrate_task: {about} orig_cpu={} dest_cpu={}",
                from.0, to.0
            );
            return self.line(now, to.index(), &by, &text);
        }
        for event in ["sched_waking", "sched_wakeup"] {
            let text = format!("{event}: {about} target_cpu={:03}", to.0);
            self.line(now, to.index(), &by, &text)?;
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
        let by = self.pcpus.first().and_then(|slot| slot.current.clone());
        let by = by.unwrap_or_else(|| Thread::idle(0));
        self.line(now, 0, &by, "tracing_mark_write: the run ends here")?;
        self.out.flush()
    }

    fn line(&mut self, now: Nanos, cpu: usize, by: &Thread, text: &str) -> io::Result<()> {
        let (seconds, rest) = (now / 1_000_000_000, now % 1_000_000_000);
        let Thread { tid, comm } = by;
        writeln!(
            self.out,
            "{comm:>16}-{tid:<7} [{cpu:03}] d..2. {seconds:>5}.{rest:09}: {text}"
        )
    }
}
