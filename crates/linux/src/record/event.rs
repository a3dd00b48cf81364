// SPDX-License-Identifier: GPL-2.0-only
//! Events as the kernel's half writes them (bpf/record.bpf.c), and what they say.

use corun_model::Nanos;
use corun_recording::native::{Cause, Entry, Left};

/// `struct event`, and the name that `struct named` has after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Raw {
    pub at: Nanos,
    pub running: u32,
    pub thread: u32,
    number: u32,
    cpu: u16,
    kind: u8,
    how: u8,
    comm: [u8; NAME],
}

/// Bytes of a name in the kernel.
const NAME: usize = 16;

/// `enum kind`.
mod kind {
    pub(super) const SWITCH: u8 = 0;
    pub(super) const WAKING: u8 = 1;
    pub(super) const QUEUED: u8 = 2;
    pub(super) const MIGRATE: u8 = 3;
    pub(super) const HALT: u8 = 4;
    pub(super) const FORK: u8 = 5;
    pub(super) const RENAME: u8 = 6;
}

impl Raw {
    /// From a record of the ring buffer.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (at, rest) = bytes.split_first_chunk()?;
        let (running, rest) = rest.split_first_chunk()?;
        let (thread, rest) = rest.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (cpu, rest) = rest.split_first_chunk()?;
        let ([kind, how], rest) = rest.split_first_chunk()?;
        Some(Self {
            at: u64::from_ne_bytes(*at),
            running: u32::from_ne_bytes(*running),
            thread: u32::from_ne_bytes(*thread),
            number: u32::from_ne_bytes(*number),
            cpu: u16::from_ne_bytes(*cpu),
            kind: *kind,
            how: *how,
            comm: rest.first_chunk().copied().unwrap_or_default(),
        })
    }

    /// Does it make a thread or give it a name? Then its name and process.
    pub(super) fn names(&self) -> Option<(u32, Option<u32>, String)> {
        match self.kind {
            kind::FORK => Some((self.thread, Some(self.number), self.comm())),
            kind::RENAME => Some((self.thread, None, self.comm())),
            _ => None,
        }
    }

    /// The entry of the recording; `None` for a kind that is not known.
    pub(super) fn entry(&self) -> Option<Entry> {
        let (at, cpu, running, thread) = (self.at, u32::from(self.cpu), self.running, self.thread);
        Some(match self.kind {
            kind::SWITCH => Entry::Switch {
                at,
                cpu,
                prev: running,
                left: left(self.number, self.how != 0),
                next: thread,
            },
            kind::WAKING => Entry::Waking {
                at,
                cpu,
                running,
                cause: match self.how {
                    0 => Cause::Running,
                    1 => Cause::Interrupt,
                    2 => Cause::Timer,
                    _ => Cause::Unknown,
                },
                wakee: thread,
            },
            kind::QUEUED => Entry::Queued {
                at,
                cpu,
                running,
                thread,
                on: self.number,
            },
            kind::MIGRATE => Entry::Migrate {
                at,
                cpu,
                running,
                thread,
                from: self.number & 0xffff,
                to: self.number >> 16,
            },
            kind::HALT => Entry::Halt {
                at,
                cpu,
                thread,
                polled: self.how != 0,
                took: u64::from(self.number),
            },
            kind::FORK => Entry::Fork {
                at,
                cpu,
                parent: running,
                child: thread,
                tgid: self.number,
                comm: self.comm(),
            },
            kind::RENAME => Entry::Rename {
                at,
                cpu,
                thread,
                comm: self.comm(),
            },
            _ => return None,
        })
    }

    fn comm(&self) -> String {
        let end = self.comm.iter().position(|&byte| byte == 0);
        let name = self.comm.get(..end.unwrap_or(NAME)).unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }
}

/// What a thread's state says when it leaves its pCPU (include/linux/sched.h). These bits have been the
/// same since 4.14; before 5.18 the state may be that of a thread that is being woken already.
fn left(state: u32, preempted: bool) -> Left {
    const DEAD: u32 = 0x80 | 0x10 | 0x20;
    const NO_LOAD: u32 = 0x400;
    const WAKING: u32 = 0x200;
    const LETTERS: [(u32, u8); 5] = [
        (0x1, b'S'),
        (0x2, b'D'),
        (0x4, b'T'),
        (0x8, b't'),
        (0x40, b'P'),
    ];
    if preempted {
        return Left::Ready;
    }
    if state & DEAD != 0 {
        return Left::Exited;
    }
    let letter = LETTERS.iter().find(|(bit, _)| state & bit != 0);
    match letter {
        Some((2, _)) if state & NO_LOAD != 0 => Left::Blocked(b'I'),
        Some(&(_, letter)) => Left::Blocked(letter),
        None if state & WAKING != 0 => Left::Blocked(b'S'),
        // Frozen, or waiting for a spinning lock that sleeps: whatever is not running, waits.
        None if state != 0 => Left::Blocked(b'D'),
        None => Left::Ready,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(kind: u8, number: u32, how: u8, comm: &[u8]) -> Raw {
        let mut bytes = 7u64.to_ne_bytes().to_vec();
        for number in [11u32, 12, number] {
            bytes.extend(number.to_ne_bytes());
        }
        bytes.extend(3u16.to_ne_bytes());
        bytes.extend([kind, how]);
        bytes.extend(comm);
        Raw::read(&bytes).unwrap()
    }

    #[test]
    fn as_the_kernel_writes_them() {
        assert_eq!(
            raw(kind::SWITCH, 1, 0, b"").entry(),
            Some(Entry::Switch {
                at: 7,
                cpu: 3,
                prev: 11,
                left: Left::Blocked(b'S'),
                next: 12
            })
        );
        assert_eq!(
            raw(kind::MIGRATE, 5 | 300 << 16, 0, b"").entry(),
            Some(Entry::Migrate {
                at: 7,
                cpu: 3,
                running: 11,
                thread: 12,
                from: 5,
                to: 300
            })
        );
        let fork = raw(kind::FORK, 10, 0, b"CPU 0/KVM\0\0\0\0\0\0\0");
        assert_eq!(fork.names(), Some((12, Some(10), "CPU 0/KVM".to_string())));
        assert_eq!(raw(99, 0, 0, b"").entry(), None);
        assert_eq!(Raw::read(&[0; 23]), None);
    }

    #[test]
    fn how_threads_leave() {
        assert_eq!(left(0, false), Left::Ready);
        assert_eq!(left(1, true), Left::Ready);
        assert_eq!(left(1, false), Left::Blocked(b'S'));
        assert_eq!(left(0x402, false), Left::Blocked(b'I'));
        assert_eq!(left(0x102, false), Left::Blocked(b'D'));
        assert_eq!(left(0x80, false), Left::Exited);
        assert_eq!(left(0x8000, false), Left::Blocked(b'D'));
    }
}
