// SPDX-License-Identifier: GPL-2.0-only
//! Numbers at the ends of what can be written: each is refused at its place, none overflows.

// Test helpers, too, panic when an expectation fails.
#![allow(clippy::unwrap_used)]

use corun_scenario::read;

fn problems(text: &str) -> Vec<String> {
    let problems = read("host.toml", text, &[]).unwrap_err();
    problems.to_string().lines().map(String::from).collect()
}

/// The problems of a good scenario with these lines at its end.
fn with(lines: &str) -> Vec<String> {
    let good = "[host]\npcpus = 4\n[vm.web]\nvcpus = 2\nworkload = \"cpu\"\n";
    problems(&format!("{good}{lines}\n"))
}

#[test]
fn durations_at_the_end_of_64_bits() {
    let unit = "expected a number with a unit: ns, us, ms, s or min, such as \"2.5ms\"";
    let range = "expected a duration from 1.00 ms to 86400 s";
    for (value, expected) in [
        ("18446744073709551615ns", range),
        ("18446744073709551616ns", range),
        ("18446744073709.551616ms", range),
        ("307445734562min", range),
        ("0.0000001ns", range),
        ("-1ms", unit),
        ("-0s", unit),
        ("1e3s", unit),
        ("infs", unit),
    ] {
        assert_eq!(
            with(&format!("[run]\nduration = \"{value}\"")),
            [format!(
                "host.toml:7: run.duration: found \"{value}\", {expected}"
            )]
        );
    }
}

#[test]
fn topologies_that_cannot_be() {
    let vm = "[vm.web]\nvcpus = 2\nworkload = \"cpu\"\n";
    let zero = ": every count must be at least 1";
    let large = " has more than 512 pCPUs";
    let form = " is not a topology: expected <nodes>n<llcs>l<cores>c<threads>t such as 1n2l4c2t";
    for (topology, expected) in [
        ("0n1l4c1t", zero),
        ("1n1l0c1t", zero),
        ("1n1l4c99999999999t", large),
        ("4294967295n4294967295l4294967295c4294967295t", large),
        ("65536n65536l1c1t", large),
        ("1n1l513c1t", large),
        ("-1n1l1c1t", form),
        ("1n1l4c1t1t", form),
    ] {
        assert_eq!(
            problems(&format!("[host]\ntopology = \"{topology}\"\n{vm}")),
            [format!(
                "host.toml:2: host.topology: \"{topology}\"{expected}"
            )]
        );
    }
}

#[test]
fn counts_at_the_end_of_32_and_64_bits() {
    for value in [
        "4294967295",
        "4294967296",
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
    ] {
        assert_eq!(
            with(&format!("weight = {value}")),
            [format!(
                "host.toml:6: vm.web.weight: found {value}, expected a whole number from 1 to 10000"
            )]
        );
    }
}
