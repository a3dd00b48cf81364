// SPDX-License-Identifier: GPL-2.0-only
//! Named workloads in scenarios: the clients they bring along, the disks they need.

use crate::common::Place;

const RUN: &str = r#"
host.pcpus = 4
run = { duration = "100ms", warm_up = "20ms", policies = ["cfs"] }
"#;

fn place(test: &str, scenario: &str) -> Place {
    let scenario = format!("{RUN}{scenario}");
    Place::with(&format!("workloads-{test}"), "a.toml", &scenario)
}

const COMPARE: [&str; 3] = ["compare", "a.toml", "--json"];

/// Name and replies per second of each client.
fn clients(test: &str, scenario: &str) -> Vec<(String, f64)> {
    let json = place(test, scenario).json(&COMPARE);
    let client = |it: &serde_json::Value| {
        let name = it["name"].as_str().unwrap().to_string();
        (name, it["replies_per_s"].as_f64().unwrap())
    };
    let all = json["runs"][0]["clients"].as_array().unwrap();
    all.iter().map(client).collect()
}

fn refusal(test: &str, scenario: &str) -> String {
    place(test, scenario).refused(&COMPARE)
}

#[test]
fn workloads_bring_their_clients() {
    let seen = clients(
        "brought",
        "vm.web = { count = 2, vcpus = 1, workload = \"nginx\" }\n\
         vm.both = { vcpus = 2, workload = [\"redis\", \"sockperf\"] }",
    );
    let names: Vec<&str> = seen.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "clients of web1",
        "clients of web2",
        "clients 1 of both",
        "clients 2 of both",
    ];
    assert_eq!(names, expected);
    assert!(seen.iter().all(|(_, rate)| *rate > 100.0), "{seen:?}");
}

#[test]
fn clients_of_the_scenario_take_their_place() {
    let seen = clients(
        "replaced",
        "vm.web = { vcpus = 1, workload = \"nginx\" }\n\
         vm.idle = { vcpus = 1, workload = \"ping\" }\n\
         [client.mine]\nvm = \"web\"\nkind = \"open\"\nport = \"http\"\nrate = 1000\n\
         [client.pings]\nvm = \"idle\"\nkind = \"ping\"\ninterval = \"2ms\"",
    );
    let rates: Vec<_> = seen
        .iter()
        .map(|(name, rate)| (name.as_str(), *rate))
        .collect();
    assert!(
        matches!(rates[..], [("mine", mine), ("pings", pings)]
            if (700.0..1300.0).contains(&mine) && (400.0..600.0).contains(&pings)),
        "{rates:?}"
    );
}

const TIERS: &str = r#"
vm.proxy = { vcpus = 2, workload = "tpcw-proxy" }
vm.app = { vcpus = 2, workload = "tpcw-web" }
vm.db = { vcpus = 2, workload = "tpcw-db" }
channel.one = { from = "proxy:app", to = "app:app" }
channel.two = { from = "app:sql", to = "db:sql" }
"#;

#[test]
fn tiers_have_channels_instead_of_clients() {
    let seen = clients("tiers", TIERS);
    let names: Vec<&str> = seen.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["clients of proxy", "one", "two"]);
    let without = TIERS.replace("channel.two", "# channel.two");
    let error = refusal("untied", &without);
    assert!(
        error.contains(
            "vm.app.workload: VM app: the port sql is used, but no client or channel connects to it: add \
             [channel.NAME] with from = \"app:sql\" and to = \"db:sql\""
        ),
        "{error}"
    );
}

#[test]
fn a_vm_that_reads_needs_a_disk() {
    let vm = "vm.db = { vcpus = 1, workload = \"mysql\" }\n";
    let error = refusal("diskless", vm);
    assert!(
        error.contains("a.toml:4: vm.db.workload: VM db reads or writes, but has no disk; add one"),
        "{error}"
    );
    let one = format!("{vm}device.a.kind = \"ssd\"\n");
    assert!(clients("one-disk", &one)[0].1 > 100.0);
    let two = format!("{one}device.b.kind = \"hdd\"\n");
    let error = refusal("two-disks", &two);
    assert!(
        error.contains("say disk = \"NAME\" if there are several"),
        "{error}"
    );
}
