// SPDX-License-Identifier: GPL-2.0-only
use super::*;
use crate::Settings;
use crate::testing::{ask, snapshot};
use corun_model::time::{MS, US};
use corun_model::{AwaitedHidden, CyclesSeen, HostSeen, UnhaltedSeen, VmPlan};
use proptest::prelude::*;

const PERIOD: Nanos = 100 * MS;
/// What timeouts begin with.
const TIMEOUT: Nanos = 200 * US;

/// A period of two VMs with `vcpus` vCPUs each on as many hardware threads: the first retains for `retained` ms of it
/// and comes back `kept` times, the second computes.
fn period(number: u64, vcpus: usize, retained: u64, kept: u64) -> Snapshot {
    let mut seen = snapshot(1, &[vcpus, vcpus]);
    seen.host = HostSeen::of(format!("1n1l{}c2t", vcpus / 2).parse().unwrap());
    seen.now = number * PERIOD;
    for (vm, of) in seen.vms.iter_mut().enumerate() {
        for vcpu in &mut of.vcpus {
            vcpu.allowed = corun_model::PcpuSet::first(vcpus as u32);
            vcpu.run = 50 * MS;
            vcpu.ready = 50 * MS;
            vcpu.signals.instructions = Some(1_000_000);
            if vm == 0 {
                (vcpu.turns.retained, vcpu.turns.kept) = (retained * MS, kept);
                vcpu.turns.wakeups = kept;
            }
        }
    }
    seen
}

/// The vCPUs of a core.
fn on(policy: &VsmtIo, core: usize) -> impl Iterator<Item = (TaskId, Vcpu)> {
    let mut all = policy.by_core();
    all.swap_remove(core).into_iter()
}

fn home(plan: &Plan, task: u32) -> Option<u32> {
    let told = plan.tasks.iter().find(|told| told.task == TaskId(task));
    told.and_then(|told| told.home).map(|home| home.0)
}

#[test]
fn io_goes_to_one_hardware_thread_and_computing_to_the_other() {
    let mut policy = VsmtIo::new(VsmtIoParams {
        adjust: false,
        ..VsmtIoParams::default()
    });
    ask(&mut policy, &period(0, 8, 0, 0));
    let plan = ask(&mut policy, &period(1, 8, 40, 100));
    for vcpu in 0..8 {
        assert_eq!(home(&plan, vcpu).unwrap() % 2, 1);
        assert_eq!(home(&plan, 100 + vcpu).unwrap() % 2, 0);
    }
    assert!(plan.vms.iter().all(|vm| vm.placement == Placement::Core));
    for told in &plan.pcpus {
        let io = told.cpu.0 % 2 == 1;
        assert_eq!(told.partner.0, told.cpu.0 ^ 1);
        assert_eq!(
            (told.hold, told.retention),
            (if io { TIMEOUT } else { 0 }, 0)
        );
    }
}

/// CFS's slices: 24 ms divided by those that share a hardware thread, 3 ms at least.
#[test]
fn those_that_share_a_hardware_thread_have_a_turn_each_in_the_latency() {
    let slices = |vcpus: &[usize], idle: usize| {
        let mut policy = VsmtIo::default();
        let mut seen = snapshot(1, vcpus);
        seen.host = HostSeen::of("1n1l1c2t".parse().unwrap());
        for (at, vcpu) in seen.vms.iter_mut().flat_map(|vm| &mut vm.vcpus).enumerate() {
            vcpu.allowed = corun_model::PcpuSet::first(2);
            vcpu.run = if at < idle { 0 } else { MS };
        }
        ask(&mut policy, &seen);
        seen.now += PERIOD;
        let plan = ask(&mut policy, &seen);
        let slice = |told: &TaskPlan| told.slice.unwrap() / MS;
        plan.tasks.iter().map(slice).collect::<Vec<_>>()
    };
    assert_eq!(slices(&[2, 2], 0), [12; 4]);
    assert_eq!(slices(&[2], 0), [24; 2]);
    assert_eq!(slices(&[16, 16], 0), [3; 32]);
    // A vCPU that does not want to run takes no time from the others.
    assert_eq!(slices(&[2, 2], 1), [24, 24, 12, 12]);
}

/// Nothing is held on the CPU-bound vCPUs' hardware thread: what waits there is found out by its waits, not by its
/// place among the VMs.
#[test]
fn a_vcpu_taken_for_cpu_bound_shows_that_it_is_not() {
    let mut policy = VsmtIo::default();
    ask(&mut policy, &period(0, 4, 0, 0));
    let mut seen = period(1, 4, 0, 0);
    for vcpu in &mut seen.vms[1].vcpus {
        (vcpu.run, vcpu.ready, vcpu.wait) = (20 * MS, 0, 80 * MS);
        vcpu.turns.wakeups = 800;
    }
    let plan = ask(&mut policy, &seen);
    for vcpu in 0..4 {
        assert_eq!(home(&plan, vcpu).unwrap() % 2, 0);
        assert_eq!(home(&plan, 100 + vcpu).unwrap() % 2, 1);
    }
}

