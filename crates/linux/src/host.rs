// SPDX-License-Identifier: GPL-2.0-only
//! The daemon from start to end: puts the dispatcher in charge, lets [`Daemon`] work, and leaves the
//! host on the kernel's own scheduler, however it ends.

mod exit;
mod options;

pub use crate::recorder::Recorded;
pub(crate) use exit::ejected;
pub use exit::{Cause, HostError, HostExit};
pub use options::HostOptions;

use crate::confine::{Places, confine};
use crate::daemon::Daemon;
use crate::descriptors;
use crate::halt_poll::{self, HaltPoll, HaltPollError};
use crate::loader::{Dispatcher, ExitInfo};
use crate::preflight::{self, Verdict};
use crate::safety::Limits;
use crate::safety::postmortem::PostMortem;
use crate::safety::runs::Journal;
use crate::socket::Server;
use crate::stats::Stats;
use crate::tags::NoNewCookies;
use crate::{priority, sched_ext, smt};
use corun_model::PcpuSet;
use corun_system::signals;
use exit::end_of;
use std::io;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};

/// What stands in the way of taking over this host, and what of it is forced.
///
/// `state_dir` is where runs are remembered.
pub fn verdict(state_dir: &Path, force: &[String]) -> Verdict {
    let mut findings = preflight::check();
    findings.extend(Journal::read(state_dir).findings());
    Verdict::of(findings, force)
}

/// Takes back what a run that was killed has set of KVM's halt polling. Returns what people should know.
///
/// # Errors
/// [`HostError`], such as that a run goes on.
pub fn restore(state_dir: &Path) -> Result<Option<String>, HostError> {
    restore_below(Path::new(halt_poll::KNOBS), state_dir)
}

fn restore_below(knobs: &Path, state_dir: &Path) -> Result<Option<String>, HostError> {
    if !halt_poll::is_left(state_dir)? {
        return Ok(None);
    }
    let _ours = Journal::open(state_dir).map_err(|cause| cannot_remember(state_dir, cause))?;
    Ok(halt_poll::put_back(knobs, state_dir)?.in_words())
}

fn cannot_remember(state_dir: &Path, cause: io::Error) -> HostError {
    HostError::State {
        path: state_dir.display().to_string(),
        cause,
    }
}

/// Takes over the host's scheduling until told to stop. However that ends, it is remembered; what fails before the host
/// is touched is not.
///
/// # Errors
/// [`HostError`]; the host is on the kernel's own scheduler then, too.
pub fn run(options: HostOptions) -> Result<HostExit, HostError> {
    descriptors::raise_limit();
    let verdict = verdict(&options.state_dir, &options.force);
    if !verdict.refused.is_empty() {
        return Err(HostError::Preflight(verdict.refused));
    }
    for finding in &verdict.forced {
        (options.notes)(&finding.to_string());
    }
    let mut kept_away = keep_cookies_away(&options)?;
    let folder = options.state_dir.clone();
    let failed = |cause| cannot_remember(&folder, cause);
    let mut journal = Journal::open(&folder).map_err(failed)?;
    let notes = options.notes;
    if let Some(forgotten) = &journal.forgotten {
        notes(forgotten);
    }
    bury_the_dead(&journal, &folder).map_err(failed)?;
    let polling = set_polling(&options)?;
    let forced: Vec<String> = verdict.forced.iter().map(|f| f.id.to_string()).collect();
    let mut last = LastWords::default();
    let ended = take_over(
        options,
        &forced,
        &mut journal,
        &mut last,
        kept_away.as_mut(),
    );
    drop(kept_away);
    let polling = polling.map_or(Ok(()), HaltPoll::put_back);
    let written = remember(&mut journal, &folder, &ended, &forced, &last);
    settle(ended, polling, written.map_err(failed), notes)
}

/// Writes the post-mortem of a run that did not live to do so, once: starts that come to nothing may follow.
fn bury_the_dead(journal: &Journal, folder: &Path) -> io::Result<()> {
    match journal.known.died() {
        Some(dead) if !PostMortem::is_written_of(dead, folder) => {
            PostMortem::of_the_dead(dead).write(folder)
        }
        _ => Ok(()),
    }
}

/// Puts back what a run that was killed has left of KVM's halt polling, and sets what this one is to have, if anything.
fn set_polling(options: &HostOptions) -> Result<Option<HaltPoll>, HaltPollError> {
    let (knobs, state) = (Path::new(halt_poll::KNOBS), &options.state_dir);
    if let Some(note) = halt_poll::put_back(knobs, state)?.in_words() {
        (options.notes)(&note);
    }
    let Some(longest) = options.halt_poll else {
        return Ok(None);
    };
    let polling = HaltPoll::set(knobs, state, longest)?;
    (options.notes)(&polling.in_words());
    Ok(Some(polling))
}

