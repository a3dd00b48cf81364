// SPDX-License-Identifier: GPL-2.0-only
//! Sets KVM's own halt polling for as long as corun is in charge (`corun host --halt-poll`): for the baselines of
//! vSMT-IO's experiments on a real host, and to leave all halts to retention.
//!
//! The former value is written down before it is changed, and put back at the end, or by the next start if this process
//! is killed; but only if the value that corun set is still there: a later change by the administrator is kept. The
//! knob's file is kept open, so that the value can be put back when all privileges are gone ([`crate::confine`]).

use crate::machine::boot;
use corun_model::{Nanos, time};
use corun_system::{files, rights};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Where KVM has its knobs.
pub const KNOBS: &str = "/sys/module/kvm/parameters";
/// The one that is set, ns.
const KNOB: &str = "halt_poll_ns";
/// What was changed, in the directory where runs are remembered.
const STATE: &str = "halt-poll.json";

/// What was changed.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Changed {
    before: u64,
    now: u64,
    /// What was set does not outlive it.
    boot: String,
}

/// Why KVM's halt polling cannot be set or put back.
#[derive(Debug, thiserror::Error)]
#[error("--halt-poll: {}: {}{}", path.display(), rights::in_words(cause), hint(cause))]
pub struct HaltPollError {
    path: PathBuf,
    cause: io::Error,
}

fn hint(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::NotFound => "; is KVM's module loaded?",
        _ => "",
    }
}

/// KVM's halt polling as it was set here.
#[derive(Debug)]
pub(crate) struct HaltPoll {
    knob: File,
    path: PathBuf,
    state: PathBuf,
    changed: Changed,
    put_back: bool,
}

/// KVM's knobs of halt polling, as far as this kernel has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HaltPollNow {
    /// The longest time that KVM polls before a vCPU halts, ns; 0: it does not.
    pub longest_ns: u64,
    /// By what the time grows when it was too short.
    pub grow: Option<u64>,
    /// With what it begins, ns.
    pub grow_start_ns: Option<u64>,
    /// By what it shrinks when it was too long; 0: it begins anew.
    pub shrink: Option<u64>,
}

impl HaltPollNow {
    /// As they are; `None`: KVM's module is not loaded.
    pub fn read(knobs: &Path) -> Option<Self> {
        let number = |name: &str| read(&File::open(knobs.join(name)).ok()?).ok();
        Some(Self {
            longest_ns: number(KNOB)?,
            grow: number("halt_poll_ns_grow"),
            grow_start_ns: number("halt_poll_ns_grow_start"),
            shrink: number("halt_poll_ns_shrink"),
        })
    }
}

impl fmt::Display for HaltPollNow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { grow, shrink, .. } = self;
        match self.longest_ns {
            0 => write!(f, "KVM does not poll before a vCPU halts")?,
            ns => write!(
                f,
                "KVM polls for up to {} before a vCPU halts",
                time::show(ns)
            )?,
        }
        match (grow, shrink) {
            (Some(grow), Some(shrink)) => write!(f, " (grow {grow}, shrink {shrink})"),
            _ => Ok(()),
        }
    }
}

/// What a run that was killed has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nothing, or nothing that is still so.
    Nothing,
    /// This was before, ns, and is again.
    Back(Nanos),
    /// A file that does not say what was before. It has been removed: to refuse to start because of
    /// it would not help.
    Unreadable,
}

impl Left {
    /// For people, if there is something to say.
    pub(crate) fn in_words(self) -> Option<String> {
        match self {
            Self::Nothing => None,
            Self::Back(longest) => Some(format!(
                "the run before was killed: KVM's halt polling is back at {}",
                time::show(longest)
            )),
            Self::Unreadable => Some(format!(
                "{STATE} in the state directory does not say what KVM's halt polling was before the run that was \
                 killed: it stays as it is"
            )),
        }
    }
}

/// Is it changed, by a run that goes on or was killed?
///
/// # Errors
/// If that may not be known, which is no reason to believe that nothing is left.
pub(crate) fn is_left(state_dir: &Path) -> Result<bool, HaltPollError> {
    let path = state_dir.join(STATE);
    let looked = path.try_exists();
    looked.map_err(|cause| HaltPollError { path, cause })
}

