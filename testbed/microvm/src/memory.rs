// SPDX-License-Identifier: GPL-2.0-only
//! The guest's memory, mapped into this process.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Zeroed memory that guest and VMM both see, until the process ends.
pub struct GuestMemory {
    start: NonNull<libc::c_void>,
    size: usize,
}

// SAFETY: the mapping belongs to no thread; after `write`, which needs `&mut self`, it is reached
// through atomics only.
unsafe impl Send for GuestMemory {}
// SAFETY: see above.
unsafe impl Sync for GuestMemory {}

impl GuestMemory {
    /// Maps `size` bytes.
    pub fn new(size: usize) -> io::Result<Self> {
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
        let start = NonNull::new(start).ok_or_else(|| io::Error::other("mmap returned null"))?;
        Ok(Self { start, size })
    }

    /// The address of the mapping in this process.
    pub fn host_address(&self) -> u64 {
        self.start.addr().get() as u64
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
        // SAFETY: the range was just checked to lie in the mapping, which is writable and, by
        // `&mut self`, not in use by others; `bytes` cannot lie in it, as no reference to it is
        // ever given away but the atomics below.
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
        assert!(at.is_multiple_of(8) && at.checked_add(8).is_some_and(|end| end <= self.size));
        // SAFETY: the range lies in the mapping and is aligned, as was just checked; mappings
        // begin at a page; the guest writes it with aligned 64-bit stores.
        let number =
            unsafe { AtomicU64::from_ptr(self.start.as_ptr().cast::<u8>().add(at).cast()) };
        number.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read_and_the_rest_is_zero() {
        let mut memory = GuestMemory::new(4096).unwrap();
        memory.write(4088, &7u64.to_le_bytes());
        assert_eq!((memory.read_u64(4088), memory.read_u64(0)), (7, 0));
    }

    #[test]
    #[should_panic(expected = "assertion")]
    fn writing_beyond_the_end_is_refused() {
        GuestMemory::new(4096).unwrap().write(4090, &[0; 8]);
    }
}
