// SPDX-License-Identifier: GPL-2.0-only
//! The guest's memory, mapped into this process.

use crate::MachineError;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// A large page of x86-64.
pub const LARGE_PAGE: usize = 2 << 20;

/// Zeroed memory that guest and VMM both see, until the process ends.
pub struct GuestMemory {
    start: NonNull<libc::c_void>,
    size: usize,
}

// SAFETY: the mapping belongs to no thread; after `write`, which needs `&mut self`, it is accessed through atomics
// only.
unsafe impl Send for GuestMemory {}
// SAFETY: see above.
unsafe impl Sync for GuestMemory {}

impl GuestMemory {
    /// Maps `size` bytes. A mapping as long as a large page begins at one, and asks for large pages, as QEMU does for
    /// its guests.
    ///
    /// # Errors
    /// [`MachineError::Memory`].
    pub fn new(size: usize) -> Result<Self, MachineError> {
        let failed = |error| MachineError::Memory { bytes: size, error };
        if size < LARGE_PAGE {
            let start = map(size).map_err(failed)?;
            return Ok(Self { start, size });
        }
        let longer = size.saturating_add(LARGE_PAGE);
        let start = map(longer).map_err(failed)?;
        let before = start.as_ptr().align_offset(LARGE_PAGE);
        // SAFETY: `before` is less than a large page, so this address and `size` bytes from it are in the mapping.
        let start = unsafe { start.byte_add(before) };
        // SAFETY: this range is in the mapping. It is only advice, so a failure does not matter.
        unsafe { libc::madvise(start.as_ptr(), size, libc::MADV_HUGEPAGE) };
        Ok(Self { start, size })
    }

    /// The address of the mapping in this process.
    pub fn host_address(&self) -> u64 {
        self.start.addr().get() as u64
    }

    /// Its length in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Copies `bytes` to guest address `at`.
    ///
    /// # Panics
    /// If they do not fit: the caller's layout is wrong.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(
            at.checked_add(bytes.len())
                .is_some_and(|end| end <= self.size)
        );
        // SAFETY: the range was just checked to lie in the mapping, which is writable and, by `&mut self`, not in use
        // by others; `bytes` cannot lie in it, as no reference to it is ever given away except the atomics below.
        unsafe {
            let to = self.start.as_ptr().cast::<u8>().add(at);
            to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    /// The 64-bit number at guest address `at`, which the guest may be changing.
    ///
    /// # Panics
    /// If `at` is not a multiple of 8 in the mapping: the caller's layout is wrong.
    pub fn read_u64(&self, at: usize) -> u64 {
        self.number(at).load(Ordering::Relaxed)
    }

    /// Writes a 64-bit number that the guest may be reading.
    ///
    /// # Panics
    /// As [`GuestMemory::read_u64`].
    pub fn write_u64(&self, at: usize, value: u64) {
        self.number(at).store(value, Ordering::Relaxed);
    }

    fn number(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at.checked_add(8).is_some_and(|end| end <= self.size));
        // SAFETY: the range lies in the mapping and is aligned, as was just checked; mappings
        // begin at a page and stay; the guest reads and writes it with aligned 64-bit accesses.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().cast::<u8>().add(at).cast()) }
    }
}

fn map(size: usize) -> io::Result<NonNull<libc::c_void>> {
    // SAFETY: a new anonymous mapping, at an address of the kernel's choice, changes nothing
    // that exists.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(start).ok_or_else(|| io::Error::other("mmap returned null"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read_and_the_rest_is_zero() {
        let mut memory = GuestMemory::new(4096).unwrap();
        memory.write(4080, &7u64.to_le_bytes());
        memory.write_u64(4088, 9);
        assert_eq!([0, 4080, 4088].map(|at| memory.read_u64(at)), [0, 7, 9]);
    }

    #[test]
    fn large_memory_begins_at_a_large_page() {
        let memory = GuestMemory::new(LARGE_PAGE).unwrap();
        assert!(memory.host_address().is_multiple_of(LARGE_PAGE as u64));
        memory.write_u64(LARGE_PAGE - 8, 1);
        assert_eq!(memory.read_u64(LARGE_PAGE - 8), 1);
    }

    #[test]
    fn more_memory_than_there_can_be_is_an_error() {
        let error = GuestMemory::new(1 << 50).err().unwrap().to_string();
        assert!(error.contains("1073741824 MiB for a guest"), "{error}");
    }

    #[test]
    #[should_panic(expected = "assertion")]
    fn writing_beyond_the_end_is_refused() {
        GuestMemory::new(4096).unwrap().write(4090, &[0; 8]);
    }
}
