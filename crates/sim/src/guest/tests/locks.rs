// SPDX-License-Identifier: GPL-2.0-only
//! Locks between vCPUs that come and go.

use super::*;
use crate::load::Achieved;
use corun_model::time::US;

const HOG: &str = "loop { compute 100ms }";
const LOCKER: &str = "loop { compute 100us ±50%; lock l { compute 100us }; count }";

fn kind(lock: LockKind) -> GuestParams {
    GuestParams { lock, ..free() }
}

/// Two lockers on pCPUs 0 and 1; a hog shares pCPU 0, so that vCPU 0 is preempted while it holds
/// the lock.
fn preempted_holder(params: GuestParams, slice: Nanos) -> Outcome {
    let lockers = vm("a", params, &[LOCKER; 2]);
    run(2, slice, vec![lockers, on(0, vm("hog", free(), &[HOG]))])
}

#[test]
fn an_uncontended_lock_is_counted_but_has_no_wait() {
    let outcome = run(
        1,
        MS,
        vec![vm("a", free(), &["loop { lock l { compute 1ms }; count }"])],
    );
    let achieved = &outcome.vms[0].achieved;
    assert_eq!(
        (achieved.lock_acquisitions, achieved.lock_waits.count()),
        (1000, 0)
    );
}

#[test]
fn two_lockers_share_a_lock_fully() {
    for lock in [LockKind::Unfair, LockKind::Ticket, LockKind::Paravirtual] {
        let program = "loop { lock l { compute 100us }; compute 10us; count }";
        let outcome = run(2, MS, vec![vm("a", kind(lock), &[program; 2])]);
        let rounds = throughput(&outcome, 0);
        assert!((rounds - 10_000.0).abs() <= 2.0, "{lock:?}: {rounds}");
        let waits = &outcome.vms[0].achieved.lock_waits;
        // The other thread holds the lock for 100 us, 10 us of which overlap with this thread's own
        // work outside it.
        let wait = waits.quantile(0.5);
        assert!((89 * US..=91 * US).contains(&wait), "{lock:?}: {wait}");
    }
}

#[test]
fn a_preempted_holder_makes_others_wait_for_its_slice() {
    for slice in [5 * MS, 20 * MS, 60 * MS] {
        let outcome = preempted_holder(kind(LockKind::Ticket), slice);
        let longest = outcome.vms[0].achieved.lock_waits.max();
        let bounds = slice..=slice + slice / 100 + 100 * US;
        assert!(bounds.contains(&longest), "{slice}: {longest}");
        // The waiter spins the whole time: its pCPU is busy and does nothing.
        assert_eq!(outcome.vms[0].vcpus[1].wait, 0);
        assert!(outcome.vms[0].achieved.spin > SEC / 3);
    }
}

#[test]
fn a_paravirtual_waiter_gives_its_pcpu_back() {
    let ticket = preempted_holder(kind(LockKind::Ticket), 20 * MS);
    let halting = preempted_holder(kind(LockKind::Paravirtual), 20 * MS);
    let wait = halting.vms[0].achieved.lock_waits.max();
    assert!(wait > 19 * MS, "it waits as long: {wait}");
    let spin = |outcome: &Outcome| outcome.vms[0].achieved.spin;
    assert!(spin(&halting) * 3 < spin(&ticket), "{}", spin(&halting));
    let halted = halting.vms[0].vcpus[1].wait;
    // vCPU 0 is descheduled for half a second, for 0.3 to 0.5 of that as the holder.
    assert!((SEC / 10..SEC / 3).contains(&halted), "{halted}");
    assert!(halting.vms[0].achieved.lock_halts > 0);
}

#[test]
fn the_releaser_kicks_a_halted_waiter() {
    // Without the kick only the tick would wake it, once a second here.
    let params = GuestParams {
        hz: 1,
        ..kind(LockKind::Paravirtual)
    };
    let program = "loop { lock l { compute 1ms }; compute 10us; count }";
    let outcome = run(2, 10 * MS, vec![vm("a", params, &[program; 2])]);
    let rounds = throughput(&outcome, 0);
    assert!((rounds - 1000.0).abs() <= 2.0, "{rounds}");
    let wait = outcome.vms[0].achieved.lock_waits.quantile(0.9);
    assert!((985 * US..=995 * US).contains(&wait), "{wait}");
    // Each wait is 150 us of spinning, then a halt.
    let spin = outcome.vms[0].achieved.spin;
    assert!((149 * MS..=151 * MS).contains(&spin), "{spin}");
    let halts = outcome.vms[0].achieved.lock_halts;
    assert!((halts as f64 - 1000.0).abs() <= 2.0, "{halts}");
}

