// SPDX-License-Identifier: GPL-2.0-only
//! Uses ordinary threads that have the names of vCPUs.

use super::*;
use crate::vcpu_own::Own;
use corun_model::{PcpuId, Topology, VmId};
use corun_policies::find;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::Instant;

mod cpusets;

/// Gives this process a vCPU of KVM's, which it keeps; false if it may not have one.
fn be_a_vm() -> bool {
    const CREATE_VM: libc::Ioctl = 0xAE01;
    const CREATE_VCPU: libc::Ioctl = 0xAE41;
    let Ok(kvm) = fs::File::options().read(true).write(true).open("/dev/kvm") else {
        return false;
    };
    // SAFETY: these take numbers, and give descriptors.
    let vm = unsafe { libc::ioctl(kvm.as_raw_fd(), CREATE_VM, 0) };
    // SAFETY: as above.
    let vcpu = unsafe { libc::ioctl(vm, CREATE_VCPU, 0) };
    vm >= 0 && vcpu >= 0
}

/// A thread of this process that looks like a vCPU, as long as this lives.
struct Fake {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    tid: u32,
}

impl Fake {
    fn start(name: &str) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (send, receive) = std::sync::mpsc::channel();
        let seen = Arc::clone(&over);
        let body = move || {
            // SAFETY: takes nothing and always works.
            send.send(unsafe { libc::gettid() } as u32).unwrap();
            while !seen.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let thread = std::thread::Builder::new().name(name.to_string());
        Self {
            over,
            thread: Some(thread.spawn(body).unwrap()),
            tid: receive.recv().unwrap(),
        }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

fn key(fake: &Fake) -> ThreadKey {
    let tgid = std::process::id();
    ThreadKey {
        tgid,
        tid: fake.tid,
        start: Process::here(tgid).thread(fake.tid).start().unwrap(),
    }
}

fn vcpu(fake: &Fake) -> Vcpu {
    Vcpu {
        task: TaskId(0),
        key: key(fake),
        allowed: corun_system::affinity::get(fake.tid).unwrap(),
        own: Own::NEUTRAL,
    }
}

/// What the kernel says about it.
fn found(fake: &Fake) -> (PcpuSet, Nanos) {
    (
        corun_system::affinity::get(fake.tid).unwrap(),
        thread::slice(fake.tid).unwrap().unwrap(),
    )
}

/// Looks for VMs until `mine` is among them: while other tests of this process have thousands of files open, its vCPU
/// is behind those that are looked at.
fn look(vms: &mut Vms, mine: impl Fn(&&Vm) -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    vms.refresh();
    while !vms.list.iter().any(|vm| mine(&vm)) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
        vms.refresh();
    }
}

#[test]
fn threads_named_as_vcpus_of_a_vm_are_that() {
    let fakes = [Fake::start("CPU 1/KVM"), Fake::start("CPU 0/KVM")];
    let mut vms = Vms::default();
    let me = std::process::id();
    let mine = |vm: &&Vm| vm.vcpus.iter().any(|vcpu| vcpu.key.tgid == me);
    let has_kvm = Path::new("/sys/module/kvm").exists();
    if has_kvm {
        vms.refresh();
        assert!(vms.list.iter().find(mine).is_none(), "names alone");
        if !be_a_vm() {
            return; // this test may not use it
        }
    }
    look(&mut vms, mine);
    let vm = vms.list.iter().find(mine).unwrap();
    let place = |fake: &Fake| vm.vcpus.iter().position(|vcpu| vcpu.key == key(fake));
    assert!(place(&fakes[0]).is_some() && place(&fakes[1]) < place(&fakes[0]));
    let before: Vec<TaskId> = vm.vcpus.iter().map(|vcpu| vcpu.task).collect();
    look(&mut vms, mine);
    let vm = vms.list.iter().find(mine).unwrap();
    assert!(
        before
            .iter()
            .all(|task| vm.vcpus.iter().any(|vcpu| vcpu.task == *task))
    );
}

#[test]
fn what_is_set_is_taken_back_at_the_end_and_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    let own = thread::own_slice();
    let fake = Fake::start("worker");
    let before = found(&fake);
    let one = PcpuSet::from_iter(before.0.iter().take(1));
    let wanted = state::Settings {
        affinity: one,
        slice: own.map(|_| 20 * MS),
    };
    for crash in [false, true] {
        let (mut state, left) = State::open(&path, own).unwrap();
        assert!(left.notes().is_empty());
        assert!(state.set(&[(key(&fake), wanted)]).unwrap().is_empty());
        assert_eq!(found(&fake), (one, own.map_or(before.1, |_| 20 * MS)));
        assert!(State::open(&path, own).is_err(), "one at a time");
        if crash {
            drop(state); // nothing is taken back: the file says what is left to do
            let (_, left) = State::open(&path, own).unwrap();
            assert_eq!((left.threads, left.unreadable), (1, None));
        } else {
            assert_eq!(state.restore().unwrap(), 1);
        }
        assert_eq!(found(&fake), before);
        assert!(!path.exists());
    }
}

