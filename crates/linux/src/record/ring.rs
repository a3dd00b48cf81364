// SPDX-License-Identifier: GPL-2.0-only
//! The rings that the kernel's half writes events into, one for each pCPU (`struct ring` in
//! bpf/record.bpf.c), read where they are: the map's memory is mapped.
//!
//! A slot is full when its time is not 0: the kernel writes that last, and it is set back here once the slot
//! has been read. Younger events than asked for stay: what the kernel's pCPU has written a millisecond
//! ago has arrived here on any processor.

use super::event::Raw;
use corun_model::Nanos;
use libbpf_rs::{MapCore, MapHandle};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// `SLOTS`.
const SLOTS: usize = 1 << 15;
/// A ring's fields before its slots, in words of 64 bits: `next`, `lost`, `busy` and `timer`, `handlers`.
const FIELDS: usize = 4;
const LOST: usize = 1;
/// `struct event`, in words.
const EVENT: usize = 3;
/// `struct ring`, in words.
const RING: usize = FIELDS + SLOTS * EVENT;

/// The rings of all pCPUs.
pub(super) struct Rings {
    memory: NonNull<AtomicU64>,
    /// Of all of them, in words.
    length: usize,
    /// The slot of each that comes next.
    next: Vec<usize>,
    /// How many events each pCPU has lost, as far as told.
    told: Vec<u64>,
}

impl Rings {
    /// Maps the rings of pCPUs 0 to `pcpus` - 1, which the map must have.
    ///
    /// # Errors
    /// What the system says, or that the map is not such a one.
    pub(super) fn map(map: &MapHandle, pcpus: u32) -> io::Result<Self> {
        let pcpus = pcpus as usize;
        let length = pcpus * RING;
        if map.value_size() as usize != RING * size_of::<u64>()
            || map.info().map_err(io::Error::other)?.info.max_entries as usize != pcpus
        {
            return Err(io::Error::other("rings of another size"));
        }
        // SAFETY: a new mapping, which nothing else uses; the kernel refuses one beyond the map.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length * size_of::<u64>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_fd().as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or_else(|| io::Error::other("no memory"))?;
        Ok(Self {
            memory,
            length,
            next: vec![0; pcpus],
            told: vec![0; pcpus],
        })
    }

    /// All of it, in words.
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: so much is mapped until `self` is dropped, page by page aligned, and every word of it may be
        // changed by the kernel at any time, which is what atomics are for.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.length) }
    }

    /// Adds what was written before `until` to `events`, ring by ring, and makes room.
    pub(super) fn take(&mut self, until: Nanos, events: &mut Vec<Raw>) {
        let mut next = std::mem::take(&mut self.next);
        for (ring, next) in self.words().chunks_exact(RING).zip(&mut next) {
            let (slots, _) = ring.split_at(FIELDS).1.as_chunks::<EVENT>();
            while let Some([at, who, what]) = slots.get(*next % SLOTS) {
                let time = at.load(Ordering::Acquire);
                if time == 0 || time >= until {
                    break;
                }
                let (who, what) = (who.load(Ordering::Relaxed), what.load(Ordering::Relaxed));
                let words = [time, who, what].map(u64::to_ne_bytes);
                events.extend(Raw::read(words.as_flattened()));
                at.store(0, Ordering::Release);
                *next += 1;
            }
        }
        self.next = next;
    }

    /// How many events each pCPU has lost since the last time.
    pub(super) fn lost(&mut self) -> Vec<(u32, u64)> {
        let rings = self.words().chunks_exact(RING);
        let counts: Vec<u64> = rings
            .filter_map(|ring| Some(ring.get(LOST)?.load(Ordering::Relaxed)))
            .collect();
        let before = std::mem::replace(&mut self.told, counts);
        let news = self.told.iter().zip(before).enumerate();
        let news = news.map(|(cpu, (now, before))| (cpu as u32, now.saturating_sub(before)));
        news.filter(|(_, events)| *events > 0).collect()
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, with this length, and nobody reads it any more.
        unsafe {
            libc::munmap(self.memory.as_ptr().cast(), self.length * size_of::<u64>());
        }
    }
}
