// SPDX-License-Identifier: GPL-2.0-only
//! Linux' CFQ (`block/cfq-iosched.c`): serves one VM at a time and waits for its next request.
//!
//! Problem: a task that reads one piece after another has nothing queued between two pieces. A
//! scheduler that then turns to another task seeks twice for each piece ("deceptive idleness", Iyer
//! and Druschel, SOSP 2001). So CFQ serves one queue for a slice, and when that queue is empty
//! waits up to `slice_idle` for its next request, if its think time has been short enough. The wait
//! is in vain when the next request cannot come because the vCPU that would make it is descheduled.
//!
//! The rules are Linux 4.4's (that of Ubuntu 16.04, on which vMigrater was measured), and are named
//! after CFQ's functions. Its clock counts ticks ([`params`]): a wait of two ticks ends with the second tick from now,
//! after one to two ticks' time. [`groups`] says whose turn it is.
//!
//! Each VM is a control group (as libvirt makes them) with one synchronous queue (QEMU's iothread
//! submits everything, with O_DIRECT). With one queue per group, CFQ's three meters of think time
//! (task, service tree, group) see the same requests and differ only in their window; the order of
//! queues within a group does not matter (`slice_resid`); and no queue preempts another, which CFQ
//! allows only within a group. Left out: asynchronous and idle classes (there is no write-back
//! on the host) and close cooperators (within a group, too).

mod groups;
mod params;
mod queue;
#[cfg(test)]
mod tests;

pub use params::AnticipatoryParams;

use super::{Elevator, Next, Request, Share};
use corun_model::Nanos;
use groups::Groups;
use params::Ticks;
use queue::Queue;

/// How far back the arm may go instead of up (`cfq_back_max`); distances back count twice
/// (`cfq_back_penalty`).
const BACK: u64 = 16 << 20;
/// The slice of a queue that is served, in ticks.
#[derive(Clone, Copy, Debug)]
struct Slice {
    start: u64,
    end: u64,
    /// Its length when it began: no more is charged.
    length: u64,
}

/// The queue that is served.
#[derive(Clone, Copy, Debug)]
struct Active {
    queue: usize,
    since: u64,
    /// From its first completion on.
    slice: Option<Slice>,
    /// Requests that the disk got from it.
    served: u64,
    /// Its next request is waited for until this tick.
    idle_until: Option<u64>,
    /// It is waited for only so that its group keeps its place: the next request ends the slice.
    waits_busy: bool,
    /// Whether its oldest request has expired was checked.
    looked: bool,
}

impl Active {
    fn used_up(&self, tick: u64) -> bool {
        self.slice.is_some_and(|slice| tick >= slice.end)
    }

    /// Ticks that are left of its slice.
    fn left(&self, tick: u64) -> u64 {
        self.slice.map_or(0, |slice| slice.end.saturating_sub(tick))
    }
}

/// What `cfq_select_queue` decides about the active queue.
enum Decision {
    Serve,
    /// Until this tick, or until something happens.
    Hold(Option<u64>),
    /// Its slice has been over since this tick.
    Expire(u64),
}

/// The scheduler in the run.
#[derive(Debug)]
pub(super) struct Anticipatory {
    ticks: Ticks,
    /// The disk has no arm but a command queue: queues are not waited for.
    solid: bool,
    queues: Vec<Queue>,
    groups: Groups,
    active: Option<Active>,
    /// Where the last request ended.
    head: u64,
}

impl Anticipatory {
    pub fn new(params: AnticipatoryParams, shares: &[Share], solid: bool) -> Self {
        Self {
            ticks: Ticks::of(&params),
            solid,
            queues: shares.iter().map(|_| Queue::new()).collect(),
            groups: Groups::new(shares.iter().map(|share| share.weight)),
            active: None,
            head: 0,
        }
    }

    /// `cfq_should_idle`: a queue with an idle window is waited for (unless the disk is solid), and
    /// so is the last one of its service tree, which the only queue of a group always is.
    fn should_idle(&self, queue: usize) -> bool {
        let (slot, window) = (&self.queues[queue], self.ticks.slice_idle);
        let windowed = slot.idle_window && !self.solid;
        window > 0 && (windowed || !slot.think.longer_than(window))
    }

