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
use std::os::fd::{AsFd, AsRawFd, RawFd};
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
    /// How many events each pCPU has lost, as last reported.
    told: Vec<u64>,
}

impl Rings {
    /// Maps the rings of pCPUs 0 to `pcpus` - 1, which the map must have.
    ///
    /// # Errors
    /// What the system says, or that the map is not such a one.
    pub(super) fn map(map: &MapHandle, pcpus: u32) -> io::Result<Self> {
        let pcpus = pcpus as usize;
        if map.value_size() as usize != RING * size_of::<u64>()
            || map.info().map_err(io::Error::other)?.info.max_entries as usize != pcpus
        {
            return Err(io::Error::other("rings of another size"));
        }
        Self::at(map.as_fd().as_raw_fd(), libc::MAP_SHARED, pcpus)
    }

    /// Maps that much of a file, or of nothing but zeros.
    fn at(file: RawFd, flags: i32, pcpus: usize) -> io::Result<Self> {
        let length = pcpus * RING;
        // SAFETY: a new mapping, which nothing else uses; the kernel refuses one beyond the map.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length * size_of::<u64>(),
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                file,
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
        // SAFETY: this much is mapped until `self` is dropped, page by page aligned, and every word of it may be
        // changed by the kernel at any time, which is what atomics are for.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.length) }
    }

    /// Adds what was written before `until` to `events`, ring by ring, and makes room.
    pub(super) fn take(&mut self, until: Nanos, events: &mut Vec<Raw>) {
        let mut next = std::mem::take(&mut self.next);
        for (ring, next) in self.words().chunks_exact(RING).zip(&mut next) {
            let (slots, _) = ring.split_at(FIELDS).1.as_chunks::<EVENT>();
            while let Some([at, task, what]) = slots.get(*next % SLOTS) {
                let time = at.load(Ordering::Acquire);
                if time == 0 || time >= until {
                    break;
                }
                let (task, what) = (task.load(Ordering::Relaxed), what.load(Ordering::Relaxed));
                let words = [time, task, what].map(u64::to_ne_bytes);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn rings(pcpus: usize) -> Rings {
        Rings::at(-1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, pcpus).unwrap()
    }

    /// As the kernel's half does: false if the slot is not free.
    fn write(rings: &Rings, cpu: usize, number: usize, at: Nanos) -> bool {
        let first = cpu * RING + FIELDS + number % SLOTS * EVENT;
        let slot = &rings.words()[first..first + EVENT];
        let free = slot[0].load(Ordering::Relaxed) == 0;
        if free {
            slot[1].store(number as u64, Ordering::Relaxed);
            slot[2].store((cpu as u64) << 32, Ordering::Relaxed);
            slot[0].store(at, Ordering::Release);
        }
        free
    }

    fn taken(rings: &mut Rings, until: Nanos) -> Vec<(Nanos, u32)> {
        let mut events = Vec::new();
        rings.take(until, &mut events);
        events
            .iter()
            .map(|event| (event.at, event.running))
            .collect()
    }

    #[test]
    fn each_ring_up_to_a_time_and_once() {
        let mut rings = rings(2);
        for (cpu, number, at) in [(0, 0, 10), (0, 1, 30), (1, 0, 20), (1, 1, 25)] {
            assert!(write(&rings, cpu, number, at));
        }
        assert_eq!(taken(&mut rings, 25), [(10, 0), (20, 0)]);
        assert_eq!(taken(&mut rings, 25), []);
        assert_eq!(taken(&mut rings, 100), [(30, 1), (25, 1)]);
    }

    #[test]
    fn a_full_ring_has_room_again_once_it_is_read() {
        let mut rings = rings(1);
        for number in 0..SLOTS {
            assert!(write(&rings, 0, number, 1 + number as Nanos));
        }
        assert!(!write(&rings, 0, SLOTS, 1 << 40));
        assert_eq!(taken(&mut rings, 4), [(1, 0), (2, 1), (3, 2)]);
        assert!(write(&rings, 0, SLOTS, 1 << 40));
        let rest = taken(&mut rings, Nanos::MAX);
        assert_eq!(rest.len(), SLOTS - 2);
        assert_eq!(rest.last(), Some(&(1 << 40, SLOTS as u32)));
    }

    #[test]
    fn losses_are_told_once() {
        let mut rings = rings(3);
        rings.words()[RING + LOST].store(7, Ordering::Relaxed);
        assert_eq!(rings.lost(), [(1, 7)]);
        assert_eq!(rings.lost(), []);
        rings.words()[RING + LOST].store(9, Ordering::Relaxed);
        assert_eq!(rings.lost(), [(1, 2)]);
    }
}
