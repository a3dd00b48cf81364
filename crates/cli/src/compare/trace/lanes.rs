// SPDX-License-Identifier: GPL-2.0-only
//! Tracks of VMs, guest threads and devices.
//!
//! Requests to a device overlap, so each takes a row of the device's track while it is under way: the first free one.
//! There are as many rows as there were ever requests under way at the same time.

use corun_model::VmId;
use corun_report::timeline::{Look, NameId, Timeline, TrackId};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

/// Below the pCPUs, the host and the host tasks.
const FIRST_VM: u32 = 3;
// The order of a VM's tracks: vCPUs by their numbers, then these.
const SHARE: u32 = 1 << 20;
pub const LIMITS: u32 = (1 << 20) + 1;
const DEVICES: u32 = (1 << 20) + 2;
const THREADS: u32 = 1 << 24;

#[derive(Default)]
struct VmLanes {
    track: Option<TrackId>,
    share: Option<TrackId>,
    threads_track: Option<TrackId>,
    threads: BTreeMap<u32, Thread>,
    devices: BTreeMap<u32, Device>,
}

#[derive(Default)]
struct Thread {
    name: String,
    track: Option<TrackId>,
    /// The name of its slices on vCPUs' tracks.
    slice: Option<NameId>,
}

#[derive(Default)]
struct Device {
    name: String,
    rows: Vec<TrackId>,
    free: BTreeSet<u32>,
    /// The row of each request under way.
    under_way: BTreeMap<u64, u32>,
}

/// Tracks, by owner.
#[derive(Default)]
pub struct Lanes {
    vms: Vec<VmLanes>,
}

impl Lanes {
    fn vm(&mut self, vm: VmId) -> &mut VmLanes {
        if self.vms.len() <= vm.index() {
            self.vms.resize_with(vm.index() + 1, VmLanes::default);
        }
        &mut self.vms[vm.index()]
    }

    /// The group of a VM's tracks; `name` gives it its name if it is the first to ask.
    pub fn of_vm<W: Write>(
        &mut self,
        timeline: &mut Timeline<W>,
        vm: VmId,
        name: Option<&str>,
    ) -> TrackId {
        *self.vm(vm).track.get_or_insert_with(|| {
            let name = name.map_or_else(|| format!("VM {}", vm.0), |name| format!("VM {name}"));
            timeline.track(None, name, FIRST_VM.saturating_add(vm.0), Look::Plain)
        })
    }

    /// The counter of a VM's share.
    pub fn share<W: Write>(&mut self, timeline: &mut Timeline<W>, vm: VmId) -> TrackId {
        let parent = self.of_vm(timeline, vm, None);
        *self.vm(vm).share.get_or_insert_with(|| {
            let look = Look::Counter("% of a pCPU");
            timeline.track(Some(parent), "run share (10 ms)", SHARE, look)
        })
    }

    /// A guest thread's name.
    pub fn thread(&mut self, vm: VmId, thread: u32, name: &str) {
        self.vm(vm).threads.entry(thread).or_default().name = name.to_string();
    }

    /// A device's name.
    pub fn device(&mut self, vm: VmId, device: u32, name: &str) {
        self.vm(vm).devices.entry(device).or_default().name = name.to_string();
    }

    /// A guest thread's track.
    pub fn of_thread<W: Write>(
        &mut self,
        timeline: &mut Timeline<W>,
        vm: VmId,
        thread: u32,
    ) -> TrackId {
        let parent = self.of_vm(timeline, vm, None);
        let lanes = self.vm(vm);
        let parent = *lanes
            .threads_track
            .get_or_insert_with(|| timeline.track(Some(parent), "threads", THREADS, Look::Plain));
        let slot = lanes.threads.entry(thread).or_default();
        *slot.track.get_or_insert_with(|| {
            let name = thread_name(&slot.name, thread);
            timeline.track(Some(parent), name, thread, Look::Plain)
        })
    }

    /// The name of a guest thread's slices on its vCPU.
    pub fn thread_slice<W: Write>(
        &mut self,
        timeline: &mut Timeline<W>,
        vm: VmId,
        thread: u32,
    ) -> NameId {
        let slot = self.vm(vm).threads.entry(thread).or_default();
        let name = || timeline.name(&thread_name(&slot.name, thread));
        *slot.slice.get_or_insert_with(name)
    }

    /// The row of a request; a free one if it has none and `begins`.
    pub fn of_request<W: Write>(
        &mut self,
        timeline: &mut Timeline<W>,
        (vm, device, request): (VmId, u32, u64),
        begins: bool,
    ) -> Option<TrackId> {
        let parent = self.of_vm(timeline, vm, None);
        let slot = self.vm(vm).devices.entry(device).or_default();
        if let Some(row) = slot.under_way.get(&request) {
            return Some(slot.rows[*row as usize]);
        }
        if !begins {
            return None;
        }
        let row = slot.free.pop_first().unwrap_or_else(|| {
            let name = named(&slot.name, || format!("device {device}"));
            let rank = DEVICES.saturating_add(device);
            let track = timeline.track(Some(parent), name, rank, Look::Row);
            slot.rows.push(track);
            slot.rows.len() as u32 - 1
        });
        slot.under_way.insert(request, row);
        Some(slot.rows[row as usize])
    }

    /// A request is over; its row is free.
    pub fn request_over(&mut self, (vm, device, request): (VmId, u32, u64)) {
        let slot = self.vm(vm).devices.entry(device).or_default();
        if let Some(row) = slot.under_way.remove(&request) {
            slot.free.insert(row);
        }
    }

    /// A device's name, for other things about it.
    pub fn device_name(&mut self, vm: VmId, device: u32) -> String {
        let slot = self.vm(vm).devices.entry(device).or_default();
        named(&slot.name, || format!("device {device}"))
    }
}

fn thread_name(name: &str, thread: u32) -> String {
    named(name, || format!("thread {thread}"))
}

fn named(name: &str, other: impl FnOnce() -> String) -> String {
    if name.is_empty() {
        other()
    } else {
        name.to_string()
    }
}
