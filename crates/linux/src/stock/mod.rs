// SPDX-License-Identifier: GPL-2.0-only
//! corun without sched_ext: policies about slices and pools of pCPUs, carried out by the two things that can be set for
//! a thread under Linux' own scheduler.
//!
//! A pool becomes an affinity mask; a slice becomes the one that the thread asks for (since 6.12). Everything else is
//! up to the kernel: which task runs next, when a woken vCPU preempts, where within its mask a vCPU goes. A slice is
//! only a request. For a shorter one, EEVDF gives a vCPU an earlier deadline. A long one may be ended early by tasks
//! that wait for the same pCPU: since 6.17 a task keeps its pCPU only for the shortest slice that any of them asks for
//! (`set_protect_slice()` in kernel/sched/fair.c), and an ordinary thread of the host asks for some 3 ms. What was
//! changed is set back at the end, and after a crash by the next daemon ([`state`]). Policies that decide at wake-ups
//! and switches need sched_ext and are refused.

mod around;
mod find;
mod left;
mod notes;
mod report;
mod state;
pub mod thread;

use crate::host::{Cause, HostError, same_pcpus};
use crate::output::Output;
use crate::outside::task_seen;
use crate::perf::{Tally, VcpuCounters};
use crate::{descriptors, machine, preflight, priority, sched_ext};
use corun_model::time::{MS, SEC};
use corun_model::{
    HostSeen, Nanos, PcpuSet, Placement, Plan, Pool, Snapshot, TaskId, TaskPlan, VmId, VmSeen,
};
use corun_policies::weighing::{Place, Weighing};
use corun_policies::{Policy, PolicyInfo, Settings};
use corun_system::affinity;
use corun_system::clock;
use corun_system::procfs::{Counted, Process, ThreadKey};
use corun_system::rights;
use corun_system::signals;
use find::{Vcpu, Vm, Vms};
use left::NotBack;
pub use left::Stuck;
use notes::Notes;
use report::Report;
use state::State;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The policies that it can carry out.
pub const SERVED: [&str; 6] = [
    "fair",
    "affinity",
    "aql",
    "vslicer",
    "vturbo",
    "microsliced",
];
/// Those that are about nothing but slices.
const SLICES_ONLY: [&str; 2] = ["vslicer", "microsliced"];
/// Where changes are written down by default.
pub const STATE: &str = "/run/corun/fair.json";
/// How often VMs are looked for: that goes through all threads of the host, which every 30 ms took a seventh
/// of a pCPU on a host with 200 of them. Known vCPUs are asked every period.
const THOROUGH: Nanos = SEC;
/// How long the daemon sleeps at most: how soon it sees a signal.
const NAP: Nanos = 50 * MS;

/// What to do.
pub struct StockOptions {
    /// The policy.
    pub policy: &'static PolicyInfo,
    /// What it is made of.
    pub settings: Settings,
    /// How often statistics are printed; `None`: never.
    pub interval: Option<Nanos>,
    /// How long; `None`: until SIGINT, SIGTERM or SIGHUP.
    pub run_for: Option<Nanos>,
    /// Statistics as lines of JSON instead of text.
    pub json: bool,
    /// Where changes are written down.
    pub state: PathBuf,
    /// Where statistics go.
    pub out: Box<dyn Write + Send>,
    /// Where notes about what cannot be done go, a sentence each.
    pub notes: fn(&str),
}

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum StockError {
    /// This backend has no such policy.
    #[error(
        "policy {0} needs sched_ext: it decides whenever a vCPU wakes or a pCPU switches, and without \
         it only slices and affinities of threads can be set; --backend fair has {list}", list = SERVED.join(", ")
    )]
    NotServed(&'static str),
    /// The kernel is too old for what the policy is about.
    #[error(
        "policy {0} is about slices, and this kernel takes none from threads: Linux 6.12 and newer do"
    )]
    NoSlices(&'static str),
    /// Another scheduler is in charge.
    #[error(
        "the sched_ext scheduler {0} is in charge of this host: slices mean nothing to it, and the policy does not \
         know what it makes of affinities; end it first, or leave out --backend fair"
    )]
    OtherScheduler(String),
    /// Another scheduler came.
    #[error(
        "the sched_ext scheduler {0} has taken this host over, to which slices mean nothing: so what was set of \
         threads is taken back"
    )]
    TakenOver(String),
    /// The state file.
    #[error("{path}: {}", rights::in_words(.cause))]
    State {
        /// The file.
        path: String,
        /// Why.
        cause: io::Error,
    },
    /// A thread keeps what was set for it.
    #[error(
        "{stuck}; that is tried again by the next start or --restore, for which {path} still has it"
    )]
    Stuck {
        /// The state file.
        path: String,
        /// Which thread, and why.
        stuck: Stuck,
    },
    /// As with sched_ext, for example because pCPUs came or went.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// Serves this host's VMs until told to stop; then everything is as before.
