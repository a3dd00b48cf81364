// SPDX-License-Identifier: GPL-2.0-only
//! The ways in which benchmarks are parallel, each with its constructor of programs: equal threads ([`Shape::Alike`]),
//! threads that share out phases ([`Team`], [`Rounds`]), stages with queues between them
//! ([`Shape::Pipeline`]), and anything else ([`Shape::Own`]).

use corun_model::Nanos;
use corun_model::time::US;
use std::fmt::Write;

/// Name and program text of each thread.
type Texts = Vec<(String, String)>;

#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// Equal threads: how many for so many vCPUs, what they are called, what they do.
    Alike(fn(u32) -> u32, &'static str, &'static str),
    /// A copy per vCPU of a program that only computes, on a working set of its own.
    Copies(Cache),
    /// A thread per vCPU in a team.
    Team(Team),
    /// A thread per vCPU in a team whose phases differ.
    Rounds(Rounds),
    /// Stages; those of many threads have one per vCPU.
    Pipeline(&'static [Stage]),
    /// How many threads for so many vCPUs, and the programs of so many threads.
    Own(fn(u32) -> u32, fn(u32) -> Texts),
}

/// Threads that share out phases of work and meet after each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Team {
    /// Work of a phase, all threads together.
    pub work: Nanos,
    /// By how much shares of it differ, percent.
    pub vary: u32,
    /// What the first thread does alone between phases; 0: nothing.
    pub serial: Nanos,
    /// How they meet.
    pub meet: Meet,
    /// Critical sections within phases.
    pub sections: Option<Sections>,
    /// What they work on together.
    pub cache: Cache,
    /// What a phase is counted as; empty: not counted, work counts.
    pub unit: &'static str,
}

/// Threads that share out a round of phases, each of its own length, again and again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounds {
    /// The phases, one after the other.
    pub phases: &'static [Phase],
    /// What they work on together.
    pub cache: Cache,
    /// What a round is counted as; empty: not counted, work counts.
    pub unit: &'static str,
}

/// A phase of [`Rounds`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    /// What the first thread does alone before its share; the others wait for it at the end.
    alone: Nanos,
    /// What all do together; 0: nothing.
    work: Nanos,
    /// By how much either differs, percent.
    vary: u32,
    /// The statements by which threads meet after it.
    end: &'static str,
    /// How many of this kind, one after the other.
    times: u32,
    /// What it works on, if that differs from the phase before it.
    on: Option<Cache>,
}

/// The barrier of a mutex and a condition variable after a phase.
pub(super) const BARRIER: &str = "condition-barrier phase";

/// `work` of all threads together, shares of which differ by `vary` percent, and a barrier.
pub(super) const fn shared(work: Nanos, vary: u32) -> Phase {
    Phase {
        alone: 0,
        work,
        vary,
        end: BARRIER,
        times: 1,
        on: None,
    }
}

/// `time` for the first thread alone, and a barrier.
pub(super) const fn alone(time: Nanos, vary: u32) -> Phase {
    let mut phase = shared(0, vary);
    phase.alone = time;
    phase
}

impl Phase {
    /// The same, with other statements at its end.
    pub(super) const fn ending(mut self, end: &'static str) -> Self {
        self.end = end;
        self
    }

    /// The same phase, `times` times.
    pub(super) const fn times(mut self, times: u32) -> Self {
        self.times = times;
        self
    }

    /// The same, working on this. Its mix should be known ([`Cache::mixed`]) if an earlier phase has one, which
    /// otherwise stays in force.
    pub(super) const fn on(mut self, cache: Cache) -> Self {
        self.on = Some(cache);
        self
    }

    /// What thread i of n does.
    fn text(self, i: u32, n: u32) -> String {
        let mut parts = Vec::new();
        if let Some(cache) = self.on {
            parts.push(cache.text(n).trim_end_matches("; ").to_string());
        }
        if self.alone > 0 && i == 0 {
            parts.push(compute(self.alone, self.vary));
        }
        if self.work > 0 {
            parts.push(compute((self.work / u64::from(n)).max(1), self.vary));
        }
        // A single thread has no other to wait for.
        if n > 1 {
            parts.push(self.end.to_string());
        }
        let text = parts.join("; ");
        match self.times {
            1 => text,
            times => format!("loop {times} {{ {text} }}"),
        }
    }
}

impl Rounds {
    /// What thread i of n does.
    fn text(&self, i: u32, n: u32) -> String {
        let phases = self.phases.iter().map(|phase| phase.text(i, n));
        let mut round: Vec<String> = phases.filter(|text| !text.is_empty()).collect();
        if i == 0 && !self.unit.is_empty() {
            round.push(format!("count {}", self.unit));
        }
        format!("{}loop {{ {} }}", self.cache.text(n), round.join("; "))
    }
}

