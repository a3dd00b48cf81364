// SPDX-License-Identifier: GPL-2.0-only
//! cgroups around those of VMs, and idle ones, under the models of CFS and EEVDF.

use super::throttle_tests::{KERNELS, PLAIN, assert_near, grouped, hogs, kernel, ran, run};
use crate::load::Cgroup;
use crate::testing::{Does, Job};
use corun_model::Nanos;
use corun_model::time::{MS, SEC};

fn weighs(weight: u32, within: Option<usize>) -> Cgroup {
    Cgroup {
        weight,
        within,
        ..PLAIN
    }
}

const IDLE: Cgroup = Cgroup {
    idle: true,
    ..PLAIN
};

/// Two VMs in a slice of weight 300 next to a VM of weight 100: they get 3/4 of the pCPU, which they share 1 : 2, and
/// that VM the rest, however many vCPUs each has.
#[test]
fn weights_are_products_along_the_path() {
    for name in KERNELS {
        let groups = vec![
            weighs(300, None),
            weighs(100, Some(0)),
            weighs(200, Some(0)),
            weighs(100, None),
        ];
        let jobs = grouped(hogs(3, 2), groups, &[1, 2, 3]);
        let topology = ("1n1l1c1t", 1000);
        let outcome = run(kernel(name, topology.0, 1000), topology, jobs, 40 * SEC);
        assert_near(&ran(&outcome), &[10 * SEC, 20 * SEC, 10 * SEC], 3, name);
    }
}

/// Three levels, each of two equal members: halves of halves.
#[test]
fn each_level_divides_what_the_one_around_it_has() {
    for name in KERNELS {
        let groups = vec![
            weighs(100, None),
            weighs(100, Some(0)),
            weighs(100, None),
            weighs(100, Some(0)),
            weighs(100, Some(1)),
            weighs(100, Some(1)),
        ];
        let jobs = grouped(hogs(4, 1), groups, &[2, 3, 4, 5]);
        let topology = ("1n1l1c1t", 1000);
        let outcome = run(kernel(name, topology.0, 1000), topology, jobs, 40 * SEC);
        let wanted = [20 * SEC, 10 * SEC, 5 * SEC, 5 * SEC];
        assert_near(&ran(&outcome), &wanted, 4, name);
    }
}

/// A VM that does not want to run leaves its part to those in its slice, not to others.
#[test]
fn what_a_sibling_leaves_stays_in_the_slice() {
    for name in KERNELS {
        let groups = vec![
            weighs(100, None),
            weighs(100, Some(0)),
            weighs(900, Some(0)),
            weighs(100, None),
        ];
        let mut jobs = hogs(3, 2);
        for job in &mut jobs[2..4] {
            job.does = Does::Cycles {
                work: MS / 10,
                sleep: 100 * SEC,
                spread: 0,
            };
        }
        let topology = ("1n1l2c1t", 1000);
        let jobs = grouped(jobs, groups, &[1, 2, 3]);
        let outcome = run(kernel(name, topology.0, 1000), topology, jobs, 20 * SEC);
        let ran = ran(&outcome);
        assert_near(&[ran[0], ran[2]], &[20 * SEC; 2], 3, name);
    }
}

/// An idle VM has next to nothing while there is a hog, and what others leave; they hardly wait for
/// it.
#[test]
fn an_idle_group_has_what_others_leave() {
    let topology = ("1n1l2c1t", 1000);
    for name in KERNELS {
        let jobs = grouped(hogs(2, 2), vec![IDLE, PLAIN], &[0, 1]);
        let outcome = run(kernel(name, topology.0, 1000), topology, jobs, 10 * SEC);
        // 3 to 1024, in turns of a tick at least.
        assert!(
            ran(&outcome)[0] < 20 * SEC / 80,
            "{name}: {:?}",
            ran(&outcome)
        );
        let mut jobs = hogs(2, 2);
        for job in &mut jobs[2..] {
            job.does = Does::Cycles {
                work: 5 * MS,
                sleep: 15 * MS,
                spread: 50,
            };
        }
        let jobs = grouped(jobs, vec![IDLE, PLAIN], &[0, 1]);
        let outcome = run(kernel(name, topology.0, 1000), topology, jobs, 10 * SEC);
        let all = ran(&outcome);
        assert!(all[0] > 14 * SEC, "{name}: {all:?}");
        let waited: Nanos = outcome.vms[1].vcpus.iter().map(|vcpu| vcpu.ready).sum();
        assert!(waited < SEC / 5, "{name}: {waited}");
    }
}

