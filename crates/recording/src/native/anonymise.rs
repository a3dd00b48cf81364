// SPDX-License-Identifier: GPL-2.0-only
//! Leaves out what a recording tells of people: names of VMs and programs, and what a kernel's builder
//! calls it.
//!
//! Kept are times, numbers of threads and processes, the kernel's version, and the names that the
//! kernel and virtual machine monitors usually give their threads: what the replay knows a thread's part by.
//! Equal names stay equal.

use super::block::{Blocks, Damage, HEADER};
use super::{Encoder, Entry};
use crate::names;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};

/// Replaces names, the same by the same.
#[derive(Default)]
pub struct Anonymiser {
    vms: BTreeMap<String, usize>,
    programs: BTreeMap<String, usize>,
}

impl Anonymiser {
    /// The entry without names.
    #[must_use]
    pub fn entry(&mut self, mut entry: Entry) -> Entry {
        match &mut entry {
            Entry::Fact { name, value } if name == "kernel" => {
                let end = value.find(|c: char| !c.is_ascii_digit() && c != '.');
                value.truncate(end.unwrap_or(value.len()));
            }
            // A sched_ext scheduler may have any name; those that replays know tell nothing.
            Entry::Fact { name, value } if name == "scheduler" => {
                let known = ["eevdf", "cfs", "corun", "fair"];
                if !known.contains(&value.to_lowercase().as_str()) {
                    *value = "other".to_string();
                }
            }
            Entry::Vm { name, .. } => *name = numbered(&mut self.vms, name, "vm"),
            Entry::Thread(thread) => self.comm(&mut thread.comm),
            Entry::Fork { comm, .. } | Entry::Rename { comm, .. } => self.comm(comm),
            _ => {}
        }
        entry
    }

    fn comm(&mut self, comm: &mut String) {
        if let Some(rest) = comm.strip_prefix("IO ") {
            *comm = format!("IO {}", numbered(&mut self.programs, rest, "io"));
        } else {
            *comm = match names::usual(comm) {
                Some(part) => part.to_string(),
                None => numbered(&mut self.programs, comm, "program"),
            };
        }
    }
}

/// `prefix` and the number that this name has got.
fn numbered(known: &mut BTreeMap<String, usize>, name: &str, prefix: &str) -> String {
    let next = known.len() + 1;
    let number = *known.entry(name.to_string()).or_insert(next);
    format!("{prefix}{number}")
}

/// Copies a recording without names, as far as it can be read; says why not further, if so.
///
/// # Errors
/// [`Damage::Header`] and [`Damage::Io`] of the source; whatever writing says.
pub fn anonymise(
    source: impl Read,
    mut out: impl Write,
) -> io::Result<Result<Option<Damage>, Damage>> {
    let mut blocks = match Blocks::open(source) {
        Ok(blocks) => blocks,
        Err(damage) => return Ok(Err(damage)),
    };
    out.write_all(&HEADER)?;
    let (mut names, mut encoder, mut entries) =
        (Anonymiser::default(), Encoder::default(), Vec::new());
    loop {
        match blocks.next(&mut entries) {
            Ok(true) => {}
            Ok(false) => break Ok(Ok(None)),
            Err(damage) => break Ok(Ok(Some(damage))),
        }
        for entry in entries.drain(..) {
            if let Some(block) = encoder.push(&names.entry(entry)) {
                out.write_all(&block)?;
            }
        }
        // A block for a block: what is whole stays so.
        if let Some(block) = encoder.flush() {
            out.write_all(&block)?;
        }
    }
}