///
/// # Errors
/// [`StockError`]; everything is taken back then, too, as far as it can be.
pub fn run(options: StockOptions) -> Result<Cause, StockError> {
    let name = options.policy.name;
    if !SERVED.contains(&name) {
        return Err(StockError::NotServed(name));
    }
    let host = Host::default();
    host.is_for_us()?;
    let own_slice = thread::own_slice();
    if own_slice.is_none() {
        if SLICES_ONLY.contains(&name) {
            return Err(StockError::NoSlices(name));
        }
        (options.notes)(
            "this kernel takes no slices from threads (Linux 6.12 and newer do): only affinities are set",
        );
    }
    let asked = signals::watch().map_err(HostError::Signals)?;
    priority::raise();
    descriptors::raise_limit();
    let online = preflight::online().ok_or(HostError::Online)?;
    let path = options.state.display().to_string();
    let failed = |cause| StockError::State {
        path: path.clone(),
        cause,
    };
    let (state, left) = State::open(&options.state, own_slice).map_err(failed)?;
    left.notes().iter().for_each(|note| (options.notes)(note));
    let daemon = Daemon::new(options, state, online)?;
    daemon.serve(&asked, host)
}

/// Takes back what a killed daemon has left set for threads. Returns what people should know.
///
/// # Errors
/// [`StockError::State`], such as that a daemon is at work, or why not all could be taken back.
pub fn restore(state: &Path) -> Result<Vec<String>, StockError> {
    let failed = |cause| StockError::State {
        path: state.display().to_string(),
        cause,
    };
    // Where nothing was ever changed nothing is made, either.
    if fs::symlink_metadata(state).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Ok(Vec::new());
    }
    let (_, left) = State::open(state, thread::own_slice()).map_err(failed)?;
    match left.stuck {
        Some(stuck) => Err(not_back(state, NotBack::Thread(stuck))),
        None => Ok(left.notes()),
    }
}

fn not_back(state: &Path, why: NotBack) -> StockError {
    let path = state.display().to_string();
    match why {
        NotBack::Thread(stuck) => StockError::Stuck { path, stuck },
        NotBack::File(cause) => StockError::State { path, cause },
    }
}

/// What the run comes to. How it ended takes precedence over what could not be taken back after that.
fn settle(
    ended: Result<Cause, StockError>,
    back: Result<(), StockError>,
    notes: fn(&str),
) -> Result<Cause, StockError> {
    if let (Err(_), Err(more)) = (&ended, &back) {
        notes(&format!("and then: {more}"));
    }
    let cause = ended?;
    back.map(|()| cause)
}

/// How to find out about the host what everything rests on.
#[derive(Clone, Copy)]
struct Host {
    /// The pCPUs that are online.
    online: fn() -> Option<PcpuSet>,
    /// The scheduler in charge instead of the kernel's own.
    other: fn() -> Option<String>,
}

impl Default for Host {
    fn default() -> Self {
        Self {
            online: preflight::online,
            other: sched_ext::in_charge,
        }
    }
}

impl Host {
    /// Does the kernel's own scheduler run it?
    fn is_for_us(&self) -> Result<(), StockError> {
        (self.other)().map_or(Ok(()), |other| Err(StockError::OtherScheduler(other)))
    }

    /// Is it still as it was reported at the start?
    fn is_as_told(&self, online: &PcpuSet) -> Result<(), StockError> {
        if let Some(other) = (self.other)() {
            return Err(StockError::TakenOver(other));
        }
        Ok(same_pcpus(online, (self.online)())?)
    }
}

