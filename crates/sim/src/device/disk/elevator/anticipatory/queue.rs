// SPDX-License-Identifier: GPL-2.0-only
//! A VM's queue, and what CFQ learns about it from each request: how long it thinks, whether it
//! seeks, and thus whether it is worth waiting for.

use super::super::think::Think;
use super::Request;
use super::params::Ticks;

/// A request this far from the last one counts as a seek on a hard disk: 800 sectors
/// (`CFQQ_SEEK_THR`).
const SEEK: u64 = 800 * 512;
/// On a solid-state disk, a request shorter than this counts as one: 64 sectors
/// (`CFQQ_SECT_THR_NONROT`).
const SMALL: u64 = 64 * 512;
/// So many requests at once make a queue worth waiting for, even if it seeks (`cfqq_deep`).
const DEEP: usize = 4;

/// A VM's one queue.
#[derive(Debug)]
pub(super) struct Queue {
    /// In the order they came.
    pub waiting: Vec<Request>,
    /// Number of requests in the disk.
    pub in_disk: u32,
    pub think: Think,
    pub group_think: Think,
    /// Which of the last 32 requests sought; the latest is bit 0.
    sought: u32,
    last_end: u64,
    pub idle_window: bool,
    pub deep: bool,
}

impl Queue {
    pub fn new() -> Self {
        Self {
            waiting: Vec::new(),
            in_disk: 0,
            think: Think::default(),
            group_think: Think::default(),
            sought: 0,
            last_end: 0,
            idle_window: true,
            deep: false,
        }
    }

    /// `CFQQ_SEEKY`.
    pub fn seeky(&self) -> bool {
        self.sought.count_ones() > 32 / 8
    }

    /// A request comes (`cfq_update_io_thinktime`, `cfq_update_io_seektime` and
    /// `cfq_update_idle_window`).
    pub fn add(&mut self, tick: u64, request: Request, ticks: &Ticks, solid: bool) {
        self.waiting.push(request);
        self.think.began(tick, ticks.slice_idle);
        self.group_think.began(tick, ticks.group_idle);
        let sought = match solid {
            true => request.bytes < SMALL,
            false => self.last_end > 0 && request.start.abs_diff(self.last_end) > SEEK,
        };
        self.sought = self.sought << 1 | u32::from(sought);
        self.last_end = request.end();
        self.deep |= self.waiting.len() >= DEEP;
        if ticks.slice_idle == 0 || (!self.deep && self.seeky()) {
            self.idle_window = false;
        } else if self.think.valid() {
            self.idle_window = self.think.mean <= ticks.slice_idle;
        }
    }
}
