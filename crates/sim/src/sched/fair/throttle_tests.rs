// SPDX-License-Identifier: GPL-2.0-only
//! What quotas lead to under the models of CFS and EEVDF: by hand, at random and compared with corun's own dispatcher.

use crate::host::HostParams;
use crate::load::{Cgroup, Cgroups, Quota};
use crate::sched::HostScheduler;
use crate::sched::cfs::{Cfs, CfsParams, Gangs, Siblings, SteeredCfs};
use crate::sched::dispatcher::Dispatcher;
use crate::sched::eevdf::{Eevdf, EevdfParams};
use crate::sched::forward::forward;
use crate::testing::shared::scenes;
use crate::testing::{Audited, Does, Job, Jobs, Runs, Witness, host};
use crate::{Outcome, Simulation};
use corun_model::time::{MS, SEC};
use corun_model::{Boost, DispatcherParams, Nanos};
use proptest::prelude::*;

pub(super) type Boxed = Box<dyn HostScheduler>;

/// One of several schedulers.
struct Any(Boxed);

impl HostScheduler for Any {
    forward! {
        0: know_vms know_cgroups add wake block pick tick timer directs_yields yield_pcpu flush_ipi co_stopped
        throttled turns apply
    }
}

pub(super) const PLAIN: Cgroup = Cgroup {
    weight: 100,
    idle: false,
    quota: None,
    within: None,
};

/// A cgroup that has `time` of each 100 ms.
pub(super) fn limited(time: Nanos, burst: Nanos, within: Option<usize>) -> Cgroup {
    let period = 100 * MS;
    let quota = Some(Quota {
        time,
        period,
        burst,
    });
    Cgroup {
        quota,
        within,
        ..PLAIN
    }
}

/// CFS of each generation, EEVDF of each preset.
pub(super) const KERNELS: [&str; 6] = ["2.6.33", "4.x", "5.x", "6.6", "6.12", "7.x"];

pub(super) fn kernel(name: &str, topology: &str, hz: u32) -> Boxed {
    kernel_on(name, &host(topology, hz))
}

fn kernel_on(name: &str, host: &HostParams) -> Boxed {
    let pcpus = host.topology.pcpus();
    match CfsParams::preset(name, pcpus) {
        Some(cfs) => Box::new(Cfs::new(cfs, host)),
        None => Box::new(Eevdf::new(EevdfParams::preset(name, pcpus).unwrap(), host)),
    }
}

/// VM n is in group `of_vms[n]`.
pub(super) fn grouped(jobs: Vec<Job>, all: Vec<Cgroup>, of_vms: &[usize]) -> Jobs {
    let of_vms = of_vms.iter().copied().map(Some).collect();
    Jobs::new(jobs, 1).in_cgroups(Cgroups {
        all,
        of_vms,
        ..Cgroups::default()
    })
}

pub(super) fn run(sched: Boxed, (topology, hz): (&str, u32), jobs: Jobs, length: Nanos) -> Outcome {
    let params = host(topology, hz);
    Simulation::new(params, sched, Box::new(jobs), None).run(SEC, SEC + length, |_| {})
}

/// The same under this kernel's scheduler.
fn run_under(name: &str, on: (&str, u32), jobs: Jobs, length: Nanos) -> Outcome {
    run(kernel(name, on.0, on.1), on, jobs, length)
}

pub(super) fn hogs(vms: u32, vcpus: u32) -> Vec<Job> {
    let vcpu = |n| Job::hog().vcpu(n / vcpus, n % vcpus);
    (0..vms * vcpus).map(vcpu).collect()
}

/// pCPU time of each VM.
pub(super) fn ran(outcome: &Outcome) -> Vec<Nanos> {
    let run = |vm: &crate::VmOutcome| vm.vcpus.iter().map(|vcpu| vcpu.run).sum();
    outcome.vms.iter().map(run).collect()
}

pub(super) fn assert_near(seen: &[Nanos], wanted: &[Nanos], percent: u64, what: &str) {
    let near = |(seen, wanted): (&Nanos, &Nanos)| seen.abs_diff(*wanted) * 100 <= wanted * percent;
    assert!(
        seen.iter().zip(wanted).all(near),
        "{what}: {seen:?}, not {wanted:?}"
    );
}

