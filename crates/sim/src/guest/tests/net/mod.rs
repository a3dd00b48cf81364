// SPDX-License-Identifier: GPL-2.0-only
//! Guests and their clients: what can be computed by hand, and what must emerge by itself.

mod descheduled;
mod presence;
mod queues;

use super::*;
use crate::device::net::{
    ChannelSpec, ClientKind, ClientOutcome, ClientSpec, MOST_WAITING, NetworkParams, NetworkSpec,
    Pace, Requests, TcpParams,
};
use crate::sched::cfs::{Cfs, CfsParams};
use crate::workload::Length;
use corun_model::time::US;
use corun_model::{Plan, Presence, Snapshot};
use corun_policies::Policy;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const HOG: &str = "loop { compute 100ms }";
const ECHO: &str = "loop { request web; reply web 100B }";

/// A guest kernel whose own work costs nothing, its network path included.
fn quick() -> GuestParams {
    GuestParams {
        net: NetParams {
            packet: 0,
            copy: 0,
            kick: 0,
            ..NetParams::default()
        },
        ..free()
    }
}

fn length(text: &str) -> Length {
    Length::parse(text).unwrap()
}

fn client(vm: u32, kind: ClientKind) -> ClientSpec {
    ClientSpec {
        name: "client".into(),
        vm: VmId(vm),
        kind,
        presence: Presence::default(),
    }
}

fn ping(vm: u32) -> ClientSpec {
    let (interval, timeout) = (length("1ms ±10%"), 10 * SEC);
    client(vm, ClientKind::Ping { interval, timeout })
}

fn requests(connections: u32, pace: Pace) -> Requests {
    Requests {
        port: "web".into(),
        connections,
        pace,
        size: 100,
        timeout: None,
        keep_alive: true,
    }
}

fn closed(vm: u32, connections: u32, think: Option<&str>) -> ClientSpec {
    let pace = Pace::Think(think.map(length));
    client(vm, ClientKind::Requests(requests(connections, pace)))
}

fn open(vm: u32, gap: &str) -> ClientSpec {
    client(
        vm,
        ClientKind::Requests(requests(1000, Pace::Gap(length(gap)))),
    )
}

fn sink(vm: u32, port: &str) -> ClientSpec {
    client(vm, ClientKind::Sink { port: port.into() })
}

fn network(clients: Vec<ClientSpec>) -> NetworkSpec {
    NetworkSpec {
        clients,
        ..NetworkSpec::default()
    }
}

fn run_net(pcpus: u32, slice: Nanos, vms: Vec<VmSpec>, spec: &NetworkSpec) -> Outcome {
    let guests = Guests::with_devices(vms, Vec::new(), &[], spec, 1).unwrap();
    simulate(machine(pcpus, FREE), slice, guests)
}

/// All programs on one vCPU.
fn single(mut vm: VmSpec) -> VmSpec {
    vm.vcpus = 1;
    vm.threads
        .iter_mut()
        .for_each(|thread| thread.vcpu = Some(0));
    vm
}

/// Round trips are known to three digits.
fn near(seen: Nanos, expected: Nanos) -> bool {
    seen.abs_diff(expected) <= expected / 500
}

#[test]
fn a_ping_takes_wire_lan_vhost_and_the_kernels_work() {
    let spec = network(vec![ping(0)]);
    let quickly = run_net(1, 10 * MS, vec![vm("a", quick(), &[])], &spec);
    // Each way: 122 bytes at 1 Gbit/s, the LAN, vhost.
    let way = 976 + 50 * US + 10 * US;
    let times = &quickly.clients[0].responses;
    assert!(
        near(times.quantile(0.5), 2 * way),
        "{}",
        times.quantile(0.5)
    );
    assert!((995..=1005).contains(&times.count()), "{}", times.count());
    let params = GuestParams::default();
    let outcome = run_net(1, 10 * MS, vec![vm("a", params, &[])], &spec);
    // The interrupt, the packet, the answer and its kick.
    let work = params.interrupt + 2 * params.net.packet + params.net.kick;
    let times = &outcome.clients[0].responses;
    assert!(
        near(times.quantile(0.5), 2 * way + work),
        "{}",
        times.quantile(0.5)
    );
    let kernel = outcome.vms[0].achieved.kernel;
    assert_eq!(kernel, times.count() * work);
}

/// Adds up the I/O events of all vCPUs in a second from 100 ms on.
#[derive(Debug)]
struct Counts(Arc<AtomicU64>);

impl Policy for Counts {
    fn period(&self) -> Nanos {
        100 * MS
    }

