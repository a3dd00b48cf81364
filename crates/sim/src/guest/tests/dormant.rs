// SPDX-License-Identifier: GPL-2.0-only
//! A guest that retains its contexts without limit (MWAIT passed through) on a host that has found that out:
//! `vsmtio` recognises it by its cycles, and the dispatcher ends its turns.

use super::*;
use crate::sched::dispatcher::Dispatcher;
use corun_model::DispatcherParams;
use corun_model::time::US;
use corun_policies::{Fair, Policy, VsmtIo, VsmtIoParams};

/// A guest that mostly waits, on a core with others that compute: the outcome under `policy`.
fn beside_hogs(policy: Box<dyn Policy>, hogs: usize) -> Outcome {
    let waits = GuestParams {
        idle: IdleMode::Retention(0),
        ..free()
    };
    let mut vms = vec![vm(
        "waits",
        waits,
        &["loop { compute 100us; sleep 9900us; count }"],
    )];
    let computes = |n| vm(&format!("hog{n}"), free(), &["loop { compute 1ms; count }"]);
    vms.extend((0..hogs).map(computes));
    let host = HostParams {
        topology: "1n1l1c2t".parse().unwrap(),
        hardware: HardwareParams::default(),
        ..machine(2, FREE)
    };
    let guests = Guests::new(vms, Vec::new(), 1).unwrap();
    let sched = Box::new(Dispatcher::new(DispatcherParams::default(), &host));
    let simulation = Simulation::new(host, sched, Box::new(guests), None).with_policy(policy);
    // It takes several periods until the guest is recognised.
    simulation.run(500 * MS, 2_500 * MS, |_| {})
}

fn vsmtio(set: impl Fn(&mut VsmtIoParams)) -> Box<dyn Policy> {
    let mut params = VsmtIoParams {
        adjust: false,
        ..VsmtIoParams::default()
    };
    set(&mut params);
    Box::new(VsmtIo::new(params))
}

/// Time in which a pCPU was kept for nothing, thousandths of a pCPU.
fn useless(outcome: &Outcome) -> u64 {
    outcome.vms[0].vcpus[0].retained * 1_000 / (2 * SEC)
}

#[test]
fn a_vcpu_dormant_on_its_pcpu_is_preempted_after_the_timeout() {
    for hogs in [2, 3] {
        // In fair order the guest has its share, and does nothing with it.
        let fair = beside_hogs(Box::new(Fair), hogs);
        assert!(useless(&fair) > 300, "{hogs}: {}", useless(&fair));
        // Between two of its turns, each as long as the timeout, others have theirs, of 8 ms or
        // more.
        let limited = beside_hogs(vsmtio(|_| {}), hogs);
        let bound = 1_000 * 200 / 8_200;
        assert!(useless(&limited) <= bound, "{hogs}: {}", useless(&limited));
        assert!(
            throughput(&limited, 0) > 50.0,
            "it gets its turns all the same"
        );
        // Without retention nothing is limited: what the user has switched off is not done.
        let off = beside_hogs(vsmtio(|params| params.retain = false), hogs);
        assert!(useless(&off) > 200, "{hogs}: {}", useless(&off));
    }
}

#[test]
fn a_vcpu_dormant_on_its_pcpu_stays_where_nobody_waits() {
    let alone = beside_hogs(vsmtio(|_| {}), 1);
    assert!(useless(&alone) > 980, "{}", useless(&alone));
    assert!((throughput(&alone, 0) - 100.0).abs() <= 1.0);
}

#[test]
fn a_longer_timeout_is_kept_to_as_well() {
    let outcome = |timeout| beside_hogs(vsmtio(|params| params.timeout = timeout), 2);
    let (short, long) = (useless(&outcome(200 * US)), useless(&outcome(2 * MS)));
    assert!(short < long && long <= 1_000 * 2 / 10, "{short} {long}");
}