#[test]
fn each_part_can_be_left_out() {
    let info = crate::find("vsmtio").unwrap();
    let without = |parts: &[&str]| {
        let mut settings = Settings::default();
        for part in parts {
            settings.set(info, part, "false").unwrap();
        }
        let mut policy = VsmtIo::new(settings.vsmtio);
        ask(&mut policy, &period(0, 4, 0, 0));
        ask(&mut policy, &period(1, 4, 40, 100))
    };
    let plan = without(&["retain"]);
    assert!(plan.pcpus.iter().all(|told| told.hold == 0));
    let gives_way = |parts: &[&str]| without(parts).pcpus.iter().all(|told| told.gives_way);
    assert!(gives_way(&[]) && !gives_way(&["give_way"]));
    let plan = without(&["rass", "adjust"]);
    assert!(plan.vms.iter().all(|vm| vm.placement == Placement::Free));
    assert!(plan.tasks.iter().all(|told| told.home.is_none()));
    assert!(plan.pcpus.iter().all(|told| told.hold == TIMEOUT));
}

/// Who tells a demand, of two VMs of which the first waits and the second computes: has, and is it I/O-bound?
fn demands(params: VsmtIoParams, vcpus: [usize; 2]) -> Vec<(bool, bool)> {
    let mut policy = VsmtIo::new(params);
    let period = |number: u64| {
        let mut seen = snapshot(1, &vcpus);
        seen.host = HostSeen::of("1n1l1c2t".parse().unwrap());
        seen.now = number * PERIOD;
        for (vm, of) in seen.vms.iter_mut().enumerate() {
            for vcpu in &mut of.vcpus {
                vcpu.allowed = corun_model::PcpuSet::first(2);
                (vcpu.run, vcpu.ready) = (50 * MS, 50 * MS);
                if vm == 0 {
                    (vcpu.run, vcpu.ready, vcpu.wait) = (20 * MS, 0, 80 * MS);
                    vcpu.turns.wakeups = 800;
                }
                vcpu.signals.cycles = Some(CyclesSeen {
                    cycles: 1000,
                    base: 500,
                    miss: 300,
                });
            }
        }
        seen
    };
    ask(&mut policy, &period(0));
    let plan = ask(&mut policy, &period(1));
    let told = |told: &TaskPlan| (told.demand.is_some(), policy.vcpus[&told.task].io);
    plan.tasks.iter().map(told).collect()
}

/// Classes are to weigh alike, so vCPUs that compute are in the upper one, too. They are what both hardware threads
/// run when both compute.
#[test]
fn all_that_compute_are_chosen_by_symbiosis_and_nobody_that_waits_for_io() {
    let default = VsmtIoParams::default();
    let told = demands(default, [1, 3]);
    assert_eq!(told[0], (false, true));
    assert!(told[1..].iter().all(|(tells, _)| *tells), "{told:?}");
    assert!(told[1..].iter().any(|(_, io)| *io), "{told:?}");
    // It waits, but less than another one: CPU-bound.
    let told = demands(default, [2, 0]);
    assert!(told.iter().all(|(tells, io)| tells != io), "{told:?}");
}

#[test]
fn without_classes_there_is_no_symbiosis_and_people_are_told() {
    let params = VsmtIoParams {
        rass: false,
        ..VsmtIoParams::default()
    };
    let told = demands(params, [1, 3]);
    assert!(told.iter().all(|(tells, _)| !tells), "{told:?}");
    let mut policy = VsmtIo::new(params);
    assert!(VsmtIo::default().wants_cycles().is_some() && policy.wants_cycles().is_none());
    ask(&mut policy, &period(0, 4, 0, 0));
    ask(&mut policy, &period(1, 4, 40, 100));
    let notes = policy.status().notes;
    let said = |what: &str| notes.iter().any(|note| note.contains(what));
    assert!(said("no swaps") && said("no symbiosis"), "{notes:?}");
    assert!(!said("cycles of a vCPU divide"), "{notes:?}");
}

#[test]
fn guests_that_retain_by_themselves_are_told_how_long() {
    let mut policy = VsmtIo::new(VsmtIoParams {
        guests: true,
        ..VsmtIoParams::default()
    });
    let plan = ask(&mut policy, &period(0, 4, 0, 0));
    assert!(plan.pcpus.iter().all(|told| told.hold == 0));
    let retention: Vec<Nanos> = plan.pcpus.iter().map(|told| told.retention).collect();
    assert_eq!(retention, [TIMEOUT; 4]);
}

/// Without classes, too: a vCPU that is put nowhere for being I/O-bound still has the timeout serve it.
#[test]
fn a_timeout_that_serves_both_is_kept() {
    for rass in [true, false] {
        let mut policy = VsmtIo::new(VsmtIoParams {
            rass,
            ..VsmtIoParams::default()
        });
        // The first period makes classes, the second samples the base.
        for number in 0..2 {
            ask(&mut policy, &period(number, 4, 40, 100));
        }
        // With 10 % more, instructions and retentions rise.
        let mut better = period(2, 4, 40, 200);
        for vcpu in &mut better.vms[1].vcpus {
            vcpu.signals.instructions = Some(2_000_000);
        }
        let plan = ask(&mut policy, &better);
        assert_eq!(plan.pcpus[1].hold, TIMEOUT / 10 * 11, "rass = {rass}");
        let kept = |it: &Ltcr| it.desired() == TIMEOUT / 10 * 11;
        assert!(policy.timeouts.iter().all(kept), "rass = {rass}");
    }
}