/// 20 ms of each 100, for 10 s: 2 s, and the other 8 s it is throttled.
#[test]
fn a_hog_runs_for_its_quota() {
    for name in KERNELS {
        let jobs = grouped(hogs(1, 1), vec![limited(20 * MS, 0, None)], &[0]);
        let outcome = run(
            kernel(name, "1n1l1c1t", 1000),
            ("1n1l1c1t", 1000),
            jobs,
            10 * SEC,
        );
        assert_near(&ran(&outcome), &[2 * SEC], 1, name);
        assert_near(&[outcome.vms[0].throttled], &[8 * SEC], 1, name);
        let ready: Nanos = outcome.vms[0].vcpus.iter().map(|vcpu| vcpu.ready).sum();
        assert!(ready.abs_diff(outcome.vms[0].throttled) < MS, "{name}");
    }
}

/// In detail: the VM begins at once, is found without runtime at the tick at 20 ms, and goes on when the period ends.
#[test]
fn it_is_throttled_at_a_tick_and_back_with_the_period() {
    let jobs = grouped(hogs(1, 1), vec![limited(20 * MS, 0, None)], &[0]);
    let runs = Runs::default();
    let params = host("1n1l1c1t", 1000);
    let sched = kernel("4.x", "1n1l1c1t", 1000);
    let witness = Box::new(Witness(runs.clone()));
    let outcome =
        Simulation::new(params, sched, Box::new(jobs), Some(witness)).run(0, 250 * MS, |_| {});
    let began: Vec<Nanos> = runs.borrow().iter().map(|(at, _, _)| at / MS).collect();
    assert_eq!(began, [0, 100, 200]);
    let spent = outcome.vms[0].vcpus[0].run;
    assert!(spent.abs_diff(60 * MS) < 2 * MS, "{spent}");
}

/// Four vCPUs on four pCPUs have the time of one pCPU: a quarter each.
#[test]
fn vcpus_share_a_quota() {
    for name in KERNELS {
        let jobs = grouped(hogs(1, 4), vec![limited(100 * MS, 0, None)], &[0]);
        let outcome = run(
            kernel(name, "1n1l4c1t", 250),
            ("1n1l4c1t", 250),
            jobs,
            20 * SEC,
        );
        assert_near(&ran(&outcome), &[20 * SEC], 2, name);
        let each: Vec<Nanos> = outcome.vms[0].vcpus.iter().map(|vcpu| vcpu.run).collect();
        assert_near(&each, &[5 * SEC; 4], 15, name);
        assert!(outcome.vms[0].throttled > 40 * SEC, "{name}");
    }
}

/// A VM that has no quota, or one above its part, takes what others leave: nothing is lost.
#[test]
fn others_have_what_a_quota_leaves() {
    for name in KERNELS {
        let mut groups = vec![limited(20 * MS, 0, None); 2];
        groups.extend([PLAIN, PLAIN, limited(90 * MS, 0, None)]);
        let jobs = grouped(hogs(5, 2), groups, &[0, 1, 2, 3, 4]);
        let topology = ("1n1l2c1t", 250);
        let outcome = run_under(name, topology, jobs, 20 * SEC);
        let ran = ran(&outcome);
        assert_near(&ran[..2], &[4 * SEC; 2], 3, name);
        // Without averages a pCPU's load jumps each time a task is throttled, and others are moved because of that.
        let off = if name == "2.6.33" { 25 } else { 2 };
        assert_near(&ran[2..], &[32 * SEC / 3; 3], off, name);
        let idle = outcome.idle_share;
        assert!(idle < 0.001, "{name}: {idle}");
    }
}