/// A sleeper takes the pCPU that runs an idle VM rather than sharing one with another hog (`sched_idle_cpu()`).
#[test]
fn a_pcpu_of_idle_groups_is_as_good_as_idle() {
    for name in ["4.x", "5.x", "6.6", "6.12", "7.x"] {
        let nap = Does::Cycles {
            work: 2 * MS,
            sleep: 4 * MS,
            spread: 50,
        };
        let jobs = vec![
            Job::hog().vcpu(0, 0).on("1"),
            Job::hog().vcpu(1, 0).on("0"),
            Job::new(nap).vcpu(2, 0),
        ];
        let jobs = grouped(jobs, vec![IDLE, PLAIN, PLAIN], &[0, 1, 2]);
        let topology = ("1n1l2c1t", 1000);
        let outcome = run(kernel(name, topology.0, 1000), topology, jobs, 10 * SEC);
        let hog = ran(&outcome)[1];
        assert!(hog > 19 * SEC / 2, "{name}: {hog}");
    }
}

/// On one pCPU, a VM that computes for 300 us and sleeps for 500, a VM that computes, and `others`; both VMs are in
/// groups of their own, which are in the root or in a group of this weight. Returns for how long each ran and waited.
fn beside_a_hog(name: &str, around: Option<u32>, others: &[Job], length: Nanos) -> Vec<Nanos> {
    let cycles = Does::Cycles {
        work: 300_000,
        sleep: 500_000,
        spread: 50,
    };
    let jobs = vec![Job::new(cycles).vcpu(0, 0), Job::hog().vcpu(1, 0)];
    let jobs = jobs.into_iter().chain(others.iter().cloned()).collect();
    let within = around.map(|_| 0);
    let groups = vec![
        weighs(around.unwrap_or(100), None),
        weighs(100, within),
        weighs(100, within),
    ];
    let topology = ("1n1l1c1t", 1000);
    let jobs = grouped(jobs, groups, &[1, 2]);
    let outcome = run(kernel(name, topology.0, 1000), topology, jobs, length);
    let vcpus = outcome.vms.iter().map(|vm| &vm.vcpus[0]);
    vcpus.flat_map(|vcpu| [vcpu.run, vcpu.ready]).collect()
}

/// A group around all that compete decides nothing among them.
#[test]
fn a_group_around_everybody_changes_nothing() {
    for name in KERNELS {
        let root = beside_a_hog(name, None, &[], 5 * SEC);
        for weight in [10, 100, 1000] {
            let wrapped = beside_a_hog(name, Some(weight), &[], 5 * SEC);
            assert_eq!(wrapped, root, "{name}, {weight}");
        }
    }
}

/// A host task that runs now and then changes hardly more than it does without the group.
#[test]
fn a_group_around_all_but_a_short_task_changes_little() {
    let task = Job::new(Does::Cycles {
        work: 10_000,
        sleep: 20 * MS,
        spread: 50,
    });
    for name in KERNELS {
        let root = beside_a_hog(name, None, std::slice::from_ref(&task), 20 * SEC);
        for weight in [100, 1000] {
            let wrapped = beside_a_hog(name, Some(weight), std::slice::from_ref(&task), 20 * SEC);
            let more = |n: usize| wrapped[n] as f64 / root[n] as f64;
            assert!((more(0) - 1.0).abs() < 0.02, "{name}: {wrapped:?} {root:?}");
            let waits = wrapped[1].abs_diff(root[1]);
            assert!(waits < SEC / 10, "{name}, {weight}: {wrapped:?} {root:?}");
        }
    }
}

/// A host task that stays has what Linux gives it: as much as the group around the VMs, if it weighs as much; the VMs
/// share the group's part 3 : 1 here.
#[test]
fn an_outsider_has_its_part_of_its_pcpu() {
    for name in KERNELS {
        let groups = vec![
            weighs(100, None),
            weighs(300, Some(0)),
            weighs(100, Some(0)),
        ];
        let jobs = vec![
            Job::hog().vcpu(0, 0).on("0"),
            Job::hog().vcpu(1, 0).on("0"),
            Job::hog().on("0"),
        ];
        let topology = ("1n1l1c1t", 1000);
        let jobs = grouped(jobs, groups, &[1, 2]);
        let outcome = run(kernel(name, topology.0, 1000), topology, jobs, 40 * SEC);
        assert_near(&ran(&outcome), &[15 * SEC, 5 * SEC], 3, name);
    }
}
