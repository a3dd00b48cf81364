// SPDX-License-Identifier: GPL-2.0-only
//! What several tests need: processes to move about, and a daemon.

use crate::daemon::Daemon;
use crate::guest::{GuestOptions, Source};
use crate::selection::Selection;
use crate::state::{Before, State};
use corun_model::PcpuSet;
use corun_model::time::MS;
use corun_system::affinity;
use corun_system::procfs::{Proc, ThreadKey};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A process that waits until it is dropped.
pub(crate) struct Sleeper(pub(crate) Child);

impl Sleeper {
    pub(crate) fn new() -> Self {
        let sleeper = Self(Command::new("sleep").arg("60").spawn().unwrap());
        // The process exists before it has its own name.
        let thread = Proc::default().thread(sleeper.id(), sleeper.id());
        while thread.name().as_deref() != Some("sleep") {
            std::thread::yield_now();
        }
        sleeper
    }

    /// Any shell script.
    pub(crate) fn of(script: &str) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn key(&self) -> ThreadKey {
        key_of(self.id(), self.id())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn key_of(tgid: u32, tid: u32) -> ThreadKey {
    let start = Proc::default().thread(tgid, tid).start().unwrap();
    ThreadKey { tgid, tid, start }
}

/// A thread whose mask the kernel lets nobody set, of several vCPUs or of one: the kernel's own threads have such
/// masks. `None`: none is visible here.
pub(crate) fn fixed_thread(several: bool) -> Option<ThreadKey> {
    let proc = Proc::default();
    let fits = |tid: &u32| {
        let is_fixed = proc.thread(*tid, *tid).stat().is_some_and(|it| it.is_fixed);
        is_fixed && affinity::get(*tid).is_ok_and(|mask| (mask.len() > 1) == several)
    };
    let found = proc.processes().into_iter().find(fits)?;
    Some(key_of(found, found))
}

/// A thread that was free when it was written down, at time 0.
pub(crate) fn was_free(allowed: PcpuSet) -> Before {
    Before {
        allowed,
        free: true,
        since: 0,
    }
}

/// A daemon that keeps its files in `folder`, and does nothing by itself; `None`: it may not work here.
pub(crate) fn daemon_in(folder: &Path, source: Source) -> Option<Daemon> {
    let at = |name: &str| folder.join(name);
    let options = GuestOptions {
        selection: Selection::default(),
        source,
        heartbeat: MS,
        own_permille: 10,
        state: at("state.json"),
        status: at("status.json"),
        metrics: None,
        run_for: None,
        notes: |_| (),
    };
    let (state, _) = State::open(&options.state, &Proc::default()).unwrap();
    Daemon::new(options, state, affinity::get(0).unwrap()).ok()
}
