// SPDX-License-Identifier: GPL-2.0-only
//! From a block's bytes back to entries.

use super::code::{Bytes, Wrong};
use super::encode::{State, kind};
use super::entry::{Cause, Entry, Left, Thread};

/// All entries of a block, unpacked.
///
/// # Errors
/// What is wrong; the entries before the error are in `out`.
pub(crate) fn entries(bytes: &[u8], out: &mut Vec<Entry>) -> Result<(), Wrong> {
    let mut read = Reader {
        bytes: Bytes(bytes),
        state: State::default(),
    };
    while !read.bytes.0.is_empty() {
        out.push(read.entry()?);
    }
    Ok(())
}

struct Reader<'a> {
    bytes: Bytes<'a>,
    state: State,
}

impl Reader<'_> {
    fn entry(&mut self) -> Result<Entry, Wrong> {
        let bytes = &mut self.bytes;
        Ok(match bytes.byte()? {
            kind::FACT => Entry::Fact {
                name: bytes.text()?,
                value: bytes.text()?,
            },
            kind::VM => Entry::Vm {
                tgid: bytes.small()?,
                name: bytes.text()?,
            },
            kind::THREAD => Entry::Thread(Thread {
                tid: bytes.small()?,
                tgid: bytes.small()?,
                comm: bytes.text()?,
            }),
            kind::EXITS => Entry::Exits {
                thread: bytes.small()?,
                vcpu: bytes.small()?.checked_sub(1),
                reason: bytes.text()?,
                count: bytes.number()?,
            },
            edge @ (kind::BEGIN | kind::END) => Entry::Edge {
                at: self.time()?,
                last: edge == kind::END,
            },
            kind::SWITCH => self.switch()?,
            kind::WAKING => self.waking()?,
            kind::LOST => Entry::Lost {
                at: self.time()?,
                cpu: self.bytes.small()?,
                events: self.bytes.number()?,
            },
            kind::RENAME => Entry::Rename {
                at: self.time()?,
                cpu: self.bytes.small()?,
                thread: self.bytes.small()?,
                comm: self.bytes.text()?,
            },
            other => self.on_a_pcpu(other)?,
        })
    }

    fn on_a_pcpu(&mut self, kind: u8) -> Result<Entry, Wrong> {
        if !matches!(kind, kind::QUEUED | kind::MIGRATE | kind::HALT | kind::FORK) {
            return Err("an entry is of no known kind");
        }
        let (at, cpu, running) = self.on()?;
        let bytes = &mut self.bytes;
        Ok(match kind {
            kind::QUEUED => Entry::Queued {
                at,
                cpu,
                running,
                thread: bytes.small()?,
                on: bytes.small()?,
            },
            kind::MIGRATE => Entry::Migrate {
                at,
                cpu,
                running,
                thread: bytes.small()?,
                from: bytes.small()?,
                to: bytes.small()?,
            },
            kind::HALT => Entry::Halt {
                at,
                cpu,
                thread: running,
                polled: bytes.byte()? != 0,
                took: bytes.number()?,
            },
            _ => Entry::Fork {
                at,
                cpu,
                parent: running,
                child: bytes.small()?,
                tgid: bytes.small()?,
                comm: bytes.text()?,
            },
        })
    }

    fn switch(&mut self) -> Result<Entry, Wrong> {
        let (at, cpu, prev) = self.on()?;
        let left = match self.bytes.byte()? {
            b'R' => Left::Ready,
            b'X' => Left::Exited,
            letter if letter.is_ascii_alphabetic() => Left::Blocked(letter),
            _ => return Err("a thread's state is no letter"),
        };
        let next = self.bytes.small()?;
        self.state.runs(cpu, next);
        Ok(Entry::Switch {
            at,
            cpu,
            prev,
            left,
            next,
        })
    }

    fn waking(&mut self) -> Result<Entry, Wrong> {
        let (at, cpu, running) = self.on()?;
        let cause = match self.bytes.byte()? {
            0 => Cause::Running,
            1 => Cause::Interrupt,
            2 => Cause::Timer,
            3 => Cause::Unknown,
            _ => return Err("a wake-up is of no known cause"),
        };
        Ok(Entry::Waking {
            at,
            cpu,
            running,
            cause,
            wakee: self.bytes.small()?,
        })
    }

    fn time(&mut self) -> Result<u64, Wrong> {
        let step = self.bytes.signed()?;
        self.state.at = self.state.at.wrapping_add_signed(step);
        Ok(self.state.at)
    }

    fn on(&mut self) -> Result<(u64, u32, u32), Wrong> {
        let (at, cpu) = (self.time()?, self.bytes.small()?);
        let running = match self.bytes.number()? {
            0 => self.state.expected(cpu),
            code => u32::try_from(code - 1).map_err(|_| "a number has more than 32 bits")?,
        };
        self.state.runs(cpu, running);
        Ok((at, cpu, running))
    }
}