/// With 10 % more, instructions rise, and more retentions end with an event; but there are fewer of them,
/// since those that share the hardware thread wait for each other.
#[test]
fn retentions_count_however_they_end() {
    let mut policy = VsmtIo::new(VsmtIoParams {
        guests: true,
        ..VsmtIoParams::default()
    });
    let seen = |number, [kept, timed_out]: [u64; 2], instructions| {
        let mut seen = period(number, 4, 40, kept);
        for vcpu in seen.vms.iter_mut().flat_map(|vm| &mut vm.vcpus) {
            vcpu.turns.wakeups = timed_out;
            vcpu.signals.instructions = Some(instructions);
        }
        seen
    };
    for number in 0..2 {
        ask(&mut policy, &seen(number, [50, 150], 1_000_000));
    }
    let plan = ask(&mut policy, &seen(2, [100, 50], 1_100_000));
    assert!(plan.pcpus.iter().all(|told| told.retention == TIMEOUT));
    // The same with fewer that end with an event, and more in all.
    ask(&mut policy, &seen(3, [50, 150], 1_000_000));
    let plan = ask(&mut policy, &seen(4, [40, 180], 1_100_000));
    let shorter = TIMEOUT / 10 * 9;
    assert!(plan.pcpus.iter().all(|told| told.retention == shorter));
}

/// Two VMs whose vCPUs never halt for the host; those of the second were unhalted for this percentage of the time that
/// they ran.
fn never_halting(number: u64, unhalted: Option<u64>) -> Snapshot {
    let mut seen = period(number, 4, 0, 0);
    for (vm, of) in seen.vms.iter_mut().enumerate() {
        for vcpu in &mut of.vcpus {
            vcpu.signals.unhalted = unhalted.map(|percent| UnhaltedSeen {
                unhalted: if vm == 1 { percent } else { 100 },
                reference: 100,
            });
        }
    }
    seen
}

#[test]
fn a_vcpu_dormant_on_its_pcpu_is_io_bound_and_has_turns_of_the_timeout() {
    let mut policy = VsmtIo::new(VsmtIoParams {
        adjust: false,
        ..VsmtIoParams::default()
    });
    ask(&mut policy, &never_halting(0, Some(20)));
    let plan = ask(&mut policy, &never_halting(1, Some(20)));
    for told in &plan.tasks {
        let dormant = told.task.0 >= 100;
        assert_eq!(told.dormant, dormant);
        assert_eq!(told.home.unwrap().0 % 2, u32::from(dormant));
        let slice = if dormant { TIMEOUT } else { 12 * MS };
        assert_eq!(told.slice, Some(slice));
    }
    // Its turns end before it is dormant for long: it is known all the same, until it hardly is.
    let told = |plan: Plan| plan.tasks.iter().filter(|told| told.dormant).count();
    assert_eq!(told(ask(&mut policy, &never_halting(2, Some(80)))), 4);
    assert_eq!(told(ask(&mut policy, &never_halting(3, Some(95)))), 0);
    let notes = policy.status().notes;
    assert!(
        !notes.iter().any(|note| note.contains("MWAIT")),
        "{notes:?}"
    );
}

#[test]
fn where_unhalted_cycles_are_not_counted_people_are_told() {
    let mut policy = VsmtIo::default();
    ask(&mut policy, &never_halting(0, None));
    let plan = ask(&mut policy, &never_halting(1, None));
    assert!(plan.tasks.iter().all(|told| !told.dormant));
    let notes = policy.status().notes;
    assert!(notes.iter().any(|note| note.contains("MWAIT")), "{notes:?}");
}

#[test]
fn what_a_dormant_vcpu_computes_is_told_by_the_time_that_it_did() {
    let seen = never_halting(1, Some(25));
    let mut of = Performance::default();
    for vm in &seen.vms {
        note(&mut of, &vm.vcpus[0], false, false, PERIOD);
    }
    // A million instructions in 50 ms, or in a quarter of them.
    let rates: Vec<u64> = of.cpu.values().copied().collect();
    assert_eq!(rates, [20_000, 80_000]);
}

#[test]
fn people_are_told_which_vcpu_is_taken_for_what_and_how_long_timeouts_are() {
    let mut policy = VsmtIo::new(VsmtIoParams {
        adjust: false,
        ..VsmtIoParams::default()
    });
    ask(&mut policy, &period(0, 4, 0, 0));
    let told = |policy: &VsmtIo| {
        let notes = policy.status().notes;
        notes.into_iter().find(|note| note.contains("timeouts are"))
    };
    assert_eq!(told(&policy), None, "nothing is known yet");
    ask(&mut policy, &period(1, 4, 40, 100));
    let found = told(&policy).unwrap();
    assert!(
        found.starts_with("4 of 8 vCPUs are taken for I/O-bound"),
        "{found}"
    );
    assert!(
        found.ends_with("for 40 % of the last period; timeouts are 200 µs"),
        "{found}"
    );
    let classes = [0, 100].map(|task| policy.recognised(TaskId(task)));
    assert_eq!(classes, [Some(IO_BOUND), Some(CPU_BOUND)]);
}

/// What hosts tell later, or otherwise now and then, does not concern cores.
#[test]
fn what_a_host_hides_of_its_vcpus_moves_nobody() {
    let after = |changes: bool| {
        let mut policy = VsmtIo::default();
        let mut plan = Plan::default();
        for number in 0..4 {
            let mut seen = period(number, 4, 40, 100 * number);
            // All gain by a longer timeout.
            for vcpu in seen.vms.iter_mut().flat_map(|vm| &mut vm.vcpus) {
                vcpu.signals.instructions = Some(1_000_000 + 200_000 * number);
            }
            let hidden = changes && number % 2 == 1;
            seen.host.wakers_hidden = hidden;
            seen.host.awaited_hidden = hidden.then_some(AwaitedHidden::NoKvm);
            plan = ask(&mut policy, &seen);
        }
        plan
    };
    let steady = after(false);
    assert!(steady.pcpus.iter().any(|told| told.hold > TIMEOUT));
    assert_eq!(after(true), steady);
}

