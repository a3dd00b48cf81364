// SPDX-License-Identifier: GPL-2.0-only
//! Linux' CFQ (`block/cfq-iosched.c`, 4.x): serves one VM at a time and waits for its next request.
//!
//! Problem: a task that reads one piece after another has nothing queued between two pieces. A
//! scheduler that then turns to another task seeks twice for each piece ("deceptive idleness", Iyer
//! and Druschel, SOSP 2001). So CFQ serves one queue for a slice, and when that queue is empty
//! waits up to `slice_idle` for it, if its think time has been short enough. The wait is in vain
//! when the next request cannot come because the vCPU that would make it is descheduled.
//!
//! Each VM is a control group (as libvirt makes them) with one synchronous queue (QEMU's iothread
//! submits everything, with O_DIRECT). With one queue per group, CFQ's three meters of think time
//! (task, service tree, group) see the same requests and differ in their window only. The rules
//! below are named after CFQ's functions. Left out: asynchronous and idle classes (there is no
//! write-back on the host), close cooperators, preemption at the end of a slice before the next
//! dispatch, and jiffy rounding.

use super::think::Think;
use super::{Elevator, Next, Request, Share};
use corun_model::Nanos;
use corun_model::time::MS;

/// Settings; the defaults are the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnticipatoryParams {
    /// How long to wait for the next request of a queue; 0: not at all. 8 ms.
    pub slice_idle: Nanos,
    /// How long to wait for the next request of a VM whose queue is not waited for; 0: not at all.
    /// 8 ms.
    pub group_idle: Nanos,
    /// How long one queue is served: 100 ms, `slice_sync`.
    pub slice: Nanos,
    /// Slices are shortened so that each VM is served within this time, but not below two idle
    /// windows. 300 ms: `target_latency`.
    pub target_latency: Nanos,
    /// A request that has waited so long goes first in its queue's slice. 125 ms:
    /// `fifo_expire_sync`.
    pub expire: Nanos,
    /// Requests of one VM that the disk has at once while other VMs wait, 1–1024. 8: `quantum`.
    pub quantum: u32,
}

impl Default for AnticipatoryParams {
    fn default() -> Self {
        Self {
            slice_idle: 8 * MS,
            group_idle: 8 * MS,
            slice: 100 * MS,
            target_latency: 300 * MS,
            expire: 125 * MS,
            quantum: 8,
        }
    }
}

/// A request this far from the last one counts as a seek on a hard disk: 800 sectors
/// (`CFQQ_SEEK_THR`).
const SEEK: u64 = 800 * 512;
/// On a solid-state disk a request shorter than this does: 64 sectors (`CFQQ_SECT_THR_NONROT`).
const SMALL: u64 = 64 * 512;
/// How far back the arm goes rather than up (`cfq_back_max`), counted twice (`cfq_back_penalty`).
const BACK: u64 = 16 << 20;
/// So many requests at once make a queue worth waiting for, even if it seeks (`cfqq_deep`).
const DEEP: usize = 4;
/// Disk time of a group of weight 100 is charged as it is.
const NEUTRAL: u128 = 100;

/// A VM's group and its one queue.
#[derive(Debug)]
struct Queue {
    weight: u32,
    /// In the order they came.
    waiting: Vec<Request>,
    /// In the disk.
    in_disk: u32,
    /// Disk time used, by weight: the group with the least goes next.
    used: u128,
    /// Backlogged, or being served.
    on_tree: bool,
    think: Think,
    group_think: Think,
    /// Which of the last 32 requests sought; the latest is bit 0.
    sought: u32,
    last_end: u64,
    idle_window: bool,
    deep: bool,
}

impl Queue {
    fn new(share: &Share) -> Self {
        Self {
            weight: share.weight.max(1),
            waiting: Vec::new(),
            in_disk: 0,
            used: 0,
            on_tree: false,
            think: Think::default(),
            group_think: Think::default(),
            sought: 0,
            last_end: 0,
            idle_window: true,
            deep: false,
        }
    }

    /// `CFQQ_SEEKY`.
    fn seeky(&self) -> bool {
        self.sought.count_ones() > 32 / 8
    }
}

/// The queue that is served.
#[derive(Clone, Copy, Debug)]
struct Active {
    queue: usize,
    since: Nanos,
    /// Start and end of its slice, from its first completion on.
    slice: Option<(Nanos, Nanos)>,
    /// Its next request is waited for until then.
    idle_until: Option<Nanos>,
    /// Only so that its group does not lose its place: the next request ends the slice.
    waits_busy: bool,
    /// Its oldest request was looked at.
    looked: bool,
}

impl Active {
    fn used_up(&self, now: Nanos) -> bool {
        self.slice.is_some_and(|(_, end)| now >= end)
    }
}

/// What `cfq_select_queue` decides about the active queue.
enum Decision {
    Serve,
    Hold(Option<Nanos>),
    /// Its slice is over, since then.
    Expire(Nanos),
}

