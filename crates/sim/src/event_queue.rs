// SPDX-License-Identifier: GPL-2.0-only
//! The event queue: what happens next in virtual time.
//!
//! A scheduler simulator cancels a large share of its events (a preempted task's completion, a
//! slice that ended early) or puts them off, so the entry is removed or moved in O(log n) instead
//! of being left to be skipped later. Events of the same time come out in the order they were
//! scheduled: together with integer time, that makes a run a pure function of its input.
//!
//! Most events schedule another one. So an event that is taken out leaves a hole at the root, which
//! the next scheduled event fills: one pass down the heap instead of two.

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

/// An entry of the heap: time first, then order of scheduling. Four of them fill a cache line.
#[derive(Clone, Copy)]
struct Entry {
    at: Nanos,
    /// Order of scheduling in the upper half, the event's slot in the lower.
    tie: u64,
}

impl Entry {
    #[inline]
    fn new(at: Nanos, order: u32, slot: u32) -> Self {
        let tie = u64::from(order) << 32 | u64::from(slot);
        Self { at, tie }
    }

    #[inline]
    fn slot(&self) -> u32 {
        self.tie as u32
    }

    /// As one number, so that comparing needs no branch. No two orders are equal, so the slot in it
    /// never decides.
    #[inline]
    fn key(&self) -> u128 {
        u128::from(self.at) << 64 | u128::from(self.tie)
    }
}

/// Where an event's entry is in the heap, and how many events had this slot before.
#[derive(Clone, Copy)]
struct Slot {
    generation: u32,
    place: u32,
}

/// A 4-ary heap over a slab: fewer cache misses than a binary heap, and slots know their place.
pub struct EventQueue<E> {
    heap: Vec<Entry>,
    slots: Vec<Slot>,
    /// What is going to happen, by slot.
    events: Vec<Option<E>>,
    free: Vec<u32>,
    order: u32,
    /// The root's event has been taken out; its key is 0, so that nothing moves there.
    hole: bool,
}

const ARITY: usize = 4;

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self {
            heap: Vec::new(),
            slots: Vec::new(),
            events: Vec::new(),
            free: Vec::new(),
            order: 0,
            hole: false,
        }
    }
}