/// Puts back what a run that was killed has left, if there is such.
pub(crate) fn put_back(knobs: &Path, state_dir: &Path) -> Result<Left, HaltPollError> {
    let state = state_dir.join(STATE);
    let at = |path: &Path| {
        let path = path.to_path_buf();
        move |cause| HaltPollError { path, cause }
    };
    let Some(text) = files::read_own(&state).map_err(at(&state))? else {
        return Ok(Left::Nothing);
    };
    let Ok(changed) = serde_json::from_slice::<Changed>(&text) else {
        fs::remove_file(&state).map_err(at(&state))?;
        return Ok(Left::Unreadable);
    };
    let path = knobs.join(KNOB);
    let mut left = Left::Nothing;
    // Without the module, or after another boot, there is nothing to put back.
    if changed.boot == boot() && path.exists() {
        let knob = OpenOptions::new().read(true).write(true).open(&path);
        let knob = knob.map_err(at(&path))?;
        if read(&knob).map_err(at(&path))? == changed.now {
            write(&knob, changed.before).map_err(at(&path))?;
            left = Left::Back(changed.before);
        }
    }
    fs::remove_file(&state).map_err(at(&state))?;
    Ok(left)
}

impl HaltPoll {
    /// Sets the longest time that KVM polls; 0: it does not.
    pub(crate) fn set(
        knobs: &Path,
        state_dir: &Path,
        longest: Nanos,
    ) -> Result<Self, HaltPollError> {
        let (path, state) = (knobs.join(KNOB), state_dir.join(STATE));
        let failed = |cause| HaltPollError {
            path: path.clone(),
            cause,
        };
        let knob = OpenOptions::new().read(true).write(true).open(&path);
        let knob = knob.map_err(failed)?;
        let changed = Changed {
            before: read(&knob).map_err(failed)?,
            now: longest,
            boot: boot(),
        };
        written(&state, &changed).map_err(|cause| HaltPollError {
            path: state.clone(),
            cause,
        })?;
        write(&knob, longest).map_err(failed)?;
        Ok(Self {
            knob,
            path,
            state,
            changed,
            put_back: false,
        })
    }

    /// What is set, for people.
    pub(crate) fn in_words(&self) -> String {
        let show = |ns| match ns {
            0 => "off".to_string(),
            ns => time::show(ns),
        };
        let (now, before) = (show(self.changed.now), show(self.changed.before));
        format!("KVM's halt polling is {now} while corun is in charge; it was {before}")
    }

    /// Puts back what was there before.
    ///
    /// # Errors
    /// Where and why it could not; then the next start tries again.
    pub(crate) fn put_back(mut self) -> Result<(), HaltPollError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), HaltPollError> {
        self.put_back = true;
        let put = || {
            if read(&self.knob)? == self.changed.now {
                write(&self.knob, self.changed.before)?;
            }
            Ok(())
        };
        put().map_err(|cause| HaltPollError {
            path: self.path.clone(),
            cause,
        })?;
        fs::remove_file(&self.state).map_err(|cause| HaltPollError {
            path: self.state.clone(),
            cause,
        })
    }
}

impl Drop for HaltPoll {
    /// However the run ends; there is no caller left to report an error to.
    fn drop(&mut self) {
        if !self.put_back {
            let _ = self.end();
        }
    }
}

fn written(state: &Path, changed: &Changed) -> io::Result<()> {
    files::replace_durably(state, &serde_json::to_vec(changed)?)
}

fn read(knob: &File) -> io::Result<u64> {
    let mut bytes = [0; 32];
    let count = knob.read_at(&mut bytes, 0)?;
    let text = String::from_utf8_lossy(&bytes[..count]);
    let line = text.lines().next().unwrap_or_default();
    line.trim().parse().map_err(|_| {
        let found = format!("found {line:?}, expected a number of ns");
        io::Error::new(io::ErrorKind::InvalidData, found)
    })
}

