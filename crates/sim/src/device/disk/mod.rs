// SPDX-License-Identifier: GPL-2.0-only
//! Disks: what stands between a VM's request and its data.
//!
//! A request passes the VM's quota ([`bandwidth`]), the host's page cache if there is one
//! ([`page_cache`]), the host's I/O scheduler ([`elevator`]) and the medium ([`ssd`], [`hdd`]).
//! Problem: an I/O scheduler that waits for a VM's next request waits in vain when that VM's vCPU is descheduled, and
//! what it then switches to lies elsewhere on the disk (vMigrater, USENIX ATC 2018, §2.2 and §2.3).
//!
//! Left out: what the host's page cache holds (by default it answers nothing: QEMU's `cache=none`),
//! merging of requests, native command queueing of hard disks (the I/O scheduler sorts), write caches,
//! flushes and garbage collection.

mod bandwidth;
pub mod elevator;
mod hdd;
mod page_cache;
mod params;
mod promised;
mod ssd;
#[cfg(test)]
mod tests;

pub use elevator::{AnticipatoryParams, DeadlineParams, SchedulerParams};
pub use hdd::HddParams;
pub use params::{DiskParams, MediumParams, parameters};
pub use ssd::SsdParams;

use crate::rng::Rng;
use bandwidth::Quota;
use corun_model::Nanos;
use elevator::{Elevator, Next};
use hdd::Hdd;
use page_cache::PageCache;
use ssd::Ssd;
use std::collections::VecDeque;

/// A VM's share of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Weight against the disk's other VMs, 1–10000, 100 is neutral (cgroup `io.weight`). Only the
    /// anticipatory scheduler heeds it.
    pub weight: u32,
    /// The most bytes per second, if there is a limit.
    pub quota: Option<u64>,
}

/// A request to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which of the disk's VMs made it.
    pub owner: u32,
    /// The VM's number for it.
    pub id: u32,
    /// First byte on the disk.
    pub start: u64,
    /// Length in bytes, at least 1.
    pub bytes: u64,
    /// Does it write?
    pub write: bool,
    /// When it came to the disk.
    pub arrived: Nanos,
}

impl Request {
    /// The byte after its last.
    pub fn end(&self) -> u64 {
        self.start + self.bytes
    }
}

/// What a disk wants its owner to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Call [`Disk::done`].
    Done {
        /// With this place.
        place: u32,
        /// At this time.
        at: Nanos,
    },
    /// Tell the VM at this time that the page cache has answered.
    Answered {
        /// This request.
        request: Request,
        /// At this time.
        at: Nanos,
    },
    /// Call [`Disk::look`].
    Look {
        /// At this time.
        at: Nanos,
    },
}

/// What a disk did since the last reset; times in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests finished.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Time with at least one request in the medium.
    pub busy: Nanos,
    /// Time in which the medium was free but requests waited because the I/O scheduler waited for
    /// another VM's.
    pub held: Nanos,
    /// Requests to a hard disk that did not continue the last one.
    pub seeks: u64,
}

/// What stores the data.
#[derive(Debug)]
enum Medium {
    Ssd(Ssd),
    Hdd(Hdd),
}

/// A disk in the run.
#[derive(Debug)]
pub struct Disk {
    medium: Medium,
    elevator: Box<dyn Elevator>,
    cache: PageCache,
    quotas: Vec<Option<Quota>>,
    /// Requests that their VM's quota holds back, per VM.
    throttled: Vec<VecDeque<Request>>,
    /// Requests in the medium.
    places: Vec<Option<Request>>,
    in_medium: u32,
    totals: Totals,
    /// When the medium last became busy or free; since when requests have been held back.
    since: Nanos,
    held_since: Option<Nanos>,
    /// The next look that was asked for, if it has not come yet.
    look_at: Option<Nanos>,
}

impl Disk {
    /// A disk that these VMs share. `rng` is the stream of its rotation, `cached` that of the host's
    /// page cache.
    pub fn new(params: &DiskParams, shares: &[Share], rng: Rng, cached: Rng) -> Self {
        let (medium, depth) = match &params.medium {
            MediumParams::Ssd(ssd) => (Medium::Ssd(Ssd::new(*ssd)), ssd.queue_depth),
            MediumParams::Hdd(hdd) => (Medium::Hdd(Hdd::new(*hdd, rng)), 1),
        };
        let quota = |share: &Share| share.quota.map(Quota::new);
        Self {
            elevator: elevator::new(&params.scheduler, shares, matches!(medium, Medium::Ssd(_))),
            medium,
            cache: PageCache::new(params.page_cache, cached),
            quotas: shares.iter().map(quota).collect(),
            throttled: shares.iter().map(|_| VecDeque::new()).collect(),
            places: vec![None; depth as usize],
            in_medium: 0,
            totals: Totals::default(),
            since: 0,
            held_since: None,
            look_at: None,
        }
    }