#[test]
fn a_host_without_smt_is_left_alone() {
    let mut policy = VsmtIo::default();
    let seen = snapshot(4, &[2, 2]);
    let plan = ask(&mut policy, &seen);
    assert_eq!(policy.recognised(TaskId(0)), None);
    let free = |vm: &VmPlan| vm.placement == Placement::Free;
    assert!(plan.vms.iter().all(free) && plan.pcpus.is_empty());
    assert_eq!(policy.status().notes.len(), 1);
}

/// What the host does not count, and what that means.
#[test]
fn what_a_host_hides_is_said() {
    let mut seen = period(0, 4, 0, 0);
    for vcpu in seen.vms.iter_mut().flat_map(|vm| &mut vm.vcpus) {
        vcpu.signals.unhalted = Some(UnhaltedSeen::default());
    }
    let notes = |params, seen: &Snapshot| {
        let mut policy = VsmtIo::new(params);
        ask(&mut policy, seen);
        policy.status().notes
    };
    let default = VsmtIoParams::default();
    let [cycles] = &notes(default, &seen)[..] else {
        panic!("instructions are told, cycles are not");
    };
    assert!(cycles.contains("cycle") && cycles.contains("fair order"));
    let vcpus = |seen: &mut Snapshot, tells: fn(&mut corun_model::Signals)| {
        let vcpus = seen.vms.iter_mut().flat_map(|vm| &mut vm.vcpus);
        vcpus.for_each(|vcpu| tells(&mut vcpu.signals));
    };
    vcpus(&mut seen, |signals| {
        signals.cycles = Some(CyclesSeen::default())
    });
    assert!(notes(default, &seen).is_empty());
    // One vCPU without signals for a period says nothing of the host.
    let mut one = seen.clone();
    one.vms[0].vcpus[0].signals = Signals::default();
    assert!(notes(default, &one).is_empty());
    vcpus(&mut seen, |signals| signals.instructions = None);
    let [instructions] = &notes(default, &seen)[..] else {
        panic!("cycles are told, instructions are not");
    };
    assert!(instructions.contains("instructions") && instructions.contains("200 µs"));
    // What is switched off lacks nothing.
    let without = VsmtIoParams {
        adjust: false,
        ..default
    };
    assert!(notes(without, &seen).is_empty());
    let without = VsmtIoParams {
        retain: false,
        ..default
    };
    assert!(notes(without, &seen).is_empty());
    // There is no vCPU for which signals could be reported.
    seen.vms.clear();
    assert!(notes(default, &seen).is_empty());
}

#[test]
fn cores_are_not_shared_across_cookies() {
    let mut policy = VsmtIo::default();
    let mut seen = period(0, 4, 0, 0);
    seen.vms[1].cookie = 7;
    let plan = ask(&mut policy, &seen);
    let core = |task| home(&plan, task).map(|cpu| cpu / 2);
    for one in 0..4 {
        for other in 100..104 {
            assert!(core(one).is_none() || core(one) != core(other));
        }
    }
    // One VM after another gets cores: the second finds none left, and goes where it may.
    assert!((0..4).all(|task| core(task).is_some()));
    // So the dispatcher keeps them apart, by numbers that stay.
    assert!(plan.pcpus.iter().all(|told| told.cookies));
    let cookies = |plan: &Plan| {
        plan.tasks
            .iter()
            .map(|told| told.cookie)
            .collect::<Vec<_>>()
    };
    assert_eq!(cookies(&plan), [1, 1, 1, 1, 2, 2, 2, 2]);
    seen.now += PERIOD;
    seen.vms[0].cookie = 9;
    let plan = ask(&mut policy, &seen);
    assert_eq!(cookies(&plan), [3, 3, 3, 3, 2, 2, 2, 2]);
    // Where all have the same, they do not matter.
    seen.now += PERIOD;
    seen.vms[0].cookie = 7;
    let plan = ask(&mut policy, &seen);
    assert!(plan.pcpus.iter().all(|told| !told.cookies));
}

/// The policy is for the first VM only: the second is left to fair order, but not beside the first.
#[test]
fn nor_with_a_vm_that_the_policy_is_not_for() {
    for (cookie, told) in [(7, 8), (0, 4)] {
        let mut policy = VsmtIo::default();
        let mut seen = period(0, 4, 0, 0);
        seen.vms[1].cookie = cookie;
        seen.others = seen.vms.split_off(1);
        let plan = ask(&mut policy, &seen);
        let matter = cookie != 0;
        assert!(plan.pcpus.iter().all(|told| told.cookies == matter));
        assert_eq!((plan.vms.len(), plan.tasks.len()), (1, told));
        for other in &plan.tasks[4..] {
            let only = TaskPlan {
                cookie: 2,
                ..TaskPlan::of(other.task)
            };
            assert_eq!(*other, only);
        }
    }
}

#[test]
fn a_vcpu_that_may_not_use_its_hardware_thread_has_no_home() {
    let mut policy = VsmtIo::default();
    let mut seen = period(0, 4, 0, 0);
    seen.vms[0].vcpus[0].allowed = [PcpuId(2)].into_iter().collect();
    assert_eq!(home(&ask(&mut policy, &seen), 0), None);
}