#[test]
fn what_others_changed_since_is_let_alone() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::start("worker");
    let before = found(&fake);
    let mut pcpus = before.0.iter();
    let (Some(first), Some(second)) = (pcpus.next(), pcpus.next()) else {
        return; // one pCPU only
    };
    let only = |cpu: PcpuId| PcpuSet::from_iter([cpu]);
    let (mut state, _) = State::open(&folder.path().join("s"), None).unwrap();
    let wanted = state::Settings {
        affinity: only(first),
        slice: None,
    };
    state.set(&[(key(&fake), wanted)]).unwrap();
    corun_system::affinity::set(fake.tid, &only(second)).unwrap();
    state.restore().unwrap();
    assert_eq!(found(&fake).0, only(second));
}

/// `taskset` while corun is at work: the administrator's word for this thread from then on.
#[test]
fn a_mask_that_somebody_sets_meanwhile_is_what_may_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::start("worker");
    let (key, all) = (key(&fake), found(&fake).0);
    let mut pcpus = all.iter();
    let (Some(first), Some(second)) = (pcpus.next(), pcpus.next()) else {
        return; // one pCPU only
    };
    let online = preflight::online().unwrap();
    let only = |cpu: PcpuId| PcpuSet::from_iter([cpu]);
    let now = || BTreeMap::from([(key, found(&fake).0)]);
    let wanted = |affinity| {
        let slice = None;
        [(key, state::Settings { affinity, slice })]
    };
    let (mut state, _) = State::open(&folder.path().join("s"), None).unwrap();
    assert_eq!(state.heed(now(), &online, true), now(), "nothing is ours");
    state.set(&wanted(only(first))).unwrap();
    for _ in 0..5 {
        assert!(state.heed(now(), &online, true).is_empty(), "as it was set");
    }
    affinity::set(fake.tid, &only(second)).unwrap();
    // A pCPU that goes off-line looks the same, for less than the time between two thorough looks.
    for thorough in [false, true, false] {
        assert!(state.heed(now(), &online, thorough).is_empty());
        assert!(state.set(&wanted(all)).unwrap().is_empty());
        assert_eq!(found(&fake).0, only(second), "nobody touches it");
    }
    let theirs = BTreeMap::from([(key, only(second))]);
    assert_eq!(state.heed(now(), &online, true), theirs);
    // What follows is made of that, and at the end it is as he wanted it.
    state.set(&wanted(only(first))).unwrap();
    assert_eq!(found(&fake).0, only(first));
    state.restore().unwrap();
    assert_eq!(found(&fake).0, only(second));
}

fn masks(fake: &Fake, affinity: PcpuSet) -> [(ThreadKey, state::Settings); 1] {
    let slice = None;
    [(key(fake), state::Settings { affinity, slice })]
}

/// A daemon at work that has tied a thread to one pCPU.
struct Tied {
    fake: Fake,
    before: PcpuSet,
    daemon: Daemon,
    folder: tempfile::TempDir,
}

impl Tied {
    fn by(options: StockOptions) -> Self {
        let (fake, folder) = (Fake::start("worker"), tempfile::tempdir().unwrap());
        let before = found(&fake).0;
        let one = PcpuSet::from_iter(before.iter().take(1));
        let state = folder.path().join("s");
        let options = StockOptions { state, ..options };
        let (mut state, _) = State::open(&options.state, None).unwrap();
        state.set(&masks(&fake, one)).unwrap();
        let daemon = Daemon::new(options, state, preflight::online().unwrap()).unwrap();
        Self {
            fake,
            before,
            daemon,
            folder,
        }
    }

