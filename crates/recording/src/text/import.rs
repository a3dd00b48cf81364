// SPDX-License-Identifier: GPL-2.0-only
//! From lines to events for the rebuilding, a step that all forms of recordings share.

use super::input::{Lines, Step, Unpacked};
use super::{Head, Line};
use crate::error::ImportError;
use crate::event::Event;
use crate::gather::Gather;
use crate::import::Import;
use crate::model::Format;
use crate::note::{Note, Place, Quote};
use crate::order::Stamped;
use corun_model::Topology;

/// Lines quoted in a note.
const QUOTES: usize = 3;
/// A file with no event within so many first lines is given up.
const PATIENCE: u64 = 20_000;

/// Reads a recording in text.
pub(crate) fn import(file: &str, source: Unpacked<'_>) -> Result<Import, ImportError> {
    let mut lines = Lines::new(source);
    let mut importer = Importer {
        gather: Gather::new(file, Place::Line),
        losses: Vec::new(),
    };
    loop {
        match lines.next() {
            Step::Line(bytes) => {
                let text = String::from_utf8_lossy(bytes);
                importer.gather.place += 1;
                // Editors of other systems put a byte order mark before the first line.
                importer.line(text.trim_start_matches('\u{feff}'))?;
            }
            Step::TooLong => {
                importer.gather.place += 1;
                importer.unparsed("(too long)", "longer than 16384 bytes");
            }
            Step::Unfinished => {
                let line = importer.gather.place;
                importer.gather.notes.push(Note::CutShort { line });
                break;
            }
            Step::Broken(error) => {
                importer.broken(error)?;
                break;
            }
            Step::End => break,
        }
    }
    importer.gather.finish()
}

struct Importer<'a> {
    gather: Gather<'a>,
    /// pCPUs whose events were lost just before the next line; `None`: unknown which.
    losses: Vec<Option<u32>>,
}

impl Importer<'_> {
    fn line(&mut self, text: &str) -> Result<(), ImportError> {
        match super::parse(text) {
            Line::Nothing => {}
            Line::Comment(comment) => {
                self.gather.stated.comment(comment);
            }
            Line::Lost { cpu, events } => {
                self.gather.lost(events.unwrap_or(1));
                if self.losses.len() < 2 * Topology::MAX_PCPUS as usize {
                    self.losses.push(cpu);
                }
            }
            Line::Event(head, event) => return self.event(&head, event),
            Line::Unparsed(why) => self.unparsed(text, why),
        }
        if self.gather.events == 0 && self.gather.unparsed > PATIENCE {
            let first = self.gather.quotes.first().cloned();
            let file = self.gather.file();
            return Err(ImportError::NoEvents { file, first });
        }
        Ok(())
    }

    fn unparsed(&mut self, text: &str, why: &'static str) {
        self.gather.unparsed += 1;
        if self.gather.quotes.len() < QUOTES {
            let text = text.chars().take(80).collect();
            self.gather.quotes.push(Quote {
                line: self.gather.place,
                text,
                why,
            });
        }
    }

    fn event(&mut self, head: &Head<'_>, event: Event) -> Result<(), ImportError> {
        if head.perf {
            self.gather.format = Some(Format::PerfScript);
        }
        self.gather.count(head.event, head.cpu);
        for cpu in std::mem::take(&mut self.losses) {
            let cpus = match cpu {
                Some(cpu) => cpu..=cpu,
                None => 0..=self.gather.highest_cpu,
            };
            for cpu in cpus {
                self.push(head, cpu, Event::Lost)?;
            }
        }
        self.push(head, head.cpu, event)
    }

    fn push(&mut self, head: &Head<'_>, cpu: u32, event: Event) -> Result<(), ImportError> {
        let known = !head.comm.is_empty() && head.comm != "<...>" && !head.comm.starts_with(":-");
        self.gather.push(Stamped {
            at: head.at,
            cpu,
            tid: head.tid,
            tgid: head.tgid,
            comm: known.then(|| crate::event::comm(head.comm)),
            context: head.context,
            event,
            line: 0,
        })
    }

    /// The source failed. A packed stream that breaks off is good up to that point; a damaged one
    /// may have been unpacked to anything.
    fn broken(&mut self, error: std::io::Error) -> Result<(), ImportError> {
        use std::io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
        let (file, line) = (self.gather.file(), self.gather.place);
        match error.kind() {
            UnexpectedEof if self.gather.events > 0 => {
                self.gather.notes.push(Note::BrokenOff { line })
            }
            UnexpectedEof => {
                return Err(ImportError::Damaged {
                    file,
                    line,
                    why: "the packed file breaks off before any event".to_string(),
                });
            }
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
}
