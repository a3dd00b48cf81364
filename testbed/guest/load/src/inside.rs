// SPDX-License-Identifier: GPL-2.0-only
//! The guest's side: threads that read, and threads that compute beside them.

use crate::system;
use anyhow::{Context, anyhow};
use serde::Serialize;
use std::alloc::{Layout, alloc_zeroed};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// The time before counting begins: the migrater leaves a process alone for 10 s and then has to find out, and the
/// host's turns have to become regular.
const WARM_UP: Duration = Duration::from_secs(12);
/// What is read at once, bytes, and how far apart: every read is a request of its own.
const BLOCK: usize = 4096;
const PLACES: u64 = 1 << 16;
/// Threads of a storm that exist at once.
const AT_ONCE: usize = 64;

#[derive(Serialize)]
struct Result {
    seconds: f64,
    /// Reads of each reader.
    reads: Vec<u64>,
    /// Rounds of each computing thread.
    rounds: Vec<u64>,
    /// How many vCPUs each reader may use at the end.
    allowed: Vec<u32>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    reads: Vec<AtomicU64>,
    rounds: Vec<AtomicU64>,
}

/// Runs both for `seconds` and prints what they got done.
pub fn run(seconds: u64, readers: u64, device: &str) -> anyhow::Result<()> {
    let vcpus = u64::try_from(thread::available_parallelism()?.get())?;
    let counters = |count: u64| (0..count).map(|_| AtomicU64::new(0)).collect();
    let shared = Arc::new(Shared {
        reads: counters(readers),
        rounds: counters(vcpus),
        ..Shared::default()
    });
    let (mut computing, mut reading) = (Vec::new(), Vec::new());
    for vcpu in 0..vcpus {
        let shared = Arc::clone(&shared);
        let builder = thread::Builder::new().name(format!("compute/{vcpu}"));
        computing.push(builder.spawn(move || compute(&shared, vcpu))?);
    }
    for reader in 0..readers {
        let file = open(device)?;
        let shared = Arc::clone(&shared);
        let builder = thread::Builder::new().name(format!("reader/{reader}"));
        reading.push(builder.spawn(move || read(&shared, reader, &file))?);
    }
    thread::sleep(WARM_UP);
    let (began, before) = (system::now(), counts(&shared));
    thread::sleep(Duration::from_secs(seconds));
    let (ended, after) = (system::now(), counts(&shared));
    shared.stop.store(true, Ordering::Relaxed);
    for thread in computing {
        thread
            .join()
            .map_err(|_| anyhow!("a computing thread died"))??;
    }
    let mut allowed = Vec::new();
    for thread in reading {
        allowed.push(thread.join().map_err(|_| anyhow!("a reader died"))??);
    }
    let since = |before: &[u64], after: &[u64]| -> Vec<u64> {
        before.iter().zip(after).map(|(b, a)| a - b).collect()
    };
    let result = Result {
        seconds: (ended - began) as f64 / 1e9,
        reads: since(&before.0, &after.0),
        rounds: since(&before.1, &after.1),
        allowed,
    };
    println!("{}", serde_json::to_string(&result)?);
    Ok(())
}

fn counts(shared: &Shared) -> (Vec<u64>, Vec<u64>) {
    let load = |all: &[AtomicU64]| all.iter().map(|it| it.load(Ordering::Relaxed)).collect();
    (load(&shared.reads), load(&shared.rounds))
}

/// Some microseconds of arithmetic a round.
///
/// With the least weight, as batch work should have: the guest's own scheduler (EEVDF) otherwise lets a computing
/// thread end its turn before one that was woken. Emulated, that is most of a request's time, and not the host's
/// concern.
fn compute(shared: &Shared, vcpu: u64) -> anyhow::Result<()> {
    system::pin(vcpu)?;
    system::be_nice()?;
    let (mut state, count) = (vcpu + 1, &shared.rounds[usize::try_from(vcpu)?]);
    while !shared.stop.load(Ordering::Relaxed) {
        for _ in 0..1000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
        }
        std::hint::black_box(state);
        count.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Threads that read one block and end, one beginning as soon as another has ended.
pub fn storm(seconds: u64, device: &str) -> anyhow::Result<()> {
    let file = Arc::new(open(device)?);
    let (end, mut made) = (system::now() + seconds * 1_000_000_000, 0);
    let mut under_way = std::collections::VecDeque::new();
    while system::now() < end {
        let file = Arc::clone(&file);
        under_way.push_back(thread::spawn(move || read_block(&file, block()?, made)));
        made += 1;
        if under_way.len() > AT_ONCE
            && let Some(oldest) = under_way.pop_front()
        {
            oldest.join().map_err(|_| anyhow!("a reader died"))??;
        }
    }
    println!("{}", made / seconds);
    Ok(())
}

fn open(device: &str) -> anyhow::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(device)
        .with_context(|| device.to_string())
}

/// Memory for a block, to the end of the process: a storm takes some megabytes a second.
fn block() -> anyhow::Result<*mut u8> {
    let layout = Layout::from_size_align(BLOCK, BLOCK)?;
    // SAFETY: the layout is not empty.
    let block = unsafe { alloc_zeroed(layout) };
    match block.is_null() {
        true => Err(anyhow!("no memory")),
        false => Ok(block),
    }
}

/// Reads the block at `place`, modulo all places.
fn read_block(file: &File, block: *mut u8, place: u64) -> anyhow::Result<()> {
    let at = place % PLACES * BLOCK as u64;
    // SAFETY: `block` is writable for BLOCK bytes.
    let got = unsafe { libc::pread(file.as_raw_fd(), block.cast(), BLOCK, at.cast_signed()) };
    match got == BLOCK as isize {
        true => Ok(()),
        false => Err(std::io::Error::last_os_error()).context("a read failed"),
    }
}

/// One block after the other. Returns how many vCPUs the thread may use.
fn read(shared: &Shared, reader: u64, file: &File) -> anyhow::Result<u32> {
    let block = block()?;
    let (mut place, count) = (reader, &shared.reads[usize::try_from(reader)?]);
    while !shared.stop.load(Ordering::Relaxed) {
        place = place
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        read_block(file, block, place >> 32)?;
        count.fetch_add(1, Ordering::Relaxed);
    }
    Ok(system::allowed()?)
}
