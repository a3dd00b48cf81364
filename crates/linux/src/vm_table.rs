// SPDX-License-Identifier: GPL-2.0-only
//! The dispatcher's table of VMs, as memory that this process shares with the kernel.
//!
//! Problem: the control loop looks at every slot up to 33 times a second, to see who came and went;
//! copying the table by system calls (2 MiB) was most of what the daemon cost. How: it is mapped, and
//! only occupied slots are read. The kernel writes meanwhile: each word is whole, all of them together
//! may be a moment apart.

use crate::skel::types;
use crate::tables::from_bytes;
use corun_dispatcher::MAX_VMS;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Of a slot; arrays in the kernel are packed in such words.
const WORDS: usize = size_of::<types::vm_ctx>() / size_of::<u64>();
const _: () = assert!(size_of::<types::vm_ctx>().is_multiple_of(size_of::<u64>()));
const LENGTH: usize = MAX_VMS * size_of::<types::vm_ctx>();

/// The mapping.
pub(crate) struct VmTable(NonNull<[AtomicU64; WORDS]>);

impl VmTable {
    /// Maps the array that `map` is (`vm_ctxs` of dispatcher/platform/bpf.h, `BPF_F_MMAPABLE`).
    ///
    /// # Errors
    /// The kernel's reason.
    pub(crate) fn map(map: BorrowedFd<'_>) -> io::Result<Self> {
        // SAFETY: a new mapping, to be read only, of a descriptor that is open; nothing of ours is replaced.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                LENGTH,
                libc::PROT_READ,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(at.cast()) {
            Some(start) if at != libc::MAP_FAILED => Ok(Self(start)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Occupied slots, with what they hold.
    pub(crate) fn occupied(&self) -> Vec<(u32, types::vm_ctx)> {
        let slots = (0..).zip(self.slots());
        slots
            .filter_map(|(slot, words)| Some((slot, vm_in(words)?)))
            .collect()
    }

    fn slots(&self) -> &[[AtomicU64; WORDS]] {
        // SAFETY: so long is the mapping, which lives as long as `self`; others write whole words to it.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), MAX_VMS) }
    }
}

impl Drop for VmTable {
    fn drop(&mut self) {
        // SAFETY: the mapping that `map` made; no reference to it outlives `self`. That it fails would
        // mean that it is not there.
        unsafe { libc::munmap(self.0.as_ptr().cast(), LENGTH) };
    }
}

/// The VM in a slot; `None` if it is free. `id` is in the first word.
fn vm_in(words: &[AtomicU64; WORDS]) -> Option<types::vm_ctx> {
    let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
    let [a, b, c, d, ..] = load(&words[0]).to_ne_bytes();
    if u32::from_ne_bytes([a, b, c, d]) == 0 {
        return None;
    }
    let bytes: Vec<u8> = words
        .iter()
        .flat_map(|word| load(word).to_ne_bytes())
        .collect();
    from_bytes(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::bytes_of;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn occupied_slots_are_read_as_they_were_written() {
        let mut file = tempfile::tempfile().unwrap();
        let mut third = types::vm_ctx {
            id: 4711,
            vcpus: 3,
            active_weight: u64::MAX - 1,
            ..types::vm_ctx::default()
        };
        third.here[1] = 2;
        third.here[511] = 9;
        for slot in 0..MAX_VMS {
            let free = types::vm_ctx::default();
            file.write_all(bytes_of(if slot == 3 { &third } else { &free }))
                .unwrap();
        }
        let table = VmTable::map(file.as_fd()).unwrap();
        let [(slot, vm)] = table.occupied()[..] else {
            panic!("one slot is occupied");
        };
        assert_eq!((slot, bytes_of(&vm)), (3, bytes_of(&third)));
    }

    #[test]
    fn what_cannot_be_mapped_is_said() {
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(VmTable::map(reader.as_fd()).is_err());
    }
}