/// Two VMs of two vCPUs on two cores, one on each: the first's retain, the second's compute.
fn two_alike_cores(allowed: impl Fn(u32) -> corun_model::PcpuSet) -> VsmtIo {
    let mut policy = VsmtIo::default();
    for number in 0..4 {
        let mut seen = period(number, 4, 0, 0);
        for vm in &mut seen.vms {
            vm.vcpus.truncate(2);
            // Each VM has come with a core that only it might use.
            let own = vm.vm.0 * 2;
            for vcpu in &mut vm.vcpus {
                vcpu.allowed = match number {
                    0 => [PcpuId(own), PcpuId(own + 1)].into_iter().collect(),
                    _ => allowed(vcpu.task.0),
                };
                if number > 0 && own == 0 {
                    (vcpu.turns.retained, vcpu.turns.kept) = (60 * MS, 100);
                }
            }
        }
        let plan = ask(&mut policy, &seen);
        for task in seen.vms.iter().flat_map(|vm| &vm.vcpus) {
            let core = policy.vcpus[&task.task].core.unwrap();
            let threads = policy.cores.threads(core);
            let may = threads.iter().all(|cpu| task.allowed.contains(*cpu));
            assert!(may, "{:?} has its home on {threads:?}", task.task);
            assert!(home(&plan, task.task.0).is_some());
        }
    }
    policy
}

#[test]
fn nobody_is_swapped_to_where_it_may_not_run() {
    let mixed = |policy: &VsmtIo| {
        let vms = |core| on(policy, core).map(|(task, _)| task.0 / 100).sum::<u32>();
        [0, 1].map(vms) == [1, 1]
    };
    let all = corun_model::PcpuSet::first(4);
    assert!(mixed(&two_alike_cores(|_| all)));
    // One that is ranked in the middle may not leave: another one goes.
    for bound in [0, 1, 100, 101] {
        let own = |task| {
            let first = task / 100 * 2;
            [PcpuId(first), PcpuId(first + 1)].into_iter().collect()
        };
        let allowed = |task| {
            if task == bound { own(task) } else { all }
        };
        assert!(mixed(&two_alike_cores(allowed)), "{bound}");
    }
    // Neither of the first VM's may.
    let allowed = |task| match task < 100 {
        true => corun_model::PcpuSet::first(2),
        false => all,
    };
    assert!(!mixed(&two_alike_cores(allowed)));
}

/// How many vCPUs are on each core, period by period: two VMs of eight come to four cores, and all vCPUs on the
/// `left` cores' go.
fn after_leaving(host: &str, left: &[usize], change: impl Fn(&mut Snapshot)) -> Vec<Vec<usize>> {
    let mut policy = VsmtIo::default();
    let mut gone = Vec::new();
    let mut counts = Vec::new();
    for number in 0..12 {
        let mut seen = period(number, 8, 0, 0);
        seen.host = HostSeen::of(host.parse().unwrap());
        change(&mut seen);
        for vm in &mut seen.vms {
            vm.vcpus.retain(|vcpu| !gone.contains(&vcpu.task));
        }
        ask(&mut policy, &seen);
        if number == 0 {
            let on = left.iter().flat_map(|&core| on(&policy, core));
            gone = on.map(|(task, _)| task).collect();
        }
        counts.push((0..4).map(|core| on(&policy, core).count()).collect());
    }
    counts
}

#[test]
fn cores_that_vms_have_left_are_filled_from_the_others() {
    let counts = after_leaving("1n1l4c2t", &[2, 3], |_| {});
    assert_eq!(counts[0], [4, 4, 4, 4]);
    // One a period.
    let moved = |pair: &[Vec<usize>]| {
        let cores = pair[0].iter().zip(&pair[1]);
        cores
            .map(|(before, now)| before.abs_diff(*now))
            .sum::<usize>()
    };
    assert!(counts[1..].windows(2).all(|pair| moved(pair) <= 2));
    assert_eq!(counts.last().unwrap()[..], [2, 2, 2, 2]);
    // Not from one node to another.
    let nodes = after_leaving("2n1l2c2t", &[2, 3], |_| {});
    assert_eq!(nodes.last().unwrap()[..], [4, 4, 0, 0]);
    let within = after_leaving("2n1l2c2t", &[3], |_| {});
    assert_eq!(within.last().unwrap()[..], [4, 4, 2, 2]);
}

/// As on a real host, whose numbers of pCPUs say nothing: sockets have every other core.
#[test]
fn nodes_are_told_by_their_pcpus_not_by_numbers() {
    let counts = after_leaving("1n1l4c2t", &[1, 3], |seen| {
        let nodes = ["0,1,4,5", "2,3,6,7"];
        seen.host.nodes = nodes.map(|node| node.parse().unwrap()).to_vec();
    });
    assert_eq!(counts.last().unwrap()[..], [4, 0, 4, 0]);
}

#[test]
fn a_vcpu_that_may_not_use_an_empty_core_is_not_moved_there() {
    let counts = after_leaving("1n1l4c2t", &[2, 3], |seen| {
        let bound = seen.vms.iter_mut().flat_map(|vm| &mut vm.vcpus);
        if seen.now > 0 {
            bound.for_each(|vcpu| vcpu.allowed = corun_model::PcpuSet::first(6));
        }
    });
    assert_eq!(counts.last().unwrap()[3], 0);
    assert!(counts.last().unwrap()[..3].iter().all(|count| *count >= 2));
}

