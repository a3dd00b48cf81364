// SPDX-License-Identifier: GPL-2.0-only
//! From blocks to events for the rebuilding, a step that all forms of recordings share.

use super::{Blocks, Cause, Damage, Entry, Left, Thread};
use crate::error::ImportError;
use crate::event::{self, Context, Event, TaskRef};
use crate::gather::Gather;
use crate::import::Import;
use crate::model::{Fact, Format};
use crate::note::{Note, Place};
use crate::order::Stamped;
use corun_model::{Nanos, Topology, harmless};
use std::io::Read;

/// Where facts come from.
const SOURCE: &str = "the recording";

/// Reads a recording of corun.
pub(crate) fn import(file: &str, source: impl Read) -> Result<Import, ImportError> {
    let mut gather = Gather::new(file, Place::Block);
    gather.format = Some(Format::Corun);
    let mut blocks = Blocks::open(source).map_err(|damage| refused(file, damage))?;
    let (mut entries, mut at, mut unread) = (Vec::new(), 0, false);
    loop {
        entries.clear();
        gather.place = blocks.blocks + 1;
        match blocks.next(&mut entries) {
            Ok(true) => {}
            Ok(false) => break,
            Err(Damage::Io(source)) => return Err(refused(file, Damage::Io(source))),
            Err(damage) => {
                gather.notes.push(cut(&blocks, &damage));
                unread = true;
                break;
            }
        }
        for entry in &entries {
            at = entry.at().unwrap_or(at);
            take(&mut gather, entry, at)?;
        }
    }
    if gather.events == 0 {
        let broken = gather.notes.iter().find_map(|note| match note {
            Note::Cut { at, byte, why } => Some(format!(
                "it cannot be read on at {at}, byte {byte} ({why}), and has no events before"
            )),
            _ => None,
        });
        let short = || "it has no events: it ends before the first".to_string();
        return Err(ImportError::Native {
            file: file.to_string(),
            why: broken.unwrap_or_else(short),
        });
    }
    if !blocks.whole && !unread {
        gather.notes.push(cut(&blocks, &Damage::Cut));
    }
    gather.finish()
}

fn refused(file: &str, damage: Damage) -> ImportError {
    let file = file.to_string();
    match damage {
        Damage::Io(source) => ImportError::Io { file, source },
        Damage::Header(why) => ImportError::Native { file, why },
        Damage::Cut | Damage::Behind(_) => ImportError::Native {
            file,
            why: "it ends within its header".to_string(),
        },
        Damage::Block(why) => ImportError::Native {
            file,
            why: why.to_string(),
        },
    }
}

fn cut<R: Read>(blocks: &Blocks<R>, damage: &Damage) -> Note {
    let byte = blocks.bytes;
    let why = match *damage {
        Damage::Behind(bytes) => return Note::Behind { byte, bytes },
        Damage::Block(why) => why,
        _ => "the file ends there, before the recording did",
    };
    let at = Place::Block(blocks.blocks + 1);
    Note::Cut { at, byte, why }
}

/// Takes in an entry; facts belong to the time of the events before them.
fn take(gather: &mut Gather<'_>, entry: &Entry, at: Nanos) -> Result<(), ImportError> {
    match entry {
        Entry::Fact { name, value } => fact(gather, name, value),
        Entry::Vm { tgid, name } => {
            let name = name.chars().map(harmless).collect();
            gather.stated.vms.insert(*tgid, name);
        }
        Entry::Lost { cpu, events, .. } => {
            gather.lost(*events);
            if *cpu < Topology::MAX_PCPUS {
                return gather.push(Stamped::new(at, *cpu, 0, Event::Lost));
            }
        }
        other => {
            if let Some((name, event)) = event(other, at) {
                take_event(gather, name, event)?;
            }
        }
    }
    match entry {
        // Here a fork names the new thread's process as well; events of other forms do not.
        Entry::Fork {
            child, tgid, comm, ..
        } if *child <= event::MAX_TID => {
            let (tid, tgid, comm) = (*child, *tgid, comm.clone());
            take(gather, &Entry::Thread(Thread { tid, tgid, comm }), at)
        }
        _ => Ok(()),
    }
}

/// Takes in an event if its numbers are possible on a host; an event without a name is not counted.
fn take_event(gather: &mut Gather<'_>, name: &str, event: Stamped) -> Result<(), ImportError> {
    if event.cpu >= Topology::MAX_PCPUS || !tids(&event) {
        gather.unusable();
        return Ok(());
    }
    if !name.is_empty() {
        gather.count(name, event.cpu);
    }
    gather.push(event)
}

fn fact(gather: &mut Gather<'_>, name: &str, value: &str) {
    let text = || {
        Some(Fact {
            value: event::comm(value),
            source: SOURCE,
        })
    };
    let stated = &mut gather.stated;
    match name {
        "kernel" => stated.kernel = text(),
        "scheduler" => stated.scheduler = text(),
        "clock" => stated.clock = text(),
        "pcpus" => {
            stated.pcpus = value.parse().ok().map(|value| Fact {
                value,
                source: SOURCE,
            });
        }
        // Later versions may state more.
        _ => {}
    }
}