/// How a team meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meet {
    /// At a barrier that blocks.
    Block,
    /// At a barrier that spins for a millisecond, then blocks (OpenMP's).
    Spin,
    /// Not at all.
    Never,
}

/// Critical sections of a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sections {
    /// Work from one to the next.
    pub every: Nanos,
    /// How long the lock, one for all, is held.
    pub held: Nanos,
}

/// A working set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cache {
    /// Size for all threads together, KiB.
    pub kib: u64,
    /// Cache lines that a thread touches per µs.
    pub lines: u32,
    /// How cycles divide up, where that is known: `mix`, in percent.
    mix: Option<(u8, u8, u8)>,
}

/// A size that no last-level cache of the papers' hosts holds, KiB. Such a working set is not
/// divided among threads: each share might fit, but together they do not, and their misses are part
/// of the work.
const OVERFLOWS: u64 = 32 * 1024;

/// `mib` MiB, of which a thread touches `lines` lines per µs.
pub(super) const fn mib(mib: u64, lines: u32) -> Cache {
    kib(mib * 1024, lines)
}

/// `kib` KiB, of which a thread touches `lines` lines per µs.
pub(super) const fn kib(kib: u64, lines: u32) -> Cache {
    let mix = None;
    Cache { kib, lines, mix }
}

impl Cache {
    /// The same, with the cycles spent executing, on misses and waiting for units of the core,
    /// percent.
    pub(super) const fn mixed(mut self, base: u8, miss: u8, wait: u8) -> Self {
        self.mix = Some((base, miss, wait));
        self
    }

    /// The statements that express this for one of `threads` threads. How cycles divide up, unless known, follows from
    /// the lines touched (assumed): a line from memory every 40 ns or less leaves little but waiting; one every third
    /// of a µs or less often hardly shows.
    pub(super) fn text(self, threads: u32) -> String {
        let shares = if self.kib < OVERFLOWS { threads } else { 1 };
        let bytes = self.kib * 1024 / u64::from(shares);
        let mix = match (self.mix, self.lines) {
            (Some((base, miss, wait)), _) => format!("mix {base}/{miss}/{wait}; "),
            (None, 0..=3) => "mix 60/10/30; ".to_string(),
            (None, 4..=24) => String::new(),
            (None, _) => "mix 20/70/10; ".to_string(),
        };
        format!("memory {}B {}/us; {mix}", bytes.max(64), self.lines)
    }
}

/// A stage of a pipeline: it takes from the one before, works, and gives to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stage {
    /// Name of its threads.
    pub name: &'static str,
    /// One thread per vCPU, rather than one?
    pub many: bool,
    /// What it does with each item.
    pub does: &'static str,
    /// Places in the queue to the next stage.
    pub queue: u32,
}

impl Shape {
    pub(super) fn default_threads(&self, vcpus: u32) -> u32 {
        match self {
            Shape::Alike(threads, ..) | Shape::Own(threads, _) => threads(vcpus),
            Shape::Team(_) | Shape::Rounds(_) | Shape::Copies(_) => vcpus,
            Shape::Pipeline(stages) => {
                let many = stages.iter().filter(|stage| stage.many).count() as u32;
                vcpus.saturating_mul(many) + stages.len() as u32 - many
            }
        }
    }

    pub(super) fn threads(&self, threads: u32) -> Texts {
        match self {
            Shape::Alike(_, name, text) => (0..threads)
                .map(|i| (format!("{name}{i}"), (*text).to_string()))
                .collect(),
            Shape::Copies(cache) => (0..threads)
                .map(|i| {
                    (
                        format!("copy{i}"),
                        format!("{}loop {{ compute 10ms }}", cache.text(1)),
                    )
                })
                .collect(),
            Shape::Team(team) => (0..threads)
                .map(|i| (format!("worker{i}"), team.text(i, threads)))
                .collect(),
            Shape::Rounds(rounds) => (0..threads)
                .map(|i| (format!("worker{i}"), rounds.text(i, threads)))
                .collect(),
            Shape::Pipeline(stages) => pipeline(stages, threads),
            Shape::Own(_, make) => make(threads),
        }
    }
}

