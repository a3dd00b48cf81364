// SPDX-License-Identifier: GPL-2.0-only
//! How threads' reads and writes become requests, and how their completions come back. What is
//! modelled and what is not: see [`super::block`].

use super::block::{Block, Call, PAGE, Served, Slot, Window};
use super::interrupts::Interrupt;
use super::tell::DISK;
use super::tell_disk::Trip;
use super::thread::Doing;
use super::vm::Vm;
use super::{BlockIrq, Timer};
use crate::host::{Host, Span};
use crate::workload::Access;
use corun_model::PcpuId;

/// The most bytes of a direct request.
pub(super) const PIECE: u64 = 1 << 20;

impl Vm {
    /// A thread reads, or goes on with a read after it was woken.
    pub(super) fn read(&mut self, host: &mut Host, vcpu: u32, thread: u32, access: Access) {
        match access.random {
            true => self.direct(host, vcpu, thread, access, false),
            false => self.read_on(host, vcpu, thread, access.bytes),
        }
    }

    /// A thread writes, or goes on with a write after it was woken.
    pub(super) fn write(&mut self, host: &mut Host, vcpu: u32, thread: u32, access: Access) {
        self.direct(host, vcpu, thread, access, true);
    }

    /// Goes on reading in the thread's file, through the page cache.
    fn read_on(&mut self, host: &mut Host, vcpu: u32, thread: u32, bytes: u64) {
        let Some(file) = self.file_of(thread) else {
            return;
        };
        self.begin(host, file, bytes);
        loop {
            // The next window is requested as soon as this one is touched: two of them are there or
            // under way.
            while self.windows_ahead(file) < 2 {
                self.read_ahead(host, vcpu, file);
            }
            match self.consume(file) {
                Reached::End => break,
                Reached::Window => {}
                Reached::Missing(request) => {
                    self.await_request(file, request);
                    self.tell_begin(host, thread, Span::IoWait, DISK);
                    return self.block(host, vcpu, thread, Doing::Off);
                }
            }
        }
        let copying = bytes.saturating_mul(self.params.copy_kib) / 1024;
        self.vcpus[vcpu as usize].overhead += self.params.cached_read + copying;
        self.end_call(host, thread, file, bytes);
    }

    /// O_DIRECT: issues everything, waits for everything.
    fn direct(&mut self, host: &mut Host, vcpu: u32, thread: u32, access: Access, write: bool) {
        let Some(file) = self.file_of(thread) else {
            return;
        };
        if !self.begin(host, file, access.bytes) {
            return self.end_call(host, thread, file, access.bytes);
        }
        let mut left = access.bytes;
        let mut place = self.random_place(thread, access);
        while left > 0 {
            let (start, room) = match place {
                Some(start) => (start, left),
                None => self.next_on_disk(file),
            };
            let bytes = left.min(PIECE).min(room);
            let request = self.issue(host, vcpu, file, start, bytes, write);
            self.await_request(file, request);
            left -= bytes;
            place = place.map(|start| start + bytes);
            if place.is_none()
                && let Some(block) = &mut self.block
            {
                block.files[file as usize].at += bytes;
            }
        }
        self.tell_begin(host, thread, Span::IoWait, DISK);
        self.block(host, vcpu, thread, Doing::Off);
    }

    pub(super) fn file_of(&self, thread: u32) -> Option<u32> {
        let file = self.block.as_ref().and_then(|block| block.file_of(thread));
        debug_assert!(file.is_some(), "thread {thread} accesses a disk it has not");
        file
    }

    /// Does the call begin now, rather than go on?
    pub(super) fn begin(&mut self, host: &Host, file: u32, bytes: u64) -> bool {
        let Some(block) = &mut self.block else {
            return false;
        };
        let file = &mut block.files[file as usize];
        let begins = file.call.is_none();
        if begins {
            file.call = Some(Call::new(host.now(), file.at + bytes));
        }
        begins
    }

    pub(super) fn end_call(&mut self, host: &Host, thread: u32, file: u32, bytes: u64) {
        self.threads[thread as usize].code.done();
        if let Some(block) = &mut self.block {
            block.finish(host.now(), file, bytes);
        }
    }

    /// Where a random access begins; `None` for a sequential one.
    fn random_place(&mut self, thread: u32, access: Access) -> Option<u64> {
        let image = self.block.as_ref()?.image;
        let pages = image.size.saturating_sub(access.bytes) / PAGE;
        let rng = &mut self.threads[thread as usize].rng;
        access
            .random
            .then(|| image.base + PAGE * rng.between(0, pages))
    }

    /// Where the next access to a file goes: the byte on the disk, and how many follow before the
    /// file starts again.
    fn next_on_disk(&self, file: u32) -> (u64, u64) {
        let file = self.block.as_ref().map(|block| &block.files[file as usize]);
        file.map_or((0, 1), |file| file.on_disk(file.at))
    }

    /// Windows beyond the thread's place.
    fn windows_ahead(&mut self, file: u32) -> usize {
        let Some(block) = &mut self.block else {
            return usize::MAX;
        };
        let file = &mut block.files[file as usize];
        while file
            .ahead
            .front()
            .is_some_and(|window| window.end <= file.at)
        {
            file.ahead.pop_front();
        }
        file.ahead.len()
    }