/// From here on no task can make a core-scheduling cookie, and none has made one since preflight
/// looked; `None`: the kernel has none, or the check is overridden by `--force`.
fn keep_cookies_away(options: &HostOptions) -> Result<Option<NoNewCookies>, HostError> {
    if options.is_forced(preflight::COOKIES) || !smt::has_core_scheduling() {
        return Ok(None);
    }
    let kept_away = NoNewCookies::from_now_on().map_err(HostError::NewCookies)?;
    match preflight::cookies() {
        Some(finding) => Err(HostError::Preflight(vec![finding])),
        None => Ok(Some(kept_away)),
    }
}

/// Writes down how a run ended, if there was one.
fn remember(
    journal: &mut Journal,
    folder: &Path,
    ended: &Result<HostExit, HostError>,
    forced: &[String],
    last: &LastWords,
) -> io::Result<()> {
    if !journal.has_begun() {
        return Ok(());
    }
    let Some(end) = end_of(ended) else {
        return journal.strike_out();
    };
    // That one of the two cannot be written is no reason not to write the other.
    let in_journal = journal.end(end);
    let why = match ended {
        Ok(exit) => exit.cause.reason().to_string(),
        Err(error) => error.to_string(),
    };
    let breach = match ended {
        Err(HostError::RolledBack(breach)) => Some(breach),
        _ => None,
    };
    let post_mortem = PostMortem {
        end: Some(end),
        why: &why,
        run: journal.known.runs.last(),
        policy: last.policy,
        kernel_says: last.info.as_ref(),
        breach,
        limits: last.limits,
        forced,
        lapses: last.lapses,
        last: last.stats.as_ref(),
        ..PostMortem::default()
    };
    in_journal.and(post_mortem.write(folder))
}

/// What the run comes to. How it ended takes precedence over what could not be put back or written down after that: a
/// broken promise tells the service not to start again, even if the disk is full.
fn settle(
    ended: Result<HostExit, HostError>,
    polling: Result<(), HaltPollError>,
    written: Result<(), HostError>,
    notes: fn(&str),
) -> Result<HostExit, HostError> {
    let after = polling.map_err(HostError::from).and(written);
    if let (Err(_), Err(more)) = (&ended, &after) {
        notes(&format!("and then: {more}"));
    }
    let exit = ended?;
    after.map(|()| exit)
}

/// What a run knew at its end.
#[derive(Default)]
struct LastWords {
    policy: Option<&'static str>,
    info: Option<ExitInfo>,
    limits: Option<Limits>,
    lapses: u64,
    stats: Option<Stats>,
}

/// Loads and attaches the dispatcher, and serves until the run is to end; leaves in `last` what is known then.
///
/// In this order: what may fail is done before the host is taken over, a run begins with that, privileges are given up
/// right after, and everything is read off the dispatcher before it goes.
fn take_over(
    options: HostOptions,
    forced: &[String],
    journal: &mut Journal,
    last: &mut LastWords,
    kept_away: Option<&mut NoNewCookies>,
) -> Result<HostExit, HostError> {
    let asked = signals::watch().map_err(HostError::Signals)?;
    let online = preflight::online().ok_or(HostError::Online)?;
    let mut storage = MaybeUninit::uninit();
    let recording = options.record.is_some();
    last.limits = Some(options.limits);
    let server = bind(&options)?;
    priority::raise();
    let mut dispatcher = Dispatcher::load(&mut storage, &options.params, &online, recording)?;
    let notes = options.notes;
    note_what_is_missing(&dispatcher, notes);
    let (places, state_dir) = (places(&options), options.state_dir.clone());
    let mut daemon = Daemon::new(options, forced, &online, &dispatcher)?;
    daemon.control.cookies_are_kept_away = kept_away.is_some();
    give_back_memory();
    let begun = journal.begin();
    begun.map_err(|cause| cannot_remember(&state_dir, cause))?;
    dispatcher.attach()?;
    if let Some(kept_away) = kept_away {
        kept_away.outlive().map_err(HostError::Descriptors)?;
    }
    // From here on the kernel ends it when pCPUs come or go. If they did so while it was loaded,
    // which takes seconds, that is not reported.
    let now = preflight::online();
    if let Some(note) = confine(&places)? {
        notes(note);
    }
    let ended = match same_pcpus(&online, now) {
        Ok(()) => daemon.serve(&dispatcher, server, &asked),
        Err(changed) => Err(changed),
    };
    last.stats = daemon.last_stats(&dispatcher);
    let info = dispatcher.detach();
    last.policy = Some(daemon.control.policy().name);
    last.info.clone_from(&info);
    last.lapses = dispatcher.lapses();
    let recorded = daemon.finish_recording(&dispatcher);
    let printed = daemon.finish_output();
    if let Some(state) = sched_ext::state().filter(|state| state != "disabled") {
        return Err(HostError::NotBack { state });
    }
    let cause = ended?;
    match info {
        // It may have been thrown out while it was being told to leave.
        Some(info) if info.kind != ExitInfo::UNREGISTERED => Err(ejected(info)),
        info => {
            let recorded = recorded?;
            printed?;
            Ok(HostExit {
                cause,
                info,
                recorded,
            })
        }
    }
}