/// The first second on `pcpus` pCPUs.
fn from_the_start(pcpus: u32, slice: Nanos, vms: Vec<VmSpec>) -> Outcome {
    let guests = Box::new(Guests::new(vms, Vec::new(), 1).unwrap());
    let sched = Box::new(RoundRobin::new(slice));
    Simulation::new(machine(pcpus, FREE), sched, guests, None).run(0, SEC, |_| {})
}

/// What three threads did, each on a pCPU of its own, of which the second is shared with a hog in slices of a
/// millisecond: the second thread has its pCPU in the first slice, and in the third.
fn three_on_paravirtual_locks(programs: [&str; 3]) -> Outcome {
    let lockers = vm("a", kind(LockKind::Paravirtual), &programs);
    from_the_start(3, MS, vec![lockers, on(1, vm("hog", free(), &[HOG]))])
}

/// The vCPU waits for the lock from 4 ms to 23 ms, and KVM has learnt from its naps to poll for it. A poll does not
/// wait for threads that are only on the vCPU's runqueue: the vCPU has halted once, and gives its pCPU back.
#[test]
fn a_halted_waiter_is_not_called_by_a_thread_in_its_runqueue() {
    let params = GuestParams {
        hz: 1,
        wakeup_granularity: SEC,
        ..kind(LockKind::Paravirtual)
    };
    let naps = "loop 20 { compute 10us; sleep 50us }; compute 2800us; lock l { compute 1us }";
    let mut lockers = vm("a", params, &["compute 3ms; lock l { compute 20ms }", naps]);
    let alone = from_the_start(2, 10 * MS, vec![lockers.clone()]);
    lockers.threads.push(ThreadSpec {
        name: "waits".into(),
        program: Program::parse("sleep 3900us; compute 1us").unwrap(),
        vcpu: Some(1),
    });
    let beside = from_the_start(2, 10 * MS, vec![lockers]);
    for outcome in [&alone, &beside] {
        let achieved = &outcome.vms[0].achieved;
        assert!(achieved.halt_poll_hits > 10);
        assert_eq!((achieved.spin, achieved.lock_halts), (150 * US, 1));
    }
    let polls = |outcome: &Outcome| outcome.vms[0].achieved.halt_poll_hits;
    assert_eq!(polls(&alone), polls(&beside));
}

/// The first waiter waits from 950 us on, is preempted at 1 ms, and the lock is let go at 1.05 ms: no thread has it
/// until 2 ms.
#[test]
fn nobody_takes_a_lock_before_a_first_waiter_that_was_preempted_while_it_spun() {
    let holder = "lock l { compute 1050us }";
    let first = "compute 950us; lock l { compute 10us }";
    let outcome =
        three_on_paravirtual_locks([holder, first, "compute 1100us; lock l { compute 1us }"]);
    let achieved = &outcome.vms[0].achieved;
    let waits = &achieved.lock_waits;
    assert_eq!((waits.count(), waits.max() / (10 * US)), (2, 105));
    // The other one gives up after 150 us, at 1.25 ms; the first has spun for 50.
    assert_eq!((achieved.spin, achieved.lock_halts), (200 * US, 1));
    // A waiter that has halted by then, at 950 us, keeps no thread out.
    let halted = "compute 800us; lock l { compute 10us }";
    let outcome =
        three_on_paravirtual_locks([holder, halted, "compute 1100us; lock l { compute 1us }"]);
    assert_eq!(outcome.vms[0].achieved.lock_waits.count(), 1);
}

/// The first waiter halts at 0.16 ms, so that the one that comes at 0.3 does not queue, and does not halt: it gets the
/// lock at 1 ms, when that is let go. The first is kicked in vain, and halts again. A thread that comes while the first
/// spins queues.
#[test]
fn one_that_comes_while_the_first_has_halted_spins_and_takes_the_lock() {
    let outcome = |last: &str| {
        let first = "compute 10us; lock l { compute 1ms }";
        let third = "compute 300us; lock l { compute 1ms }";
        let programs = ["lock l { compute 1ms }", first, third, last];
        let params = kind(LockKind::Paravirtual);
        from_the_start(4, 10 * MS, vec![vm("a", params, &programs)])
    };
    let one = outcome("compute 1us");
    let achieved = &one.vms[0].achieved;
    let waits = &achieved.lock_waits;
    assert_eq!((waits.count(), waits.max() / (10 * US)), (2, 199));
    assert_eq!(
        (achieved.spin, achieved.lock_halts),
        ((150 + 150 + 700) * US, 2)
    );
    let two = outcome("compute 1050us; lock l { compute 1us }");
    let achieved = &two.vms[0].achieved;
    assert_eq!((achieved.spin, achieved.lock_halts), ((1000 + 150) * US, 3));
}

