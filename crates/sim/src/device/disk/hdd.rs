// SPDX-License-Identifier: GPL-2.0-only
//! A hard disk: one arm, one spindle, and a buffer that reads ahead.
//!
//! A request that does not continue the last one costs a seek, which grows with the square root of
//! the distance for short ones and linearly for long ones (Ruemmler and Wilkes, "An introduction to
//! disk drive modeling", IEEE Computer 1994), and then a wait for the platter. After a read the
//! drive goes on reading into its buffer until something else is asked of it or the buffer is full; a read that
//! continues the last one gets what is there at the speed of the link, while the drive reads on once the platter has
//! come around to where the full buffer ended. A write is on the platter when it is done: a write that continues the
//! last one must wait for the platter to come around if there was a gap in time.
//!
//! Assumed: the buffer serves one stream. Drives have several segments, but how they share them
//! out is not published.

use super::Request;
use super::ssd::transfer;
use crate::rng::Rng;
use corun_model::Nanos;
use corun_model::time::{MS, SEC};

/// A SATA hard disk. The defaults are those of a 7200 rpm server drive of 1 TB: Seagate's product
/// manuals of the Constellation ES series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HddParams {
    /// Bytes. 1 TB: vMigrater's testbed (§5).
    pub capacity: u64,
    /// Revolutions per minute, 1–100000. 7200.
    pub rpm: u32,
    /// A seek to the next track. 1 ms: typical of such drives' data sheets.
    pub seek_track: Nanos,
    /// A seek over a third of the disk, the mean distance between random places. 8.5 ms: average
    /// read seek of the data sheets.
    pub seek_average: Nanos,
    /// A seek over the whole disk. 17 ms: assumed, twice the average, as in Ruemmler and Wilkes'
    /// measurements.
    pub seek_full: Nanos,
    /// Bytes per second from the platter. 150 MB/s: the manual has 83 to 175 MB/s, more outside,
    /// where the first VMs' data are.
    pub bandwidth: u64,
    /// Bytes per second from the buffer. 600 MB/s: SATA 6 Gbit/s.
    pub link: u64,
    /// Bytes that the drive reads ahead into its buffer. 1.25 MB: assumed, one track (a turn at
    /// `bandwidth`): the least that saves a turn, and far below the 64 to 128 MB that drives have.
    pub read_ahead: u64,
}

impl Default for HddParams {
    fn default() -> Self {
        Self {
            capacity: 1_000_000_000_000,
            rpm: 7200,
            seek_track: MS,
            seek_average: 8_500_000,
            seek_full: 17 * MS,
            bandwidth: 150_000_000,
            link: 600_000_000,
            read_ahead: 1_250_000,
        }
    }
}

impl HddParams {
    /// Time of a revolution.
    pub fn turn(&self) -> Nanos {
        60 * SEC / Nanos::from(self.rpm.max(1))
    }

    /// How long the arm needs over so many bytes of distance; 0 for none.
    pub fn seek(&self, distance: u64) -> Nanos {
        // The distance as a share of the disk, in 2^-32.
        let share = (u128::from(distance) << 32) / u128::from(self.capacity.max(1));
        let (share, whole) = ((share as u64).min(1 << 32), 1u64 << 32);
        let scaled = |time: Nanos, share: u64| (u128::from(time) * u128::from(share)) >> 32;
        if distance == 0 {
            0
        } else if share * 3 <= whole {
            let root = (u128::from(share * 3) << 32).isqrt() as u64;
            let more = self.seek_average.saturating_sub(self.seek_track);
            self.seek_track + scaled(more, root) as Nanos
        } else {
            let more = self.seek_full.saturating_sub(self.seek_average);
            self.seek_average + scaled(more, (share * 3 - whole) / 2) as Nanos
        }
    }
}

/// When a request is done, and whether it did not continue the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Served {
    pub done: Nanos,
    pub sought: bool,
}

/// A hard disk in the run.
#[derive(Debug)]
pub(super) struct Hdd {
    params: HddParams,
    rng: Rng,
    /// The byte after the last request's, and when that was done.
    at: u64,
    idle_since: Nanos,
    /// Was the last request a read, so that the drive reads on?
    reads_on: bool,
    /// Bytes that were in the buffer beyond `at` when the last request was done; the platter adds to
    /// them from then on.
    buffered: u64,
    filling_from: Nanos,
}

impl Hdd {
    pub fn new(params: HddParams, rng: Rng) -> Self {
        Self {
            params,
            rng,
            at: 0,
            idle_since: 0,
            reads_on: false,
            buffered: 0,
            filling_from: 0,
        }
    }

    /// Begins a request (there is no other); returns when it is done.
    pub fn serve(&mut self, now: Nanos, request: &Request) -> Served {
        let continues = request.start == self.at && request.write != self.reads_on;
        let done = if continues && !request.write {
            self.read_on(now, request.bytes)
        } else {
            let waits = match continues {
                true => self.comes_around(now - self.idle_since),
                false => self.position(request.start),
            };
            let done = now + waits + transfer(request.bytes, self.params.bandwidth);
            (self.buffered, self.filling_from) = (0, done);
            done
        };
        self.at = request.end();
        self.reads_on = !request.write;
        self.idle_since = done;
        Served {
            done,
            sought: !continues,
        }
    }

    /// A read that continues the last one; returns when it is done.
    fn read_on(&mut self, now: Nanos, bytes: u64) -> Nanos {
        let HddParams {
            bandwidth,
            link,
            read_ahead,
            ..
        } = self.params;
        let from_platter =
            |time: Nanos| (u128::from(bandwidth) * u128::from(time) / u128::from(SEC)) as u64;
        let full_at =
            self.filling_from + transfer(read_ahead.saturating_sub(self.buffered), bandwidth);
        let (there, resumes) = if now >= full_at {
            (read_ahead, now + self.comes_around(now - full_at))
        } else {
            let filled = from_platter(now.saturating_sub(self.filling_from));
            (self.buffered + filled, now.max(self.filling_from))
        };
        let mut done = now + transfer(bytes, link);
        if bytes > there {
            done = done.max(resumes + transfer(bytes - there, bandwidth));
        }
        let filled = from_platter(done.saturating_sub(resumes));
        self.buffered = (there + filled).saturating_sub(bytes).min(read_ahead);
        self.filling_from = resumes.max(done);
        done
    }

    /// Seeks, and waits for the platter.
    fn position(&mut self, to: u64) -> Nanos {
        let turn = self.params.turn();
        self.params.seek(to.abs_diff(self.at)) + self.rng.between(0, turn.saturating_sub(1))
    }

    /// Waits for the place after the last write, which was passed `gap` ago.
    fn comes_around(&self, gap: Nanos) -> Nanos {
        let turn = self.params.turn().max(1);
        (turn - gap % turn) % turn
    }
}
