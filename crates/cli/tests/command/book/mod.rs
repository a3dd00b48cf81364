// SPDX-License-Identifier: GPL-2.0-only
//! The book says nothing that is not so: its commands run, its links lead somewhere, its chapters exist, and code that
//! it shows is the real code.
//!
//! Blocks of shell say how they are tested:
//!
//! | fence | |
//! |---|---|
//! | `sh` | run, in an empty directory with what a clone has |
//! | `sh slow` | take long: arguments are checked here, and `scripts/book.py`, which `make test` calls, runs them |
//! | `sh host`, `sh running`, `sh guest` | need root and a host, one where `corun host` runs, or `corun guest`: arguments are checked here, and `testbed/e2e/run.sh OUT book` runs them |
//! | `sh testbed` | run by the testbed: the program must be there, and what it is told to run |
//! | `sh other` | other people's commands |
//! | `rust FILE` | must be in that file, word for word |

mod commands;
mod page;

use self::page::{Page, root};
use std::collections::BTreeSet;
use std::fs;

/// Every page of the book, and those that lead to it.
fn pages() -> Vec<Page> {
    let docs = fs::read_dir(root().join("docs")).unwrap();
    let mut names: Vec<String> = docs
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".md") && name != "SUMMARY.md")
        .map(|name| format!("docs/{name}"))
        .collect();
    names.extend(["README.md", "ARCHITECTURE.md"].map(String::from));
    names.sort();
    names.iter().map(|name| Page::read(name)).collect()
}

#[test]
fn commands_run() {
    commands::run(&pages());
}

#[test]
fn other_commands_are_run_elsewhere() {
    commands::elsewhere(&pages());
}

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for page in pages() {
        for link in &page.links {
            if let Err(why) = page.follow(link) {
                broken.push(format!("{}: {link}: {why}", page.name));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_page_is_a_chapter_once() {
    let summary = Page::read("docs/SUMMARY.md");
    let chapters: BTreeSet<String> = summary
        .links
        .iter()
        .map(|link| format!("docs/{link}"))
        .collect();
    assert_eq!(
        chapters.len(),
        summary.links.len(),
        "a chapter is there twice"
    );
    let pages = pages().into_iter().map(|page| page.name);
    let pages: BTreeSet<String> = pages.filter(|name| name.starts_with("docs/")).collect();
    assert_eq!(chapters, pages);
}

#[test]
fn code_that_is_shown_is_the_code() {
    let mut shown = 0;
    for page in pages() {
        for block in page.blocks.iter().filter(|block| block.language == "rust") {
            let file = fs::read_to_string(root().join(&block.kind)).unwrap();
            let at = format!("{}, line {}", page.name, block.line);
            assert!(file.contains(&block.text), "{at}: not in {}", block.kind);
            shown += 1;
        }
    }
    assert!(shown > 0);
}
