// SPDX-License-Identifier: GPL-2.0-only
//! The times at which a part of a disk that does one thing at a time is busy, as far as they are known.
//!
//! When a disk takes a request, it is known when the request will need each part of the disk. Until
//! then that part is free for other requests that need it sooner. So a part is promised for a time,
//! and the next request gets the first time that is long enough and not promised.

use corun_model::Nanos;
use std::collections::VecDeque;

/// Promised times, in order, with free time between any two.
#[derive(Clone, Debug, Default)]
pub(super) struct Promised(VecDeque<(Nanos, Nanos)>);

impl Promised {
    /// No request asks for a time before `now` any more.
    pub fn forget(&mut self, now: Nanos) {
        while self.0.front().is_some_and(|&(_, end)| end <= now) {
            self.0.pop_front();
        }
    }

    /// When something that lasts `length` begins, if it can from `from` on.
    pub fn first(&self, from: Nanos, length: Nanos) -> Nanos {
        let mut begin = from;
        for &(busy, free) in &self.0 {
            if begin + length <= busy {
                break;
            }
            begin = begin.max(free);
        }
        begin
    }

    /// Promises that time; returns its end.
    pub fn take(&mut self, from: Nanos, length: Nanos) -> Nanos {
        let begin = self.first(from, length);
        let end = begin + length;
        let at = self.0.partition_point(|&(_, free)| free < begin);
        match self.0.get_mut(at) {
            // It adjoins the promised time before it, and perhaps also the next one.
            Some(before) if before.1 == begin => {
                before.1 = end;
                if self.0.get(at + 1).is_some_and(|next| next.0 == end) {
                    let next = self.0.remove(at + 1);
                    self.0[at].1 = next.map_or(end, |next| next.1);
                }
            }
            Some(next) if next.0 == end => next.0 = begin,
            _ if length > 0 => self.0.insert(at, (begin, end)),
            _ => {}
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_comes_later_has_the_time_before() {
        let mut link = Promised::default();
        assert_eq!(link.take(50, 10), 60);
        assert_eq!(link.take(0, 20), 20);
        assert_eq!(link.take(0, 31), 91, "30 are free before 50");
        assert_eq!(link.take(10, 30), 50, "all of them");
        assert_eq!(link.take(0, 1), 92);
        assert_eq!(link.0, [(0, 92)]);
        link.forget(92);
        assert_eq!((link.take(92, 0), link.0.len()), (92, 0));
    }

    proptest! {
        /// Each request gets the first time, from when it can begin, that no other has; checked
        /// moment by moment.
        #[test]
        fn nobody_shares_or_waits_in_vain(asked in prop::collection::vec((0u64..100, 1u64..12), 1..30)) {
            let mut promised = Promised::default();
            let mut taken = vec![false; 1000];
            let mut now = 0;
            for (n, (from, length)) in asked.into_iter().enumerate() {
                // Time goes on, and with it the earliest time that may be asked for.
                now = now.max(n as u64 * 3);
                promised.forget(now);
                let from = now + from;
                let fits = |begin: &u64| (*begin..*begin + length).all(|at| !taken[at as usize]);
                let begin = (from..).find(fits).unwrap();
                prop_assert_eq!(promised.take(from, length), begin + length);
                (begin..begin + length).for_each(|at| taken[at as usize] = true);
                prop_assert!(promised.0.iter().is_sorted_by(|one, next| one.1 < next.0));
            }
        }
    }
}
