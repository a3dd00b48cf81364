// SPDX-License-Identifier: GPL-2.0-only
//! From bundles to events.

use super::proto::{Bundle, CompactSched, FtraceEvent, SchedSwitch, Woken};
use crate::error::ImportError;
use crate::event::{self, Context, Event, Left, TaskRef};
use crate::gather::Gather;
use crate::order::Stamped;
use corun_model::{Nanos, Topology};
use std::collections::BTreeMap;

/// An interrupt's handler was under way, immediate or deferred (`trace_flag_type` in
/// include/linux/trace_events.h: hard interrupt, soft interrupt, NMI).
const IN_INTERRUPT: u32 = 0x08 | 0x10 | 0x40;

/// What bundles require to be known from earlier ones.
#[derive(Default)]
pub(super) struct Events {
    /// What ran on each pCPU at the end of the last bundle with arrays.
    running: BTreeMap<u32, u32>,
}

/// An event of a pCPU: its time, what ran, what the kernel calls it.
struct Seen {
    at: Nanos,
    running: u32,
    context: Context,
    name: &'static str,
    event: Event,
}

impl Events {
    /// Takes in a bundle.
    pub(super) fn take(
        &mut self,
        gather: &mut Gather<'_>,
        bundle: Bundle,
    ) -> Result<(), ImportError> {
        let cpu = bundle.cpu.unwrap_or(0);
        if cpu >= Topology::MAX_PCPUS {
            gather.unusable();
            return Ok(());
        }
        let mut all = Vec::new();
        for event in &bundle.event {
            match seen(event) {
                Some(seen) => all.push(seen),
                None => gather.unusable(),
            }
        }
        if let Some(compact) = &bundle.compact_sched {
            let arrays = self.arrays(cpu, compact);
            arrays.into_iter().for_each(|seen| match seen {
                Some(seen) => all.push(seen),
                None => gather.unusable(),
            });
        }
        all.sort_by_key(|seen| seen.at);
        if bundle.lost_events == Some(true)
            && let Some(first) = all.first()
        {
            gather.lost(1);
            gather.push(Stamped::new(first.at, cpu, first.running, Event::Lost))?;
        }
        for seen in all {
            gather.count(seen.name, cpu);
            let context = seen.context;
            gather.push(Stamped {
                context,
                ..Stamped::new(seen.at, cpu, seen.running, seen.event)
            })?;
        }
        Ok(())
    }

    /// Switches and wake-ups of arrays; the task that leaves a pCPU is the one that came there last.
    fn arrays(&mut self, cpu: u32, compact: &CompactSched) -> Vec<Option<Seen>> {
        let (mut switches, mut wakings) = (0, 0);
        let (mut switched, mut woken) = (0, 0);
        let mut all = Vec::new();
        loop {
            let switch = compact.switch_timestamp.get(switches);
            let waking = compact.waking_timestamp.get(wakings);
            let switch = switch.map(|step| step.wrapping_add(switched));
            let waking = waking.map(|step| step.wrapping_add(woken));
            // At equal times the wake-up comes first: the switch may be to the woken task.
            match (switch, waking) {
                (None, None) => break,
                (Some(at), waking) if waking.is_none_or(|waking| at < waking) => {
                    all.push(self.switch(cpu, at, compact, switches));
                    (switches, switched) = (switches + 1, at);
                }
                (_, Some(at)) => {
                    all.push(self.waking(cpu, at, compact, wakings));
                    (wakings, woken) = (wakings + 1, at);
                }
                (Some(_), None) => break,
            }
        }
        all
    }

    fn switch(&mut self, cpu: u32, at: Nanos, compact: &CompactSched, n: usize) -> Option<Seen> {
        let prev = self.running.get(&cpu).copied().unwrap_or(0);
        let next = tid(compact.switch_next_pid.get(n).copied())?;
        let state = compact.switch_prev_state.get(n).copied()?;
        self.running.insert(cpu, next);
        let event = Event::Switch {
            prev: TaskRef {
                tid: prev,
                comm: String::new(),
            },
            left: left(state),
            next: TaskRef {
                tid: next,
                comm: interned(compact, compact.switch_next_comm_index.get(n)),
            },
        };
        Some(Seen {
            at,
            running: prev,
            context: Context::Task,
            name: "sched_switch",
            event,
        })
    }

    fn waking(&self, cpu: u32, at: Nanos, compact: &CompactSched, n: usize) -> Option<Seen> {
        let task = TaskRef {
            tid: tid(compact.waking_pid.get(n).copied())?,
            comm: interned(compact, compact.waking_comm_index.get(n)),
        };
        Some(Seen {
            at,
            running: self.running.get(&cpu).copied().unwrap_or(0),
            context: context(compact.waking_common_flags.get(n).copied()),
            name: "sched_waking",
            event: Event::Waking { task, cpu: None },
        })
    }
}

