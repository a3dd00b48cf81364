// SPDX-License-Identifier: GPL-2.0-only
//! `corun host` as its service runs it, as far as that goes without taking over a host.

use crate::common::corun;
use std::fs;
use std::path::Path;

/// What the service does after each run finds what its options say, not only what is so by default: here with
/// files that say nothing, which is noticed and done with.
#[test]
fn the_service_takes_back_what_is_written_down_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let text = format!(
        "backend = \"fair\"\npolicy = \"aql\"\nstate = \"{}\"\nstate-dir = \"{}\"\n",
        at("threads.json"),
        folder.path().display()
    );
    fs::write(at("host.toml"), text).unwrap();
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd/corun.service");
    let unit = fs::read_to_string(unit).unwrap();
    let after = unit
        .lines()
        .filter_map(|it| it.strip_prefix("ExecStopPost=-/usr/bin/corun "));
    let with_config = |line: &&str| line.contains("--config /etc/corun/host.toml");
    let line = after.clone().find(with_config).unwrap();
    let line = line.replace("/etc/corun/host.toml", &at("host.toml"));
    for options in ["", "--policy=balance --max-wait 2s"] {
        for file in ["threads.json", "halt-poll.json"] {
            fs::write(at(file), "[{\"tgid\":1,").unwrap();
        }
        let line = line.replace("$CORUN_OPTIONS", options);
        let words: Vec<&str> = line.split_whitespace().collect();
        let output = corun(&words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        assert!(said.contains("could not be understood"), "{said}");
        assert!(said.contains("halt-poll.json"), "{said}");
        for file in ["threads.json", "halt-poll.json"] {
            assert!(!Path::new(&at(file)).exists(), "{file}");
        }
        let output = corun(&words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said, "corun: nothing was left\n");
    }
    // Where nobody can read the options any more, there is what is by default.
    assert!(after.clone().any(|line| line == "host --restore"));
}
