// SPDX-License-Identifier: GPL-2.0-only
//! EEVDF on whole hosts, by hand and at random. The order of one runqueue has tests of its own, in
//! [`order`](super::order).

use super::{Eevdf, EevdfParams};
use crate::host::Costs;
use crate::testing::{Audited, Does, Job, Jobs, host, run, run_shares, shared};
use corun_model::Nanos;
use corun_model::time::{MS, SEC, US};
use proptest::prelude::*;
fn eevdf(name: &str, params: &crate::host::HostParams) -> Eevdf {
    let preset = EevdfParams::preset(name, params.topology.pcpus()).unwrap();
    Eevdf::new(preset, params)
}

#[test]
fn shares_follow_weights() {
    for name in EevdfParams::PRESETS {
        shared::shares_follow_weights(name, 0.01, |params| eevdf(name, params));
    }
}

fn starts(params: EevdfParams, slices: &[u64], hz: u32, end: u64) -> Vec<(u64, u32)> {
    let host = host("1n1l1c1t", hz);
    let sched = Eevdf::new(params, &host);
    let hogs = slices
        .iter()
        .map(|&slice| Job::hog().slice(slice))
        .collect();
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

/// Ticks every 4 ms and no slice timer (6.6): slices of 0.75 ms last to the tick.
#[test]
fn without_a_timer_slices_last_to_the_tick() {
    let preset = EevdfParams::preset("6.6", 1).unwrap();
    let seen = starts(preset, &[750 * US; 3], 250, 17 * MS);
    assert_eq!(seen, [(0, 0), (4000, 1), (8000, 2), (12000, 0), (16000, 1)]);
}

/// Times between switches of pCPU 0 among three hogs on each of eight pCPUs, us. Ticks have their real cost.
fn turns_by_ticks(name: &str, slice: Option<Nanos>, hz: u32) -> Vec<u64> {
    let mut params = host("1n1l8c1t", hz);
    params.costs = Costs::default();
    let preset = EevdfParams::preset(name, 8).unwrap();
    let preset = EevdfParams {
        base_slice: slice.unwrap_or(preset.base_slice),
        ..preset
    };
    let hogs = (0..24).map(|n| Job::hog().on(&format!("{}", n % 8)));
    let load = Jobs::new(hogs.collect(), 1);
    let (_, runs) = run(&params, Eevdf::new(preset, &params), load, 0, 2 * SEC);
    let begins: Vec<_> = runs.iter().filter(|run| run.1.0 == 0).collect();
    let turns = begins.windows(2).map(|w| (w[1].0 - w[0].0) / US);
    turns.skip(3).collect()
}

/// Linux 2ae891b82695: slices of a whole number of ticks get one more tick, and 0.7 ms instead of
/// 0.75 makes three ticks on eight pCPUs.
#[test]
fn slices_of_whole_ticks_get_an_extra_one() {
    for (name, slice, hz, turn) in [
        ("6.6", None, 1000, 4000),
        ("6.12", Some(3 * MS), 1000, 4000),
        ("6.6", Some(2800 * US), 1000, 3000),
        ("6.12", None, 1000, 3000),
        ("6.12", Some(2 * MS), 1000, 3000),
        ("6.12", Some(4 * MS), 250, 8000),
    ] {
        let turns = turns_by_ticks(name, slice, hz);
        assert!(turns.len() > 100);
        assert!(
            turns.iter().all(|each| *each == turn),
            "{name}, {slice:?}, {hz}: {turns:?}"
        );
    }
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
fn runs_of_hogs(preset: EevdfParams) -> Vec<u64> {
    let mut params = host("1n1l1c1t", 250);
    params.costs.timer = 100 * US;
    let preset = EevdfParams {
        base_slice: 1400 * US,
        hrtick: true,
        ..preset
    };
    let hogs = Jobs::new(vec![Job::hog(), Job::hog()], 1);
    let (_, runs) = run(&params, Eevdf::new(preset, &params), hogs, 0, 2 * SEC);
    runs.windows(2).map(|w| (w[1].0 - w[0].0) / US).collect()
}

/// A task that is behind at the end of its slice, because the other's ended late, is picked again. The timer (which
/// 7.x has by default and the others can have) is not set for it then, so it runs to the next tick, beyond a second
/// slice.
#[test]
fn a_task_picked_again_runs_to_the_tick() {
    for name in EevdfParams::PRESETS {
        let preset = EevdfParams::preset(name, 1).unwrap();
        let runs = runs_of_hogs(preset);
        let percent = |is: fn(&u64) -> bool| {
            let count = runs.iter().filter(|run| is(run)).count();
            100 * count / runs.len()
        };
        assert!(percent(|run| *run > 2 * 1500) > 10, "{name}: {runs:?}");
        assert!(percent(|run| *run < 2 * 4000) == 100, "{name}: {runs:?}");
        let renewed = runs_of_hogs(EevdfParams {
            slice_at_switch: false,
            ..preset
        });
        assert!(renewed.iter().all(|run| *run <= 2 * 1500), "{renewed:?}");
    }
}

/// Two tasks hand work to each other, each on its own pCPU together with a hog, so that wake-ups
/// come from the other pCPU: how long one waits on average, in ns.
fn delay_of_handing(preset: EevdfParams) -> Nanos {
    let params = host("1n1l2c1t", 250);
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
    let load = Jobs::new(jobs, 1);
    let (outcome, _) = run(&params, Eevdf::new(preset, &params), load, SEC, 5 * SEC);
    let totals = outcome.tasks[1].2;
    totals.ready / totals.wakeups
}

/// With lazy preemption a wake-up that preempts waits for the tick (a slice timer would end it, too).
#[test]
fn lazy_preemption_waits_for_the_kernel_to_be_entered() {
    let delay = |lazy_preemption| {
        delay_of_handing(EevdfParams {
            lazy_preemption,
            hrtick: false,
            ..EevdfParams::preset("7.x", 2).unwrap()
        })
    };
    let (at_once, lazy) = (delay(false), delay(true));
    assert!(lazy > at_once + 100 * US, "{lazy} against {at_once}");
}

/// The slice timer of the task that handed over keeps running while the hog runs, so that the next wake-up need not set
/// one and is not noticed until it fires.
#[test]
fn a_timer_that_stays_delays_wake_ups() {
    let delay = |timer_stays| {
        delay_of_handing(EevdfParams {
            timer_stays,
            ..EevdfParams::preset("7.x", 2).unwrap()
        })
    };
    let (stays, cleared) = (delay(true), delay(false));
    assert!(stays > cleared + 100 * US, "{stays} against {cleared}");
}

fn latency(params: EevdfParams, slice: u64) -> u64 {
    let host = host("1n1l1c1t", 250);
    let light = Does::Cycles {
        work: 50 * US,
        sleep: 10 * MS + 300 * US,
        spread: 30,
    };
    let light = Job::new(light).slice(slice);
    let jobs = Jobs::new(vec![Job::hog(), Job::hog(), light], 3);
    let (outcome, _) = run(&host, Eevdf::new(params, &host), jobs, SEC, 11 * SEC);
    let light = outcome.tasks[2].2;
    light.ready / light.wakeups
}

/// A woken task waits until the current one's slice is over or the current one is beyond its share;
/// a task with a shorter slice need not wait that long.
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

/// Since 6.6 busy pCPUs do not even out numbers (`sibling_imbalance()`), and 17 hogs on one node and 15 on another are
/// tolerated (`imbalance_pct`): three of the 17 share a pCPU, in turns.
#[test]
fn hogs_spread_evenly() {
    shared::hogs_spread_evenly("7.x", 250, 0.2, |params| eevdf("7.x", params));
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

/// Four equal hogs share the three pCPUs that one of ten times their weight leaves, although the mean load of the four
/// pCPUs is more than two of the hogs make up together.
#[test]
fn equals_take_turns_beside_a_heavy_hog() {
    for name in EevdfParams::PRESETS {
        let params = host("1n1l4c1t", 250);
        let equals = (0..4).map(|_| Job::hog());
        let hogs = [Job::hog().weight(1000)].into_iter().chain(equals);
        let load = Jobs::new(hogs.collect(), 1);
        let sched = eevdf(name, &params);
        let (outcome, _) = run(&params, sched, load, 5 * SEC, 65 * SEC);
        let shares = run_shares(&outcome);
        println!("{name}: shares {shares:.3?}");
        let even = shares[1..].iter().all(|share| (0.65..0.85).contains(share));
        assert!(even && shares[0] > 0.99, "{name}: {shares:?}");
    }
}

/// Three hogs on two pCPUs, and two tasks that wake up for 50 us every few seconds and owe when they go back
/// to sleep: as soon as they have no debt any more they no longer weigh anything, and balancing goes on.
#[test]
fn the_odd_hog_goes_round_beside_tasks_that_sleep_owing() {
    let params = host("1n1l2c1t", 250);
    let brief = |on| {
        let does = Does::Cycles {
            work: 50 * US,
            sleep: 8 * SEC,
            spread: 90,
        };
        Job::new(does).on(on)
    };
    for seed in 1..=8 {
        let hogs = (0..3).map(|_| Job::hog());
        let jobs = hogs.chain([brief("0"), brief("1")]).collect();
        let load = Jobs::new(jobs, seed);
        let (outcome, _) = run(&params, eevdf("6.12", &params), load, SEC, 21 * SEC);
        let shares = &run_shares(&outcome)[..3];
        let even = |share: &f64| (0.6..0.75).contains(share);
        assert!(shares.iter().all(even), "seed {seed}: {shares:.3?}");
    }
}

/// Two tasks that hand work to each other keep doing so with a hog on each pCPU.
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

/// Two caches of two cores. pCPU 2 has a hog that stays and one that may also use pCPU 1, which ends its own work at
/// some time. If the second hog is not waiting at that moment, pCPU 0, the first idle one, balances for both: its
/// neighbour gets what it may not take itself (`LBF_DST_PINNED`).
#[test]
fn what_the_balancing_pcpu_may_not_take_its_neighbour_gets() {
    let params = host("1n2l2c1t", 250);
    for work in (300..310).map(|ms| ms * MS) {
        let jobs = vec![
            Job::new(Does::Once { work }).on("1").weight(1000),
            Job::hog().on("2"),
            Job::hog().on("3"),
            Job::new(Does::Hog { from: 50 * MS }).on("1-2"),
        ];
        let load = Jobs::new(jobs, 1);
        let (outcome, _) = run(&params, eevdf("6.12", &params), load, 2 * SEC, 6 * SEC);
        let shares = run_shares(&outcome);
        assert!(shares[1] > 0.99 && shares[3] > 0.99, "{shares:?}");
    }
}

/// A slice that a task asks for is not honoured under 6.6, which has no slices per task.
#[test]
fn slices_per_task_came_with_6_12() {
    let runs = |name| {
        let preset = EevdfParams::preset(name, 1).unwrap();
        let params = EevdfParams {
            hrtick: true,
            ..preset
        };
        starts(params, &[4 * MS, 4 * MS], 1000, SEC).len()
    };
    let (old, new) = (runs("6.6"), runs("6.12"));
    assert!(
        old > 3 * new,
        "{old} switches with 0.75 ms, {new} with 4 ms"
    );
}

/// Of three hogs that asked for 10 ms none is protected for less (7.x takes the shortest slice on
/// the runqueue), though the base slice is 0.7 ms.
#[test]
fn the_shortest_slice_is_that_of_a_task() {
    let preset = EevdfParams::preset("7.x", 1).unwrap();
    let seen = starts(preset, &[10 * MS; 3], 1000, 2 * SEC);
    let last = &seen[seen.len() - 20..];
    let shortest = last.windows(2).map(|w| w[1].0 - w[0].0).min();
    assert_eq!(shortest, Some(10_000), "{last:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn random_loads_are_served(scene in shared::scenes(), preset in 0usize..EevdfParams::PRESETS.len()) {
        let patience = match (scene.is_free(), scene.is_equal()) {
            (true, _) => 600 * MS,
            // Balancing intervals that affinity lengthened are the limit.
            (false, true) => 1200 * MS,
            // Linux balances load, not waiting tasks: a task of little weight may be overlooked.
            _ => Nanos::MAX,
        };
        shared::is_served(scene, patience, |params| eevdf(EevdfParams::PRESETS[preset], params))?;
    }
}