    /// Is the group, whose think time has been short, worth waiting for while the disk works for it?
    fn group_idles(&self, queue: usize) -> bool {
        let window = self.ticks.group_idle;
        window > 0 && !self.queues[queue].group_think.longer_than(window)
    }

    /// `cfq_select_queue`, as far as it concerns the active queue.
    fn decide(&mut self, tick: u64, active: Active) -> Decision {
        let slot = &self.queues[active.queue];
        let (empty, in_disk) = (slot.waiting.is_empty(), slot.in_disk > 0);
        if active.waits_busy && !empty {
            return Decision::Expire(tick);
        }
        if active.used_up(tick) {
            let completes = empty && in_disk && self.should_idle(active.queue);
            if completes || (in_disk && self.group_idles(active.queue)) {
                return Decision::Hold(None);
            }
            return Decision::Expire(tick);
        }
        if !empty {
            return self.may_dispatch(tick, active);
        }
        if let Some(until) = active.idle_until {
            return Decision::Hold(Some(until));
        }
        let early = active
            .slice
            .is_none_or(|slice| slice.end - tick > tick - slice.start);
        let slot = &mut self.queues[active.queue];
        if slot.seeky() && slot.idle_window && early {
            // The disk is much faster than the queue delivers.
            (slot.deep, slot.idle_window) = (false, false);
        }
        if in_disk && (self.should_idle(active.queue) || self.group_idles(active.queue)) {
            return Decision::Hold(None);
        }
        Decision::Expire(tick)
    }

    /// `cfq_may_dispatch`: how many requests of one queue the disk may have.
    fn may_dispatch(&self, tick: u64, active: Active) -> Decision {
        let in_disk = self.queues[active.queue].in_disk;
        let quantum = self.ticks.quantum;
        if self.groups.busy() < 2 || in_disk < (quantum / 2).max(1) {
            return Decision::Serve;
        }
        let soon = tick + self.ticks.slice_idle * u64::from(in_disk);
        let soon = active.slice.is_none_or(|slice| soon > slice.end);
        match soon || in_disk >= quantum {
            true => Decision::Hold(None),
            false => Decision::Serve,
        }
    }

    /// Ends the active queue's slice (`__cfq_slice_expired`, `cfq_cfqq_slice_usage`): the time from
    /// its first completion counts, so the seek to it does not.
    fn expire(&mut self, tick: u64, active: Active) {
        let time = match active.slice {
            Some(slice) if tick > slice.start => (tick - slice.start).min(slice.length),
            _ => tick.saturating_sub(active.since).max(1),
        };
        let by_requests = self.solid && self.ticks.slice_idle == 0;
        let charge = if by_requests { active.served } else { time };
        self.groups.served(active.queue, charge);
        if self.queues[active.queue].waiting.is_empty() {
            self.groups.leave(active.queue);
        }
        self.active = None;
    }

    /// The group whose turn it is.
    fn activate(&mut self, tick: u64) -> Option<Active> {
        Some(Active {
            queue: self.groups.first()?,
            since: tick,
            slice: None,
            served: 0,
            idle_until: None,
            waits_busy: false,
            looked: false,
        })
    }

    /// `cfq_choose_req`, after `cfq_check_fifo` at the start of a slice.
    fn choose(&mut self, now: Nanos, active: &mut Active) -> Option<Request> {
        let (head, slot) = (self.head, &mut self.queues[active.queue]);
        let oldest = slot.waiting.first()?;
        let first = !std::mem::replace(&mut active.looked, true);
        let age = self.ticks.at(now) - self.ticks.at(oldest.arrived);
        let at = if first && age >= self.ticks.expire {
            0
        } else {
            let cost = |request: &Request| match head.checked_sub(request.start) {
                None | Some(0) => (0, request.start - head),
                Some(back) if back <= BACK => (0, 2 * back),
                Some(_) => (1, request.start),
            };
            let places = 0..slot.waiting.len();
            places.min_by_key(|at| cost(&slot.waiting[*at]))?
        };
        slot.in_disk += 1;
        active.served += 1;
        let request = slot.waiting.remove(at);
        self.head = request.end();
        Some(request)
    }

