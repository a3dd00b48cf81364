// SPDX-License-Identifier: GPL-2.0-only
//! A VM's I/O bandwidth quota: QEMU's block throttling (`util/throttle.c`), as libvirt's `iotune`
//! sets it with `total_bytes_sec`.
//!
//! A leaky bucket: each request adds its bytes, the bucket leaks at the quota, and a request may go
//! while the bucket holds no more than a tenth of a second's worth (QEMU's default burst). The level
//! is kept as the time it takes to leak out, so that no fraction of a byte is lost.

use corun_model::Nanos;
use corun_model::time::{MS, SEC};

/// What the bucket may hold and still let a request go.
const BURST: Nanos = 100 * MS;

/// A VM's bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quota {
    /// Bytes per second.
    rate: u64,
    /// When the bucket will be empty.
    empty_at: Nanos,
}

impl Quota {
    pub fn new(rate: u64) -> Self {
        Self {
            rate: rate.max(1),
            empty_at: 0,
        }
    }

    /// Lets a request of so many bytes go, or says when it may.
    pub fn take(&mut self, now: Nanos, bytes: u64) -> Result<(), Nanos> {
        let level = self.empty_at.saturating_sub(now);
        if level > BURST {
            return Err(now + level - BURST);
        }
        let time = u128::from(bytes) * u128::from(SEC) / u128::from(self.rate);
        self.empty_at = now.saturating_add(level).saturating_add(time as Nanos);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_the_burst_the_rate_holds() {
        // 1 MB/s in requests of 10 kB, as fast as they may: 11 at once (the bucket holds up to
        // 100 ms, and the one that overfills it still goes), then one every 10 ms.
        let mut quota = Quota::new(1_000_000);
        let (mut now, mut at) = (0, Vec::new());
        while at.len() < 111 {
            match quota.take(now, 10_000) {
                Ok(()) => at.push(now),
                Err(later) => now = later,
            }
        }
        assert!(at[..11].iter().all(|at| *at == 0));
        assert_eq!((at[11], at[110]), (10 * MS, SEC));
    }
}
