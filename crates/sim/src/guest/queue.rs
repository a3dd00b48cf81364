// SPDX-License-Identifier: GPL-2.0-only
//! Bounded queues between threads: pipes, sockets, work lists.
//!
//! Each item put in wakes one receiver, each item taken out one sender; a woken thread tries again when it runs and
//! waits again if another one was faster. For a Unix socket, though, Linux wakes senders only when no more than a
//! quarter of its buffer is still in use, and then all that wait (`unix_writable()`, `unix_write_space()` and
//! `sock_wait_for_wmem()`): so programs may say for a queue how much is to be left. A sender that was woken for each
//! item would go first after each, with a switch per message.

use super::thread::Doing;
use super::vm::Vm;
use crate::host::{Host, Span};
use std::collections::VecDeque;

/// A queue in the run.
#[derive(Debug)]
pub(super) struct Queue {
    places: u32,
    /// How many items are left when senders are woken; `None`: one sender is woken with each item
    /// taken.
    writable: Option<u32>,
    items: u32,
    senders: VecDeque<u32>,
    receivers: VecDeque<u32>,
}

impl Queue {
    pub fn new((places, writable): (u32, Option<u32>)) -> Self {
        Self {
            places,
            writable,
            items: 0,
            senders: VecDeque::new(),
            receivers: VecDeque::new(),
        }
    }

    /// The senders to wake now that an item was taken.
    fn writers(&mut self) -> VecDeque<u32> {
        match self.writable {
            None => self.senders.pop_front().into_iter().collect(),
            Some(left) if self.items <= left => std::mem::take(&mut self.senders),
            Some(_) => VecDeque::new(),
        }
    }
}

impl Vm {
    /// A thread tries to put an item in.
    pub(super) fn send(&mut self, host: &mut Host, vcpu: u32, thread: u32, queue: u32) {
        let slot = &mut self.queues[queue as usize];
        if slot.items == slot.places {
            slot.senders.push_back(thread);
            self.tell_begin(host, thread, Span::SendWait, queue);
            return self.block(host, vcpu, thread, Doing::Off);
        }
        slot.items += 1;
        self.threads[thread as usize].code.done();
        let receiver = slot.receivers.pop_front();
        self.tell_end(host, thread, Span::SendWait, queue);
        if let Some(receiver) = receiver {
            self.wake_sync(host, receiver, vcpu);
        }
    }

    /// A thread tries to take an item out.
    pub(super) fn receive(&mut self, host: &mut Host, vcpu: u32, thread: u32, queue: u32) {
        let slot = &mut self.queues[queue as usize];
        if slot.items == 0 {
            slot.receivers.push_back(thread);
            self.tell_begin(host, thread, Span::ReceiveWait, queue);
            return self.block(host, vcpu, thread, Doing::Off);
        }
        slot.items -= 1;
        self.threads[thread as usize].code.done();
        let senders = slot.writers();
        self.tell_end(host, thread, Span::ReceiveWait, queue);
        for sender in senders {
            self.wake_sync(host, sender, vcpu);
        }
    }
}
