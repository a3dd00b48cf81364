// SPDX-License-Identifier: GPL-2.0-only
//! Programs on the two hardware threads of a core, alone and in pairs, with how their cycles divide: from this the
//! coefficients of symbiosis are found (vSMT-IO, dissertation §3.4.3).
//!
//! They are threads, not guests: the units of a core do not care. Each is bound to a pCPU; the counters are the pCPU's,
//! so anything else that runs there meanwhile counts, too.

use crate::cycles::events;
use crate::perf::{Count, Counter};
use crate::{machine, preflight};
use corun_model::{Nanos, PcpuId};
use corun_policies::pmu::Events;
use corun_system::affinity;
use corun_system::clock;
use std::fmt;
use std::hint::black_box;
use std::io;
use std::path::Path;
use std::sync::Barrier;

/// What a program does all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Adds, four sums at a time: units of the core are busy.
    Add,
    /// Divides, each by what comes of the one before: waits for a unit.
    Divide,
    /// Walks a list of this many bytes, a cache line per element, in random order: waits for caches or memory.
    List(u64),
    /// Walks such a list, and adds between two steps.
    ListAndAdd(u64),
}

/// Steps between two looks at the clock.
const STEPS: u64 = 4096;
/// Bytes of a cache line.
const LINE: u64 = 64;
/// Numbers of a list's element.
const STRIDE: usize = 8;

impl Program {
    /// The programs that differ most on a machine with these caches, bytes.
    pub fn all(l2: u64, llc: u64) -> [Self; 7] {
        [
            Self::Add,
            Self::Divide,
            Self::List(l2 / 2),
            Self::List(llc / 2),
            Self::List(2 * llc),
            Self::ListAndAdd(l2 / 2),
            Self::ListAndAdd(2 * llc),
        ]
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = corun_model::size::show;
        match self {
            Self::Add => f.write_str("add"),
            Self::Divide => f.write_str("divide"),
            Self::List(bytes) => write!(f, "list {}", size(*bytes)),
            Self::ListAndAdd(bytes) => write!(f, "mixed {}", size(*bytes)),
        }
    }
}

/// A program at work.
struct Work {
    program: Program,
    next: Vec<u64>,
    at: u64,
    sums: [u64; 4],
}

impl Work {
    fn of(program: Program) -> Self {
        let bytes = match program {
            Program::Add | Program::Divide => 0,
            Program::List(bytes) | Program::ListAndAdd(bytes) => bytes,
        };
        Self {
            program,
            next: list(bytes / LINE),
            at: 0,
            sums: [1, 3, 5, 7],
        }
    }

    fn add(&mut self) {
        for (sum, more) in self.sums.iter_mut().zip(1..) {
            *sum = sum.wrapping_add(*black_box(&more));
        }
    }

    fn hop(&mut self) {
        let place = usize::try_from(self.at).unwrap_or(0) * STRIDE;
        self.at = self.next.get(place).copied().unwrap_or(0);
    }

    /// At least once through the whole list.
    fn round(&mut self) {
        let lines = (self.next.len() / STRIDE) as u64;
        (0..=lines / STEPS).for_each(|_| self.step());
    }

    /// [`STEPS`] of them.
    fn step(&mut self) {
        for _ in 0..STEPS {
            match self.program {
                Program::Add => self.add(),
                Program::Divide => {
                    let [dividend, divisor, ..] = self.sums;
                    self.sums[0] = (u64::MAX - dividend) / black_box(divisor).max(1);
                }
                Program::List(_) => self.hop(),
                Program::ListAndAdd(_) => {
                    self.hop();
                    (0..8).for_each(|_| self.add());
                }
            }
        }
        black_box((self.at, self.sums));
    }
}

/// A list of this many lines that goes through all of them once, in an order that no prefetcher guesses (Sattolo's
/// shuffle, with a generator whose numbers are the same each time).
fn list(lines: u64) -> Vec<u64> {
    let count = usize::try_from(lines).unwrap_or(0);
    let mut order: Vec<u64> = (0..lines).collect();
    let mut chance = 0x9e37_79b9_7f4a_7c15u64;
    for last in (1..count).rev() {
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        let other = usize::try_from(chance % last as u64).unwrap_or(0);
        order.swap(last, other);
    }
    let mut next = vec![0; count * STRIDE];
    for (from, to) in order.into_iter().enumerate() {
        next[from * STRIDE] = to;
    }
    next
}

/// What a program did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Done {
    /// ns per step.
    pub time_per_work: f64,
    /// Cycles of its pCPU.
    pub cycles: u64,
    /// Of these, those in which it stalled.
    pub stalls: u64,
    /// Of these, those on misses.
    pub misses: u64,
}

/// Why nothing can be measured.
#[derive(Debug, thiserror::Error)]
pub enum NoCore {
    /// The kernel does not report pCPUs.
    #[error("cannot tell this host's pCPUs from /sys/devices/system/cpu/online")]
    Online,
    /// There is nothing to find out.
    #[error(
        "the cores of this machine do not have two hardware threads each: nothing slows another one down there"
    )]
    NoSmt,
    /// Cycles cannot be divided.
    #[error("this machine does not tell how cycles divide: {name}, {event}: {why}")]
    Events {
        /// What was to be counted.
        name: &'static str,
        /// By what.
        event: String,
        /// Why it is not.
        why: io::Error,
    },
    /// Misses are not distinguished from other stalls.
    #[error(
        "on this machine no event is known that tells stalls on misses from others: coefficients cannot be found"
    )]
    Misses,
}