    fn decide(&mut self, seen: &Snapshot, _: &mut Plan) {
        let vcpus = seen.vms.iter().flat_map(|vm| &vm.vcpus);
        let events: u64 = vcpus.filter_map(|vcpu| vcpu.signals.io_events).sum();
        let counts = (200 * MS..=1100 * MS).contains(&seen.now);
        self.0.fetch_add(u64::from(counts) * events, Relaxed);
    }

    fn wants_signals(&self) -> bool {
        true
    }
}

/// I/O events of a VM with this program and client, per round trip.
fn events_per_round(programs: &[&str], client: ClientSpec) -> f64 {
    let vms = vec![vm("a", quick(), programs)];
    let guests = Guests::with_devices(vms, Vec::new(), &[], &network(vec![client]), 1).unwrap();
    let sched = Box::new(RoundRobin::new(10 * MS));
    let counted = Arc::default();
    let outcome = Simulation::new(machine(1, FREE), sched, Box::new(guests), None)
        .with_policy(Box::new(Counts(Arc::clone(&counted))))
        .run(100 * MS, 1200 * MS, |_| {});
    let rounds = outcome.clients[0].responses.count() as f64 / 1.1;
    counted.load(Relaxed) as f64 / rounds
}

/// What identifies vCPUs that do I/O: interrupts of devices, and what goes to devices. Without packets there is none.
#[test]
fn an_io_event_is_an_interrupt_or_a_packet_that_goes_out() {
    let near = |seen: f64, expected: f64| (seen / expected - 1.0).abs() < 0.01;
    let ping = events_per_round(&[], ping(0));
    assert!(near(ping, 2.0), "{ping}");
    // The request, and the reply with its ACK; the next request has the reply's.
    let served = events_per_round(&[ECHO], closed(0, 1, Some("1ms")));
    assert!(near(served, 2.0), "{served}");
}

#[test]
fn a_request_and_its_reply() {
    let vms = || vec![vm("a", quick(), &[ECHO])];
    let outcome = run_net(1, 10 * MS, vms(), &network(vec![closed(0, 1, Some("1ms"))]));
    // 100 bytes and a frame's 90, each way.
    let bare = 90 * 8;
    let round = 2 * (190 * 8 + 60 * US);
    let client = &outcome.clients[0];
    assert!(near(client.responses.quantile(0.5), round));
    let expected = SEC / (MS + round);
    assert!(client.responses.count().abs_diff(expected) <= 1);
    assert!(client.bytes.abs_diff(200 * expected) <= 200);
    assert_eq!((client.retransmissions, client.timeouts), (0, 0));
    // A new connection for each request costs one more round trip, of two bare frames.
    let mut fresh = requests(1, Pace::Think(Some(length("1ms"))));
    fresh.keep_alive = false;
    let spec = network(vec![client_of(fresh)]);
    let outcome = run_net(1, 10 * MS, vms(), &spec);
    // The ACK that ends the handshake is a frame before the request; and an end that has not answered yet acknowledges
    // the request before the reply.
    let round = round + 2 * (bare + 60 * US) + 2 * bare;
    let seen = outcome.clients[0].responses.quantile(0.5);
    assert!(near(seen, round), "{seen}");
}

fn client_of(requests: Requests) -> ClientSpec {
    client(0, ClientKind::Requests(requests))
}

#[test]
fn an_overloaded_closed_loop_saturates() {
    let program = "loop { request web; compute 1ms; reply web 100B; count }";
    let done = |users| {
        let spec = network(vec![closed(0, users, Some("9.875ms"))]);
        let outcome = run_net(1, 10 * MS, vec![vm("a", quick(), &[program])], &spec);
        (
            throughput(&outcome, 0),
            outcome.clients[0].responses.quantile(0.5),
        )
    };
    // A round of one user takes 11 ms; ten users are as many as the server can serve.
    let (alone, time) = done(1);
    assert!((alone - 1000.0 / 11.0).abs() < 1.0, "{alone}");
    assert!((MS..MS + 150 * US).contains(&time), "{time}");
    let (full, _) = done(30);
    assert!((full - 1000.0).abs() <= 1.0, "{full}");
    // The rest waits: 30 users x 1 ms less the think time.
    let (_, time) = done(50);
    assert!((39 * MS..41 * MS + MS / 2).contains(&time), "{time}");
}