/// Two VMs share 40 ms; one of them may have 10 ms.
#[test]
fn two_levels() {
    for name in KERNELS {
        let groups = vec![
            limited(40 * MS, 0, None),
            limited(10 * MS, 0, Some(0)),
            Cgroup {
                within: Some(0),
                ..PLAIN
            },
        ];
        let jobs = grouped(hogs(2, 1), groups, &[1, 2]);
        let topology = ("1n1l2c1t", 1000);
        let outcome = run_under(name, topology, jobs, 10 * SEC);
        assert_near(&ran(&outcome), &[SEC, 3 * SEC], 3, name);
    }
}

/// A VM that is throttled leaves its weight to those in its slice. On four pCPUs a slice of weight 200 has `small`, of
/// two vCPUs, and `large`, of four; outside is a VM of weight 100, of four. `small` may have 5 ms of 100; of the rest
/// the slice has two thirds, so that `large` has twice what the VM outside has.
#[test]
fn the_weight_of_a_throttled_vm_is_its_slices() {
    for name in KERNELS {
        let slice = Cgroup {
            weight: 200,
            ..PLAIN
        };
        let groups = vec![
            slice,
            limited(5 * MS, 0, Some(0)),
            limited(400 * MS, 0, Some(0)),
            PLAIN,
        ];
        let vcpus = [(0, 2), (1, 4), (2, 4)];
        let jobs = vcpus
            .iter()
            .flat_map(|&(vm, vcpus)| (0..vcpus).map(move |n| Job::hog().vcpu(vm, n)));
        let jobs = grouped(jobs.collect(), groups, &[1, 2, 3]);
        let topology = ("1n1l4c1t", 1000);
        let outcome = run_under(name, topology, jobs, 20 * SEC);
        let ran = ran(&outcome);
        assert_near(&ran[..1], &[SEC], 5, name);
        assert_near(&ran[1..], &[79 * SEC * 2 / 3, 79 * SEC / 3], 6, name);
    }
}

/// 40 ms of work each second with 20 ms in a period: half of it waits for the next period, unless the VM may save up.
#[test]
fn a_cgroup_that_saved_up_is_not_throttled() {
    for name in KERNELS {
        let throttled = |burst| {
            let work = Does::Cycles {
                work: 40 * MS,
                sleep: 900 * MS,
                spread: 0,
            };
            let jobs = vec![Job::new(work).vcpu(0, 0)];
            let jobs = grouped(jobs, vec![limited(20 * MS, burst, None)], &[0]);
            let topology = ("1n1l1c1t", 1000);
            run_under(name, topology, jobs, 20 * SEC).vms[0].throttled
        };
        let (without, with) = (throttled(0), throttled(60 * MS));
        assert!(without > SEC, "{name}: {without}");
        assert!(with < without / 20, "{name}: {with}");
    }
}

/// A helper of the VM, such as an I/O thread, has its part of the quota.
#[test]
fn helpers_are_in_the_cgroup() {
    let mut jobs = hogs(1, 1);
    jobs.push(Job::hog().helper_of(0));
    let jobs = grouped(jobs, vec![limited(20 * MS, 0, None)], &[0]);
    let topology = ("1n1l2c1t", 1000);
    let outcome = run(kernel("5.x", topology.0, 1000), topology, jobs, 10 * SEC);
    let both: Nanos = outcome.tasks.iter().map(|(_, _, totals)| totals.run).sum();
    assert_near(&[both], &[2 * SEC], 2, "both");
}

/// Under corun's own dispatcher, CFS and EEVDF a quota leads to the same result.
#[test]
fn the_same_as_under_corun() {
    let topology = ("1n1l4c1t", 1000);
    let load = || {
        let mut jobs = hogs(2, 4);
        let nap = Does::Cycles {
            work: 3 * MS,
            sleep: 9 * MS,
            spread: 50,
        };
        jobs.extend((0..4).map(|n| Job::new(nap.clone()).vcpu(2, n)));
        let groups = vec![limited(50 * MS, 0, None), PLAIN, limited(60 * MS, 0, None)];
        grouped(jobs, groups, &[0, 1, 2])
    };
    let params = host(topology.0, topology.1);
    let steered = SteeredCfs::new(CfsParams::preset("4.x", 4).unwrap(), &params);
    let others: [(&str, Boxed); 4] = [
        ("4.x", kernel("4.x", topology.0, 1000)),
        ("5.x", kernel("5.x", topology.0, 1000)),
        ("6.12", kernel("6.12", topology.0, 1000)),
        ("steered", Box::new(steered)),
    ];
    let dispatcher = Dispatcher::new(DispatcherParams::default(), &params);
    let ours = ran(&run(Box::new(dispatcher), topology, load(), 20 * SEC));
    for (name, sched) in others {
        assert_near(
            &ran(&run(sched, topology, load(), 20 * SEC)),
            &ours,
            4,
            name,
        );
    }
}