impl Team {
    /// What thread i of n does.
    fn text(&self, i: u32, n: u32) -> String {
        let phase = |meet| self.phase(self.work, meet, i, n) + &self.count(i);
        let work = match self.meet {
            Meet::Block => phase("; barrier phase"),
            Meet::Spin => phase("; spin-barrier phase 1ms"),
            Meet::Never => phase(""),
        };
        format!("{}loop {{ {work} }}", self.cache.text(n))
    }

    /// What thread i counts after a phase.
    fn count(&self, i: u32) -> String {
        match self.unit {
            "" => String::new(),
            _ if i > 0 && self.meet != Meet::Never => String::new(),
            unit => format!("; count {unit}"),
        }
    }

    /// `work` of all n threads, after which thread i meets the others by this statement.
    fn phase(&self, work: Nanos, meet: &str, i: u32, n: u32) -> String {
        let share = (work / u64::from(n)).max(1);
        let mut text = match self.sections {
            Some(sections) => sections.text(share, self.vary),
            None => compute(share, self.vary),
        };
        // A single thread has no other to wait for.
        let meet = if n == 1 { "" } else { meet };
        text += meet;
        if self.serial > 0 {
            if i == 0 {
                let _ = write!(text, "; {}", compute(self.serial, self.vary));
            }
            text += meet;
        }
        text
    }
}

impl Sections {
    /// `share` of work of a thread with its critical sections.
    fn text(self, share: Nanos, vary: u32) -> String {
        let times = (share / self.every.max(1)).max(1);
        let (work, held) = (compute(share / times, vary), compute(self.held, 0));
        format!("loop {times} {{ {work}; mutex shared {{ {held} }} }}")
    }
}

/// A statement that works for `time`; long times in whole µs, so that people can read them.
pub(super) fn compute(time: Nanos, vary: u32) -> String {
    let length = match time {
        0 => "1ns".to_string(),
        1..100_000 => format!("{time}ns"),
        _ => format!("{}us", time / US),
    };
    match vary {
        0 => format!("compute {length}"),
        _ => format!("compute {length} ±{vary}%"),
    }
}

fn pipeline(stages: &[Stage], threads: u32) -> Texts {
    let many = stages.iter().filter(|stage| stage.many).count() as u32;
    let single = stages.len() as u32 - many;
    let each = threads.saturating_sub(single).div_ceil(many.max(1)).max(1);
    let mut all = Vec::new();
    for (at, stage) in stages.iter().enumerate() {
        let take = match at.checked_sub(1) {
            Some(before) => format!("recv {}; ", stages[before].name),
            None => String::new(),
        };
        let (queue, give) = match at + 1 < stages.len() {
            true => (
                format!("queue {} {}; ", stage.name, stage.queue),
                format!("; send {}", stage.name),
            ),
            false => (String::new(), String::new()),
        };
        let text = format!("{queue}loop {{ {take}{}{give} }}", stage.does);
        let threads = if stage.many { each } else { 1 };
        all.extend((0..threads).map(|i| (format!("{}{i}", stage.name), text.clone())));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_of_a_round_are_shared_out_and_one_thread_meets_nobody() {
        const PHASES: &[Phase] = &[
            alone(3000, 5),
            shared(8000, 0).ending("spin-barrier flags").times(2),
            shared(0, 0),
        ];
        let (phases, cache) = (PHASES, kib(1, 1));
        let rounds = Rounds {
            phases,
            cache,
            unit: "steps",
        };
        let first = rounds.text(0, 2);
        let expected = "loop { compute 3000ns ±5%; condition-barrier phase; \
             loop 2 { compute 4000ns; spin-barrier flags }; condition-barrier phase; count steps }";
        assert!(first.ends_with(expected), "{first}");
        let second = rounds.text(1, 2);
        let expected = "loop { condition-barrier phase; \
             loop 2 { compute 4000ns; spin-barrier flags }; condition-barrier phase }";
        assert!(second.ends_with(expected), "{second}");
        let single = rounds.text(0, 1);
        let expected = "loop { compute 3000ns ±5%; loop 2 { compute 8000ns }; count steps }";
        assert!(single.ends_with(expected), "{single}");
    }

    #[test]
    fn a_phase_may_work_on_something_else_and_divide_its_cycles_otherwise() {
        let phase = shared(8000, 0).on(mib(64, 90).mixed(5, 90, 5));
        let expected =
            "memory 67108864B 90/us; mix 5/90/5; compute 4000ns; condition-barrier phase";
        assert_eq!(phase.text(0, 2), expected);
        // Where the mix was not measured, cycles divide up according to the lines.
        assert!(mib(64, 90).text(2).ends_with("mix 20/70/10; "));
        assert!(!mib(64, 10).text(2).contains("mix"));
    }
}
