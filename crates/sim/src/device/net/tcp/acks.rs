// SPDX-License-Identifier: GPL-2.0-only
//! When data is acknowledged: at once, or with what is sent next.
//!
//! Problem: a request and its reply are two packets each way if every packet is acknowledged by one of its own, else
//! one; and handling a packet is a large part of a small request's work. Linux delays an ACK (`__tcp_ack_snd_check()`,
//! net/ipv4/tcp_input.c) on connections whose program answers what it receives (*ping-pong*: it sent data within 40 ms
//! of receiving some, `tcp_event_data_sent()`), until it sends something, more than a full frame is unacknowledged, or
//! 40 ms are over (`TCP_DELACK_MIN`). On other connections each packet is acknowledged: the first sixteen by
//! themselves, later ones too, unless the window has shrunk since the last ACK; then the ACK comes when the program
//! reads. Here each packet is acknowledged by itself, and so each ACK offers the window less what the program has yet
//! to read.
//!
//! Left out: that Linux 5.1 to 5.18 wants three answers before it believes (`TCP_PINGPONG_THRESH`), and longer delays
//! for round trips of more than 320 ms.

use super::MSS;
use corun_model::Nanos;

/// The assumed length of a full frame before longer ones are seen (`TCP_MSS_DEFAULT`).
const LEAST_FRAME: u64 = 536;

/// What an end of a connection has received and not acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Acks {
    /// The longest that an ACK is delayed; 0: every packet is acknowledged at once.
    delay: Nanos,
    /// Bytes received since a packet was sent last.
    owed: u64,
    /// By when they must be acknowledged.
    due: Option<Nanos>,
    /// When data came last.
    received: Option<Nanos>,
    /// Does the program answer what it receives?
    answers: bool,
    /// Bytes of a full frame.
    frame: u64,
}

impl Acks {
    pub fn new(delay: Nanos) -> Self {
        Self {
            delay,
            owed: 0,
            due: None,
            received: None,
            answers: false,
            frame: LEAST_FRAME,
        }
    }

    /// When an ACK must leave, if one is delayed.
    pub fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// Is everything acknowledged?
    pub fn is_clear(&self) -> bool {
        self.owed == 0
    }

    /// New data came; is it acknowledged at once?
    pub fn data(&mut self, now: Nanos, len: u64) -> bool {
        self.frame = self.frame.max(len.min(MSS));
        self.owed += len;
        self.received = Some(now);
        if !self.answers || self.owed > self.frame || self.delay == 0 {
            return true;
        }
        self.due.get_or_insert(now + self.delay);
        false
    }

    /// Data came that had been received already: the other end waits for an ACK (`tcp_enter_quickack_mode()`).
    pub fn again(&mut self) {
        self.answers = false;
    }

    /// A packet leaves, which acknowledges everything; with data it may be an answer.
    pub fn sent(&mut self, now: Nanos, with_data: bool) {
        let soon = |at: Nanos| now.saturating_sub(at) < self.delay;
        self.answers |= with_data && self.received.is_some_and(soon);
        self.owed = 0;
        self.due = None;
    }
}
