// SPDX-License-Identifier: GPL-2.0-only
//! The event queue: what happens next in virtual time.
//!
//! A scheduler simulator cancels a large share of its events (a preempted task's completion, a
//! slice that ended early), so cancelling removes the entry in O(log n) instead of leaving it to be
//! skipped later. Events of the same time come out in the order they were scheduled: together with
//! integer time that makes a run a pure function of its input.

use corun_model::Nanos;

/// Names a scheduled event. Stays valid after the event has fired or was cancelled: then
/// [`EventQueue::cancel`] does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventId {
    slot: u32,
    generation: u32,
}

impl EventId {
    /// An id that names no event.
    pub const NONE: EventId = EventId {
        slot: u32::MAX,
        generation: 0,
    };
}

/// Key in the heap: time first, then order of scheduling.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    at: Nanos,
    order: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    key: Key,
    slot: u32,
}

struct Slot<E> {
    generation: u32,
    /// Where the entry is in the heap; meaningless while `event` is `None`.
    place: u32,
    event: Option<E>,
}

/// A 4-ary heap over a slab: fewer cache misses than a binary heap, and slots know their place.
pub struct EventQueue<E> {
    heap: Vec<Entry>,
    slots: Vec<Slot<E>>,
    free: Vec<u32>,
    order: u64,
}

const ARITY: usize = 4;

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self {
            heap: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            order: 0,
        }
    }
}

impl<E> EventQueue<E> {
    /// Number of events still to come.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Is nothing left to happen?
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Lets `event` happen at time `at`.
    pub fn schedule(&mut self, at: Nanos, event: E) -> EventId {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(Slot {
                    generation: 0,
                    place: 0,
                    event: None,
                });
                (self.slots.len() - 1) as u32
            }
        };
        let place = self.heap.len();
        self.heap.push(Entry {
            key: Key {
                at,
                order: self.order,
            },
            slot,
        });
        self.order += 1;
        let generation = {
            let s = &mut self.slots[slot as usize];
            s.event = Some(event);
            s.place = place as u32;
            s.generation
        };
        self.sift_up(place);
        EventId { slot, generation }
    }

    /// Takes an event back. Returns it if it had neither fired nor been cancelled.
    pub fn cancel(&mut self, id: EventId) -> Option<E> {
        let slot = self.slots.get(id.slot as usize)?;
        if slot.generation != id.generation || slot.event.is_none() {
            return None;
        }
        let place = slot.place as usize;
        self.remove(place).map(|(_, event)| event)
    }

    /// The time of the next event.
    pub fn next_at(&self) -> Option<Nanos> {
        self.heap.first().map(|entry| entry.key.at)
    }

    /// The next event and its time.
    pub fn pop(&mut self) -> Option<(Nanos, E)> {
        if self.heap.is_empty() {
            None
        } else {
            self.remove(0)
        }
    }

    fn remove(&mut self, place: usize) -> Option<(Nanos, E)> {
        let entry = self.heap.swap_remove(place);
        if place < self.heap.len() {
            self.set_place(place);
            if !self.sift_up(place) {
                self.sift_down(place);
            }
        }
        let slot = &mut self.slots[entry.slot as usize];
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(entry.slot);
        slot.event.take().map(|event| (entry.key.at, event))
    }

    fn set_place(&mut self, place: usize) {
        let slot = self.heap[place].slot;
        self.slots[slot as usize].place = place as u32;
    }

    /// Moves the entry towards the root as far as it belongs; did it move?
    fn sift_up(&mut self, mut place: usize) -> bool {
        let entry = self.heap[place];
        let start = place;
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.heap[parent].key <= entry.key {
                break;
            }
            self.heap[place] = self.heap[parent];
            self.set_place(place);
            place = parent;
        }
        self.heap[place] = entry;
        self.set_place(place);
        place != start
    }

    fn sift_down(&mut self, mut place: usize) {
        let entry = self.heap[place];
        loop {
            let first = place * ARITY + 1;
            if first >= self.heap.len() {
                break;
            }
            let last = (first + ARITY).min(self.heap.len());
            let mut least = first;
            for child in first + 1..last {
                if self.heap[child].key < self.heap[least].key {
                    least = child;
                }
            }
            if entry.key <= self.heap[least].key {
                break;
            }
            self.heap[place] = self.heap[least];
            self.set_place(place);
            place = least;
        }
        self.heap[place] = entry;
        self.set_place(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equals_come_out_in_the_order_they_were_scheduled() {
        let mut queue = EventQueue::default();
        for n in 0..100 {
            queue.schedule(7, n);
        }
        let out: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(_, n)| n).collect();
        assert_eq!(out, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_cancelled_event_never_fires() {
        let mut queue = EventQueue::default();
        let first = queue.schedule(1, "first");
        queue.schedule(2, "second");
        assert_eq!(queue.cancel(first), Some("first"));
        assert_eq!(queue.cancel(first), None);
        assert_eq!(queue.pop(), Some((2, "second")));
        let reused = queue.schedule(3, "third");
        assert_eq!(
            queue.cancel(first),
            None,
            "an old id must not name a new event"
        );
        assert_eq!(queue.cancel(reused), Some("third"));
        assert_eq!(queue.cancel(EventId::NONE), None);
    }

    proptest! {
        /// Against a sorted list: nothing lost, nothing twice, time never goes back.
        #[test]
        fn behaves_like_a_sorted_list(ops in prop::collection::vec((0u64..50, any::<bool>(), 0usize..64), 1..400)) {
            let mut queue = EventQueue::default();
            let mut model: Vec<(u64, usize, EventId)> = Vec::new();
            for (n, (at, cancel, which)) in ops.into_iter().enumerate() {
                let id = queue.schedule(at, n);
                model.push((at, n, id));
                if cancel {
                    let (_, event, id) = model.remove(which % model.len());
                    prop_assert_eq!(queue.cancel(id), Some(event));
                }
            }
            model.sort_by_key(|&(at, n, _)| (at, n));
            for (at, n, _) in model {
                prop_assert_eq!(queue.pop(), Some((at, n)));
            }
            prop_assert!(queue.is_empty());
        }
    }
}
