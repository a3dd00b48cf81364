// SPDX-License-Identifier: GPL-2.0-only
//! One end of a TCP connection.
//!
//! Problem: a vCPU that is off its pCPU takes no interrupts, so nothing is acknowledged meanwhile;
//! after the retransmission time-out the other end sends again what was never lost, and starts over
//! slowly. That depends on only a few rules of TCP, and these are modelled here: initial window and
//! slow start (RFC 6928, RFC 5681), the receiver's window, round-trip times and time-outs (RFC 6298
//! with Linux's floor under the variance, `__tcp_set_rto`), their exponential back-off, and the
//! undoing of time-outs that timestamps show to be spurious (RFC 3522, `tcp_try_undo_loss`).
//!
//! The network of this model loses and reorders nothing, so what is sent again is always a duplicate, and there is no
//! fast retransmit. Also left out: CUBIC, pacing, Nagle, waiting for room for a
//! larger send (`tcp_tso_should_defer()`), and autotuning of the window.
//!
//! A packet here is what a guest's kernel handles at once: up to [`MOST_PACKET`] bytes, which the
//! NIC cuts into frames (TSO) and puts together again (GRO).

use acks::Acks;
use corun_model::Nanos;
use std::collections::VecDeque;

mod acks;
mod receive;
mod send;
#[cfg(test)]
mod tests;

/// Payload of a full frame: 1500 bytes less IP, TCP and timestamps.
pub(crate) const MSS: u64 = 1448;
/// The longest packet: 64 KiB in whole segments.
pub(crate) const MOST_PACKET: u64 = 65_536 / MSS * MSS;
/// Segments that may be sent before the first ACK (`TCP_INIT_CWND`, RFC 6928).
const INITIAL_WINDOW: u64 = 10 * MSS;
/// The longest time-out (`TCP_RTO_MAX`).
const LONGEST_RTO: Nanos = 120_000_000_000;
/// No window needs to be larger.
const MOST_WINDOW: u64 = 1 << 30;

/// What both ends of all connections have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpParams {
    /// Floor under the variance in the retransmission time-out: the time-out is never shorter than
    /// the round-trip time plus this. 200 ms: `TCP_RTO_MIN`.
    pub min_rto: Nanos,
    /// Time-out of a connection's first packet. 1 s: `TCP_TIMEOUT_INIT` since 3.1, before that 3 s.
    pub first_rto: Nanos,
    /// Bytes that a receiver holds for its program, and a sender for the network, 64 KiB to 6 MiB.
    /// 512 KiB, assumed: between the 64 KiB that Linux begins with and the 6 MiB (`tcp_rmem`) up to
    /// which it tunes itself.
    pub window: u64,
    /// The longest that an ACK waits for something to be sent with, 0 to 200 ms; 0: every packet is acknowledged at
    /// once. 40 ms: `TCP_DELACK_MIN`.
    pub ack_delay: Nanos,
    /// Is a time-out undone that timestamps show to be spurious? Default: yes, `tcp_timestamps` is
    /// on.
    pub undo: bool,
}

impl Default for TcpParams {
    fn default() -> Self {
        Self {
            min_rto: 200_000_000,
            first_rto: 1_000_000_000,
            window: 512 << 10,
            ack_delay: 40_000_000,
            undo: true,
        }
    }
}

/// A TCP packet: data, an ACK, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Which of the connections that follow each other between the two ends.
    pub generation: u32,
    /// Opens a connection, or answers such a packet.
    pub syn: bool,
    pub seq: u64,
    pub len: u64,
    /// Messages that end in it, and where the last one does.
    pub messages: u32,
    pub last_end: u64,
    pub ack: u64,
    pub window: u64,
    /// When it was sent, and when the packet was sent that it answers (the timestamps option).
    pub stamp: Nanos,
    pub echo: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    /// The first packet is on its way if the timer is armed, else still to be sent.
    Opening,
    Open,
}

/// What a packet brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Received {
    /// Messages that are complete now, and their bytes.
    pub messages: u32,
    pub bytes: u64,
    /// To be sent at once.
    pub answer: Option<Segment>,
    /// The other end opened a new connection; what was under way is void.
    pub reset: bool,
}

