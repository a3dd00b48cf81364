// SPDX-License-Identifier: GPL-2.0-only
//! What holds for all guests. Each event also checks the guests' own invariants in debug builds.

use super::*;
use crate::host::Totals;
use crate::sched::HostScheduler;
use crate::sched::credit::{Credit, CreditParams};
use crate::sched::dispatcher::Dispatcher;
use crate::sched::eevdf::{Eevdf, EevdfParams};
use crate::workload::Statement;
use corun_model::DispatcherParams;
use proptest::prelude::*;

fn random_vms(seed: u64, threads: u64, vcpus: u32, lock: LockKind, costly: bool) -> Vec<VmSpec> {
    let idle = [IdleMode::Halt, IdleMode::Poll, IdleMode::Retention(50_000)];
    let params = GuestParams {
        lock,
        tlb_flush: TlbFlush::NAMES[seed as usize / 3 % 3].1,
        idle: idle[seed as usize % 3],
        ple_window: seed.is_multiple_of(3).then_some(10_000),
        pv_spin: 20_000,
        ..if costly {
            GuestParams::default()
        } else {
            free()
        }
    };
    let thread = |index| ThreadSpec {
        name: format!("t{index}"),
        program: Program::parse(&random_program(seed, index)).unwrap(),
        vcpu: (index % 5 == 4).then_some(index as u32 % vcpus),
    };
    let spec = |name: &str| VmSpec {
        threads: (0..threads).map(thread).collect(),
        params,
        ..VmSpec::new(name, vcpus, PcpuSet::first(64))
    };
    vec![spec("a"), spec("b")]
}

fn random_run(vms: Vec<VmSpec>, topology: &str, slice: Nanos, costly: bool) -> Outcome {
    let costs = if costly { Costs::default() } else { FREE };
    let guests = Guests::new(vms, Vec::new(), 7).unwrap();
    let sched = Box::new(RoundRobin::new(slice));
    let host = HostParams {
        topology: topology.parse().unwrap(),
        ..machine(1, costs)
    };
    let simulation = Simulation::new(host, sched, Box::new(guests), None);
    simulation.run(5 * MS, 30 * MS, |_| {})
}

fn check_conservation(outcome: &Outcome, pcpus: u32, switches_are_free: bool) {
    let run: Nanos = outcome.tasks.iter().map(|(_, _, totals)| totals.run).sum();
    let capacity = outcome.measured * u64::from(pcpus);
    let idle = outcome.idle_share * capacity as f64;
    assert!(
        (run as f64 + idle - capacity as f64).abs() < 2.0,
        "{run} + {idle}"
    );
    for (name, _, totals) in &outcome.tasks {
        let all = totals.run + totals.ready + totals.wait;
        assert_eq!(all, outcome.measured, "{name}");
    }
    for vm in &outcome.vms {
        let run: Nanos = vm.vcpus.iter().map(|vcpu| vcpu.run).sum();
        let achieved = &vm.achieved;
        let lost = |vcpu: &Totals| vcpu.smt_lost + vcpu.cache_lost;
        let lost: Nanos = vm.vcpus.iter().map(lost).sum();
        let done = achieved.work + achieved.spin + achieved.kernel + achieved.idling + lost;
        assert!(done <= run, "{}: {done} of {run}", vm.name);
        assert!(
            done == run || !switches_are_free,
            "{}: {done} of {run}",
            vm.name
        );
    }
}

#[test]
fn work_spinning_and_kernel_time_make_up_the_run_time() {
    let program = "loop { compute 50us; lock l { compute 20us }; sleep 30us }";
    let guests = vec![vm("a", GuestParams::default(), &[program; 4])];
    let outcome = simulate(
        machine(2, FREE),
        MS,
        Guests::new(guests, Vec::new(), 1).unwrap(),
    );
    let vm = &outcome.vms[0];
    let run: Nanos = vm.vcpus.iter().map(|vcpu| vcpu.run).sum();
    let work = (vm.achieved.throughput * 1e9) as Nanos;
    assert_eq!(work, vm.achieved.work);
    assert!(
        vm.achieved.kernel > 0,
        "interrupts and switches take time, too"
    );
    let busy = run - vm.achieved.idling;
    assert!(work * 10 > busy * 8, "{work} of {busy}");
    check_conservation(&outcome, 2, true);
}

