// SPDX-License-Identifier: GPL-2.0-only
//! What a request to a disk tells the observer on its way: issued by a guest, served by the disk,
//! delivered to the guest.

use crate::host::{Counter, Host, Lane, Span};
use corun_model::VmId;

/// A VM has one disk.
const DEVICE: u32 = 0;

/// A request on its way: its VM and its number there, which no other request has meanwhile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trip {
    pub vm: u32,
    pub request: u32,
}

impl Trip {
    fn lane(self) -> Lane {
        Lane::Request {
            vm: VmId(self.vm),
            device: DEVICE,
            request: u64::from(self.request),
        }
    }

    /// A thread issues it; including it, so many of the VM's are under way.
    pub fn issued(self, host: &mut Host, write: bool, under_way: usize) {
        host.observe(|now, observer| {
            observer.span_begin(now, self.lane(), Span::Request, name(write));
            observer.span_begin(now, self.lane(), Span::Queued, "");
            observer.counter(now, in_flight(self.vm), under_way as u64);
        });
    }

    /// The drive has it.
    pub fn served(self, host: &mut Host) {
        host.observe(|now, observer| {
            observer.span_end(now, self.lane(), Span::Queued, "");
            observer.span_begin(now, self.lane(), Span::Device, "");
        });
    }

    /// The host's page cache has it: the drive is not asked.
    pub fn answered(self, host: &mut Host) {
        host.observe(|now, observer| {
            observer.span_end(now, self.lane(), Span::Queued, "");
            observer.span_begin(now, self.lane(), Span::Delivery, "");
        });
    }

    /// The drive is done with it.
    pub fn done(self, host: &mut Host) {
        host.observe(|now, observer| {
            observer.span_end(now, self.lane(), Span::Device, "");
            observer.span_begin(now, self.lane(), Span::Delivery, "");
        });
    }

    /// The guest knows; so many of the VM's are still under way.
    pub fn taken(self, host: &mut Host, write: bool, under_way: usize) {
        host.observe(|now, observer| {
            observer.span_end(now, self.lane(), Span::Delivery, "");
            observer.span_end(now, self.lane(), Span::Request, name(write));
            observer.counter(now, in_flight(self.vm), under_way as u64);
        });
    }
}

/// Tells what the disk of a VM is called.
pub(super) fn name_disk(host: &mut Host, vm: u32, name: &str) {
    host.observe(|_, observer| observer.device_name(VmId(vm), DEVICE, name));
}

fn name(write: bool) -> &'static str {
    if write { "write" } else { "read" }
}

fn in_flight(vm: u32) -> Counter {
    Counter::RequestsInFlight {
        vm: VmId(vm),
        device: DEVICE,
    }
}