/// Are its thread ids ones that Linux hands out?
fn tids(stamped: &Stamped) -> bool {
    let named = match &stamped.event {
        Event::Switch { prev, next, .. } => [prev.tid, next.tid],
        Event::Waking { task, .. }
        | Event::Wakeup { task, .. }
        | Event::Named { task, .. }
        | Event::Migrate { task, .. } => [task.tid, 0],
        Event::Fork { child, .. } => [child.tid, 0],
        _ => [0, 0],
    };
    let cpus = match stamped.event {
        Event::Migrate { from, to, .. } => from.max(to),
        Event::Wakeup { cpu, .. } => cpu.unwrap_or(0),
        _ => 0,
    };
    named.iter().all(|&tid| tid <= event::MAX_TID)
        && stamped.tid <= event::MAX_TID
        && cpus < Topology::MAX_PCPUS
}

/// A thread whose name is known from elsewhere.
fn unnamed(tid: u32) -> TaskRef {
    let comm = String::new();
    TaskRef { tid, comm }
}

/// A thread and its name, as far as that is printable.
fn named(tid: u32, comm: &str) -> TaskRef {
    let comm = event::comm(comm);
    TaskRef { tid, comm }
}

/// What the kernel calls the event, and the event itself; with an empty name, it is not one of the
/// kernel's.
fn event(entry: &Entry, at: Nanos) -> Option<(&'static str, Stamped)> {
    if let Entry::Edge { .. } = entry {
        return Some(("", Stamped::new(at, 0, 0, Event::Mark)));
    }
    scheduling(entry, at)
        .or_else(|| lifetime(entry, at))
        .or_else(|| virtualisation(entry, at))
}

/// What the scheduler does: which thread has a pCPU, which one wants a pCPU, and where it waits.
fn scheduling(entry: &Entry, at: Nanos) -> Option<(&'static str, Stamped)> {
    Some(match *entry {
        Entry::Switch {
            cpu,
            prev,
            left,
            next,
            ..
        } => {
            let event = Event::Switch {
                prev: unnamed(prev),
                left: match left {
                    Left::Ready => event::Left::Ready,
                    Left::Blocked(letter) => event::Left::Blocked(char::from(letter)),
                    Left::Exited => event::Left::Exited,
                },
                next: unnamed(next),
            };
            ("sched_switch", Stamped::new(at, cpu, prev, event))
        }
        Entry::Waking {
            cpu,
            running,
            cause,
            wakee,
            ..
        } => {
            let event = Event::Waking {
                task: unnamed(wakee),
                cpu: None,
            };
            let context = match cause {
                Cause::Running => Context::Task,
                Cause::Interrupt => Context::Interrupt,
                Cause::Timer => Context::Timer,
                Cause::Unknown => Context::Unknown,
            };
            let event = Stamped {
                context,
                ..Stamped::new(at, cpu, running, event)
            };
            ("sched_waking", event)
        }
        Entry::Queued {
            cpu,
            running,
            thread,
            on,
            ..
        } => {
            let event = Event::Wakeup {
                task: unnamed(thread),
                cpu: Some(on),
            };
            // Which task caused it was given by sched_waking.
            let event = Stamped {
                context: Context::Interrupt,
                ..Stamped::new(at, cpu, running, event)
            };
            ("sched_wakeup", event)
        }
        Entry::Migrate {
            cpu,
            running,
            thread,
            from,
            to,
            ..
        } => {
            let task = unnamed(thread);
            let event = Event::Migrate { task, from, to };
            ("sched_migrate_task", Stamped::new(at, cpu, running, event))
        }
        _ => return None,
    })
}

/// Threads that exist, are created, or have another name now.
fn lifetime(entry: &Entry, at: Nanos) -> Option<(&'static str, Stamped)> {
    Some(match *entry {
        Entry::Thread(ref thread) => {
            let task = named(thread.tid, &thread.comm);
            let tgid = Some(thread.tgid);
            let event = Event::Named { task, tgid };
            ("", Stamped::new(at, 0, thread.tid, event))
        }
        Entry::Fork {
            cpu,
            parent,
            child,
            ref comm,
            ..
        } => {
            let child = named(child, comm);
            let event = Event::Fork { parent, child };
            ("sched_process_fork", Stamped::new(at, cpu, parent, event))
        }
        Entry::Rename {
            thread, ref comm, ..
        } => {
            let task = named(thread, comm);
            let event = Event::Named { task, tgid: None };
            ("task_rename", Stamped::new(at, 0, thread, event))
        }
        _ => return None,
    })
}

/// What KVM does with vCPUs: halts that end, and exits.
fn virtualisation(entry: &Entry, at: Nanos) -> Option<(&'static str, Stamped)> {
    Some(match *entry {
        Entry::Halt {
            cpu,
            thread,
            polled,
            took,
            ..
        } => {
            let polled = polled.then_some(took);
            let event = Stamped::new(at, cpu, thread, Event::KvmWakeup { polled });
            ("kvm_vcpu_wakeup", event)
        }
        Entry::Exits {
            thread,
            vcpu,
            ref reason,
            count,
        } => {
            let event = Event::KvmExits {
                vcpu,
                reason: event::comm(reason),
                count,
            };
            ("", Stamped::new(at, 0, thread, event))
        }
        _ => return None,
    })
}