#[test]
fn pause_loop_exits_let_others_go_first() {
    let hogs = |params| {
        let lockers = vm("a", params, &[LOCKER; 2]);
        let hogs = [0, 1].map(|pcpu| on(pcpu, vm("hog", free(), &[HOG])));
        // pCPU 1 is a step ahead, so that the two vCPUs do not always run together.
        let early = on(1, vm("early", free(), &["compute 7ms"]));
        let vms = std::iter::once(lockers).chain(hogs).chain([early]);
        run(2, 20 * MS, vms.collect())
    };
    let without = hogs(kind(LockKind::Ticket));
    let with = hogs(GuestParams {
        ple_window: Some(2 * US),
        ..kind(LockKind::Ticket)
    });
    let spin = |outcome: &Outcome| outcome.vms[0].achieved.spin;
    assert!(
        spin(&with) * 10 < spin(&without),
        "{} {}",
        spin(&with),
        spin(&without)
    );
}

#[test]
fn a_preempted_waiter_stalls_ticket_locks_only() {
    // Three lockers; the hog preempts one of them, holder or not.
    let program = "loop { lock l { compute 50us }; compute 20us; count }";
    let rounds = |lock| {
        let lockers = vm("a", kind(lock), &[program; 3]);
        let outcome = run(3, 10 * MS, vec![lockers, on(0, vm("hog", free(), &[HOG]))]);
        throughput(&outcome, 0)
    };
    // With three lockers that want it all the time, the preempted one is always in the queue.
    let ticket = rounds(LockKind::Ticket);
    assert!((9_500.0..=10_500.0).contains(&ticket), "{ticket}");
    // Test-and-set stalls only when the holder is preempted.
    let unfair = rounds(LockKind::Unfair);
    assert!(unfair > 1.2 * ticket, "{unfair}");
}

#[test]
fn a_mutex_waiter_leaves_its_vcpu() {
    let program = "loop { mutex m { compute 1ms }; count }";
    let outcome = run(2, 10 * MS, vec![vm("a", free(), &[program; 2])]);
    assert_eq!(throughput(&outcome, 0), 1000.0);
    assert_eq!(outcome.vms[0].achieved.spin, 0);
    let run: Nanos = outcome.vms[0].vcpus.iter().map(|vcpu| vcpu.run).sum();
    assert!((run as i64 - SEC as i64).abs() < 10, "{run}");
}

/// Two threads that take a mutex for `held` after each microsecond, in a guest whose futex calls take `futex`; the
/// rounds of both, and what else they achieved.
fn rounds_of_two(held: Nanos, futex: Nanos) -> (f64, Achieved) {
    let params = GuestParams { futex, ..free() };
    let program = format!("loop {{ mutex m {{ compute {held}ns }}; compute 1us; count }}");
    let outcome = run(2, 10 * MS, vec![vm("a", params, &[program.as_str(); 2])]);
    (throughput(&outcome, 0), outcome.vms[0].achieved.clone())
}

#[test]
fn who_asks_to_sleep_for_a_mutex_that_is_let_go_meanwhile_tries_again() {
    // The first meets the second once: it calls for 300 ns, while the other lets go after 100 and also calls, but wakes
    // no thread. From then on they are 200 ns apart, and each has let go before the other comes.
    let (rounds, done) = rounds_of_two(100, 300);
    assert!(
        (rounds / (2.0 * 1e9 / 1100.0) - 1.0).abs() < 0.001,
        "{rounds}"
    );
    assert_eq!(done.thread_switches, 0);
    // Without the kernel's second look both sleep.
    let (_, slept) = rounds_of_two(100, 0);
    assert!(slept.thread_switches > 1_000, "{}", slept.thread_switches);
    // A lock held for longer than a call takes is worth sleeping for.
    let (_, slept) = rounds_of_two(10_000, 300);
    assert!(slept.thread_switches > 10_000, "{}", slept.thread_switches);
    // A lone thread makes no calls.
    let alone = run(
        1,
        10 * MS,
        vec![vm(
            "a",
            GuestParams {
                futex: 300,
                ..free()
            },
            &["loop { mutex m { compute 1us } }"],
        )],
    );
    assert_eq!(alone.vms[0].achieved.kernel, 0);
}

#[test]
fn who_is_signalled_has_the_mutex_before_it_goes_on() {
    // The signaller keeps the mutex for `held` after each of its signals, one per millisecond.
    let signals = |held: Nanos, futex: Nanos| {
        let params = GuestParams { futex, ..free() };
        let signaller =
            format!("loop {{ every 1ms; mutex m {{ signal ready; compute {held}ns }} }}");
        let waiter = "loop { mutex m { wait ready }; compute 10us; count }";
        let outcome = run(2, 10 * MS, vec![vm("a", params, &[&signaller, waiter])]);
        throughput(&outcome, 0)
    };
    for (held, futex) in [(100, 0), (100, 300), (200_000, 0), (200_000, 300)] {
        let seen = signals(held, futex);
        assert!((seen - 1000.0).abs() < 2.0, "{held} {futex}: {seen}");
    }
}

