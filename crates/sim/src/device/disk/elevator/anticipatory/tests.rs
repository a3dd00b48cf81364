// SPDX-License-Identifier: GPL-2.0-only
//! CFQ's rules, each on its own, with the clock of 250 ticks per second.

use super::*;
use corun_model::time::MS;

const SHARES: [Share; 2] = [Share {
    weight: 100,
    quota: None,
}; 2];

fn cfq(params: AnticipatoryParams, solid: bool) -> Anticipatory {
    Anticipatory::new(params, &SHARES, solid)
}

fn request(owner: u32, start: u64, arrived: Nanos) -> Request {
    Request {
        owner,
        id: 0,
        start,
        bytes: 1 << 17,
        write: false,
        arrived,
    }
}

/// The request that the disk gets now.
fn served(cfq: &mut Anticipatory, now: Nanos) -> Request {
    match cfq.next(now) {
        Next::Serve(request) => request,
        other => panic!("{other:?} at {now}"),
    }
}

/// Adds a request, which the disk gets at once.
fn read(cfq: &mut Anticipatory, now: Nanos, owner: u32, start: u64) -> Request {
    cfq.add(now, request(owner, start, now));
    served(cfq, now)
}

/// VM 0's reader has just had an answer at `now`, and VM 1 has asked.
fn one_waits_for_the_other(cfq: &mut Anticipatory, now: Nanos) {
    let first = read(cfq, now, 0, 0);
    cfq.add(now, request(1, 1 << 35, now));
    cfq.done(now, &first);
}

#[test]
fn the_window_ends_with_the_second_tick() {
    for (asked, end) in [(0, 8), (1, 8), (3, 8), (4, 12), (7, 12)] {
        let mut cfq = cfq(AnticipatoryParams::default(), false);
        one_waits_for_the_other(&mut cfq, asked * MS);
        assert_eq!(cfq.next(asked * MS), Next::Hold(Some(end * MS)));
        assert_eq!(served(&mut cfq, end * MS).owner, 1);
    }
    // With 1000 ticks per second, the wait is 7 to 8 ms long.
    let mut cfq = cfq(
        AnticipatoryParams {
            tick: MS,
            ..AnticipatoryParams::default()
        },
        false,
    );
    one_waits_for_the_other(&mut cfq, 3 * MS + 1);
    assert_eq!(cfq.next(3 * MS + 1), Next::Hold(Some(11 * MS)));
}

/// A queue that thinks for long is not waited for, unless it is the only queue of its group.
#[test]
fn a_group_is_waited_for_whatever_its_think_time() {
    let window = |group_idle| {
        let params = AnticipatoryParams {
            group_idle,
            ..AnticipatoryParams::default()
        };
        let (mut cfq, mut at) = (cfq(params, false), 0);
        for n in 0..20 {
            let first = read(&mut cfq, at, 0, n << 17);
            cfq.done(at, &first);
            at += 40 * MS;
        }
        assert!(!cfq.queues[0].idle_window && cfq.queues[0].think.valid());
        one_waits_for_the_other(&mut cfq, at);
        match cfq.next(at) {
            Next::Hold(until) => until.map(|until| until - at),
            Next::Serve(request) => (request.owner == 1).then_some(0),
            Next::Empty => None,
        }
    };
    assert_eq!((window(8 * MS), window(0)), (Some(8 * MS), Some(0)));
}

/// Linux 4.4 waits for no queue on a solid-state disk with a command queue.
#[test]
fn nobody_is_waited_for_on_a_solid_disk() {
    for params in [AnticipatoryParams::default(), AnticipatoryParams::solid()] {
        let mut cfq = cfq(params, true);
        one_waits_for_the_other(&mut cfq, MS);
        assert_eq!(served(&mut cfq, MS).owner, 1);
    }
}

/// Without waiting, a solid-state disk's groups are charged by requests, not by time.
#[test]
fn without_windows_requests_are_shared_out() {
    let busy = |params: AnticipatoryParams| {
        let (mut cfq, mut served_of) = (cfq(params, true), [0u64; 2]);
        for n in 0..4000 {
            // A long queue of each; the first VM's requests take the disk twice as long.
            for owner in 0..2 {
                while cfq.queues[owner].waiting.len() < 4 {
                    cfq.add(n * MS, request(owner as u32, n << 20, n * MS));
                }
            }
            let now = served_of[0] * 2 * MS + served_of[1] * MS;
            let next = served(&mut cfq, now);
            served_of[next.owner as usize] += 1;
            let now = served_of[0] * 2 * MS + served_of[1] * MS;
            cfq.done(now, &next);
        }
        served_of[1] as f64 / served_of[0] as f64
    };
    let (requests, time) = (
        busy(AnticipatoryParams::solid()),
        busy(AnticipatoryParams::default()),
    );
    assert!((0.9..1.1).contains(&requests), "{requests}");
    assert!((1.8..2.2).contains(&time), "{time}");
}

/// An idle window that lapses takes back that the queue was once deep (`cfq_clear_cfqq_deep`).
#[test]
fn a_deep_queue_that_lets_its_window_lapse_is_none() {
    let mut cfq = cfq(AnticipatoryParams::default(), false);
    for n in 0..4 {
        cfq.add(0, request(0, n << 17, 0));
    }
    assert!(cfq.queues[0].deep);
    for _ in 0..4 {
        let next = served(&mut cfq, 0);
        cfq.done(0, &next);
    }
    assert!(cfq.queues[0].deep);
    cfq.add(20 * MS, request(1, 0, 20 * MS));
    assert!(!cfq.queues[0].deep);
}

/// A slice with one tick left is stretched to keep the group its place (`cfq_should_wait_busy`), but
/// not charged for more than it was meant to be.
#[test]
fn a_stretched_slice_is_charged_as_it_was_meant_to_be() {
    let mut cfq = cfq(AnticipatoryParams::default(), false);
    let mut next = read(&mut cfq, 0, 0, 0);
    cfq.add(0, request(1, 1 << 35, 0));
    for tick in 1..25 {
        // Each read takes a tick; the slice lasts from the end of the first one, tick 1, to tick
        // 26.
        cfq.done(tick * 4 * MS, &next);
        next = read(&mut cfq, tick * 4 * MS, 0, tick << 17);
        assert_eq!(next.owner, 0);
    }
    cfq.done(100 * MS, &next);
    assert_eq!(cfq.next(100 * MS), Next::Hold(Some(108 * MS)));
    assert_eq!(served(&mut cfq, 108 * MS).owner, 1);
    assert_eq!(
        cfq.groups.used(0),
        25 << 12,
        "26 ticks, of a group that joined alone"
    );
}