fn write(knob: &File, value: u64) -> io::Result<()> {
    // A knob takes one write for one value.
    let text = format!("{value}\n");
    match knob.write_at(text.as_bytes(), 0)? {
        written if written == text.len() => Ok(()),
        _ => Err(io::Error::from(io::ErrorKind::WriteZero)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::confine;
    use std::thread;

    /// A knob as KVM has it; the place for what was changed is beside it.
    fn fake(value: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(KNOB), value).unwrap();
        folder
    }

    fn value(folder: &Path) -> u64 {
        read(&File::open(folder.join(KNOB)).unwrap()).unwrap()
    }

    #[test]
    fn it_is_put_back_without_privileges() {
        let folder = fake("200000\n");
        let at = folder.path();
        let state = tempfile::tempdir().unwrap();
        let set = HaltPoll::set(at, state.path(), 0).unwrap();
        assert_eq!(value(at), 0);
        assert_eq!(
            set.in_words(),
            "KVM's halt polling is off while corun is in charge; it was 200 µs"
        );
        // In a thread of its own: what is given up does not come back.
        let places = confine::Places::new(state.path(), []);
        let ended = thread::spawn(move || {
            confine::confine(&places).unwrap();
            set.put_back()
        });
        ended.join().unwrap().unwrap();
        assert_eq!(value(at), 200_000);
        assert!(!state.path().join(STATE).exists());
    }

    #[test]
    fn the_next_start_puts_back_what_a_killed_one_left() {
        let folder = fake("200000\n");
        let at = folder.path();
        std::mem::forget(HaltPoll::set(at, at, 50_000).unwrap());
        assert_eq!(value(at), 50_000);
        assert_eq!(put_back(at, at).unwrap(), Left::Back(200_000));
        assert_eq!(value(at), 200_000);
        // If a run ends in the middle, it is put back automatically.
        drop(HaltPoll::set(at, at, 0).unwrap());
        assert_eq!(value(at), 200_000);
        // Once only.
        assert_eq!(put_back(at, at).unwrap(), Left::Nothing);
    }

    #[test]
    fn what_somebody_else_has_set_since_stays() {
        let folder = fake("200000\n");
        let at = folder.path();
        let set = HaltPoll::set(at, at, 0).unwrap();
        fs::write(at.join(KNOB), "80000\n").unwrap();
        set.put_back().unwrap();
        assert_eq!(value(at), 80_000);
        std::mem::forget(HaltPoll::set(at, at, 0).unwrap());
        fs::write(at.join(KNOB), "90000\n").unwrap();
        assert_eq!(put_back(at, at).unwrap(), Left::Nothing);
        assert_eq!(value(at), 90_000);
        assert!(!at.join(STATE).exists());
    }

    #[test]
    fn all_knobs_are_told() {
        let folder = fake("50000\n");
        let at = folder.path();
        let told = || HaltPollNow::read(at).unwrap().to_string();
        assert_eq!(told(), "KVM polls for up to 50.0 µs before a vCPU halts");
        fs::write(at.join("halt_poll_ns_grow"), "2\n").unwrap();
        fs::write(at.join("halt_poll_ns_shrink"), "0\n").unwrap();
        fs::write(at.join(KNOB), "0\n").unwrap();
        assert_eq!(
            told(),
            "KVM does not poll before a vCPU halts (grow 2, shrink 0)"
        );
        assert_eq!(HaltPollNow::read(&at.join("none")), None);
    }

    #[test]
    fn another_boot_has_its_own_values() {
        let folder = fake("200000\n");
        let at = folder.path();
        let changed = Changed {
            before: 1,
            now: 200_000,
            boot: "another".to_string(),
        };
        written(&at.join(STATE), &changed).unwrap();
        assert_eq!(put_back(at, at).unwrap(), Left::Nothing);
        assert_eq!(value(at), 200_000);
    }

    #[test]
    fn what_cannot_be_done_says_where_and_why() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let refused = |longest| HaltPoll::set(at, at, longest).unwrap_err().to_string();
        let missing = refused(0);
        assert!(
            missing.contains("halt_poll_ns") && missing.contains("module loaded?"),
            "{missing}"
        );
        fs::write(at.join(KNOB), "N\n").unwrap();
        let odd = refused(0);
        assert!(
            odd.contains("found \"N\", expected a number of ns"),
            "{odd}"
        );
        assert!(!at.join(STATE).exists(), "nothing was changed");
    }

    /// As a power failure left it: every later start must not be refused for it.
    #[test]
    fn half_a_file_keeps_nobody_from_starting() {
        let folder = fake("0\n");
        let at = folder.path();
        for text in [&b"{\"before\":200000,\"no"[..], b"", b"\xff"] {
            fs::write(at.join(STATE), text).unwrap();
            let left = put_back(at, at).unwrap();
            assert_eq!(left, Left::Unreadable);
            assert!(left.in_words().unwrap().contains(STATE));
            assert_eq!((value(at), at.join(STATE).exists()), (0, false));
            assert_eq!(put_back(at, at).unwrap(), Left::Nothing);
        }
    }
}