#[test]
fn an_open_loop_is_the_queue_of_the_text_book() {
    let program = "loop { request web; compute 500us exp; reply web 100B }";
    let mean = |gap| {
        let vms = vec![vm("a", quick(), &[program])];
        let guests =
            Guests::with_devices(vms, Vec::new(), &[], &network(vec![open(0, gap)]), 1).unwrap();
        let sched = Box::new(RoundRobin::new(10 * MS));
        let simulation = Simulation::new(machine(1, FREE), sched, Box::new(guests), None);
        let outcome = simulation.run(SEC, 41 * SEC, |_| {});
        outcome.clients[0].responses.mean() - 123_000.0
    };
    // M/M/1: 1 / (service rate - arrival rate).
    for (gap, expected) in [
        ("1ms exp", 1e6),
        ("2ms exp", 666_667.0),
        ("625us exp", 2.5e6),
    ] {
        let seen = mean(gap);
        assert!((seen / expected - 1.0).abs() < 0.08, "{gap}: {seen} ns");
    }
}

#[test]
fn open_loops_give_up_when_their_patience_ends() {
    let program = "loop { request web; compute 2ms; reply web 100B }";
    let mut impatient = requests(100, Pace::Gap(length("1ms")));
    impatient.timeout = Some(50 * MS);
    let spec = network(vec![client_of(impatient)]);
    let outcome = run_net(1, 10 * MS, vec![vm("a", quick(), &[program])], &spec);
    let client = &outcome.clients[0];
    let over = client.responses.count() + client.timeouts;
    assert!((990..=1010).contains(&over), "{over} of 1000");
    assert!(client.timeouts >= 500, "{}", client.timeouts);
    assert!(
        client.responses.max() <= 51 * MS,
        "{}",
        client.responses.max()
    );
}

/// Of 1000 requests in a second 500 are answered: at most as many wait as there is room for, and beyond that nothing
/// changes.
#[test]
fn what_an_open_loop_has_waiting_is_bounded() {
    let program = "loop { request web; compute 2ms; reply web 100B }";
    let of = |most_waiting, timeout| {
        let mut requests = requests(10, Pace::Gap(length("1ms")));
        requests.timeout = timeout;
        let mut spec = network(vec![client_of(requests)]);
        spec.params.most_waiting = most_waiting;
        let outcome = run_net(1, 10 * MS, vec![vm("a", quick(), &[program])], &spec);
        outcome.clients[0].clone()
    };
    let overloaded = of(MOST_WAITING, None);
    assert!(overloaded.overloaded, "ever more wait");
    assert!((990..=1000).contains(&overloaded.wished));
    let seen = |client: &ClientOutcome| {
        let times = &client.responses;
        (times.count(), times.mean(), times.max())
    };
    let [small, enough, default] = [100, 600, MOST_WAITING].map(|most| of(most, None));
    assert!((400..=500).contains(&small.turned_away));
    assert_eq!(small.timeouts, small.turned_away);
    assert_eq!(small.responses.count(), default.responses.count());
    assert!(small.responses.max() < 230 * MS, "110 are ahead of it");
    assert_eq!((enough.turned_away, enough.timeouts), (0, 0));
    assert_eq!(seen(&enough), seen(&default));
    // Requests that have been given up take no room.
    let patience = Some(50 * MS);
    let [small, default] = [60, MOST_WAITING].map(|most| of(most, patience));
    assert_eq!(small.turned_away, 0);
    assert_eq!(seen(&small), seen(&default));
    assert!(small.timeouts.abs_diff(default.timeouts) <= 60);
}

/// A load that one core can answer is no overload, even if requests wait now and then; nor is a crowd that goes away
/// again.
#[test]
fn an_open_loop_that_is_served_is_not_overloaded() {
    let of = |program: &str, gap: &str, connections| {
        let requests = requests(connections, Pace::Gap(length(gap)));
        let spec = network(vec![client_of(requests)]);
        let vms = vec![vm("a", quick(), &[program])];
        let outcome = run_net(1, 10 * MS, vms, &spec);
        (outcome.clients[0].overloaded, outcome.clients[0].wished)
    };
    let quick = "loop { request web; compute 2ms; reply web 100B }";
    assert!(!of(quick, "3ms", 1).0);
    let (overloaded, wished) = of(quick, "2500us exp", 1);
    assert!(!overloaded && wished > 300, "{wished}");
    assert!(of(quick, "1500us exp", 1).0);
}

/// The same for pings that are not answered because the vCPU has no pCPU.
#[test]
fn pings_under_way_are_bounded() {
    let mut spec = network(vec![ping(0)]);
    spec.params.most_waiting = 80;
    let vms = vec![
        vm("a", quick(), &[HOG]),
        vm("b", GuestParams::default(), &[HOG]),
    ];
    let outcome = run_net(1, 100 * MS, vms, &spec);
    let client = &outcome.clients[0];
    // Ten out of a hundred in each turn of the other VM.
    let (answered, turned_away) = (client.responses.count(), client.turned_away);
    assert!((540..=560).contains(&answered), "{answered}");
    assert!((440..=460).contains(&turned_away), "{turned_away}");
    assert_eq!(client.timeouts, client.turned_away);
    // Overload is reported for open loops only, along with how much was due.
    assert_eq!((client.overloaded, client.wished), (false, 0));
}