/// If there is a pCPU for every vCPU, and switches and caches cost nothing, all schedulers are equal to the last unit
/// of work, and a VM is as fast as on a host of its own. (CFS may put a woken vCPU on its waker's pCPU.)
#[test]
fn with_a_pcpu_for_each_vcpu_all_schedulers_are_alike() {
    type Make = fn(&HostParams) -> Box<dyn HostScheduler>;
    let schedulers: [(&str, Make); 4] = [
        ("round robin", |_| Box::new(RoundRobin::new(10 * MS))),
        ("corun", |host| {
            Box::new(Dispatcher::new(DispatcherParams::default(), host))
        }),
        ("eevdf", |host| {
            let params = EevdfParams::preset("6.12", host.topology.pcpus()).unwrap();
            Box::new(Eevdf::new(params, host))
        }),
        ("credit", |host| {
            Box::new(Credit::new(CreditParams::default(), 1, host))
        }),
    ];
    for seed in 0..24 {
        let vcpus = 1 + seed as u32 % 4;
        let mut vms = random_vms(seed, 6, vcpus, LockKind::Paravirtual, false);
        vms.iter_mut()
            .for_each(|vm| vm.params.idle = IdleMode::Halt);
        let rates = |vms: &[VmSpec], make: Make| {
            let host = HostParams {
                hardware: HardwareParams::UNSHARED,
                ..machine(vcpus * vms.len() as u32, FREE)
            };
            let guests = Guests::new(vms.to_vec(), Vec::new(), 7).unwrap();
            let sched = make(&host);
            let simulation = Simulation::new(host, sched, Box::new(guests), None);
            let outcome = simulation.run(100 * MS, 400 * MS, |_| {});
            let waited = |vm: &crate::VmOutcome| vm.vcpus.iter().map(|it| it.ready).sum::<Nanos>();
            assert_eq!(outcome.vms.iter().map(waited).sum::<Nanos>(), 0, "{seed}");
            let rates = (0..vms.len()).map(|vm| throughput(&outcome, vm));
            rates.collect::<Vec<_>>()
        };
        let expected = rates(&vms, schedulers[0].1);
        for (name, make) in schedulers {
            assert_eq!(rates(&vms, make), expected, "{seed}: {name}");
            // The first VM's random numbers do not depend on how many VMs there are.
            assert_eq!(rates(&vms[..1], make), expected[..1], "{seed}: {name}");
        }
    }
}

/// How many units a list of statements counts, whatever happens meanwhile.
fn counts(body: &[Statement]) -> u64 {
    let count = |statement: &Statement| match statement {
        Statement::Count(units, _) => u64::from(*units),
        Statement::Loop(times, body) => u64::from(times.unwrap_or(0)) * counts(body),
        Statement::Lock(_, body) | Statement::Mutex(_, body) => counts(body),
        _ => 0,
    };
    body.iter().map(count).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// No wake-up, lock or item is ever lost: programs that end do everything they have to do, and
    /// their vCPUs halt.
    #[test]
    fn finite_programs_finish(
        seed in any::<u64>(),
        pairs in 1u64..5,
        vcpus in 1u32..5,
        pcpus in 1u32..4,
        slice in 50_000u64..5_000_000,
        lock in prop::sample::select(vec![
            LockKind::Unfair, LockKind::Ticket, LockKind::Paravirtual]),
        costly in any::<bool>(),
    ) {
        let mut vms = random_vms(seed, 2 * pairs, vcpus, lock, costly);
        // A guest that polls never halts.
        vms.iter_mut().for_each(|vm| vm.params.idle = IdleMode::Halt);
        for (index, thread) in vms.iter_mut().flat_map(|vm| &mut vm.threads).enumerate() {
            let text = random_program(seed, index as u64 % (2 * pairs));
            // A wait in the last round could be for a signal that has already been given.
            let finite = text.replacen("loop {", "loop 10 {", 1);
            let finite = finite.replace("mutex m9 { wait c }; ", "");
            thread.program = Program::parse(&finite).unwrap();
        }
        let expected: Vec<u64> = vms
            .iter()
            .map(|vm| vm.threads.iter().map(|t| counts(t.program.statements())).sum())
            .collect();
        let guests = Guests::new(vms, Vec::new(), 7).unwrap();
        let costs = if costly { Costs::default() } else { FREE };
        let sched = Box::new(RoundRobin::new(slice));
        let simulation = Simulation::new(machine(pcpus, costs), sched, Box::new(guests), None);
        let outcome = simulation.run(0, 1000 * SEC, |_| {});
        for (vm, expected) in outcome.vms.iter().zip(expected) {
            let counted = (vm.achieved.throughput * 1000.0).round() as u64;
            prop_assert_eq!(counted, expected, "of VM {}", &vm.name);
            for vcpu in &vm.vcpus {
                prop_assert!(vcpu.wait > 900 * SEC, "a vCPU did not halt: {:?}", vcpu);
            }
        }
    }

    /// Whatever the programs do, time goes on, the guests stay consistent, and no time is lost.
    #[test]
    fn random_guests(
        seed in any::<u64>(),
        threads in 2u64..9,
        vcpus in 1u32..5,
        cores in 1u32..4,
        smt in 1u32..4,
        slice in 50_000u64..5_000_000,
        lock in prop::sample::select(vec![
            LockKind::Unfair, LockKind::Ticket, LockKind::Paravirtual]),
        costly in any::<bool>(),
    ) {
        let vms = || random_vms(seed, threads, vcpus, lock, costly);
        let topology = format!("1n1l{cores}c{smt}t");
        let outcome = random_run(vms(), &topology, slice, costly);
        check_conservation(&outcome, cores * smt, !costly);
        let again = random_run(vms(), &topology, slice, costly);
        prop_assert_eq!(format!("{:?}", outcome.tasks), format!("{:?}", again.tasks));
    }
}