/// Two VMs with cookies of their own have two cores each; the first grows, and the second leaves one of its cores.
#[test]
fn nor_is_a_core_filled_from_those_of_another_cookie() {
    let mut policy = VsmtIo::default();
    let sizes = (0..12).map(|number| match number {
        0 => [2, 2],
        1 => [8, 2],
        _ => [8, 1],
    });
    for (number, sizes) in sizes.enumerate() {
        let mut seen = period(number as u64, 8, 0, 0);
        seen.vms[1].cookie = 7;
        for (vm, size) in seen.vms.iter_mut().zip(sizes) {
            vm.vcpus.truncate(size);
        }
        ask(&mut policy, &seen);
        for core in 0..4 {
            let vms: Vec<u32> = on(&policy, core).map(|(task, _)| task.0 / 100).collect();
            assert!(vms.windows(2).all(|pair| pair[0] == pair[1]), "{vms:?}");
        }
    }
    let mut counts = [0, 1, 2, 3].map(|core| on(&policy, core).count());
    counts.sort_unstable();
    assert_eq!(counts, [1, 2, 3, 3]);
}

/// vCPUs by core, the first VM's one and the others', on two cores: the VMs weigh so much, and so do vCPUs.
fn on_cores(weights: [Option<u32>; 2], own: &[u32]) -> [usize; 2] {
    let mut seen = snapshot(1, &[1, own.len()]);
    seen.host = HostSeen::of("1n1l2c2t".parse().unwrap());
    for (vm, weight) in seen.vms.iter_mut().zip(weights) {
        vm.weight = weight;
    }
    for (vcpu, own) in seen.vms[1].vcpus.iter_mut().zip(own) {
        vcpu.weight = *own;
    }
    let vcpus = seen.vms.iter_mut().flat_map(|vm| &mut vm.vcpus);
    vcpus.for_each(|vcpu| vcpu.allowed = corun_model::PcpuSet::first(4));
    let mut policy = VsmtIo::default();
    ask(&mut policy, &seen);
    [0, 1].map(|core| on(&policy, core).count())
}

/// One vCPU uses a hardware thread and no more, whatever it weighs: of seven others those that fill the other
/// one are beside it.
#[test]
fn a_weight_beyond_a_hardware_thread_leaves_nobody_a_core() {
    assert_eq!(on_cores([Some(100), Some(700)], &[100; 7]), [4, 4]);
    // It is worth a third of what the seven weigh: 700 + 233, halved.
    assert_eq!(on_cores([Some(10_000), Some(700)], &[100; 7]), [3, 5]);
}

/// Without a weight of its VM, a vCPU has its own.
#[test]
fn cores_are_filled_by_what_vcpus_weigh() {
    let own = [200, 200, 200, 100, 100, 100, 100, 100, 100];
    assert_eq!(on_cores([None, None], &own), [6, 4]);
}

/// What each vCPU had of so many periods, in per cent of a hardware thread, on this host: each hardware thread is
/// shared equally by those at home there. `changes` changes snapshots: time that a vCPU waits it also retains.
fn shares(
    host: &str,
    vms: &[usize],
    periods: std::ops::Range<u64>,
    changes: impl Fn(u64, &mut Snapshot),
) -> Vec<u64> {
    let mut policy = VsmtIo::default();
    let mut had = BTreeMap::<TaskId, Nanos>::new();
    let mut plan = Plan::default();
    for number in 0..periods.end {
        let mut seen = snapshot(1, vms);
        seen.host = HostSeen::of(host.parse().unwrap());
        seen.now = number * PERIOD;
        let pcpus = seen.host.topology.pcpus();
        changes(number, &mut seen);
        for vcpu in seen.vms.iter_mut().flat_map(|vm| &mut vm.vcpus) {
            vcpu.allowed = corun_model::PcpuSet::first(pcpus);
            let its = |told: &&TaskPlan| told.task == vcpu.task;
            let Some(home) = plan.tasks.iter().find(its).map(|told| told.home) else {
                continue;
            };
            let beside = plan.tasks.iter().filter(|told| told.home == home);
            vcpu.run = (PERIOD / beside.count() as Nanos).min(PERIOD - vcpu.wait);
            vcpu.ready = PERIOD - vcpu.run - vcpu.wait;
            vcpu.turns.retained = vcpu.wait;
            if periods.contains(&number) {
                *had.entry(vcpu.task).or_default() += vcpu.run;
            }
        }
        plan = ask(&mut policy, &seen);
    }
    let percent = |had: Nanos| had * 100 / ((periods.end - periods.start) * PERIOD);
    had.into_values().map(percent).collect()
}

fn alike(of: &[u64], wanted: u64, by: u64) {
    assert!(
        of.iter().all(|share| share.abs_diff(wanted) <= by),
        "{of:?}"
    );
}

#[test]
fn of_an_odd_number_that_computes_none_has_more_than_another() {
    alike(&shares("1n1l2c2t", &[2, 2, 2], 1..31, |_, _| {}), 66, 3);
    // Nor beside one that waits, whose class has a place left.
    let waits = |_, seen: &mut Snapshot| seen.vms[0].vcpus[0].wait = 90 * MS;
    let beside = shares("1n1l1c2t", &[1, 4], 1..31, waits);
    alike(&beside[1..], 37, 3);
    assert_eq!(beside[0], 10);
}

