// SPDX-License-Identifier: GPL-2.0-only
//! Packets that arrive: data, and what their ACKs say about the path.

use super::{MOST_WINDOW, MSS, Received, Segment, State, Tcp};
use corun_model::Nanos;

impl Tcp {
    /// A packet arrived.
    pub fn receive(&mut self, now: Nanos, segment: &Segment) -> Received {
        if segment.syn {
            return self.receive_syn(now, segment);
        }
        if segment.generation != self.generation || self.state != State::Open {
            return Received::default();
        }
        self.acknowledged(now, segment);
        if segment.len == 0 {
            return Received::default();
        }
        let mut received = Received::default();
        if segment.seq == self.rcv_nxt {
            self.rcv_nxt += segment.len;
            self.delivered += segment.len;
            // A delayed ACK echoes the oldest of the packets that it acknowledges (RFC 7323, section 4.3).
            if self.acks.is_clear() {
                self.echo = segment.stamp;
            }
            if segment.messages > 0 {
                received.messages = segment.messages;
                received.bytes = segment.last_end - self.message_end;
                self.message_end = segment.last_end;
                if !self.reads_at_once {
                    self.unread += received.bytes;
                }
            }
        } else {
            debug_assert!(segment.seq + segment.len <= self.rcv_nxt, "lost a packet");
            self.acks.again();
        }
        if self.acks.data(now, segment.len) {
            received.answer = Some(self.bare(now));
        }
        received
    }

    fn receive_syn(&mut self, now: Nanos, segment: &Segment) -> Received {
        let mut received = Received::default();
        if !self.initiator {
            if segment.generation > self.generation {
                self.renew(segment.generation, State::Open);
                received.reset = true;
            }
            if segment.generation == self.generation {
                self.echo = segment.stamp;
                let answer = self.bare(now);
                received.answer = Some(Segment {
                    syn: true,
                    ..answer
                });
            }
        } else if self.state == State::Opening && segment.generation == self.generation {
            self.state = State::Open;
            self.backoff = 0;
            self.timeout_at = None;
            self.last_sent = now;
            self.echo = segment.stamp;
            self.sample(now.saturating_sub(segment.echo));
            received.answer = Some(self.bare(now));
        }
        received
    }

    fn acknowledged(&mut self, now: Nanos, segment: &Segment) {
        if self.srtt == 0 {
            // The answer to the answer to the first packet.
            self.sample(now.saturating_sub(segment.echo));
        }
        self.limit = self.limit.max(segment.ack + segment.window);
        let acked = segment.ack.saturating_sub(self.una);
        if acked == 0 {
            return;
        }
        self.una = segment.ack;
        self.resend = self.resend.max(self.una);
        while self.ends.front().is_some_and(|end| *end <= self.una) {
            self.ends.pop_front();
        }
        self.backoff = 0;
        self.sample(now.saturating_sub(segment.echo));
        self.end_of_loss(segment.echo);
        self.grow(acked);
        let rto = self.rto();
        self.timeout_at = (self.una < self.nxt).then_some(now + rto);
    }

    /// New data is acknowledged after a time-out: was the time-out spurious, or is recovery over?
    fn end_of_loss(&mut self, echo: Nanos) {
        let Some((since, cwnd, ssthresh)) = self.loss else {
            return;
        };
        if self.params.undo && echo < since {
            // The ACK answers what was sent before the time-out.
            self.cwnd = cwnd;
            self.ssthresh = ssthresh;
            self.resend = self.nxt;
            self.loss = None;
        } else if self.resend == self.nxt {
            self.loss = None;
        }
    }

    fn grow(&mut self, acked: u64) {
        if self.cwnd < self.ssthresh {
            if 2 * self.flown > self.cwnd {
                self.cwnd += acked;
            }
        } else if self.flown + MSS > self.cwnd {
            self.cwnd += (MSS * acked / self.cwnd).max(1);
        }
        self.cwnd = self.cwnd.min(MOST_WINDOW);
    }

    /// RFC 6298, section 2.
    fn sample(&mut self, rtt: Nanos) {
        let rtt = rtt.max(1);
        if self.srtt == 0 {
            (self.srtt, self.rttvar) = (rtt, rtt / 2);
            return;
        }
        self.rttvar = (3 * self.rttvar + self.srtt.abs_diff(rtt)) / 4;
        self.srtt = (7 * self.srtt + rtt) / 8;
    }
}
