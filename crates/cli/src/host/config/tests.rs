// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// What `corun host LINE` would do with this file.
fn with(text: &str, line: &[&str]) -> anyhow::Result<Args> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("host.toml");
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    let (args, _) = read(&file, &options().get_matches_from(line))?;
    Ok(args)
}

fn refused(text: &str) -> String {
    match with(text, &[]) {
        Ok(_) => panic!("accepted: {text}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_file_says_what_the_command_line_would() {
    let text = "policy = \"jupiter\"\nmax-ready = 20\nwindow = \"30s\"\njson = true\nobserve = false\n\
        only = [\"web1\", \"db\"]\nforce = \"another-scheduler\"\nscx-stats = \"off\"\n";
    let forcible = text.contains(corun_linux::preflight::FORCIBLE[0]);
    let text = match forcible {
        true => text.to_string(),
        false => text.replace("another-scheduler", corun_linux::preflight::FORCIBLE[0]),
    };
    let args = with(&text, &[]).unwrap();
    assert_eq!(
        (args.policy.as_str(), args.max_ready),
        ("jupiter", Some(20.0))
    );
    assert_eq!(args.window, 30_000_000_000);
    assert!(args.json && !args.observe);
    assert_eq!(args.only, ["web1", "db"]);
    assert_eq!(args.force, [corun_linux::preflight::FORCIBLE[0]]);
    assert_eq!(args.scx_stats.0, None);
    // What nobody sets has its default.
    assert_eq!(args.max_wait, 3_000_000_000);
}

#[test]
fn the_command_line_wins() {
    let text =
        "policy = \"microsliced\"\nmax-ready = 20\nonly = [\"web1\"]\n[set]\nslice = \"2ms\"\n";
    let line = ["--policy", "fair", "--only=db", "--max-ready", "0.5"];
    let args = with(text, &line).unwrap();
    assert_eq!((args.policy.as_str(), args.max_ready), ("fair", Some(0.5)));
    assert_eq!(args.only, ["db"]);
    // Another policy's parameters are not those of the file's.
    assert_eq!(args.set, []);
}

fn parameters(args: &Args) -> Vec<String> {
    let each = args.set.iter().map(|(key, value)| format!("{key}={value}"));
    each.collect()
}

#[test]
fn parameters_go_together_key_by_key_with_the_policy_in_force() {
    let vslicer = "policy = \"vslicer\"\n[set]\nslice = \"2ms\"\ndefault = \"7ms\"\n";
    let args = with(vslicer, &["--set", "slice=3ms"]).unwrap();
    assert_eq!(parameters(&args), ["default=7ms", "slice=3ms"]);
    let args = with(vslicer, &["--policy", "vslicer"]).unwrap();
    assert_eq!(parameters(&args), ["slice=2ms", "default=7ms"]);
    // A file that names no policy sets those of the one that the command line names.
    let light = "[set]\nlight = 200\n";
    let args = with(light, &["--policy", "balance-load"]).unwrap();
    assert_eq!(parameters(&args), ["light=200"]);
    assert!(refused(light).contains("host.toml:2: set.light: "));
    // Otherwise people are told which are left out.
    let document = tree::parse("host.toml", vslicer).unwrap();
    let mut words = words_of(&document, "fair").unwrap();
    let said = options().get_matches_from(["--policy=fair", "--set=slot=1ms"]);
    assert_eq!(
        leave_out_parameters(&mut words, &said),
        ["slice", "default"].map(|key| format!(
            "host.toml:{}: set.{key}: is for vslicer, the file's policy; with --policy fair it is left out",
            if key == "slice" { 3 } else { 4 }
        ))
    );
    assert!(words.iter().all(|word| word.long != SET));
}

/// Options that do not go together are found once everything is known, and reported where they were written.
#[test]
fn what_does_not_go_together_is_said_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("host.toml");
    let run = |text: &str, line: &[&str]| {
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let (args, said) = read(&file, &options().get_matches_from(line)).unwrap();
        super::super::with_all(&args, &said)
            .unwrap_err()
            .to_string()
    };
    for (text, line, wanted) in [
        (
            "observe = true\nrecord = \"x\"",
            &[][..],
            "host.toml:2: record: does not go with --observe",
        ),
        (
            "max-ready = 20",
            &["--observe"],
            "host.toml:1: max-ready: does not go with --observe",
        ),
        (
            "backend = \"fair\"\nmax-wait = \"2s\"\npolicy = \"fair\"",
            &[],
            "host.toml:2: max-wait: goes with the dispatcher only",
        ),
        (
            "backend = \"fair\"\npolicy = \"jupiter\"",
            &[],
            "host.toml:2: policy: policy jupiter needs sched_ext",
        ),
        (
            "backend = \"fair\"",
            &[],
            "host.toml:1: backend: policy balance needs sched_ext",
        ),
        (
            "backend = \"fair\"",
            &["--policy=jupiter"],
            "--policy: policy jupiter needs sched_ext",
        ),
        (
            "policy = \"aql\"\ncalibration = \"/nowhere.toml\"",
            &[],
            "host.toml:2: calibration: ",
        ),
    ] {
        let said = run(text, line);
        assert!(said.contains(wanted), "{text}: {said}\nwanted: {wanted}");
    }
}

/// An empty list would be everybody.
#[test]
fn no_vm_is_not_all_vms() {
    for (text, wanted) in [
        (
            "only = []",
            "host.toml:1: only: found an empty list, expected one at least",
        ),
        (
            "only = [\"\"]",
            "host.toml:1: only: found \"\", expected a VM's name",
        ),
        ("only = [\"web1\", \" \"]", "expected a VM's name"),
        ("only = \"\"", "expected a VM's name"),
    ] {
        let said = refused(text);
        assert!(said.contains(wanted), "{text}: {said}");
    }
    assert!(options().try_get_matches_from(["--only="]).is_err());
}

#[test]
fn all_that_does_not_go_together_is_said_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("host.toml");
    let run = |text: &str| {
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let none: [&str; 0] = [];
        let (args, said) = read(&file, &options().get_matches_from(none))?;
        super::super::with_all(&args, &said)
    };
    let rest = "max-ready = 20\nonly = [\"a\"]\nslice = \"2ms\"\n";
    for first in [
        "observe = true",
        "backend = \"fair\"",
        "observe = true\nonlyy = 1",
    ] {
        let said = run(&format!("{first}\n{rest}")).unwrap_err().to_string();
        let lines: Vec<&str> = said.lines().collect();
        let before = first.lines().count();
        for (at, key) in ["max-ready", "only", "slice"].iter().enumerate() {
            let wanted = format!("host.toml:{}: {key}: ", before + at + 1);
            assert!(
                lines.iter().any(|line| line.contains(&wanted)),
                "{wanted}\n{said}"
            );
        }
        assert!(
            !first.contains("onlyy") || said.contains("did you mean \"only\""),
            "{said}"
        );
    }
}

