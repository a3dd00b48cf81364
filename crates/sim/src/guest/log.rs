// SPDX-License-Identifier: GPL-2.0-only
//! Logs that several threads of a VM append to, such as a database's write-ahead log.
//!
//! One of them writes at a time. Threads that come meanwhile wait, blocked, until that is on the
//! disk; then the first of them writes for all that are there when it begins (group commit).
//! PostgreSQL does this: `XLogFlush()` takes WALWriteLock, checks whether its record has got to the
//! disk meanwhile, and if not writes all that has been inserted so far
//! (src/backend/access/transam/xlog.c). No thread but those that append is needed, and each writes
//! on the vCPU that it has.

use super::access::PIECE;
use super::block::Block;
use super::tell::DISK;
use super::thread::Doing;
use super::vm::Vm;
use crate::host::{Host, Span};
use std::collections::VecDeque;

/// A log in the run.
#[derive(Debug)]
pub(super) struct Log {
    /// First byte and length on the disk.
    base: u64,
    size: u64,
    /// Where the log ends; places only grow, on the disk they go round and round.
    at: u64,
    /// The thread that writes, or was woken to write.
    writer: Option<u32>,
    /// Has it begun?
    writing: bool,
    /// The threads whose bytes it writes along with its own.
    group: Vec<u32>,
    /// Threads that come meanwhile, and how many bytes each has.
    waiters: VecDeque<(u32, u64)>,
}

impl Log {
    pub fn new(base: u64, size: u64) -> Self {
        Self {
            base,
            size,
            at: 0,
            writer: None,
            writing: false,
            group: Vec::new(),
            waiters: VecDeque::new(),
        }
    }

    /// The byte on the disk where the next piece of `left` bytes goes, and its length.
    fn next(&mut self, left: u64) -> (u64, u64) {
        let offset = self.at % self.size;
        let bytes = left.min(PIECE).min(self.size - offset);
        self.at += bytes;
        (self.base + offset, bytes)
    }

    /// The log's writer begins; returns the bytes of the threads that it writes for.
    fn begin(&mut self) -> u64 {
        self.writing = true;
        let others = self.waiters.iter().map(|(_, bytes)| *bytes).sum();
        self.group.clear();
        self.group
            .extend(self.waiters.drain(..).map(|(thread, _)| thread));
        others
    }
}

impl Vm {
    /// A thread appends to a log, or goes on appending after it was woken.
    pub(super) fn append(&mut self, host: &mut Host, vcpu: u32, thread: u32, log: u32, bytes: u64) {
        let Some(file) = self.file_of(thread) else {
            return;
        };
        let begins = self.begin(host, file, bytes);
        let Some(block) = &mut self.block else { return };
        let state = &mut block.logs[log as usize];
        if begins && state.writer.is_some() {
            state.waiters.push_back((thread, bytes));
            if let Some(call) = &mut block.files[file as usize].call {
                call.waited = true;
            }
            self.tell_begin(host, thread, Span::IoWait, DISK);
            return self.block(host, vcpu, thread, Doing::Off);
        }
        if begins {
            state.writer = Some(thread);
        }
        if state.writer == Some(thread) && !state.writing {
            return self.write_log(host, vcpu, (thread, file), log, bytes);
        }
        // Its bytes are on the disk.
        if state.writer == Some(thread) {
            self.hand_on(host, vcpu, log);
        }
        self.end_call(host, thread, file, bytes);
    }

    /// The writer of a log issues its bytes and those of all waiting threads.
    fn write_log(
        &mut self,
        host: &mut Host,
        vcpu: u32,
        (thread, file): (u32, u32),
        log: u32,
        bytes: u64,
    ) {
        let of = |block: &mut Option<Block>| block.as_mut().map(|it| it.logs[log as usize].begin());
        let mut left = bytes + of(&mut self.block).unwrap_or(0);
        while left > 0 {
            let Some(block) = &mut self.block else { return };
            let (start, bytes) = block.logs[log as usize].next(left);
            let request = self.issue(host, vcpu, file, start, bytes, true);
            self.await_request(file, request);
            left -= bytes;
        }
        self.tell_begin(host, thread, Span::IoWait, DISK);
        self.block(host, vcpu, thread, Doing::Off);
    }

    /// The writer's write is over: the threads that it wrote for go on, and the first of those that
    /// came meanwhile writes next.
    fn hand_on(&mut self, host: &mut Host, vcpu: u32, log: u32) {
        let Some(block) = &mut self.block else { return };
        let state = &mut block.logs[log as usize];
        state.writing = false;
        let mut woken = std::mem::take(&mut state.group);
        let next = state.waiters.pop_front().map(|(thread, _)| thread);
        state.writer = next;
        woken.extend(next);
        for waiter in woken {
            self.tell_end(host, waiter, Span::IoWait, DISK);
            self.wake(host, waiter, vcpu);
        }
    }
}
