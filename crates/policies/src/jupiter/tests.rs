// SPDX-License-Identifier: GPL-2.0-only
use super::*;
use crate::testing::{ask, snapshot};
use crate::{Balance, Settings};
use corun_model::time::MS;
use corun_model::{Doing, PcpuId, PcpuSet, TaskId, Wakers};
use proptest::prelude::*;

const PERIOD: Nanos = 100 * MS;

/// What a vCPU does in a period: time used in ms, state at the end, slices used up.
type Does = (u64, Doing, u64);

const HOG: Does = (50, Doing::Ready, 16);
const SLEEPER: Does = (5, Doing::Waiting, 0);

/// A period of VMs whose vCPUs do this, on as many pCPUs as the largest has vCPUs.
fn period(number: u64, vms: &[Vec<Does>]) -> Snapshot {
    let sizes: Vec<usize> = vms.iter().map(Vec::len).collect();
    let pcpus = sizes.iter().copied().max().unwrap_or(1) as u32;
    let mut seen = snapshot(pcpus, &sizes);
    seen.now = number * PERIOD;
    for (vm, does) in seen.vms.iter_mut().zip(vms) {
        for (at, (vcpu, &(used, doing, depleted))) in vm.vcpus.iter_mut().zip(does).enumerate() {
            vcpu.run = used * MS;
            let rest = PERIOD - used * MS;
            match doing {
                Doing::Waiting => vcpu.wait = rest,
                _ => vcpu.ready = rest,
            }
            vcpu.turns.doing = doing;
            vcpu.turns.depleted = depleted;
            vcpu.turns.cpu = Some(PcpuId::from(at));
        }
    }
    seen
}

/// Asks for `periods` periods of the same; the first begins at `from`.
fn ask_for(policy: &mut Jupiter, from: u64, periods: u64, vms: &[Vec<Does>]) -> Plan {
    let each = (from..from + periods).map(|number| ask(policy, &period(number, vms)));
    each.last().unwrap()
}

fn claim(plan: &Plan, task: u32) -> Claim {
    let told = plan.tasks.iter().find(|told| told.task == TaskId(task));
    told.and_then(|told| told.claim).unwrap()
}

/// The one busy vCPU of a VM that is entitled to two pCPUs: its slice is a whole period.
#[test]
fn nobody_is_promised_a_whole_period_out_of_turn() {
    let mut policy = Jupiter::default();
    let alone = |used| vec![(used, Doing::Ready, 16), SLEEPER, SLEEPER, SLEEPER];
    let plan = ask_for(&mut policy, 0, 50, &[alone(100), vec![HOG; 4]]);
    let promised = claim(&plan, 0).allotment;
    assert_eq!(promised, PERIOD - PERIOD / dats::FLOOR);
}

#[test]
fn a_host_that_only_computes_is_told_nothing_but_what_is_neutral() {
    let mut policy = Jupiter::default();
    let plan = ask_for(&mut policy, 0, 50, &[vec![HOG; 2], vec![HOG; 2]]);
    assert_eq!(plan.tasks.len(), 4);
    for told in &plan.tasks {
        let neutral = Claim {
            share: Claim::NEUTRAL,
            latency: 4 * MS,
            allotment: 50 * MS,
        };
        assert_eq!((told.claim, told.home), (Some(neutral), None));
    }
}

/// A VM that has its share of a host, as one of four with a quarter of each pCPU, is not hurried if Jupiter is for it only.
#[test]
fn a_canary_is_entitled_to_its_part_among_all_vms() {
    const QUARTER: Does = (25, Doing::Ready, 8);
    let mut policy = Jupiter::default();
    let mut plan = Plan::default();
    for number in 0..50 {
        let mut seen = period(number, &vec![vec![QUARTER; 4]; 4]);
        seen.others = seen.vms.split_off(1);
        plan = ask(&mut policy, &seen);
    }
    assert_eq!(policy.vms[0].entitled(), PERIOD);
    assert_eq!((plan.vms.len(), plan.tasks.len()), (1, 4));
    for vcpu in 0..4 {
        let Claim {
            latency, allotment, ..
        } = claim(&plan, vcpu);
        assert_eq!((latency, allotment), (4 * MS, 25 * MS));
    }
    // The others have no status.
    assert_eq!(policy.status().vms.len(), 1);
}

/// The main thread of a VM has all to do, the others little: it gets what they leave.
#[test]
fn a_busy_vcpu_gets_what_its_siblings_leave_and_the_vm_stays_as_it_is() {
    let params = JupiterParams {
        elb: false,
        ..JupiterParams::default()
    };
    let mut policy = Jupiter::new(params);
    let vms = [vec![(80, Doing::Ready, 9), SLEEPER], vec![HOG; 2]];
    let plan = ask_for(&mut policy, 0, 4, &vms);
    let shares = (claim(&plan, 0).share, claim(&plan, 1).share);
    assert_eq!(shares.0 + shares.1, 2 * Claim::NEUTRAL);
    // Three periods were judged: each took a tenth of what the sibling had.
    assert_eq!(shares.0 * 100 / Claim::NEUTRAL, 127);
    assert!(claim(&plan, 0).allotment > 63 * MS);
}

/// What each leaves raises what all are entitled to; that is no reason to keep more in turn.
#[test]
fn vms_that_all_sleep_do_not_leave_their_time_and_take_it_back_by_turns() {
    let mut policy = Jupiter::default();
    let vms = vec![vec![(1, Doing::Waiting, 0)]; 6];
    let mut last = 0;
    for number in 0..120 {
        ask(&mut policy, &period(number, &vms));
        let entitled = policy.vms[0].entitled();
        assert!(entitled >= last, "{number}: {entitled} after {last}");
        last = entitled;
    }
    assert!(last > 25 * MS, "a sixth is 16.7 ms: {last}");
}

