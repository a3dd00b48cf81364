// SPDX-License-Identifier: GPL-2.0-only
//! The host's page cache between VMs' images and the disk (QEMU's `cache=writeback`, its default for
//! images in files).
//!
//! A thread that reads a block that the host has in memory waits for QEMU and a copy; one that
//! reads another block waits for the disk, which on a hard one takes a hundred times as long. What
//! the cache holds hangs on everything that the host has read before, which is not modelled: one
//! read of so many is not found there, whichever it is.
//!
//! Writes all go to the disk: the guest waits until they are on it, so they end in a flush, which
//! QEMU carries out as an fsync of the image. (Those that a guest's flusher makes need none; the host
//! would take them at once and write them later. The disk has the same to do.)

use super::Request;
use crate::rng::Rng;
use corun_model::Nanos;

/// Copying a KiB, as the guests' page caches have it (`guest.*.copy_kib`): 10 GB/s.
const COPY_KIB: Nanos = 100;

/// What the page cache does to the reads of a disk.
#[derive(Debug)]
pub(super) struct PageCache {
    /// One of so many goes to the disk; 1: all.
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
