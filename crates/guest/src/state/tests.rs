// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use crate::testing::{Sleeper, fixed_thread, key_of, was_free};
use corun_model::PcpuId;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};

/// Pins a thread to the last of its vCPUs, as a migration does.
fn migrate(tid: u32) -> PcpuSet {
    let all = affinity::get(tid).unwrap();
    affinity::pin(tid, all.iter().last().unwrap()).unwrap();
    all
}

fn has_several_cpus() -> bool {
    affinity::get(0).unwrap().len() > 1
}

#[test]
fn what_a_crash_left_is_given_back_by_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("guest.json");
    let task = Sleeper::new();
    let all = affinity::get(task.id()).unwrap();
    let (mut state, left) = State::open(&path, &Proc::default()).unwrap();
    assert_eq!(left, 0);
    state.enrol(&[(task.key(), was_free(all))]).unwrap();
    migrate(task.id());
    // No destructor runs when a process is killed: the lock goes, the file stays.
    drop(state);
    assert!(path.exists());
    let (_state, left) = State::open(&path, &Proc::default()).unwrap();
    assert_eq!(left, usize::from(has_several_cpus()));
    assert_eq!(affinity::get(task.id()).unwrap(), all);
    assert!(!path.exists());
}

/// `--state /tmp/g.json`: any user may have put it there, and root would give any thread the mask that it says.
#[test]
fn what_others_could_have_written_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("guest.json");
    let task = Sleeper::new();
    let (mut state, _) = State::open(&path, &Proc::default()).unwrap();
    let all = affinity::get(task.id()).unwrap();
    state.enrol(&[(task.key(), was_free(all))]).unwrap();
    migrate(task.id());
    drop(state);
    let pinned = affinity::get(task.id()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let refused = State::open(&path, &Proc::default()).unwrap_err();
    assert!(refused.to_string().contains("mode 0666"), "{refused}");
    let link = folder.path().join("link.json");
    symlink(&path, &link).unwrap();
    assert!(State::open(&link, &Proc::default()).is_err());
    assert_eq!(affinity::get(task.id()).unwrap(), pinned);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    State::open(&path, &Proc::default()).unwrap();
    assert_eq!(affinity::get(task.id()).unwrap(), all);
}

/// Anybody may give a thread any name.
#[test]
fn a_name_that_is_no_text_keeps_nobody_pinned() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("guest.json");
    let mut task = Sleeper::of("printf '\\377' >/proc/$$/comm; echo; kill -STOP $$");
    let mut said = BufReader::new(task.0.stdout.take().unwrap());
    said.read_line(&mut String::new()).unwrap();
    let (mut state, _) = State::open(&path, &Proc::default()).unwrap();
    let all = affinity::get(task.id()).unwrap();
    state.enrol(&[(task.key(), was_free(all))]).unwrap();
    migrate(task.id());
    state.give_back(&[task.key()]).unwrap();
    assert_eq!(affinity::get(task.id()).unwrap(), all);
}

#[test]
fn a_mask_that_somebody_else_has_set_stays() {
    if affinity::get(0).unwrap().len() < 2 {
        return; // every mask is a single vCPU
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("guest.json");
    let task = Sleeper::new();
    let all = affinity::get(task.id()).unwrap();
    let before = Before {
        // As if there had been more: what is set now is not a single vCPU.
        allowed: PcpuSet::first(64),
        free: false,
        since: 0,
    };
    let (mut state, _) = State::open(&path, &Proc::default()).unwrap();
    state.enrol(&[(task.key(), before)]).unwrap();
    assert_eq!(state.give_back_all().unwrap(), 0);
    assert_eq!(affinity::get(task.id()).unwrap(), all);
}

#[test]
fn what_was_allowed_is_set_again_where_it_was_not_everything() {
    let task = Sleeper::new();
    let first = affinity::get(task.id()).unwrap().iter().next().unwrap();
    migrate(task.id());
    let before = Before {
        allowed: [first].into_iter().collect(),
        free: false,
        since: 0,
    };
    assert!(set_back(&Proc::default(), &task.key(), &before).unwrap());
    assert_eq!(affinity::get(task.id()).unwrap(), before.allowed);
}

#[test]
fn children_that_inherited_are_freed_with_their_parent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("guest.json");
    let mut parent = Sleeper::of("read x </dev/null; sleep 0.2; sleep 50 & echo $!; wait");
    let (mut state, _) = State::open(&path, &Proc::default()).unwrap();
    let all = affinity::get(parent.id()).unwrap();
    state.enrol(&[(parent.key(), was_free(all))]).unwrap();
    migrate(parent.id());
    let mut line = String::new();
    let output = parent.0.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut line).unwrap();
    let child: u32 = line.trim().parse().unwrap();
    assert_eq!(affinity::get(child).unwrap().len(), 1, "inherited");
    // A crash.
    drop(state);
    let (_state, count) = State::open(&path, &Proc::default()).unwrap();
    assert_eq!(affinity::get(child).unwrap(), all);
    assert_eq!(affinity::get(parent.id()).unwrap(), all);
    assert!(count == 2 || !has_several_cpus());
    // SAFETY: a process that this test started.
    unsafe { libc::kill(child as libc::pid_t, libc::SIGKILL) };
}

