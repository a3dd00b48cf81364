// SPDX-License-Identifier: GPL-2.0-only
//! Conditions, clocks, shootdowns and idling, computed by hand.

use super::*;
use corun_model::time::US;

fn achieved(outcome: &Outcome) -> &Achieved {
    &outcome.vms[0].achieved
}

/// The measured second may begin or end in the middle of a round.
fn near(seen: f64, expected: f64) {
    assert!((seen - expected).abs() <= 1.0, "{seen}, not {expected}");
}

#[test]
fn a_signal_wakes_one_and_a_broadcast_all() {
    let waiter = "loop { mutex m { wait c }; count; compute 1us }";
    let once = ["loop { sleep 10ms; signal c }", waiter, waiter, waiter];
    let all = ["loop { sleep 10ms; broadcast c }", waiter, waiter, waiter];
    let per_second =
        |programs: &[&str]| throughput(&run(4, 10 * MS, vec![vm("a", free(), programs)]), 0);
    assert_eq!(per_second(&once), 100.0);
    assert_eq!(per_second(&all), 300.0);
}

#[test]
fn a_waiter_lets_its_mutex_go_and_has_it_when_it_goes_on() {
    // The signaller gets the mutex while the other waits, and holds it for 1 ms after its signal.
    let programs = [
        "loop { mutex m { wait c; compute 1ms; count } }",
        "loop { sleep 9ms; mutex m { signal c; compute 1ms } }",
    ];
    let outcome = run(2, 10 * MS, vec![vm("a", free(), &programs)]);
    // 9 ms asleep, 1 ms with the mutex; 9 ms of sleep cover the waiter's own 1 ms.
    assert_eq!(throughput(&outcome, 0), 100.0);
}

#[test]
fn a_period_is_kept_whatever_the_work_and_missed_ones_are_dropped() {
    let rate = |work: &str| {
        let program = format!("loop {{ compute {work}; count; every 10ms }}");
        throughput(&run(1, 10 * MS, vec![vm("a", free(), &[&program])]), 0)
    };
    assert_eq!((rate("1ms"), rate("9ms")), (100.0, 100.0));
    // The thread is late each time: it does nothing but work.
    assert_eq!(rate("20ms"), 50.0);
}

#[test]
fn a_timer_counts_from_the_start_and_goes_with_its_name_not_its_place() {
    let rate = |program: &str| throughput(&run(1, 10 * MS, vec![vm("a", free(), &[program])]), 0);
    // Two places use one timer: 10 ms each, not 10 ms for both.
    let both = "loop { compute 1ms; count; timer t 10ms; compute 2ms; timer t 10ms }";
    assert_eq!(rate(both), 50.0);
    // 25 ms, then nine times 1 ms. Relative: 15 ms too late for good, 115 ms for ten periods.
    // Absolute: two periods of 1 ms make up for it, and all ten take 100 ms.
    let late = |mode: &str| {
        format!(
            "loop {{ compute 25ms; timer t 10ms{mode}; \
             loop 9 {{ compute 1ms; timer t 10ms{mode} }}; count }}"
        )
    };
    assert_eq!(rate(&late(" absolute")), 10.0);
    near(rate(&late("")), 1000.0 / 115.0);
}

#[test]
fn periods_are_each_threads_own_and_timers_are_shared() {
    let rate = |period: &str| {
        let program = format!("loop {{ compute 1us; count; {period} }}");
        let programs = [program.as_str(); 2];
        throughput(&run(2, 10 * MS, vec![vm("a", free(), &programs)]), 0)
    };
    assert_eq!((rate("every 10ms"), rate("timer t 10ms")), (200.0, 100.0));
}

#[test]
fn being_busy_ends_by_the_clock() {
    let program = ["loop { busy 50ms; count }"];
    let one = vm("a", free(), &program);
    let two = vm("b", free(), &program);
    let outcome = run(1, 10 * MS, vec![one, two]);
    // Each VM has half of the pCPU, yet 50 ms go by as fast as alone, except for the wait for a
    // slice.
    let rate = throughput(&outcome, 0);
    assert!((15.0..=20.0).contains(&rate), "{rate}");
}

