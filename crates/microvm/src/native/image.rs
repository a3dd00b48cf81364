// SPDX-License-Identifier: GPL-2.0-only
//! What lies where in the memory of calibration's guests.
//!
//! ```text
//! 0          tables of the processor, code, shared page, page tables   (user pages, all of it)
//! 0x1_0000   a page for each vCPU: its block, and at the end its stack
//! 0x4_0000   the table of random numbers, the same for all vCPUs
//! 0x8_0000   for each vCPU, the lengths of its turns
//! 0x20_0000  no memory: the device
//! 4 GiB      the list, above everything that PCs have below that
//! ```

use super::{Guest, Job, code};
use crate::MachineError;
use crate::image::{CODE, DESCRIPTORS, GDT, PAGE_TABLES, SHARED, words};
use crate::machine::{END, Setup, Start};
use crate::memory::{GuestMemory, LARGE_PAGE};

/// The most vCPUs that fit.
pub const MOST_VCPUS: usize = 16;
/// The most lengths of turns that fit, for each vCPU.
pub const MOST_TURNS: usize = 8192;
/// Numbers in the table of random numbers: this many, or one.
pub const TABLE: usize = 4096;
/// The most bytes of a list.
pub const MOST_LIST: u64 = (HIGHEST_TABLE - LIST_TABLES) as u64 / 8 * LARGE_PAGE as u64;
/// A cache line, which is an element of a list.
pub const LINE: u64 = 64;

const SIZE: usize = END as usize;
const PAGE: usize = 0x1000;
const BLOCKS: usize = 0x1_0000;
const NUMBERS: usize = 0x4_0000;
const TURNS: usize = 0x8_0000;
const LIST: u64 = 4 << 30;
/// Page directories of the list.
const LIST_TABLES: usize = PAGE_TABLES + 3 * PAGE;
const HIGHEST_TABLE: usize = BLOCKS;

/// The address of what vCPU `index` reports and is given.
pub(super) fn block(index: usize) -> usize {
    BLOCKS + index * PAGE
}

/// Where the lengths of its turns are.
pub(super) fn turns(index: usize) -> usize {
    TURNS + index * MOST_TURNS * 8
}

/// What stops all vCPUs.
pub(super) const STOP: usize = SHARED + 128;

/// The whole machine.
///
/// # Panics
/// If it has too many vCPUs, too long a list, or a table of the wrong length: the caller's mistake.
pub(super) fn setup(guest: &Guest) -> Result<Setup, MachineError> {
    assert!(guest.vcpus <= MOST_VCPUS);
    let list = match &guest.job {
        Job::List { next } => next.as_slice(),
        _ => &[],
    };
    let bytes = (list.len() as u64 * LINE).next_multiple_of(LARGE_PAGE as u64);
    assert!(bytes <= MOST_LIST);
    let mut low = GuestMemory::new(SIZE)?;
    low.write(GDT, &words(&DESCRIPTORS));
    low.write(CODE, code::code());
    for (at, entry) in page_tables(bytes) {
        low.write(at, &words(&[entry]));
    }
    let table = guest.job.table();
    assert!(table.len() == TABLE || table.len() == 1);
    low.write(NUMBERS, &words(table));
    for index in 0..guest.vcpus {
        low.write(block(index) + 32, &words(&told(guest, index)));
    }
    let mut memory = vec![(0, low)];
    if bytes > 0 {
        memory.push((LIST, linked(list, bytes)?));
    }
    let start = |index| Start {
        ring: guest.ring,
        rip: (CODE + code::entry(&guest.job)) as u64,
        rsp: (block(index) + PAGE) as u64,
        rsi: block(index) as u64,
        rdi: SHARED as u64,
        steal: None,
    };
    let vcpus = (0..guest.vcpus).map(start).collect();
    Ok(Setup { memory, vcpus })
}

/// What a vCPU is given, from offset 32 of its block.
fn told(guest: &Guest, index: usize) -> [u64; 9] {
    let table = guest.job.table().len();
    // Each vCPU begins elsewhere in the same table.
    let from = table / guest.vcpus.max(1) * index % table;
    [
        guest.gap,
        guest.per_us,
        LIST,
        NUMBERS as u64,
        table as u64 * 8 - 1,
        from as u64 * 8,
        turns(index) as u64,
        MOST_TURNS as u64,
        guest.job.batch(),
    ]
}