fn interned(compact: &CompactSched, index: Option<&u32>) -> String {
    let name = index.and_then(|&index| compact.intern_table.get(index as usize));
    name.map_or_else(String::new, |name| event::comm(name))
}

fn context(flags: Option<u32>) -> Context {
    match flags {
        Some(flags) if flags & IN_INTERRUPT != 0 => Context::Interrupt,
        Some(_) => Context::Task,
        None => Context::Unknown,
    }
}

fn tid(number: Option<i32>) -> Option<u32> {
    let number = u32::try_from(number?).ok()?;
    (number <= event::MAX_TID).then_some(number)
}

fn cpu(number: Option<i32>) -> Option<u32> {
    let number = u32::try_from(number?).ok()?;
    (number < Topology::MAX_PCPUS).then_some(number)
}

/// How the task left, from the state as in `sched_switch`.
fn left(state: i64) -> Left {
    event::left_bits(state.cast_unsigned() & 0xffff)
}

fn task(number: Option<i32>, comm: Option<&String>) -> Option<TaskRef> {
    Some(TaskRef {
        tid: tid(number)?,
        comm: comm.map_or_else(String::new, |comm| event::comm(comm)),
    })
}

/// An event that stands by itself; `None` if its numbers are impossible.
fn seen(event: &FtraceEvent) -> Option<Seen> {
    let running = event.pid.filter(|&pid| pid <= event::MAX_TID)?;
    let (name, what) = what(event)?;
    Some(Seen {
        at: event.timestamp?,
        running,
        context: context(event.common_flags),
        name,
        event: what,
    })
}

fn what(event: &FtraceEvent) -> Option<(&'static str, Event)> {
    if let Some(switch) = &event.sched_switch {
        return Some(("sched_switch", switched(switch)?));
    }
    if let Some(waking) = &event.sched_waking {
        let task = task(waking.pid, waking.comm.as_ref())?;
        return Some(("sched_waking", Event::Waking { task, cpu: None }));
    }
    let woken =
        |woken: &Woken| Some((task(woken.pid, woken.comm.as_ref())?, cpu(woken.target_cpu)));
    if let Some(wakeup) = &event.sched_wakeup {
        let (task, cpu) = woken(wakeup)?;
        return Some(("sched_wakeup", Event::Wakeup { task, cpu }));
    }
    if let Some(wakeup) = &event.sched_wakeup_new {
        let (task, cpu) = woken(wakeup)?;
        return Some(("sched_wakeup_new", Event::WakeupNew { task, cpu }));
    }
    if let Some(migrate) = &event.sched_migrate_task {
        let event = Event::Migrate {
            task: task(migrate.pid, migrate.comm.as_ref())?,
            from: cpu(migrate.orig_cpu)?,
            to: cpu(migrate.dest_cpu)?,
        };
        return Some(("sched_migrate_task", event));
    }
    rarer(event)
}

/// Events that are less frequent.
fn rarer(event: &FtraceEvent) -> Option<(&'static str, Event)> {
    if let Some(fork) = &event.sched_process_fork {
        let event = Event::Fork {
            parent: tid(fork.parent_pid)?,
            child: task(fork.child_pid, fork.child_comm.as_ref())?,
        };
        return Some(("sched_process_fork", event));
    }
    if let Some(free) = &event.sched_process_free {
        let tid = tid(free.pid)?;
        return Some(("sched_process_free", Event::Free { tid }));
    }
    if let Some(rename) = &event.task_rename {
        let task = task(rename.pid, rename.newcomm.as_ref())?;
        return Some(("task_rename", Event::Named { task, tgid: None }));
    }
    if let Some(halt) = &event.kvm_vcpu_wakeup {
        let polled = (halt.waited == Some(0)).then_some(halt.ns.unwrap_or(0));
        return Some(("kvm_vcpu_wakeup", Event::KvmWakeup { polled }));
    }
    Some(if event.kvm_entry.is_some() {
        ("kvm_entry", Event::KvmEntry { vcpu: None })
    } else if event.kvm_exit.is_some() {
        let reason = "unknown".to_string();
        ("kvm_exit", Event::KvmExit { vcpu: None, reason })
    } else if event.irq_handler_entry.is_some() || event.softirq_entry.is_some() {
        ("irq_entry", Event::Irq(true))
    } else if event.irq_handler_exit.is_some() || event.softirq_exit.is_some() {
        ("irq_exit", Event::Irq(false))
    } else {
        ("other", Event::Other)
    })
}

fn switched(switch: &SchedSwitch) -> Option<Event> {
    Some(Event::Switch {
        prev: task(switch.prev_pid, switch.prev_comm.as_ref())?,
        left: left(switch.prev_state.unwrap_or(0)),
        next: task(switch.next_pid, switch.next_comm.as_ref())?,
    })
}
