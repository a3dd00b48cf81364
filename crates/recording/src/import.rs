// SPDX-License-Identifier: GPL-2.0-only
//! Reads a file from its first byte to the finished recording, keeping count of all trouble.

use crate::error::ImportError;
use crate::event::Event;
use crate::model::{Fact, Format, Grouping, Host, Recording};
use crate::note::{Note, Quote};
use crate::order::{Order, Stamped, WINDOW};
use crate::rebuild::{self, Rebuild};
use crate::text::comment::Stated;
use crate::text::input::{self, Step};
use crate::text::{self, Head, Line, foreign};
use corun_model::time::SEC;
use corun_model::{Nanos, Topology};
use std::collections::BTreeMap;
use std::io::Read;

/// A recording and what there is to know about how it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The recording.
    pub recording: Recording,
    /// What was skipped, repaired or guessed; empty if nothing was.
    pub notes: Vec<Note>,
}

/// Lines quoted in a note.
const QUOTES: usize = 3;
/// Kinds of events counted by name.
const MAX_KINDS: usize = 4096;
/// A file whose first lines hold no event at all is given up.
const PATIENCE: u64 = 20_000;
/// Events further apart than this are not of one recording, ns.
const GAP: Nanos = 3600 * SEC;

/// Reads a recording from anything that can be read; `file` is its name in messages.
pub(crate) fn import(file: &str, source: impl Read) -> Result<Import, ImportError> {
    let io = |source| ImportError::Io {
        file: file.to_string(),
        source,
    };
    let (mut lines, head) = input::open(source).map_err(io)?;
    if let Some(foreign::Foreign { what, remedy }) = foreign::recognise(&head) {
        return Err(ImportError::Foreign {
            file: file.to_string(),
            what,
            remedy,
        });
    }
    let mut importer = Importer::new(file);
    loop {
        match lines.next() {
            Step::Line(bytes) => {
                let text = String::from_utf8_lossy(bytes);
                importer.lines += 1;
                importer.line(&text)?;
            }
            Step::TooLong => {
                importer.lines += 1;
                importer.unparsed("(too long)", "longer than 16384 bytes");
            }
            Step::Unfinished => {
                let line = importer.lines;
                importer.notes.push(Note::CutShort { line });
                break;
            }
            Step::Broken(error) => {
                importer.broken(error)?;
                break;
            }
            Step::End => break,
        }
    }
    importer.finish()
}

struct Importer<'a> {
    file: &'a str,
    /// Lines read.
    lines: u64,
    stated: Stated,
    order: Order,
    rebuild: Rebuild,
    notes: Vec<Note>,
    unparsed: u64,
    quotes: Vec<Quote>,
    kinds: BTreeMap<String, u64>,
    events: u64,
    /// Events that went into the rebuilding.
    applied: u64,
    perf: bool,
    highest_cpu: u32,
    lost: u64,
    gaps: u64,
    /// pCPUs whose events were lost just before the next line; `None`: unknown which.
    losses: Vec<Option<u32>>,
    far_away: u64,
    far_away_line: u64,
}

impl<'a> Importer<'a> {
    fn new(file: &'a str) -> Self {
        Self {
            file,
            lines: 0,
            stated: Stated::default(),
            order: Order::default(),
            rebuild: Rebuild::default(),
            notes: Vec::new(),
            unparsed: 0,
            quotes: Vec::new(),
            kinds: BTreeMap::new(),
            events: 0,
            applied: 0,
            perf: false,
            highest_cpu: 0,
            lost: 0,
            gaps: 0,
            losses: Vec::new(),
            far_away: 0,
            far_away_line: 0,
        }
    }

    fn name(&self) -> String {
        self.file.to_string()
    }

    fn line(&mut self, text: &str) -> Result<(), ImportError> {
        match text::parse(text) {
            Line::Nothing => {}
            Line::Comment(comment) => {
                self.stated.comment(comment);
            }
            Line::Lost { cpu, events } => {
                self.gaps += 1;
                self.lost = self.lost.saturating_add(events.unwrap_or(1));
                if self.losses.len() < 2 * Topology::MAX_PCPUS as usize {
                    self.losses.push(cpu);
                }
            }
            Line::Event(head, event) => return self.event(&head, event),
            Line::Unparsed(why) => self.unparsed(text, why),
        }
        if self.events == 0 && self.unparsed > PATIENCE {
            return Err(self.no_events());
        }
        Ok(())
    }

    fn unparsed(&mut self, text: &str, why: &'static str) {
        self.unparsed += 1;
        if self.quotes.len() < QUOTES {
            let text = text.chars().take(80).collect();
            self.quotes.push(Quote {
                line: self.lines,
                text,
                why,
            });
        }
    }

