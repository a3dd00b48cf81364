// SPDX-License-Identifier: GPL-2.0-only
//! Uses a pCPU's clock in place of its cycles, since every machine counts that.

use super::*;
use crate::confine::{Places, confine};
use corun_policies::pmu::{Event, SOFTWARE};
use corun_system::procfs::Process;
use std::hint::black_box;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// A pCPU that does not exist, so that it does what it is told.
const NOBODY: PcpuId = PcpuId(7);
const CLOCK: Event = Event {
    kind: SOFTWARE,
    config: 0,
};
/// An event that never happens.
const NOTHING: Event = Event {
    kind: SOFTWARE,
    config: 9,
};

/// Counts on pCPU 0, beside one that has idled since its last switch, or has not.
fn counting(stalls: Event, misses: Option<Event>, idles: bool) -> Option<Cycles> {
    let program = match Program::load_for(NOBODY.0 + 1) {
        Err(error) if error.kind() == libbpf_rs::ErrorKind::PermissionDenied => {
            eprintln!("not tested: this takes CAP_BPF");
            return None;
        }
        program => program.unwrap(),
    };
    program.set(NOBODY, [2 + u64::from(idles), 0, 0]).unwrap();
    let mut cycles = Cycles {
        program: Ok(program),
        pcpus: vec![(PcpuId(0), NOBODY)],
        wanted: None,
        counting: None,
    };
    cycles.want(Some(Choice::These(Events {
        cycles: CLOCK,
        stalls,
        misses,
    })));
    assert!(
        matches!(cycles.counting, Some(Ok(_))),
        "{:?}",
        cycles.note()
    );
    Some(cycles)
}

fn tid() -> u32 {
    // SAFETY: it has no arguments, and cannot fail.
    unsafe { libc::gettid() }.cast_unsigned()
}

/// Stays on pCPU 0.
fn pin() {
    // SAFETY: a set of pCPUs is bits only, zeroed and then set by libc's own functions; 0: this thread.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        assert_eq!(
            libc::sched_setaffinity(0, size_of_val(&set), &raw const set),
            0
        );
    }
}

/// ns that this thread has run.
fn ran() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Computes in turns, and returns for how long in all.
fn turns() -> u64 {
    let before = ran();
    for _ in 0..20 {
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(5) {
            black_box(0u64);
        }
        thread::sleep(Duration::from_millis(1));
    }
    ran() - before
}

/// What is counted of turns that one watched thread has, with `start` as its start, and how long they were.
fn counted(cycles: &mut Cycles, start_off: u64) -> (Option<CyclesSeen>, u64) {
    let told = thread::scope(|scope| {
        let worker = scope.spawn(|| {
            pin();
            let start = Process::here(std::process::id())
                .thread(tid())
                .start()
                .unwrap()
                + start_off;
            let key = ThreadKey {
                tgid: std::process::id(),
                tid: tid(),
                start,
            };
            cycles.watch_threads([key].into_iter());
            // The turn in which it was not watched yet does not count.
            thread::sleep(Duration::from_millis(2));
            let ran = turns();
            (cycles.read(key), ran)
        });
        worker.join()
    });
    told.unwrap()
}

fn share(part: u64, whole: u64) -> u64 {
    part * 100 / whole.max(1)
}

#[test]
fn turns_beside_an_idle_sibling_are_counted_and_no_others() {
    let Some(mut beside_idle) = counting(NOTHING, Some(NOTHING), true) else {
        return;
    };
    let (seen, ran) = counted(&mut beside_idle, 0);
    let seen = seen.unwrap();
    let percent = share(seen.cycles, ran);
    assert!((90..=115).contains(&percent), "{seen:?} of {ran} ns");
    assert_eq!((seen.base, seen.miss), (seen.cycles, 0));
    drop(beside_idle);

    let mut beside_busy = counting(NOTHING, Some(NOTHING), false).unwrap();
    let (seen, _) = counted(&mut beside_busy, 0);
    assert_eq!(seen, Some(CyclesSeen::default()));
}

