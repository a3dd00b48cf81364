// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

#[test]
fn odd_names_do_not_shift_fields() {
    let line = "12 (a) b (c) S 1 12 12 0 -1 4194560 1 0 0 0 5 6 0 0 20 0 3 0 4711 1 2 3 4 5 6 7 8 9 10 \
                11 12 13 14 15 17 3 0 0";
    let stat = Stat::parse(line).unwrap();
    assert_eq!((stat.name.as_str(), stat.parent), ("a) b (c", 1));
    assert_eq!((stat.start, stat.cpu, stat.state), (4711, 3, 'S'));
    assert!(!stat.is_kernel);
    for short in ["", "12 (a", "12 (a) S 1 12"] {
        assert_eq!(Stat::parse(short), None, "{short}");
    }
}

#[test]
fn threads_of_the_kernel_are_known_by_their_flag() {
    let line = "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 6 0 0 20 0 1 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0";
    assert!(Stat::parse(line).unwrap().is_kernel);
}

/// A worker of io_uring, as Linux 6.1 shows it.
#[test]
fn threads_whose_mask_is_fixed_are_known_by_their_flag() {
    let flags = |flags: u32| {
        let line = format!(
            "9 (iou-wrk-7) S 1 0 0 0 -1 {flags} 0 0 0 0 0 6 0 0 20 0 1 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
        );
        Stat::parse(&line).unwrap()
    };
    let worker = flags(0x0440_4050);
    assert!(worker.is_fixed && !worker.is_kernel);
    assert!(!flags(0x0040_4040).is_fixed);
}

#[test]
fn times_and_turns_of_a_thread() {
    let expected = Counted {
        run: 12,
        ready: 34,
        turns: 5,
    };
    assert_eq!(Counted::parse("12 34 5\n"), Some(expected));
    assert_eq!(Counted::parse("12 34"), None);
    assert_eq!(Counted::parse("x"), None);
    // Counters that begin anew, as they do when a number is used again.
    assert_eq!(Counted::default().since(expected), Counted::default());
}

#[test]
fn bytes_that_devices_gave_and_took() {
    let io = "rchar: 1\nread_bytes: 4096\nwrite_bytes: 10\ncancelled_write_bytes: 3\n";
    assert_eq!((transferred_in(io), transferred_in("")), (4106, 0));
}

#[test]
fn stolen_time_by_cpu() {
    let text = "cpu  10 0 5 100 0 0 0 42 0 0\ncpu0 5 0 2 50 0 0 0 40 0 0\ncpu3 5 0 3 50 0 0 0 2 0 0\nintr 1\n";
    assert_eq!(stolen_in(text), Some((42, vec![(0, 40), (3, 2)])));
    assert_eq!(stolen_in("cpu  1 2 3"), None);
    assert_eq!(stolen_in(""), None);
}

#[test]
fn of_very_many_threads_some_are_listed() {
    let root = tempfile::tempdir().unwrap();
    for tid in 7..27 {
        std::fs::create_dir_all(root.path().join(format!("7/task/{tid}"))).unwrap();
    }
    let process = Proc::at(root.path()).process(7);
    let all: Vec<u32> = (7..27).collect();
    assert_eq!(process.threads(), all);
    assert_eq!(
        (process.some_threads(20), process.some_threads(21)),
        (all.clone(), all.clone())
    );
    let some = process.some_threads(5);
    assert!(some.len() == 5 && some.is_sorted(), "{some:?}");
    assert!(some.iter().all(|tid| all.contains(tid)), "{some:?}");
}

#[test]
fn no_thread_is_overlooked_while_others_end() {
    let over = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&over);
    let come_and_go = std::thread::spawn(move || {
        while !ended.load(Ordering::Relaxed) {
            let nap = || std::thread::sleep(Duration::from_micros(500));
            let threads: Vec<_> = (0..30).map(|_| std::thread::spawn(nap)).collect();
            threads.into_iter().for_each(|it| it.join().unwrap());
        }
    });
    let process = Process::here(std::process::id());
    let overlooked = (0..5000).filter(|_| {
        // The newest are at the end of the list, behind those that end.
        let (give, take) = mpsc::channel();
        let (end, until) = mpsc::channel::<()>();
        let lasting = std::thread::spawn(move || {
            // SAFETY: takes nothing and always works.
            give.send(unsafe { libc::gettid() } as u32).unwrap();
            let _ = until.recv();
        });
        let is_listed = process.threads().contains(&take.recv().unwrap());
        drop(end);
        lasting.join().unwrap();
        !is_listed
    });
    assert_eq!(overlooked.count(), 0);
    over.store(true, Ordering::Relaxed);
    come_and_go.join().unwrap();
}