    /// For a moment; returns how that ended. What it had tied is free again then, and nothing is written down.
    fn serves(self, host: Host) -> Result<Cause, StockError> {
        let ended = self.daemon.serve(&AtomicBool::new(false), host);
        assert_eq!(found(&self.fake).0, self.before);
        assert!(!self.folder.path().join("s").exists());
        ended
    }
}

fn for_a_moment() -> StockOptions {
    StockOptions {
        run_for: Some(SEC / 10),
        ..options("fair")
    }
}

/// As systemd starts it anew then; what it has made of the old ones goes first.
#[test]
fn pcpus_that_come_or_go_end_a_run() {
    let more = host_with(|| Some(PcpuSet::first(500)));
    let ended = Tied::by(for_a_moment()).serves(more);
    let Err(StockError::Host(HostError::PcpusChanged(why))) = &ended else {
        panic!("{ended:?}");
    };
    assert!(why.contains("0-499"), "{why}");
}

fn host_with(online: fn() -> Option<PcpuSet>) -> Host {
    Host {
        online,
        other: || None,
    }
}

/// Under it masks bind and slices do nothing, which no policy expects.
#[test]
fn a_scheduler_that_comes_ends_a_run() {
    let host = || Host {
        other: || Some("lavd".to_string()),
        ..host_with(preflight::online)
    };
    let ended = Tied::by(for_a_moment()).serves(host()).unwrap_err();
    let told = "sched_ext scheduler lavd";
    assert!(ended.to_string().contains(told), "{ended}");
    let refused = host().is_for_us().unwrap_err().to_string();
    assert!(refused.contains(told), "{refused}");
}

/// Statistics that nobody reads neither keep vCPUs waiting nor keep the daemon from ending.
#[test]
fn a_reader_that_stalls_does_not_keep_it_from_ending() {
    for json in [false, true] {
        let (_reader, writer) = crate::output::tests::full_pipe();
        let (send, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let options = StockOptions {
                interval: Some(1),
                run_for: Some(SEC / 2),
                json,
                out: Box::new(writer),
                ..options("fair")
            };
            send.send(Tied::by(options).serves(host_with(preflight::online)))
        });
        let ended = ended.recv_timeout(Duration::from_secs(20));
        assert!(matches!(ended, Ok(Ok(Cause::TimeOver))), "{ended:?}");
    }
}

/// A file as an earlier daemon leaves it: for these threads, with what they had and what they were given.
fn file_of(path: &Path, threads: &[(&Fake, state::Settings, state::Settings)]) {
    let changed = |(fake, before, now): &(&Fake, state::Settings, state::Settings)| {
        let ThreadKey { tgid, tid, start } = key(fake);
        serde_json::json!({ "tgid": tgid, "tid": tid, "start": start, "before": before, "now": now })
    };
    let all: Vec<_> = threads.iter().map(changed).collect();
    std::fs::write(path, serde_json::to_vec(&all).unwrap()).unwrap();
}

/// No pCPU is left of what a thread had: the kernel refuses that, for this thread only.
#[test]
fn what_cannot_be_taken_back_keeps_nothing_else_and_stays_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let fakes = [Fake::start("stuck"), Fake::start("worker")];
    let before = found(&fakes[1]);
    let one = PcpuSet::from_iter(before.0.iter().take(1));
    let only = |affinity| state::Settings {
        affinity,
        slice: None,
    };
    corun_system::affinity::set(fakes[1].tid, &one).unwrap();
    let nowhere = "511".parse().unwrap();
    let stuck = (&fakes[0], only(nowhere), only(found(&fakes[0]).0));
    file_of(&path, &[stuck, (&fakes[1], only(before.0), only(one))]);
    let (mut state, left) = State::open(&path, None).unwrap();
    assert_eq!(left.threads, 2, "{left:?}");
    assert!(left.notes()[0].contains("not all"), "{left:?}");
    assert_eq!(found(&fakes[1]).0, before.0, "the other one is as it was");
    let refused = not_back(&path, state.restore().unwrap_err()).to_string();
    let thread = format!(
        "thread {} of process {} cannot be given back pCPUs 511: Invalid argument",
        fakes[0].tid,
        std::process::id()
    );
    assert!(refused.starts_with(&thread), "{refused}");
    assert!(refused.contains("/s still has it"), "{refused}");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        text.contains(&format!("\"tid\":{}", fakes[0].tid)),
        "{text}"
    );
    assert!(
        !text.contains(&format!("\"tid\":{}", fakes[1].tid)),
        "{text}"
    );
}

