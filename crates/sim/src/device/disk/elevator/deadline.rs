// SPDX-License-Identifier: GPL-2.0-only
//! Linux' deadline scheduler (`block/deadline-iosched.c`, `block/mq-deadline.c`).
//!
//! Reads and writes each wait in two orders, by place and by arrival. The disk gets them by place,
//! upwards, in batches of one direction; a batch begins at the oldest request if that has expired,
//! else where the last one of its direction ended. Reads go first, but writes are passed over
//! `writes_starved` times at most.

use super::{Elevator, Next, Request};
use corun_model::Nanos;
use corun_model::time::{MS, SEC};

/// Settings; the defaults are the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadlineParams {
    /// A read that has waited so long goes first. 500 ms.
    pub read_expire: Nanos,
    /// A write that has waited so long goes first. 5 s.
    pub write_expire: Nanos,
    /// Requests of a batch, 1–10000. 16: `fifo_batch`.
    pub batch: u32,
    /// Batches of reads while writes wait, 1–10000. 2.
    pub writes_starved: u32,
}

impl Default for DeadlineParams {
    fn default() -> Self {
        Self {
            read_expire: 500 * MS,
            write_expire: 5 * SEC,
            batch: 16,
            writes_starved: 2,
        }
    }
}

/// The scheduler in the run. Index 0 is reads, 1 writes.
#[derive(Debug)]
pub(super) struct Deadline {
    params: DeadlineParams,
    /// In the order they came.
    waiting: [Vec<Request>; 2],
    /// Where the last request of each direction ended.
    reached: [u64; 2],
    direction: usize,
    in_batch: u32,
    starved: u32,
}

impl Deadline {
    pub fn new(params: DeadlineParams) -> Self {
        Self {
            params,
            waiting: [Vec::new(), Vec::new()],
            reached: [0; 2],
            direction: 0,
            in_batch: u32::MAX,
            starved: 0,
        }
    }

    /// The waiting request of a direction that lies next above where the last one ended.
    fn above(&self, direction: usize) -> Option<usize> {
        let list = &self.waiting[direction];
        let above = |at: &usize| list[*at].start >= self.reached[direction];
        (0..list.len())
            .filter(above)
            .min_by_key(|at| list[*at].start)
    }

    /// The direction of a new batch, if there is any request.
    fn choose(&mut self) -> Option<usize> {
        let [reads, writes] = [&self.waiting[0], &self.waiting[1]].map(|list| !list.is_empty());
        if reads && writes && self.starved < self.params.writes_starved {
            self.starved += 1;
            return Some(0);
        }
        if writes {
            self.starved = 0;
            return Some(1);
        }
        reads.then_some(0)
    }

    fn expired(&self, now: Nanos, direction: usize) -> bool {
        let limit = [self.params.read_expire, self.params.write_expire][direction];
        let oldest = self.waiting[direction].first();
        oldest.is_some_and(|oldest| now - oldest.arrived >= limit)
    }
}

impl Elevator for Deadline {
    fn add(&mut self, _now: Nanos, request: Request) {
        self.waiting[usize::from(request.write)].push(request);
    }

    fn next(&mut self, now: Nanos) -> Next {
        let goes_on = self
            .above(self.direction)
            .filter(|_| self.in_batch < self.params.batch);
        let at = match goes_on {
            Some(at) => at,
            None => {
                let Some(direction) = self.choose() else {
                    return Next::Empty;
                };
                self.direction = direction;
                self.in_batch = 0;
                // The oldest request is the first of its list.
                match self.expired(now, direction) {
                    true => 0,
                    false => self.above(direction).unwrap_or(0),
                }
            }
        };
        self.in_batch += 1;
        let request = self.waiting[self.direction].remove(at);
        self.reached[self.direction] = request.end();
        Next::Serve(request)
    }

    fn done(&mut self, _now: Nanos, _request: &Request) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(id: u32, start: u64, write: bool, arrived: Nanos) -> Request {
        Request {
            owner: 0,
            id,
            start,
            bytes: 1,
            write,
            arrived,
        }
    }

    fn order(deadline: &mut Deadline, now: Nanos) -> Vec<u32> {
        let next = || match deadline.next(now) {
            Next::Serve(request) => Some(request.id),
            _ => None,
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn upwards_and_then_from_the_oldest() {
        let mut deadline = Deadline::new(DeadlineParams::default());
        for (id, start) in [(0, 50), (1, 10), (2, 70), (3, 60)] {
            deadline.add(0, request(id, start, false, 0));
        }
        assert_eq!(order(&mut deadline, 0), [1, 0, 3, 2]);
        // Nothing lies above: a new batch begins with the oldest, wherever it is.
        deadline.add(0, request(4, 40, false, 0));
        deadline.add(0, request(5, 20, false, 0));
        assert_eq!(order(&mut deadline, 0), [4, 5]);
    }

    #[test]
    fn an_expired_request_begins_the_next_batch() {
        let params = DeadlineParams {
            batch: 2,
            ..DeadlineParams::default()
        };
        let mut deadline = Deadline::new(params);
        deadline.add(0, request(0, 90, false, 0));
        for id in 1..6 {
            deadline.add(MS, request(id, u64::from(id), false, MS));
        }
        assert_eq!(order(&mut deadline, 500 * MS)[..3], [0, 1, 2]);
        let mut deadline = Deadline::new(params);
        deadline.add(0, request(0, 90, false, 0));
        for id in 1..6 {
            deadline.add(MS, request(id, u64::from(id), false, MS));
        }
        assert_eq!(order(&mut deadline, 400 * MS), [1, 2, 3, 4, 5, 0]);
    }

    #[test]
    fn writes_are_passed_over_twice() {
        let params = DeadlineParams {
            batch: 1,
            ..DeadlineParams::default()
        };
        let mut deadline = Deadline::new(params);
        for id in 0..4 {
            deadline.add(0, request(id, u64::from(id), false, 0));
            deadline.add(0, request(10 + id, u64::from(id), true, 0));
        }
        assert_eq!(order(&mut deadline, 0), [0, 1, 10, 2, 3, 11, 12, 13]);
    }
}