#[test]
fn heirs_are_younger_than_the_last_look_and_descend_from_moved_ones() {
    let before = Before {
        since: 100,
        ..was_free(PcpuSet::first(2))
    };
    let key = |tgid, tid, start| ThreadKey { tgid, tid, start };
    let moved = Moved {
        threads: [(key(10, 11, 50), before)].into(),
        looked: 200,
    };
    // By number: parent and start. 20 is older than when 11 was written down; 31 goes round in circles.
    let processes = [
        (10, (1, 40)),
        (12, (10, 250)),
        (13, (12, 260)),
        (20, (10, 90)),
        (21, (20, 300)),
        (30, (1, 300)),
        (31, (31, 300)),
    ]
    .into();
    let is_heir = |tgid, tid, start| {
        moved
            .inherited(&key(tgid, tid, start), &processes)
            .is_some()
    };
    assert!(is_heir(10, 14, 201), "a thread of its process");
    assert!(!is_heir(10, 14, 199), "looked at already");
    assert!(!is_heir(10, 11, 50), "itself");
    assert!(is_heir(12, 12, 250), "a child");
    assert!(is_heir(13, 15, 270), "a grandchild's thread");
    assert!(!is_heir(21, 21, 300), "of a child that was there before");
    assert!(!is_heir(30, 30, 300) && !is_heir(31, 31, 300), "of others");
}

#[test]
fn when_heirs_were_looked_for_is_written_down_and_means_nothing_after_a_boot() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("guest.json");
    let task = Sleeper::new();
    let (mut state, _) = State::open(&path, &Proc::default()).unwrap();
    state
        .enrol(&[(task.key(), was_free(PcpuSet::first(2)))])
        .unwrap();
    state.looked(77).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("\"looked\":77"), "{text}");
    drop(state);
    fs::write(&path, text.replace("\"boot\":\"", "\"boot\":\"another")).unwrap();
    let (state, _) = State::open(&path, &Proc::default()).unwrap();
    assert_eq!(state.looked, 0);
}

#[test]
fn one_that_cannot_be_set_keeps_nobody_else_waiting() {
    if !has_several_cpus() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("guest.json");
    let (first, second) = (Sleeper::new(), Sleeper::new());
    let (bad, good) = match first.key() < second.key() {
        true => (&first, &second),
        false => (&second, &first),
    };
    let all = affinity::get(good.id()).unwrap();
    let nowhere = Before {
        // No such vCPU exists: EINVAL.
        allowed: [PcpuId(511)].into_iter().collect(),
        free: false,
        since: u64::MAX,
    };
    let (mut state, _) = State::open(&path, &Proc::default()).unwrap();
    let threads = [(bad.key(), nowhere), (good.key(), was_free(all))];
    state.enrol(&threads).unwrap();
    migrate(bad.id());
    migrate(good.id());
    assert_eq!(state.give_back_all().unwrap(), 1);
    assert_eq!(state.stuck_keys(), [bad.key()]);
    let told = in_words(state.stuck()).join("; ");
    let (tid, expected) = (bad.id(), "cannot be given back vCPUs 511: Invalid argument");
    let expected = format!("thread {tid} of process {tid} {expected}");
    assert!(told.starts_with(&expected), "{told}");
    assert_eq!(affinity::get(good.id()).unwrap(), all);
    assert!(is_pinned(bad.id()));
    // The file still has it, and the next start goes on.
    drop(state);
    let (state, left) = State::open(&path, &Proc::default()).unwrap();
    assert_eq!((left, state.stuck_keys()), (0, vec![bad.key()]));
    assert!(path.exists());
    drop(state);
    affinity::free(bad.id()).unwrap();
    let (state, _) = State::open(&path, &Proc::default()).unwrap();
    assert_eq!(state.stuck().len(), 0);
    assert!(!path.exists());
}