#[test]
fn nor_where_cores_have_different_numbers_of_them() {
    alike(&shares("1n1l2c2t", &[1; 5], 1..61, |_, _| {}), 80, 6);
}

/// Whichever vCPU waited at first, and was I/O-bound because of that: equals of different weights are divided as evenly
/// as can be.
#[test]
fn who_began_later_does_not_say_how_weights_are_divided() {
    const WEIGHTS: [u32; 4] = [100, 150, 230, 70];
    for late in [[1, 2], [0, 3], [0, 1]] {
        let mut policy = VsmtIo::default();
        for number in 0..5 {
            let mut seen = snapshot(1, &[4]);
            seen.host = HostSeen::of("1n1l1c2t".parse().unwrap());
            seen.now = number * PERIOD;
            seen.vms[0].weight = None;
            for (at, vcpu) in seen.vms[0].vcpus.iter_mut().enumerate() {
                vcpu.weight = WEIGHTS[at];
                vcpu.allowed = corun_model::PcpuSet::first(2);
                vcpu.run = PERIOD;
                if number == 1 && late.contains(&at) {
                    (vcpu.run, vcpu.wait, vcpu.turns.wakeups) = (50 * MS, 50 * MS, 500);
                }
            }
            ask(&mut policy, &seen);
        }
        let io = on(&policy, 0).filter(|(_, vcpu)| vcpu.io);
        let weight: u64 = io.map(|(_, vcpu)| vcpu.weight / 1000).sum();
        assert!([250, 300].contains(&weight), "{weight} with {late:?}");
    }
}

/// A VM that has come or slept is not repaid for the time before.
#[test]
fn nor_has_one_that_begins_to_compute() {
    let comes = |number, seen: &mut Snapshot| {
        if number < 20 {
            seen.vms.pop();
        }
    };
    alike(&shares("1n1l1c2t", &[1, 1, 1], 21..30, comes), 66, 9);
    let wakes = |number, seen: &mut Snapshot| {
        let sleeps = if number < 20 { PERIOD } else { 0 };
        seen.vms[2].vcpus[0].wait = sleeps;
    };
    alike(&shares("1n1l1c2t", &[1, 1, 1], 21..30, wakes), 66, 9);
}

/// A vCPU that waits keeps its class, whatever others had.
#[test]
fn a_vcpu_that_retains_is_no_equal_of_those_that_compute() {
    let mut policy = VsmtIo::default();
    for number in 0..20 {
        let mut seen = period(number, 2, 0, 0);
        seen.vms[0].vcpus.truncate(1);
        let io = &mut seen.vms[0].vcpus[0];
        (io.run, io.ready, io.wait) = (95 * MS, 0, 5 * MS);
        (io.turns.retained, io.turns.wakeups) = (5 * MS, 50);
        let plan = ask(&mut policy, &seen);
        if number > 0 {
            assert_eq!(home(&plan, 0), Some(1), "period {number}");
        }
    }
}

/// A period in which its quota lets it do nothing does not change what a vCPU is taken to be.
#[test]
fn a_vcpu_of_which_nothing_was_seen_keeps_its_rate() {
    let mut policy = VsmtIo::default();
    for number in 0..4 {
        let mut seen = period(number, 4, 40, 100);
        if number == 3 {
            let vcpus = seen.vms.iter_mut().flat_map(|vm| &mut vm.vcpus);
            vcpus.for_each(|vcpu| (vcpu.run, vcpu.ready, vcpu.turns) = Default::default());
        }
        ask(&mut policy, &seen);
    }
    assert_eq!(policy.vcpus[&TaskId(0)].rate, 4000);
}

/// Periods of single-vCPU VMs on this host: in each period each vCPU wants to run for so much of it, ns, and has that.
/// After each, the core and the home of each vCPU.
fn homes(
    host: &str,
    vms: &[usize],
    periods: u64,
    wants: impl Fn(u64, usize) -> Nanos,
    change: impl Fn(&mut Snapshot),
) -> Vec<Vec<(usize, Option<u32>)>> {
    let mut policy = VsmtIo::default();
    let one = |number| {
        let mut seen = snapshot(1, vms);
        seen.host = HostSeen::of(host.parse().unwrap());
        seen.now = number * PERIOD;
        let pcpus = seen.host.topology.pcpus();
        for (at, vcpu) in seen.vms.iter_mut().flat_map(|vm| &mut vm.vcpus).enumerate() {
            vcpu.allowed = corun_model::PcpuSet::first(pcpus);
            vcpu.run = wants(number, at);
            vcpu.wait = PERIOD - vcpu.run;
        }
        change(&mut seen);
        let plan = ask(&mut policy, &seen);
        let of = |task: &TaskPlan| {
            let core = policy.vcpus[&task.task].core.unwrap();
            (core, task.home.map(|home| home.0))
        };
        plan.tasks.iter().map(of).collect()
    };
    (0..periods).map(one).collect()
}

/// Two of four vCPUs of each VM are not used: where those are at home, no core is taken.
#[test]
fn vcpus_that_never_run_take_no_core_from_those_that_do() {
    let wants = |_, at| if at % 4 < 2 { PERIOD } else { 0 };
    let homes = homes("1n1l4c2t", &[4, 4], 8, wants, |_| ());
    let mut busy: Vec<usize> = [0, 1, 4, 5].map(|at| homes[7][at].0).to_vec();
    busy.sort_unstable();
    assert_eq!(busy, [0, 1, 2, 3]);
    // No vCPU is moved back and forth.
    assert_eq!(homes[6], homes[7]);
}