#[test]
fn a_thread_that_yields_goes_behind() {
    let programs = ["loop { compute 100us; count; yield }"; 2];
    let mut spec = vm("a", free(), &programs);
    spec.vcpus = 1;
    spec.threads
        .iter_mut()
        .for_each(|thread| thread.vcpu = Some(0));
    let outcome = run(1, 10 * MS, vec![spec]);
    near(throughput(&outcome, 0), 10_000.0);
    near(achieved(&outcome).thread_switches as f64, 10_000.0);
}

#[test]
fn a_shootdown_waits_for_descheduled_vcpus_unless_it_is_paravirtual() {
    let programs = [
        "loop { compute 1ms; shootdown; count }",
        "loop { compute 1s }",
    ];
    let rounds = |pcpus, tlb_flush| {
        let params = GuestParams {
            tlb_flush,
            flush: 0,
            ..free()
        };
        let outcome = run(pcpus, 10 * MS, vec![vm("a", params, &programs)]);
        (throughput(&outcome, 0), achieved(&outcome).clone())
    };
    // Each has a pCPU: the other one answers at once.
    assert_eq!(rounds(2, TlbFlush::Ipi).0, 1000.0);
    // In turns of 10 ms: one shootdown in 20 ms, and the slice is spent spinning.
    let (rate, seen) = rounds(1, TlbFlush::Ipi);
    assert!((49.0..=51.0).contains(&rate), "{rate}");
    assert!(seen.spin > 400 * MS, "{}", seen.spin);
    assert!(seen.shootdown_waits.quantile(0.5) > 10 * MS);
    // A preempted vCPU is left a note: 10 rounds in each turn.
    let (rate, seen) = rounds(1, TlbFlush::Paravirtual);
    assert!((495.0..=505.0).contains(&rate), "{rate}");
    assert_eq!(seen.spin, 0);
}

#[test]
fn an_idle_vcpu_is_left_out_of_shootdowns() {
    let params = GuestParams {
        tlb_flush: TlbFlush::Ipi,
        ..free()
    };
    let mut spec = vm("a", params, &["loop { compute 1ms; shootdown; count }"]);
    spec.vcpus = 4;
    let outcome = run(1, 10 * MS, vec![spec]);
    assert_eq!(throughput(&outcome, 0), 1000.0);
    assert_eq!(outcome.vms[0].vcpus[1].run, 0);
}

#[test]
fn older_kernels_interrupt_an_idle_vcpu_once_in_each_time_of_idling() {
    // The second thread naps ten times a second, the third never wakes again, the fourth vCPU has none.
    let programs = [
        "loop { compute 1ms; shootdown; count }",
        "loop { compute 100us; sleep 99900us }",
        "compute 1ms; sleep 60min",
    ];
    let seen = |tlb_flush| {
        let params = GuestParams {
            tlb_flush,
            ..free()
        };
        let mut spec = vm("a", params, &programs);
        spec.vcpus = 4;
        let outcome = run(4, 10 * MS, vec![spec]);
        let wakeups = |vcpu: usize| outcome.vms[0].vcpus[vcpu].wakeups;
        ([1, 2, 3].map(wakeups), achieved(&outcome).shootdowns)
    };
    assert_eq!(seen(TlbFlush::Ipi).0, [10, 0, 0]);
    assert_eq!(seen(TlbFlush::Paravirtual).0, [10, 0, 0]);
    let (wakeups, shootdowns) = seen(TlbFlush::IpiLazy);
    assert_eq!(wakeups, [20, 0, 0], "the third was told before");
    near(shootdowns as f64, 1000.0);
}

#[test]
fn a_shootdown_waits_until_a_woken_vcpu_has_a_pcpu() {
    // One pCPU in turns of 10 ms: the sibling is woken behind the vCPU that spins for it.
    let programs = [
        "loop { compute 1ms; shootdown; count }",
        "loop { compute 100us; sleep 99900us }",
    ];
    let rounds = |tlb_flush| {
        let params = GuestParams {
            tlb_flush,
            flush: 0,
            ..free()
        };
        let outcome = run(1, 10 * MS, vec![vm("a", params, &programs)]);
        (throughput(&outcome, 0), achieved(&outcome).spin)
    };
    let (ipi, lazy) = (rounds(TlbFlush::Ipi), rounds(TlbFlush::IpiLazy));
    assert!(lazy.0 < ipi.0 - 50.0, "{lazy:?}, {ipi:?}");
    assert!(lazy.1 > ipi.1 + 50 * MS, "{lazy:?}, {ipi:?}");
}

