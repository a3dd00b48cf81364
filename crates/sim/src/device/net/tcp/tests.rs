// SPDX-License-Identifier: GPL-2.0-only
//! What TCP does, compared by hand with what the RFCs say.

use super::*;
use corun_model::time::MS;
use proptest::prelude::*;

const PARAMS: TcpParams = TcpParams {
    min_rto: 200 * MS,
    first_rto: 1000 * MS,
    window: 6 << 20,
    ack_delay: 40 * MS,
    undo: true,
};

/// Everything that may be sent now.
fn sent(tcp: &mut Tcp, now: Nanos) -> Vec<Segment> {
    std::iter::from_fn(|| tcp.next_packet(now)).collect()
}

fn bytes(segments: &[Segment]) -> u64 {
    segments.iter().map(|segment| segment.len).sum()
}

/// Two ends with a connection; its handshake took 1 ms, ending at 1 ms.
fn connected(params: TcpParams) -> (Tcp, Tcp) {
    let mut client = Tcp::new(params, true);
    let mut server = Tcp::new(params, false).reading_at_once();
    client.open();
    let syn = client.next_packet(0).unwrap();
    let answer = server.receive(0, &syn).answer.unwrap();
    let last = client.receive(MS, &answer).answer.unwrap();
    server.receive(MS, &last);
    (client, server)
}

/// Five requests of 100 bytes, each answered 1 ms later; how many packets each end sent after the handshake.
fn requests(params: TcpParams) -> (usize, usize) {
    let (mut client, mut server) = connected(params);
    let (mut from_client, mut from_server) = (0, 0);
    let mut now = 10 * MS;
    for _ in 0..5 {
        client.write(100, true);
        for segment in sent(&mut client, now) {
            from_client += 1;
            let received = server.receive(now, &segment);
            assert_eq!(received.messages, 1);
            if let Some(ack) = received.answer {
                from_server += 1;
                client.receive(now, &ack);
            }
        }
        now += MS;
        server.write(500, true);
        for segment in sent(&mut server, now) {
            from_server += 1;
            if let Some(ack) = client.receive(now, &segment).answer {
                from_client += 1;
                server.receive(now, &ack);
            }
        }
        now += MS;
    }
    assert_eq!(
        (client.retransmissions, server.backlog()),
        (0, if params.ack_delay > 0 { 500 } else { 0 })
    );
    (from_client, from_server)
}

#[test]
fn an_answer_carries_the_acknowledgement() {
    let at_once = TcpParams {
        ack_delay: 0,
        ..PARAMS
    };
    assert_eq!(requests(at_once), (10, 10));
    // The first packet each way finds an end that has not answered anything yet.
    assert_eq!(requests(PARAMS), (6, 6));
}

/// A connection whose server has answered, and a request of `len` bytes at 20 ms.
fn asked(len: u64) -> (Tcp, Received) {
    let (mut client, mut server) = connected(PARAMS);
    client.write(100, true);
    let first = sent(&mut client, MS);
    acknowledge(&mut client, &mut server, &first, MS);
    server.write(100, true);
    for segment in sent(&mut server, MS) {
        client.receive(MS, &segment);
    }
    client.write(len, true);
    let mut last = Received::default();
    for segment in sent(&mut client, 20 * MS) {
        last = server.receive(20 * MS, &segment);
    }
    (server, last)
}

#[test]
fn without_an_answer_an_ack_leaves_after_40_ms() {
    let (mut server, received) = asked(100);
    assert_eq!(received.answer, None);
    assert_eq!(server.timer_at(), Some(60 * MS));
    let ack = server.timer(60 * MS).unwrap();
    assert_eq!((ack.len, server.timer_at()), (0, None));
}

#[test]
fn more_than_a_full_frame_is_acknowledged_at_once() {
    assert_eq!(asked(MSS).1.answer, None);
    assert!(asked(3 * MSS).1.answer.is_some());
}

/// The server's ACKs of these packets, received by the client at `now`.
fn acknowledge(client: &mut Tcp, server: &mut Tcp, segments: &[Segment], now: Nanos) {
    for segment in segments {
        let answer = server.receive(now, segment).answer.unwrap();
        client.receive(now, &answer);
    }
}

#[test]
fn slow_start_doubles_the_window_each_round_trip() {
    let (mut client, mut server) = connected(PARAMS);
    client.write(1 << 30, true);
    let mut now = MS;
    for round in 0..5 {
        let flight = sent(&mut client, now);
        assert_eq!(bytes(&flight), (10 << round) * MSS, "round {round}");
        assert!(flight.iter().all(|segment| segment.len <= MOST_PACKET));
        now += MS;
        acknowledge(&mut client, &mut server, &flight, now);
    }
    assert_eq!(server.delivered, 310 * MSS);
}

#[test]
fn the_receivers_window_limits() {
    let params = TcpParams {
        window: 64 << 10,
        ..PARAMS
    };
    let mut client = Tcp::new(params, true);
    let mut server = Tcp::new(params, false);
    client.open();
    let syn = client.next_packet(0).unwrap();
    let answer = server.receive(0, &syn).answer.unwrap();
    client.receive(0, &answer);
    for _ in 0..100 {
        client.write(8 << 10, true);
    }
    let mut messages = 0;
    for now in 1..100 {
        for segment in sent(&mut client, now) {
            let received = server.receive(now, &segment);
            messages += received.messages;
            client.receive(now, &received.answer.unwrap());
        }
    }
    assert_eq!(messages, 8, "64 KiB of messages that nobody takes");
    let updates: Vec<_> = (0..4)
        .map(|_| server.take(100, 8 << 10).is_some())
        .collect();
    assert_eq!(updates, [false, false, false, true], "when half is free");
}

