// SPDX-License-Identifier: GPL-2.0-only
//! A trial with guests of KVM: a process for each VM, named as VMs are, so that a program that
//! looks for VMs finds them, with vCPUs that run the programs of [`corun_microvm::native`].
//!
//! The processes are this command again ([`serve`]). They get orders and send replies over pipes, a line of JSON each
//! way ([`Order`], [`Reply`]). They use nothing of the host but memory and threads, and end with the process that
//! started them, however that ends: nothing has to be put back.

mod child;

pub use child::{end_with_parent, serve};

use super::{Done, Outcome, Program, Trial, TrialError};
use corun_model::time::MS;
use corun_model::{Nanos, PcpuId};
use corun_system::clock;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// From when all are ready to when their time begins, so that all have heard of it.
const NOTICE: Nanos = 20 * MS;

/// How fast guests run here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pace {
    /// The time-stamp counter's frequency, kHz.
    tsc_khz: u64,
    /// Rounds of a loop in a microsecond, in ring 3.
    per_us: u64,
    /// Is ring 0 as fast? Where KVM has no help from the processor, it is some hundred times slower.
    ring_0: bool,
}

/// The first order to a guest's process.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Order {
    /// Measure.
    Measure,
    /// Get ready.
    Work(Task),
}

/// What a guest does in a trial.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Task {
    program: Program,
    /// The pCPU of each vCPU.
    pcpus: Vec<PcpuId>,
    slice: Nanos,
    /// The seed of its random numbers.
    seed: u64,
    pace: Pace,
    /// Is it the subject, whose counters matter?
    subject: bool,
}

/// What it is told when all are ready: when it counts, by this host's monotonic clock.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Go {
    from: Nanos,
    until: Nanos,
}

/// Its reply.
#[derive(Debug, Serialize, Deserialize)]
enum Reply {
    Measured(Pace),
    Ready,
    /// What its vCPUs have done.
    Done(Vec<Done>),
    /// Why there is no other reply.
    Failed(String),
}

/// Guests that this host can run.
#[derive(Clone, Debug)]
pub struct Guests {
    program: PathBuf,
    words: Vec<String>,
    pace: Pace,
}

impl Guests {
    /// Tries whether guests run here. `program` with `words` and `--name NAME` is a process that calls
    /// [`serve`].
    ///
    /// # Errors
    /// [`TrialError::Guest`]: why none do.
    pub fn find(program: PathBuf, words: &[&str]) -> Result<Self, TrialError> {
        let words = words.iter().map(|word| word.to_string()).collect();
        // Not known yet, and not needed to measure it.
        let pace = Pace {
            tsc_khz: 0,
            per_us: 0,
            ring_0: false,
        };
        let mut guests = Self {
            program,
            words,
            pace,
        };
        match guests.start("calibrate-pace", &Order::Measure)?.hear()? {
            Reply::Measured(pace) => guests.pace = pace,
            other => return Err(unexpected(&other)),
        }
        Ok(guests)
    }

    /// Do they spin where a processor counts it? Intel's look at PAUSE in ring 0 only.
    pub fn spin_in_ring_0(&self) -> bool {
        self.pace.ring_0
    }

    /// Runs a trial: takes its warm-up and time, and what guests need to get ready.
    ///
    /// # Errors
    /// [`TrialError`].
    pub fn run(&self, trial: &Trial) -> Result<Outcome, TrialError> {
        trial.check_memory()?;
        let (subject, count) = trial.subject;
        let mut guests = vec![self.guest(trial, subject, 0..count)?];
        for (number, other) in (count..).zip(&trial.others) {
            guests.push(self.guest(trial, *other, number..number + 1)?);
        }
        for guest in &mut guests {
            match guest.hear()? {
                Reply::Ready => {}
                other => return Err(unexpected(&other)),
            }
        }
        let from = clock::now() + NOTICE + trial.warm_up;
        let until = from + trial.time;
        for guest in &mut guests {
            guest.tell(&Go { from, until })?;
        }
        let mut all = Vec::new();
        for guest in &mut guests {
            match guest.hear()? {
                Reply::Done(done) => all.extend(done),
                other => return Err(unexpected(&other)),
            }
        }
        Ok(Outcome::of(all, count))
    }

    /// A VM with these of all vCPUs.
    fn guest(
        &self,
        trial: &Trial,
        program: Program,
        numbers: std::ops::Range<usize>,
    ) -> Result<Guest, TrialError> {
        let first = numbers.start;
        let pcpus: Result<Vec<PcpuId>, _> = numbers.map(|number| trial.pcpu(number)).collect();
        let task = Task {
            program,
            pcpus: pcpus?,
            slice: trial.slice,
            seed: first as u64,
            pace: self.pace,
            subject: first == 0,
        };
        let name = format!("calibrate-{first}-{}", program.name());
        self.start(&name, &Order::Work(task))
    }

    fn start(&self, name: &str, order: &Order) -> Result<Guest, TrialError> {
        let mut process = Command::new(&self.program)
            .args(&self.words)
            .args(["--name", name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| failed(format!("{}: {error}", self.program.display())))?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let mut guest = Guest {
            name: name.to_string(),
            pipes: pipes.map(|(to, from)| (to, BufReader::new(from))),
            process,
        };
        guest.tell(order)?;
        Ok(guest)
    }
}

fn failed(text: String) -> TrialError {
    TrialError::Guest(text)
}

fn unexpected(reply: &Reply) -> TrialError {
    failed(match reply {
        Reply::Failed(why) => why.clone(),
        other => format!("a guest's process said what it was not asked: {other:?}"),
    })
}

/// A guest's process. It ends with this.
struct Guest {
    name: String,
    process: Child,
    pipes: Option<(ChildStdin, BufReader<ChildStdout>)>,
}

impl Guest {
    fn tell(&mut self, what: &impl Serialize) -> Result<(), TrialError> {
        let line = serde_json::to_string(what).map_err(|error| failed(error.to_string()))?;
        let told = self.pipes.as_mut().map(|(to, _)| writeln!(to, "{line}"));
        match told {
            Some(Ok(())) => Ok(()),
            _ => Err(self.gone()),
        }
    }

    fn hear(&mut self) -> Result<Reply, TrialError> {
        let mut line = String::new();
        let heard = self
            .pipes
            .as_mut()
            .and_then(|(_, from)| from.read_line(&mut line).ok());
        match heard {
            Some(bytes) if bytes > 0 => serde_json::from_str(&line)
                .map_err(|error| failed(format!("{} said no reply: {error}", self.name))),
            _ => Err(self.gone()),
        }
    }

    fn gone(&mut self) -> TrialError {
        let _ = self.process.kill();
        let how = match self.process.wait() {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        failed(format!("the process of {} ended: {how}", self.name))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests;
