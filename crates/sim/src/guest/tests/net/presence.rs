// SPDX-License-Identifier: GPL-2.0-only
//! Clients that come and go. What is measured is the second from 100.3 ms on.

use super::*;

/// When the measured second begins.
const BEGIN: Nanos = 100 * MS + 3 * MS / 10;

fn stay(start: Nanos, stop: Option<Nanos>, turns: Option<(Nanos, Nanos)>) -> Presence {
    Presence { start, stop, turns }
}

/// What one client sees of a VM with this program.
fn seen(program: &str, client: ClientSpec, presence: Presence) -> Outcome {
    let client = ClientSpec { presence, ..client };
    run_net(
        1,
        10 * MS,
        vec![vm("a", quick(), &[program])],
        &network(vec![client]),
    )
}

#[test]
fn each_kind_does_its_part_of_the_time() {
    let bulk = ClientKind::Stream {
        port: "web".into(),
        connections: 1,
    };
    let kinds = [
        (ECHO, closed(0, 3, Some("1ms"))),
        (ECHO, open(0, "1ms")),
        ("loop { compute 1ms }", ping(0)),
        ("loop { request web; count }", client(0, bulk)),
    ];
    let presences = [
        (stay(0, Some(BEGIN), None), 0.0),
        (stay(2 * SEC, None, None), 0.0),
        (stay(BEGIN + 250 * MS, Some(BEGIN + 500 * MS), None), 0.25),
        (stay(0, None, Some((100 * MS, 100 * MS))), 0.5),
        (
            stay(0, Some(BEGIN + 500 * MS), Some((50 * MS, 150 * MS))),
            0.1,
        ),
    ];
    for (program, client) in kinds {
        let work = |presence| {
            let outcome = seen(program, client.clone(), presence);
            let client = &outcome.clients[0];
            assert_eq!((client.timeouts, client.retransmissions), (0, 0));
            match client.responses.count() {
                0 => client.bytes as f64,
                count => count as f64,
            }
        };
        let all = work(Presence::default());
        for (presence, share) in &presences {
            let part = work(*presence) / all;
            // What a stream has sent when it goes still arrives: half a megabyte, 4 ms.
            assert!(
                (part - share).abs() < 0.02,
                "{:?} {presence:?}: {part}",
                client.kind
            );
        }
    }
}

/// The server goes on with what it has begun, but the client does not learn of it, and it is not
/// counted.
#[test]
fn a_client_that_goes_gives_up_what_is_under_way() {
    let program = "loop { request web; compute 8ms; reply web 100B; count }";
    let turns = Some((5 * MS, 15 * MS));
    let mut patient = requests(1, Pace::Think(None));
    patient.timeout = Some(10 * SEC);
    for client in [client_of(patient), open(0, "3ms")] {
        let outcome = seen(program, client, stay(0, None, turns));
        let client = &outcome.clients[0];
        assert_eq!((client.responses.count(), client.timeouts), (0, 0));
        let served = throughput(&outcome, 0);
        assert!((49.0..=51.0).contains(&served), "{served}");
    }
}

/// A closed loop of one user, whose request takes 1 ms and a round trip, comes for 10 ms at a time.
#[test]
fn a_client_that_comes_back_connects_anew() {
    let program = "loop { request web; compute 1ms; reply web 100B; count }";
    let first = |turns| {
        let outcome = seen(program, closed(0, 1, None), stay(0, None, turns));
        outcome.clients[0].responses.max()
    };
    // One more round trip of bare frames for the connection, and the ACK before the request.
    let handshake = 2 * (90 * 8 + 60 * US) + 90 * 8;
    let (stays, returns) = (first(None), first(Some((10 * MS, 10 * MS))));
    assert!(
        near(returns, stays + handshake),
        "{returns}, {stays} for one that stays"
    );
}