#[test]
fn a_file_that_says_nothing_keeps_nobody_from_starting() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    std::fs::write(&path, "[{\"tgid\":1,").unwrap();
    let (_, left) = State::open(&path, None).unwrap();
    assert!(
        left.notes()[0].contains("could not be understood"),
        "{left:?}"
    );
    assert!(!path.exists());
    let kept = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(
        kept("s.unreadable"),
        "[{\"tgid\":1,",
        "it may be somebody else's"
    );
    // One more does not take its place.
    std::fs::write(&path, "[").unwrap();
    let notes = restore(&path).unwrap();
    assert!(notes[0].ends_with("s.unreadable+"), "{notes:?}");
    assert_eq!(
        (&kept("s.unreadable")[..2], &kept("s.unreadable+")[..]),
        ("[{", "[")
    );
}

#[test]
fn a_file_of_somebody_else_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("precious.toml");
    for text in ["[host]\npcpus = 2\n", "\u{7f}ELF", "{\"a\": 1}", "[2]"] {
        std::fs::write(&path, text).unwrap();
        for error in [
            State::open(&path, None).map(drop).unwrap_err().to_string(),
            restore(&path).unwrap_err().to_string(),
        ] {
            assert!(error.contains("left as it is"), "{error}");
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        assert!(!path.with_extension("lock").exists());
    }
}

#[test]
fn what_is_no_file_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    assert!(State::open(&path, None).is_err());
    assert!(std::fs::symlink_metadata(&path).unwrap().is_symlink());
    assert!(!path.with_extension("lock").exists());
}

/// A change that was refused, or that a full disk or a killed daemon kept from being made: the thread has what
/// was set before that, which is ours as well.
#[test]
fn what_was_set_before_a_change_that_was_not_made_is_taken_back_too() {
    let fake = Fake::start("worker");
    let before = found(&fake).0;
    let one = PcpuSet::from_iter(before.iter().take(1));
    let only = |affinity| {
        [(
            key(&fake),
            state::Settings {
                affinity,
                slice: None,
            },
        )]
    };
    for ends in ["killed", "asked", "full"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.json");
        let (mut state, _) = State::open(&path, None).unwrap();
        assert!(state.set(&only(one)).unwrap().is_empty());
        if ends == "full" {
            // Nothing can be written next to it any more.
            std::fs::create_dir(folder.path().join("s.json.new")).unwrap();
            assert!(state.set(&only(before)).is_err());
        } else {
            for _ in 0..2 {
                let refused = state.set(&only("511".parse().unwrap())).unwrap();
                assert_eq!(refused.len(), 1, "asked again each time");
            }
        }
        assert_eq!(found(&fake).0, one);
        match ends {
            "killed" => {
                drop(state);
                assert_eq!(State::open(&path, None).unwrap().1.threads, 1);
            }
            _ => assert_eq!(state.restore().unwrap(), 1, "{ends}"),
        }
        assert_eq!(found(&fake).0, before, "{ends}");
        assert!(!path.exists(), "{ends}");
    }
}

/// pCPU 511, which is not there, was when the mask was set: the kernel shows the mask without it.
#[test]
fn a_mask_of_which_pcpus_have_gone_is_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::start("worker");
    let before = found(&fake).0;
    let (mut state, _) = State::open(&folder.path().join("s"), None).unwrap();
    let first = before.iter().next().unwrap();
    let affinity = PcpuSet::from_iter([first, PcpuId(511)]);
    let wanted = state::Settings {
        affinity,
        slice: None,
    };
    state.set(&[(key(&fake), wanted)]).unwrap();
    assert_eq!(found(&fake).0, PcpuSet::from_iter([first]));
    state.restore().unwrap();
    assert_eq!(found(&fake).0, before);
}

/// The thread has gone since it was found, and another one has its number.
#[test]
fn a_thread_with_the_number_of_one_that_has_gone_is_let_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let fake = Fake::start("worker");
    let before = found(&fake).0;
    let mut gone = key(&fake);
    gone.start -= 1;
    let wanted = state::Settings {
        affinity: PcpuSet::from_iter(before.iter().take(1)),
        slice: None,
    };
    let (mut state, _) = State::open(&path, None).unwrap();
    assert!(state.set(&[(gone, wanted)]).unwrap().is_empty());
    assert_eq!(found(&fake).0, before);
}

