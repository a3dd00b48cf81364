// SPDX-License-Identifier: GPL-2.0-only
//! A solid-state disk: flash units that work in parallel, and one link to the host.
//!
//! A read occupies a unit for the flash latency and then the link for its bytes; a write first the
//! link and then a unit. Large requests are spread over the units inside, so they cost the latency
//! once. One request at a time thus takes latency + size / bandwidth, many small ones are limited
//! by units / latency, large ones by the link.
//!
//! The link carries one request's data at a time, whether it reads or writes, as Serial ATA does: while
//! one end sends a frame, the other answers with primitives only (`R_IP`), and a queued command's data
//! are not mixed with another's. The link is free until a read has its data, so that transfers that are done by then go
//! first; likewise a unit until a write has come over the link. NVMe's link (PCI Express) carries
//! both ways at once, which is not modelled: such a drive's reads and writes together reach no more here than either
//! alone.

use super::Request;
use super::promised::Promised;
use corun_model::Nanos;
use corun_model::time::{SEC, US};

/// A SATA solid-state disk. The defaults are those of a data-centre drive of 2015: Intel's product
/// specification of the DC S3610 series (order number 331342).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SsdParams {
    /// Bytes. 1 TB: vMigrater's testbed (§5).
    pub capacity: u64,
    /// Command to data for a small read, without the transfer. 48 us: the typical read latency of
    /// 55 us includes 4 KiB at 550 MB/s.
    pub read_latency: Nanos,
    /// The same for a write. 58 us: 66 us less 4 KiB at 520 MB/s.
    pub write_latency: Nanos,
    /// Bytes per second of sequential reads. 550 MB/s.
    pub read_bandwidth: u64,
    /// The same for sequential writes. 520 MB/s.
    pub write_bandwidth: u64,
    /// Requests whose flash access overlaps, 1–1024. 4: 84,000 random reads/s of 4 KiB at depth 32,
    /// times 48 us. (So deep random writes reach 69,000/s; the specification's 28,000 includes
    /// garbage collection, which is not modelled.)
    pub parallel: u32,
    /// Requests taken from the host at once, 1–1024. 32: SATA's native command queueing.
    pub queue_depth: u32,
}

impl Default for SsdParams {
    fn default() -> Self {
        Self {
            capacity: 1_000_000_000_000,
            read_latency: 48 * US,
            write_latency: 58 * US,
            read_bandwidth: 550_000_000,
            write_bandwidth: 520_000_000,
            parallel: 4,
            queue_depth: 32,
        }
    }
}

/// How long so many bytes take at so many per second, rounded up: only 0 bytes take no time.
pub(super) fn transfer(bytes: u64, per_second: u64) -> Nanos {
    let time = u128::from(bytes) * u128::from(SEC);
    time.div_ceil(u128::from(per_second.max(1))) as Nanos
}

/// A solid-state disk in the run.
#[derive(Debug)]
pub(super) struct Ssd {
    params: SsdParams,
    units: Vec<Promised>,
    link: Promised,
}

impl Ssd {
    pub fn new(params: SsdParams) -> Self {
        Self {
            units: vec![Promised::default(); params.parallel.max(1) as usize],
            params,
            link: Promised::default(),
        }
    }

    /// Begins a request; returns when it is done.
    pub fn serve(&mut self, now: Nanos, request: &Request) -> Nanos {
        let parts = self.units.iter_mut().chain([&mut self.link]);
        parts.for_each(|part| part.forget(now));
        if request.write {
            let transfer = transfer(request.bytes, self.params.write_bandwidth);
            let linked = self.link.take(now, transfer);
            self.access(linked, self.params.write_latency)
        } else {
            let accessed = self.access(now, self.params.read_latency);
            let transfer = transfer(request.bytes, self.params.read_bandwidth);
            self.link.take(accessed, transfer)
        }
    }

    /// An access, on the unit that can begin it first.
    fn access(&mut self, from: Nanos, latency: Nanos) -> Nanos {
        let units = self.units.iter_mut();
        let first = units.min_by_key(|unit| unit.first(from, latency));
        first.map_or(from + latency, |unit| unit.take(from, latency))
    }
}