const NAPS: &str = "loop { compute 50us; count; sleep 50us }";

#[test]
fn no_more_polls_are_caught_than_made() {
    // The vCPU is polled for when the measured part begins, and computes when that ends: a poll counts when it is over,
    // and so does its success.
    let naps = "compute 85us; loop { sleep 55us; compute 55us; count }";
    let outcome = run(1, 10 * SEC, vec![vm("naps", free(), &[naps])]);
    let seen = achieved(&outcome);
    assert_eq!(seen.halt_polls, seen.halt_poll_hits);
    near(seen.halt_polls as f64, 9_091.0);
}

#[test]
fn halt_polling_saves_switches_while_the_pcpu_is_its_own() {
    let seen = |params: HaltPollParams, vms: &[VmSpec]| {
        let guests = Guests::new(vms.to_vec(), Vec::new(), 1).unwrap();
        let guests = guests.with_halt_polling(params);
        simulate(machine(1, FREE), 10 * MS, guests)
    };
    let naps = vm("naps", free(), &[NAPS]);
    let off = HaltPollParams {
        most: 0,
        ..HaltPollParams::default()
    };
    let blocking = seen(off, std::slice::from_ref(&naps));
    near(throughput(&blocking, 0), 10_000.0);
    near(blocking.vms[0].vcpus[0].switches as f64, 10_000.0);
    assert_eq!(achieved(&blocking).halt_polls, 0);
    let polling = seen(HaltPollParams::default(), std::slice::from_ref(&naps));
    near(throughput(&polling, 0), 10_000.0);
    assert_eq!(polling.vms[0].vcpus[0].switches, 0);
    near(achieved(&polling).halt_poll_hits as f64, 10_000.0);
    assert_eq!(polling.vms[0].vcpus[0].run, SEC, "it never leaves");
    // Next to a hog KVM does not poll at all, unless it is set to.
    let vms = [naps, vm("hog", free(), &["loop { compute 100ms }"])];
    assert_eq!(
        achieved(&seen(HaltPollParams::default(), &vms)).halt_polls,
        0
    );
    // Its blocks last until the hog's slice is over; only a limit beyond that lets the window grow.
    let enhanced = HaltPollParams {
        most: 20 * MS,
        shared: true,
        ..HaltPollParams::default()
    };
    let enhanced = seen(enhanced, &vms);
    assert!(achieved(&enhanced).halt_poll_hits > 4_000);
    assert!(throughput(&enhanced, 0) > 4_000.0);
}

#[test]
fn a_poll_cut_short_waits_for_its_wakeup_not_for_its_turn() {
    // A vCPU that is polled for all the time it sleeps, and a hog, with slices of 10 ms.
    let vms = [
        vm("naps", free(), &["loop { compute 50us; sleep 7ms }"]),
        vm("hog", free(), &["loop { compute 100ms }"]),
    ];
    let params = HaltPollParams {
        most: 20 * MS,
        shared: true,
        ..HaltPollParams::default()
    };
    let guests = Guests::new(vms.to_vec(), Vec::new(), 1).unwrap();
    let outcome = simulate(machine(1, FREE), 10 * MS, guests.with_halt_polling(params));
    assert!(achieved(&outcome).halt_polls > 50);
    // When its slice of 10 ms ends, it sleeps for another 4.1 ms of the hog's slice: for that time it waits, and it is
    // ready only for the rest. Fifty times, except for the first ones, in which polls have to grow.
    let naps = outcome.vms[0].vcpus[0];
    assert!(naps.wait.abs_diff(50 * 4_100 * US) < 4 * MS, "{naps:?}");
    assert_eq!(naps.run + naps.wait + naps.ready, SEC);
}

