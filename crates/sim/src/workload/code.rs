// SPDX-License-Identifier: GPL-2.0-only
//! Programs made ready to run: a flat list of operations with names turned into indices.

use super::{Access, Length, Memory, Mix, Program, Statement};
use corun_model::Nanos;
use std::sync::Arc;

/// One operation. Numbers are indices into the tables of [`Names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Compute(Length),
    Sleep(Length),
    Lock(u32),
    Unlock(u32),
    MutexLock(u32),
    MutexUnlock(u32),
    /// A group; its work follows, and then [`Op::GroupDone`]. Threads that do not lead skip both.
    Group {
        group: u32,
        /// How long a waiting thread spins before it blocks; `None`: not at all.
        spin: Option<Nanos>,
    },
    GroupDone(u32),
    Barrier(u32),
    SpinBarrier {
        barrier: u32,
        /// How long it spins before it blocks; `None`: it never blocks.
        spin: Option<Nanos>,
    },
    ConditionBarrier {
        barrier: u32,
        spin: Option<Nanos>,
    },
    Send(u32),
    Recv(u32),
    Count {
        unit: u32,
        units: u32,
    },
    Memory(Memory),
    Mix(Mix),
    Read(Access),
    Write(Access),
    Append {
        log: u32,
        bytes: u64,
    },
    Request(u32),
    Reply(u32, u64),
    Transmit(u32, u64),
    /// Waits on a condition; the mutex is let go meanwhile and taken again afterwards.
    Wait {
        condition: u32,
        mutex: Option<u32>,
    },
    Signal(u32),
    Broadcast(u32),
    Shootdown,
    Every(Nanos),
    Timer {
        timer: u32,
        period: Nanos,
        absolute: bool,
    },
    Busy(Length),
    Yield,
    /// Begins a loop of so many rounds, counted in this slot.
    Enter {
        slot: u8,
        times: u32,
    },
    /// Ends a round of the counted loop that begins at `start`.
    Again {
        slot: u8,
        start: u32,
    },
    /// Ends a round of the endless loop that begins at `start`.
    Forever {
        start: u32,
    },
    Exit,
}

/// The names that the programs of a VM share, each kind with its own table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub locks: Vec<String>,
    pub mutexes: Vec<String>,
    pub barriers: Vec<String>,
    pub spin_barriers: Vec<String>,
    pub condition_barriers: Vec<String>,
    pub queues: Vec<String>,
    pub ports: Vec<String>,
    pub conditions: Vec<String>,
    pub timers: Vec<String>,
    pub logs: Vec<String>,
    /// What the programs count; the first is the VM's main work.
    pub units: Vec<String>,
}

fn index(table: &mut Vec<String>, name: &str) -> u32 {
    let place = table
        .iter()
        .position(|known| known == name)
        .unwrap_or_else(|| {
            table.push(name.into());
            table.len() - 1
        });
    place as u32
}

/// A lock or mutex taken while another one was held.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LockOrder {
    pub outer: String,
    pub inner: String,
}

/// A program ready to run, and where a thread is in it.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    ops: Arc<[Op]>,
    at: u32,
    /// Rounds left of the counted loops under way.
    rounds: [u32; super::DEEPEST],
}

impl Code {
    /// Makes `program` ready. Adds its names to `names`, and to `order` which lock it takes inside
    /// which other.
    pub fn new(program: &Program, names: &mut Names, order: &mut Vec<LockOrder>) -> Self {
        let mut writer = Writer {
            ops: Vec::new(),
            names,
            order,
            held: Vec::new(),
            mutexes: Vec::new(),
        };
        writer.list(&program.body, 0);
        writer.ops.push(Op::Exit);
        Self {
            ops: writer.ops.into(),
            at: 0,
            rounds: [0; super::DEEPEST],
        }
    }

    /// All operations.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// Bytes of its largest read or write; `None` if it has none.
    pub fn largest_access(&self) -> Option<u64> {
        let bytes = self.ops.iter().filter_map(|op| match op {
            Op::Read(access) | Op::Write(access) => Some(access.bytes),
            Op::Append { bytes, .. } => Some(*bytes),
            _ => None,
        });
        bytes.max()
    }

    /// Does it take messages from a port?
    pub fn takes_messages(&self) -> bool {
        self.ops.iter().any(|op| matches!(op, Op::Request(_)))
    }

    /// Is it at a `request`? A thread that is asleep there waits for a message.
    pub fn is_at_request(&self) -> bool {
        matches!(self.ops[self.at as usize], Op::Request(_))
    }

    /// The operation it is at, loops followed; it stays there until [`Code::done`].
    pub fn current(&mut self) -> Op {
        loop {
            let op = self.ops[self.at as usize];
            match op {
                Op::Enter { slot, times } => {
                    self.rounds[usize::from(slot)] = times;
                    self.at += 1;
                }
                Op::Again { slot, start } => {
                    let rounds = &mut self.rounds[usize::from(slot)];
                    *rounds -= 1;
                    self.at = if *rounds > 0 { start } else { self.at + 1 };
                }
                Op::Forever { start } => self.at = start,
                _ => return op,
            }
        }
    }

    /// The place of the current operation in the program.
    pub fn place(&self) -> u32 {
        self.at
    }