/// A VM's own weight is shared by those of its vCPUs that want to run. What a sibling that sleeps does not have is no reason
/// for the VM to have more.
#[test]
fn siblings_that_sleep_do_not_make_a_vm_with_a_weight_heavier() {
    let params = JupiterParams {
        elb: false,
        ..JupiterParams::default()
    };
    let mut policy = Jupiter::new(params);
    let vms = [vec![(80, Doing::Ready, 9), SLEEPER], vec![HOG; 2]];
    let weighed = |number| {
        let mut seen = period(number, &vms);
        seen.vms.iter_mut().for_each(|vm| vm.weight = Some(100));
        seen
    };
    let plan = (0..40).map(|number| ask(&mut policy, &weighed(number)));
    let plan = plan.last().unwrap();
    let shares = [0, 1, 100].map(|vcpu| u64::from(claim(&plan, vcpu).share));
    assert!(shares[1] * 3 < shares[0], "{shares:?}");
    // They wanted to run for 100 and 5 ms.
    let mean = (shares[0] * 100 + shares[1] * 5) / 105;
    assert!(mean.abs_diff(shares[2]) < shares[2] / 100, "{shares:?}");
}

#[test]
fn a_vcpu_that_cannot_use_its_slice_is_scheduled_sooner() {
    let mut policy = Jupiter::default();
    let vms = [vec![(20, Doing::Ready, 0); 2], vec![HOG; 2]];
    let after_one = claim(&ask_for(&mut policy, 0, 2, &vms), 0).latency;
    assert_eq!(after_one, 3_600_000);
    let later = claim(&ask_for(&mut policy, 2, 60, &vms), 0).latency;
    assert_eq!(later, JupiterParams::default().latency_least);
}

/// It uses three fifths of its share and lends the rest, until it has no more than it uses. That is not its
/// share: the vCPU that comes late is hurried on.
#[test]
fn a_vm_that_lends_what_it_cannot_use_does_not_have_its_share() {
    let mut policy = Jupiter::default();
    let stuck = vec![(10, Doing::Ready, 0), (50, Doing::Waiting, 0)];
    let vms = [stuck, vec![(70, Doing::Ready, 9); 2]];
    let plan = ask_for(&mut policy, 0, 42, &vms);
    assert!(policy.status().vms[0].loan <= -380);
    assert_eq!(claim(&plan, 0).latency, policy.params.latency_least);
}

/// An enclosing cgroup gives the second VM half of what the first has. That is not known here, so the VM seems not to
/// use what it could. It waits all the time, and lends nothing: the split stays what the weights say.
#[test]
fn a_vm_of_which_too_much_is_expected_lends_nothing() {
    let mut policy = Jupiter::default();
    let plan = ask_for(&mut policy, 0, 50, &two_to_one());
    for vm in policy.status().vms {
        assert_eq!((vm.loan, vm.enforced), (0, true));
    }
    assert!((0..2).all(|vcpu| claim(&plan, vcpu).share == Claim::NEUTRAL));
}

/// Two VMs, the first with twice as much.
fn two_to_one() -> [Vec<Does>; 2] {
    [
        vec![(67, Doing::Ready, 20); 2],
        vec![(33, Doing::Running, 10), (33, Doing::Ready, 10)],
    ]
}

/// The same periods, of vCPUs that weigh this by themselves.
fn ask_weighed(policy: &mut Jupiter, periods: u64, vms: &[Vec<Does>], weights: &[&[u32]]) -> Plan {
    let each = (0..periods).map(|number| {
        let mut seen = period(number, vms);
        for (vm, weights) in seen.vms.iter_mut().zip(weights) {
            for (vcpu, weight) in vm.vcpus.iter_mut().zip(*weights) {
                vcpu.weight = *weight;
            }
        }
        ask(policy, &seen)
    });
    each.last().unwrap()
}

/// Both have what they are entitled to, and neither is hurried.
#[test]
fn a_vm_without_a_weight_is_entitled_to_what_its_vcpus_weigh() {
    let mut policy = Jupiter::default();
    let weights: [&[u32]; 2] = [&[200; 2], &[100; 2]];
    let plan = ask_weighed(&mut policy, 50, &two_to_one(), &weights);
    for (vcpu, part) in [(0, 66), (100, 33)] {
        let claim = claim(&plan, vcpu);
        assert_eq!((claim.allotment / MS, claim.share), (part, Claim::NEUTRAL));
        assert_eq!(claim.latency, policy.params.latency, "of task {vcpu}");
    }
}

/// A VM's own weight is all that counts against others; within, its vCPUs divide by theirs. The dispatcher multiplies
/// shares by these weights, so the plan has neutral shares. Two VMs in a slice of one pCPU beside a third one, on four
/// pCPUs.
#[test]
fn vms_are_entitled_to_what_their_quotas_leave_and_borrow_no_more() {
    let mut policy = Jupiter::default();
    let slice = corun_model::Quota {
        of: 1,
        time: corun_model::time::SEC,
    };
    let mut entitled = |periods: std::ops::Range<u64>, used: [Nanos; 2], doing: Doing| {
        for number in periods {
            let mut vms = vec![vec![HOG; 4]; 4];
            vms[0] = vec![(used[0], Doing::Ready, 4); 4];
            vms[1] = vec![(used[1], doing, 4); 4];
            vms[3] = vec![SLEEPER; 4];
            let mut seen = period(number, &vms);
            for (vm, weight) in seen.vms.iter_mut().zip([400, 100, 250, 250]) {
                (vm.weight, vm.effective) = (Some(weight), Some(u64::from(weight) * 1000));
            }
            seen.vms[..2]
                .iter_mut()
                .for_each(|vm| vm.quotas = vec![slice]);
            ask(&mut policy, &seen);
        }
        [0, 1, 2].map(|vm| (policy.vms[vm].entitled() / MS, policy.vms[vm].has() / MS))
    };
    let [heavy, light, beside] = entitled(0..5, [20, 5], Doing::Ready);
    // The sleeper lends, to whom there is something for.
    assert_eq!([heavy, light], [(80, 80), (20, 20)]);
    assert!(beside.0 == 150 && beside.1 > 150, "{beside:?}");
    // What the one in the slice leaves the other one can use.
    let [heavy, _, _] = entitled(5..30, [24, 0], Doing::Waiting);
    assert!(heavy.0 == 80 && heavy.1 > 82, "{heavy:?}");
}

