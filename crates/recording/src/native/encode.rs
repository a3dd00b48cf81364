// SPDX-License-Identifier: GPL-2.0-only
//! From entries to blocks.

use super::block;
use super::code::{put, put_signed, put_text};
use super::entry::{Cause, Entry, Left};
use corun_model::Topology;
use std::collections::BTreeMap;

/// A block is closed at this size, bytes before it is packed.
const FULL: usize = 64 << 10;

/// Kinds of entries, which are their first byte in the file.
pub(crate) mod kind {
    pub(crate) const FACT: u8 = 1;
    pub(crate) const VM: u8 = 2;
    pub(crate) const THREAD: u8 = 3;
    pub(crate) const BEGIN: u8 = 4;
    pub(crate) const END: u8 = 5;
    pub(crate) const SWITCH: u8 = 6;
    pub(crate) const WAKING: u8 = 7;
    pub(crate) const QUEUED: u8 = 8;
    pub(crate) const MIGRATE: u8 = 9;
    pub(crate) const FORK: u8 = 10;
    pub(crate) const RENAME: u8 = 11;
    pub(crate) const HALT: u8 = 12;
    pub(crate) const EXITS: u8 = 13;
    pub(crate) const LOST: u8 = 14;
}

/// Encodes entries and packs them into blocks.
#[derive(Default)]
pub struct Encoder {
    bytes: Vec<u8>,
    state: State,
}

/// The values from which differences are taken; a block begins without any.
#[derive(Default)]
pub(crate) struct State {
    /// Time of the previous entry, ns.
    pub(crate) at: u64,
    /// What runs on each pCPU.
    running: Vec<u32>,
    /// The same for pCPU numbers that no host has, which only a damaged file contains.
    beyond: BTreeMap<u32, u32>,
}

impl State {
    /// The thread that an entry of this pCPU is expected to name as the running one.
    pub(crate) fn expected(&self, cpu: u32) -> u32 {
        let known = self.running.get(cpu as usize);
        known
            .or_else(|| self.beyond.get(&cpu))
            .copied()
            .unwrap_or(0)
    }

    /// From now on this thread runs there.
    pub(crate) fn runs(&mut self, cpu: u32, thread: u32) {
        if cpu >= Topology::MAX_PCPUS {
            self.beyond.insert(cpu, thread);
            return;
        }
        let slot = cpu as usize;
        if slot >= self.running.len() {
            self.running.resize(slot + 1, 0);
        }
        if let Some(known) = self.running.get_mut(slot) {
            *known = thread;
        }
    }
}

impl Encoder {
    /// Takes an entry in; returns a block when one is full.
    pub fn push(&mut self, entry: &Entry) -> Option<Vec<u8>> {
        self.code(entry);
        (self.bytes.len() >= FULL).then(|| self.flush())?
    }

    /// Returns what has been taken in as a block, if there is anything.
    pub fn flush(&mut self) -> Option<Vec<u8>> {
        if self.bytes.is_empty() {
            return None;
        }
        self.state = State::default();
        let block = block::pack(&self.bytes);
        self.bytes.clear();
        Some(block)
    }

    fn code(&mut self, entry: &Entry) {
        match entry {
            Entry::Fact { name, value } => {
                self.bytes.push(kind::FACT);
                put_text(&mut self.bytes, name);
                put_text(&mut self.bytes, value);
            }
            Entry::Vm { tgid, name } => {
                self.bytes.push(kind::VM);
                put(&mut self.bytes, u64::from(*tgid));
                put_text(&mut self.bytes, name);
            }
            Entry::Thread(thread) => {
                self.numbers(kind::THREAD, &[thread.tid, thread.tgid]);
                put_text(&mut self.bytes, &thread.comm);
            }
            Entry::Exits {
                thread,
                vcpu,
                reason,
                count,
            } => {
                let vcpu = vcpu.map_or(0, |number| number.saturating_add(1));
                self.numbers(kind::EXITS, &[*thread, vcpu]);
                put_text(&mut self.bytes, reason);
                put(&mut self.bytes, *count);
            }
            Entry::Edge { at, last } => {
                self.timed(if *last { kind::END } else { kind::BEGIN }, *at);
            }
            event => self.event(event),
        }
    }

    /// Encodes what happens on a pCPU.
    fn event(&mut self, entry: &Entry) {
        match *entry {
            Entry::Switch {
                at,
                cpu,
                prev,
                left,
                next,
            } => {
                self.on(kind::SWITCH, at, cpu, prev);
                self.bytes.push(match left {
                    Left::Ready => b'R',
                    Left::Exited => b'X',
                    Left::Blocked(letter) => letter,
                });
                put(&mut self.bytes, u64::from(next));
                self.state.runs(cpu, next);
            }
            Entry::Waking {
                at,
                cpu,
                running,
                cause,
                wakee,
            } => {
                self.on(kind::WAKING, at, cpu, running);
                self.bytes.push(match cause {
                    Cause::Running => 0,
                    Cause::Interrupt => 1,
                    Cause::Timer => 2,
                    Cause::Unknown => 3,
                });
                put(&mut self.bytes, u64::from(wakee));
            }
            Entry::Queued {
                at,
                cpu,
                running,
                thread,
                on,
            } => {
                self.on(kind::QUEUED, at, cpu, running);
                self.more(&[thread, on]);
            }
            Entry::Migrate {
                at,
                cpu,
                running,
                thread,
                from,
                to,
            } => {
                self.on(kind::MIGRATE, at, cpu, running);
                self.more(&[thread, from, to]);
            }
            Entry::Halt {
                at,
                cpu,
                thread,
                polled,
                took,
            } => {
                self.on(kind::HALT, at, cpu, thread);
                self.bytes.push(u8::from(polled));
                put(&mut self.bytes, took);
            }
            Entry::Lost { at, cpu, events } => {
                self.timed(kind::LOST, at);
                self.more(&[cpu]);
                put(&mut self.bytes, events);
            }
            ref named => self.named(named),
        }
    }

    /// Encodes what gives threads names.
    fn named(&mut self, entry: &Entry) {
        match entry {
            Entry::Fork {
                at,
                cpu,
                parent,
                child,
                tgid,
                comm,
            } => {
                self.on(kind::FORK, *at, *cpu, *parent);
                self.more(&[*child, *tgid]);
                put_text(&mut self.bytes, comm);
            }
            Entry::Rename {
                at,
                cpu,
                thread,
                comm,
            } => {
                self.timed(kind::RENAME, *at);
                self.more(&[*cpu, *thread]);
                put_text(&mut self.bytes, comm);
            }
            // Encoded by `code` and `event`.
            _ => {}
        }
    }

    fn numbers(&mut self, kind: u8, numbers: &[u32]) {
        self.bytes.push(kind);
        self.more(numbers);
    }

    fn more(&mut self, numbers: &[u32]) {
        for &number in numbers {
            put(&mut self.bytes, u64::from(number));
        }
    }

    fn timed(&mut self, kind: u8, at: u64) {
        self.bytes.push(kind);
        put_signed(
            &mut self.bytes,
            at.cast_signed().wrapping_sub(self.state.at.cast_signed()),
        );
        self.state.at = at;
    }

    /// Encodes time, pCPU, and the thread that runs there: 0 if it is the expected one.
    fn on(&mut self, kind: u8, at: u64, cpu: u32, running: u32) {
        self.timed(kind, at);
        put(&mut self.bytes, u64::from(cpu));
        let expected = self.state.expected(cpu) == running;
        let code = if expected { 0 } else { u64::from(running) + 1 };
        put(&mut self.bytes, code);
        self.state.runs(cpu, running);
    }
}
