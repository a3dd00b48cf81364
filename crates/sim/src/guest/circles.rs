// SPDX-License-Identifier: GPL-2.0-only
//! Task graphs with cycles: threads each of which waits for what only another of them could do.
//!
//! Problem: two threads that each receive from the other before they send look like work but never
//! do any; a run with them shows an idle VM and does not say why.
//!
//! How: every thread goes through its program once, as if everything that can be waited for (an
//! item, a signal, the other parties of a barrier) came as soon as a thread reaches the operation
//! that provides it. Rounds of loops do the same again, and sending never blocks here, so a thread
//! that does not get through waits for ever on any host; one that does get through may still have
//! to wait, by chance. Each operation is looked at once.

use crate::workload::{Code, Op};
use std::collections::{HashMap, HashSet};

/// What threads wait for until another thread provides it. Numbers as in [`Op`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Need {
    Item(u32),
    Signal(u32),
    Barrier(u32),
    SpinBarrier(u32),
    ConditionBarrier(u32),
}

/// The threads that never get through their programs, in order, and what they wait for.
pub(super) fn stuck(codes: &[Code]) -> Vec<(usize, Need)> {
    let mut walk = Walk::new(codes);
    for thread in 0..codes.len() {
        walk.go_on(thread);
    }
    let mut stuck: Vec<_> = walk
        .waiting
        .into_iter()
        .flat_map(|(need, threads)| threads.into_iter().map(move |thread| (thread, need)))
        .collect();
    stuck.sort_unstable_by_key(|(thread, _)| *thread);
    stuck
}

/// What this operation waits for.
fn needs(op: &Op) -> Option<Need> {
    Some(match op {
        Op::Recv(queue) => Need::Item(*queue),
        Op::Wait { condition, .. } => Need::Signal(*condition),
        _ => return meeting(op),
    })
}

/// The barrier at which this operation waits, if it is one.
pub(super) fn meeting(op: &Op) -> Option<Need> {
    Some(match op {
        Op::Barrier(barrier) => Need::Barrier(*barrier),
        Op::SpinBarrier { barrier, .. } => Need::SpinBarrier(*barrier),
        Op::ConditionBarrier { barrier, .. } => Need::ConditionBarrier(*barrier),
        _ => return None,
    })
}

/// What this operation provides.
fn provides(op: &Op) -> Option<Need> {
    Some(match op {
        Op::Send(queue) => Need::Item(*queue),
        Op::Signal(condition) | Op::Broadcast(condition) => Need::Signal(*condition),
        _ => return None,
    })
}

struct Walk<'a> {
    codes: &'a [Code],
    /// How far each thread has come.
    at: Vec<usize>,
    met: HashSet<Need>,
    /// How many threads have yet to come to each barrier.
    missing: HashMap<Need, usize>,
    /// Which threads have come to which barrier.
    arrived: HashSet<(usize, Need)>,
    waiting: HashMap<Need, Vec<usize>>,
}

impl<'a> Walk<'a> {
    fn new(codes: &'a [Code]) -> Self {
        let mut missing = HashMap::new();
        for code in codes {
            let barriers: HashSet<Need> = code.ops().iter().filter_map(meeting).collect();
            for barrier in barriers {
                *missing.entry(barrier).or_default() += 1;
            }
        }
        Self {
            codes,
            at: vec![0; codes.len()],
            met: HashSet::new(),
            missing,
            arrived: HashSet::new(),
            waiting: HashMap::new(),
        }
    }

    /// The thread goes as far as it gets, and so do threads that waited for what it does on its
    /// way.
    fn go_on(&mut self, thread: usize) {
        let mut ready = vec![thread];
        while let Some(thread) = ready.pop() {
            while let Some(op) = self.codes[thread].ops().get(self.at[thread]) {
                let provided = provides(op).or_else(|| self.arrive(thread, op));
                if let Some(need) = provided.filter(|need| self.met.insert(*need)) {
                    ready.extend(self.waiting.remove(&need).unwrap_or_default());
                }
                if let Some(need) = needs(op).filter(|need| !self.met.contains(need)) {
                    self.waiting.entry(need).or_default().push(thread);
                    break;
                }
                self.at[thread] += 1;
            }
        }
    }

    /// The thread is at `op`; returns its barrier, if all have now come to it.
    fn arrive(&mut self, thread: usize, op: &Op) -> Option<Need> {
        let barrier = meeting(op)?;
        let missing = self.missing.get_mut(&barrier)?;
        if self.arrived.insert((thread, barrier)) {
            *missing -= 1;
        }
        (*missing == 0).then_some(barrier)
    }
}
