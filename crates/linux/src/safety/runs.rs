// SPDX-License-Identifier: GPL-2.0-only
//! How runs of the daemon ended, so that a daemon that keeps failing is not started for ever.
//!
//! A run is written down just before the dispatcher is put in charge, and how it ended afterwards: what fails before
//! that stops no task of the host, and may be tried again and again. A run without an end was killed, or the host died
//! under it; the kernel's boot id tells which. After three bad ends within ten minutes (assumed: a service manager that
//! restarts at once would make hundreds) or one death of the host, preflight refuses until `--force` is given. That
//! does not pass with time: a service manager that goes on trying would make three bad ends of every ten minutes for
//! ever.

use crate::machine::boot;
use crate::preflight::{Finding, Severity};
use corun_system::files::{self, Lock};
use corun_system::procfs::Process;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bad ends that are too many.
const TOO_MANY: usize = 3;
/// Within this time, s, of the last one.
const LATELY: u64 = 600;
/// Runs remembered.
const KEPT: usize = 20;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// As asked, or its time was over.
    Asked,
    /// It handed the host back because a promise was broken.
    RolledBack,
    /// pCPUs came or went, and the kernel wants it started anew: not a fault.
    PcpusChanged,
    /// The kernel threw the dispatcher out.
    Ejected,
    /// It could not go on.
    Failed,
}

/// A run of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// When it began, s since 1970.
    pub began: u64,
    /// The daemon's process, and when that started, ticks since boot.
    pub pid: u32,
    /// As above.
    pub start: u64,
    /// Which boot of the host.
    pub boot: String,
    /// How it ended; `None`: it runs, or did not live to say.
    pub end: Option<End>,
    /// When it ended, s since 1970.
    pub ended: Option<u64>,
}

/// The runs so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runs {
    /// The oldest first.
    pub runs: Vec<Run>,
}

/// The file with the runs.
#[derive(Debug)]
pub struct Journal {
    file: PathBuf,
    /// What is in it.
    pub known: Runs,
    /// What people should know if there was a file that could not be used: no run in it counts any more.
    pub forgotten: Option<String>,
    /// Is the last of these ours, and not over?
    begun: bool,
    /// Held as long as this run goes on.
    _lock: Lock,
}

impl Journal {
    /// Reads the journal in a directory, which is made if it is missing. No other daemon can have
    /// it until this is gone: that another scheduler is in charge shows only when that is loaded,
    /// which takes seconds, and two daemons would take back each other's changes and forget each
    /// other's runs meanwhile.
    ///
    /// # Errors
    /// If another daemon is at work there, or it can be neither read nor made. A file that is not a
    /// journal is begun anew: to refuse to start because of it would not help.
    pub fn open(folder: &Path) -> io::Result<Self> {
        files::make_folder(folder)?;
        let lock = Lock::take(&Self::file(folder))?;
        let busy = || {
            io::Error::new(
                io::ErrorKind::ResourceBusy,
                "another corun host is at work there",
            )
        };
        let (known, forgotten) = Self::look(folder);
        Ok(Self {
            file: Self::file(folder),
            known,
            forgotten,
            begun: false,
            _lock: lock.ok_or_else(busy)?,
        })
    }

    fn file(folder: &Path) -> PathBuf {
        folder.join("runs.json")
    }

    /// What is known of runs, without changing anything.
    pub fn read(folder: &Path) -> Runs {
        Self::look(folder).0
    }

    /// The same, and what people should know if there is a file that cannot be used.
    fn look(folder: &Path) -> (Runs, Option<String>) {
        let file = Self::file(folder);
        let text = match files::read_own(&file) {
            Ok(None) => return (Runs::default(), None),
            Ok(Some(text)) => Ok(text),
            Err(error) => Err(error.to_string()),
        };
        let known = text.and_then(|text| {
            serde_json::from_slice(&text).map_err(|error| format!("is no list of runs: {error}"))
        });
        match known {
            Ok(known) => (known, None),
            Err(why) => {
                let note = format!(
                    "{}: {why}; how runs ended before is not known, and the list of them begins anew",
                    file.display()
                );
                (Runs::default(), Some(note))
            }
        }
    }

    /// A run begins, of this process.
    ///
    /// # Errors
    /// If it cannot be written down; then it has not begun.
    pub fn begin(&mut self) -> io::Result<()> {
        let pid = std::process::id();
        // Before the run is added: if it is struck out, nothing else may be missing.
        self.known.keep_the_last();
        self.known.runs.push(Run {
            began: now(),
            pid,
            start: Process::here(pid).start().unwrap_or(0),
            boot: boot(),
            end: None,
            ended: None,
        });
        self.begun = true;
        self.write().inspect_err(|_| {
            // If half of it was written after all, it must not count as a daemon that was killed.
            let _ = self.strike_out();
        })
    }

