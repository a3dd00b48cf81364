// SPDX-License-Identifier: GPL-2.0-only
//! The host's disks as the guests use them: which VM has which image where, and the timers between
//! disks and VMs.

use super::block::{Image, Served};
use super::tell_disk::Trip;
use super::{DiskUse, GuestError, MOST, Timer, VmSpec};
use crate::device::disk::{Disk, DiskParams, Request, Share, Want};
use crate::host::Host;
use crate::load::DeviceOutcome;
use crate::rng::Rng;
use corun_model::Nanos;
use corun_model::guests::SMALLEST_IMAGE;

/// A disk of the host.
#[derive(Clone, Debug)]
pub struct DiskSpec {
    /// Its name.
    pub name: String,
    /// What it is like.
    pub params: DiskParams,
}

/// A disk in the run.
#[derive(Debug)]
struct Slot {
    spec: DiskSpec,
    disk: Disk,
    /// The VMs that share it, in the order of their images.
    vms: Vec<u32>,
}

/// All disks.
#[derive(Debug)]
pub(super) struct Disks {
    slots: Vec<Slot>,
    /// Per VM.
    images: Vec<Option<Image>>,
    wants: Vec<Want>,
}

impl Disks {
    pub fn new(specs: &[DiskSpec], vms: &[VmSpec], seed: u64) -> Result<Self, GuestError> {
        if specs.len() > MOST {
            let message = format!("more than {MOST} disks");
            return Err(GuestError::new("the host", message));
        }
        let mut disks = Self {
            slots: Vec::new(),
            images: vec![None; vms.len()],
            wants: Vec::new(),
        };
        for (index, spec) in specs.iter().enumerate() {
            let slot = disks.slot(index, spec, vms, seed)?;
            disks.slots.push(slot);
        }
        let beyond = |vm: &&VmSpec| vm.disk.is_some_and(|at| at.disk >= specs.len());
        if let Some(vm) = vms.iter().find(beyond) {
            let message = format!("its disk is none of the host's {}", specs.len());
            return Err(GuestError::new(format!("VM {}", vm.name), message));
        }
        Ok(disks)
    }

    /// A disk with the images of its VMs, one behind another.
    fn slot(
        &mut self,
        index: usize,
        spec: &DiskSpec,
        vms: &[VmSpec],
        seed: u64,
    ) -> Result<Slot, GuestError> {
        let (mut shares, mut owners, mut base) = (Vec::<Share>::new(), Vec::new(), 0u64);
        for (vm, at) in vms.iter().enumerate() {
            let Some(at) = at.disk.filter(|at| at.disk == index) else {
                continue;
            };
            self.images[vm] = Some(Image {
                disk: index as u32,
                owner: owners.len() as u32,
                base,
                size: at.size,
                submit: spec.params.submit,
                complete: spec.params.complete,
                served: served(&vms[vm]),
            });
            base = check_use(&vms[vm].name, &at, base, spec)?;
            shares.push(at.share);
            owners.push(vm as u32);
        }
        let rng = Rng::of(seed, "disk", index as u64);
        let cached = Rng::of(seed, "page cache", index as u64);
        Ok(Slot {
            disk: Disk::new(&spec.params, &shares, rng, cached),
            spec: spec.clone(),
            vms: owners,
        })
    }

    /// The image of a VM, if it has one.
    pub fn image(&self, vm: u32) -> Option<Image> {
        self.images[vm as usize]
    }

    /// What the disk of a VM is called.
    pub fn name_for(&self, vm: u32) -> Option<&str> {
        let image = self.image(vm)?;
        Some(&self.slots.get(image.disk as usize)?.spec.name)
    }

    /// A VM's request reaches its disk.
    pub fn submit(&mut self, host: &mut Host, (disk, request): (u32, Request)) {
        let slot = &mut self.slots[disk as usize];
        slot.disk.submit(host.now(), request, &mut self.wants);
        self.set_timers(host, disk);
    }