#[test]
fn stalls_are_no_base_and_where_misses_are_not_told_apart_they_wait() {
    let Some(mut all_stalls) = counting(CLOCK, None, true) else {
        return;
    };
    let (seen, ran) = counted(&mut all_stalls, 0);
    let seen = seen.unwrap();
    assert!(share(seen.cycles, ran) > 90, "{seen:?} of {ran} ns");
    // The clocks are read one after the other.
    assert!(
        share(seen.base, seen.cycles) < 10 && seen.miss == 0,
        "{seen:?}"
    );
    let note = all_stalls.note().unwrap();
    assert!(
        note.contains("stalls by software cpu-clock; stalls on misses"),
        "{note}"
    );
    drop(all_stalls);

    let mut all_misses = counting(CLOCK, Some(CLOCK), true).unwrap();
    let (seen, _) = counted(&mut all_misses, 0);
    let seen = seen.unwrap();
    assert!(share(seen.miss, seen.cycles) > 90, "{seen:?}");
}

#[test]
fn a_number_that_is_used_again_is_another_thread() {
    let Some(mut cycles) = counting(NOTHING, Some(NOTHING), true) else {
        return;
    };
    let (seen, _) = counted(&mut cycles, 1);
    assert_eq!(seen, Some(CyclesSeen::default()));
}

#[test]
fn a_thread_that_leaves_is_forgotten_and_its_counters_are_let_go() {
    let Some(mut cycles) = counting(NOTHING, Some(NOTHING), true) else {
        return;
    };
    let key = |tid| ThreadKey {
        tgid: 1,
        tid,
        start: 5,
    };
    cycles.watch_threads([key(1), key(2)].into_iter());
    assert_eq!(cycles.read(key(2)), Some(CyclesSeen::default()));
    cycles.watch_threads([key(1)].into_iter());
    assert_eq!(
        (cycles.read(key(2)), cycles.read(key(1)).is_some()),
        (None, true)
    );
    cycles.want(None);
    assert_eq!((cycles.read(key(1)), cycles.note()), (None, None));
    let program = cycles.program.as_ref().unwrap();
    assert_eq!(program.read(key(1)), None);
    let counters = (0..program.events.max_entries()).filter(|key| {
        let found = program.events.lookup(&key.to_ne_bytes(), MapFlags::ANY);
        found.is_ok_and(|found| found.is_some())
    });
    assert_eq!(counters.count(), 0);
}

/// The daemon may have begun with another policy, and has given up loading programs since.
#[test]
fn it_begins_and_ends_for_a_daemon_that_may_load_nothing_any_more() {
    let done = thread::spawn(|| {
        let Some(mut cycles) = counting(NOTHING, None, true) else {
            return;
        };
        cycles.want(None);
        confine(&Places::new(Path::new("/"), [])).unwrap();
        assert!(Program::load_for(1).is_err());
        cycles.want(Some(Choice::These(Events {
            cycles: CLOCK,
            stalls: NOTHING,
            misses: None,
        })));
        assert!(
            matches!(cycles.counting, Some(Ok(_))),
            "{:?}",
            cycles.note()
        );
    });
    done.join().unwrap();
}

#[test]
fn what_is_missing_is_said() {
    let host = HostSeen {
        topology: corun_model::Topology::flat(2).unwrap(),
        llcs: Vec::new(),
        nodes: Vec::new(),
        smt: None,
        wakers_hidden: false,
        awaited_hidden: None,
    };
    let mut cycles = Cycles::load(&host, &PcpuSet::first(2));
    assert_eq!(cycles.note(), None, "nobody asks");
    cycles.want(Some(Choice::OfHost));
    let note = cycles.note().unwrap();
    assert!(
        note.ends_with("do not have two hardware threads each"),
        "{note}"
    );

    let Some(mut cycles) = counting(NOTHING, None, true) else {
        return;
    };
    let none = Event {
        kind: 0x7fff_ffff,
        config: 0,
    };
    cycles.want(Some(Choice::These(Events {
        cycles: CLOCK,
        stalls: none,
        misses: None,
    })));
    let note = cycles.note().unwrap();
    assert!(
        note.contains("stalls, 2147483647 0x0, on pCPU 0: ")
            && note.contains("not counted on this"),
        "{note}"
    );
}
