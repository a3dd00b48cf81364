// SPDX-License-Identifier: GPL-2.0-only
//! VMs that cannot be.

use super::*;

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
            vec!["loop { compute 1us; mutex m { wait ready } }"],
            "threads wait on condition ready, but none signals it",
        ),
        (
            vec!["queue q 2; compute 1us; send q", "queue q 3; recv q"],
            "queue q is declared with a capacity of 2 and of 3",
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
    assert!(refused(helper).contains("there are 0 VMs"));
    assert!(Guests::new(Vec::new(), vec![task("compute 1us")], 1).is_ok());
}
