// SPDX-License-Identifier: GPL-2.0-only
//! A wire: one direction of the host's NIC, which sends one packet after the other.

use super::tcp::{MSS, Segment};
use super::{Body, Packet};
use corun_model::Nanos;

/// What a frame takes on the wire besides TCP's payload: Ethernet 38 bytes (preamble, header,
/// checksum, gap), IP 20, TCP with timestamps 32.
const FRAME: u64 = 38 + 20 + 32;
/// An ICMP echo with the 56 bytes that `ping` sends: Ethernet 38, IP 20, ICMP 8.
const ECHO: u64 = 38 + 20 + 8 + 56;

/// One direction of a link.
#[derive(Debug)]
pub(super) struct Wire {
    /// bit/s.
    bandwidth: u64,
    free_at: Nanos,
}

impl Wire {
    pub fn new(bandwidth: u64) -> Self {
        Self {
            bandwidth,
            free_at: 0,
        }
    }

    /// Sends a packet as soon as the wire is free; returns when its last bit is out, at least 1 ns
    /// later: no loop of requests may stand still in time.
    pub fn send(&mut self, now: Nanos, packet: &Packet) -> Nanos {
        let bits = 8 * bytes(packet);
        let takes = u128::from(bits) * 1_000_000_000 / u128::from(self.bandwidth);
        self.free_at = self.free_at.max(now) + (takes as Nanos).max(1);
        self.free_at
    }
}

/// Bytes on the wire: the payload in frames.
fn bytes(packet: &Packet) -> u64 {
    match &packet.body {
        Body::Echo { .. } => ECHO,
        Body::Tcp(Segment { len, .. }) => len + len.div_ceil(MSS).max(1) * FRAME,
    }
}

#[cfg(test)]
mod tests {
    use super::super::End;
    use super::*;

    #[test]
    fn packets_follow_each_other_at_the_bandwidth() {
        let mut wire = Wire::new(1_000_000_000);
        let ping = Packet {
            to: End::Client {
                client: 0,
                connection: 0,
            },
            body: Body::Echo { sent: 0 },
        };
        // 122 bytes of 8 ns each.
        assert_eq!(wire.send(1000, &ping), 1976);
        assert_eq!(wire.send(1000, &ping), 2952);
        assert_eq!(wire.send(5000, &ping), 5976);
    }
}