/// Four vCPUs that can have an eighth of a pCPU each beside a VM of the same weight, on four pCPUs.
#[test]
fn vms_are_entitled_to_what_quotas_of_their_vcpus_leave_and_borrow_no_more() {
    let mut policy = Jupiter::default();
    for number in 0..20 {
        let limited = (12, Doing::Waiting, 4);
        let mut seen = period(number, &[vec![limited; 4], vec![HOG; 4], vec![SLEEPER; 4]]);
        let of_first = seen.vms[0].vcpus.iter_mut();
        of_first.for_each(|vcpu| vcpu.quota = Some(corun_model::time::SEC / 8));
        ask(&mut policy, &seen);
    }
    let of = |vm: usize| {
        let vm = &policy.vms[vm];
        (vm.entitled() / MS, vm.has() / MS)
    };
    let (entitled, has) = of(0);
    assert!(entitled == 50 && (45..=50).contains(&has), "{has}");
    let (entitled, has) = of(1);
    assert!(entitled > 170 && has > entitled, "{entitled} {has}");
}

#[test]
fn vcpus_of_a_vm_divide_its_time_by_what_they_weigh() {
    let mut policy = Jupiter::default();
    let vms = [
        vec![(75, Doing::Ready, 20), (25, Doing::Ready, 8)],
        vec![HOG; 2],
    ];
    let plan = ask_weighed(&mut policy, 20, &vms, &[&[300, 100], &[200, 200]]);
    // 400 and 400 against each other.
    let parts = [0, 1, 100, 101].map(|vcpu| claim(&plan, vcpu));
    assert_eq!(parts.map(|claim| claim.allotment / MS), [75, 25, 50, 50]);
    assert!(parts.iter().all(|claim| claim.share == Claim::NEUTRAL));
    // The heavy one leaves what it has: its sibling gains by the same rule.
    let vms = [
        vec![(5, Doing::Waiting, 0), (95, Doing::Ready, 20)],
        vec![HOG; 2],
    ];
    let mut policy = Jupiter::new(JupiterParams {
        elb: false,
        ..JupiterParams::default()
    });
    let plan = ask_weighed(&mut policy, 4, &vms, &[&[300, 100], &[200, 200]]);
    let [heavy, light] = [0, 1].map(|vcpu| claim(&plan, vcpu));
    assert!(light.share > Claim::NEUTRAL && heavy.share < Claim::NEUTRAL);
    let weighed = 300 * u64::from(heavy.share) + 100 * u64::from(light.share);
    assert!(
        (400 * u64::from(Claim::NEUTRAL)).abs_diff(weighed) < 400,
        "the VM's total stays"
    );
}

/// A vCPU that weighs something else from now on has another part.
#[test]
fn new_weights_of_vcpus_hold_at_once() {
    let mut policy = Jupiter::default();
    let vms = [vec![HOG; 2], vec![HOG; 2]];
    ask_weighed(&mut policy, 5, &vms, &[&[100; 2], &[100; 2]]);
    let mut seen = period(5, &vms);
    seen.vms[0].vcpus[0].weight = 300;
    let plan = ask(&mut policy, &seen);
    let parts = [0, 1].map(|vcpu| claim(&plan, vcpu).allotment / MS);
    assert_eq!(
        parts,
        [87, 33],
        "400 of 600, of two pCPUs, and no more than may be promised"
    );
}

/// A VM that has just joined had no slice yet, so that it cannot have used one up: its weights stay
/// even, and it borrows nothing.
#[test]
fn a_vm_that_joins_is_not_judged_by_a_slice_it_did_not_have() {
    let mut policy = Jupiter::default();
    let sleeps = vec![SLEEPER; 2];
    ask_for(&mut policy, 0, 3, std::slice::from_ref(&sleeps));
    let joins = vec![(50, Doing::Ready, 16), (10, Doing::Waiting, 0)];
    let plan = ask_for(&mut policy, 3, 1, &[sleeps, joins]);
    let shares = [100, 101].map(|vcpu| claim(&plan, vcpu).share);
    assert_eq!(shares, [Claim::NEUTRAL; 2]);
    assert_eq!(policy.status().vms[1].loan, 0);
}

/// Only conflicts of low latencies count, and a VM with twice as many vCPUs may have twice as many.
#[test]
fn conflicts_are_those_of_low_latencies_by_vcpu() {
    let mut policy = Jupiter::default();
    let late = vec![(20, Doing::Ready, 0); 2];
    let twice = vec![(20, Doing::Ready, 0); 4];
    let conflicts = |policy: &mut Jupiter, periods: std::ops::Range<u64>| {
        for number in periods {
            let mut seen = period(number, &[late.clone(), twice.clone()]);
            for vcpu in seen.vms.iter_mut().flat_map(|vm| &mut vm.vcpus) {
                vcpu.turns.preempted = 3;
            }
            ask(policy, &seen);
        }
        let each = policy.vms.iter();
        each.map(|vm| vm.conflicts(&policy.params))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        conflicts(&mut policy, 0..2),
        [0, 0],
        "latencies are still high"
    );
    assert_eq!(conflicts(&mut policy, 2..20), [3000, 3000]);
}

/// Haste is for VMs that lack time: one that has its share has latencies like any other again.
#[test]
fn latencies_come_back_when_a_vm_has_its_share() {
    let mut policy = Jupiter::default();
    let late = [vec![(20, Doing::Ready, 0); 2], vec![HOG; 2]];
    let plan = ask_for(&mut policy, 0, 30, &late);
    assert!(claim(&plan, 0).latency < MS);
    let served = [vec![(48, Doing::Ready, 0); 2], vec![HOG; 2]];
    let plan = ask_for(&mut policy, 30, 40, &served);
    assert_eq!(claim(&plan, 0).latency, JupiterParams::default().latency);
}

