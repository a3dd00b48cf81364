// SPDX-License-Identifier: GPL-2.0-only
//! What only pictures show of a run: how often waits had which length, and who had which pCPU when.
//!
//! Numbers summarise; whether a 99th percentile is a long tail or a second hump, and who was in the way, must be seen.
//! All of it is bounded, whatever the length of the run: distributions by their steps (some hundred), the timeline by
//! the number of its spans. None of it is in `--json`, which is for numbers; `--trace` writes whole timelines.

use corun_model::Nanos;

/// How often times had which length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The longest time of each step that counted something, ns, ascending; and how many there were.
    pub steps: Vec<(Nanos, u64)>,
}

impl Times {
    /// How many times there are.
    pub fn count(&self) -> u64 {
        self.steps.iter().map(|(_, count)| count).sum()
    }

    /// The step that `share` (0 to 1) of the times do not exceed, by its longest time, ns; `None` if
    /// there are no times.
    pub fn quantile(&self, share: f64) -> Option<Nanos> {
        let wanted = (share.clamp(0.0, 1.0) * self.count() as f64)
            .ceil()
            .max(1.0) as u64;
        let mut seen = 0;
        let found = self.steps.iter().find(|(_, count)| {
            seen += count;
            seen >= wanted
        });
        found.map(|(longest, _)| *longest)
    }

    /// The times of several runs together.
    pub fn pooled<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        let mut sums = std::collections::BTreeMap::<Nanos, u64>::new();
        for (longest, count) in all.flat_map(|times| &times.steps) {
            *sums.entry(*longest).or_default() += count;
        }
        Self {
            steps: sums.into_iter().collect(),
        }
    }
}

/// The distributions of a VM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmTimes {
    /// Waits for a pCPU.
    pub ready: Times,
    /// Of these, the ones that began with a wake-up.
    pub wakeups: Times,
    /// Turns on a pCPU that ended although the vCPU wanted to go on.
    pub turns: Times,
    /// Waits for contended locks.
    pub locks: Times,
    /// Waits of threads for their reads and writes.
    pub io: Times,
    /// From when until when its policy left it alone, because it did not do what was expected of it; ns since
    /// the run began, `None`: until its end. Policies count some periods before they change their mind, so
    /// there are few.
    pub left_alone: Vec<(Nanos, Option<Nanos>)>,
}

/// What a task did without interruption while it did not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The pCPU that it had; `None`: it wanted one.
    pub pcpu: Option<u32>,
    /// Since when, ns since the run began.
    pub from: Nanos,
    /// How long, ns.
    pub length: Nanos,
}

/// A task on the timeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    /// `web/0` for a vCPU, or the thread's name.
    pub name: String,
    /// Its VM's place among the VMs, if it is a vCPU.
    pub vm: Option<usize>,
    /// One after another.
    pub spans: Vec<Span>,
}

/// Who had, and who wanted, which pCPU in a part of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Where the part begins, ns since the run began, warm-up included.
    pub from: Nanos,
    /// Where it ends.
    pub until: Nanos,
    /// How many pCPUs there are.
    pub pcpus: u32,
    /// Every task of the host.
    pub lanes: Vec<Lane>,
}

impl Timeline {
    /// How many spans it has.
    pub fn spans(&self) -> usize {
        self.lanes.iter().map(|lane| lane.spans.len()).sum()
    }

    /// How long it is.
    pub fn length(&self) -> Nanos {
        self.until.saturating_sub(self.from)
    }

    /// Its first part, `length` long.
    #[must_use]
    pub fn first(&self, length: Nanos) -> Self {
        let until = self.until.min(self.from.saturating_add(length));
        let of_span = |span: &Span| {
            let length = span.length.min(until.saturating_sub(span.from));
            (length > 0).then_some(Span { length, ..*span })
        };
        let of_lane = |lane: &Lane| Lane {
            spans: lane.spans.iter().filter_map(of_span).collect(),
            ..lane.clone()
        };
        Self {
            until,
            lanes: self.lanes.iter().map(of_lane).collect(),
            ..*self
        }
    }
}

/// What pictures show of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// Per VM, in the order of the results.
    pub vms: Vec<VmTimes>,
    /// Per client or channel, in the order of the results: from the wish to send until the reply's end.
    pub clients: Vec<Times>,
    /// A part of the run, if it was watched.
    pub timeline: Option<Timeline>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_part_of_a_timeline() {
        let span = |from, length| Span {
            pcpu: Some(0),
            from,
            length,
        };
        let timeline = |until, spans| Timeline {
            from: 10,
            until,
            pcpus: 1,
            lanes: vec![Lane {
                spans,
                ..Lane::default()
            }],
        };
        let whole = timeline(40, vec![span(10, 5), span(15, 15), span(30, 10)]);
        let first = timeline(20, vec![span(10, 5), span(15, 5)]);
        assert_eq!(whole.first(10), first);
        assert_eq!(whole.first(whole.length()), whole);
        assert_eq!(whole.first(Nanos::MAX), whole);
    }

    #[test]
    fn pooled_times_are_counted_once_each() {
        let one = Times {
            steps: vec![(127, 2), (1023, 1)],
        };
        let other = Times {
            steps: vec![(255, 4), (1023, 3)],
        };
        let both = Times::pooled([&one, &other].into_iter());
        assert_eq!(both.steps, [(127, 2), (255, 4), (1023, 4)]);
        assert_eq!(both.count(), 10);
        let shares = [0.0, 0.2, 0.21, 0.6, 0.61, 1.0].map(|share| both.quantile(share));
        assert_eq!(
            shares,
            [127, 127, 255, 255, 1023, 1023].map(Some),
            "the step that holds the share"
        );
        assert_eq!(Times::default().quantile(0.5), None);
    }
}