#[test]
fn a_parameter_that_there_is_not_is_answered_with_those_that_are() {
    let said = refused("policy = \"jupiter\"\n[set]\nlatencyy = \"1ms\"\n");
    let wanted = "no parameter \"latencyy\", did you mean \"latency\"? Accepted are ";
    assert!(said.contains(wanted), "{said}");
}

#[test]
fn where_a_run_wrote_things_down_is_known_whatever_else_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("host.toml");
    let none = options().get_matches_from(["--observe", "--only=x", "--restore"]);
    let text = "policy = \"no such\"\nmax-ready = 200\nstate = \"/a\"\nstate-dir = \"/b\"\n";
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    let args = read_places(&file, &none).unwrap();
    let places = [&args.state, &args.state_dir].map(|path| path.to_str());
    assert_eq!(places, [Some("/a"), Some("/b")]);
}

#[test]
fn what_is_wrong_is_said_with_line_key_value_and_what_is_accepted() {
    for (text, wanted) in [
        (
            "\npolcy = \"fair\"",
            "host.toml:2: polcy: unknown key, did you mean \"policy\"?",
        ),
        ("config = \"x\"", "host.toml:1: config: unknown key"),
        ("restore = true", "host.toml:1: restore: unknown key"),
        (
            "policy = \"balnce\"",
            "host.toml:1: policy: unknown policy \"balnce\", did you mean \"balance\"?",
        ),
        (
            "slice = \"1us\"",
            "host.toml:1: slice: found \"1us\", expected 50us to 1s",
        ),
        (
            "max-ready = 120",
            "host.toml:1: max-ready: found 120, expected a percentage from 0 to 100, such as 10 or 2.5",
        ),
        (
            "json = \"yes\"",
            "host.toml:1: json: found \"yes\", expected true or false",
        ),
        (
            "backend = \"cfs\"",
            "host.toml:1: backend: found \"cfs\", expected one of sched-ext, fair",
        ),
        (
            "only = [[]]",
            "host.toml:1: only: found a list, expected a list of texts",
        ),
        (
            "window = [\"1s\"]",
            "host.toml:1: window: found a list, expected text in quotes",
        ),
        (
            "set = \"slice=1ms\"",
            "host.toml:1: set: found \"slice=1ms\", expected a table",
        ),
        (
            "policy = \"microsliced\"\n[set]\nsice = \"1ms\"",
            "host.toml:3: set.sice: ",
        ),
        (
            "policy = \"microsliced\"\n[set]\nslice = \"soon\"",
            "host.toml:3: set.slice: ",
        ),
        ("policy = ", "host.toml:1: not TOML"),
        (
            "state-dir = \"\"",
            "host.toml:1: state-dir: found \"\", expected something that is not empty",
        ),
        (
            "scx-stats = \"\"",
            "host.toml:1: scx-stats: found \"\", expected a path, or off",
        ),
    ] {
        let said = refused(text);
        assert!(said.contains(wanted), "{text}: {said}\nwanted: {wanted}");
    }
    // All at once.
    assert_eq!(
        refused("slice = \"1us\"\nmax-ready = 120").lines().count(),
        2
    );
}