/// Item by item the plan of plain balance: nothing of Jupiter's is left.
#[test]
fn a_vm_that_is_not_predictable_is_left_to_balance_until_it_is() {
    let mut policy = Jupiter::default();
    let steady = [vec![HOG; 2], vec![HOG; 2]];
    ask_for(&mut policy, 0, 10, &steady);
    let mut off = Vec::new();
    for number in 10..30 {
        let wild = if number < 20 && number % 2 == 0 {
            2
        } else {
            50
        };
        let vms = [vec![(wild, Doing::Ready, 1); 2], vec![HOG; 2]];
        let seen = period(number, &vms);
        let plan = ask(&mut policy, &seen);
        let balance = ask(&mut Balance, &seen);
        if plan.vms[0] == balance.vms[0] {
            assert!(plan.tasks.iter().all(|told| told.task.0 >= 100));
            off.push(number);
        }
        assert_eq!(
            policy.status().vms[0].enforced,
            plan.vms[0] != balance.vms[0]
        );
        assert!(policy.status().vms[1].enforced);
    }
    // Wrong from 10 to 19; the five right ones begin with 20.
    assert_eq!(off, (14..24).collect::<Vec<_>>());
}

#[test]
fn without_its_parts_it_asks_for_nothing_but_balance_and_neutral_claims() {
    let mut settings = Settings::default();
    let info = crate::find("jupiter").unwrap();
    for part in ["dats", "dasl", "rcr", "elb"] {
        settings.set(info, part, "false").unwrap();
    }
    let mut policy = Jupiter::new(settings.jupiter);
    let vms = [
        vec![(20, Doing::Ready, 0), (80, Doing::Ready, 9)],
        vec![HOG; 2],
    ];
    let plan = ask_for(&mut policy, 0, 20, &vms);
    for told in plan.tasks {
        let claim = told.claim.unwrap();
        assert_eq!((claim.share, claim.latency), (Claim::NEUTRAL, 0));
        assert_eq!((claim.allotment, told.home), (50 * MS, None));
    }
}

/// Four VMs of one vCPU on two pCPUs, two of them entitled to three times as much as the others: a period with the
/// vCPUs on the pCPUs `at`.
fn heavy_and_light(number: u64, at: [u32; 4]) -> Snapshot {
    let mut seen = snapshot(2, &[1; 4]);
    seen.now = number * PERIOD;
    for ((vm, at), heavy) in seen.vms.iter_mut().zip(at).zip([true, true, false, false]) {
        let vcpu = &mut vm.vcpus[0];
        (vcpu.weight, vcpu.run) = if heavy {
            (300, 50 * MS)
        } else {
            (100, 50 * MS)
        };
        vcpu.ready = PERIOD - vcpu.run;
        (vcpu.turns.doing, vcpu.turns.cpu) = (Doing::Ready, Some(PcpuId(at)));
    }
    seen
}

/// Two of them are swapped. That holds for a period; afterwards what counts is where they are.
#[test]
fn a_swapped_vcpu_is_told_so_for_a_period() {
    let homes = |policy: &mut Jupiter, seen: &Snapshot| -> Vec<Option<u32>> {
        let plan = ask(policy, seen);
        let homes = plan.tasks.iter().map(|told| told.home.map(|cpu| cpu.0));
        homes.collect()
    };
    let mut policy = Jupiter::default();
    let apart = [0, 0, 1, 1];
    assert_eq!(homes(&mut policy, &heavy_and_light(0, apart)), [None; 4]);
    let swapped = [Some(1), None, Some(0), None];
    for number in [1, 2] {
        // For a vCPU that has not gone there, the plan says so again.
        assert_eq!(homes(&mut policy, &heavy_and_light(number, apart)), swapped);
    }
    assert_eq!(
        homes(&mut policy, &heavy_and_light(3, [1, 0, 0, 1])),
        [None; 4]
    );
}

/// The status of VM 0 after each period in which its first vCPU was woken, in some by its sibling.
fn wakers_after(policy: &mut Jupiter, hidden: bool, siblings: &[bool]) -> Vec<Wakers> {
    let of_period = |(number, &by_sibling): (usize, &bool)| {
        let mut seen = period(number as u64, &[vec![SLEEPER; 2], vec![HOG; 2]]);
        seen.host.wakers_hidden = hidden;
        seen.vms[0].vcpus[0].turns.wakeups = 9;
        if by_sibling {
            seen.vms[0].vcpus[0].turns.wakers = vec![TaskId(1)];
        }
        ask(policy, &seen);
        policy.status().vms[0].wakers
    };
    siblings.iter().enumerate().map(of_period).collect()
}

/// A VM whose vCPUs are woken by timers and devices hides nothing; and one whose siblings wake each other still counts
/// as such after a period in which they did not.
#[test]
fn hidden_is_what_the_hardware_hides_not_what_did_not_happen() {
    let never = wakers_after(&mut Jupiter::default(), false, &[false; 5]);
    assert_eq!(never, [Wakers::Others; 5]);
    let mut now_and_then = [false; 30];
    (1..20).step_by(6).for_each(|at| now_and_then[at] = true);
    let told = wakers_after(&mut Jupiter::default(), false, &now_and_then);
    assert_eq!(told[1..29], [Wakers::Siblings; 28]);
    assert_eq!(told[29], Wakers::Others, "ten periods after the last");
    let mut policy = Jupiter::default();
    let hidden = wakers_after(&mut policy, true, &now_and_then);
    assert_eq!(hidden[1..], [Wakers::Hidden; 29]);
    let notes = policy.status().notes;
    assert!(notes[0].contains("IPI virtualisation"), "{notes:?}");
    assert_eq!(
        wakers_after(&mut policy, false, &[true, true])[1],
        Wakers::Siblings
    );
    assert_eq!(policy.status().notes, [""; 0]);
}