    /// Has a run begun, and not ended?
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// It ends.
    ///
    /// # Errors
    /// If that cannot be written down.
    pub fn end(&mut self, end: End) -> io::Result<()> {
        if let Some(run) = self.known.runs.last_mut().filter(|_| self.begun) {
            run.end = Some(end);
            run.ended = Some(now());
        }
        self.begun = false;
        self.known.keep_the_last();
        self.write()
    }

    /// It was no run: the host has not been touched.
    ///
    /// # Errors
    /// If that cannot be written down.
    pub fn strike_out(&mut self) -> io::Result<()> {
        if self.begun {
            self.known.runs.pop();
        }
        self.begun = false;
        self.write()
    }

    fn write(&self) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(&self.known).map_err(io::Error::other)?;
        files::replace_durably(&self.file, &text)
    }
}

impl Runs {
    fn keep_the_last(&mut self) {
        let surplus = self.runs.len().saturating_sub(KEPT);
        self.runs.drain(..surplus);
    }

    /// The reason against another run now, if any.
    pub fn findings(&self) -> Vec<Finding> {
        self.findings_in(&boot(), &|run| {
            Process::here(run.pid).start() == Some(run.start)
        })
    }

    /// How many runs ended badly around the time when the last one did, itself included; none if that one did not.
    /// After too many of them only runs with `--force` are started, and one of these that goes well ends the series.
    fn bad_of_late(&self, boot: &str, lives: &dyn Fn(&Run) -> bool) -> usize {
        let bad = |run: &&Run| match run.end {
            None => run.boot == boot && !lives(run),
            Some(End::Asked | End::PcpusChanged) => false,
            Some(_) => true,
        };
        let when = |run: &Run| run.ended.unwrap_or(run.began);
        let Some(last) = self.runs.last().filter(bad) else {
            return 0;
        };
        // Clocks are set, forwards and back.
        let of_late = |run: &&Run| when(last).abs_diff(when(run)) < LATELY;
        self.runs.iter().filter(bad).filter(of_late).count()
    }

    /// The last run, if it did not live to say how it ended.
    pub(crate) fn died(&self) -> Option<&Run> {
        let last = self.runs.last()?;
        let alive = Process::here(last.pid).start() == Some(last.start);
        (last.end.is_none() && !alive).then_some(last)
    }

    fn findings_in(&self, boot: &str, lives: &dyn Fn(&Run) -> bool) -> Vec<Finding> {
        let mut findings = Vec::new();
        let count = self.bad_of_late(boot, lives);
        if count >= TOO_MANY {
            findings.push(Finding {
                id: "crash-loop",
                severity: Severity::Dangerous,
                what: format!("the last {count} bad ends came within {} minutes, and no better one since", LATELY / 60),
                why: "each start and each end stops all tasks of the host for a moment, and what ended \
                      them is still there",
                remedy: "read why in last-exit.json (in /var/lib/corun, unless --state-dir says otherwise), change that, and \
                         try it once by hand, such as with --for 10min",
            });
        }
        let last = self.runs.last();
        if last.is_some_and(|run| run.end.is_none() && run.boot != boot) {
            findings.push(Finding {
                id: "host-reset",
                severity: Severity::Dangerous,
                what: "the host went down without shutting down while corun was in charge".into(),
                why: "if it was not the power, the scheduler or the kernel under it may have hung it",
                remedy: "look into the logs of the boot before (`journalctl -k -b -1`), then start by hand",
            });
        }
        findings
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO).as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn run(ended: u64, end: Option<End>) -> Run {
        Run {
            began: ended.saturating_sub(5),
            pid: 7,
            start: 1,
            boot: "this".into(),
            ended: end.map(|_| ended),
            end,
        }
    }