/// The scheduler in the run.
#[derive(Debug)]
pub(super) struct Anticipatory {
    params: AnticipatoryParams,
    /// Without an arm and with a command queue: queues are not waited for.
    solid: bool,
    queues: Vec<Queue>,
    active: Option<Active>,
    /// Where the last request ended.
    head: u64,
    least_used: u128,
}

impl Anticipatory {
    pub fn new(params: AnticipatoryParams, shares: &[Share], solid: bool) -> Self {
        Self {
            params,
            solid,
            queues: shares.iter().map(Queue::new).collect(),
            active: None,
            head: 0,
            least_used: 0,
        }
    }

    /// `cfq_should_idle`: a queue with an idle window is waited for (unless the disk is solid), and
    /// so is the last one of its service tree, which the only queue of a group always is.
    fn should_idle(&self, queue: usize) -> bool {
        let (slot, window) = (&self.queues[queue], self.params.slice_idle);
        let windowed = slot.idle_window && !self.solid;
        window > 0 && (windowed || !slot.think.longer_than(window))
    }

    /// Is the whole group worth waiting for?
    fn group_idles(&self, queue: usize) -> bool {
        let window = self.params.group_idle;
        window > 0 && !self.queues[queue].group_think.longer_than(window)
    }

    /// `cfq_select_queue`, as far as it concerns the active queue.
    fn decide(&mut self, now: Nanos, active: Active) -> Decision {
        let slot = &self.queues[active.queue];
        let (empty, in_disk) = (slot.waiting.is_empty(), slot.in_disk > 0);
        if active.waits_busy && !empty {
            return Decision::Expire(now);
        }
        if active.used_up(now) {
            let completes = empty && in_disk && self.should_idle(active.queue);
            if completes || (in_disk && self.group_idles(active.queue)) {
                return Decision::Hold(None);
            }
            return Decision::Expire(active.idle_until.map_or(now, |until| until.min(now)));
        }
        if !empty {
            return self.may_dispatch(now, active);
        }
        match active.idle_until {
            Some(until) if now < until => return Decision::Hold(Some(until)),
            Some(until) => return Decision::Expire(until),
            None => {}
        }
        let early = active
            .slice
            .is_none_or(|(start, end)| end - now > now - start);
        let slot = &mut self.queues[active.queue];
        if slot.seeky() && slot.idle_window && early {
            // The disk is much faster than the queue delivers.
            (slot.deep, slot.idle_window) = (false, false);
        }
        if in_disk && (self.should_idle(active.queue) || self.group_idles(active.queue)) {
            return Decision::Hold(None);
        }
        Decision::Expire(now)
    }

    /// `cfq_may_dispatch`: how many requests of one queue the disk may have.
    fn may_dispatch(&self, now: Nanos, active: Active) -> Decision {
        let in_disk = self.queues[active.queue].in_disk;
        let alone = self.queues.iter().filter(|queue| queue.on_tree).count() < 2;
        let quantum = self.params.quantum;
        if alone || in_disk < (quantum / 2).max(1) {
            return Decision::Serve;
        }
        let soon = now + self.params.slice_idle * Nanos::from(in_disk);
        let soon = active.slice.is_none_or(|(_, end)| soon > end);
        match soon || in_disk >= quantum {
            true => Decision::Hold(None),
            false => Decision::Serve,
        }
    }

    /// Ends the active queue's slice (`__cfq_slice_expired`, `cfq_group_served`): the time from its
    /// first completion counts, so the seek to it does not.
    fn expire(&mut self, now: Nanos, active: Active) {
        let time = match active.slice {
            Some((start, end)) if now > start => (now - start).min(end - start),
            _ => now.saturating_sub(active.since).max(1),
        };
        let slot = &mut self.queues[active.queue];
        slot.used += u128::from(time) * NEUTRAL / u128::from(slot.weight);
        slot.on_tree = !slot.waiting.is_empty();
        self.active = None;
        let on_tree = self.queues.iter().filter(|queue| queue.on_tree);
        if let Some(least) = on_tree.map(|queue| queue.used).min() {
            self.least_used = self.least_used.max(least);
        }
    }