#[test]
fn bulk_data_fills_the_link_both_ways() {
    let spec = network(vec![
        sink(0, "out"),
        client(
            1,
            ClientKind::Stream {
                port: "bulk".into(),
                connections: 1,
            },
        ),
    ]);
    let vms = vec![
        vm(
            "a",
            GuestParams::default(),
            &["loop { transmit out 64KB; count }"],
        ),
        vm(
            "b",
            GuestParams::default(),
            &["loop { request bulk; count }"],
        ),
    ];
    let outcome = run_net(2, 10 * MS, vms, &spec);
    // A gigabit less 90 bytes in 1538.
    let most = 125_000_000.0 * 1448.0 / 1538.0;
    for client in &outcome.clients {
        let share = client.bytes as f64 / most;
        assert!((0.97..=1.001).contains(&share), "{} {share}", client.kind);
        assert_eq!(client.retransmissions, 0);
    }
    for vm in 0..2 {
        let chunks = throughput(&outcome, vm) * 65_536.0 / most;
        assert!((0.96..=1.01).contains(&chunks), "{chunks}");
    }
}

#[test]
fn a_channel_carries_calls_between_vms() {
    let web = "loop { request web; compute 200us; transmit db 1KB; request db; reply web 4KB }";
    let db = "loop { request sql; compute 300us; reply sql 2KB; count }";
    let spec = NetworkSpec {
        clients: vec![closed(0, 2, None)],
        channels: vec![ChannelSpec {
            name: "web-db".into(),
            from: (VmId(0), "db".into()),
            to: (VmId(1), "sql".into()),
        }],
        ..NetworkSpec::default()
    };
    let vms = vec![vm("web", quick(), &[web, web]), vm("db", quick(), &[db])];
    let outcome = run_net(3, 10 * MS, vms, &spec);
    let channel = &outcome.clients[1];
    assert_eq!((channel.kind, channel.vm), ("channel", VmId(1)));
    // Two users, one database: it is busy most of the time, and calls wait for it.
    let calls = channel.responses.count();
    assert!(calls.abs_diff(outcome.clients[0].responses.count()) <= 2);
    assert!((throughput(&outcome, 1) - calls as f64).abs() <= 2.0);
    assert!(calls > 2000, "{calls}");
    // vhost four times, and the work.
    let least = channel.responses.quantile(0.0);
    assert!(least >= 340 * US - US, "{least}");
    assert!(channel.bytes.abs_diff(3072 * calls) <= 3 * 3072);
}

#[test]
fn time_goes_on_where_nothing_costs_any() {
    let mut spec = NetworkSpec {
        clients: vec![closed(0, 1, None)],
        channels: vec![ChannelSpec {
            name: "calls".into(),
            from: (VmId(0), "db".into()),
            to: (VmId(1), "sql".into()),
        }],
        ..NetworkSpec::default()
    };
    spec.params.bandwidth = 1_000_000_000_000;
    (spec.params.latency, spec.params.vhost) = (0, 0);
    let call = "loop { transmit db 1B; request db }";
    let serve = "loop { request sql; reply sql 1B }";
    let vms = vec![vm("a", quick(), &[ECHO, call]), vm("b", quick(), &[serve])];
    let guests = Guests::with_devices(vms, Vec::new(), &[], &spec, 1).unwrap();
    let sched = Box::new(RoundRobin::new(MS));
    let simulation = Simulation::new(machine(3, FREE), sched, Box::new(guests), None);
    let outcome = simulation.run(0, 50 * US, |_| {});
    assert!(
        outcome
            .clients
            .iter()
            .all(|client| client.responses.count() > 1000)
    );
}

#[test]
fn same_seed_same_bytes() {
    let once = || {
        let vms = vec![
            vm("a", GuestParams::default(), &[ECHO, HOG]),
            vm("b", free(), &[HOG]),
        ];
        let outcome = run_net(2, MS, vms, &network(vec![open(0, "300us exp"), ping(0)]));
        format!("{outcome:?}")
    };
    assert_eq!(once(), once());
}