struct Daemon {
    options: StockOptions,
    output: Output,
    policy: Box<dyn Policy>,
    state: State,
    vms: Vms,
    /// What VMs weigh with the cgroups around theirs.
    weighing: Weighing,
    counters: BTreeMap<TaskId, (VcpuCounters, Counted, Tally)>,
    host: HostSeen,
    online: PcpuSet,
    began: Nanos,
    last: Nanos,
    due: Nanos,
    thorough_due: Nanos,
    end: Option<Nanos>,
    report: Report,
    /// What has been printed already.
    noted: Notes,
}

impl Daemon {
    fn new(mut options: StockOptions, state: State, online: PcpuSet) -> Result<Self, StockError> {
        let began = clock::now();
        let out = std::mem::replace(&mut options.out, Box::new(io::sink()));
        Ok(Self {
            policy: (options.policy.make)(&options.settings),
            state,
            vms: Vms::default(),
            weighing: Weighing::default(),
            counters: BTreeMap::new(),
            host: machine::seen(&online).map_err(HostError::Topology)?,
            online,
            began,
            last: began,
            due: began,
            thorough_due: began,
            end: options.run_for.map(|time| began.saturating_add(time)),
            report: Report::new(options.interval, began),
            noted: Notes::default(),
            output: Output::new(out, options.notes),
            options,
        })
    }

    /// Works until it is `asked` to end, its time is over or something fails; then everything is as before.
    fn serve(mut self, asked: &AtomicBool, host: Host) -> Result<Cause, StockError> {
        let ended = loop {
            if asked.load(Ordering::Relaxed) {
                break Ok(Cause::Asked);
            }
            if self.end.is_some_and(|end| clock::now() >= end) {
                break Ok(Cause::TimeOver);
            }
            if let Err(error) = self.turn(host) {
                break Err(error);
            }
        };
        let back = self.state.restore();
        let back = back.map_err(|why| not_back(&self.options.state, why));
        let printed = self.output.finish().map_err(HostError::Output);
        let notes = self.options.notes;
        let ended = settle(ended, back.map(|_| ()), notes);
        settle(ended, printed.map_err(StockError::from), notes)
    }

    fn failed(&self, cause: io::Error) -> StockError {
        StockError::State {
            path: self.options.state.display().to_string(),
            cause,
        }
    }

    /// Does what is due, or sleeps until something is.
    fn turn(&mut self, host: Host) -> Result<(), StockError> {
        self.output.check().map_err(HostError::Output)?;
        let now = clock::now();
        if now >= self.due {
            self.due = now + self.policy.period();
            self.ask(now, host)?;
        }
        let counted = |task| Some(self.counters.get(&task)?.1);
        if let Some(lines) = self.report.due(now, &self.vms.list, counted) {
            let text = report::printed(&lines, self.options.json);
            let put = text.and_then(|text| self.output.put(text));
            put.map_err(HostError::Output)?;
        }
        let next = [Some(now + NAP), Some(self.due), self.end];
        let next = next.into_iter().flatten().min().unwrap_or(now);
        std::thread::sleep(Duration::from_nanos(next.saturating_sub(clock::now())));
        Ok(())
    }

    /// A period is over: asks the policy and does what it says.
    fn ask(&mut self, now: Nanos, host: Host) -> Result<(), StockError> {
        let thorough = now >= self.thorough_due;
        if thorough {
            self.thorough_due = now + THOROUGH;
            // Pools and homes are made of these; and a thread that was bound to a pCPU that has
            // gone may run anywhere, though that pCPU is back by now.
            host.is_as_told(&self.online)?;
            self.vms.refresh();
        }
        self.heed(thorough);
        let elapsed = now - self.last;
        self.last = now;
        let seen = self.look(now, elapsed);
        let mut plan = Plan::default();
        self.policy.decide(&seen, &mut plan);
        let wanted = wishes(&self.vms.list, &plan, &self.online);
        let failed = self.state.set(&wanted);
        let failed = failed.map_err(|cause| self.failed(cause))?;
        let vcpus = self.vms.list.iter().flat_map(|vm| &vm.vcpus);
        let mut said = self.policy.status().notes;
        said.extend(self.vms.notes());
        let news = self.noted.news(said, &failed, vcpus.map(|vcpu| vcpu.key));
        news.iter().for_each(|note| (self.options.notes)(note));
        Ok(())
    }

