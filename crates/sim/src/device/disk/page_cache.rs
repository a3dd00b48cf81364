// SPDX-License-Identifier: GPL-2.0-only
//! The host's page cache between VMs' images and the disk (QEMU's `cache=writeback`, its default for
//! images in files).
//!
//! Who reads a block that the host has in memory waits for QEMU and a copy, and so does who writes;
//! who does not waits for the disk, which on a hard one takes a hundred times as long. What the
//! cache holds hangs on everything that the host has read before, which is not modelled: one request
//! of so many is not found there, whichever it is. (A flush goes to the disk as well; with it, too,
//! it is one of so many.)

use super::Request;
use crate::rng::Rng;
use corun_model::Nanos;

/// Copying a KiB, as the guests' page caches have it (`guest.*.copy_kib`): 10 GB/s.
const COPY_KIB: Nanos = 100;

/// What the page cache does to the requests of a disk.
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
        let misses = self.one_of <= 1 || self.rng.between(1, u64::from(self.one_of)) == 1;
        (!misses).then(|| request.bytes.div_ceil(1024) * COPY_KIB)
    }
}
