// SPDX-License-Identifier: GPL-2.0-only
//! Leaves out what a recording reveals about people: names of VMs and programs, and what a kernel's builder calls it.
//!
//! Kept are times, numbers of threads and processes, the kernel's version, and the names that the kernel and virtual
//! machine monitors usually give their threads, from which the replay knows a thread's role.
//! Equal names stay equal.

use super::block::{Blocks, Damage, HEADER};
use super::{Encoder, Entry};
use crate::text::input;
use crate::{names, scheduler};
use corun_model::Nanos;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};

/// Replaces names, equal ones by equal ones.
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
            // A sched_ext scheduler may have any name; those that replays know reveal nothing.
            Entry::Fact { name, value } if name == "scheduler" => {
                let known = ["eevdf", "cfs", scheduler::CORUN, "fair"];
                let is_known = known.contains(&value.to_lowercase().as_str());
                if !is_known && scheduler::policy(value).is_none() {
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

/// What was copied.
#[derive(Debug, Default)]
pub struct Copied {
    /// Time from the recording's beginning to the last entry, ns.
    pub elapsed: Nanos,
    /// Events.
    pub events: u64,
    /// Events that were lost while it was recorded.
    pub lost: u64,
    /// Why not everything was copied.
    pub damage: Option<Damage>,
}

/// Copies a recording, packed with gzip or not, without names, as far as it can be read. The copy is not packed with
/// gzip.
///
/// # Errors
/// [`Damage::Header`] and [`Damage::Io`] of the source; whatever writing says.
pub fn anonymise(source: impl Read, mut out: impl Write) -> io::Result<Result<Copied, Damage>> {
    let unpacked = input::open(source).map_err(Damage::Io);
    let mut blocks = match unpacked.and_then(Blocks::open) {
        Ok(blocks) => blocks,
        Err(damage) => return Ok(Err(damage)),
    };
    out.write_all(&HEADER)?;
    let (mut names, mut encoder, mut entries) =
        (Anonymiser::default(), Encoder::default(), Vec::new());
    let (mut copied, mut began) = (Copied::default(), None);
    loop {
        match blocks.next(&mut entries) {
            Ok(true) => {}
            Ok(false) => return Ok(Ok(copied)),
            Err(damage) => {
                copied.damage = Some(damage);
                return Ok(Ok(copied));
            }
        }
        for entry in entries.drain(..) {
            if let Some(at) = entry.at() {
                copied.elapsed = at.saturating_sub(*began.get_or_insert(at));
            }
            copied.events += u64::from(entry.is_event());
            if let Entry::Lost { events, .. } = entry {
                copied.lost = copied.lost.saturating_add(events);
            }
            if let Some(block) = encoder.push(&names.entry(entry)) {
                out.write_all(&block)?;
            }
        }
        // One block for each block: what is whole stays whole.
        if let Some(block) = encoder.flush() {
            out.write_all(&block)?;
        }
    }
}