/// A core.
#[derive(Clone, Copy, Debug)]
pub struct Core {
    pcpus: [PcpuId; 2],
    events: Events,
}

impl Core {
    /// The first one of this host.
    ///
    /// # Errors
    /// [`NoCore`].
    pub fn of_this_host() -> Result<Self, NoCore> {
        let online = preflight::online().ok_or(NoCore::Online)?;
        let seen = machine::seen(&online).map_err(|_| NoCore::NoSmt)?;
        let pair = |cpu: PcpuId| Some([cpu, seen.partner(cpu)?]);
        let pcpus = online.iter().find_map(pair).ok_or(NoCore::NoSmt)?;
        let events = events::of_host(Path::new("/"));
        let core = Self { pcpus, events };
        core.counters(pcpus[0])?;
        match events.misses {
            Some(_) => Ok(core),
            None => Err(NoCore::Misses),
        }
    }

    /// Its hardware threads.
    pub fn pcpus(&self) -> [PcpuId; 2] {
        self.pcpus
    }

    /// By what its cycles are divided.
    pub fn events(&self) -> Events {
        self.events
    }

    fn counters(&self, cpu: PcpuId) -> Result<Vec<Counter>, NoCore> {
        let (names, events): (Vec<_>, Vec<_>) = self.events.named().unzip();
        Counter::group(&events, cpu).map_err(|(at, why)| NoCore::Events {
            name: names[at],
            event: events[at].to_string(),
            why,
        })
    }

    /// What a program does alone.
    ///
    /// # Errors
    /// If it cannot be bound to its pCPU, or counted.
    pub fn alone(&self, program: Program, time: Nanos) -> io::Result<Done> {
        let [done] = self.threads([program], time)?;
        Ok(done)
    }

    /// What two do side by side.
    ///
    /// # Errors
    /// If one cannot be bound to its pCPU, or counted.
    pub fn together(&self, programs: [Program; 2], time: Nanos) -> io::Result<[Done; 2]> {
        self.threads(programs, time)
    }

    /// Each in a thread of its own, and on a hardware thread of its own.
    fn threads<const N: usize>(
        &self,
        programs: [Program; N],
        time: Nanos,
    ) -> io::Result<[Done; N]> {
        let ready = Barrier::new(N);
        std::thread::scope(|scope| {
            let threads = programs.into_iter().zip(self.pcpus);
            let threads: Vec<_> = threads
                .map(|(program, cpu)| {
                    let ready = &ready;
                    scope.spawn(move || self.run(cpu, program, time, ready))
                })
                .collect();
            let ended = "a thread of a calibration program ended before its time";
            let mut all = [Done::default(); N];
            for (done, thread) in all.iter_mut().zip(threads) {
                *done = thread.join().map_err(|_| io::Error::other(ended))??;
            }
            Ok(all)
        })
    }

    /// In a thread that stays where it is until all have done.
    fn run(&self, cpu: PcpuId, program: Program, time: Nanos, ready: &Barrier) -> io::Result<Done> {
        let mut work = Work::of(program);
        let bound = affinity::pin(0, cpu);
        // A round beforehand brings the list into the caches, as far as it fits.
        work.round();
        // All wait for all, whatever went wrong.
        ready.wait();
        bound?;
        let counters = self.counters(cpu).map_err(io::Error::other)?;
        let read = || counters.iter().map(Count::read).collect::<Vec<_>>();
        let (before, began) = (read(), clock::now());
        let mut steps = 0;
        while clock::now() - began < time {
            work.step();
            steps += STEPS;
        }
        let (after, ended) = (read(), clock::now());
        // A thread that is done goes on until the other one is, too: neither is measured alone.
        let until = ended + time / 10;
        while clock::now() < until {
            work.step();
        }
        let counted = |at: usize| match (before.get(at), after.get(at)) {
            (Some(Some(before)), Some(Some(after))) => after.since(*before).unwrap_or(0),
            _ => 0,
        };
        Ok(Done {
            time_per_work: (ended - began) as f64 / steps as f64,
            cycles: counted(0),
            stalls: counted(1),
            misses: counted(2),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corun_model::time::MS;
    use corun_policies::pmu::{Event, SOFTWARE};

    #[test]
    fn a_list_goes_through_all_of_its_lines() {
        let next = list(100);
        let (mut at, mut hops) = (0, 0);
        loop {
            at = next[usize::try_from(at).unwrap() * STRIDE];
            hops += 1;
            if at == 0 {
                break;
            }
        }
        assert_eq!(hops, 100);
        assert!(list(0).is_empty());
    }

    /// With the clock of a pCPU in place of its cycles: that every machine counts.
    #[test]
    fn programs_are_timed_and_counted() {
        let clock = Event {
            kind: SOFTWARE,
            config: 0,
        };
        let core = Core {
            pcpus: [PcpuId(0), PcpuId(0)],
            events: Events {
                cycles: clock,
                stalls: clock,
                misses: None,
            },
        };
        for program in Program::all(64 << 10, 256 << 10) {
            let done = match core.alone(program, 20 * MS) {
                Ok(done) => done,
                Err(why) => {
                    eprintln!("not tested: {why}");
                    return;
                }
            };
            assert!(done.time_per_work > 0.0, "{program}: {done:?}");
            // Another task may have had the pCPU; its clock goes on.
            assert!(
                (19 * MS..200 * MS).contains(&done.cycles),
                "{program}: {done:?}"
            );
            assert_eq!(done.misses, 0);
        }
        let both = core
            .together([Program::Add, Program::Divide], 20 * MS)
            .unwrap();
        assert!(both.iter().all(|done| done.time_per_work > 0.0), "{both:?}");
    }
}
