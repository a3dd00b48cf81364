// SPDX-License-Identifier: GPL-2.0-only
//! VMs that are impossible.

use super::*;
use crate::device::net::{ChannelSpec, ClientKind, ClientSpec, Pace, Requests};
use corun_model::Presence;

fn refused(vms: Vec<VmSpec>) -> String {
    Guests::new(vms, Vec::new(), 1).unwrap_err().to_string()
}

#[test]
fn programs_that_do_not_fit_together() {
    for (programs, hint) in [
        (
            vec!["loop { recv q; compute 1us }"],
            "queue q has receivers, but no sender",
        ),
        (
            vec!["loop { send q; compute 1us }"],
            "queue q has senders, but no receiver",
        ),
        (
            vec!["loop { barrier b; compute 1us }"],
            "only one thread comes to barrier b",
        ),
        (
            vec!["compute 1us; spin-barrier b"],
            "only one thread comes to barrier b",
        ),
        (
            vec!["compute 1us; condition-barrier b 5us"],
            "only one thread comes to barrier b",
        ),
        (
            vec!["loop { compute 1us; mutex m { wait ready } }"],
            "threads wait on condition ready, but none signals it",
        ),
        (
            vec!["queue q 2; compute 1us; send q", "queue q 3; recv q"],
            "queue q is declared with a capacity of 2 and of 3",
        ),
        (
            vec!["queue q 3; compute 1us; send q", "queue q 3 1; recv q"],
            "queue q is declared with a capacity of 3 and of 3 1",
        ),
        (
            vec![
                "lock a { lock b { lock c { compute 1us } } }",
                "mutex m { lock c { compute 1us; lock a { } } }",
            ],
            "the other way round",
        ),
    ] {
        let message = refused(vec![vm("web", free(), &programs)]);
        assert!(message.starts_with("VM web"), "{message}");
        assert!(message.contains(hint), "{message}");
    }
    let nested = [
        "lock a { lock b { compute 1us } }",
        "mutex m { lock b { compute 1us } }",
    ];
    assert!(Guests::new(vec![vm("web", free(), &nested)], Vec::new(), 1).is_ok());
}

#[test]
fn circles_and_lone_barriers_word_by_word() {
    let circle = [
        "lock a { lock b { compute 1us } }",
        "lock b { lock c { compute 1us } }",
        "lock c { lock a { compute 1us } }",
    ];
    assert_eq!(
        refused(vec![vm("web", free(), &circle)]),
        "VM web: lock b is taken inside lock a, and elsewhere the other way round: they would wait \
         for each other for ever"
    );
    let mutexes = [
        "mutex m { mutex n { compute 1us } }",
        "mutex n { mutex m { compute 1us } }",
    ];
    assert_eq!(
        refused(vec![vm("web", free(), &mutexes)]),
        "VM web: mutex n is taken inside mutex m, and elsewhere the other way round: they would \
         wait for each other for ever"
    );
    assert_eq!(
        refused(vec![vm(
            "web",
            free(),
            &["loop { compute 1us; barrier b }"]
        )]),
        "VM web: only one thread comes to barrier b"
    );
}

#[test]
fn threads_that_wait_for_each_other_in_a_circle() {
    for (programs, waits) in [
        (
            vec![
                "loop { recv a; compute 1us; send b }",
                "loop { recv b; compute 1us; send a }",
            ],
            "t0 for ever in `recv a`, t1 for ever in `recv b`",
        ),
        (
            vec!["loop { recv a; compute 1us; send a }"],
            "t0 for ever in `recv a`",
        ),
        (
            vec![
                "loop { mutex m { wait c }; compute 1us; send q }",
                "loop { recv q; compute 1us; signal c }",
            ],
            "t0 for ever in `wait c`, t1 for ever in `recv q`",
        ),
        (
            vec![
                "loop { compute 1us; barrier b; send q }",
                "loop { compute 1us; recv q; barrier b }",
            ],
            "t0 for ever in `barrier b`, t1 for ever in `recv q`",
        ),
        (
            vec![
                "loop 3 { compute 1us; spin-barrier x; barrier y }",
                "loop 3 { compute 1us; barrier y; spin-barrier x }",
            ],
            "t0 for ever in `spin-barrier x`, t1 for ever in `barrier y`",
        ),
    ] {
        assert_eq!(
            refused(vec![vm("web", free(), &programs)]),
            format!(
                "VM web: threads wait in a circle, each for what another would do later: {waits}"
            )
        );
    }
}

