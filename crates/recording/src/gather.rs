// SPDX-License-Identifier: GPL-2.0-only
//! Gathers the events of any form of recording, in any order within the window, into the finished
//! recording, and counts all problems.

use crate::error::ImportError;
use crate::import::Import;
use crate::model::{Fact, Format, Grouping, Host, Recording, Task};
use crate::note::{Note, Place, Quote};
use crate::order::{Order, Stamped, WINDOW};
use crate::rebuild::{self, Rebuild};
use crate::text::comment::Stated;
use corun_model::time::SEC;
use corun_model::{Nanos, Topology};
use std::collections::BTreeMap;

/// The most kinds of events that are counted by name.
const MAX_KINDS: usize = 4096;
/// Events further apart than this do not belong to one recording, ns.
const GAP: Nanos = 3600 * SEC;
/// A gap is told if it is so many times as long as all the rest: hosts with VMs are never so quiet.
const DWARFS: u64 = 10;
/// A shorter gap is not told: to replay it takes no time.
const NOTEWORTHY: Nanos = SEC;

/// What has been gathered so far.
pub(crate) struct Gather<'a> {
    file: &'a str,
    /// What a place in this form is called.
    unit: fn(u64) -> Place,
    /// The place in the file that is being read: a line, a block, a packet, from 1.
    pub place: u64,
    /// The form, unless it follows from what the recording states.
    pub format: Option<Format>,
    pub stated: Stated,
    order: Order,
    rebuild: Rebuild,
    pub notes: Vec<Note>,
    /// Places that were not understood.
    pub unparsed: u64,
    /// The first few of them.
    pub quotes: Vec<Quote>,
    kinds: BTreeMap<String, u64>,
    /// Events read.
    pub events: u64,
    /// Events that went into the rebuilding.
    applied: u64,
    /// The highest pCPU number seen.
    pub highest_cpu: u32,
    lost: u64,
    gaps: u64,
    unusable: u64,
    far_away: u64,
    far_away_at: u64,
    /// The longest time between two events, ns, and where in the file these are.
    longest_gap: (Nanos, [u64; 2]),
    /// Where the last event applied is.
    applied_at: u64,
}

impl<'a> Gather<'a> {
    pub(crate) fn new(file: &'a str, unit: fn(u64) -> Place) -> Self {
        Self {
            file,
            unit,
            place: 0,
            format: None,
            stated: Stated::default(),
            order: Order::default(),
            rebuild: Rebuild::default(),
            notes: Vec::new(),
            unparsed: 0,
            quotes: Vec::new(),
            kinds: BTreeMap::new(),
            events: 0,
            applied: 0,
            highest_cpu: 0,
            lost: 0,
            gaps: 0,
            unusable: 0,
            far_away: 0,
            far_away_at: 0,
            longest_gap: (0, [0; 2]),
            applied_at: 0,
        }
    }

    /// The same for a form that is far out of order: so many events are held back to be put in order, without a note.
    pub(crate) fn with_window(mut self, window: usize) -> Self {
        self.order.window = window;
        self
    }

    /// The file's name in messages.
    pub(crate) fn file(&self) -> String {
        self.file.to_string()
    }

    /// Counts an event of this kind.
    pub(crate) fn count(&mut self, event: &str, cpu: u32) {
        self.events += 1;
        self.highest_cpu = self.highest_cpu.max(cpu);
        if let Some(count) = self.kinds.get_mut(event) {
            *count += 1;
        } else if self.kinds.len() < MAX_KINDS {
            self.kinds.insert(crate::event::comm(event), 1);
        }
    }

    /// The recording says that it lost so many events somewhere.
    pub(crate) fn lost(&mut self, events: u64) {
        self.gaps += 1;
        self.lost = self.lost.saturating_add(events);
    }

    /// Counts an event with impossible numbers.
    pub(crate) fn unusable(&mut self) {
        self.unusable += 1;
    }

