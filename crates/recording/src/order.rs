// SPDX-License-Identifier: GPL-2.0-only
//! Puts events back into order of time within a bounded window.
//!
//! Recordings merged from per-pCPU files may go back a little in time. The [`WINDOW`] latest
//! events are held back and released earliest first; equal times keep the file's order.

use crate::event::{Context, Event};
use corun_model::Nanos;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// How many events are held back, unless the form needs more.
pub(crate) const WINDOW: usize = 1 << 15;

/// An event with everything that its line states.
#[derive(Clone, Debug)]
pub(crate) struct Stamped {
    /// ns on the recorded clock.
    pub at: Nanos,
    pub cpu: u32,
    pub tid: u32,
    pub tgid: Option<u32>,
    /// The running task's name, if it is known.
    pub comm: Option<String>,
    pub context: Context,
    pub event: Event,
    /// Its line, block or packet in the file, from 1.
    pub line: u64,
}

impl Stamped {
    /// An event in task context about which nothing else is known; its place in the file is set later.
    pub fn new(at: Nanos, cpu: u32, tid: u32, event: Event) -> Self {
        Self {
            at,
            cpu,
            tid,
            tgid: None,
            comm: None,
            context: Context::Task,
            event,
            line: 0,
        }
    }
}

/// The window.
pub(crate) struct Order {
    /// How many events are held back.
    pub window: usize,
    heap: BinaryHeap<Reverse<Entry>>,
    sequence: u64,
    previous: Nanos,
    released: Nanos,
    /// Events earlier than the one before them in the file.
    pub late: u64,
    /// Events that came too late for the window, and the place of the first.
    pub too_late: u64,
    pub too_late_line: Option<u64>,
}

impl Default for Order {
    fn default() -> Self {
        Self {
            window: WINDOW,
            heap: BinaryHeap::new(),
            sequence: 0,
            previous: 0,
            released: 0,
            late: 0,
            too_late: 0,
            too_late_line: None,
        }
    }
}

impl Order {
    /// Takes an event in, and gives one out when the window is full.
    pub(crate) fn push(&mut self, event: Stamped) -> Option<Stamped> {
        self.late += u64::from(event.at < self.previous);
        self.previous = event.at;
        if event.at < self.released {
            self.too_late += 1;
            self.too_late_line = self.too_late_line.or(Some(event.line));
            return None;
        }
        self.sequence += 1;
        self.heap.push(Reverse(Entry {
            sequence: self.sequence,
            event,
        }));
        if self.heap.len() > self.window {
            self.pop()
        } else {
            None
        }
    }

    /// Gives out the earliest event.
    pub(crate) fn pop(&mut self) -> Option<Stamped> {
        let Reverse(entry) = self.heap.pop()?;
        self.released = entry.event.at;
        Some(entry.event)
    }
}

struct Entry {
    sequence: u64,
    event: Stamped,
}

impl Entry {
    fn key(&self) -> (Nanos, u64) {
        (self.event.at, self.sequence)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamped(at: Nanos, line: u64) -> Stamped {
        let (event, context) = (Event::Other, Context::Task);
        Stamped {
            at,
            cpu: 0,
            tid: 1,
            tgid: None,
            comm: None,
            context,
            event,
            line,
        }
    }

    #[test]
    fn sorted_and_stable() {
        let mut order = Order::default();
        for (line, at) in [5, 3, 5, 4].into_iter().enumerate() {
            assert!(order.push(stamped(at, line as u64)).is_none());
        }
        let out: Vec<_> = std::iter::from_fn(|| order.pop())
            .map(|e| (e.at, e.line))
            .collect();
        assert_eq!(out, [(3, 1), (4, 3), (5, 0), (5, 2)]);
        assert_eq!((order.late, order.too_late), (2, 0));
    }

    #[test]
    fn too_late_for_the_window() {
        let mut order = Order::default();
        let out = (0..=WINDOW as u64)
            .filter_map(|at| order.push(stamped(10 + at, at)))
            .count();
        assert_eq!(out, 1);
        assert!(order.push(stamped(3, 99_999)).is_none());
        assert_eq!((order.too_late, order.too_late_line), (1, Some(99_999)));
    }
}