    /// The group that has used least goes next.
    fn activate(&mut self, now: Nanos) -> Option<Active> {
        let backlogged = |queue: &usize| !self.queues[*queue].waiting.is_empty();
        let queue = (0..self.queues.len())
            .filter(backlogged)
            .min_by_key(|queue| self.queues[*queue].used)?;
        Some(Active {
            queue,
            since: now,
            slice: None,
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
        let at = if first && now - oldest.arrived >= self.params.expire {
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
        let request = slot.waiting.remove(at);
        self.head = request.end();
        Some(request)
    }

    /// `cfq_set_prio_slice`: the slice of a queue, shortened if many groups are busy.
    fn slice(&self, queue: usize) -> Nanos {
        let weight = |queue: &Queue| u64::from(queue.weight);
        let busy: u64 = self
            .queues
            .iter()
            .filter(|queue| queue.on_tree)
            .map(weight)
            .sum();
        let own = weight(&self.queues[queue]);
        let share = self.params.target_latency * own / busy.max(own);
        let low = self.params.slice.min(2 * self.params.slice_idle);
        self.params.slice.min(share).max(low)
    }

    /// `cfq_update_io_seektime` and `cfq_update_idle_window`.
    fn learn(&mut self, now: Nanos, request: &Request) {
        let params = self.params;
        let slot = &mut self.queues[request.owner as usize];
        slot.think.began(now, params.slice_idle);
        slot.group_think.began(now, params.group_idle);
        let sought = match self.solid {
            true => request.bytes < SMALL,
            false => slot.last_end > 0 && request.start.abs_diff(slot.last_end) > SEEK,
        };
        slot.sought = slot.sought << 1 | u32::from(sought);
        slot.last_end = request.end();
        slot.deep |= slot.waiting.len() >= DEEP;
        if params.slice_idle == 0 || (!slot.deep && slot.seeky()) {
            slot.idle_window = false;
        } else if slot.think.valid() {
            slot.idle_window = slot.think.mean <= params.slice_idle;
        }
    }

    /// `cfq_should_wait_busy`: a group about to end its slice with nothing queued is given a chance
    /// to keep its place.
    fn should_wait_busy(&self, now: Nanos, active: &Active) -> bool {
        let slot = &self.queues[active.queue];
        let left = active.slice.map_or(0, |(_, end)| end.saturating_sub(now));
        slot.waiting.is_empty()
            && !slot.group_think.longer_than(self.params.group_idle)
            && (left == 0 || (slot.think.valid() && left < slot.think.mean))
    }

    /// `cfq_arm_slice_timer`: for how long to wait for the active queue's next request, if at all.
    fn idle_for(&self, now: Nanos, active: &Active) -> Option<Nanos> {
        let slot = &self.queues[active.queue];
        if self.solid && self.params.group_idle == 0 || slot.in_disk > 0 {
            return None;
        }
        let left = active.slice.map_or(0, |(_, end)| end.saturating_sub(now));
        if slot.think.valid() && left < slot.think.mean {
            return None;
        }
        if self.should_idle(active.queue) {
            return Some(self.params.slice_idle);
        }
        self.group_idles(active.queue)
            .then_some(self.params.group_idle)
    }
}

impl Elevator for Anticipatory {
    fn add(&mut self, now: Nanos, request: Request) {
        self.close_window(now);
        let last = self.queues.iter().filter(|queue| queue.on_tree);
        let last = last.map(|queue| queue.used).max();
        let least = self.least_used;
        let slot = &mut self.queues[request.owner as usize];
        if !std::mem::replace(&mut slot.on_tree, true) {
            // A group that had nothing queued goes behind all others, whatever it had used
            // (`cfq_group_notify_queue_add`).
            slot.used = last.map_or(least, |last| last + 1);
        }
        slot.waiting.push(request);
        self.learn(now, &request);
        if let Some(active) = &mut self.active
            && active.queue == request.owner as usize
        {
            active.idle_until = None;
        }
    }

    fn next(&mut self, now: Nanos) -> Next {
        if self.queues.iter().all(|queue| queue.waiting.is_empty()) {
            return Next::Empty;
        }
        loop {
            let Some(mut active) = self.active.or_else(|| self.activate(now)) else {
                return Next::Empty;
            };
            match self.decide(now, active) {
                Decision::Hold(until) => return Next::Hold(until),
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
        let queue = request.owner as usize;
        let slot = &mut self.queues[queue];
        slot.in_disk -= 1;
        slot.think.ended(now);
        slot.group_think.ended(now);
        let Some(mut active) = self.active.filter(|active| active.queue == queue) else {
            return;
        };
        if active.slice.is_none() {
            active.slice = Some((now, now + self.slice(queue)));
        }
        if self.should_wait_busy(now, &active) {
            let window = match self.params.slice_idle {
                0 => self.params.group_idle,
                window => window,
            };
            active.slice = active.slice.map(|(start, _)| (start, now + window));
            active.waits_busy = true;
        }
        self.active = Some(active);
        if active.used_up(now) {
            self.expire(now, active);
        } else if self.queues[queue].waiting.is_empty() {
            active.idle_until = self.idle_for(now, &active).map(|window| now + window);
            self.active = Some(active);
        }
    }
}

impl Anticipatory {
    /// A window that has passed without anybody asking ended the slice then
    /// (`cfq_idle_slice_timer`).
    fn close_window(&mut self, now: Nanos) {
        if let Some(active) = self.active
            && let Some(until) = active.idle_until.filter(|until| *until <= now)
        {
            self.expire(until, active);
        }
    }
}