    /// `cfq_scaled_cfqq_slice`: the slice of a queue, shortened if many groups are busy.
    fn slice(&self, queue: usize) -> u64 {
        let (slice, share) = (
            self.ticks.slice,
            self.groups.share_of(queue, self.ticks.target_latency),
        );
        slice.min(share).max(slice.min(2 * self.ticks.slice_idle))
    }

    /// `cfq_should_wait_busy`: a group about to end its slice with nothing queued is given a chance
    /// to keep its place.
    fn should_wait_busy(&self, tick: u64, active: &Active) -> bool {
        let slot = &self.queues[active.queue];
        let left = active.left(tick);
        slot.waiting.is_empty()
            && !slot.group_think.longer_than(self.ticks.group_idle)
            && (left <= 1 || (slot.think.valid() && left < slot.think.mean))
    }

    /// `cfq_arm_slice_timer`: for how long to wait for the active queue's next request, if at all.
    fn idle_for(&self, tick: u64, active: &Active) -> Option<u64> {
        let slot = &self.queues[active.queue];
        if self.solid || slot.in_disk > 0 {
            return None;
        }
        if slot.think.valid() && active.left(tick) < slot.think.mean {
            return None;
        }
        match self.should_idle(active.queue) {
            true => Some(self.ticks.slice_idle),
            // The only queue of its group is waited for whatever its think time.
            false => Some(self.ticks.group_idle).filter(|window| *window > 0),
        }
    }

    /// An idle window that passed unnoticed ended the slice at its end
    /// (`cfq_idle_slice_timer`).
    fn close_window(&mut self, tick: u64) {
        if let Some(active) = self.active
            && let Some(until) = active.idle_until.filter(|until| *until <= tick)
        {
            self.queues[active.queue].deep = false;
            self.expire(until, active);
        }
    }
}

impl Elevator for Anticipatory {
    fn add(&mut self, now: Nanos, request: Request) {
        let tick = self.ticks.at(now);
        self.close_window(tick);
        self.groups.arrive(request.owner as usize);
        self.queues[request.owner as usize].add(tick, request, &self.ticks, self.solid);
        if let Some(active) = &mut self.active
            && active.queue == request.owner as usize
        {
            active.idle_until = None;
        }
    }

    fn next(&mut self, now: Nanos) -> Next {
        let tick = self.ticks.at(now);
        self.close_window(tick);
        if self.queues.iter().all(|queue| queue.waiting.is_empty()) {
            return Next::Empty;
        }
        loop {
            let Some(mut active) = self.active.or_else(|| self.activate(tick)) else {
                return Next::Empty;
            };
            match self.decide(tick, active) {
                Decision::Hold(until) => {
                    return Next::Hold(until.map(|until| self.ticks.time(until)));
                }
                Decision::Expire(at) => self.expire(at, active),
                Decision::Serve => {
                    let request = self.choose(now, &mut active);
                    self.active = Some(active);
                    return request.map_or(Next::Empty, Next::Serve);
                }
            }
        }
    }

    fn done(&mut self, now: Nanos, request: &Request) {
        let (tick, queue) = (self.ticks.at(now), request.owner as usize);
        let slot = &mut self.queues[queue];
        slot.in_disk -= 1;
        slot.think.ended(tick);
        slot.group_think.ended(tick);
        let Some(mut active) = self.active.filter(|active| active.queue == queue) else {
            return;
        };
        if active.slice.is_none() {
            let length = self.slice(queue);
            active.slice = Some(Slice {
                start: tick,
                end: tick + length,
                length,
            });
        }
        if self.should_wait_busy(tick, &active) {
            let window = match self.ticks.slice_idle {
                0 => self.ticks.group_idle,
                window => window,
            };
            active.slice = active.slice.map(|slice| Slice {
                end: tick + window,
                ..slice
            });
            active.waits_busy = true;
        }
        self.active = Some(active);
        if active.used_up(tick) {
            self.expire(tick, active);
        } else if self.queues[queue].waiting.is_empty() {
            active.idle_until = self.idle_for(tick, &active).map(|window| tick + window);
            self.active = Some(active);
        }
    }
}
