// SPDX-License-Identifier: GPL-2.0-only
//! Ctrl-C while runs take minutes: what is done is not lost. No new run begins, and the caller shows what there is; a
//! second Ctrl-C ends the process at once.
//!
//! A single run is worth nothing until it is over, and a comparison not until all its runs are: Ctrl-C ends it, what it
//! has begun to write goes with it ([`tidy_up`]), and it says how far it was ([`Pending`]).

use crate::output;
use corun_system::signals;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread;

/// The exit code of a command that SIGINT ended, as shells report it.
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

/// The reason why the command did no more; what it had done by then is shown.
#[derive(Debug)]
pub struct Interrupted(pub String);

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Interrupted {}

/// Files that are not whole yet: their temporary names and their final ones.
static UNFINISHED: Mutex<Vec<(PathBuf, PathBuf)>> = Mutex::new(Vec::new());

fn unfinished() -> MutexGuard<'static, Vec<(PathBuf, PathBuf)>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many are done of the runs whose results are shown together.
#[derive(Clone, Copy)]
struct Runs {
    what: &'static str,
    done: usize,
    of: usize,
    /// It depends on their results whether there will be more.
    open: bool,
}

static RUNS: Mutex<Option<Runs>> = Mutex::new(None);

fn runs() -> MutexGuard<'static, Option<Runs>> {
    RUNS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While this is there, nothing is shown or written yet: a user who interrupts it is told how many runs were done.
pub struct Pending(());

impl Pending {
    /// None so far, of some that are called `what`; `open` if there may be more later.
    ///
    /// # Errors
    /// If signals cannot be watched for.
    pub fn of(what: &'static str, open: bool) -> io::Result<Self> {
        *runs() = Some(Runs {
            what,
            done: 0,
            of: 0,
            open,
        });
        tidy_up()?;
        Ok(Self(()))
    }

    /// `of` more are to be done.
    pub fn more(&self, of: usize) {
        if let Some(runs) = &mut *runs() {
            runs.of += of;
        }
    }

    /// All are done, and results are about to be shown.
    pub fn over(&self) {
        *runs() = None;
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.over();
    }
}

/// One more run is done, if they are counted.
pub fn run_done() {
    if let Some(runs) = &mut *runs() {
        runs.done += 1;
    }
}

impl std::fmt::Display for Runs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { what, done, of, .. } = self;
        match (of, self.open) {
            (1, false) => write!(f, "the {what} was not over")?,
            (_, false) => write!(f, "{done} of {of} {what}s were done")?,
            (_, true) => write!(f, "{done} of {of} {what}s or more were done")?,
        }
        f.write_str("; no results are shown or written")
    }
}

/// From now on, if a signal ends the process, files that are not whole are removed first, and the process says so.
/// Signals that are ignored stay ignored.
///
/// # Errors
/// If signals cannot be watched for.
pub fn tidy_up() -> io::Result<()> {
    static WATCHED: Once = Once::new();
    let mut result = Ok(());
    WATCHED.call_once(|| result = watch());
    result
}

fn watch() -> io::Result<()> {
    let mut heeded = Vec::new();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        if !signals::is_ignored(signal)? {
            heeded.push(signal);
        }
    }
    let mut signals = Signals::new(heeded)?;
    let tidy = move || {
        let Some(signal) = signals.forever().next() else {
            return;
        };
        // The progress shown there does not end its line.
        if io::stderr().is_terminal() {
            output::note("");
        }
        let runs = *runs();
        if let Some(runs) = runs {
            output::note(&format!("corun: interrupted: {runs}"));
        }
        // From here on nobody can finish a file.
        let unfinished = unfinished();
        for (temporary, file) in unfinished.iter() {
            let _ = fs::remove_file(temporary);
            output::note(&format!(
                "corun: interrupted: {} is not written",
                file.display()
            ));
        }
        std::process::exit(128 + signal);
    };
    thread::Builder::new()
        .name("interrupt".to_string())
        .spawn(tidy)
        .map(drop)
}

/// `temporary` is to become `file`.
pub fn leave_nothing_of(temporary: &Path, file: &Path) {
    unfinished().push((temporary.to_path_buf(), file.to_path_buf()));
}

/// Runs `then`, which turns `temporary` into something else, unless the process is about to end.
pub fn unless_interrupted<T>(temporary: &Path, then: impl FnOnce() -> T) -> T {
    let mut unfinished = unfinished();
    let done = then();
    unfinished.retain(|(known, _)| known != temporary);
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_it_was_is_told_in_words() {
        let told = |done, of, open| {
            let what = "run";
            Runs {
                what,
                done,
                of,
                open,
            }
            .to_string()
        };
        assert!(told(0, 1, false).starts_with("the run was not over; no results"));
        assert!(told(3, 8, false).starts_with("3 of 8 runs were done; "));
        assert!(told(3, 8, true).starts_with("3 of 8 runs or more were done; "));
    }
}