#[test]
fn time_outs_double_from_the_round_trip_time_and_200_ms() {
    let (mut client, _) = connected(PARAMS);
    client.write(100, true);
    assert_eq!(bytes(&sent(&mut client, 5 * MS)), 100);
    // The round trip took 1 ms, its variance is below the floor.
    let mut at = 5 * MS;
    for factor in [1, 2, 4, 8, 16] {
        at += 201 * MS * factor;
        assert_eq!(client.timeout_at(), Some(at));
        client.timed_out(at);
        let again = sent(&mut client, at);
        assert_eq!((again.len(), again[0].seq, again[0].len), (1, 0, 100));
    }
    assert_eq!(client.retransmissions, 5);
    for _ in 0..10 {
        client.timed_out(at);
        sent(&mut client, at);
    }
    assert_eq!(client.timeout_at(), Some(at + LONGEST_RTO));
}

#[test]
fn connections_begin_with_a_second_of_patience() {
    let mut client = Tcp::new(PARAMS, true);
    client.open();
    client.write(100, true);
    let first = sent(&mut client, 0);
    assert!(first.len() == 1 && first[0].syn && first[0].len == 0);
    assert_eq!(client.timeout_at(), Some(1000 * MS));
    client.timed_out(1000 * MS);
    assert_eq!(sent(&mut client, 1000 * MS).len(), 1);
    assert_eq!(client.timeout_at(), Some(3000 * MS));
    let mut server = Tcp::new(PARAMS, false);
    let answer = server.receive(1100 * MS, &first[0]).answer.unwrap();
    client.receive(1100 * MS, &answer);
    assert_eq!(bytes(&sent(&mut client, 1100 * MS)), 100);
}

/// A flight of ten segments whose ACKs come after the time-out; what is sent at the time-out and
/// after the ACKs.
fn late_acks(undo: bool) -> (u64, u64, Tcp) {
    let params = TcpParams { undo, ..PARAMS };
    let (mut client, mut server) = connected(params);
    client.write(1 << 20, true);
    let flight = sent(&mut client, MS);
    client.timed_out(202 * MS);
    let again = sent(&mut client, 202 * MS);
    acknowledge(&mut client, &mut server, &flight, 203 * MS);
    let after = sent(&mut client, 203 * MS);
    // The duplicate does no harm.
    let received = server.receive(204 * MS, &again[0]);
    assert_eq!((received.messages, received.bytes), (0, 0));
    assert_eq!(server.delivered, 10 * MSS);
    (bytes(&again), bytes(&after), client)
}

#[test]
fn a_spurious_time_out_starts_over_with_one_segment() {
    let (again, after, client) = late_acks(false);
    // One segment again, and slow start from there: the ACK of ten counts as ten, as in Linux.
    assert_eq!((again, after), (MSS, 11 * MSS));
    assert_eq!(client.ssthresh, 5 * MSS);
    assert_eq!(client.retransmissions, 1);
}

#[test]
fn timestamps_undo_a_spurious_time_out() {
    let (again, after, client) = late_acks(true);
    // The window is what it was.
    assert_eq!((again, after), (MSS, 10 * MSS));
    assert_eq!(client.ssthresh, MOST_WINDOW);
}

#[test]
fn a_new_connection_voids_the_old_one() {
    let (mut client, mut server) = connected(PARAMS);
    client.write(100, true);
    let old = sent(&mut client, MS);
    client.open();
    client.write(200, true);
    let syn = sent(&mut client, 2 * MS);
    let received = server.receive(2 * MS, &syn[0]);
    assert!(received.reset);
    assert_eq!(server.receive(2 * MS, &old[0]), Received::default());
    client.receive(2 * MS, &received.answer.unwrap());
    let new = sent(&mut client, 3 * MS);
    let received = server.receive(3 * MS, &new[0]);
    assert_eq!((received.messages, received.bytes), (1, 200));
}

proptest! {
    /// Whatever is written, however late packets are seen: all messages arrive, once, in order.
    #[test]
    fn every_message_arrives_once(
        sizes in prop::collection::vec(1u64..300_000, 1..40),
        stalls in prop::collection::vec(0u64..600, 1..40),
        window in (64u64 << 10)..(6 << 20),
        undo in any::<bool>(),
    ) {
        let (mut client, mut server) = connected(TcpParams { window, undo, ..PARAMS });
        sizes.iter().for_each(|size| client.write(*size, true));
        let (mut now, mut messages, mut total) = (MS, 0, 0);
        let mut flight: VecDeque<Segment> = VecDeque::new();
        for stall in stalls.iter().cycle().take(10_000) {
            flight.extend(sent(&mut client, now));
            now += stall * MS;
            while let Some(at) = client.timeout_at().filter(|at| *at <= now) {
                client.timed_out(at);
                flight.extend(sent(&mut client, at));
            }
            for segment in flight.drain(..) {
                let received = server.receive(now, &segment);
                messages += received.messages as usize;
                total += received.bytes;
                client.receive(now + 1, &received.answer.unwrap());
            }
            now += 1;
            if messages == sizes.len() {
                break;
            }
        }
        prop_assert_eq!(messages, sizes.len());
        prop_assert_eq!(total, sizes.iter().sum::<u64>());
        prop_assert_eq!(server.delivered, total);
        prop_assert_eq!(client.backlog(), 0);
        prop_assert_eq!(client.timeout_at(), None);
    }
}