/// The pCPUs that there were when its mask was changed are fewer than there are now.
#[test]
fn a_thread_that_could_go_anywhere_is_not_tied_to_the_pcpus_of_that_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let fake = Fake::start("worker");
    let all = found(&fake).0;
    let (Some(first), Some(second)) = (all.iter().next(), all.iter().nth(1)) else {
        return; // one pCPU only
    };
    let only = |pcpu| state::Settings {
        affinity: PcpuSet::from_iter([pcpu]),
        slice: None,
    };
    corun_system::affinity::set(fake.tid, &only(second).affinity).unwrap();
    file_of(&path, &[(&fake, only(first), only(second))]);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(
        &path,
        text.replace("{\"before\"", "{\"free\":true,\"before\""),
    )
    .unwrap();
    assert_eq!(State::open(&path, None).unwrap().1.threads, 1);
    assert_eq!(found(&fake).0, all);

    let listed = Process::here(std::process::id()).thread(fake.tid).allowed();
    let can_be = preflight::possible().unwrap();
    let (mut state, _) = State::open(&path, None).unwrap();
    state.set(&[(key(&fake), only(first))]).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let free = listed.unwrap().and(&can_be) == can_be;
    assert_eq!(text.contains("\"free\":true"), free, "{text}");
    state.restore().unwrap();
    assert_eq!(found(&fake).0, all);
}

/// The same number and the same ticks, of another boot: `--state` may name a file that outlives it.
#[test]
fn what_was_changed_in_another_boot_is_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let fake = Fake::start("worker");
    let before = found(&fake).0;
    let one = PcpuSet::from_iter(before.iter().take(1));
    let only = |affinity| state::Settings {
        affinity,
        slice: None,
    };
    file_of(&path, &[(&fake, only(one), only(before))]);
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text.replace("{\"before\"", "{\"boot\":\"another\",\"before\"");
    assert!(text.contains("another"), "{text}");
    std::fs::write(&path, text).unwrap();
    assert_eq!(State::open(&path, None).unwrap().1.threads, 0);
    assert_eq!(found(&fake).0, before);
}

/// As `ExecStopPost=` of corun.service does it.
#[test]
fn what_is_left_is_taken_back_without_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/fair.json");
    assert!(restore(&path).unwrap().is_empty());
    assert!(!folder.path().join("deep").exists(), "nothing to take back");
    let path = folder.path().join("fair.json");
    let fake = Fake::start("worker");
    let before = found(&fake).0;
    let one = PcpuSet::from_iter(before.iter().take(1));
    corun_system::affinity::set(fake.tid, &one).unwrap();
    let only = |affinity| state::Settings {
        affinity,
        slice: None,
    };
    file_of(&path, &[(&fake, only(before), only(one))]);
    assert!(restore(&path).unwrap()[0].contains("of 1 thread"));
    assert_eq!(found(&fake).0, before);
    assert!(!path.exists());
    let stuck = only("511".parse().unwrap());
    file_of(&path, &[(&fake, stuck, only(before))]);
    assert!(restore(&path).is_err(), "told, and still written down");
    assert!(path.exists());
}

/// The administrator needs the reason why a run ended; the rest is printed with it.
#[test]
fn how_it_ended_goes_before_what_could_not_be_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let fake = Fake::start("stuck");
    let only = |affinity| state::Settings {
        affinity,
        slice: None,
    };
    let stuck = only("511".parse().unwrap());
    for asked in [false, true] {
        file_of(&path, &[(&fake, stuck, only(found(&fake).0))]);
        let options = StockOptions {
            state: path.clone(),
            ..options("fair")
        };
        let (state, _) = State::open(&path, None).unwrap();
        let daemon = Daemon::new(options, state, preflight::online().unwrap()).unwrap();
        let more = host_with(|| Some(PcpuSet::first(500)));
        let ended = daemon.serve(&AtomicBool::new(asked), more).unwrap_err();
        match asked {
            true => assert!(matches!(ended, StockError::Stuck { .. }), "{ended}"),
            false => assert!(ended.to_string().contains("pCPUs came or went"), "{ended}"),
        }
    }
}