/// No option is left out except those about the file, or about no run; each value goes the way of the command line.
#[test]
fn every_option_is_a_key() {
    for arg in options().get_arguments() {
        let long = arg.get_long().unwrap();
        let found = refused_or_not(&format!("{long} = [[1]]"));
        let none = ["config", "restore"].contains(&long);
        assert_eq!(found.contains("unknown key"), none, "{found}");
    }
}

fn refused_or_not(text: &str) -> String {
    with(text, &[])
        .err()
        .map_or_else(String::new, |error| error.to_string())
}

#[test]
fn files_that_others_may_write_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("host.toml");
    let none = options().get_matches_from::<[&str; 0], _>([]);
    let said = |file: &Path| {
        read(file, &none)
            .err()
            .map_or_else(String::new, |why| why.to_string())
    };
    assert!(said(&file).contains("No such file"), "{}", said(&file));
    fs::write(&file, "policy = \"fair\"\n").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o646)).unwrap();
    assert!(
        said(&file).contains("anybody may write it (mode 0646)"),
        "{}",
        said(&file)
    );
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    assert_eq!(said(&file), "");
    // Only root can give a file away.
    if std::os::unix::fs::chown(&file, Some(4711), None).is_ok() {
        assert!(
            said(&file).contains("belongs to user 4711"),
            "{}",
            said(&file)
        );
    }
    fs::write(&file, "#".repeat(70_000)).unwrap();
    assert!(!said(&file).is_empty());
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    for other in [folder.path(), &pipe] {
        assert!(said(other).contains("is no file"), "{}", said(other));
    }
}

/// The files that packages install, and those that they show.
#[test]
fn examples_are_accepted() {
    let packaging = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let mut files = vec![packaging.join("host.toml")];
    let examples = fs::read_dir(packaging.join("examples")).unwrap();
    files.extend(examples.map(|entry| entry.unwrap().path()));
    assert!(files.len() > 3, "{files:?}");
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let args = with(&text, &[]).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
        let policy = known_host_policy(&args.policy).unwrap();
        let mut settings = Settings::default();
        for (key, value) in &args.set {
            settings.set(policy, key, value).unwrap();
        }
        settings.check(policy).unwrap();
    }
}