/// The list: each line has the address of the next one.
fn linked(next: &[u32], bytes: u64) -> Result<GuestMemory, MachineError> {
    let mut memory = GuestMemory::new(bytes as usize)?;
    for (line, next) in next.iter().enumerate() {
        let address = LIST + u64::from(*next) * LINE;
        memory.write(line * LINE as usize, &address.to_le_bytes());
    }
    Ok(memory)
}

/// Entries of page tables, and where they are: large pages at their own addresses, for programs in any ring.
fn page_tables(list: u64) -> Vec<(usize, u64)> {
    const PRESENT_WRITABLE_USER: u64 = 0b111;
    const LARGE: u64 = 1 << 7;
    let [root, gigabytes, low] = [0, 1, 2].map(|level| PAGE_TABLES + level * PAGE);
    let to = |table: usize| table as u64 | PRESENT_WRITABLE_USER;
    let page = |address: u64| address | LARGE | PRESENT_WRITABLE_USER;
    let mut entries = vec![
        (root, to(gigabytes)),
        (gigabytes, to(low)),
        (low, page(0)),
        (low + 8, page(END)),
    ];
    let pages = list / LARGE_PAGE as u64;
    for directory in 0..pages.div_ceil(512) as usize {
        let at = gigabytes + ((LIST >> 30) as usize + directory) * 8;
        entries.push((at, to(LIST_TABLES + directory * PAGE)));
    }
    for number in 0..pages {
        let at = LIST_TABLES + number as usize * 8;
        entries.push((at, page(LIST + number * LARGE_PAGE as u64)));
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Ring;

    fn guest(job: Job, vcpus: usize) -> Guest {
        Guest {
            job,
            vcpus,
            ring: Ring::User,
            gap: 5,
            per_us: 6,
        }
    }

    /// Where the processor finds `address`, by the tables in `memory`.
    fn translated(memory: &GuestMemory, address: u64) -> Option<u64> {
        let mut table = PAGE_TABLES as u64;
        for shift in [39, 30, 21] {
            let entry = memory.read_u64(table as usize + (address >> shift & 511) as usize * 8);
            if entry & 0b111 != 0b111 {
                return None;
            }
            table = entry & !0xfff;
            if entry & 1 << 7 != 0 {
                return Some(table + address % LARGE_PAGE as u64);
            }
        }
        None
    }

    #[test]
    fn everything_is_where_its_address_says() {
        let next: Vec<u32> = (0..100_000).map(|line| (line + 1) % 100_000).collect();
        let setup = setup(&guest(Job::List { next }, 1)).unwrap();
        let (low, list) = (&setup.memory[0].1, &setup.memory[1].1);
        let inside = [0, SHARED as u64, END - 8, END + 8, LIST, LIST + 6_399_936];
        for address in inside {
            assert_eq!(translated(low, address), Some(address), "{address:x}");
        }
        for outside in [END * 2, LIST - 8, LIST + list.size() as u64] {
            assert_eq!(translated(low, outside), None, "{outside:x}");
        }
        assert_eq!(list.read_u64(0), LIST + 64);
        assert_eq!(
            list.read_u64(6_399_936),
            LIST,
            "the last leads to the first"
        );
    }

    #[test]
    fn the_longest_list_has_its_tables() {
        let entries = page_tables(MOST_LIST);
        let mut places: Vec<usize> = entries.iter().map(|(at, _)| *at).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), entries.len(), "none twice");
        assert!(places.iter().all(|at| *at < HIGHEST_TABLE));
        const { assert!(MOST_LIST >= 4 << 30) };
    }

    #[test]
    fn nothing_overlaps() {
        assert!(CODE + code::code().len() <= SHARED);
        assert!(block(MOST_VCPUS) <= NUMBERS);
        const { assert!(NUMBERS + TABLE * 8 <= TURNS) };
        assert!(turns(MOST_VCPUS) <= SIZE);
    }

    #[test]
    fn vcpus_begin_at_different_places_of_the_table() {
        let of = |index| {
            told(
                &guest(
                    Job::Spin {
                        rounds: vec![7; TABLE],
                    },
                    4,
                ),
                index,
            )[5]
        };
        assert_eq!([0, 1, 2, 3].map(of), [0, 8192, 16384, 24576]);
    }
}