#[test]
fn before_5_13_a_shared_poll_goes_on_to_its_end() {
    // Polled for 7 ms at a time in slices of 1 ms, together with a VM that comes every 50 ms.
    let longest_wait = |to_end| {
        let vms = vec![
            vm("naps", free(), &["loop { compute 50us; sleep 7ms }"]),
            vm("comes", free(), &["loop { every 50ms; compute 1us }"]),
        ];
        let params = HaltPollParams {
            most: 20 * MS,
            shared: true,
            to_end,
            ..HaltPollParams::default()
        };
        let guests = Guests::new(vms, Vec::new(), 1).unwrap();
        let outcome = simulate(machine(1, FREE), MS, guests.with_halt_polling(params));
        // Otherwise a poll is over with the slice, and catches nothing.
        assert_eq!(achieved(&outcome).halt_poll_hits > 50, to_end);
        outcome.vms[1].ready_waits.quantile(1.0)
    };
    // A turn of 1 ms, or what was left of the poll.
    let (at_once, at_the_end) = (longest_wait(false), longest_wait(true));
    assert!(at_once <= 2 * MS, "{at_once}");
    assert!((2 * MS..=8 * MS).contains(&at_the_end), "{at_the_end}");
}

#[test]
fn a_poll_gives_way_to_a_task_that_wants_the_pcpu() {
    // Sleeps that grow the window to 200 us, together with a VM that comes every 10 ms.
    let vms = vec![
        vm("naps", free(), &["loop { compute 10us; sleep 150us }"]),
        vm("comes", free(), &["loop { every 10ms; compute 1us }"]),
    ];
    let outcome = run(1, 10 * MS, vms);
    assert!(achieved(&outcome).halt_polls > 1000);
    let waits = &outcome.vms[1].ready_waits;
    assert!(waits.quantile(1.0) <= 11 * US, "{}", waits.quantile(1.0));
}

#[test]
fn an_idle_loop_that_polls_never_leaves_its_pcpu_by_itself() {
    let params = |idle| GuestParams { idle, ..free() };
    for idle in [IdleMode::Poll, IdleMode::Retention(0)] {
        let alone = run(1, 10 * MS, vec![vm("a", params(idle), &[NAPS])]);
        near(throughput(&alone, 0), 10_000.0);
        assert_eq!(alone.vms[0].vcpus[0].run, SEC);
        // Next to a hog it has half of the time, busy or not.
        let hog = vm("hog", free(), &["loop { compute 100ms }"]);
        let shared = run(1, 10 * MS, vec![vm("a", params(idle), &[NAPS]), hog]);
        assert_eq!(shared.vms[0].vcpus[0].run, SEC / 2);
        let rate = throughput(&shared, 0);
        assert!((4_900.0..=5_100.0).contains(&rate), "{rate}");
    }
}

#[test]
fn retention_ends_at_its_limit() {
    let retain = |limit| GuestParams {
        idle: IdleMode::Retention(limit),
        ..free()
    };
    let program = ["loop { compute 1ms; count; sleep 9ms }"];
    let guests = |params| {
        let guests = Guests::new(vec![vm("a", params, &program)], Vec::new(), 1).unwrap();
        let off = HaltPollParams {
            most: 0,
            ..HaltPollParams::default()
        };
        simulate(machine(1, FREE), 10 * MS, guests.with_halt_polling(off))
    };
    let outcome = guests(retain(2 * MS));
    assert_eq!(throughput(&outcome, 0), 100.0);
    // 1 ms of work and 2 ms of retention in each 10 ms.
    assert_eq!(outcome.vms[0].vcpus[0].run, 300 * MS);
    assert_eq!(guests(retain(20 * MS)).vms[0].vcpus[0].run, SEC);
}

/// Two VMs that mostly wait, one on each hardware thread of a core, and another VM on the first hardware thread.
fn beside_retention(program: &str) -> Outcome {
    let told = GuestParams {
        idle: IdleMode::Told,
        ..free()
    };
    let waits = ["loop { compute 100us; sleep 2900us; count }"];
    let vms = vec![
        on(0, vm("a", told, &waits)),
        on(1, vm("b", told, &waits)),
        on(0, vm("third", free(), &[program])),
    ];
    let host = HostParams {
        topology: "1n1l1c2t".parse().unwrap(),
        hardware: HardwareParams::default(),
        ..machine(2, FREE)
    };
    let off = HaltPollParams {
        most: 0,
        ..HaltPollParams::default()
    };
    let guests = Guests::new(vms, Vec::new(), 1).unwrap();
    let sched = Box::new(RoundRobin::new(10 * MS).telling(20 * MS));
    let guests = Box::new(guests.with_halt_polling(off));
    Simulation::new(host, sched, guests, None).run(0, SEC, |_| {})
}

