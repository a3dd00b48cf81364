// SPDX-License-Identifier: GPL-2.0-only
//! First come, first served.

use super::{Elevator, Next, Request};
use corun_model::Nanos;
use std::collections::VecDeque;

/// Requests in the order they came.
#[derive(Debug, Default)]
pub(super) struct Fifo(VecDeque<Request>);

impl Elevator for Fifo {
    fn add(&mut self, _now: Nanos, request: Request) {
        self.0.push_back(request);
    }

    fn next(&mut self, _now: Nanos) -> Next {
        self.0.pop_front().map_or(Next::Empty, Next::Serve)
    }

    fn done(&mut self, _now: Nanos, _request: &Request) {}
}