    /// The work of the group that it is at has been done by another thread.
    pub fn skip_group(&mut self) {
        self.at += 3;
    }

    /// The current operation is over.
    pub fn done(&mut self) {
        if self.ops[self.at as usize] != Op::Exit {
            self.at += 1;
        }
    }
}

struct Writer<'a> {
    ops: Vec<Op>,
    names: &'a mut Names,
    order: &'a mut Vec<LockOrder>,
    held: Vec<String>,
    /// Mutexes around the statement being written, innermost last.
    mutexes: Vec<u32>,
}

impl Writer<'_> {
    fn list(&mut self, body: &[Statement], depth: u8) {
        for statement in body {
            self.statement(statement, depth);
        }
    }

    fn statement(&mut self, statement: &Statement, depth: u8) {
        match statement {
            Statement::Group { name, work, spin } => {
                // Waits for the group are reported as waits for a mutex of its name.
                let (group, spin) = (index(&mut self.names.mutexes, name), *spin);
                self.ops.push(Op::Group { group, spin });
                self.ops.push(Op::Compute(*work));
                self.ops.push(Op::GroupDone(group));
            }
            Statement::Lock(name, body) => {
                let lock = index(&mut self.names.locks, name);
                self.ops.push(Op::Lock(lock));
                self.held_around(format!("lock {name}"), body, depth);
                self.ops.push(Op::Unlock(lock));
            }
            Statement::Mutex(name, body) => {
                let mutex = index(&mut self.names.mutexes, name);
                self.ops.push(Op::MutexLock(mutex));
                self.mutexes.push(mutex);
                self.held_around(format!("mutex {name}"), body, depth);
                self.mutexes.pop();
                self.ops.push(Op::MutexUnlock(mutex));
            }
            Statement::Loop(times, body) => self.repeat(*times, body, depth),
            leaf => {
                let op = self.leaf(leaf);
                self.ops.extend(op);
            }
        }
    }

    /// A statement that is a single operation; `None`: it is more than one.
    fn leaf(&mut self, statement: &Statement) -> Option<Op> {
        let names = &mut *self.names;
        Some(match statement {
            Statement::Compute(length) => Op::Compute(*length),
            Statement::Sleep(length) => Op::Sleep(*length),
            Statement::Count(units, name) => Op::Count {
                unit: index(&mut names.units, name.as_deref().unwrap_or("units")),
                units: *units,
            },
            Statement::Barrier(name) => Op::Barrier(index(&mut names.barriers, name)),
            Statement::SpinBarrier(name, spin) => Op::SpinBarrier {
                barrier: index(&mut names.spin_barriers, name),
                spin: *spin,
            },
            Statement::ConditionBarrier(name, spin) => Op::ConditionBarrier {
                barrier: index(&mut names.condition_barriers, name),
                spin: *spin,
            },
            Statement::Send(name) => Op::Send(index(&mut names.queues, name)),
            Statement::Recv(name) => Op::Recv(index(&mut names.queues, name)),
            Statement::Memory(memory) => Op::Memory(*memory),
            Statement::Mix(mix) => Op::Mix(*mix),
            Statement::Read(access) => Op::Read(*access),
            Statement::Write(access) => Op::Write(*access),
            Statement::Append(name, bytes) => Op::Append {
                log: index(&mut names.logs, name),
                bytes: *bytes,
            },
            Statement::Request(port) => Op::Request(index(&mut names.ports, port)),
            Statement::Reply(port, bytes) => Op::Reply(index(&mut names.ports, port), *bytes),
            Statement::Transmit(port, bytes) => Op::Transmit(index(&mut names.ports, port), *bytes),
            Statement::Wait(name) => Op::Wait {
                condition: index(&mut names.conditions, name),
                mutex: self.mutexes.last().copied(),
            },
            Statement::Signal(name) => Op::Signal(index(&mut names.conditions, name)),
            Statement::Broadcast(name) => Op::Broadcast(index(&mut names.conditions, name)),
            Statement::Shootdown => Op::Shootdown,
            Statement::Every(period) => Op::Every(*period),
            Statement::Timer(timer) => Op::Timer {
                timer: index(&mut names.timers, &timer.name),
                period: timer.period,
                absolute: timer.absolute,
            },
            Statement::Busy(length) => Op::Busy(*length),
            Statement::Yield => Op::Yield,
            Statement::Group { .. }
            | Statement::Lock(..)
            | Statement::Mutex(..)
            | Statement::Loop(..) => return None,
        })
    }

    fn held_around(&mut self, name: String, body: &[Statement], depth: u8) {
        for outer in &self.held {
            let (outer, inner) = (outer.clone(), name.clone());
            self.order.push(LockOrder { outer, inner });
        }
        self.held.push(name);
        self.list(body, depth + 1);
        self.held.pop();
    }

    fn repeat(&mut self, times: Option<u32>, body: &[Statement], slot: u8) {
        if let Some(times) = times {
            self.ops.push(Op::Enter { slot, times });
        }
        let start = self.ops.len() as u32;
        self.list(body, slot + 1);
        self.ops.push(match times {
            Some(_) => Op::Again { slot, start },
            None => Op::Forever { start },
        });
    }
}
