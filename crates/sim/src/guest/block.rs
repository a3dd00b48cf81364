// SPDX-License-Identifier: GPL-2.0-only
//! Reads and writes of guest threads: page cache, read-ahead, virtio-blk.
//!
//! A thread's request leaves the guest when its vCPU runs and kicks the host; its completion is an
//! interrupt, which a vCPU takes only while it runs. So a descheduled vCPU neither issues requests
//! nor learns of their completion: I/O inactivity.
//!
//! - `read SIZE` goes on reading the thread's own file through the page cache. Linux reads ahead in
//!   windows (`mm/readahead.c`): when a thread comes to the first page of a window, the next one is
//!   requested, whether or not this one has arrived. So up to two windows are under way, and the
//!   thread waits only for data that are not there yet. (The kernel's first windows are smaller;
//!   here all are full.)
//! - `read SIZE random` is O_DIRECT: anywhere in the VM's image, and the thread waits.
//! - `write` waits until the data are on the disk, as with O_DIRECT or O_SYNC, without a journal.
//! - `append LOG SIZE` writes to the end of a file that threads share: see [`super::log`].
//!
//! Direct requests are cut into pieces of 1 MiB at most (256 pages, `BIO_MAX_PAGES`), which are
//! issued at once. Each thread's file and each log is an equal part of the VM's image and is read or written round and
//! round. It lies in one piece, and none of it stays in the page cache: the files are larger than the VM's
//! memory.

use super::inactivity::Inactivity;
use super::log::Log;
use super::thread::Thread;
use crate::device::disk::Request;
use crate::load::{IoAchieved, Requests};
use crate::waits::Waits;
use crate::workload::Op;
use corun_model::Nanos;
use std::collections::VecDeque;

/// Files and random accesses begin at a multiple of this.
pub(super) const PAGE: u64 = 4096;

/// Where a VM's data are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Image {
    pub disk: u32,
    /// The VM's number on the disk.
    pub owner: u32,
    pub base: u64,
    pub size: u64,
    /// From a kick until the disk has the request, and from its end until the interrupt is posted:
    /// time that just passes, or work of the emulator.
    pub submit: Nanos,
    pub complete: Nanos,
    /// Who does that work?
    pub served: Served,
}

/// What does a request's work in the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// Nothing that needs a pCPU: it only takes time.
    Passing,
    /// An emulator.
    Emulated,
    /// The vCPU submits, an emulator completes.
    ByVcpu,
}

/// A read-ahead window: its request, while that is under way, and the place where it ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub end: u64,
    pub request: Option<u32>,
}

/// A thread's file, and the call that it is in. Places in the file only grow; on the disk they go
/// round and round.
#[derive(Debug)]
pub(super) struct File {
    pub thread: u32,
    /// First byte and length on the disk.
    base: u64,
    size: u64,
    /// Where the thread is.
    pub at: u64,
    /// Requested beyond `at`, in order.
    pub ahead: VecDeque<Window>,
    pub call: Option<Call>,
}

impl File {
    /// The byte on the disk at a place in the file, and how many follow before it starts again.
    pub fn on_disk(&self, place: u64) -> (u64, u64) {
        let offset = place % self.size;
        (self.base + offset, self.size - offset)
    }
}

/// A read or write that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    since: Nanos,
    /// A sequential read goes up to here.
    pub end: u64,
    /// Requests that it waits for: under way, or done but not known to the guest.
    pub under_way: u32,
    pub untold: u32,
    /// The vCPU that takes the interrupt of the last of them.
    pub delivery: Option<u32>,
    /// Did it ever wait?
    pub waited: bool,
}

impl Call {
    pub fn new(since: Nanos, end: u64) -> Self {
        Self {
            since,
            end,
            under_way: 0,
            untold: 0,
            delivery: None,
            waited: false,
        }
    }
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub file: u32,
    pub start: u64,
    pub bytes: u64,
    pub write: bool,
    /// The vCPU that gets the interrupt.
    pub vcpu: u32,
    /// The one that issued it, and when.
    pub by: u32,
    pub since: Nanos,
    /// Does the thread's present call wait for it?
    pub awaited: bool,
    /// Is it done, so that the interrupt has been posted?
    pub posted: bool,
}

/// A VM's disk in its kernel.
#[derive(Debug)]
pub(super) struct Block {
    pub image: Image,
    pub files: Vec<File>,
    pub logs: Vec<Log>,
    /// Which file each thread has.
    file_of: Vec<Option<u32>>,
    pub requests: Vec<Slot>,
    /// Places in `requests` that are free.
    pub free: Vec<u32>,
    pub inactivity: Inactivity,
    operations: u64,
    bytes: u64,
    waits: Waits,
    /// Requests that are over: reads, writes.
    done: [Requests; 2],
}