/// One end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Tcp {
    params: TcpParams,
    initiator: bool,
    reads_at_once: bool,
    generation: u32,
    state: State,
    /// First byte not acknowledged, first one not sent, first one to be sent again (if before
    /// that), end of what the program has written.
    una: u64,
    nxt: u64,
    resend: u64,
    written: u64,
    /// Ends of the messages not acknowledged yet.
    ends: VecDeque<u64>,
    cwnd: u64,
    ssthresh: u64,
    /// Bytes under way when a packet was sent last: how much of the window is used
    /// (`tcp_cwnd_validate`).
    flown: u64,
    /// Up to where the other end allows data to be sent.
    limit: u64,
    /// Smoothed round-trip time and its variance; none measured yet: 0.
    srtt: Nanos,
    rttvar: Nanos,
    backoff: u32,
    timeout_at: Option<Nanos>,
    last_sent: Nanos,
    /// The first time-out from which the connection has not recovered: when it was, and the window
    /// and threshold before.
    loss: Option<(Nanos, u64, u64)>,
    rcv_nxt: u64,
    acks: Acks,
    /// Where the last message that arrived ended, and bytes the program has not taken.
    message_end: u64,
    unread: u64,
    /// The window when an ACK was sent last.
    advertised: u64,
    echo: Nanos,
    /// Segments sent again.
    pub retransmissions: u64,
    /// Bytes received, duplicates not counted.
    pub delivered: u64,
}

impl Tcp {
    pub fn new(params: TcpParams, initiator: bool) -> Self {
        Self {
            params,
            initiator,
            reads_at_once: false,
            generation: 0,
            state: State::Closed,
            una: 0,
            nxt: 0,
            resend: 0,
            written: 0,
            ends: VecDeque::new(),
            cwnd: INITIAL_WINDOW,
            ssthresh: MOST_WINDOW,
            flown: 0,
            limit: params.window,
            srtt: 0,
            rttvar: 0,
            backoff: 0,
            timeout_at: None,
            last_sent: 0,
            loss: None,
            rcv_nxt: 0,
            acks: Acks::new(params.ack_delay),
            message_end: 0,
            unread: 0,
            advertised: params.window,
            echo: 0,
            retransmissions: 0,
            delivered: 0,
        }
    }

    /// The end of a program that takes at once what arrives, so that its window is always open.
    pub fn reading_at_once(self) -> Self {
        Self {
            reads_at_once: true,
            ..self
        }
    }

    /// Which connection this is.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Begins anew, as a connection of this generation.
    fn renew(&mut self, generation: u32, state: State) {
        *self = Self {
            generation,
            state,
            reads_at_once: self.reads_at_once,
            retransmissions: self.retransmissions,
            delivered: self.delivered,
            ..Self::new(self.params, self.initiator)
        };
    }

    /// Opens a connection; a connection that is open is given up.
    pub fn open(&mut self) {
        self.renew(self.generation + 1, State::Opening);
    }

    /// Was it ever opened?
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Bytes written and not acknowledged.
    pub fn backlog(&self) -> u64 {
        self.written - self.una
    }

    /// Bytes that the program may write now.
    pub fn room(&self) -> u64 {
        self.params.window.saturating_sub(self.backlog())
    }

    /// Is there enough room to wake a program that waits for some? (`sk_stream_write_space`)
    pub fn writable(&self) -> bool {
        3 * self.room() >= self.params.window
    }

    /// The program writes `bytes`, the last of a message or not.
    pub fn write(&mut self, bytes: u64, last: bool) {
        self.written += bytes;
        if last {
            self.ends.push_back(self.written);
        }
    }

    /// The program takes a message. Returns what to send if the other end must be told that there
    /// is room again.
    pub fn take(&mut self, now: Nanos, bytes: u64) -> Option<Segment> {
        self.unread = self.unread.saturating_sub(bytes);
        let half = self.params.window / 2;
        (self.advertised < half && self.window() >= half).then(|| self.bare(now))
    }

    fn window(&self) -> u64 {
        self.params.window.saturating_sub(self.unread)
    }

    /// A packet without data.
    fn bare(&mut self, now: Nanos) -> Segment {
        self.acks.sent(now, false);
        self.advertised = self.window();
        Segment {
            generation: self.generation,
            syn: false,
            seq: self.nxt,
            len: 0,
            messages: 0,
            last_end: 0,
            ack: self.rcv_nxt,
            window: self.advertised,
            stamp: now,
            echo: self.echo,
        }
    }
}