    /// Requests the next window.
    fn read_ahead(&mut self, host: &mut Host, vcpu: u32, file: u32) {
        let Some(block) = &self.block else { return };
        let state = &block.files[file as usize];
        let from = state.ahead.back().map_or(state.at, |window| window.end);
        let (start, room) = state.on_disk(from);
        let bytes = self.params.read_ahead.min(room);
        let request = self.issue(host, vcpu, file, start, bytes, false);
        if let Some(block) = &mut self.block {
            block.files[file as usize].ahead.push_back(Window {
                end: from + bytes,
                request: Some(request),
            });
        }
    }

    /// Moves on over data that are there.
    fn consume(&mut self, file: u32) -> Reached {
        let Some(block) = &mut self.block else {
            return Reached::End;
        };
        let file = &mut block.files[file as usize];
        let end = file.call.map_or(file.at, |call| call.end);
        if file.at >= end {
            return Reached::End;
        }
        match file.ahead.front() {
            Some(Window {
                request: Some(request),
                ..
            }) => Reached::Missing(*request),
            Some(window) => {
                file.at = window.end.min(end);
                Reached::Window
            }
            None => Reached::Window,
        }
    }

    /// Issues a request: it leaves when the vCPU has done its kernel work up to the kick.
    pub(super) fn issue(
        &mut self,
        host: &mut Host,
        vcpu: u32,
        file: u32,
        start: u64,
        bytes: u64,
        write: bool,
    ) -> u32 {
        let irq = match self.params.block_irq {
            BlockIrq::Issuer => vcpu,
            BlockIrq::Vcpu0 | BlockIrq::Reserved => 0,
        };
        let thread = self.block.as_ref().map(|it| it.files[file as usize].thread);
        if let Some(thread) = thread {
            self.probe(host, vcpu, thread, true);
        }
        let slot = &mut self.vcpus[vcpu as usize];
        let since = host.now() + slot.overhead;
        slot.overhead += self.params.block_submit;
        slot.io_events += 1;
        let Some(block) = &mut self.block else {
            return 0;
        };
        if block.image.served == Served::ByVcpu {
            slot.overhead += block.image.submit;
        }
        let kick = host.now() + slot.overhead;
        let request = block.add(Slot {
            file,
            start,
            bytes,
            write,
            vcpu: irq,
            by: vcpu,
            since,
            awaited: false,
            posted: false,
        });
        let trip = Trip {
            vm: self.id,
            request,
        };
        trip.issued(host, write, block.under_way());
        let passing = match block.image.served {
            Served::Passing => block.image.submit,
            Served::Emulated | Served::ByVcpu => 0,
        };
        let at = kick + passing;
        host.load_timer(at, Timer::BlockSubmit.token(self.id, request));
        request
    }

    /// The thread's call waits for a request.
    pub(super) fn await_request(&mut self, file: u32, request: u32) {
        let Some(block) = &mut self.block else { return };
        let slot = &mut block.requests[request as usize];
        slot.awaited = true;
        if let Some(call) = &mut block.files[file as usize].call {
            call.waited = true;
            if slot.posted {
                call.untold += 1;
                call.delivery = Some(slot.vcpu);
            } else {
                call.under_way += 1;
            }
        }
    }

    /// The host is done with a request and posts its interrupt, from the pCPU `from`.
    pub(super) fn completion(&mut self, host: &mut Host, request: u32, from: Option<PcpuId>) {
        let Some(block) = &mut self.block else { return };
        let slot = &mut block.requests[request as usize];
        slot.posted = true;
        let vcpu = slot.vcpu;
        if slot.awaited
            && let Some(call) = &mut block.files[slot.file as usize].call
        {
            call.under_way -= 1;
            call.untold += 1;
            call.delivery = (call.under_way == 0).then_some(vcpu);
        }
        self.post(host, vcpu, Interrupt::Block(request), from);
    }

    /// The interrupt of a request, taken by the running `vcpu`.
    pub(super) fn request_done(&mut self, host: &mut Host, vcpu: u32, request: u32) {
        let Some(block) = &mut self.block else { return };
        block.count(host.now(), request);
        let (of, write) = (block.of(request), block.requests[request as usize].write);
        let waiting = block.told(request);
        let trip = Trip {
            vm: self.id,
            request,
        };
        trip.taken(host, write, block.under_way());
        self.probe(host, vcpu, of, false);
        if let Some(thread) = waiting {
            self.tell_end(host, thread, Span::IoWait, DISK);
            self.wake(host, thread, vcpu);
        }
    }
}

/// How far a read got over the windows that are there.
enum Reached {
    /// The end of the call.
    End,
    /// The end of a window.
    Window,
    /// Data that this request brings.
    Missing(u32),
}

impl Block {
    /// The guest learns that a request is done; returns the thread that waited for it and for no
    /// other.
    fn told(&mut self, request: u32) -> Option<u32> {
        let slot = self.requests[request as usize];
        self.free.push(request);
        let file = &mut self.files[slot.file as usize];
        for window in &mut file.ahead {
            window.request = window.request.filter(|other| *other != request);
        }
        let call = file.call.as_mut().filter(|_| slot.awaited)?;
        call.untold -= 1;
        if call.under_way + call.untold > 0 {
            return None;
        }
        call.delivery = None;
        Some(file.thread)
    }
}
