// SPDX-License-Identifier: GPL-2.0-only
//! The threads that wait for a vCPU, in fair order, as Linux's CFS keeps them.
//!
//! The thread with the least virtual time goes first; equals in the order of their numbers. All
//! threads weigh the same, so virtual time is time run. A guest with steal accounting does not
//! charge the time its vCPU was descheduled; neither does this.

use corun_model::Nanos;

/// A vCPU's runqueue, without the thread that runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Runqueue {
    /// In descending order: the first to go is last.
    threads: Vec<(Nanos, u32)>,
    /// The virtual time that all have reached; never falls.
    least: Nanos,
}

impl Runqueue {
    pub fn len(&self) -> usize {
        self.threads.len()
    }

    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// The virtual time that all have reached.
    pub fn least(&self) -> Nanos {
        self.least
    }

    /// The virtual time of the one to go last.
    pub fn last(&self) -> Option<Nanos> {
        self.threads.first().map(|(vruntime, _)| *vruntime)
    }

    /// Puts in a thread with its virtual time.
    pub fn add(&mut self, vruntime: Nanos, thread: u32) {
        let entry = (vruntime, thread);
        let place = self.threads.partition_point(|other| *other > entry);
        self.threads.insert(place, entry);
    }

    /// Takes out the one to go first.
    pub fn pop(&mut self) -> Option<u32> {
        self.threads.pop().map(|(_, thread)| thread)
    }

    /// The first to go among those for which `some` holds.
    pub fn first_of(&self, some: impl Fn(u32) -> bool) -> Option<u32> {
        let mut threads = self.threads.iter().rev().map(|(_, thread)| *thread);
        threads.find(|thread| some(*thread))
    }

    /// Takes out a thread; false if it is not there.
    pub fn remove(&mut self, thread: u32) -> bool {
        let place = self.threads.iter().position(|(_, it)| *it == thread);
        place.map(|place| self.threads.remove(place)).is_some()
    }

    /// The running thread has reached this virtual time.
    pub fn reached(&mut self, current: Nanos) {
        let first = self.threads.last().map_or(current, |first| first.0);
        self.least = self.least.max(first.min(current));
    }

    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.threads.iter().map(|(_, thread)| *thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_virtual_time_goes_first_and_never_falls() {
        let mut queue = Runqueue::default();
        for (vruntime, thread) in [(30, 0), (10, 1), (20, 2), (10, 3)] {
            queue.add(vruntime, thread);
        }
        queue.reached(50);
        assert_eq!(queue.least(), 10);
        assert_eq!(queue.first_of(|thread| thread != 1), Some(3));
        assert!(queue.remove(3) && !queue.remove(3));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [1, 2, 0]);
        queue.reached(5);
        assert_eq!(queue.least(), 10);
    }
}