/// A vCPU that has the least latency and is stuck: where hardware hides the sibling that it waits
/// for, its siblings are hurried; where it does not and none of them woke it, none is.
#[test]
fn siblings_stand_for_wakers_where_these_are_hidden_and_only_there() {
    for (hidden, then) in [(true, 3_600_000), (false, 4 * MS)] {
        let mut policy = Jupiter::default();
        let vms = [
            vec![(20, Doing::Ready, 0), (0, Doing::Waiting, 0)],
            vec![HOG; 2],
        ];
        let mut latency = 0;
        let least = JupiterParams::default().latency_least;
        for number in 0.. {
            let mut seen = period(number, &vms);
            seen.host.wakers_hidden = hidden;
            seen.vms[0].vcpus[0].turns.wakeups = 9;
            let plan = ask(&mut policy, &seen);
            latency = claim(&plan, 1).latency;
            if number > 0 && claim(&plan, 0).latency == least {
                // One more period, with the least latency.
                seen.now += PERIOD;
                latency = claim(&ask(&mut policy, &seen), 1).latency;
                break;
            }
        }
        assert_eq!(latency, then);
    }
}

/// Where hardware hides wakers, the vCPU that seems to have woken it was there by accident: it does
/// not stand in for the others.
#[test]
fn a_vcpu_there_by_accident_is_no_waker_where_these_are_hidden() {
    let mut policy = Jupiter::default();
    let vms = [
        vec![
            (20, Doing::Ready, 0),
            (0, Doing::Waiting, 0),
            (0, Doing::Waiting, 0),
        ],
        vec![HOG; 3],
    ];
    let least = policy.params.latency_least;
    let mut latencies = [0; 3];
    for number in 0..60 {
        let mut seen = period(number, &vms);
        seen.host.wakers_hidden = true;
        let turns = &mut seen.vms[0].vcpus[0].turns;
        (turns.wakeups, turns.wakers) = (9, vec![TaskId(1)]);
        let plan = ask(&mut policy, &seen);
        latencies = [0, 1, 2].map(|vcpu| claim(&plan, vcpu).latency);
    }
    assert_eq!(latencies[0], least);
    assert!(latencies[2] < 4 * MS, "{latencies:?}");
    assert_eq!(latencies[1], latencies[2]);
}

/// A VM that leaves half of its time unused lends it, and gets it back when it can use it.
#[test]
fn unused_time_comes_back() {
    let mut policy = Jupiter::default();
    let idle = [
        vec![(20, Doing::Waiting, 0); 2],
        vec![(79, Doing::Ready, 9); 2],
    ];
    let busy = [vec![HOG; 2], vec![(50, Doing::Waiting, 0); 2]];
    let lends = ask_for(&mut policy, 0, 12, &idle);
    assert!(claim(&lends, 0).share < Claim::NEUTRAL);
    assert!(claim(&lends, 100).share > Claim::NEUTRAL);
    assert!(policy.status().vms[0].loan < 0);
    let repaid = ask_for(&mut policy, 12, 1, &busy);
    assert!(claim(&repaid, 0).share > Claim::NEUTRAL);
    assert!(claim(&repaid, 100).share < Claim::NEUTRAL);
    assert!(policy.status().vms[0].loan > 0);
}

/// What a borrower used before Jupiter went off for it is owed all the same, and repaid when it is on again.
#[test]
fn what_was_borrowed_is_owed_though_jupiter_goes_off_for_the_borrower() {
    let params = JupiterParams {
        wrong: 1,
        right: 1,
        ..JupiterParams::default()
    };
    let mut policy = Jupiter::new(params);
    let sleeps = vec![(20, Doing::Waiting, 0); 2];
    let borrows = vec![(79, Doing::Ready, 9); 2];
    ask_for(&mut policy, 0, 12, &[sleeps.clone(), borrows]);
    assert!(policy.status().vms[1].loan > 0);
    let (before, owed_before) = policy.bank.totals();
    // It uses all of what it has borrowed, but not as was expected.
    let wild = vec![(100, Doing::Ready, 9), (58, Doing::Ready, 9)];
    ask_for(&mut policy, 12, 1, &[sleeps.clone(), wild]);
    assert!(!policy.status().vms[1].enforced);
    let (after, owed) = policy.bank.totals();
    assert!(after.lent > before.lent, "{after:?} after {before:?}");
    assert_eq!(owed - owed_before, after.lent - before.lent);
    // As long as it is off, it neither borrows nor repays.
    assert_eq!(policy.status().vms[1].loan, 0);
    assert_eq!(policy.status().vms[0].loan, 0);
    let half = vec![(50, Doing::Ready, 9); 2];
    ask_for(&mut policy, 13, 2, &[half.clone(), half]);
    assert!(policy.status().vms[1].enforced);
    assert!(policy.status().vms[0].loan > 0, "it is repaid");
}

/// A lender that Jupiter goes off for has all of its own at once, and what it is owed stays. On again, it begins anew.
#[test]
fn a_lender_that_jupiter_goes_off_for_is_still_owed_what_it_lent() {
    let params = JupiterParams {
        wrong: 1,
        right: 1,
        ..JupiterParams::default()
    };
    let mut policy = Jupiter::new(params);
    let sleeps = |used| vec![(used, Doing::Waiting, 0); 2];
    let borrows = vec![(79, Doing::Ready, 9); 2];
    ask_for(&mut policy, 0, 12, &[sleeps(20), borrows.clone()]);
    let lent = policy.status().vms[0].loan;
    let (before, _) = policy.bank.totals();
    ask_for(&mut policy, 12, 1, &[sleeps(40), borrows.clone()]);
    assert!(!policy.status().vms[0].enforced);
    let (after, owed) = policy.bank.totals();
    assert!(after.lent > before.lent, "the last loan counts");
    assert_eq!(owed, after.lent);
    let loans = |policy: &Jupiter| {
        policy
            .status()
            .vms
            .iter()
            .map(|vm| vm.loan)
            .collect::<Vec<_>>()
    };
    assert_eq!(loans(&policy), [0, 0]);
    ask_for(&mut policy, 13, 1, &[sleeps(40), borrows]);
    assert!(policy.status().vms[0].enforced);
    let anew = loans(&policy)[0];
    assert!(lent < anew && anew < 0, "{anew} after {lent}");
    assert_eq!(policy.bank.totals(), (after, owed));
}

