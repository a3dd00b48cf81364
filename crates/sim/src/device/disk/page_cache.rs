// SPDX-License-Identifier: GPL-2.0-only
//! The host's page cache between VMs' images and the disk (QEMU's `cache=writeback`, its default for
//! images in files).
//!
//! A thread that reads a block that the host has in memory waits for QEMU and a copy; a thread that
//! reads another block waits for the disk, which takes a hundred times as long on a hard disk. What
//! the cache holds depends on everything that the host has read before, which is not modelled: one
//! in so many reads is not found there, chosen at random.
//!
//! Writes all go to the disk: the guest waits until they are on it, so they end in a flush, which
//! QEMU carries out as an fsync of the image. (Writes of a guest's flusher need no flush; the host would take them at
//! once and write them later. The disk's work is the same.)

use super::Request;
use crate::rng::Rng;
use corun_model::Nanos;

/// Copying a KiB, as for the guests' page caches (`guest.*.copy_kib`): 10 GB/s.
const COPY_KIB: Nanos = 100;

/// What the page cache does to the reads of a disk.
#[derive(Debug)]
pub(super) struct PageCache {
    /// One in so many reads goes to the disk; 1: all.
    one_of: u32,
    rng: Rng,
}

impl PageCache {
    pub fn new(one_of: u32, rng: Rng) -> Self {
        Self { one_of, rng }
    }

    /// How long it takes to answer `request`; `None`: it goes to the disk.
    pub fn answers(&mut self, request: &Request) -> Option<Nanos> {
        let misses =
            request.write || self.one_of <= 1 || self.rng.between(1, u64::from(self.one_of)) == 1;
        (!misses).then(|| request.bytes.div_ceil(1024) * COPY_KIB)
    }
}