    /// Takes in an event.
    pub(crate) fn push(&mut self, event: Stamped) -> Result<(), ImportError> {
        let line = self.place;
        match self.order.push(Stamped { line, ..event }) {
            Some(next) => self.apply(next),
            None => Ok(()),
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
                self.far_away_at = next.line;
            }
            return Ok(());
        }
        self.applied += 1;
        let line = next.line;
        if gap > self.longest_gap.0 {
            self.longest_gap = (gap, [self.applied_at, line]);
        }
        self.applied_at = line;
        self.rebuild.apply(next).map_err(|too| {
            let (file, what, max) = (self.file(), too.what, too.max);
            ImportError::TooLarge {
                file,
                at: (self.unit)(line),
                what,
                max,
            }
        })
    }

    /// Everything has been taken in.
    pub(crate) fn finish(mut self) -> Result<Import, ImportError> {
        while let Some(next) = self.order.pop() {
            self.apply(next)?;
        }
        self.check()?;
        let pcpus = self.pcpus()?;
        self.trouble();
        let finished = rebuild::finish(self.rebuild, &self.stated, pcpus.value);
        let stated = self.stated.format.unwrap_or(Format::Ftrace);
        let format = self.format.unwrap_or(stated);
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

    /// Checks that there is enough to rebuild anything from.
    fn check(&self) -> Result<(), ImportError> {
        let file = self.file();
        if self.place == 0 && self.notes.is_empty() {
            return Err(ImportError::Empty { file });
        }
        if self.events == 0 {
            let first = self.quotes.first().cloned();
            return Err(ImportError::NoEvents { file, first });
        }
        if !self.kinds.contains_key("sched_switch") {
            let found = most(self.kinds.iter().map(|(name, &n)| (name.clone(), n)));
            let first = self.quotes.first().cloned();
            let skipped = first.map(|first| (self.unparsed, first));
            return Err(ImportError::NoSwitches {
                file,
                found,
                skipped,
            });
        }
        if self.far_away > self.applied {
            return Err(ImportError::TimeJumps {
                file,
                at: (self.unit)(self.far_away_at),
            });
        }
        if self.order.too_late * 100 > self.events {
            return Err(ImportError::Disordered {
                file,
                at: (self.unit)(self.order.too_late_line.unwrap_or(0)),
                events: self.order.too_late,
                total: self.events,
                window: self.order.window,
            });
        }
        if self.rebuild.duration() == 0 {
            return Err(ImportError::NoTime { file });
        }
        Ok(())
    }

    /// How many pCPUs the host has.
    fn pcpus(&mut self) -> Result<Fact<u32>, ImportError> {
        let seen = Fact {
            value: self.highest_cpu + 1,
            source: "the highest pCPU number seen",
        };
        let Some(stated) = self.stated.pcpus.take() else {
            return Ok(seen);
        };
        let believable = u32::try_from(stated.value).ok();
        match believable.filter(|value| *value <= Topology::MAX_PCPUS) {
            None => Err(ImportError::TooManyPcpus {
                file: self.file(),
                seen: stated.value,
            }),
            Some(value) if value >= seen.value => Ok(Fact {
                value,
                source: stated.source,
            }),
            Some(_) => {
                self.notes.push(Note::MorePcpus {
                    stated: stated.value,
                    seen: seen.value,
                });
                Ok(seen)
            }
        }
    }

    /// Turns the counts of problems into notes.
    fn trouble(&mut self) {
        let mut notes = Vec::new();
        if self.unparsed > 0 {
            let examples = std::mem::take(&mut self.quotes);
            notes.push(Note::Unparsed {
                lines: self.unparsed,
                examples,
            });
        }
        if self.order.late > 0 && self.order.window == WINDOW {
            notes.push(Note::Reordered {
                events: self.order.late,
            });
        }
        if let Some(line) = self.order.too_late_line {
            notes.push(Note::TooLate {
                events: self.order.too_late,
                at: (self.unit)(line),
            });
        }
        if self.far_away > 0 {
            notes.push(Note::FarAway {
                events: self.far_away,
                at: (self.unit)(self.far_away_at),
            });
        }
        notes.extend(self.silence());
        if self.unusable > 0 {
            notes.push(Note::Unusable {
                events: self.unusable,
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

    /// The longest gap, if a wrong timestamp may have made it.
    fn silence(&self) -> Option<Note> {
        let (gap, between) = self.longest_gap;
        let rest = self.rebuild.duration().saturating_sub(gap);
        let dwarfs = gap >= NOTEWORTHY && gap / DWARFS > rest;
        dwarfs.then(|| Note::Silence {
            gap,
            rest,
            between: between.map(self.unit),
        })
    }

    /// Notes what the events themselves leave open.
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

/// A recording without vCPUs is of no use: the error says what is in it instead.
fn check_vms(file: &str, recording: &Recording) -> Result<(), ImportError> {
    if !recording.vms.is_empty() {
        return Ok(());
    }
    let named = |task: &&Task| !task.comm.is_empty();
    let mut longest: Vec<&Task> = recording.tasks.iter().filter(named).collect();
    longest.sort_by_key(|task| std::cmp::Reverse(task.observed.run));
    let names: Vec<&str> = longest.iter().take(5).map(|task| &*task.comm).collect();
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