/// The first and third of four compute, one on each core, until the third stops. Later the second, which is at home
/// beside the first, begins to.
#[test]
fn one_that_begins_to_compute_goes_at_once_where_there_is_room() {
    let wants = |number, at| match (number, at) {
        (_, 0) | (..20, 2) | (40.., 1) => PERIOD,
        _ => 0,
    };
    let homes = homes("1n1l2c2t", &[1; 4], 60, wants, |_| ());
    let cores = |number: usize| [0, 1, 2].map(|at| homes[number][at].0);
    let [first, second, third] = cores(19);
    assert_eq!((first, second), (1 - third, 1 - third), "it sleeps there");
    assert_eq!(cores(39), cores(19));
    assert_eq!(cores(40), [first, third, third]);
    assert_eq!(cores(59), cores(40));
}

#[test]
fn nobody_moves_for_one_that_wakes_up_now_and_then() {
    let wants = |number: u64, at| match at {
        3 if number % 10 == 9 => 10 * MS,
        3 => 0,
        _ => PERIOD,
    };
    let homes = homes("1n1l2c2t", &[1, 1, 1, 1, 1], 80, wants, |_| ());
    let cores = |of: &[(usize, Option<u32>)]| of.iter().map(|(core, _)| *core).collect::<Vec<_>>();
    let all: Vec<_> = homes[10..].iter().map(|of| cores(of)).collect();
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{all:?}");
}

/// One that waits has a hardware thread, two that compute have the other one, however many vCPUs are beside them that
/// never run.
#[test]
fn vcpus_that_never_run_drive_nobody_out_of_its_class() {
    let wants = |_, at| match at {
        0 | 1 => PERIOD,
        2 => 20 * MS,
        _ => 0,
    };
    let waits = |seen: &mut Snapshot| seen.vms[2].vcpus[0].turns.wakeups = 400;
    for idle in 0..4 {
        let homes = homes("1n1l1c2t", &[1, 1, 1 + idle], 8, wants, waits);
        let of = homes[7][..3].iter().map(|(_, home)| home.unwrap());
        assert_eq!(of.collect::<Vec<_>>(), [0, 0, 1], "{idle} idle");
    }
}

/// A core of one that waits and two that never run, another one of two that compute.
#[test]
fn a_core_is_not_mixed_by_vcpus_that_never_run() {
    let wants = |_, at| match at {
        0 => 20 * MS,
        1 | 2 => 0,
        _ => PERIOD,
    };
    let bound = |seen: &mut Snapshot| {
        seen.vms[0].vcpus[0].turns.wakeups = 400;
        if seen.now == 0 {
            for (vm, own) in seen.vms.iter_mut().zip(["0-1", "2-3"]) {
                let own: corun_model::PcpuSet = own.parse().unwrap();
                vm.vcpus.iter_mut().for_each(|vcpu| vcpu.allowed = own);
            }
        }
    };
    let homes = homes("1n1l2c2t", &[3, 2], 30, wants, bound);
    let core = |at: usize| homes[29][at].0;
    assert_ne!(core(3), core(4));
}

/// A VM's weight is that of its vCPUs that are used.
#[test]
fn a_vm_is_worth_no_less_for_vcpus_that_it_does_not_use() {
    let mut policy = VsmtIo::default();
    for number in 0..8 {
        let mut seen = period(number, 8, 0, 0);
        seen.vms.iter_mut().for_each(|vm| vm.weight = Some(100));
        seen.vms[0].vcpus.truncate(1);
        for vcpu in &mut seen.vms[1].vcpus[1..] {
            (vcpu.run, vcpu.ready, vcpu.wait) = (0, 0, PERIOD);
        }
        ask(&mut policy, &seen);
    }
    let load = |task| policy.vcpus[&TaskId(task)].load();
    assert_eq!(load(0), load(100));
    assert_eq!(load(101), 0);
}

proptest! {
    /// Whatever vCPUs do: every home is allowed and of the vCPU's own core, only one hardware thread of a
    /// core is held, and timeouts stay within their bounds.
    #[test]
    fn what_holds_whatever_vcpus_do(
        periods in prop::collection::vec(prop::collection::vec((0u64..100, 0u64..5, 0u64..4), 12), 1..30),
    ) {
        let mut policy = VsmtIo::default();
        let bounds = VsmtIoParams::default().bounds;
        for (number, does) in periods.iter().enumerate() {
            let mut seen = period(number as u64, 6, 0, 0);
            for (vcpu, &(retained, kept, work)) in seen.vms.iter_mut().flat_map(|vm| &mut vm.vcpus).zip(does) {
                (vcpu.turns.retained, vcpu.turns.kept) = (retained * MS, kept);
                vcpu.signals.instructions = Some(work);
            }
            let plan = ask(&mut policy, &seen);
            for told in &plan.tasks {
                let core = policy.vcpus[&told.task].core.unwrap();
                prop_assert!(policy.cores.threads(core).contains(&told.home.unwrap()));
            }
            for pair in plan.pcpus.chunks(2) {
                prop_assert_eq!(pair[0].hold, 0);
                prop_assert!((bounds.least..=bounds.most).contains(&pair[1].hold));
            }
            // As many vCPUs on each core as before.
            for core in 0..policy.cores.count() {
                prop_assert_eq!(on(&policy, core).count(), 4);
            }
        }
    }
}