/// The sockets on which the daemon answers.
fn bind(options: &HostOptions) -> Result<Server, HostError> {
    let mut server = Server::bind(&options.socket)?;
    if let Some(path) = &options.scx_stats
        && let Err(why) = server.answer_scx_stats(path)
    {
        // Not to be seen in scxtop is no reason not to schedule.
        (options.notes)(&format!("scxtop and the like will not show corun: {why}"));
    }
    Ok(server)
}

/// Notes what the loaded dispatcher does without, or more slowly, on this kernel.
fn note_what_is_missing(dispatcher: &Dispatcher<'_>, notes: fn(&str)) {
    if let Some(slow) = dispatcher.tables().slow_because() {
        notes(&slow);
    }
    if let Some(why) = dispatcher.awaited_refused() {
        notes(&format!(
            "it will not be seen when a vCPU waits for a sibling that is ready: {why:#}"
        ));
    }
}

/// Where the daemon goes on writing once it is confined.
fn places(options: &HostOptions) -> Places {
    let sockets = [Some(&options.socket), options.scx_stats.as_ref()];
    let sockets = sockets.into_iter().flatten().map(PathBuf::as_path);
    Places::new(&options.state_dir, sockets)
}

/// Are the same pCPUs online `now` as when corun began? Everything it has made rests on them.
pub(crate) fn same_pcpus(told: &PcpuSet, now: Option<PcpuSet>) -> Result<(), HostError> {
    let now = now.ok_or(HostError::Online)?;
    if now == *told {
        return Ok(());
    }
    Err(HostError::PcpusChanged(format!(
        "pCPUs {told} were online when it began, {now} are"
    )))
}