impl<E> EventQueue<E> {
    /// Number of events still to come.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.heap.len() - usize::from(self.hole)
    }

    /// Lets `event` happen at time `at`.
    pub fn schedule(&mut self, at: Nanos, event: E) -> EventId {
        let order = self.next_order();
        let slot = self.take_slot(event);
        let entry = Entry::new(at, order, slot);
        if std::mem::take(&mut self.hole) {
            self.sift_down(0, entry);
        } else {
            self.heap.push(entry);
            self.sift_up(self.heap.len() - 1, entry);
        }
        let generation = self.slots[slot as usize].generation;
        EventId { slot, generation }
    }

    /// Puts an event off to time `at`, or brings it forward: as if it were cancelled and scheduled
    /// again, except that it keeps its id. False if it had fired or was cancelled.
    pub fn reschedule(&mut self, id: EventId, at: Nanos) -> bool {
        let order = self.next_order();
        let Some(place) = self.place_of(id) else {
            return false;
        };
        self.settle(place, Entry::new(at, order, id.slot));
        true
    }

    /// Takes an event back. Returns it if it had neither fired nor been cancelled.
    pub fn cancel(&mut self, id: EventId) -> Option<E> {
        let place = self.place_of(id)?;
        let last = self.heap.pop()?;
        if place < self.heap.len() {
            self.settle(place, last);
        }
        self.release(id.slot)
    }

    /// The next event and its time.
    pub fn pop(&mut self) -> Option<(Nanos, E)> {
        self.pop_until(Nanos::MAX)
    }

    /// The next event and its time if that is not after `end`.
    pub fn pop_until(&mut self, end: Nanos) -> Option<(Nanos, E)> {
        self.fill_hole();
        let root = self.heap.first_mut()?;
        let (at, slot) = (root.at, root.slot());
        if at > end {
            return None;
        }
        *root = Entry { at: 0, tie: 0 };
        self.hole = true;
        self.release(slot).map(|event| (at, event))
    }

    /// The place of the entry of an event that is still to come.
    #[inline]
    fn place_of(&self, id: EventId) -> Option<usize> {
        let slot = self.slots.get(id.slot as usize)?;
        (slot.generation == id.generation).then_some(slot.place as usize)
    }

    fn take_slot(&mut self, event: E) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.events[slot as usize] = Some(event);
            return slot;
        }
        self.slots.push(Slot {
            generation: 0,
            place: 0,
        });
        self.events.push(Some(event));
        (self.slots.len() - 1) as u32
    }

    fn release(&mut self, slot: u32) -> Option<E> {
        let known = &mut self.slots[slot as usize];
        known.generation = known.generation.wrapping_add(1);
        self.free.push(slot);
        self.events[slot as usize].take()
    }

    /// Numbers events; after 2^32 of them those still to come are numbered anew.
    #[inline]
    fn next_order(&mut self) -> u32 {
        if self.order == u32::MAX {
            self.renumber();
        }
        self.order += 1;
        self.order
    }

    #[cold]
    fn renumber(&mut self) {
        self.fill_hole();
        self.heap.sort_unstable_by_key(Entry::key);
        self.order = self.heap.len() as u32;
        for place in 0..self.heap.len() {
            let Entry { at, .. } = self.heap[place];
            let slot = self.heap[place].slot();
            self.put(place, Entry::new(at, place as u32, slot));
        }
    }

    fn fill_hole(&mut self) {
        if std::mem::take(&mut self.hole)
            && let Some(last) = self.heap.pop()
            && !self.heap.is_empty()
        {
            self.sift_down(0, last);
        }
    }

    #[inline]
    fn put(&mut self, place: usize, entry: Entry) {
        self.heap[place] = entry;
        self.slots[entry.slot() as usize].place = place as u32;
    }

    /// Brings `entry` from `place`, which is free for it, to where it belongs.
    fn settle(&mut self, place: usize, entry: Entry) {
        let parent = place.wrapping_sub(1) / ARITY;
        if place > 0 && entry.key() < self.heap[parent].key() {
            self.sift_up(place, entry);
        } else {
            self.sift_down(place, entry);
        }
    }

    fn sift_up(&mut self, mut place: usize, entry: Entry) {
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.heap[parent].key() <= entry.key() {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, entry);
    }

    fn sift_down(&mut self, mut place: usize, entry: Entry) {
        while let Some((child, least)) = self.least_child(place) {
            if entry.key() <= least.key() {
                break;
            }
            self.put(place, least);
            place = child;
        }
        self.put(place, entry);
    }

    #[inline]
    fn least_child(&self, place: usize) -> Option<(usize, Entry)> {
        let first = place * ARITY + 1;
        let lesser =
            |a: (usize, Entry), b: (usize, Entry)| if b.1.key() < a.1.key() { b } else { a };
        let children = self.heap.get(first..)?;
        if let Some(&[a, b, c, d]) = children.first_chunk() {
            let left = lesser((first, a), (first + 1, b));
            return Some(lesser(left, lesser((first + 2, c), (first + 3, d))));
        }
        (first..).zip(children.iter().copied()).reduce(lesser)
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

    #[test]
    fn an_event_put_off_goes_behind_its_equals() {
        let mut queue = EventQueue::default();
        let first = queue.schedule(1, "first");
        queue.schedule(5, "second");
        assert!(queue.reschedule(first, 5));
        assert_eq!(queue.pop(), Some((5, "second")));
        assert_eq!(queue.pop(), Some((5, "first")));
        assert!(!queue.reschedule(first, 9), "it has fired");
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn nothing_comes_out_before_its_time() {
        let mut queue = EventQueue::default();
        queue.schedule(7, ());
        assert_eq!(queue.pop_until(6), None);
        assert_eq!(queue.len(), 1);
        assert_eq!(queue.pop_until(7), Some((7, ())));
    }

    #[derive(Clone, Debug)]
    enum Act {
        Schedule(u64),
        Cancel(usize),
        Reschedule(usize, u64),
        Pop,
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            4 => (0u64..50).prop_map(Act::Schedule),
            1 => any::<usize>().prop_map(Act::Cancel),
            2 => (any::<usize>(), 0u64..50).prop_map(|(which, at)| Act::Reschedule(which, at)),
            2 => Just(Act::Pop),
        ];
        prop::collection::vec(act, 1..400)
    }

    proptest! {
        /// Compared with a sorted list: nothing lost, nothing twice, equals in order; also if
        /// events are numbered anew in between.
        #[test]
        fn behaves_like_a_sorted_list(acts in acts(), from in 0u32..600) {
            let mut queue = EventQueue {
                order: u32::MAX - from,
                ..EventQueue::default()
            };
            let mut model: Vec<(u64, usize, EventId, usize)> = Vec::new();
            for (n, act) in acts.into_iter().chain(vec![Act::Pop; 400]).enumerate() {
                match act {
                    Act::Schedule(at) => model.push((at, n, queue.schedule(at, n), n)),
                    Act::Cancel(which) if !model.is_empty() => {
                        let (_, _, id, event) = model.remove(which % model.len());
                        prop_assert_eq!(queue.cancel(id), Some(event));
                        prop_assert_eq!(queue.cancel(id), None);
                    }
                    Act::Reschedule(which, at) if !model.is_empty() => {
                        let which = which % model.len();
                        let (_, _, id, event) = model[which];
                        prop_assert!(queue.reschedule(id, at));
                        model[which] = (at, n, id, event);
                    }
                    Act::Cancel(_) | Act::Reschedule(..) => {}
                    Act::Pop => {
                        let next = model.iter().min_by_key(|(at, n, ..)| (*at, *n)).copied();
                        prop_assert_eq!(queue.pop(), next.map(|(at, _, _, event)| (at, event)));
                        model.retain(|(_, n, ..)| Some(*n) != next.map(|(_, n, ..)| n));
                    }
                }
                prop_assert_eq!(queue.len(), model.len());
            }
            prop_assert_eq!(queue.len(), 0);
        }
    }
}
