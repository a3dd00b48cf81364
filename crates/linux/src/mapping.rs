// SPDX-License-Identifier: GPL-2.0-only
//! Memory that this process shares with the kernel: arrays of the dispatcher, mapped instead of copied by system calls.
//! The other side may write at any time: each word is consistent, but several words may be a moment apart.

use crate::tables::Plain;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// What this process does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// It only reads: a store would end the process.
    Read,
    /// It reads and writes.
    Write,
}

/// The mapping.
pub(crate) struct Mapping {
    at: NonNull<AtomicU64>,
    words: usize,
}

impl Mapping {
    /// Maps that many words of an array (`BPF_F_MMAPABLE`), or of a file.
    ///
    /// # Errors
    /// The kernel's reason.
    pub(crate) fn of(map: BorrowedFd<'_>, words: usize, access: Access) -> io::Result<Self> {
        let protection = match access {
            Access::Read => libc::PROT_READ,
            Access::Write => libc::PROT_READ | libc::PROT_WRITE,
        };
        // SAFETY: a new mapping of a descriptor that is open; it replaces no other mapping.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                words * size_of::<u64>(),
                protection,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(at.cast()) {
            Some(start) if at != libc::MAP_FAILED => Ok(Self { at: start, words }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// All of it.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has this length, begins at a page and lives as long as `self`; others write
        // whole words to it.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.words) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping that `of` made; no reference to it outlives `self`. That it fails would
        // mean that it is not there.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.words * size_of::<u64>()) };
    }
}

/// Words of a struct of the dispatcher.
pub(crate) const fn words_of<T: Plain>() -> usize {
    assert!(align_of::<T>() == align_of::<u64>());
    size_of::<T>() / size_of::<u64>()
}

/// Reads the value at the beginning of `words`, if these are enough; returns whether it did. It reads into an existing
/// value, since hundreds are read at a time, and none is moved.
pub(crate) fn read_into<T: Plain>(words: &[AtomicU64], value: &mut T) -> bool {
    let Some(words) = words.get(..const { words_of::<T>() }) else {
        return false;
    };
    // SAFETY: memory of a value, aligned as u64 is, of exactly this many words (`words_of`); `Plain` takes any bytes.
    let copy = unsafe {
        std::slice::from_raw_parts_mut(std::ptr::from_mut(value).cast::<u64>(), words.len())
    };
    for (copy, word) in copy.iter_mut().zip(words) {
        *copy = word.load(Ordering::Relaxed);
    }
    true
}
