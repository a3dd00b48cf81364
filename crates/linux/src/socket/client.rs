// SPDX-License-Identifier: GPL-2.0-only
//! One connection, as the daemon sees it: what has come in, what has still to go out.
//!
//! Nothing here blocks and nothing grows without bound: at most one request is kept beyond the one
//! being answered, and no other is read until the answer has gone.

use super::protocol::{self, Command, Reply};
use super::scx_stats::{self, Session};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Read at once, bytes; what a client keeps waiting is at most this and a request.
const CHUNK: usize = 4096;

/// How a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tongue {
    /// As in protocol.rs.
    Corun,
    /// As clients of scx_stats do.
    ScxStats,
}

pub(super) struct Client {
    stream: UnixStream,
    /// What is known about a client of scx_stats; `None`: it is not one.
    scx_stats: Option<Session>,
    input: Vec<u8>,
    output: Vec<u8>,
    /// When it asked last, or came.
    heard: Instant,
    /// It sends no more.
    ended: bool,
    /// Nothing more is read from it: the present answer is the last.
    dismissed: bool,
    /// The connection is of no use.
    broken: bool,
}

impl Client {
    pub(super) fn new(stream: UnixStream, tongue: Tongue, now: Instant) -> Self {
        Self {
            stream,
            scx_stats: (tongue == Tongue::ScxStats).then(Session::default),
            input: Vec::new(),
            output: Vec::new(),
            heard: now,
            ended: false,
            dismissed: false,
            broken: false,
        }
    }

    pub(super) fn fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// What it waits for: the rest of its answer, or else a chance to ask.
    pub(super) fn events(&self) -> i16 {
        match self.output.is_empty() {
            true => libc::POLLIN,
            false => libc::POLLOUT,
        }
    }

    /// Is a request here already, with nothing in its way?
    pub(super) fn has_request(&self) -> bool {
        self.output.is_empty() && self.line_end().is_some()
    }

    /// How long it has asked for nothing.
    pub(super) fn idle(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.heard)
    }

    /// Is there nothing left to do for it?
    pub(super) fn is_done(&self) -> bool {
        let over = self.dismissed || (self.ended && !self.has_request());
        self.broken || (over && self.output.is_empty())
    }

    /// Reads, answers one request at most, writes. `ready`: the kernel reports that there is
    /// something to read.
    pub(super) fn turn(
        &mut self,
        ready: bool,
        now: Instant,
        answer: &mut dyn FnMut(Command) -> Reply,
    ) {
        if ready && self.output.is_empty() && !self.ended && !self.has_request() {
            self.read();
        }
        if self.output.is_empty() && !self.dismissed {
            self.answer(now, answer);
        }
        if !self.output.is_empty() {
            self.write();
        }
    }

    fn line_end(&self) -> Option<usize> {
        self.input.iter().position(|&byte| byte == b'\n')
    }

    fn read(&mut self) {
        let mut chunk = [0; CHUNK];
        match self.stream.read(&mut chunk) {
            Ok(0) => self.ended = true,
            Ok(count) => self.input.extend_from_slice(&chunk[..count]),
            Err(error) => self.failed(&error),
        }
    }

    /// Answers the first whole request, if there is one.
    fn answer(&mut self, now: Instant, answer: &mut dyn FnMut(Command) -> Reply) {
        let end = self.line_end();
        self.output = if end.unwrap_or(self.input.len()) > protocol::LONGEST_REQUEST {
            self.dismissed = true;
            match self.scx_stats {
                Some(_) => scx_stats::refusal("the request is too long"),
                None => Reply::too_long().line(),
            }
        } else if let Some(end) = end {
            let line: Vec<u8> = self.input.drain(..=end).collect();
            match &mut self.scx_stats {
                Some(session) => session.answer(&line, answer),
                None => match protocol::parse(&line) {
                    Ok(command) => answer(command).line(),
                    Err(reply) => reply.line(),
                },
            }
        } else {
            return;
        };
        self.heard = now;
    }

    fn write(&mut self) {
        match self.stream.write(&self.output) {
            Ok(count) => drop(self.output.drain(..count)),
            Err(error) => self.failed(&error),
        }
    }

    fn failed(&mut self, error: &io::Error) {
        use io::ErrorKind::{Interrupted, WouldBlock};
        self.broken |= !matches!(error.kind(), Interrupted | WouldBlock);
    }
}