#[test]
fn circles_that_somebody_begins_are_fine() {
    for programs in [
        // The ball is thrown in first.
        vec![
            "send a; loop { recv b; compute 1us; send a }",
            "loop { recv a; compute 1us; send b }",
        ],
        vec!["loop { send a; compute 1us; recv a }"],
        // A chain of three, the last one named first.
        vec![
            "loop { recv b; compute 1us }",
            "loop { recv a; send b; compute 1us }",
            "loop { compute 1us; send a }",
        ],
        vec![
            "loop { compute 1us; barrier b; send q; condition-barrier c 1us }",
            "loop { compute 1us; barrier b; recv q; condition-barrier c }",
        ],
        vec![
            "loop 2 { mutex m { wait c }; barrier b; compute 1us }",
            "loop 2 { compute 1us; broadcast c; barrier b; barrier b }",
        ],
    ] {
        let made = Guests::new(vec![vm("web", free(), &programs)], Vec::new(), 1);
        assert!(made.is_ok(), "{programs:?}: {:?}", made.err());
    }
}

#[test]
fn numbers_out_of_range() {
    let good = || vm("web", free(), &["compute 1us"]);
    let change = |change: fn(&mut VmSpec)| {
        let mut spec = good();
        change(&mut spec);
        refused(vec![spec])
    };
    assert!(change(|vm| vm.vcpus = 0).contains("accepted: 1 to 4096"));
    assert!(change(|vm| vm.vcpus = 4097).contains("accepted: 1 to 4096"));
    assert!(change(|vm| vm.weight = Some(0)).contains("accepted: 1 to 10000"));
    assert!(change(|vm| vm.vcpu_weight = 10_001).contains("accepted: 1 to 10000"));
    assert!(change(|vm| vm.threads[0].vcpu = Some(1)).contains("bound to vCPU 1"));
    assert!(change(|vm| vm.allowed = PcpuSet::default()).contains("no pCPU"));
    assert!(change(|vm| vm.params.hz = 0).contains("accepted: 1 to 10000"));
    assert!(change(|vm| vm.params.ple_window = Some(0)).contains("ple_window"));
    assert!(change(|vm| vm.params.tick = u64::MAX).contains("at most 1 s"));
}

#[test]
fn host_tasks_only_compute_and_sleep() {
    let task = |program: &str| HostTaskSpec {
        name: "daemon".into(),
        helper_of: None,
        weight: 100,
        allowed: PcpuSet::first(1),
        program: Program::parse(program).unwrap(),
    };
    let refused = |task| {
        Guests::new(Vec::new(), vec![task], 1)
            .unwrap_err()
            .to_string()
    };
    assert!(
        refused(task("lock l { compute 1us }")).contains("compute, sleep, memory, mix and loop")
    );
    let mut helper = task("compute 1us");
    helper.helper_of = Some(VmId(0));
    assert!(refused(helper).contains("the host has 0 VMs"));
    assert!(Guests::new(Vec::new(), vec![task("compute 1us")], 1).is_ok());
}

fn requests(port: &str) -> ClientKind {
    ClientKind::Requests(Requests {
        port: port.into(),
        connections: 1,
        pace: Pace::Think(None),
        size: 100,
        timeout: None,
        keep_alive: true,
    })
}

/// Clients of the first VM, and whether a channel leads from its port `db` to `sql` of the second.
fn unconnected(first: &str, second: &str, kinds: Vec<ClientKind>, channel: bool) -> String {
    let client = |kind| ClientSpec {
        name: "users".into(),
        vm: VmId(0),
        kind,
        presence: Presence::default(),
    };
    let calls = ChannelSpec {
        name: "calls".into(),
        from: (VmId(0), "db".into()),
        to: (VmId(1), "sql".into()),
    };
    let spec = NetworkSpec {
        clients: kinds.into_iter().map(client).collect(),
        channels: channel.then_some(calls).into_iter().collect(),
        ..NetworkSpec::default()
    };
    let vms = vec![vm("web", free(), &[first]), vm("db", free(), &[second])];
    Guests::with_devices(vms, Vec::new(), &[], &spec, 1)
        .unwrap_err()
        .to_string()
}

