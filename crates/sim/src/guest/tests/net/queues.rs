// SPDX-License-Identifier: GPL-2.0-only
//! What queueing theory says about servers and their clients, whatever the model of the guest is
//! like.

use super::*;
use crate::rng::Rng;

/// What the network adds to a request and its reply of 100 bytes each, ns.
const WIRE: f64 = 123_000.0;

/// Runs a server of `vcpus` vCPUs with a pCPU and a thread each, together with `hogs` VMs that
/// compute.
fn serve(
    vcpus: u32,
    hogs: u32,
    slice: Nanos,
    work: &str,
    load: ClientSpec,
    time: Nanos,
) -> Outcome {
    let program = format!("loop {{ request web; compute {work}; reply web 100B; count }}");
    let mut vms = vec![vm("a", quick(), &vec![program.as_str(); vcpus as usize])];
    // A request goes to a thread that waits, and to its vCPU.
    vms[0]
        .threads
        .iter_mut()
        .for_each(|thread| thread.vcpu = None);
    vms.extend((0..hogs).map(|_| vm("hog", free(), &[HOG])));
    let guests = Guests::with_devices(vms, Vec::new(), &[], &network(vec![load]), 1).unwrap();
    let sched = Box::new(RoundRobin::new(slice));
    let simulation = Simulation::new(machine(vcpus, FREE), sched, Box::new(guests), None);
    simulation.run(SEC, SEC + time, |_| {})
}

/// The mean response without the network, ms.
fn response(outcome: &Outcome) -> f64 {
    (outcome.clients[0].responses.mean() - WIRE) / 1e6
}

fn is_near(what: &str, seen: f64, expected: f64, tolerance: f64) {
    let off = (seen / expected - 1.0).abs();
    assert!(off < tolerance, "{what}: {seen}, not {expected}");
}

/// Mean response of `servers` servers with a common queue (Erlang's formula), ms.
fn erlang(servers: u32, per_ms: f64, work: f64) -> f64 {
    let offered = per_ms * work;
    let busy = offered / f64::from(servers);
    let term = |n: u32| (1..=n).fold(1.0, |term, n| term * offered / f64::from(n));
    let waits = term(servers) / (1.0 - busy);
    let chance = waits / (waits + (0..servers).map(term).sum::<f64>());
    work + chance * work / (f64::from(servers) * (1.0 - busy))
}

#[test]
fn work_of_one_length_waits_half_as_long_as_exponential_work() {
    // M/D/1 (Pollaczek and Khinchine), if work is done in the order in which it comes.
    for (gap, per_ms) in [("2ms exp", 0.5), ("1250us exp", 0.8)] {
        let outcome = serve(1, 0, 10 * MS, "1ms", open(0, gap), 60 * SEC);
        let expected = 1.0 + per_ms / (2.0 * (1.0 - per_ms));
        is_near(gap, response(&outcome), expected, 0.06);
    }
}

#[test]
fn several_vcpus_serve_one_queue() {
    for (servers, gap, per_ms) in [(2, "1400us exp", 1.0 / 1.4), (4, "600us exp", 1.0 / 0.6)] {
        let outcome = serve(servers, 0, 10 * MS, "2ms exp", open(0, gap), 300 * SEC);
        let expected = erlang(servers, per_ms, 2.0);
        is_near(gap, response(&outcome), expected, 0.06);
    }
    assert!((erlang(1, 0.5, 1.0) - 2.0).abs() < 1e-9, "M/M/1");
}

#[test]
fn who_thinks_and_waits_in_a_circle_is_reckoned_by_mean_values() {
    for (users, think, work) in [(1, 10.0, 5.0), (4, 20.0, 5.0), (16, 50.0, 5.0)] {
        let load = closed(0, users, Some(&format!("{think}ms exp")));
        let outcome = serve(1, 0, 10 * MS, &format!("{work}ms exp"), load, 60 * SEC);
        // Mean value analysis: an additional user finds the queue that the others leave.
        let (mut queue, mut expected) = (0.0, 0.0);
        for n in 1..=users {
            expected = work * (1.0 + queue);
            queue = expected * f64::from(n) / (expected + think + WIRE / 1e6);
        }
        is_near(
            &format!("{users} users"),
            response(&outcome),
            expected,
            0.06,
        );
    }
}

/// Users, throughput and times are consistent (Little's law), throughput is no higher than pCPUs
/// allow, and the response figures are in order; with neighbours and without.
#[test]
fn no_request_is_lost_or_counted_twice() {
    for seed in 0..24 {
        let mut rng = Rng::of(seed, "queues", 0);
        let mut draw = |from, to| rng.between(from, to);
        let (vcpus, hogs, users) = (draw(1, 3) as u32, draw(0, 2) as u32, draw(1, 20) as u32);
        let (think, work, slice) = (draw(100, 20_000), draw(50, 2_000), draw(500, 10_000) * US);
        let load = closed(0, users, Some(&format!("{think}us")));
        let outcome = serve(vcpus, hogs, slice, &format!("{work}us exp"), load, 8 * SEC);
        let client = &outcome.clients[0];
        let told = format!("{seed}: {users} users, {think} us, {vcpus} x {work} us, {hogs} hogs");
        let measured = outcome.measured as f64;
        let replies = client.responses.count() as f64;
        // Each user's last round is cut off, and its first one has begun before.
        let round = client.responses.mean() + think as f64 * 1e3;
        let edge = 2.0 * f64::from(users);
        assert!(
            (replies - f64::from(users) * measured / round).abs() <= edge,
            "{told}"
        );
        let served = throughput(&outcome, 0) * measured / 1e9;
        assert!((served - replies).abs() <= f64::from(users), "{told}");
        let work_done = outcome.vms[0].achieved.work as f64;
        is_near(&told, work_done, served * work as f64 * 1e3, 0.15);
        assert!(work_done <= f64::from(vcpus) * measured, "{told}");
        let of = |share| client.responses.quantile(share);
        let times = [of(0.5), of(0.9), of(0.99), client.responses.max()];
        assert!(times.is_sorted(), "{told}: {times:?}");
        assert!(client.responses.mean() <= times[3] as f64, "{told}");
    }
}