/// What loading took and freed goes back to the kernel: libbpf reads the types of the kernel and of KVM's modules,
/// some 20 MB, which the C library would keep for later.
fn give_back_memory() {
    // SAFETY: takes a number, and frees only unused memory.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::LoadError;
    use crate::safety::Breach;
    use crate::safety::runs::End;
    use std::fs;

    /// As `ExecStopPost=` of corun.service has it.
    #[test]
    fn halt_polling_is_put_back_after_a_kill_and_not_while_a_run_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let (knobs, state) = (folder.path().join("knobs"), folder.path().join("state"));
        fs::create_dir(&knobs).unwrap();
        assert_eq!(restore_below(&knobs, &state).unwrap(), None);
        assert!(!state.exists(), "nothing is made where nothing was changed");
        let knob = knobs.join("halt_poll_ns");
        fs::write(&knob, "200000\n").unwrap();
        let journal = Journal::open(&state).unwrap();
        std::mem::forget(HaltPoll::set(&knobs, &state, 0).unwrap()); // killed
        assert!(restore_below(&knobs, &state).is_err());
        drop(journal);
        assert!(restore_below(&knobs, &state).unwrap().is_some());
        assert!(fs::read_to_string(&knob).unwrap().starts_with("200000\n"));
        assert_eq!(restore_below(&knobs, &state).unwrap(), None);
    }

    /// As for a user who is not root, from whom the service's directory is hidden: "nothing was left" would be a guess.
    #[test]
    fn what_may_not_be_looked_at_is_not_taken_for_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        fs::write(&state, "no folder, so that nobody can look into it").unwrap();
        let refused = restore_below(folder.path(), &state);
        assert!(matches!(refused, Err(HostError::HaltPoll(_))));
    }

    /// A service that ends with 1 is started again: with a full disk a broken promise must not look like that.
    #[test]
    fn a_broken_promise_is_told_though_nothing_can_be_written_down() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(folder.path()).unwrap();
        journal.begin().unwrap();
        let breach = Breach {
            promise: "max-wait",
            what: "vCPU 0 waited".to_string(),
        };
        let ended = Err(HostError::RolledBack(breach));
        fs::create_dir(folder.path().join("runs.json.new")).unwrap();
        let last = LastWords::default();
        let written = remember(&mut journal, folder.path(), &ended, &[], &last);
        assert!(written.is_err());
        let text = fs::read_to_string(folder.path().join("last-exit.json")).unwrap();
        assert!(text.contains("vCPU 0 waited"), "{text}");
        let cause = written.unwrap_err();
        let failed = HostError::State {
            path: "/var/lib/corun".to_string(),
            cause,
        };
        let told = settle(ended, Ok(()), Err(failed), |_| {}).unwrap_err();
        assert!(matches!(told, HostError::RolledBack(_)), "{told}");
    }

    fn options_in(folder: &Path) -> HostOptions {
        let policy = corun_policies::find("fair").unwrap();
        HostOptions {
            socket: folder.join("socket"),
            scx_stats: None,
            state_dir: folder.join("state"),
            ..HostOptions::new(policy)
        }
    }

    /// No task of the host was stopped: the service may try as often as it likes, and is not locked out.
    #[test]
    fn a_start_that_fails_before_the_host_is_taken_over_is_no_bad_end() {
        let folder = tempfile::tempdir().unwrap();
        let options = || options_in(folder.path());
        let state = options().state_dir;
        fs::write(options().socket, "no socket").unwrap();
        let mut journal = Journal::open(&state).unwrap();
        journal.begin().unwrap();
        journal.end(End::Asked).unwrap();
        let before = journal.known.clone();
        for _ in 0..3 {
            let mut last = LastWords::default();
            let ended = take_over(options(), &[], &mut journal, &mut last, None);
            assert!(matches!(ended, Err(HostError::Socket(_))));
            remember(&mut journal, &state, &ended, &[], &last).unwrap();
        }
        assert_eq!(Journal::read(&state), before);
        assert!(!state.join("last-exit.json").exists());
    }

    /// Its kernel refuses before it touches anything.
    #[test]
    fn a_host_that_another_scheduler_took_first_is_no_bad_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(folder.path()).unwrap();
        for failed in 1..=3 {
            journal.begin().unwrap();
            let cause = libbpf_rs::Error::from_raw_os_error(libc::EBUSY);
            let ended = Err(HostError::Load(LoadError::Taken { cause }));
            let last = LastWords::default();
            remember(&mut journal, folder.path(), &ended, &[], &last).unwrap();
            assert!(Journal::read(folder.path()).runs.is_empty());
            assert!(!folder.path().join("last-exit.json").exists(), "{failed}");
        }
    }

    /// Each such try stops all tasks of the host.
    #[test]
    fn a_kernel_that_rejects_the_dispatcher_when_it_is_put_in_charge_ends_in_a_refusal() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(folder.path()).unwrap();
        for _ in 0..3 {
            assert!(Journal::read(folder.path()).findings().is_empty());
            journal.begin().unwrap();
            let cause = libbpf_rs::Error::from_raw_os_error(libc::ENOMEM);
            let (reason, log) = (String::new(), String::new());
            let ended = Err(HostError::Load(LoadError::Attach { cause, reason, log }));
            let last = LastWords::default();
            remember(&mut journal, folder.path(), &ended, &[], &last).unwrap();
        }
        let findings = Journal::read(folder.path()).findings();
        assert_eq!(findings.first().unwrap().id, "crash-loop");
    }

    /// Starts that come to nothing do not push the post-mortem before out.
    #[test]
    fn the_post_mortem_of_a_killed_run_is_written_once() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("last-exit.json"), r#"{"why":"before"}"#).unwrap();
        let run =
            r#"{"runs":[{"began":1,"pid":4194305,"start":1,"boot":"b","end":null,"ended":null}]}"#;
        fs::write(folder.path().join("runs.json"), run).unwrap();
        let journal = Journal::open(folder.path()).unwrap();
        for _ in 0..2 {
            bury_the_dead(&journal, folder.path()).unwrap();
            let text = |name| fs::read_to_string(folder.path().join(name)).unwrap();
            assert!(text("previous-exit.json").contains("before"));
            assert!(text("last-exit.json").contains("killed"));
        }
    }

    #[test]
    fn pcpus_that_changed_while_it_was_loaded_end_the_run_as_others_do() {
        let set = |list: &str| list.parse::<PcpuSet>().unwrap();
        assert!(same_pcpus(&set("0-3"), Some(set("0-3"))).is_ok());
        assert!(matches!(
            same_pcpus(&set("0-3"), None),
            Err(HostError::Online)
        ));
        for now in ["0,2", "0-7"] {
            let ended = same_pcpus(&set("0-3"), Some(set(now))).map(|()| unreachable!());
            assert_eq!(end_of(&ended), Some(End::PcpusChanged));
            let said = ended.unwrap_err().to_string();
            assert!(said.contains("0-3") && said.contains(now), "{said}");
        }
    }
}
