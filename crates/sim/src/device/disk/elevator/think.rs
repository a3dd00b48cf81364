// SPDX-License-Identifier: GPL-2.0-only
//! How long a VM takes from one request's end to its next request, as CFQ computes it
//! (`__cfq_update_io_thinktime`): a mean in which each new value counts an eighth, no value counts
//! for more than twice the idle window, and which is heeded only after the third value. Times are
//! in the unit of the caller's clock.

/// Think time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Think {
    samples: u64,
    total: u64,
    /// The mean.
    pub mean: u64,
    last_end: u64,
}

impl Think {
    /// A request was done.
    pub fn ended(&mut self, now: u64) {
        self.last_end = now;
    }

    /// A request came.
    pub fn began(&mut self, now: u64, window: u64) {
        let elapsed = now.saturating_sub(self.last_end).min(2 * window);
        self.samples = (7 * self.samples + 256) / 8;
        self.total = (7 * self.total + 256 * elapsed) / 8;
        self.mean = (self.total + 128) / self.samples;
    }

    /// Has it been seen often enough?
    pub fn valid(&self) -> bool {
        self.samples > 80
    }

    /// Is it longer than `window`?
    pub fn longer_than(&self, window: u64) -> bool {
        self.valid() && self.mean > window
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corun_model::time::MS;

    #[test]
    fn one_long_pause_among_short_ones_is_no_long_think_time() {
        let (mut think, window) = (Think::default(), 8 * MS);
        for n in 1..=99 {
            think.ended(n * MS);
            think.began(n * MS, window);
        }
        assert!(think.valid() && think.mean < 1000, "{think:?}");
        think.began(200 * MS, window);
        // An eighth of 16 ms.
        assert!(think.mean.abs_diff(2 * MS) < MS / 10, "{think:?}");
        assert!(!think.longer_than(window));
        for n in 3..11 {
            think.began(n * 100 * MS, window);
        }
        assert!(think.longer_than(window), "{think:?}");
    }
}
