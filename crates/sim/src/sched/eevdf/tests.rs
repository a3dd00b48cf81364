// SPDX-License-Identifier: GPL-2.0-only
//! EEVDF by hand and at random.

use super::{Eevdf, EevdfParams};
use crate::testing::{Audited, Does, Job, Jobs, host, run, run_shares};
use corun_model::TaskId;
use corun_model::time::{MS, SEC, US};
use proptest::prelude::*;

fn eevdf(name: &str, params: &crate::host::HostParams) -> Eevdf {
    let preset = EevdfParams::preset(name, params.topology.pcpus()).unwrap();
    Eevdf::new(preset, params)
}

#[test]
fn shares_follow_weights() {
    for name in EevdfParams::PRESETS {
        let params = host("1n1l1c1t", 1000);
        let jobs = [100, 200, 1000]
            .map(|weight| Job::hog().weight(weight))
            .to_vec();
        let (outcome, _) = run(
            &params,
            eevdf(name, &params),
            Jobs::new(jobs, 1),
            SEC,
            61 * SEC,
        );
        for (share, weight) in run_shares(&outcome).into_iter().zip([1.0, 2.0, 10.0]) {
            let fair = weight / 13.0;
            assert!(
                (share - fair).abs() < 0.01 * fair.max(0.1),
                "{name}: {share} for {fair}"
            );
        }
    }
}

fn starts(params: EevdfParams, slices: &[u64], hz: u32, end: u64) -> Vec<(u64, u32)> {
    let host = host("1n1l1c1t", hz);
    let asked = slices
        .iter()
        .enumerate()
        .map(|(n, &slice)| (TaskId::from(n), slice))
        .collect();
    let sched = Eevdf::with_slices(params, &host, asked);
    let hogs = slices.iter().map(|_| Job::hog()).collect();
    let (_, runs) = run(&host, sched, Jobs::new(hogs, 1), 0, end);
    runs.iter()
        .map(|&(at, _, task)| (at / US, task.0))
        .collect()
}

fn plain() -> EevdfParams {
    let preset = EevdfParams::preset("7.x", 1).unwrap();
    EevdfParams {
        place_deadline_initial: false,
        protect_shortest: false,
        ..preset
    }
}

/// Three hogs with slices of 1, 2 and 4 ms and a timer that ends slices. All start at vruntime 0.
///
/// | from | runs | why: (vruntime; deadline) of a, b, c, and the average                    |
/// |------|------|------------------------------------------------------------------------|
/// |    0 | a    | (0; 1) (0; 2) (0; 4): nearest deadline                                   |
/// |    1 | b    | (1; 2) (0; 2) (0; 4), average 1/3: a is not eligible                     |
/// |    3 | a?   | (1; 2) (2; 4) (0; 4), average 1: a is eligible again and due first       |
/// |    4 | c    | (2; 3) (2; 4) (0; 4), average 4/3: only c is eligible                    |
/// |    8 | a    | (2; 3) (2; 4) (4; 8), average 8/3: a and b are eligible                  |
/// |    9 | b    | (3; 4) (2; 4) (4; 8), average 3: both are due at 4; b is queued longer   |
#[test]
fn shorter_slices_go_first_but_get_no_more() {
    let seen = starts(plain(), &[MS, 2 * MS, 4 * MS], 1000, 10 * MS);
    assert_eq!(
        seen,
        [
            (0, 0),
            (1000, 1),
            (3000, 0),
            (4000, 2),
            (8000, 0),
            (9000, 1)
        ]
    );
}

/// Ticks each 4 ms and no slice timer (6.6): slices of 0.75 ms last to the tick.
#[test]
fn without_a_timer_slices_last_to_the_tick() {
    let preset = EevdfParams::preset("6.6", 1).unwrap();
    let seen = starts(preset, &[750 * US; 3], 250, 17 * MS);
    assert_eq!(seen, [(0, 0), (4000, 1), (8000, 2), (12000, 0), (16000, 1)]);
}

/// The base slice of 7.x on two pCPUs is 1.4 ms, and runs of competing hogs last that long.
#[test]
fn with_a_timer_slices_last_as_long_as_they_should() {
    let params = host("1n1l2c1t", 250);
    let hogs = (0..4).map(|_| Job::hog()).collect();
    let (_, runs) = run(
        &params,
        eevdf("7.x", &params),
        Jobs::new(hogs, 1),
        0,
        2 * SEC,
    );
    let first: Vec<_> = runs
        .iter()
        .filter(|r| r.1.0 == 0 && r.0 > SEC)
        .map(|r| r.0)
        .collect();
    assert!(first.len() > 100);
    assert!(
        first.windows(2).all(|w| w[1] - w[0] == 1400 * US),
        "{first:?}"
    );
}

