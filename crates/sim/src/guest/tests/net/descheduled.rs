// SPDX-License-Identifier: GPL-2.0-only
//! What clients see of vCPUs that are off their pCPUs: it must emerge by itself.

use super::*;

/// Pings to a VM with its own hog that shares a pCPU with so many hogs, in slices of 5 ms.
fn pings_beside(hogs: usize, slice: Nanos) -> (Nanos, Nanos) {
    let mut vms = vec![vm("a", free(), &[HOG])];
    vms.extend((0..hogs).map(|_| vm("b", free(), &[HOG])));
    let outcome = run_net(1, slice, vms, &network(vec![ping(0)]));
    let times = &outcome.clients[0].responses;
    (times.quantile(0.5), times.max())
}

#[test]
fn pings_wait_for_the_vcpus_turn() {
    let alone = pings_beside(0, 5 * MS).1;
    assert!(alone < 200 * US, "{alone}");
    for (hogs, slice) in [(1, 5 * MS), (3, 5 * MS), (3, 10 * MS)] {
        let (_, longest) = pings_beside(hogs, slice);
        let turn = hogs as Nanos * slice;
        assert!(longest > turn * 4 / 5, "{hogs} hogs, {slice}: {longest}");
        assert!(longest < turn + MS, "{hogs} hogs, {slice}: {longest}");
    }
    // Half of the time the pCPU is another VM's: a quarter of the pings waits for longer than half a slice.
    let median = pings_beside(1, 10 * MS).0;
    assert!((100 * US..MS + MS / 2).contains(&median), "{median}");
}

#[test]
fn only_the_vcpu_that_takes_the_interrupt_matters() {
    // vCPU 0 has a pCPU to itself, vCPU 1 shares one with a hog.
    let longest = |irq| {
        let mut params = quick();
        params.net.irq = irq;
        let vms = vec![vm("a", params, &[HOG, HOG]), on(1, vm("b", free(), &[HOG]))];
        let outcome = run_net(2, 20 * MS, vms, &network(vec![ping(0)]));
        outcome.clients[0].responses.max()
    };
    assert!(longest(0) < 200 * US, "{}", longest(0));
    assert!(longest(1) > 15 * MS, "{}", longest(1));
    // With a queue for each vCPU, every second connection waits.
    let mut params = quick();
    params.net.queues = 2;
    let server = || single(vm("a", params, &[ECHO; 4]));
    let mut spread = server();
    spread.vcpus = 2;
    let hog = ThreadSpec {
        name: "hog".into(),
        program: Program::parse(HOG).unwrap(),
        vcpu: Some(1),
    };
    spread.threads.push(hog);
    let vms = vec![spread, on(1, vm("b", free(), &[HOG]))];
    let outcome = run_net(2, 20 * MS, vms, &network(vec![closed(0, 4, Some("1ms"))]));
    let times = &outcome.clients[0].responses;
    assert!(times.quantile(0.5) < MS && times.max() > 15 * MS);
}

/// A server and hogs, with slices of 30 ms: what its client sees in a second.
fn beside_hogs(hogs: usize, undo: bool) -> crate::device::net::ClientOutcome {
    let mut vms = vec![single(vm("a", free(), &[HOG, ECHO]))];
    vms.extend((0..hogs).map(|_| vm("b", free(), &[HOG])));
    let spec = NetworkSpec {
        params: NetworkParams {
            tcp: TcpParams {
                undo,
                ..TcpParams::default()
            },
            ..NetworkParams::default()
        },
        ..network(vec![closed(0, 10, Some("5ms"))])
    };
    let guests = Guests::with_devices(vms, Vec::new(), &[], &spec, 1).unwrap();
    let sched = Box::new(RoundRobin::new(30 * MS));
    let simulation = Simulation::new(machine(1, FREE), sched, Box::new(guests), None);
    let mut outcome = simulation.run(0, 20 * SEC, |_| {});
    outcome.clients.remove(0)
}

#[test]
fn clients_retransmit_what_was_never_lost() {
    // Off for 5 x 30 ms: no ACK is late by more than 200 ms.
    assert_eq!(beside_hogs(5, true).retransmissions, 0);
    // Off for 10 x 30 ms, it is late at first; then the time-out grows with the round trips seen.
    let late = beside_hogs(10, true);
    assert!(late.retransmissions > 10, "{}", late.retransmissions);
    assert!(late.responses.max() > 290 * MS);
    assert_eq!(late.timeouts, 0, "all are answered in the end");
}

#[test]
fn a_guests_own_timer_goes_off_before_it_sees_the_ack() {
    // Its vCPU is off for 300 ms at a time; the ACK is there after 120 us.
    let late = |hogs, undo| {
        let program = "loop { sleep 300us exp; transmit out 64KB; count }";
        let mut vms = vec![single(vm("a", free(), &[HOG, program]))];
        vms.extend((0..hogs).map(|_| vm("b", free(), &[HOG])));
        let mut spec = network(vec![sink(0, "out")]);
        spec.params.tcp.undo = undo;
        let guests = Guests::with_devices(vms, Vec::new(), &[], &spec, 1).unwrap();
        let sched = Box::new(RoundRobin::new(30 * MS));
        let simulation = Simulation::new(machine(1, FREE), sched, Box::new(guests), None);
        simulation.run(0, 20 * SEC, |_| {}).clients.remove(0)
    };
    let (some, none) = (late(10, true), late(5, true));
    assert_eq!(none.retransmissions, 0);
    assert!(some.retransmissions > 0);
    assert!(late(10, false).retransmissions >= some.retransmissions);
}

/// Nothing is lost, and on a LAN slow start takes a millisecond: what a stream loses is its vCPU's
/// share, and time-outs cost little apart from what is sent again.
#[test]
fn bulk_data_gets_its_vcpus_share_and_retransmits() {
    let stream = |hogs: usize, undo| {
        let mut vms = vec![single(vm("a", free(), &["loop { request bulk }", HOG]))];
        vms.extend((0..hogs).map(|_| vm("b", free(), &[HOG])));
        let kind = ClientKind::Stream {
            port: "bulk".into(),
            connections: 1,
        };
        let mut spec = network(vec![client(0, kind)]);
        spec.params.tcp.undo = undo;
        let guests = Guests::with_devices(vms, Vec::new(), &[], &spec, 1).unwrap();
        let sched = Box::new(RoundRobin::new(30 * MS));
        let simulation = Simulation::new(machine(1, FREE), sched, Box::new(guests), None);
        let outcome = simulation.run(0, 20 * SEC, |_| {});
        (outcome.clients[0].bytes, outcome.clients[0].retransmissions)
    };
    let (alone, none) = stream(0, true);
    let (sixth, none_either) = stream(5, true);
    assert_eq!((none, none_either), (0, 0));
    let share = |bytes: u64, of: u64| (bytes * of) as f64 / alone as f64;
    assert!(
        (0.95..1.2).contains(&share(sixth, 6)),
        "{}",
        share(sixth, 6)
    );
    for undo in [true, false] {
        let (eleventh, some) = stream(10, undo);
        assert!(
            (0.95..1.2).contains(&share(eleventh, 11)),
            "{}",
            share(eleventh, 11)
        );
        assert!(some > 0, "undo {undo}");
    }
}