    fn event(&mut self, head: &Head<'_>, event: Event) -> Result<(), ImportError> {
        self.events += 1;
        self.perf |= head.perf;
        self.highest_cpu = self.highest_cpu.max(head.cpu);
        self.count(head.event);
        for cpu in std::mem::take(&mut self.losses) {
            let cpus = match cpu {
                Some(cpu) => cpu..=cpu,
                None => 0..=self.highest_cpu,
            };
            for cpu in cpus {
                self.push(head, cpu, Event::Lost)?;
            }
        }
        self.push(head, head.cpu, event)
    }

    fn push(&mut self, head: &Head<'_>, cpu: u32, event: Event) -> Result<(), ImportError> {
        let known = !head.comm.is_empty() && head.comm != "<...>" && !head.comm.starts_with(":-");
        let stamped = Stamped {
            at: head.at,
            cpu,
            tid: head.tid,
            tgid: head.tgid,
            comm: known.then(|| crate::event::comm(head.comm)),
            context: head.context,
            event,
            line: self.lines,
        };
        match self.order.push(stamped) {
            Some(next) => self.apply(next),
            None => Ok(()),
        }
    }

    fn count(&mut self, event: &str) {
        if let Some(count) = self.kinds.get_mut(event) {
            *count += 1;
        } else if self.kinds.len() < MAX_KINDS {
            self.kinds.insert(crate::event::comm(event), 1);
        }
    }

    fn apply(&mut self, next: Stamped) -> Result<(), ImportError> {
        let gap = self
            .rebuild
            .latest()
            .map_or(0, |latest| next.at.saturating_sub(latest));
        if gap > GAP || self.far_away > 0 {
            self.far_away += 1;
            if self.far_away == 1 {
                self.far_away_line = next.line;
            }
            return Ok(());
        }
        self.applied += 1;
        let line = next.line;
        self.rebuild.apply(next).map_err(|too| {
            let (file, what, max) = (self.name(), too.what, too.max);
            ImportError::TooLarge {
                file,
                line,
                what,
                max,
            }
        })
    }

    /// The source failed. A packed stream that breaks off is good until there; a damaged one may
    /// have unpacked to anything.
    fn broken(&mut self, error: std::io::Error) -> Result<(), ImportError> {
        use std::io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
        let (file, line) = (self.name(), self.lines);
        match error.kind() {
            UnexpectedEof if self.events > 0 => self.notes.push(Note::BrokenOff { line }),
            InvalidData | InvalidInput => {
                return Err(ImportError::Damaged {
                    file,
                    line,
                    why: error.to_string(),
                });
            }
            _ => {
                return Err(ImportError::Io {
                    file,
                    source: error,
                });
            }
        }
        Ok(())
    }

    fn no_events(&self) -> ImportError {
        let first = self
            .quotes
            .first()
            .map(|quote| (quote.line, quote.text.clone()));
        ImportError::NoEvents {
            file: self.name(),
            first,
        }
    }

    fn finish(mut self) -> Result<Import, ImportError> {
        while let Some(next) = self.order.pop() {
            self.apply(next)?;
        }
        self.check()?;
        let pcpus = self.pcpus()?;
        self.trouble();
        let finished = rebuild::finish(self.rebuild, &self.stated, pcpus.value);
        let format = match self.stated.format {
            _ if self.perf => Format::PerfScript,
            Some(Format::TraceCmd) => Format::TraceCmd,
            _ => Format::Ftrace,
        };
        let mut observed = finished.observed;
        observed.events = self.kinds;
        let recording = Recording {
            format,
            host: Host {
                pcpus,
                kernel: self.stated.kernel,
                scheduler: self.stated.scheduler,
                clock: self.stated.clock,
            },
            start: finished.start,
            end: finished.end,
            vms: finished.vms,
            tasks: finished.tasks,
            observed,
        };
        check_vms(self.file, &recording)?;
        let mut notes = self.notes;
        let inferred = recording
            .vms
            .iter()
            .filter(|vm| vm.grouping == Grouping::Inferred);
        match inferred.count() as u64 {
            0 => {}
            vms => notes.push(Note::GroupingInferred { vms }),
        }
        Ok(Import { recording, notes })
    }

