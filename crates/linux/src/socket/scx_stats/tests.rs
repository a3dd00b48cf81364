// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use std::collections::BTreeSet;

fn vcpu(tid: u32, run_s: f64, ready_s: f64, switches: u64) -> VcpuNow {
    VcpuNow {
        tid,
        run_s,
        ready_s,
        switches,
        ..VcpuNow::default()
    }
}

fn status(for_s: f64, vcpus: Vec<VcpuNow>) -> HostStatus {
    let mut status: HostStatus = serde_json::from_value(json!({
        "version": "1", "policy": "fair", "policy_for_s": for_s, "for_s": for_s,
        "max_wait_s": null, "max_ready_percent": null, "max_pressure_percent": null,
        "forced": [], "lapses": 2, "notes": [],
        "vms": [
            { "name": "web", "uuid": null, "manager": "none", "id": null, "pid": 5, "slot": 7,
              "weight": 300, "under_policy": true, "placement": "free", "vcpus": [] },
            { "name": "web", "uuid": null, "manager": "none", "id": null, "pid": 6, "slot": 8,
              "weight": null, "under_policy": false, "placement": "free", "vcpus": [] }
        ]
    }))
    .unwrap();
    status.vms[0].vcpus = vcpus;
    status
}

fn asked(session: &mut Session, line: &str, status: &HostStatus) -> Value {
    let reply = session.answer(line.as_bytes(), &mut |command| {
        assert_eq!(command, Command::Status, "it may only look");
        Reply::ok(status)
    });
    assert!(reply.ends_with(b"\n"));
    serde_json::from_slice(&reply).unwrap()
}

/// A user who starts a VM may give it the name under which another one's namesake is shown here.
#[test]
fn no_vm_hides_another() {
    let mut host = status(10.0, vec![]);
    let mut third = host.vms[1].clone();
    (third.name, third.pid) = ("web#6".to_string(), 4);
    for at in 0..3 {
        let mut now = host.clone();
        now.vms.insert(at, third.clone());
        let pids: BTreeSet<u64> = stats(None, &now).vm.values().map(|vm| vm.pid).collect();
        assert_eq!(pids, [4, 5, 6].into(), "{at}");
    }
    host.vms.truncate(1);
    assert!(stats(None, &host).vm.contains_key("web"));
}

#[test]
fn shares_are_of_the_time_since_it_asked_last() {
    let mut session = Session::default();
    let line = "{\"req\":\"stats\",\"args\":{\"target\":\"top\"}}\n";
    let first = status(10.0, vec![vcpu(8, 5.0, 1.0, 10), vcpu(9, 0.0, 0.0, 0)]);
    let reply = asked(&mut session, line, &first);
    assert_eq!(reply["errno"], 0);
    let host = &reply["args"]["resp"];
    assert_eq!(
        (&host["vms"], &host["vcpus"], &host["lapses"]),
        (&json!(2), &json!(2), &json!(2))
    );
    assert_eq!(host["vm"]["web"]["run_percent"], 25.0);
    assert_eq!(host["vm"]["web#6"]["under_policy"], 0);
    let second = status(12.0, vec![vcpu(8, 7.0, 1.0, 14), vcpu(9, 0.0, 2.0, 0)]);
    let reply = asked(&mut session, "{\"req\":\"stats\"}", &second);
    let web = &reply["args"]["resp"]["vm"]["web"];
    assert_eq!(
        (&web["run_percent"], &web["ready_percent"]),
        (&json!(50.0), &json!(50.0))
    );
    assert_eq!(web["switches_per_s"], 2.0);
}

/// Each field has a description, of its kind, and there is no other.
#[test]
fn what_is_told_is_described() {
    let told = serde_json::to_value(stats(None, &status(1.0, Vec::new()))).unwrap();
    let meta = meta();
    for (name, told) in [("CorunHost", &told), ("CorunVm", &told["vm"]["web"])] {
        let fields = meta[name]["fields"].as_object().unwrap();
        let told = told.as_object().unwrap();
        let names: BTreeSet<_> = told.keys().collect();
        assert_eq!(fields.keys().collect::<BTreeSet<_>>(), names);
        for (field, value) in told {
            let kind = match fields[field]["datum"].as_str() {
                Some("string") => value.is_string(),
                Some("u64") => value.is_u64(),
                Some("float") => value.is_f64(),
                _ => value.is_object(),
            };
            assert!(kind, "{name}.{field}: {value}");
        }
    }
}

#[test]
fn what_is_wrong_is_said_with_its_errno() {
    let now = status(1.0, Vec::new());
    for (line, words) in [
        ("", "expected a request"),
        ("[]", "expected a request"),
        ("{\"req\":\"set-policy\"}", "unknown request \"set-policy\""),
        (
            "{\"req\":\"stats\",\"args\":{\"target\":\"cpu\"}}",
            "unknown target \"cpu\"",
        ),
    ] {
        let reply = asked(&mut Session::default(), line, &now);
        assert_eq!(reply["errno"], libc::EINVAL);
        let said = reply["args"]["resp"].as_str().unwrap();
        assert!(said.contains(words), "{said}");
    }
}