/// Beside a lender that sleeps no other VM takes the borrower's pCPUs, and no slice of it ends: only that it ran for
/// more than its own shows that it wanted more.
#[test]
fn a_vm_that_runs_on_where_the_lender_sleeps_borrows() {
    let mut policy = Jupiter::default();
    let alone = (95, Doing::Running, 0);
    let lent = ask_for(&mut policy, 0, 10, &[vec![SLEEPER; 2], vec![alone; 2]]);
    assert!(claim(&lent, 100).share > Claim::NEUTRAL);
    let back = ask_for(&mut policy, 10, 1, &[vec![HOG; 2], vec![HOG; 2]]);
    assert!(claim(&back, 0).share > Claim::NEUTRAL && claim(&back, 100).share < Claim::NEUTRAL);
}

/// One thread that computes, alone on its pCPU; its siblings have nothing to do.
fn one_busy_thread() -> Vec<Does> {
    let mut does = vec![(100, Doing::Running, 0)];
    does.extend([(0, Doing::Waiting, 0); 3]);
    does
}

/// The VM idled and lent, and then has one thread that is busy for good. That thread has a pCPU, and more of the VM's
/// time is of no use to it: no weight falls to repay the debt, and what the VM leaves it lends again.
#[test]
fn what_a_lender_cannot_use_does_not_come_back() {
    let mut policy = Jupiter::default();
    let busy = |used| vec![(used, Doing::Ready, 16); 4];
    ask_for(&mut policy, 0, 40, &[vec![SLEEPER; 4], busy(47), busy(47)]);
    let loans = |policy: &Jupiter| {
        let vms = policy.status().vms;
        vms.iter().map(|vm| vm.loan).collect::<Vec<_>>()
    };
    assert!(loans(&policy)[1] > 0, "{:?}", loans(&policy));
    for number in 40..60 {
        let vms = [one_busy_thread(), busy(37), busy(37)];
        ask_for(&mut policy, number, 1, &vms);
        let told = loans(&policy);
        assert!(told[0] <= 0 && told[1] >= 0, "{number}: {told:?}");
    }
    let to_all = policy.bank.keeps(VmId(0)).is_some();
    assert!(
        loans(&policy)[0] < 0 || to_all,
        "a third of its share is left"
    );
}

/// A VM that only sleeps lends until its bucket is full. From then on the others are entitled to what they would be
/// without it, so that one of them that has less is hurried.
#[test]
fn a_vm_that_only_sleeps_does_not_change_what_others_are_entitled_to_for_good() {
    let latency = |vms: &[Vec<Does>], periods| {
        let mut policy = Jupiter::default();
        let plan = ask_for(&mut policy, 0, periods, vms);
        assert_eq!(policy.status().vms[0].loan, 0);
        (claim(&plan, 0).latency, claim(&plan, 0).allotment / MS)
    };
    let vms = [
        vec![(40, Doing::Ready, 0); 2],
        vec![(60, Doing::Ready, 20); 2],
        vec![(0, Doing::Waiting, 0); 2],
    ];
    let without = latency(&vms[..2], 150);
    assert_eq!(without, (JupiterParams::default().latency_least, 50));
    assert_eq!(latency(&vms, 150), without);
}

/// ... and when it wakes it has its share at once, and the others have theirs.
#[test]
fn a_vm_that_slept_for_long_is_entitled_to_its_share() {
    let mut policy = Jupiter::default();
    let awake = vec![(50, Doing::Ready, 16); 2];
    let asleep = vec![(0, Doing::Waiting, 0); 2];
    let plan = ask_for(&mut policy, 0, 150, &[awake.clone(), awake, asleep]);
    assert_eq!(claim(&plan, 200).share, Claim::NEUTRAL);
    assert_eq!(claim(&plan, 200).allotment / MS, 33);
    let third = vec![(33, Doing::Ready, 11); 2];
    let plan = ask_for(&mut policy, 150, 1, &[third.clone(), third.clone(), third]);
    assert!(claim(&plan, 200).share >= Claim::NEUTRAL);
    assert!(claim(&plan, 0).allotment <= 34 * MS);
}

/// ... and when it wakes for less than its share, it keeps what it uses, and the other is entitled to no more than it was
/// beside a VM that has always used that.
#[test]
fn a_vm_that_slept_for_long_keeps_what_it_uses_once_it_wakes() {
    let halts_after = |used| vec![(used, Doing::Waiting, 0); 2];
    let busy = |used| vec![(used, Doing::Ready, 19); 2];
    let after = |slept| {
        let mut policy = Jupiter::default();
        for number in 0..slept {
            ask_for(&mut policy, number, 1, &[halts_after(0), busy(100)]);
        }
        ask_for(&mut policy, slept, 300, &[halts_after(40), busy(60)]);
        let keeps = policy.bank.keeps(VmId(0));
        (keeps, policy.vms[1].entitled())
    };
    assert_eq!(after(0), (Some(80 * MS), 120 * MS));
    assert_eq!(after(150), after(0));
}

