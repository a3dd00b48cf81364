// SPDX-License-Identifier: GPL-2.0-only
//! The host's I/O schedulers: which request a disk gets next.

mod anticipatory;
mod deadline;
mod none;
mod think;

pub use anticipatory::AnticipatoryParams;
pub use deadline::DeadlineParams;

use super::{Request, Share};
use corun_model::Nanos;

/// An I/O scheduler with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulerParams {
    /// First come, first served (`none`, formerly `noop`).
    None,
    /// Sorted batches, and no request waits for too long (`mq-deadline`, `deadline`).
    Deadline(DeadlineParams),
    /// One VM at a time, waiting for its next request (`cfq`, later `bfq`).
    Anticipatory(AnticipatoryParams),
}

/// What a disk with a free place gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Serve(Request),
    /// Nothing, although requests wait: until that time, or until the next request comes or is
    /// done.
    Hold(Option<Nanos>),
    /// No request waits.
    Empty,
}

/// An I/O scheduler in the run.
pub(super) trait Elevator: std::fmt::Debug {
    /// A request comes.
    fn add(&mut self, now: Nanos, request: Request);

    /// The disk could take one.
    fn next(&mut self, now: Nanos) -> Next;

    /// The disk is done with one that it got.
    fn done(&mut self, now: Nanos, request: &Request);
}

/// The scheduler of a disk that these VMs share. `solid`: it has no arm to move.
pub(super) fn new(params: &SchedulerParams, shares: &[Share], solid: bool) -> Box<dyn Elevator> {
    match params {
        SchedulerParams::None => Box::new(none::Fifo::default()),
        SchedulerParams::Deadline(params) => Box::new(deadline::Deadline::new(*params)),
        SchedulerParams::Anticipatory(params) => {
            Box::new(anticipatory::Anticipatory::new(*params, shares, solid))
        }
    }
}