    /// Masks that others have set since are what vCPUs may use from now on, within their cpusets. Masks are
    /// read each time before any is set: otherwise what another process has set a moment before
    /// would be lost.
    fn heed(&mut self, thorough: bool) {
        let vcpus = || self.vms.list.iter().flat_map(|vm| &vm.vcpus);
        let found = vcpus().filter_map(|vcpu| Some((vcpu.key, affinity::get(vcpu.key.tid).ok()?)));
        let theirs = self.state.heed(found.collect(), &self.online, thorough);
        for vcpu in self.vms.list.iter_mut().flat_map(|vm| &mut vm.vcpus) {
            if let Some(pcpus) = theirs.get(&vcpu.key) {
                vcpu.allowed = *pcpus;
            }
        }
    }

    /// What happened in the last `elapsed` ns.
    fn look(&mut self, now: Nanos, elapsed: Nanos) -> Snapshot {
        let mut before = std::mem::take(&mut self.counters);
        let wants_signals = self.policy.wants_signals();
        let mut vms = Vec::new();
        for vm in &self.vms.list {
            let mut vcpus = Vec::new();
            for vcpu in &vm.vcpus {
                let Some(counted) = Process::here(vcpu.key.tgid).thread(vcpu.key.tid).counted()
                else {
                    continue;
                };
                let (counters, last, then) = before.remove(&vcpu.task).unwrap_or_else(|| {
                    let counters = match wants_signals {
                        true => VcpuCounters::open(vcpu.key.tid),
                        false => VcpuCounters::default(),
                    };
                    (counters, counted, Tally::default())
                });
                let tally = counters.read();
                let (did, seen) = (counted.since(last), tally.since(&then));
                vcpus.push(task_seen(
                    (vcpu.task, vcpu.own),
                    vcpu.allowed,
                    did,
                    seen,
                    elapsed,
                ));
                self.report.there(vcpu.task, counted);
                self.counters.insert(vcpu.task, (counters, counted, tally));
            }
            vms.push(VmSeen {
                vm: vm.vm,
                weight: vm.weight,
                effective: None,
                quotas: Vec::new(),
                cookie: 0, // of no policy that is carried out here
                vcpus,
            });
        }
        let mut seen = Snapshot {
            now: now - self.began,
            host: self.host.clone(),
            vms,
            others: Vec::new(),
        };
        let places = self.vms.list.iter().map(|vm| (vm.vm, &vm.place));
        let places: BTreeMap<VmId, &Place> = places.collect();
        self.weighing
            .weigh(&mut seen, &|vm| places.get(&vm).copied());
        seen
    }
}

/// What a plan means for threads.
fn wishes(vms: &[Vm], plan: &Plan, online: &PcpuSet) -> Vec<(ThreadKey, state::Settings)> {
    let tasks: BTreeMap<_, _> = plan.tasks.iter().map(|task| (task.task, task)).collect();
    let placements: BTreeMap<_, _> = plan.vms.iter().map(|vm| (vm.vm, vm.placement)).collect();
    let mut wishes = Vec::new();
    for vm in vms {
        let placement = placements.get(&vm.vm).copied().unwrap_or_default();
        for vcpu in &vm.vcpus {
            let said = tasks.get(&vcpu.task).copied();
            let wish = wish(vcpu, placement, said, &plan.pools, online);
            wishes.push((vcpu.key, wish));
        }
    }
    wishes
}

fn wish(
    vcpu: &Vcpu,
    placement: Placement,
    said: Option<&TaskPlan>,
    pools: &[Pool],
    online: &PcpuSet,
) -> state::Settings {
    let pool = said.and_then(|task| pools.get(task.pool?));
    let confined = match placement {
        Placement::Fixed => said.and_then(|task| Some([task.home?].into_iter().collect())),
        Placement::Pool => pool.map(|pool| pool.pcpus),
        _ => None,
    };
    // Never more than its administrator allows, and never nothing.
    let usable = |pcpus: PcpuSet| pcpus.and(&vcpu.allowed).and(online);
    let affinity = confined.map(usable).filter(|pcpus| !pcpus.is_empty());
    let slice = said
        .and_then(|task| task.slice)
        .or(pool.map(|pool| pool.slice));
    let (least, most) = (*thread::SLICES.start(), *thread::SLICES.end());
    state::Settings {
        affinity: affinity.unwrap_or(vcpu.allowed),
        slice: slice.map(|slice| slice.clamp(least, most)),
    }
}

#[cfg(test)]
mod tests;
