// SPDX-License-Identifier: GPL-2.0-only
//! What several tests need: processes to move about.

use crate::proc::{Key, Proc};
use crate::state::Before;
use corun_model::PcpuSet;
use std::process::{Child, Command, Stdio};

/// A process that waits until it is dropped.
pub(crate) struct Sleeper(pub(crate) Child);

impl Sleeper {
    pub(crate) fn new() -> Self {
        // No child of the shell, which would inherit what its parent is pinned to meanwhile.
        Self::of("exec sleep 60")
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

    pub(crate) fn key(&self) -> Key {
        key_of(self.id(), self.id())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn key_of(tgid: u32, tid: u32) -> Key {
    let start = Proc::default().stat(tgid, tid).unwrap().start;
    Key { tgid, tid, start }
}

/// A thread that was free when it was written down, at the beginning of time.
pub(crate) fn was_free(allowed: PcpuSet) -> Before {
    Before {
        allowed,
        free: true,
        since: 0,
    }
}
