// SPDX-License-Identifier: GPL-2.0-only
//! What may be sent when, and what happens when it is not acknowledged in time.

use super::{INITIAL_WINDOW, LONGEST_RTO, MOST_PACKET, MSS, Segment, State, Tcp};
use corun_model::Nanos;

impl Tcp {
    /// When [`Self::timer`] is to be called next, if it is.
    pub fn timer_at(&self) -> Option<Nanos> {
        let both = [self.timeout_at, self.acks.due()];
        both.into_iter().flatten().min()
    }

    /// A timer is due: an ACK that was delayed, to be sent now, or the retransmission timer.
    pub fn timer(&mut self, now: Nanos) -> Option<Segment> {
        let is_due = |at: Option<Nanos>| at.is_some_and(|at| at <= now);
        if is_due(self.timeout_at) {
            self.timed_out(now);
        }
        is_due(self.acks.due()).then(|| self.bare(now))
    }

    /// When the retransmission timer goes off, if it is armed.
    #[cfg(test)]
    pub fn timeout_at(&self) -> Option<Nanos> {
        self.timeout_at
    }

    pub(super) fn rto(&self) -> Nanos {
        let base = match self.srtt {
            0 => self.params.first_rto,
            srtt => srtt + (4 * self.rttvar).max(self.params.min_rto),
        };
        (base << self.backoff.min(20)).min(LONGEST_RTO)
    }

    /// The next packet that may be sent now. Ask again until there is none.
    pub fn next_packet(&mut self, now: Nanos) -> Option<Segment> {
        if self.state == State::Opening && self.timeout_at.is_none() {
            self.timeout_at = Some(now + self.rto());
            let syn = self.bare(now);
            return Some(Segment { syn: true, ..syn });
        }
        if self.state != State::Open {
            return None;
        }
        let again = self.resend < self.nxt;
        let (from, to) = match again {
            true => (self.resend, self.nxt),
            false => (self.nxt, self.written),
        };
        if self.una == self.nxt && now.saturating_sub(self.last_sent) > self.rto() {
            // `tcp_slow_start_after_idle`
            self.cwnd = self.cwnd.min(INITIAL_WINDOW);
        }
        let len = self.sendable(from, to);
        if len == 0 {
            return None;
        }
        if again {
            self.retransmissions += len.div_ceil(MSS);
            self.resend += len;
        } else {
            self.nxt += len;
            self.resend = self.nxt;
        }
        self.flown = from + len - self.una;
        self.last_sent = now;
        let rto = self.rto();
        self.timeout_at.get_or_insert(now + rto);
        self.acks.sent(now, true);
        let bare = self.bare(now);
        // The ends are in order, and with one-byte messages there are as many as bytes under way.
        let ended = |by: u64| self.ends.partition_point(|end| *end <= by);
        let within = ended(from)..ended(from + len);
        Some(Segment {
            seq: from,
            len,
            messages: within.len() as u32,
            last_end: within.last().map_or(0, |last| self.ends[last]),
            ..bare
        })
    }

    /// How much of the bytes `from` to `to` may be sent at once: whole segments, unless these bytes
    /// are all that is left or nothing else is under way.
    fn sendable(&self, from: u64, to: u64) -> u64 {
        let until = (self.una + self.cwnd).min(self.limit);
        let len = (to - from).min(until.saturating_sub(from)).min(MOST_PACKET);
        match len {
            len if len == to - from => len,
            len if len >= MSS => len - len % MSS,
            len if from == self.una => len,
            _ => 0,
        }
    }

    /// The retransmission timer went off: everything not acknowledged counts as lost.
    pub(super) fn timed_out(&mut self, now: Nanos) {
        self.timeout_at = None;
        self.backoff += 1;
        if self.state == State::Opening {
            self.retransmissions += 1;
            return;
        }
        if self.loss.is_none() {
            self.loss = Some((now, self.cwnd, self.ssthresh));
            self.ssthresh = ((self.nxt - self.una) / 2).max(2 * MSS);
        }
        self.cwnd = MSS;
        self.resend = self.una;
    }
}