/// A quota that limits each vCPU by itself.
fn each(time: Nanos) -> Option<Quota> {
    let (period, burst) = (100 * MS, 0);
    Some(Quota {
        time,
        period,
        burst,
    })
}

/// Each of three hogs has its own 20 ms of each 100, whatever else is in the VM; a quota around them holds, too.
#[test]
fn each_vcpu_has_its_own_quota() {
    for name in KERNELS {
        let ran = |around: Option<Quota>| {
            let vm = Cgroup {
                quota: around,
                ..PLAIN
            };
            let jobs = Jobs::new(hogs(1, 3), 1).in_cgroups(Cgroups {
                all: vec![vm],
                of_vms: vec![Some(0)],
                of_vcpus: vec![each(20 * MS)],
            });
            let outcome = run_under(name, ("1n1l2c1t", 1000), jobs, 10 * SEC);
            let ran = outcome.vms[0].vcpus.iter().map(|vcpu| vcpu.run);
            (ran.collect::<Vec<_>>(), outcome.vms[0].throttled)
        };
        let (alone, throttled) = ran(None);
        assert_near(&alone, &[2 * SEC; 3], 3, name);
        // The rest of the time, except for the time that three wait for two pCPUs.
        assert_near(&[throttled], &[24 * SEC], 10, name);
        let (within, _) = ran(each(30 * MS));
        assert_near(&[within.iter().sum()], &[3 * SEC], 3, name);
    }
}