/// It owes much, and leaves more than half of its part to all. What it repays is of the rest.
#[test]
fn who_leaves_time_to_all_repays_from_the_rest() {
    let mut policy = Jupiter::default();
    let halted = |used| vec![(used, Doing::Waiting, 0); 2];
    let busy = |used| vec![(used, Doing::Ready, 16); 2];
    ask_for(&mut policy, 0, 50, &[halted(10), busy(90)]);
    ask_for(&mut policy, 50, 100, &[halted(50), halted(20)]);
    for number in 150..160 {
        ask_for(&mut policy, number, 1, &[busy(80), halted(20)]);
        let given: Nanos = policy.vms.iter().map(Vm::keeps).sum();
        assert!(given <= 2 * PERIOD, "{number}: {given}");
    }
}

/// What each VM but the last `sleepers` is entitled to, and has, after minutes of doing the same.
fn parts_after(vms: &[Vec<Does>], sleepers: usize) -> Vec<(Nanos, Nanos)> {
    let mut policy = Jupiter::default();
    ask_for(&mut policy, 0, 1000, vms);
    let known = policy.vms.iter().take(vms.len() - sleepers);
    known.map(|vm| (vm.entitled(), vm.has())).collect()
}

/// The second VM leaves a little of its share, which the first one has. If a sleeper's part of it counts, it is more.
#[test]
fn beside_a_sleeper_others_lend_what_they_lend_without_it() {
    let vms = [
        vec![(52, Doing::Ready, 17); 2],
        vec![(48, Doing::Waiting, 0); 2],
        vec![(0, Doing::Waiting, 0); 2],
    ];
    let loans = |vms: &[Vec<Does>]| {
        let mut policy = Jupiter::default();
        ask_for(&mut policy, 0, 150, vms);
        let loans = policy.status().vms;
        (loans[0].loan, loans[1].loan)
    };
    assert_eq!(loans(&vms[..2]), (40, -40));
    assert_eq!(loans(&vms), (40, -40));
}

/// The second VM's bucket gets full, too. It is entitled to its part of what the sleeper leaves, whatever it leaves itself.
#[test]
fn who_leaves_time_to_all_is_entitled_to_what_others_leave() {
    let vms = [
        vec![(52, Doing::Ready, 17); 2],
        vec![(48, Doing::Waiting, 0); 2],
        vec![(0, Doing::Waiting, 0); 2],
    ];
    let without = parts_after(&vms[..2], 0);
    assert_eq!(without, [(104 * MS, 104 * MS), (100 * MS, 100 * MS)]);
    assert_eq!(parts_after(&vms, 1), without);
}

/// None of the others wants more when a period ends, so that the sleeper has no VM to lend to. What it leaves is theirs
/// all the same.
#[test]
fn what_a_sleeper_leaves_belongs_to_others_that_do_not_borrow() {
    let late = vec![(40, Doing::Waiting, 0); 2];
    let vms = [late.clone(), late, vec![(0, Doing::Waiting, 0); 2]];
    let entitled = |vms, sleepers| -> Vec<Nanos> {
        parts_after(vms, sleepers)
            .iter()
            .map(|(entitled, _)| *entitled)
            .collect()
    };
    assert_eq!(entitled(&vms, 1), entitled(&vms[..2], 0));
}

/// A VM that has borrowed all that a sleeper's bucket holds is unpredictable from then on. It owes that as before.
#[test]
fn a_bucket_stays_full_while_who_owes_it_is_left_to_balance() {
    let asleep = || vec![(0, Doing::Waiting, 0); 2];
    let busy = || vec![(50, Doing::Ready, 16); 2];
    let mut policy = Jupiter::default();
    ask_for(&mut policy, 0, 200, &[busy(), busy(), asleep()]);
    let keeps = policy.bank.keeps(VmId(2));
    assert!(keeps.is_some());
    for number in 200..220 {
        let used = if number % 2 == 0 { 10 } else { 90 };
        let erratic = || vec![(used, Doing::Ready, 16); 2];
        ask_for(&mut policy, number, 1, &[erratic(), erratic(), asleep()]);
    }
    assert!(!policy.status().vms[0].enforced);
    assert_eq!(policy.bank.keeps(VmId(2)), keeps);
}

/// Two of three VMs that compute are on one pCPU, and no swap could mend that. A sleeper that leaves all that it is
/// entitled to takes no part in it: no vCPU is swapped with it, and its slice makes no sum larger.
#[test]
fn what_a_sleeper_leaves_makes_no_conflicts() {
    for at in [0, 1] {
        let mut policy = Jupiter::default();
        for number in 0..400 {
            let mut seen = snapshot(2, &[1; 4]);
            seen.now = number * PERIOD;
            for (vm, at) in seen.vms.iter_mut().zip([0, 0, 1, at]) {
                let turns = &mut vm.vcpus[0].turns;
                (turns.cpu, turns.doing) = (Some(PcpuId(at)), Doing::Waiting);
            }
            for (vm, used) in seen.vms.iter_mut().zip([50, 50, 100]) {
                let vcpu = &mut vm.vcpus[0];
                (vcpu.run, vcpu.ready) = (used * MS, PERIOD - used * MS);
                (vcpu.turns.doing, vcpu.turns.depleted) = (Doing::Ready, 16);
            }
            seen.vms[3].vcpus[0].wait = PERIOD;
            let plan = ask(&mut policy, &seen);
            let home = plan.tasks.iter().find_map(|told| told.home);
            assert!(number < 300 || home.is_none(), "{number}: {home:?}");
        }
    }
}

/// The loan is for a VM that can use it.
#[test]
fn a_vm_with_all_the_pcpus_that_it_can_use_does_not_borrow() {
    let mut policy = Jupiter::default();
    let busy = vec![(70, Doing::Ready, 16); 4];
    let vms = [one_busy_thread(), vec![SLEEPER; 4], busy];
    ask_for(&mut policy, 0, 10, &vms);
    let loans = policy.status().vms;
    assert!(loans[0].loan <= 0, "{loans:?}");
    assert!(loans[1].loan < 0 && loans[2].loan > 0, "{loans:?}");
}

prop_compose! {
    fn any_does()(used in 0u64..100, doing in 0usize..3, depleted in 0u64..3) -> Does {
        (used, [Doing::Waiting, Doing::Ready, Doing::Running][doing], depleted)
    }
}