/// How long hogs run at a time, in us, when their slices of 1.4 ms end up to 0.1 ms late.
fn runs_of_hogs(slice_at_switch: bool) -> Vec<u64> {
    let mut params = host("1n1l1c1t", 250);
    params.costs.timer = 100 * US;
    let preset = EevdfParams {
        base_slice: 1400 * US,
        slice_at_switch,
        ..EevdfParams::preset("7.x", 1).unwrap()
    };
    let hogs = Jobs::new(vec![Job::hog(), Job::hog()], 1);
    let (_, runs) = run(&params, Eevdf::new(preset, &params), hogs, 0, 2 * SEC);
    runs.windows(2).map(|w| (w[1].0 - w[0].0) / US).collect()
}

/// Who is behind at the end of its slice, because the other's ended later, is picked again. The
/// timer is not set for it then, so it runs to the next tick, beyond a second slice.
#[test]
fn a_task_picked_again_runs_to_the_tick() {
    let runs = runs_of_hogs(true);
    let once = |run: &&u64| (1400..=1500).contains(*run);
    assert!(
        runs.iter().filter(once).count() > runs.len() / 4,
        "{runs:?}"
    );
    assert!(
        runs.iter().filter(|run| **run > 2 * 1500).count() > runs.len() / 10,
        "{runs:?}"
    );
    assert!(runs.iter().all(|run| *run < 4000 + 1500), "{runs:?}");
    let renewed = runs_of_hogs(false);
    assert!(renewed.iter().all(|run| *run <= 2 * 1500), "{renewed:?}");
}

/// Two tasks hand work to each other, each on its own pCPU beside a hog. A wake-up that preempts is
/// from the other pCPU: with lazy preemption it waits for the tick (a slice timer would end it, too).
#[test]
fn lazy_preemption_waits_for_the_kernel_to_be_entered() {
    let delay = |lazy_preemption| {
        let params = host("1n1l2c1t", 250);
        let preset = EevdfParams {
            lazy_preemption,
            hrtick: false,
            ..EevdfParams::preset("7.x", 2).unwrap()
        };
        let does = |to, first| Does::Hands {
            work: 300 * US,
            to,
            first,
        };
        let jobs = vec![
            Job::new(does(1, true)).on("0"),
            Job::new(does(0, false)).on("1"),
            Job::hog().on("0"),
            Job::hog().on("1"),
        ];
        let (outcome, _) = run(
            &params,
            Eevdf::new(preset, &params),
            Jobs::new(jobs, 1),
            SEC,
            5 * SEC,
        );
        let totals = outcome.tasks[1].2;
        totals.ready / totals.wakeups
    };
    let (at_once, lazy) = (delay(false), delay(true));
    assert!(lazy > at_once + 100 * US, "{lazy} against {at_once}");
}

fn latency(params: EevdfParams, slice: u64) -> u64 {
    let host = host("1n1l1c1t", 250);
    let light = Does::Cycles {
        work: 50 * US,
        sleep: 10 * MS + 300 * US,
        spread: 30,
    };
    let jobs = Jobs::new(vec![Job::hog(), Job::hog(), Job::new(light)], 3);
    let asked = [(TaskId(2), slice)].into_iter().collect();
    let (outcome, _) = run(
        &host,
        Eevdf::with_slices(params, &host, asked),
        jobs,
        SEC,
        11 * SEC,
    );
    let light = outcome.tasks[2].2;
    light.ready / light.wakeups
}

/// A woken task waits until the current one's slice is over or it is beyond its share; one with a
/// shorter slice need not wait that long.
#[test]
fn short_slices_preempt() {
    // Each slice of the hogs is protected, whether they are picked again or anew.
    let preset = EevdfParams {
        base_slice: 3 * MS,
        slice_at_switch: false,
        ..EevdfParams::preset("7.x", 1).unwrap()
    };
    let equal = latency(preset, 3 * MS);
    let short = latency(preset, 300 * US);
    assert!(short < 100 * US, "{short}");
    assert!(equal > 3 * short, "{equal} against {short}");
    let without = latency(
        EevdfParams {
            preempt_short: false,
            protect_shortest: false,
            ..preset
        },
        300 * US,
    );
    assert!(without > 2 * short, "{without} against {short}");
}

#[test]
fn hogs_spread_evenly() {
    for topology in ["1n1l4c1t", "1n2l2c1t", "1n1l2c2t", "2n2l2c2t"] {
        let params = host(topology, 250);
        for per_pcpu in [1u32, 2] {
            let hogs = (0..params.topology.pcpus() * per_pcpu)
                .map(|_| Job::hog())
                .collect();
            let (outcome, _) = run(
                &params,
                eevdf("7.x", &params),
                Jobs::new(hogs, 1),
                3 * SEC,
                13 * SEC,
            );
            for share in run_shares(&outcome) {
                let fair = 1.0 / f64::from(per_pcpu);
                assert!(
                    (share - fair).abs() < 0.02,
                    "{topology}: {share}, not {fair}"
                );
            }
        }
    }
}

