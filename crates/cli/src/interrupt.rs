// SPDX-License-Identifier: GPL-2.0-only
//! Ctrl-C while runs take minutes: what is done is not lost. No new run is begun, and the caller shows what there
//! is; a second Ctrl-C ends the process at once.

use signal_hook::consts::SIGINT;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The exit code of what SIGINT ended, as shells have it.
pub const EXIT_CODE: u8 = 128 + SIGINT as u8;

/// Whether somebody has had enough.
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on SIGINT is noted, and its second one ends the process.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn heeded() -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        // In this order: the first one must find the flag unset.
        let code = i32::from(EXIT_CODE);
        signal_hook::flag::register_conditional_shutdown(SIGINT, code, Arc::clone(&asked))?;
        signal_hook::flag::register(SIGINT, Arc::clone(&asked))?;
        Ok(Self(asked))
    }

    /// Has it come?
    pub fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What the command had done by then is shown; this is why it did no more.
#[derive(Debug)]
pub struct Interrupted(pub String);

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Interrupted {}
