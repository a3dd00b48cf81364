// SPDX-License-Identifier: GPL-2.0-only
//! `corun compare` with clients of VMs and channels between them.

use super::place;
use crate::common::fits_schema;

const SHOP: &str = r#"
[host]
pcpus = 2
[run]
duration = "300ms"
warm_up = "50ms"
policies = ["cfs", "balance"]
[vm.web]
count = 2
vcpus = 1
[[vm.web.thread]]
count = 4
program = "loop { request http; transmit db 1KB; request db; compute 100us; reply http 16KB }"
[vm.db]
vcpus = 1
[[vm.db.thread]]
program = "loop { request sql; compute 50us exp; reply sql 4KB; count calls }"
[client.users]
vm = "web"
kind = "closed"
port = "http"
connections = 8
think = "2ms exp"
[client.ping]
vm = "db"
kind = "ping"
interval = "1ms"
[channel.calls]
from = "web:db"
to = "db:sql"
"#;

/// Zeros in its row would look like a server that does not answer.
#[test]
fn a_client_that_never_comes_is_told_of() {
    let place = place("clients-late");
    let late = |start: &str| {
        let with = format!("think = \"2ms exp\"\nstart = \"{start}\"");
        place.write("shop.toml", SHOP.replace("think = \"2ms exp\"", &with));
        let output = place.corun(&["compare", "shop.toml", "-q", "--policies", "cfs"]);
        String::from_utf8(output.stderr).unwrap()
    };
    let note = "client \"users web1\" never comes: its start is 350 ms, the run ends at 350 ms, and so 1 more client";
    let said = late("350ms");
    assert!(said.contains(note), "{said}");
    assert!(!late("349ms").contains("never comes"));
}

#[test]
fn clients_and_channels() {
    let place = place("clients");
    place.write("shop.toml", SHOP);
    let json = place.json(&["compare", "shop.toml", "--json"]);
    fits_schema("compare", &json);
    for run in json["runs"].as_array().unwrap() {
        let clients = run["clients"].as_array().unwrap();
        let names: Vec<&str> = clients
            .iter()
            .map(|it| it["name"].as_str().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "users web1",
                "users web2",
                "ping",
                "calls web1",
                "calls web2"
            ]
        );
        for client in clients {
            let of = |key: &str| client[key].as_f64().unwrap();
            assert!(of("replies_per_s") > 500.0, "{client}");
            assert!(of("response_p50_us") <= of("response_p95_us"), "{client}");
            assert!(of("response_p99_us") <= of("response_max_us"), "{client}");
        }
    }
    let text = place.prints(&["compare", "shop.toml"]);
    assert!(text.contains("users web1 (closed loop)"), "{text}");
    for (from, to, expected) in [
        (
            "[client.ping]",
            "[client.more]\nvm = \"db\"\nkind = \"sink\"\nport = \"out\"\n[client.ping]",
            "corun: shop.toml:27: client.more.port: client more: no program of VM db uses the port out",
        ),
        (
            "\"http\"",
            "\"htpp\"",
            "corun: shop.toml:21: client.users.port: client users web1: no program of VM web1 uses the \
             port htpp; used are: http, db",
        ),
        (
            "\"db:sql\"",
            "\"db:sqk\"",
            "corun: shop.toml:30: channel.calls.to: channel calls web1: no program of VM db uses the port \
             sqk; used are: sql",
        ),
        (
            "\"2ms exp\"",
            "\"2 exp\"",
            "corun: shop.toml:23: client.users.think: line 1, column 1: saw `2`",
        ),
        (
            "request sql;",
            "request sql; request more;",
            "corun: shop.toml:17: vm.db.thread.program: VM db: the port more is used, but no client or \
             channel connects to it",
        ),
        (
            "[client.ping]",
            "[network]\ntcp_window = \"1GB\"\n[client.ping]",
            "corun: shop.toml:25: network.tcp_window: found \"1GB\", expected a size from 64KB to 6MB",
        ),
        (
            "interval = \"1ms\"",
            "interval = \"999ns exp\"",
            "corun: shop.toml:27: client.ping.interval: found \"999ns exp\", expected at least 1us",
        ),
    ] {
        place.write("shop.toml", SHOP.replace(from, to));
        let error = place.refused(&["compare", "shop.toml", "--quiet"]);
        assert!(error.starts_with(expected), "{error}");
    }
}

const OPEN: &str = r#"
[host]
pcpus = 1
[run]
duration = "500ms"
warm_up = "50ms"
seeds = [1, 2]
policies = ["eevdf", "fair"]
[vm.web]
vcpus = 1
[[vm.web.thread]]
count = 4
program = "loop { request http; compute 2ms; reply http 1KB }"
[client.users]
vm = "web"
kind = "open"
port = "http"
connections = 800
rate = 1000
"#;

/// Response times that only grow with the run's length are reported as such: also where nobody waits for a connection.
#[test]
fn an_open_client_whose_vm_does_not_keep_up_is_told() {
    let place = place("overload");
    place.write("open.toml", OPEN);
    let json = place.json(&["compare", "open.toml", "--json"]);
    fits_schema("compare", &json);
    let client = &json["runs"][0]["clients"][0];
    assert_eq!(client["overloaded"], true, "{client}");
    assert!(client["sent_per_s"].as_f64().unwrap() > 950.0, "{client}");
    let notes = json["notes"].as_array().unwrap();
    assert_eq!(notes.len(), 1, "{notes:?}");
    let note = notes[0].as_str().unwrap();
    assert!(
        note.starts_with("client \"users\": fewer requests per second are answered than sent: "),
        "{note}"
    );
    assert!(
        note.contains(" under eevdf, ") && note.contains(" under fair;"),
        "{note}"
    );
    // Of many equal ones, one is named.
    place.write("many.toml", OPEN.replace("[vm.web]", "[vm.web]\ncount = 3"));
    let json = place.json(&["compare", "many.toml", "--json"]);
    let notes = json["notes"].as_array().unwrap();
    assert_eq!(notes.len(), 1, "{notes:?}");
    let note = notes[0].as_str().unwrap();
    assert!(
        note.starts_with("3 clients, such as \"users web1\": "),
        "{note}"
    );
    place.write("served.toml", OPEN.replace("rate = 1000", "rate = 400"));
    let json = place.json(&["compare", "served.toml", "--json"]);
    assert_eq!(json["runs"][0]["clients"][0]["overloaded"], false);
    assert!(
        json.get("notes")
            .is_none_or(|notes| notes == &serde_json::json!([]))
    );
    let args = ["sensitivity", "open.toml", "--param", "client.users.rate"];
    let json = place.json(&[&args[..], &["--values", "400,1000", "--json"]].concat());
    let notes = json["notes"].as_array().unwrap();
    assert_eq!(notes.len(), 1, "{notes:?}");
    let note = notes[0].as_str().unwrap();
    assert!(
        note.starts_with("client.users.rate = 1000: client"),
        "{note}"
    );
}