#[test]
fn both_hardware_threads_of_a_core_are_not_retained_beside_one_that_waits() {
    // The other VM wants to run all the time: the first has no time in which to retain its context.
    let outcome = beside_retention("loop { compute 100ms }");
    let run = |vm: usize| outcome.vms[vm].vcpus[0].run;
    assert!(run(2) > 900 * MS, "{}", run(2));
    assert!(outcome.vms[0].vcpus[0].retained < 50 * MS);
    let beside = outcome.vms[1].vcpus[0].retained;
    assert!(beside > 700 * MS, "{beside}");
    // Nor does the other VM wait for a retention when it wakes, except if the first retains while
    // the second works.
    let outcome = beside_retention("loop { sleep 5ms; compute 50us; count }");
    let waits = &outcome.vms[2].ready_waits;
    assert!(waits.quantile(0.9) <= 200 * US, "{}", waits.quantile(0.9));
}

/// A VM that mostly waits, and one that comes every 5 ms, on one pCPU.
#[test]
fn a_retention_ends_for_a_vcpu_that_waits_if_it_gives_way() {
    let waits = |sched: RoundRobin| {
        let told = GuestParams {
            idle: IdleMode::Told,
            ..free()
        };
        let comes = "loop { sleep 5ms; compute 50us; count }";
        let vms = vec![
            on(0, vm("a", told, &["loop { compute 100us; sleep 2900us }"])),
            on(0, vm("b", free(), &[comes])),
        ];
        let guests = Guests::new(vms, Vec::new(), 1).unwrap();
        let host = machine(1, FREE);
        let simulation = Simulation::new(host, Box::new(sched), Box::new(guests), None);
        let outcome = simulation.run(0, SEC, |_| {});
        let waits = outcome.vms[1].ready_waits.quantile(0.9);
        (waits, outcome.vms[0].vcpus[0].retained)
    };
    let told = || RoundRobin::new(10 * MS).telling(20 * MS);
    let ((kept_out, _), (let_in, retained)) = (waits(told()), waits(told().giving_way()));
    assert!(let_in <= 101 * US && kept_out > MS, "{let_in} {kept_out}");
    assert!(retained > 500 * MS, "{retained}");
}

/// Linux: `unix_write_space()` wakes senders when `unix_writable()`, at a quarter of the buffer; a pipe or a work list
/// wakes them sooner.
#[test]
fn senders_to_a_socket_are_woken_together_once_little_is_left() {
    // One of eight items is taken each millisecond; six go in at once if senders are woken when two are left.
    let wakes = |queue: &str| {
        let receiver = format!("queue q {queue}; loop {{ recv q; compute 1ms; count }}");
        let sender = "loop { compute 1ns; send q }";
        let programs = [receiver.as_str(), sender, sender];
        let outcome = run(3, 10 * MS, vec![vm("a", free(), &programs)]);
        near(throughput(&outcome, 0), 1000.0);
        let vcpus = &outcome.vms[0].vcpus;
        [1, 2].map(|sender: usize| vcpus[sender].wakeups)
    };
    let one_by_one = wakes("8");
    assert!(one_by_one.into_iter().sum::<u64>() > 900, "{one_by_one:?}");
    let [first, second] = wakes("8 2");
    assert!((150..=170).contains(&first), "{first}");
    assert!(first.abs_diff(second) <= 1, "{first} {second}");
}

#[test]
fn an_idle_vcpu_with_its_context_kept_needs_no_interrupt() {
    // A ping-pong over two queues: with HLT each turn begins with an interrupt, with polling it
    // does not.
    let programs = [
        "loop { compute 10us; send a; recv b; count }",
        "loop { recv a; compute 10us; send b }",
    ];
    let rounds = |idle| {
        let params = GuestParams {
            interrupt: 5 * US,
            idle,
            ..free()
        };
        throughput(&run(2, 10 * MS, vec![vm("a", params, &programs)]), 0)
    };
    near(rounds(IdleMode::Poll), 50_000.0);
    near(rounds(IdleMode::Halt), 33_333.0);
}