    /// Whether there is enough to rebuild anything from.
    fn check(&self) -> Result<(), ImportError> {
        let file = self.name();
        if self.lines == 0 && self.notes.is_empty() {
            return Err(ImportError::Empty { file });
        }
        if self.events == 0 {
            return Err(self.no_events());
        }
        if !self.kinds.contains_key("sched_switch") {
            let found = most(self.kinds.iter().map(|(name, &n)| (name.clone(), n)));
            return Err(ImportError::NoSwitches { file, found });
        }
        if self.far_away > self.applied {
            return Err(ImportError::TimeJumps {
                file,
                line: self.far_away_line,
            });
        }
        if self.order.too_late * 100 > self.events {
            return Err(ImportError::Disordered {
                file,
                line: self.order.too_late_line.unwrap_or(0),
                events: self.order.too_late,
                total: self.events,
                window: WINDOW,
            });
        }
        if self.rebuild.duration() == 0 {
            return Err(ImportError::NoTime { file });
        }
        Ok(())
    }

    /// How many pCPUs the host has.
    fn pcpus(&mut self) -> Result<Fact<u32>, ImportError> {
        let seen = self.highest_cpu + 1;
        let Some(stated) = self.stated.pcpus.take() else {
            return Ok(Fact {
                value: seen,
                source: "the highest pCPU number seen",
            });
        };
        match u32::try_from(stated.value) {
            Ok(value) if value > Topology::MAX_PCPUS => {}
            Ok(value) if value >= seen => {
                return Ok(Fact {
                    value,
                    source: stated.source,
                });
            }
            Ok(_) => {
                self.notes.push(Note::MorePcpus {
                    stated: stated.value,
                    seen,
                });
                return Ok(Fact {
                    value: seen,
                    source: "the highest pCPU number seen",
                });
            }
            Err(_) => {}
        }
        Err(ImportError::TooManyPcpus {
            file: self.name(),
            seen: stated.value,
        })
    }

    /// Turns the counts of trouble into notes.
    fn trouble(&mut self) {
        let mut notes = Vec::new();
        if self.unparsed > 0 {
            let examples = std::mem::take(&mut self.quotes);
            notes.push(Note::Unparsed {
                lines: self.unparsed,
                examples,
            });
        }
        if self.order.late > 0 {
            notes.push(Note::Reordered {
                lines: self.order.late,
            });
        }
        if let Some(line) = self.order.too_late_line {
            notes.push(Note::TooLate {
                events: self.order.too_late,
                line,
            });
        }
        if self.far_away > 0 {
            notes.push(Note::FarAway {
                events: self.far_away,
                line: self.far_away_line,
            });
        }
        let lost = self.lost.saturating_add(self.stated.lost);
        if lost > 0 {
            notes.push(Note::Lost {
                events: lost,
                gaps: self.gaps,
            });
        }
        if let Some((kept, written)) = self.stated.overwritten {
            notes.push(Note::Overwritten { kept, written });
        }
        self.notes.extend(notes);
        self.doubts();
    }

    /// What the events themselves leave open.
    fn doubts(&mut self) {
        let rebuild::Oddities {
            no_wakeup,
            no_switch,
            after_exit,
            context_unknown,
        } = self.rebuild.oddities;
        let wakeups = ["sched_waking", "sched_wakeup"]
            .iter()
            .any(|e| self.kinds.contains_key(*e));
        if !wakeups {
            self.notes.push(Note::NoWakeups);
        }
        let no_wakeup = if wakeups { no_wakeup } else { 0 };
        if no_wakeup + no_switch + after_exit > 0 {
            self.notes.push(Note::Contradictions {
                no_wakeup,
                no_switch,
                after_exit,
            });
        }
        if context_unknown > 0 {
            self.notes.push(Note::ContextUnknown {
                wakeups: context_unknown,
            });
        }
    }
}

/// A recording without vCPUs is of no use; says what is in it instead.
fn check_vms(file: &str, recording: &Recording) -> Result<(), ImportError> {
    if !recording.vms.is_empty() {
        return Ok(());
    }
    let ran = |task: &crate::model::Task| (task.comm.clone(), task.observed.run);
    let longest: Vec<_> = recording.tasks.iter().map(ran).collect();
    let mut by_time: Vec<_> = longest
        .into_iter()
        .filter(|(name, _)| !name.is_empty())
        .collect();
    by_time.sort_by_key(|(_, run)| std::cmp::Reverse(*run));
    let names: Vec<_> = by_time.into_iter().take(5).map(|(name, _)| name).collect();
    let (file, tasks) = (file.to_string(), recording.tasks.len());
    let found = format!(
        "{tasks} other tasks (longest running: {})",
        names.join(", ")
    );
    Err(ImportError::NoVcpus { file, found })
}

/// The most frequent few, as `name (count)`.
fn most(counts: impl Iterator<Item = (String, u64)>) -> String {
    let mut counts: Vec<_> = counts.collect();
    counts.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let few: Vec<_> = counts
        .iter()
        .take(5)
        .map(|(name, n)| format!("{name} ({n})"))
        .collect();
    few.join(", ")
}