#[test]
fn the_guest_does_not_preempt_a_holder() {
    // The sleeper would preempt the hog, but not under the lock: it wakes every 5 ms at best.
    let mut spec = vm(
        "a",
        free(),
        &[
            "loop { lock l { compute 5ms } }",
            "loop { sleep 100us; compute 1us; count }",
        ],
    );
    spec.vcpus = 1;
    spec.threads
        .iter_mut()
        .for_each(|thread| thread.vcpu = Some(0));
    let wakes = throughput(&run(1, 10 * MS, vec![spec]), 0);
    assert!((100.0..=201.0).contains(&wakes), "{wakes}");
}

/// `threads` threads that meet after about 1 ms each, each on a pCPU that it shares with a hog; all rounds in a second,
/// with slices of 10 ms.
fn meetings(meet: &str, threads: u32) -> f64 {
    let program = format!("loop {{ compute 1ms ±20%; {meet}; count }}");
    let programs = vec![program.as_str(); threads as usize];
    let hogs = (0..threads).map(|pcpu| on(pcpu, vm("hog", free(), &[HOG])));
    let all = std::iter::once(vm("a", free(), &programs)).chain(hogs);
    let outcome = run(threads, 10 * MS, all.collect());
    throughput(&outcome, 0) / f64::from(threads)
}

#[test]
fn threads_blocked_at_a_condition_barrier_are_woken_one_after_the_other() {
    // Two threads: one is woken by the other, however the barrier is built.
    assert_eq!(meetings("condition-barrier b", 2), meetings("barrier b", 2));
    // Eight: each wake-up waits for a hog's slice; at a plain barrier all wait at once.
    let (relayed, together) = (meetings("condition-barrier b", 8), meetings("barrier b", 8));
    assert!(relayed < 0.5 * together, "{relayed} {together}");
}

#[test]
fn a_thread_blocked_at_a_spin_barrier_is_woken_with_the_others() {
    // A thread that does not spin long enough to matter is woken as at a barrier that blocks.
    let together = meetings("barrier b", 8);
    let spun = meetings("spin-barrier b 1us", 8);
    assert!((spun / together - 1.0).abs() < 0.05, "{spun} {together}");
}

#[test]
fn a_thread_that_spins_at_a_barrier_needs_no_waking() {
    for barrier in ["condition-barrier", "spin-barrier"] {
        let thread = |us| format!("loop {{ compute {us}us; {barrier} b 300us; count }}");
        let (early, late) = (thread(500), thread(700));
        let outcome = run(2, 10 * MS, vec![vm("a", free(), &[&early, &late])]);
        let achieved = &outcome.vms[0].achieved;
        // 200 us of each round of 700 us.
        assert_eq!(achieved.spin / (200 * US), SEC / (700 * US));
        assert_eq!(outcome.vms[0].vcpus[0].wait, 0);
        // It spins no longer than stated, and then blocks.
        let late = thread(900);
        let outcome = run(2, 10 * MS, vec![vm("a", free(), &[&early, &late])]);
        let rounds = SEC / (900 * US);
        assert_eq!(outcome.vms[0].achieved.spin / (300 * US), rounds);
        assert_eq!(throughput(&outcome, 0) as u64 / 2, rounds);
    }
}

#[test]
fn a_group_has_its_work_done_once() {
    let rounds = |with: &str| {
        let program = format!("loop {{ compute 10us; {with}; count }}");
        let mut spec = vm("a", free(), &[program.as_str(); 4]);
        spec.vcpus = 4;
        run(4, 10 * MS, vec![spec])
    };
    // One thread leads for itself; meanwhile the others come, and one of them leads for all of
    // these, while the first comes again: four rounds in 60 us, compared with two with a mutex.
    let near = |outcome: &Outcome, each: Nanos| {
        let expected = 1e9 / each as f64;
        let seen = throughput(outcome, 0);
        assert!((seen / expected - 1.0).abs() < 0.01, "{seen} {expected}");
    };
    near(&rounds("mutex g { compute 30us }"), 30 * US);
    let blocked = rounds("write-group g 30us");
    near(&blocked, 15 * US);
    assert_eq!(blocked.vms[0].achieved.spin, 0);
    let spun = rounds("write-group g 30us 50us");
    near(&spun, 15 * US);
    // Of 60 us each thread works for 10; three spin for 20, and so does the fourth, which led
    // alone; two of them also spin while the third leads for them.
    assert!(spun.vms[0].achieved.spin > SEC);
    let briefly = rounds("write-group g 30us 5us");
    near(&briefly, 15 * US);
    assert!(briefly.vms[0].achieved.spin < SEC / 2);
}