    /// A request arrives.
    pub fn submit(&mut self, now: Nanos, mut request: Request, wants: &mut Vec<Want>) {
        request.arrived = now;
        self.throttled[request.owner as usize].push_back(request);
        self.go_on(now, wants);
    }

    /// The medium is done with the request at `place`; returns it.
    pub fn done(&mut self, now: Nanos, place: u32, wants: &mut Vec<Want>) -> Option<Request> {
        let request = self.places[place as usize].take()?;
        self.settle(now);
        self.in_medium -= 1;
        self.totals.requests += 1;
        self.totals.bytes += request.bytes;
        self.elevator.done(now, &request);
        self.go_on(now, wants);
        Some(request)
    }

    /// A time that was asked for has come.
    pub fn look(&mut self, now: Nanos, wants: &mut Vec<Want>) {
        self.look_at = self.look_at.filter(|at| *at > now);
        self.go_on(now, wants);
    }

    /// What it did since the last reset.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Books what goes on up to now.
    pub fn settle(&mut self, now: Nanos) {
        if self.in_medium > 0 {
            self.totals.busy += now - self.since;
        }
        self.since = now;
        if let Some(since) = &mut self.held_since {
            self.totals.held += now - *since;
            *since = now;
        }
    }

    /// Accounts start again.
    pub fn reset(&mut self, now: Nanos) {
        self.settle(now);
        self.totals = Totals::default();
    }

    /// The request that the medium has at `place`.
    pub fn served_at(&self, place: u32) -> Option<&Request> {
        self.places.get(place as usize)?.as_ref()
    }

    /// Moves every request on that can move.
    fn go_on(&mut self, now: Nanos, wants: &mut Vec<Want>) {
        self.settle(now);
        self.held_since = None;
        let mut look = self.pass_quotas(now, wants);
        while let Some(place) = self.places.iter().position(Option::is_none) {
            match self.elevator.next(now) {
                Next::Serve(request) => self.serve(now, place, request, wants),
                Next::Hold(until) => {
                    self.held_since = (self.in_medium == 0).then_some(now);
                    look = [look, until].into_iter().flatten().min();
                    break;
                }
                Next::Empty => break,
            }
        }
        let earlier = |at: &Nanos| self.look_at.is_none_or(|other| *at < other);
        if let Some(at) = look.filter(earlier) {
            self.look_at = Some(at);
            wants.push(Want::Look { at });
        }
    }

    /// Answers from memory, or hands to the scheduler, what quotas allow; returns when they allow more.
    fn pass_quotas(&mut self, now: Nanos, wants: &mut Vec<Want>) -> Option<Nanos> {
        let mut next: Option<Nanos> = None;
        for (quota, waiting) in self.quotas.iter_mut().zip(&mut self.throttled) {
            while let Some(request) = waiting.front() {
                if let Some(quota) = quota
                    && let Err(at) = quota.take(now, request.bytes)
                {
                    next = Some(next.map_or(at, |other| other.min(at)));
                    break;
                }
                match self.cache.answers(request) {
                    // The page cache answers: the request does not reach the disk.
                    Some(takes) => {
                        let (request, at) = (*request, now + takes);
                        wants.push(Want::Answered { request, at });
                    }
                    None => self.elevator.add(now, *request),
                }
                waiting.pop_front();
            }
        }
        next
    }

    fn serve(&mut self, now: Nanos, place: usize, request: Request, wants: &mut Vec<Want>) {
        let at = match &mut self.medium {
            Medium::Ssd(ssd) => ssd.serve(now, &request),
            Medium::Hdd(hdd) => {
                let served = hdd.serve(now, &request);
                self.totals.seeks += u64::from(served.sought);
                served.done
            }
        };
        self.places[place] = Some(request);
        self.in_medium += 1;
        let place = place as u32;
        wants.push(Want::Done { place, at });
    }
}