/// Five hogs on four pCPUs: since 5.5 an imbalance below a task is not rounded up, but failures make
/// tasks look smaller until one fits, so the surplus goes round, slower than under CFS' balancing.
#[test]
fn the_odd_hog_goes_round() {
    let params = host("1n1l4c1t", 250);
    let hogs = (0..5).map(|_| Job::hog()).collect();
    let (outcome, _) = run(
        &params,
        eevdf("7.x", &params),
        Jobs::new(hogs, 1),
        5 * SEC,
        65 * SEC,
    );
    let shares = run_shares(&outcome);
    let migrations: u64 = outcome.tasks.iter().map(|task| task.2.migrations).sum();
    println!("shares {shares:.3?}, {migrations} migrations in 60 s");
    assert!(outcome.idle_share < 0.001);
    assert!(shares.iter().all(|&share| share > 0.48), "{shares:?}");
    assert!(migrations > 20, "{migrations}");
}

/// Two tasks that hand work to each other keep doing so beside a hog on each pCPU.
#[test]
fn a_ping_pong_is_not_starved_by_hogs() {
    let params = host("1n1l2c1t", 250);
    let ping = |to, first| {
        Job::new(Does::Hands {
            work: 100 * US,
            to,
            first,
        })
    };
    let jobs = vec![ping(1, true), ping(0, false), Job::hog(), Job::hog()];
    let audited = Audited::new(eevdf("7.x", &params), 50 * MS);
    let (outcome, _) = run(&params, audited, Jobs::new(jobs, 1), SEC, 5 * SEC);
    assert!(outcome.tasks[0].2.wakeups > 1000, "{:?}", outcome.tasks[0]);
}

fn job(pinned: bool) -> impl Strategy<Value = Job> {
    let cycles =
        (10u64..20_000, 10u64..40_000, 0u32..100).prop_map(|(work, sleep, spread)| Does::Cycles {
            work: work * US,
            sleep: sleep * US,
            spread,
        });
    let does = prop_oneof![
        1 => (0u64..100).prop_map(|from| Does::Hog { from: from * MS }),
        1 => (20u64..2000).prop_map(|each| Does::Spins { each: each * US }),
        4 => cycles,
    ];
    let masks = if pinned {
        vec!["0-7", "0-7", "0", "1-2", "3,5"]
    } else {
        vec!["0-7"]
    };
    let allowed = prop::sample::select(masks);
    (does, 1u32..1000, allowed, 0u32..3).prop_map(|(does, weight, allowed, vm)| {
        let job = Job::new(does).weight(weight).on(allowed);
        if vm == 0 {
            job
        } else {
            job.vcpu(vm - 1, weight)
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Nobody is lost or run twice, affinity holds at every decision, every ready task gets to run,
    /// and no pCPU idles for long while one waits that it may run.
    #[test]
    fn random_loads_are_served(
        jobs in any::<bool>().prop_flat_map(|pinned| prop::collection::vec(job(pinned), 1..24)),
        preset in 0usize..EevdfParams::PRESETS.len(),
        topology in prop::sample::select(vec!["1n1l1c1t", "1n1l2c1t", "1n2l2c1t", "1n1l4c2t", "2n1l2c2t"]),
        hz in prop::sample::select(vec![100u32, 250, 1000]),
        grouped: bool,
        slices in prop::collection::btree_map((0u32..24).prop_map(TaskId), 100_000u64..3_000_000, 0..4),
        seed: u64,
    ) {
        let params = host(topology, hz);
        // Linux' balancing may overlook what narrow affinity masks leave waiting, and so do we.
        let free = jobs.iter().all(|job| job.allowed.len() >= 8);
        let patience = if free { 600 * MS } else { u64::MAX };
        let chosen = EevdfParams::preset(EevdfParams::PRESETS[preset], params.topology.pcpus()).unwrap();
        let audited = Audited::new(Eevdf::with_slices(chosen, &params, slices), patience);
        let weights: Vec<u32> = jobs.iter().map(|job| job.weight).collect();
        let jobs = Jobs::new(jobs, seed);
        let jobs = if grouped { jobs.with_vm_weights(&[100, 300]) } else { jobs };
        let (outcome, _) = run(&params, audited, jobs, 0, 4 * SEC);
        // A light task among heavy ones, or a small part of a VM, may be due after the run.
        for ((name, _, totals), weight) in outcome.tasks.iter().zip(weights) {
            let due = weight >= 100 && !grouped;
            let served = totals.run > 0 || totals.ready < 3 * SEC;
            prop_assert!(served || !due, "{} starves: {:?}", name, totals);
        }
    }
}
