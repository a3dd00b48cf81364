// SPDX-License-Identifier: GPL-2.0-only
//! The process of a guest.

use super::super::programs::{BETWEEN_PAGES, Chance, circle, lines};
use super::super::turns::GAP;
use super::super::{Done, Program, TrialError, VcpuCounters, settle};
use super::{Go, Order, Pace, Reply, Task, failed};
use crate::perf::Tally;
use corun_microvm::MachineError;
use corun_microvm::machine::{Ring, tsc_khz};
use corun_microvm::native::{Guest, Job, MOST_LIST, MOST_VCPUS, Running, Seen, TABLE};
use corun_model::time::{MS, SEC};
use corun_model::{Nanos, Signals};
use corun_system::clock;
use corun_system::procfs::Process;
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

/// How often counters are read: the period of recognition.
const PERIOD: Nanos = 30 * MS;
/// A guest that measures nothing in this time is stuck.
const PATIENCE: Nanos = 5 * SEC;
/// Rounds of a measuring loop: some 10 us, so that most tries are not interrupted.
const ROUNDS: u64 = 20_000;
/// Tries, of which the best counts.
const TRIES: u64 = 20;

/// Has the kernel end this process when the thread ends that started it.
///
/// # Errors
/// If the kernel does not.
pub fn end_with_parent() -> io::Result<()> {
    // SAFETY: sets a number of this process; no memory is involved.
    match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Carries out orders from `input`, and replies on `output` with the result, or why there is none.
///
/// # Errors
/// If `output` cannot be written, or `input` ends early: the process that started this has
/// gone.
pub fn serve(mut input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    let reply = match read(&mut input)? {
        Order::Measure => measure().map(Reply::Measured).map_err(TrialError::from),
        Order::Work(task) => work(&task, || {
            say(&mut output, &Reply::Ready)?;
            read(&mut input)
        })
        .map(Reply::Done),
    };
    say(
        &mut output,
        &reply.unwrap_or_else(|error| Reply::Failed(error.to_string())),
    )
}

fn read<T: DeserializeOwned>(input: &mut impl BufRead) -> io::Result<T> {
    let mut line = String::new();
    input.read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

fn say(output: &mut impl Write, reply: &Reply) -> io::Result<()> {
    let line = serde_json::to_string(reply)?;
    writeln!(output, "{line}")?;
    output.flush()
}

impl From<MachineError> for TrialError {
    fn from(error: MachineError) -> Self {
        failed(error.to_string())
    }
}

/// How fast guests are here.
fn measure() -> Result<Pace, MachineError> {
    let khz = u64::from(tsc_khz()?);
    let user = fewest_ticks(Ring::User, PATIENCE)?.max(1);
    // What fails in ring 0 alone is as useless as what is slow there.
    let kernel = fewest_ticks(Ring::Kernel, PATIENCE / 10).unwrap_or(u64::MAX);
    Ok(Pace {
        tsc_khz: khz,
        per_us: (ROUNDS * khz / (1000 * user)).max(1),
        ring_0: kernel / 2 <= user,
    })
}

fn fewest_ticks(ring: Ring, patience: Nanos) -> Result<u64, MachineError> {
    let guest = Guest {
        job: Job::Measure { rounds: ROUNDS },
        vcpus: 1,
        ring,
        gap: u64::MAX,
        per_us: 1,
    };
    let running = guest.start(|_| Ok(()))?;
    let end = clock::now() + patience;
    while running.look(0).work < TRIES {
        running.check()?;
        if clock::now() >= end {
            return Err(MachineError::Stuck);
        }
        thread::sleep(Duration::from_millis(1));
    }
    let ticks = running.look(0).ticks;
    running.stop()?;
    Ok(ticks)
}

/// Runs a guest; `ready` is called when it could begin, and says when it counts.
fn work(task: &Task, ready: impl FnOnce() -> io::Result<Go>) -> Result<Vec<Done>, TrialError> {
    let guest = guest(task)?;
    // vCPUs wait for the one that has it locked.
    let gate = Arc::new(RwLock::new(()));
    let closed = gate.write().unwrap_or_else(PoisonError::into_inner);
    let (settled, tids) = channel();
    let prepare = {
        let (gate, pcpus, slice) = (Arc::clone(&gate), task.pcpus.clone(), task.slice);
        move |vcpu: usize| {
            let tid = settle(pcpus[vcpu], slice)?;
            // There is no receiver if another vCPU failed.
            let _ = settled.send((vcpu, tid));
            drop(gate.read());
            Ok(())
        }
    };
    let running = guest.start(prepare)?;
    let tids = all_tids(&running, &tids, task.pcpus.len())?;
    let go = ready()?;
    drop(closed);
    let mut vcpus: Vec<Vcpu> = tids.into_iter().map(|tid| Vcpu::new(tid, task)).collect();
    sleep_until(go.from);
    look(&running, &mut vcpus);
    let mut now = clock::now();
    while now < go.until {
        sleep_until((now + PERIOD).min(go.until));
        now = clock::now();
        look(&running, &mut vcpus);
    }
    running.check()?;
    let done = (0..).zip(vcpus);
    let done = done
        .map(|(number, vcpu)| vcpu.done(&running, number, task))
        .collect();
    running.stop()?;
    Ok(done)
}

/// The numbers of all vCPUs' threads.
fn all_tids(
    running: &Running,
    settled: &Receiver<(usize, u32)>,
    count: usize,
) -> Result<Vec<u32>, TrialError> {
    let mut tids = vec![0; count];
    let mut left = count;
    let end = clock::now() + PATIENCE;
    while left > 0 {
        match settled.recv_timeout(Duration::from_millis(10)) {
            Ok((vcpu, tid)) => {
                tids[vcpu] = tid;
                left -= 1;
            }
            Err(RecvTimeoutError::Timeout) if clock::now() < end => running.check()?,
            Err(_) => {
                running.check()?;
                return Err(MachineError::Stuck.into());
            }
        }
    }
    Ok(tids)
}

/// The guest that a task is.
fn guest(task: &Task) -> Result<Guest, TrialError> {
    let Pace {
        tsc_khz,
        per_us,
        ring_0,
    } = task.pace;
    let mut chance = Chance::new(task.seed);
    let mut table = |mut number: Box<dyn FnMut(&mut Chance) -> u64>| {
        (0..TABLE).map(|_| number(&mut chance)).collect::<Vec<_>>()
    };
    let job = match task.program {
        Program::Pages => Job::Pages {
            gaps: table(Box::new(|chance| ticks(chance.gap(BETWEEN_PAGES), tsc_khz))),
        },
        Program::Spin => Job::Spin {
            rounds: table(Box::new(|chance| (10 + chance.below(21)) * per_us)),
        },
        Program::List(bytes) if bytes > MOST_LIST => {
            let most = MOST_LIST >> 20;
            return Err(failed(format!(
                "a list of {} MiB is longer than guests here take: {most} MiB",
                bytes >> 20
            )));
        }
        Program::List(bytes) => Job::List {
            next: circle(lines(bytes), &mut chance),
        },
    };
    if task.pcpus.len() > MOST_VCPUS {
        return Err(failed(format!(
            "guests here have {MOST_VCPUS} vCPUs at most"
        )));
    }
    let spins = matches!(task.program, Program::Spin);
    Ok(Guest {
        job,
        vcpus: task.pcpus.len(),
        // Locks that are waited for like this are a kernel's.
        ring: if spins && ring_0 {
            Ring::Kernel
        } else {
            Ring::User
        },
        gap: ticks(GAP, tsc_khz),
        per_us,
    })
}

fn ticks(ns: Nanos, tsc_khz: u64) -> u64 {
    scaled(ns, tsc_khz, 1_000_000)
}

fn nanos(ticks: u64, tsc_khz: u64) -> Nanos {
    scaled(ticks, 1_000_000, tsc_khz.max(1))
}

fn scaled(value: u64, by: u64, of: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(by) / u128::from(of)).unwrap_or(u64::MAX)
}

fn sleep_until(when: Nanos) {
    thread::sleep(Duration::from_nanos(when.saturating_sub(clock::now())));
}

/// A vCPU while it counts.
struct Vcpu {
    tid: u32,
    /// The first look at which it had begun, and the last one.
    looks: Option<(Seen, Seen)>,
    counters: VcpuCounters,
    counted: Tally,
    /// Time on a pCPU, ns.
    run: Nanos,
    periods: Vec<Signals>,
}

impl Vcpu {
    fn new(tid: u32, task: &Task) -> Self {
        let counters = match task.subject {
            true => VcpuCounters::open(tid),
            false => VcpuCounters::default(),
        };
        Self {
            tid,
            looks: None,
            counted: counters.read(),
            counters,
            run: run_of(tid),
            periods: Vec::new(),
        }
    }

    fn done(self, running: &Running, number: usize, task: &Task) -> Done {
        let (first, last) = self.looks.unwrap_or_default();
        let khz = task.pace.tsc_khz;
        let elapsed = match task.program {
            Program::Pages => last.ticks - first.ticks,
            Program::List(_) | Program::Spin => last.last.saturating_sub(first.last),
        };
        // It is not known when the turn began in which it was looked at first.
        let turns = running.turns(number, first.turns + 1);
        Done {
            work: last.work - first.work,
            time: nanos(elapsed, khz),
            turns: turns.into_iter().map(|length| nanos(length, khz)).collect(),
            llc: None,
            periods: self.periods,
        }
    }
}

fn run_of(tid: u32) -> Nanos {
    let counted = Process::here(std::process::id()).thread(tid).counted();
    counted.map_or(0, |counted| counted.run)
}

/// Looks at all vCPUs: what they have done, and counted in a period in which they ran.
fn look(running: &Running, vcpus: &mut [Vcpu]) {
    let mut seen: Vec<Option<Signals>> = Vec::new();
    for (number, vcpu) in vcpus.iter_mut().enumerate() {
        let look = running.look(number);
        let before = std::mem::replace(&mut vcpu.run, run_of(vcpu.tid));
        let counted = vcpu.counters.read();
        let since = counted.since(&std::mem::replace(&mut vcpu.counted, counted));
        // The first period is not over yet.
        let first = vcpu.looks.is_none();
        seen.push((vcpu.run > before && !first).then_some(since));
        if look.last > 0 {
            vcpu.looks = Some((vcpu.looks.map_or(look, |(first, _)| first), look));
        }
    }
    let exits = seen.iter().flatten().filter_map(|it| it.pause_exits);
    let pause_exits = exits.reduce(u64::saturating_add);
    for (vcpu, seen) in vcpus.iter_mut().zip(seen) {
        vcpu.periods.extend(seen.map(|seen| Signals {
            pause_exits,
            ..seen
        }));
    }
}