/// A vCPU that has used its quota up counts in its VM as little as one that sleeps. Alone on a pCPU it has 40 of each
/// 100 ms. Its sibling shares the other pCPU with a VM of the same weight: without its own limit of 40 ms it would have
/// a third of that pCPU while both want to run, and half of it otherwise.
#[test]
fn a_vcpu_without_quota_left_weighs_nothing_in_its_vm() {
    for name in KERNELS {
        let vcpu = |vm, number, allowed| Job::hog().vcpu(vm, number).on(allowed);
        let jobs = [vcpu(0, 0, "0"), vcpu(0, 1, "1"), vcpu(1, 0, "1")];
        let share = |of_vcpus: Vec<Option<Quota>>| {
            let jobs = Jobs::new(jobs.to_vec(), 1).in_cgroups(Cgroups {
                all: vec![PLAIN, PLAIN],
                of_vms: vec![Some(0), Some(1)],
                of_vcpus,
            });
            let outcome = run_under(name, ("1n1l2c1t", 1000), jobs, 20 * SEC);
            outcome.vms[0].vcpus[1].run as f64 / 20e9
        };
        let (free, limited) = (share(Vec::new()), share(vec![each(40 * MS)]));
        assert!((free - 1.0 / 3.0).abs() < 0.02, "{name}: {free}");
        assert!((limited - 0.4).abs() < 0.02, "{name}: {limited}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Whatever the load: in no part of a run does a cgroup have more than its quota, what it saved up, and on each
    /// pCPU what it kept there plus a tick. And a task that waits while a pCPU idles waits for a quota.
    #[test]
    fn quotas_hold(
        name in prop::sample::select(KERNELS.to_vec()),
        times in prop::collection::vec(5u64..150, 3),
        outer in 20u64..300,
        burst in 0u64..40,
        vcpus in 1u32..4,
        topology in prop::sample::select(vec!["1n1l1c1t", "1n1l2c1t", "1n2l2c1t"]),
        hz in prop::sample::select(vec![250, 1000]),
        sleep in 0u64..30,
        periods in 1u64..20,
    ) {
        let mut groups = vec![limited(outer * MS, 0, None)];
        groups.extend(times.iter().map(|&time| limited(time * MS, burst.min(time) * MS, Some(0))));
        let mut jobs = hogs(3, vcpus);
        for job in jobs.iter_mut().skip(1).filter(|_| sleep > 0) {
            job.does = Does::Cycles { work: 4 * MS, sleep: sleep * MS, spread: 50 };
        }
        let jobs = grouped(jobs, groups, &[1, 2, 3]);
        let outcome = run(kernel(name, topology, hz), (topology, hz), jobs, periods * 100 * MS);
        let pcpus = u64::from(host(topology, hz).topology.pcpus());
        let slack = pcpus * (5 * MS + SEC / u64::from(hz));
        let ran = ran(&outcome);
        for (ran, &time) in ran.iter().zip(&times) {
            let most = (periods + 1) * time * MS + burst.min(time) * MS + slack;
            prop_assert!(*ran <= most, "{} of {}", ran, most);
        }
        let (all, most) = (ran.iter().sum::<Nanos>(), (periods + 1) * outer * MS + slack);
        prop_assert!(all <= most, "{} of {}", all, most);
    }

    /// Whatever else influences which task runs where: none is lost or run twice, affinity holds,
    /// the books are right at every decision.
    #[test]
    fn random_loads(scene in scenes(), what in 0usize..13, time in 1u64..60, outer in 20u64..200) {
        let (params, jobs) = scene.parts();
        let mut groups = vec![limited(outer * MS, 0, None)];
        let kinds = [Some(0), None, Some(0)].into_iter().cycle();
        groups.extend(kinds.take(scene.vms()).enumerate().map(|(n, within)| Cgroup {
            idle: n == 1 && time % 2 == 0,
            ..limited(time * MS, time * MS / 2, within)
        }));
        let of_vms = (1..=scene.vms()).map(Some).collect();
        let own = |n: usize| each(time * MS).filter(|_| (n + time as usize).is_multiple_of(3));
        let of_vcpus = (0..scene.vms()).map(own).collect();
        let jobs = jobs.in_cgroups(Cgroups { all: groups, of_vms, of_vcpus });
        let pcpus = params.topology.pcpus();
        let sched: Boxed = match KERNELS.get(what) {
            Some(name) => kernel_on(name, &params),
            None => {
                let (siblings, gangs) = [
                    (Siblings::Apart, Gangs::None),
                    (Siblings::Bound, Gangs::None),
                    (Siblings::Apart, Gangs::Dynamic),
                    (Siblings::Light(100), Gangs::Demand(Boost::default())),
                    (Siblings::Free, Gangs::None),
                    (Siblings::Bound, Gangs::Dynamic),
                    (Siblings::Free, Gangs::Dynamic),
                ][what - KERNELS.len()];
                let cfs = CfsParams::preset("5.x", pcpus).unwrap();
                let cfs = CfsParams { siblings, gangs, ..cfs };
                match what {
                    10 => Box::new(SteeredCfs::new(cfs, &params)),
                    _ => Box::new(Cfs::new(cfs, &params)),
                }
            }
        };
        let audited = Audited::new(Any(sched), Nanos::MAX);
        Simulation::new(params, Box::new(audited), Box::new(jobs), None).run(0, 2 * SEC, |_| {});
    }

    /// With quotas that no cgroup reaches, every task has what it would have without.
    #[test]
    fn quotas_that_are_not_reached_change_nothing(
        name in prop::sample::select(KERNELS.to_vec()),
        vcpus in 1u32..4,
        sleep in 0u64..30,
    ) {
        let of = |group: Cgroup| {
            let mut jobs = hogs(2, vcpus);
            if sleep > 0 {
                jobs[0].does = Does::Cycles { work: 4 * MS, sleep: sleep * MS, spread: 50 };
            }
            let topology = ("1n1l2c1t", 250);
            ran(&run_under(name, topology, grouped(jobs, vec![group; 2], &[0, 1]), 2 * SEC))
        };
        prop_assert_eq!(of(PLAIN), of(limited(SEC, 0, None)));
    }
}
