// SPDX-License-Identifier: GPL-2.0-only
//! The daemon from start to end, and what is left to be done after one that crashed.

use crate::daemon::Daemon;
use crate::pace::PERIODS;
use crate::selection::Selection;
use crate::state::{self, State, Stuck};
use crate::system::Sys;
use corun_model::{Nanos, counted};
use corun_system::procfs::Proc;
use corun_system::{files, rights, signals};
use std::io;
use std::path::{Path, PathBuf};

/// Where threads that may have been moved are written down by default.
pub const STATE: &str = "/run/corun/guest.json";
/// Where the daemon says how it is by default.
pub const STATUS: &str = "/run/corun/guest-status.json";

/// Where to learn about I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// BPF if possible, else /proc.
    Auto,
    /// The block layer's tracepoints, by BPF.
    Bpf,
    /// /proc.
    Proc,
}

/// What to do.
pub struct GuestOptions {
    /// Which threads may be moved.
    pub selection: Selection,
    /// Where to learn about I/O.
    pub source: Source,
    /// Period of the heartbeats while there is something to move, ns; 50 µs to 10 ms.
    pub heartbeat: Nanos,
    /// The most that the daemon may use of each vCPU, thousandths; beats slow down before.
    pub own_permille: u32,
    /// Where threads that may have been moved are written down.
    pub state: PathBuf,
    /// Where the status goes.
    pub status: PathBuf,
    /// Where metrics go; `None`: nowhere.
    pub metrics: Option<PathBuf>,
    /// How long to work; `None`: until SIGINT, SIGTERM or SIGHUP.
    pub run_for: Option<Nanos>,
    /// Where people are told what happened at the start, a sentence each.
    pub notes: fn(&str),
}

/// Why the daemon ended, if nothing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The time it was given is over.
    TimeOver,
    /// A signal.
    Asked,
}

/// What went wrong. Whatever was changed has been given back, as far as that is possible.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// Nothing can be found out about threads.
    #[error("/proc is not mounted, or not for this PID namespace: nothing is known of threads")]
    NoProc,
    /// Nothing is known about vCPUs.
    #[error("cannot tell this guest's vCPUs from /sys/devices/system/cpu/online")]
    Online,
    /// Heartbeats would be late whenever the guest is busy, and say nothing.
    #[error(
        "not permitted to run before the guest's own work ({0}): run this as root, or with CAP_SYS_NICE; \
         without it a late heartbeat would not say whether its vCPU was away or only its thread had to wait"
    )]
    Priority(io::Error),
    /// BPF was asked for and does not work.
    #[error("--detector bpf: this kernel does not let us trace its block layer: {0}")]
    NoBpf(String),
    /// The period makes no sense.
    #[error("a heartbeat of {0} ns: 50 us to 10 ms are accepted")]
    Heartbeat(Nanos),
    /// The state file.
    #[error("{path}: {}", rights::in_words(.cause))]
    State {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        cause: io::Error,
    },
    /// Masks that are not as they were.
    #[error("{}; all other masks were given back, and {path} still has these: `corun guest restore` tries again",
        state::in_words(.threads.iter()).join("; "))]
    Stuck {
        /// The state file.
        path: PathBuf,
        /// Which threads.
        threads: Vec<Stuck>,
    },
    /// Status or metrics.
    #[error("cannot write or remove {path}: {}", rights::in_words(.cause))]
    Output {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        cause: io::Error,
    },
    /// Signals cannot be watched for.
    #[error("cannot watch for signals: {0}")]
    Signals(io::Error),
}

/// Keeps I/O-bound threads on vCPUs that run, until told to stop; then sets all masks back.
///
/// # Errors
/// [`GuestError`]; everything is given back then, too.
pub fn run(options: GuestOptions) -> Result<(Cause, usize), GuestError> {
    if !PERIODS.contains(&options.heartbeat) {
        return Err(GuestError::Heartbeat(options.heartbeat));
    }
    let asked = signals::watch().map_err(GuestError::Signals)?;
    let (state, left) = open(&options.state)?;
    if left > 0 {
        (options.notes)(&format!(
            "gave back what an earlier daemon had left of {}",
            counted(left, "thread")
        ));
    }
    for stuck in state::in_words(state.stuck()) {
        (options.notes)(&format!(
            "left by an earlier daemon, and tried again: {stuck}"
        ));
    }
    let sys = Sys::default();
    for path in options
        .selection
        .cgroups
        .iter()
        .filter(|path| !sys.has_cgroup(path))
    {
        (options.notes)(&format!(
            "--cgroup {path}: there is no such cgroup in /sys/fs/cgroup; what comes to be in it later may be moved"
        ));
    }
    let vcpus = sys.online().ok_or(GuestError::Online)?;
    let mut daemon = Daemon::new(options, state, vcpus)?;
    let ended = daemon.serve(&asked);
    let count = daemon.finish()?;
    Ok((ended?, count))
}

/// Gives back what a daemon that crashed has left, and removes the files (`told`) with its status: a reader would take
/// the daemon to be there. Returns to how many threads.
///
/// # Errors
/// [`GuestError`], for instance because a daemon is at work.
pub fn restore(path: &Path, told: &[&Path]) -> Result<usize, GuestError> {
    let (state, count) = open(path)?;
    for file in told {
        files::remove(file).map_err(|cause| GuestError::Output {
            path: file.to_path_buf(),
            cause,
        })?;
    }
    none_is_stuck(path, &state)?;
    Ok(count)
}

/// Have all threads been given back what they had?
pub(crate) fn none_is_stuck(path: &Path, state: &State) -> Result<(), GuestError> {
    let threads: Vec<Stuck> = state.stuck().cloned().collect();
    match threads.is_empty() {
        true => Ok(()),
        false => Err(GuestError::Stuck {
            path: path.to_path_buf(),
            threads,
        }),
    }
}

/// Is a daemon at work with this state file?
///
/// # Errors
/// [`GuestError::State`] if the caller may not know.
pub fn is_running(path: &Path) -> Result<bool, GuestError> {
    state::is_in_use(path).map_err(|cause| GuestError::State {
        path: path.to_path_buf(),
        cause,
    })
}

fn open(path: &Path) -> Result<(State, usize), GuestError> {
    let proc = Proc::default();
    if !proc.is_mounted() {
        return Err(GuestError::NoProc);
    }
    State::open(path, &proc).map_err(|cause| GuestError::State {
        path: path.to_path_buf(),
        cause,
    })
}