    /// The medium of a disk is done with the request at `place`.
    pub fn done(&mut self, host: &mut Host, disk: usize, place: u32) {
        let slot = &mut self.slots[disk];
        if let Some(request) = slot.disk.done(host.now(), place, &mut self.wants) {
            self.trip(disk, &request).done(host);
            self.deliver(host, disk, &request, host.now());
        }
        self.set_timers(host, disk as u32);
    }

    /// A VM's request has been answered; the VM learns of it a little later.
    fn deliver(&self, host: &mut Host, disk: usize, request: &Request, at: Nanos) {
        let slot = &self.slots[disk];
        let vm = slot.vms[request.owner as usize];
        let passing = match self.images[vm as usize] {
            Some(image) if image.served != Served::Passing => 0,
            _ => slot.spec.params.complete,
        };
        host.load_timer(at + passing, Timer::BlockDone.token(vm, request.id));
    }

    fn trip(&self, disk: usize, request: &Request) -> Trip {
        Trip {
            vm: self.slots[disk].vms[request.owner as usize],
            request: request.id,
        }
    }

    /// A disk asked to be looked at now.
    pub fn look(&mut self, host: &mut Host, disk: usize) {
        let slot = &mut self.slots[disk];
        slot.disk.look(host.now(), &mut self.wants);
        self.set_timers(host, disk as u32);
    }

    fn set_timers(&mut self, host: &mut Host, disk: u32) {
        let mut wants = std::mem::take(&mut self.wants);
        for want in wants.drain(..) {
            match want {
                Want::Answered { request, at } => {
                    self.trip(disk as usize, &request).answered(host);
                    self.deliver(host, disk as usize, &request, at);
                }
                Want::Done { place, at } => {
                    if let Some(request) = self.slots[disk as usize].disk.served_at(place) {
                        self.trip(disk as usize, request).served(host);
                    }
                    host.load_timer(at, Timer::DiskDone.token(disk, place));
                }
                Want::Look { at } => {
                    host.load_timer(at, Timer::DiskLook.token(disk, 0));
                }
            }
        }
        self.wants = wants;
    }

    /// Books what the disks do up to now.
    pub fn settle(&mut self, now: Nanos) {
        self.slots.iter_mut().for_each(|slot| slot.disk.settle(now));
    }

    /// Accounts start again.
    pub fn reset(&mut self, now: Nanos) {
        self.slots.iter_mut().for_each(|slot| slot.disk.reset(now));
    }

    pub fn outcomes(&self) -> Vec<DeviceOutcome> {
        let outcome = |slot: &Slot| DeviceOutcome {
            name: slot.spec.name.clone(),
            totals: slot.disk.totals(),
        };
        self.slots.iter().map(outcome).collect()
    }
}

fn served(vm: &VmSpec) -> Served {
    match vm.emulator.map(|emulator| emulator.ioeventfd) {
        None => Served::Passing,
        Some(true) => Served::Emulated,
        Some(false) => Served::ByVcpu,
    }
}

/// Returns where the next image may begin.
fn check_use(vm: &str, at: &DiskUse, base: u64, disk: &DiskSpec) -> Result<u64, GuestError> {
    let error = |message: String| Err(GuestError::new(format!("VM {vm}"), message));
    if !(1..=10_000).contains(&at.share.weight) {
        let weight = at.share.weight;
        return error(format!("I/O weight is {weight}; accepted: 1 to 10000"));
    }
    if at.share.quota == Some(0) {
        return error("I/O quota is 0; accepted: at least 1 byte/s".into());
    }
    let of_size = |error: GuestError| error.about("disk_size");
    if at.size < SMALLEST_IMAGE {
        let message = format!("its image has {} bytes; accepted: at least 1 MiB", at.size);
        return error(message).map_err(of_size);
    }
    let capacity = disk.params.capacity();
    match base.checked_add(at.size).filter(|end| *end <= capacity) {
        Some(end) => Ok(end),
        None => error(format!(
            "its image of {} bytes does not fit on disk {} of {capacity} bytes, of which other \
             VMs' images take {base}",
            at.size, disk.name
        ))
        .map_err(of_size),
    }
}