/// With an emulator a packet takes as much work as it otherwise takes time, and a packet that leaves the guest waits
/// for the transmit timer.
#[test]
fn an_emulator_collects_what_leaves() {
    let round = |transmit_timer| {
        let params = EmulatorParams {
            transmit_timer,
            ..EmulatorParams::default()
        };
        pinged(params, vec![ping(0)])
    };
    let way = 976 + 50 * US + 10 * US;
    assert!(near(round(0), 2 * way), "{}", round(0));
    let later = round(150 * US);
    assert!(near(later, 2 * way + 150 * US), "{later}");
}

/// The alarm for that timer may be set for longer; then the thread notices that the timer has expired when it has other
/// work to do.
#[test]
fn an_alarm_is_late_unless_the_emulator_runs() {
    let params = EmulatorParams {
        transmit_timer: 150 * US,
        shortest_alarm: 250 * US,
        ..EmulatorParams::default()
    };
    let way = 976 + 50 * US + 10 * US;
    let alone = pinged(params, vec![ping(0)]);
    assert!(near(alone, 2 * way + 250 * US), "{alone}");
    let many = |transmit_timer| {
        let params = EmulatorParams {
            transmit_timer,
            ..params
        };
        pinged(params, vec![ping(0); 10])
    };
    let (early, late) = (many(150 * US), many(250 * US));
    assert!(early + 10 * US < late, "{early}, {late}");
}

/// The median round trip of the first client's pings to a VM with such an emulator.
fn pinged(params: EmulatorParams, clients: Vec<ClientSpec>) -> Nanos {
    let mut vm = on(0, vm("a", quick(), &[]));
    vm.emulator = Some(params);
    let outcome = run_net(2, 10 * MS, vec![vm], &network(clients));
    outcome.clients[0].responses.quantile(0.5)
}

#[test]
fn connections_may_have_a_port_each() {
    // The first instance takes 10 ms for a request, the second no time: neither answers for the other.
    let programs = [
        "loop { request web0; compute 10ms; reply web0 100B; count slow }",
        "loop { request web1; compute 1us; reply web1 100B; count quick }",
    ];
    let instances = vm("a", quick(), &programs);
    let mut said = requests(2, Pace::Think(Some(length("1ms"))));
    said.port = "web{i}".into();
    let spec = network(vec![client(0, ClientKind::Requests(said.clone()))]);
    let outcome = run_net(2, 10 * MS, vec![instances.clone()], &spec);
    let counted = &outcome.vms[0].achieved;
    assert!((80.0..95.0).contains(&counted.throughput), "{counted:?}");
    let quickly = counted.other_throughputs[0].1;
    assert!((700.0..900.0).contains(&quickly), "{counted:?}");
    // There must be an instance for each.
    said.connections = 3;
    let spec = network(vec![client(0, ClientKind::Requests(said))]);
    let refused = Guests::with_devices(vec![instances], Vec::new(), &[], &spec, 1);
    let error = refused.err().unwrap().to_string();
    assert!(error.contains("web2"), "{error}");
}

/// A server and a computing thread on one vCPU, and another VM that computes on the same pCPU: with xBalloon the vCPU
/// sleeps while the server waits for a message, and gets its pCPU back at once when one comes.
#[test]
fn xballoon_keeps_time_for_messages() {
    let with = |agent| {
        let server = "loop { request web; compute 300us; reply web 100B }";
        let mut vms = vec![
            vm("server", GuestParams::default(), &[server, HOG]),
            vm("hog", GuestParams::default(), &[HOG]),
        ];
        vms[0].params.agent = agent;
        vms[0].vcpus = 1;
        for thread in &mut vms[0].threads {
            thread.vcpu = None;
        }
        let spec = network(vec![closed(0, 1, Some("2ms exp"))]);
        let host = machine(1, Costs::default());
        let cfs = CfsParams::preset("4.x", 1).unwrap();
        let sched = Box::new(Cfs::new(cfs, &host));
        let guests = Guests::with_devices(vms, Vec::new(), &[], &spec, 1).unwrap();
        Simulation::new(host, sched, Box::new(guests), None).run(SEC, 9 * SEC, |_| {})
    };
    let vanilla = with(None);
    let ballooned = with(Some(Agent::XBalloon(BalloonParams::default())));
    let tail = |outcome: &Outcome| outcome.clients[0].responses.quantile(0.9);
    let slept = ballooned.vms[0].achieved.agent.as_ref().unwrap().ballooned;
    // At most half of each period, while the server waits.
    assert!(
        slept > SEC && slept <= ballooned.measured / 2,
        "{slept} of {}",
        ballooned.measured
    );
    assert!(
        tail(&ballooned) * 5 < tail(&vanilla) * 4,
        "{} of {}",
        tail(&ballooned),
        tail(&vanilla)
    );
}