    fn ids(runs: &[Run]) -> Vec<&'static str> {
        let runs = Runs {
            runs: runs.to_vec(),
        };
        let findings = runs.findings_in("this", &|_| false);
        findings.iter().map(|finding| finding.id).collect()
    }

    #[test]
    fn three_bad_ends_within_ten_minutes_are_too_many() {
        let bad = [End::Ejected, End::Failed, End::RolledBack];
        let mut runs: Vec<Run> = (0..)
            .zip(bad)
            .map(|(at, end)| run(1000 + at, Some(end)))
            .collect();
        assert_eq!(ids(&runs), ["crash-loop"]);
        assert!(ids(&runs[..2]).is_empty());
        runs[0].ended = Some(402);
        assert!(ids(&runs).is_empty(), "ten minutes before the last one");
        runs[0].ended = Some(1000);
        runs[1].end = Some(End::PcpusChanged);
        assert!(ids(&runs).is_empty());
    }

    /// Otherwise the service would lose the host three times in every ten minutes, for ever.
    #[test]
    fn too_many_bad_ends_do_not_pass_with_time_but_by_a_run_that_goes_well() {
        let mut runs: Vec<Run> = [1000, 1001, 1002]
            .map(|at| run(at, Some(End::Ejected)))
            .to_vec();
        assert_eq!(ids(&runs), ["crash-loop"]);
        // Somebody insists, and it is no better.
        runs.push(run(1100, Some(End::Failed)));
        assert_eq!(ids(&runs), ["crash-loop"]);
        runs.push(run(1200, Some(End::Asked)));
        assert!(ids(&runs).is_empty());
        runs.push(run(90_000, Some(End::Failed)));
        assert!(ids(&runs).is_empty(), "one, after a long time");
    }

    /// A host may begin with a wrong clock, which is set right once there is a network.
    #[test]
    fn ends_before_a_clock_was_set_are_not_of_the_time_after() {
        let mut runs: Vec<Run> = (0..2)
            .map(|at| run(90_000 + at, Some(End::Failed)))
            .collect();
        runs.push(run(89_990, Some(End::Failed)));
        assert_eq!(ids(&runs), ["crash-loop"], "set back by seconds");
        runs[2] = run(5000, Some(End::Failed));
        assert!(ids(&runs).is_empty());
    }

    #[test]
    fn killed_daemons_count_and_living_ones_do_not() {
        let runs = [run(1000, None), run(1001, None), run(1002, None)];
        assert_eq!(ids(&runs), ["crash-loop"]);
        let known = Runs {
            runs: runs.to_vec(),
        };
        assert!(known.findings_in("this", &|_| true).is_empty());
    }

    #[test]
    fn a_host_that_died_is_remembered_until_one_starts_again() {
        let mut died = run(1000, None);
        died.boot = "before".into();
        assert_eq!(ids(&[died.clone()]), ["host-reset"]);
        assert!(ids(&[died, run(5001, Some(End::Asked))]).is_empty());
    }

    #[test]
    fn a_journal_is_kept_and_its_length_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("deep/corun");
        for _ in 0..KEPT + 3 {
            let mut journal = Journal::open(&folder).unwrap();
            journal.begin().unwrap();
            journal.end(End::Asked).unwrap();
        }
        let known = Journal::read(&folder);
        assert_eq!(known.runs.len(), KEPT);
        assert!(known.runs.iter().all(|run| run.end == Some(End::Asked)));
        assert_eq!(known.died(), None);
        fs::write(folder.join("runs.json"), "not a journal").unwrap();
        assert_eq!(Journal::read(&folder), Runs::default());
    }

    /// Three bad ends that nobody may know of any more look like none.
    #[test]
    fn that_the_runs_before_cannot_be_used_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("runs.json");
        let forgotten = || Journal::open(folder.path()).unwrap().forgotten;
        assert_eq!(forgotten(), None, "there is none");
        let mut journal = Journal::open(folder.path()).unwrap();
        journal.begin().unwrap();
        journal.end(End::Failed).unwrap();
        drop(journal);
        assert_eq!(forgotten(), None);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(Journal::read(folder.path()), Runs::default());
        assert_eq!(
            forgotten().unwrap(),
            format!(
                "{}: anybody may write it (mode 0666): look at it, then remove it; how runs ended \
                 before is not known, and the list of them begins anew",
                file.display()
            )
        );
        fs::write(&file, "not a journal").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let told = forgotten().unwrap();
        assert!(
            told.contains("line 1") && told.contains("begins anew"),
            "{told}"
        );
    }

    /// If other starts that come to nothing pushed bad ends out, a crash loop would be forgotten.
    #[test]
    fn a_run_that_was_none_leaves_the_others_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(folder.path()).unwrap();
        for _ in 0..KEPT {
            journal.begin().unwrap();
            journal.end(End::Failed).unwrap();
        }
        let before = journal.known.clone();
        journal.begin().unwrap();
        assert_ne!(Journal::read(folder.path()), before);
        journal.strike_out().unwrap();
        assert_eq!(Journal::read(folder.path()), before);
        // Without one of ours that goes on, the last one is another's.
        journal.strike_out().unwrap();
        assert_eq!(Journal::read(folder.path()), before);
    }

    /// Two that were started at once, before either was in charge, forgot each other's runs.
    #[test]
    fn a_journal_is_kept_by_one_daemon_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = Journal::open(folder.path()).unwrap();
        first.begin().unwrap();
        let why = Journal::open(folder.path()).unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::ResourceBusy);
        assert_eq!(
            Journal::read(folder.path()).runs.len(),
            1,
            "looking is free"
        );
        first.end(End::Asked).unwrap();
        drop(first);
        assert!(Journal::open(folder.path()).is_ok());
    }
}