impl Block {
    pub fn new(image: Image, threads: &[Thread]) -> Self {
        let uses = |thread: &Thread| thread.code.largest_access().is_some();
        let users = threads.iter().filter(|thread| uses(thread)).count() as u64;
        let logs = logs(threads);
        let size = image.size / (users + logs).max(1) / PAGE * PAGE;
        let mut files = Vec::new();
        let mut file_of = vec![None; threads.len()];
        for (index, _) in threads
            .iter()
            .enumerate()
            .filter(|(_, thread)| uses(thread))
        {
            file_of[index] = Some(files.len() as u32);
            files.push(File {
                thread: index as u32,
                base: image.base + files.len() as u64 * size,
                size,
                at: 0,
                ahead: VecDeque::new(),
                call: None,
            });
        }
        let base = |log: u64| image.base + (users + log) * size;
        Self {
            image,
            files,
            logs: (0..logs).map(|log| Log::new(base(log), size)).collect(),
            file_of,
            requests: Vec::new(),
            free: Vec::new(),
            inactivity: Inactivity::default(),
            operations: 0,
            bytes: 0,
            waits: Waits::default(),
            done: Default::default(),
        }
    }

    /// Accounts start again.
    pub fn reset(&mut self) {
        self.inactivity.total = 0;
        (self.operations, self.bytes) = (0, 0);
        self.waits = Waits::default();
        self.done = Default::default();
    }

    /// What its threads did; `None` if none of them reads or writes.
    pub fn achieved(&self) -> Option<IoAchieved> {
        (!self.files.is_empty()).then(|| IoAchieved {
            operations: self.operations,
            bytes: self.bytes,
            waits: self.waits.clone(),
            requests: self.done,
            inactivity: self.inactivity.total,
            threads: self.files.len(),
        })
    }

    /// The threads that read or write.
    pub fn io_threads(&self) -> impl Iterator<Item = u32> {
        self.files.iter().map(|file| file.thread)
    }

    /// The file of a thread that reads or writes.
    pub fn file_of(&self, thread: u32) -> Option<u32> {
        self.file_of[thread as usize]
    }

    /// The vCPU that has the interrupt a blocked thread waits for.
    pub fn delivery(&self, thread: u32) -> Option<u32> {
        let file = self.file_of[thread as usize]?;
        self.files[file as usize].call?.delivery
    }

    /// Is the thread in a read or write? If it is asleep, that is what it waits for.
    pub fn waits(&self, thread: u32) -> bool {
        let file = self.file_of[thread as usize];
        file.is_some_and(|file| self.files[file as usize].call.is_some())
    }

    /// The thread whose request it is.
    pub fn of(&self, id: u32) -> u32 {
        self.files[self.requests[id as usize].file as usize].thread
    }

    /// The vCPU that issued a request.
    pub fn issuer(&self, id: u32) -> u32 {
        self.requests[id as usize].by
    }

    /// A request as its disk gets it.
    pub fn request(&self, id: u32) -> (u32, Request) {
        let slot = &self.requests[id as usize];
        let request = Request {
            owner: self.image.owner,
            id,
            start: slot.start,
            bytes: slot.bytes,
            write: slot.write,
            arrived: 0,
        };
        (self.image.disk, request)
    }

    /// A request gets a number.
    pub fn add(&mut self, slot: Slot) -> u32 {
        match self.free.pop() {
            Some(id) => {
                self.requests[id as usize] = slot;
                id
            }
            None => {
                self.requests.push(slot);
                self.requests.len() as u32 - 1
            }
        }
    }

    /// Requests that are under way, or done but not known to the guest.
    pub fn under_way(&self) -> usize {
        self.requests.len() - self.free.len()
    }

    /// The guest has learnt that a request is over.
    pub fn count(&mut self, now: Nanos, id: u32) {
        let slot = &self.requests[id as usize];
        let done = &mut self.done[usize::from(slot.write)];
        done.count += 1;
        done.total += now.saturating_sub(slot.since);
    }

    /// A call is over.
    pub fn finish(&mut self, now: Nanos, file: u32, bytes: u64) {
        self.operations += 1;
        self.bytes += bytes;
        if let Some(call) = self.files[file as usize].call.take()
            && call.waited
        {
            self.waits.record(now - call.since);
        }
    }
}

/// How many logs the threads append to.
fn logs(threads: &[Thread]) -> u64 {
    let ops = threads.iter().flat_map(|thread| thread.code.ops());
    let number = |op: &Op| match op {
        Op::Append { log, .. } => u64::from(*log) + 1,
        _ => 0,
    };
    ops.map(number).max().unwrap_or(0)
}
