// SPDX-License-Identifier: GPL-2.0-only
//! Runs what pages tell readers to run: each page in a directory of its own, which has what a clone
//! has once it is built.

use super::page::{Page, root};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Kinds of blocks that are run elsewhere.
const ELSEWHERE: [&str; 4] = ["slow", "host", "running", "guest"];

/// A page's commands of one kind.
struct Script<'a> {
    page: &'a str,
    checked: bool,
    text: String,
}

/// Runs the commands of all pages.
pub fn run(pages: &[Page]) {
    let scripts: Vec<Script<'_>> = pages.iter().flat_map(scripts).collect();
    assert!(scripts.len() > 10, "where are the commands?");
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().unwrap().get() {
            scope.spawn(|| {
                while let Some(script) = scripts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let failed = one(script);
                    failures.lock().unwrap().extend(failed);
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Which parts of a page are run, and which are only checked.
fn scripts(page: &Page) -> Vec<Script<'_>> {
    let mut both = [false, true].map(|checked| Script {
        page: &page.name,
        checked,
        text: String::new(),
    });
    for block in page.blocks.iter().filter(|block| block.language == "sh") {
        let at = format!("{}, line {}", page.name, block.line);
        match block.kind.as_str() {
            "" => both[0].text += &block.text,
            kind if ELSEWHERE.contains(&kind) => both[1].text += &block.text,
            "testbed" => in_the_testbed(&block.text, &at),
            kind => {
                assert_eq!(kind, "other", "{at}: unknown kind");
                assert!(!block.text.contains("corun"), "{at}: this is ours");
            }
        }
    }
    both.into_iter()
        .filter(|script| !script.text.is_empty())
        .collect()
}

/// A command of the testbed: the program must exist, and know the group of phases that it is given.
fn in_the_testbed(text: &str, at: &str) {
    let mut words = text.split_whitespace();
    let program = words.next().unwrap();
    let mode = fs::metadata(root().join(program)).unwrap().permissions();
    assert!(mode.mode() & 0o111 != 0, "{at}: {program} is no program");
    let phases = fs::read_to_string(root().join("testbed/e2e/host/run")).unwrap();
    for group in words.skip(1) {
        assert!(
            phases.contains(&format!("phase_{group}()")),
            "{at}: no group {group}"
        );
    }
}

/// What is only checked here is what `scripts/book.py` finds in the pages; it runs that, or has the testbed run it.
pub fn elsewhere(pages: &[Page]) {
    for kind in ELSEWHERE {
        let listed = Command::new(root().join("scripts/book.py"))
            .args(["list", kind])
            .output()
            .unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        let theirs = listed.lines().map(|line| {
            let (at, command) = line.split_once('\t').unwrap();
            (at.split_once(':').unwrap().0.to_string(), words(command))
        });
        let blocks = pages
            .iter()
            .flat_map(|page| page.blocks.iter().map(move |block| (page, block)));
        let blocks = blocks.filter(|(_, block)| block.language == "sh" && block.kind == kind);
        let ours = blocks.flat_map(|(page, block)| {
            let text = block.text.replace("\\\n", " ");
            let lines: Vec<_> = text
                .lines()
                .map(|line| words(line.split('#').next().unwrap()))
                .collect();
            lines.into_iter().map(|line| (page.name.clone(), line))
        });
        let mut ours: Vec<_> = ours.filter(|(_, line)| !line.is_empty()).collect();
        let mut theirs: Vec<_> = theirs.collect();
        ours.sort();
        theirs.sort();
        assert!(!ours.is_empty(), "no block is of the kind {kind}");
        assert_eq!(
            ours, theirs,
            "scripts/book.py reads blocks of the kind {kind} otherwise"
        );
    }
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Runs a script; returns what went wrong, if anything did.
fn one(script: &Script<'_>) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    furnish(folder.path(), script.checked);
    let path = std::env::var("PATH").unwrap();
    let done = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &script.text])
        .current_dir(folder.path())
        .env(
            "PATH",
            format!("{}:{path}", folder.path().join("bin").display()),
        )
        .output()
        .unwrap();
    let what = if script.checked { "arguments" } else { "run" };
    (!done.status.success()).then(|| {
        format!(
            "{} ({what}): {}\n{}\n{}",
            script.page,
            done.status,
            script.text,
            String::from_utf8_lossy(&done.stderr)
        )
    })
}

/// Lays out what a clone has. `checked`: corun only checks its arguments.
fn furnish(folder: &Path, checked: bool) {
    for name in ["experiments", "docs", "testbed", "packaging"] {
        symlink(root().join(name), folder.join(name)).unwrap();
    }
    let (bin, built) = (folder.join("bin"), folder.join("target/release"));
    fs::create_dir_all(&bin).unwrap();
    fs::create_dir_all(&built).unwrap();
    let corun = env!("CARGO_BIN_EXE_corun");
    // Help is printed only if everything before it was understood.
    let rest = if checked { "--help >/dev/null" } else { "" };
    // Commands that wrappers call are not wrapped.
    let path = std::env::var("PATH").unwrap();
    let programs = [
        (built.join("corun"), format!("exec {corun} \"$@\" {rest}")),
        (bin.join("corun"), format!("exec {corun} \"$@\" {rest}")),
        (bin.join("sudo"), "exec \"$@\"".to_string()),
        (bin.join("cargo"), "exit 0".to_string()),
        // Does such a target exist? It is not carried out.
        (
            bin.join("make"),
            format!(
                "PATH='{path}' exec make -C {} --dry-run --silent \"$@\" >/dev/null",
                root().display()
            ),
        ),
    ];
    for (file, line) in programs {
        fs::write(&file, format!("#!/bin/sh\n{line}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
}