#[test]
fn a_thread_that_has_gone_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let (mut state, _) = State::open(&folder.path().join("s"), None).unwrap();
    let fake = Fake::start("worker");
    let gone = key(&fake);
    let affinity = PcpuSet::from_iter(found(&fake).0.iter().take(1));
    drop(fake);
    let wanted = state::Settings {
        affinity,
        slice: None,
    };
    assert!(state.set(&[(gone, wanted)]).unwrap().is_empty());
    assert_eq!(state.restore().unwrap(), 0);
}

#[test]
fn a_plan_in_threads_words() {
    let fake = Fake::start("worker");
    let mut vcpu = vcpu(&fake);
    vcpu.allowed = PcpuSet::first(4);
    let online = PcpuSet::first(3);
    let said = |slice, home, pool| TaskPlan {
        slice,
        home,
        pool,
        ..TaskPlan::of(TaskId(0))
    };
    let pools = [Pool {
        slice: 500 * MS,
        pcpus: "2-5".parse().unwrap(),
    }];
    let wish = |placement, said: &TaskPlan| wish(&vcpu, placement, Some(said), &pools, &online);
    let pooled = wish(Placement::Pool, &said(None, None, Some(0)));
    assert_eq!(
        pooled.affinity,
        "2".parse().unwrap(),
        "of the pool, what is allowed and there"
    );
    assert_eq!(
        pooled.slice,
        Some(100 * MS),
        "the longest that the kernel takes"
    );
    let fixed = wish(Placement::Fixed, &said(None, Some(PcpuId(1)), None));
    assert_eq!((fixed.affinity, fixed.slice), ("1".parse().unwrap(), None));
    let free = wish(Placement::Free, &said(Some(MS), None, None));
    assert_eq!((free.affinity, free.slice), (PcpuSet::first(4), Some(MS)));
    let nowhere = wish(Placement::Fixed, &said(None, Some(PcpuId(7)), None));
    assert_eq!(nowhere.affinity, PcpuSet::first(4));
}

fn options(policy: &str) -> StockOptions {
    StockOptions {
        policy: find(policy).unwrap(),
        settings: Settings::default(),
        interval: None,
        run_for: None,
        json: false,
        state: "/dev/null/none".into(),
        out: Box::new(io::sink()),
        notes: |_| {},
    }
}

#[test]
fn times_without_end_are_none() {
    let folder = tempfile::tempdir().unwrap();
    let options = StockOptions {
        interval: Some(Nanos::MAX),
        run_for: Some(Nanos::MAX),
        ..options("fair")
    };
    let (state, _) = State::open(&folder.path().join("s"), None).unwrap();
    let mut daemon = Daemon::new(options, state, preflight::online().unwrap()).unwrap();
    let counted = |_| None;
    assert!(daemon.report.due(clock::now(), &[], counted).is_none());
    let ended = daemon.serve(&AtomicBool::new(true), Host::default());
    assert!(matches!(ended, Ok(Cause::Asked)));
}

#[test]
fn policies_that_need_the_dispatcher_are_refused() {
    let refused = run(options("balance")).unwrap_err().to_string();
    assert!(
        refused.contains("policy balance needs sched_ext") && refused.contains("aql"),
        "{refused}"
    );
    let state = run(options("affinity")).unwrap_err().to_string();
    assert!(state.starts_with("/dev/null/none: "), "{state}");
}

#[test]
fn every_served_policy_exists_and_asks_for_what_can_be_done() {
    for name in SERVED {
        let policy = find(name).unwrap();
        let seen = Snapshot {
            now: 0,
            host: HostSeen::of(Topology::flat(2).unwrap()),
            vms: vec![VmSeen {
                vm: VmId(0),
                weight: None,
                effective: None,
                quotas: Vec::new(),
                cookie: 0,
                vcpus: Vec::new(),
            }],
            others: Vec::new(),
        };
        let mut plan = Plan::default();
        (policy.make)(&Settings::default()).decide(&seen, &mut plan);
        for vm in &plan.vms {
            let can = [Placement::Free, Placement::Fixed, Placement::Pool].contains(&vm.placement);
            assert!(can && vm.gang == corun_model::Gang::None, "{name}: {vm:?}");
        }
    }
}