#[test]
fn ports_and_clients_that_do_not_fit_together() {
    let idle = "compute 1us";
    let echo = "loop { request web; reply web 1KB }";
    let call = "loop { transmit db 1KB; request db }";
    let sink = || ClientKind::Sink { port: "web".into() };
    for (first, second, kinds, channel, expected) in [
        (
            echo,
            idle,
            vec![],
            false,
            "VM web: the port web is used, but no client or channel connects to it: add [client.NAME] with \
            vm = \"web\" and port = \"web\", or [channel.NAME] with to = \"web:web\"",
        ),
        (
            call,
            "loop { request sql; reply sql 1KB }",
            vec![],
            false,
            "VM web: the port db is used, but no client or channel connects to it: add [channel.NAME] with \
            from = \"web:db\" and to = \"db:sql\"",
        ),
        (
            "loop { transmit out 1KB }",
            idle,
            vec![],
            false,
            "VM web: the port out is used, but no client or channel connects to it: add [channel.NAME] with \
            from = \"web:out\" and to = \"VM:PORT\", or [client.NAME] with kind = \"sink\", vm = \"web\" and \
            port = \"out\"",
        ),
        (
            echo,
            idle,
            vec![requests("wbe")],
            false,
            "client users: no program of VM web uses the port wbe; used are: web",
        ),
        (
            "loop { request web }",
            idle,
            vec![requests("web")],
            false,
            "client users: no program of VM web has `reply web SIZE`: add it to one",
        ),
        (
            "loop { reply web 1KB; request more; reply more 1KB }",
            idle,
            vec![requests("web")],
            false,
            "client users: no program of VM web has `request web`: add it to one, or name a port on which one \
            does so: more",
        ),
        (
            "loop { request web; reply web 1KB; transmit web 1KB }",
            idle,
            vec![requests("web")],
            false,
            "client users: it sends requests to the port web, which programs `transmit` on; \
            use two ports",
        ),
        (
            echo,
            idle,
            vec![sink()],
            false,
            "client users: no program of VM web has `transmit web SIZE`: add it to one",
        ),
        (
            "loop { transmit web 1KB }",
            idle,
            vec![sink(), sink()],
            false,
            "client users: another client or channel has the port web already",
        ),
        (
            call,
            "loop { request sql }",
            vec![],
            true,
            "channel calls: no program of VM db has `reply sql SIZE`: add it to one",
        ),
        (
            call,
            idle,
            vec![],
            true,
            "channel calls: no program of VM db uses the port sql; used are: none",
        ),
        (
            "loop { request db }",
            "loop { request sql; reply sql 1KB }",
            vec![],
            true,
            "channel calls: no program of VM web has `transmit db SIZE`: add it to one",
        ),
    ] {
        assert_eq!(unconnected(first, second, kinds, channel), expected);
    }
    let two = vm(
        "web",
        free(),
        &[
            "loop { request web; compute 1us }",
            "loop { reply web 1KB; compute 1us }",
        ],
    );
    let spec = NetworkSpec {
        clients: vec![ClientSpec {
            name: "users".into(),
            vm: VmId(0),
            kind: requests("web"),
            presence: Presence::default(),
        }],
        ..NetworkSpec::default()
    };
    let error = Guests::with_devices(vec![two], Vec::new(), &[], &spec, 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "VM web: a thread has `reply web` without `request web`"
    );
}

#[test]
fn networks_out_of_range() {
    let refused = |change: fn(&mut NetworkSpec)| {
        let mut spec = NetworkSpec::default();
        change(&mut spec);
        Guests::with_devices(Vec::new(), Vec::new(), &[], &spec, 1)
            .unwrap_err()
            .to_string()
    };
    assert!(refused(|net| net.params.bandwidth = 0).contains("1 Mbit/s to 1 Tbit/s"));
    assert!(refused(|net| net.params.tcp.window = 1).contains("64 KiB to 6 MiB"));
    assert!(refused(|net| net.params.latency = u64::MAX).contains("at most 1 s"));
    assert!(refused(|net| net.params.tcp.min_rto = 0).contains("above 0"));
    let mut spec = vm("web", free(), &[]);
    spec.params.net.queues = 0;
    assert!(
        Guests::new(vec![spec], Vec::new(), 1)
            .unwrap_err()
            .to_string()
            .contains("net_queues")
    );
}