/// A vCPU that is done when a period ends, whatever its slice is, or never.
fn steady() -> impl Strategy<Value = Does> {
    prop_oneof![
        (0u64..100).prop_map(|used| (used, Doing::Waiting, 0)),
        Just((100, Doing::Ready, 1)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever others go on doing, in the long run they have what they have without a VM that sleeps for good. (Of
    /// vCPUs that want more depending on their slices, there may be several such states.)
    #[test]
    fn a_sleeper_leaves_others_as_they_are(
        vms in prop::collection::vec(prop::collection::vec(steady(), 1..5), 1..5),
        size in 1usize..5,
    ) {
        let pcpus = vms.iter().map(Vec::len).max().unwrap_or(1);
        let mut with = vms.clone();
        with.push(vec![(0, Doing::Waiting, 0); size.min(pcpus)]);
        prop_assert_eq!(parts_after(&with, 1), parts_after(&vms, 0));
    }
}

/// A VM in a period of a host where VMs come and go: whether it is there, its weight and its vCPUs', what they do, and
/// the first pCPU that they may use, and how many.
type Guest = (bool, Option<u32>, Vec<(u32, Does)>, (u32, u32));

fn any_guest() -> impl Strategy<Value = Guest> {
    let vcpus = prop::collection::vec((1u32..1000, any_does()), 1..5);
    let weight = prop::option::of(1u32..10_000);
    let cpuset = prop_oneof![Just((0, 6)), (0u32..6, 1u32..4)];
    (prop::bool::weighted(0.9), weight, vcpus, cpuset)
}

fn period_of(number: u64, guests: &[Guest]) -> Snapshot {
    let does: Vec<Vec<Does>> = (guests.iter())
        .map(|(_, _, vcpus, _)| vcpus.iter().map(|(_, does)| *does).collect())
        .collect();
    let mut seen = period(number, &does);
    seen.host.topology = snapshot(6, &[]).host.topology;
    for (vm, (_, weight, vcpus, (first, count))) in seen.vms.iter_mut().zip(guests) {
        vm.weight = *weight;
        let allowed: PcpuSet = (*first..(first + count).min(6)).map(PcpuId).collect();
        for (vcpu, (weight, _)) in vm.vcpus.iter_mut().zip(vcpus) {
            (vcpu.weight, vcpu.allowed) = (*weight, allowed);
        }
    }
    let mut there = guests.iter().map(|(there, ..)| *there);
    seen.vms.retain(|_| there.next().unwrap_or(false));
    seen
}

proptest! {
    /// Whatever VMs come, go, weigh, may use and do: no more is given than there is, weights of a VM add up to what
    /// they always do, and what was lent is owed, repaid or written off.
    #[test]
    fn what_holds_where_vms_come_and_go(
        periods in prop::collection::vec(prop::collection::vec(any_guest(), 4), 1..8),
        each in 1u64..30,
    ) {
        let mut policy = Jupiter::default();
        for number in 0..each * periods.len() as u64 {
            let guests = &periods[(number / each) as usize];
            let seen = period_of(number, guests);
            let plan = ask(&mut policy, &seen);
            prop_assert_eq!(policy.vms.len(), seen.vms.len());
            let given: Nanos = policy.vms.iter().map(Vm::keeps).sum();
            prop_assert!(given <= 6 * PERIOD, "{} in {}", given, number);
            for vm in policy.vms.iter() {
                let lost = (vm.vcpus() * u64::from(Claim::NEUTRAL)).checked_sub(vm.total_weight());
                prop_assert!(lost.is_some_and(|by_rounding| by_rounding < vm.vcpus()));
            }
            let (totals, owed) = policy.bank.totals();
            prop_assert_eq!(totals.lent, totals.repaid + totals.written_off + owed);
            for told in &plan.tasks {
                prop_assert!(told.claim.is_some_and(|claim| (1..=PERIOD).contains(&claim.allotment)));
            }
        }
    }
}

proptest! {
    /// Whatever VMs do: the weights of each add up to what they always did, latencies stay within
    /// their bounds, time is handed from one to another and not made, and a VM that Jupiter is off for gets the plan
    /// that balance would give it.
    #[test]
    fn what_holds_whatever_vms_do(
        sizes in prop::collection::vec(1usize..5, 1..5),
        periods in prop::collection::vec(prop::collection::vec(any_does(), 16), 2..40),
    ) {
        let params = JupiterParams { wrong: 2, right: 2, ..JupiterParams::default() };
        let mut policy = Jupiter::new(params);
        for (number, does) in periods.iter().enumerate() {
            let mut does = does.iter().copied();
            let vms: Vec<Vec<Does>> = sizes.iter().map(|n| does.by_ref().take(*n).collect()).collect();
            let seen = period(number as u64, &vms);
            let plan = ask(&mut policy, &seen);
            let pcpus = u64::from(seen.host.topology.pcpus());
            let given: Nanos = policy.vms.iter().map(Vm::keeps).sum();
            prop_assert!(given <= pcpus * PERIOD);
            for vm in policy.vms.iter() {
                prop_assert_eq!(vm.total_weight(), vm.vcpus() * u64::from(Claim::NEUTRAL));
            }
            let within = params.latency_least..=params.latency_most;
            for told in &plan.tasks {
                let claim = told.claim.unwrap();
                prop_assert!(within.contains(&claim.latency) && claim.allotment <= PERIOD);
            }
            let balance = ask(&mut Balance, &seen);
            for ((vm, balance), status) in plan.vms.iter().zip(&balance.vms).zip(policy.status().vms) {
                if !status.enforced {
                    prop_assert_eq!(vm, balance);
                    let of = |told: &TaskPlan| told.task.0 / 100 == vm.vm.0;
                    prop_assert!(!plan.tasks.iter().any(of));
                }
            }
        }
    }
}
