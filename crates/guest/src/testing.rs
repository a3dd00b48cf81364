// SPDX-License-Identifier: GPL-2.0-only
//! What several tests need: processes to move about.

use crate::state::Before;
use corun_model::PcpuSet;
use corun_system::procfs::{Proc, ThreadKey};
use std::process::{Child, Command, Stdio};

/// A process that waits until it is dropped.
pub(crate) struct Sleeper(pub(crate) Child);

impl Sleeper {
    pub(crate) fn new() -> Self {
        let sleeper = Self(Command::new("sleep").arg("60").spawn().unwrap());
        // It is there before it has its own name.
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

/// A thread that was free when it was written down, at the beginning of time.
pub(crate) fn was_free(allowed: PcpuSet) -> Before {
    Before {
        allowed,
        free: true,
        since: 0,
    }
}
