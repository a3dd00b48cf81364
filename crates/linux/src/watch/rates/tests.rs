// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use crate::inventory::tests::FakeHost;
use crate::watch::Sampler;

/// A VM of two vCPUs, at 0 and after 1 s.
fn second(stats: [&str; 2]) -> (Sample, Sample) {
    let host = FakeHost::new();
    let names = [(5, "qemu"), (6, "CPU 0/KVM"), (7, "CPU 1/KVM"), (8, "IO a")];
    host.process(5, "qemu -name web", "/web", 1, &names);
    let sampler = Sampler::below(host.root());
    let mut then = sampler.sample();
    host.file("/proc/5/task/6/schedstat", stats[0]);
    host.file("/proc/5/task/7/schedstat", stats[1]);
    host.file("/proc/5/task/8/schedstat", "300000000 0 1");
    let mut now = sampler.sample();
    (then.vms[0].at, now.vms[0].at) = (0, SEC);
    (then, now)
}

#[test]
fn shares_of_a_second() {
    let (then, now) = second(["600000000 200000000 10", "200000000 0 5"]);
    let [vm] = &rows(&then, &now, false)[..] else {
        panic!("one VM")
    };
    let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
    assert!(
        close(vm.run, 0.4) && close(vm.ready, 0.1) && close(vm.wait, 0.5),
        "{vm:?}"
    );
    assert!(close(vm.switches_per_s, 15.0));
    assert!(close(vm.latency_ms, 200.0 / 15.0));
    assert_eq!((vm.costop, vm.throttled, vm.vcpus), (None, None, 2));
    assert!(close(vm.helpers.unwrap(), 0.15), "{vm:?}");
    let sum = vm.clone().summed();
    assert!(close(sum.run, 0.8) && close(sum.ready, 0.2), "{sum:?}");
    assert!(close(sum.helpers.unwrap(), 0.3), "{sum:?}");
    let each = rows(&then, &now, true);
    assert_eq!(each[0].helpers, None);
    assert_eq!(each.len(), 2);
    assert!(close(each[0].ready, 0.2) && close(each[1].run, 0.2));
}

/// A wait that is not over is not in the kernel's count yet.
#[test]
fn a_vcpu_that_gets_no_pcpu_is_ready_and_not_halted() {
    let (mut then, mut now) = second(["0 0 0", "300000000 0 0"]);
    for sample in [&mut then, &mut now] {
        for thread in &mut sample.vms[0].machine.threads {
            thread.runnable = thread.role.is_vcpu();
        }
    }
    let ready: Vec<_> = rows(&then, &now, true)
        .iter()
        .map(|row| row.ready)
        .collect();
    assert_eq!(ready, [1.0, 0.7]);
    // A vCPU that has had turns since, or was halted then or is now, has waited for what was counted.
    then.vms[0].machine.threads[0].runnable = false;
    now.vms[0].machine.threads[1].runnable = false;
    let ready: Vec<_> = rows(&then, &now, true)
        .iter()
        .map(|row| row.ready)
        .collect();
    assert_eq!(ready, [0.0, 0.0]);
}

#[test]
fn a_vcpu_that_was_not_there_has_no_shares() {
    let (mut then, now) = second(["600000000 0 1", "0 0 0"]);
    then.vms[0].machine.threads.retain(|thread| thread.tid != 7);
    let [vm] = &rows(&then, &now, false)[..] else {
        panic!("one VM")
    };
    assert!((vm.run - 0.6).abs() < 1e-9, "of the vCPU that was there");
    then.vms[0].machine.start = 9;
    assert!(
        rows(&then, &now, false).is_empty(),
        "its number was used again"
    );
}

/// Under corun the dispatcher throttles; the kernel takes that time for ready time.
#[test]
fn throttled_time_is_not_ready_time() {
    let (mut then, mut now) = second(["0 500000000 1", "0 0 0"]);
    let told = |throttled_s: f64| {
        let vcpu = |tid: u32, throttled_s: f64| {
            serde_json::json!({"number": 0, "tid": tid, "run_s": 0.0, "ready_s": 0.0,
                "wait_s": 0.0, "costop_s": 0.0, "throttled_s": throttled_s, "switches": 0})
        };
        serde_json::from_value::<crate::status::HostStatus>(serde_json::json!({
            "version": "1", "policy": "fair", "policy_for_s": 1.0, "for_s": 1.0,
            "max_wait_s": null, "max_ready_percent": null, "max_pressure_percent": null,
            "forced": [], "lapses": 0, "notes": [],
            "vms": [{"name": "web", "uuid": null, "manager": "none", "id": null, "pid": 5, "slot": 7,
                "weight": null, "under_policy": true, "placement": "free",
                "vcpus": [vcpu(6, throttled_s), vcpu(7, 0.0)]}]
        }))
        .unwrap()
    };
    then.daemon = Some(told(1.0));
    now.daemon = Some(told(1.4));
    let each = rows(&then, &now, true);
    assert!((each[0].throttled.unwrap() - 0.4).abs() < 1e-9);
    assert!((each[0].ready - 0.1).abs() < 1e-9);
    let all = rows(&then, &now, false);
    assert!((all[0].throttled.unwrap() - 0.2).abs() < 1e-9);
}

#[test]
fn co_stopped_time_is_not_ready_time() {
    let (mut then, mut now) = second(["0 500000000 1", "0 0 0"]);
    let told = |costop_s: f64| {
        serde_json::from_value::<crate::status::HostStatus>(serde_json::json!({
            "version": "1", "policy": "cosched-relaxed", "policy_for_s": 1.0, "for_s": 1.0,
            "max_wait_s": null, "max_ready_percent": null, "max_pressure_percent": null,
            "forced": [], "lapses": 0, "notes": [],
            "vms": [{"name": "web", "uuid": null, "manager": "none", "id": null, "pid": 5, "slot": 7,
                "weight": null, "under_policy": true, "placement": "free",
                "vcpus": [
                    {"number": 0, "tid": 6, "run_s": 0.0, "ready_s": 0.0, "wait_s": 0.0,
                     "costop_s": costop_s, "switches": 0},
                    {"number": 1, "tid": 7, "run_s": 0.0, "ready_s": 0.0, "wait_s": 0.0,
                     "costop_s": 0.0, "switches": 0}
                ]}]
        }))
        .unwrap()
    };
    then.daemon = Some(told(1.0));
    now.daemon = Some(told(1.3));
    let each = rows(&then, &now, true);
    assert!((each[0].costop.unwrap() - 0.3).abs() < 1e-9);
    assert!((each[0].ready - 0.2).abs() < 1e-9);
    let all = rows(&then, &now, false);
    assert!((all[0].costop.unwrap() - 0.15).abs() < 1e-9);
    assert_eq!(all[0].under_policy, Some(true));
}

#[test]
fn orders_are_total() {
    let row = |name: &str, ready: f64| Row {
        name: name.into(),
        ready,
        ..Row::default()
    };
    let mut rows = [row("b", 0.1), row("c", f64::NAN), row("a", 0.1)];
    Order::Ready.sort(&mut rows);
    let names: Vec<_> = rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["c", "a", "b"]);
    Order::Name.sort(&mut rows);
    assert_eq!(rows[0].name, "a");
}