#[test]
fn this_process_is_there_and_a_made_up_one_is_not() {
    let (proc, me) = (Proc::default(), std::process::id());
    let process = Process::here(me);
    assert!(proc.is_mounted() && process.threads().contains(&me));
    assert!(proc.processes().contains(&me));
    let (thread, stat) = (proc.thread(me, me), proc.thread(me, me).stat().unwrap());
    assert!(stat.start > 0 && !stat.is_kernel);
    assert_eq!(process.start(), Some(stat.start));
    assert_eq!(thread.name(), Some(stat.name));
    assert_eq!(proc.any_thread(me).process(), Some(me));
    assert!(thread.counted().is_some());
    assert!(!process.words().unwrap().is_empty());
    assert!(!thread.cgroups().is_empty());
    // SAFETY: takes nothing and always works.
    assert_eq!(thread.user(), Some(unsafe { libc::geteuid() }));
    let key = |start| ThreadKey {
        tgid: me,
        tid: me,
        start,
    };
    assert!(proc.is_there(&key(stat.start)) && !proc.is_there(&key(0)));

    let nobody = Process::here(u32::MAX);
    assert!(nobody.threads().is_empty());
    assert_eq!((nobody.words(), nobody.cgroup()), (None, None));
    assert_eq!((nobody.start(), nobody.thread_count()), (None, None));
    assert_eq!(nobody.thread(1).stat(), None);
    assert_eq!(nobody.thread(1).counted(), None);
}

#[test]
fn masks_as_the_kernel_tells_them_without_what_is_off_line() {
    // SAFETY: takes nothing and always works.
    let me = unsafe { libc::gettid() } as u32;
    let online = line(Path::new("/sys/devices/system/cpu/online")).unwrap();
    let online: PcpuSet = online.parse().unwrap();
    let listed = Proc::default().any_thread(me).allowed().unwrap();
    assert_eq!(crate::affinity::get(me).unwrap(), listed.and(&online));
}

/// Anybody may name a thread by `prctl()`, with any bytes.
#[test]
fn a_name_that_is_no_text_hides_nobody() {
    let name = b"\xff\xfe) R 1\0";
    let named = std::thread::spawn(|| {
        // SAFETY: a constant and a string that ends in a zero; `gettid` takes nothing.
        let me = unsafe {
            libc::prctl(libc::PR_SET_NAME, name.as_ptr());
            libc::gettid() as u32
        };
        let thread = Proc::default().thread(std::process::id(), me);
        (thread.stat(), thread.user(), thread.name())
    });
    let (stat, user, name) = named.join().unwrap();
    assert!(stat.is_some_and(|stat| stat.start > 0 && stat.name.ends_with(") R 1")));
    assert!(user.is_some() && name.is_some());
}

#[test]
fn threads_are_counted() {
    let mut one = Command::new("sleep").arg("60").spawn().unwrap();
    let count = |tgid| Process::here(tgid).thread_count().unwrap();
    let (one_has, we_have) = (count(one.id()), count(std::process::id()));
    one.kill().unwrap();
    one.wait().unwrap();
    // The program that runs the tests has a thread besides each test's.
    assert!(one_has < we_have, "{one_has} of one, {we_have} of several");
}

#[test]
fn without_procfs_there_is_nothing_and_no_panic() {
    let empty = tempfile::tempdir().unwrap();
    let proc = Proc::at(empty.path());
    assert!(!proc.is_mounted());
    assert!(proc.processes().is_empty());
    assert_eq!((proc.boot(), proc.stolen()), (None, None));
    assert_eq!(proc.ticks(), None);
}

#[test]
fn open_files_are_known_by_their_links() {
    let root = tempfile::tempdir().unwrap();
    let fds = root.path().join("proc/5/fd");
    fs::create_dir_all(&fds).unwrap();
    let process = Proc::below(root.path()).process(5);
    let link = |to: &str, number: usize| {
        std::os::unix::fs::symlink(to, fds.join(number.to_string())).unwrap();
    };
    link("/dev/kvm", 3);
    link("anon_inode:kvm-vm", 4);
    assert_eq!(process.has_open("anon_inode:kvm-vcpu"), Some(false));
    link("anon_inode:kvm-vcpu:0", 5);
    assert_eq!(process.has_open("anon_inode:kvm-vcpu"), Some(true));
    for number in 6..4103 {
        link("/dev/null", number);
    }
    assert_eq!(process.has_open("socket:"), None, "too many");
    let nobody = Proc::below(root.path()).process(6);
    assert_eq!(nobody.has_open("anon_inode:kvm-vcpu"), None);
}