/// As for io_uring's workers on some kernels, which a daemon before may have written down.
#[test]
fn a_thread_whose_mask_nobody_may_set_was_never_moved_and_is_forgotten() {
    for thread in [true, false].into_iter().filter_map(fixed_thread) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("guest.json");
        let all = affinity::get(0).unwrap();
        let (mut state, _) = State::open(&path, &Proc::default()).unwrap();
        state.enrol(&[(thread, was_free(all))]).unwrap();
        state.loosen(&thread);
        state.give_back(&[thread]).unwrap();
        assert_eq!(state.stuck().len(), 0);
        assert!(state.threads.is_empty());
        state.enrol(&[(thread, was_free(all))]).unwrap();
        drop(state);
        let (state, left) = State::open(&path, &Proc::default()).unwrap();
        assert_eq!((left, state.stuck().len()), (0, 0));
        assert!(!path.exists());
    }
}

/// A name is cut after 15 bytes, even within a character: the thread must be found nevertheless.
#[test]
fn a_thread_whose_name_is_no_text_is_given_back() {
    if !has_several_cpus() {
        return;
    }
    let (send, receive) = std::sync::mpsc::channel();
    let (end, over) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        // SAFETY: takes nothing and always works.
        let tid = unsafe { libc::gettid() } as u32;
        let key = key_of(std::process::id(), tid);
        let name = c"\xd0\xb2\xd1\x8b\xd0\xbf\xd0\xbe\xd0\xbb\xd0\xbd\xd0\xb8\xd0";
        // SAFETY: a C string that lives as long as the call.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
        send.send(key).unwrap();
        let _ = over.recv();
    });
    let key = receive.recv().unwrap();
    let all = migrate(key.tid);
    assert!(set_back(&Proc::default(), &key, &was_free(all)).unwrap());
    assert_eq!(affinity::get(key.tid).unwrap(), all);
    drop(end);
    thread.join().unwrap();
}

#[test]
fn one_daemon_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("guest.json");
    assert!(!is_in_use(&path).unwrap());
    let (_state, _) = State::open(&path, &Proc::default()).unwrap();
    assert!(is_in_use(&path).unwrap());
    let error = State::open(&path, &Proc::default()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
}

#[test]
fn a_file_of_before_heirs_were_looked_for_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("guest.json");
    let (task, boot) = (Sleeper::new(), Proc::default().boot().unwrap());
    let ThreadKey { tgid, tid, start } = task.key();
    let all = migrate(task.id());
    let text = format!(
        r#"{{"boot":"{boot}","threads":[{{"tgid":{tgid},"tid":{tid},"start":{start},"allowed":"{all}","free":true,"since":0}}]}}"#
    );
    fs::write(&path, text).unwrap();
    let (_state, left) = State::open(&path, &Proc::default()).unwrap();
    assert_eq!(left, usize::from(has_several_cpus()));
    assert_eq!(affinity::get(task.id()).unwrap(), all);
}

#[test]
fn numbers_of_another_boot_mean_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("guest.json");
    let task = Sleeper::new();
    let line = Line {
        key: task.key(),
        before: was_free(PcpuSet::first(64)),
    };
    let content = Content {
        boot: Some("another".into()),
        threads: vec![line],
        looked: 0,
    };
    fs::write(&path, serde_json::to_string(&content).unwrap()).unwrap();
    migrate(task.id());
    let (_state, left) = State::open(&path, &Proc::default()).unwrap();
    assert_eq!(left, 0);
    assert!(is_pinned(task.id()));
}

#[test]
fn a_file_that_makes_no_sense_is_an_error_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("guest.json");
    for text in [
        "",
        "[]",
        "{\"boot\":null,\"threads\":[{\"tgid\":-1}]}",
        "\u{0}",
    ] {
        fs::write(&path, text).unwrap();
        assert!(State::open(&path, &Proc::default()).is_err(), "{text}");
        assert!(path.exists());
    }
}

#[test]
fn what_is_no_file_is_refused_and_nothing_is_put_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("guest.json");
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    assert!(State::open(&path, &Proc::default()).is_err());
    assert!(fs::symlink_metadata(&path).is_ok());
    assert!(!path.with_extension("lock").exists());
}

#[test]
fn nothing_may_be_moved_when_it_cannot_be_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("inner/guest.json");
    let (mut state, _) = State::open(&path, &Proc::default()).unwrap();
    fs::remove_dir_all(folder.path().join("inner")).unwrap();
    let key = key_of(std::process::id(), std::process::id());
    let before = was_free(PcpuSet::first(2));
    assert!(state.enrol(&[(key, before)]).is_err());
    assert!(state.threads.is_empty());
}

#[test]
fn a_thread_that_has_gone_is_no_failure() {
    let gone = ThreadKey {
        tgid: u32::MAX >> 1,
        tid: u32::MAX >> 1,
        start: 1,
    };
    let before = was_free([PcpuId(0)].into_iter().collect());
    assert!(!set_back(&Proc::default(), &gone, &before).unwrap());
}
