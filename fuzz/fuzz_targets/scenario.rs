// SPDX-License-Identifier: GPL-2.0-only
//! A scenario, and after a zero byte what the command line sets: never a panic, and whatever is
//! refused is refused at a place.

#![no_main]

use corun_scenario::{Override, Problems, limits, looks_like_scenario, read};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &str| {
    let (text, set) = data.split_once('\0').unwrap_or((data, ""));
    let _ = looks_like_scenario(text);
    let overrides = match Override::parse("--set", set) {
        Ok(set) => vec![set],
        Err(problems) => {
            check(&problems);
            Vec::new()
        }
    };
    match read("s.toml", text, &overrides) {
        Err(problems) => check(&problems),
        Ok(scenario) => {
            assert!(!scenario.cases.is_empty());
            for case in &scenario.cases {
                let vcpus: u32 = case.vms.iter().map(|vm| vm.vcpus).sum();
                assert!(vcpus <= limits::VCPUS);
                assert!(!case.run.seeds.is_empty());
            }
        }
    }
});

fn check(problems: &Problems) {
    assert!(problems.iter().count() > 0);
    for problem in problems.iter() {
        let place = problem.place.to_string();
        let known = ["s.toml", "--set", "case"];
        assert!(known.iter().any(|known| place.starts_with(known)), "{problem}");
        assert!(!problem.message.is_empty());
    }
}
