// SPDX-License-Identifier: GPL-2.0-only
//! Equals take turns: vCPUs that only compute have equal shares of a core's hardware threads, and of cores (our
//! addition to vSMT-IO, dissertation §3.4.3).
//!
//! Problem: RASS gives each class a hardware thread. Some vCPUs that do nothing but compute are in the I/O-bound class
//! all the same, because both classes are to weigh alike, and which ones is arbitrary. A class that has fewer of them,
//! or that has vCPUs which leave their hardware thread to others, is the better place to be: one of three had twice
//! what each other one had, for good. The same holds for cores with different numbers of vCPUs.
//!
//! So what vCPUs have had lately is compared, by weight. Within a core, those that had least get the better class next,
//! as long as the classes still weigh what they do now; and between two cores the vCPU that had most changes places
//! with one that had least, of the same weight, or of a greater one where its core weighs more. Where weights differ,
//! the classes are made to weigh alike before that: vCPUs that compute are equals, and their ranks mean nothing. A vCPU
//! that waits or retains more than a little is not moved: its class follows from what it does. Where shares differ by
//! no more than a turn, no vCPU is moved: hardware threads of a core share its caches, cores do not.

use corun_model::{Nanos, TaskId};

/// What is long past fades: about this many periods count (assumed: enough to even out turns, and few enough that what
/// a vCPU did seconds ago decides nothing).
pub(super) const FADES: u64 = 8;

/// A vCPU that computes, as it is compared with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Computing {
    /// The vCPU.
    pub task: TaskId,
    /// What it weighs, at least 1.
    pub weight: u64,
    /// What it had lately.
    pub had: Service,
    /// What it had in the last period.
    pub latest: Service,
    /// Was it in the I/O-bound class in the last period?
    pub was_io: bool,
    /// Is it to be in that class next?
    pub io: bool,
}

/// CPU time per weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Service(u64);

impl Service {
    /// Parts of a ns per unit of weight.
    const PARTS: u32 = 20;

    /// This much time for this weight.
    pub fn of(time: Nanos, weight: u64) -> Self {
        let all = (u128::from(time) << Self::PARTS) / u128::from(weight.max(1));
        Self(u64::try_from(all).unwrap_or(u64::MAX))
    }

    /// The faded sum after another period, which had `latest`.
    pub fn and(self, latest: Self) -> Self {
        Self((self.0 - self.0 / FADES).saturating_add(latest.0))
    }

    /// Reduced by what `time` is for this weight.
    fn less(self, time: Nanos, weight: u64) -> Self {
        Self(self.0.saturating_sub(Self::of(time, weight).0))
    }
}

/// The mean of what these had in the last period; `None`: there are none.
fn latest<'a>(of: impl Iterator<Item = &'a Computing>) -> Option<Service> {
    let add =
        |(sum, count): (u128, u128), one: &Computing| (sum + u128::from(one.latest.0), count + 1);
    let (sum, count) = of.fold((0, 0), add);
    let mean = sum.checked_div(count)?;
    Some(Service(u64::try_from(mean).unwrap_or(u64::MAX)))
}

/// vCPUs of a core that compute are equals, whatever their ranks: one of them goes to the lighter class, or two change
/// places, as long as that makes the classes weigh more nearly the same. `others`: what the vCPUs in the CPU-bound and
/// in the I/O-bound class weigh that do not compute.
pub fn even_out(core: &mut [Computing], others: impl FnOnce() -> [u64; 2]) {
    // If all weigh the same, no choice is more even than the cut by ranks.
    if core.windows(2).all(|pair| pair[0].weight == pair[1].weight) {
        return;
    }
    let mut weights = others();
    for it in core.iter() {
        weights[usize::from(it.io)] += it.weight;
    }
    for _ in 0..core.len() {
        let heavier = weights[1] > weights[0];
        let difference = weights[0].abs_diff(weights[1]);
        let there = |is: bool| (core.iter().enumerate()).filter(move |(_, it)| it.io == is);
        // `it` leaves the heavier class; from the lighter one, none or one vCPU comes in exchange.
        let moves = there(heavier).flat_map(|(from, it)| {
            let pairs = there(!heavier).map(|(to, other)| (Some(to), other.weight));
            let all = std::iter::once((None, 0)).chain(pairs);
            all.filter(|&(_, back)| back < it.weight)
                .map(move |(to, back)| (it.weight - back, from, to))
        });
        let after = |by: u64| difference.abs_diff(2 * by);
        let best = moves.min_by_key(|&(by, from, to)| (after(by), to.is_some(), from, to));
        let Some((by, from, to)) = best.filter(|&(by, ..)| after(by) < difference) else {
            return;
        };
        core[from].io = !heavier;
        if let Some(to) = to {
            core[to].io = heavier;
        }
        weights[usize::from(heavier)] -= by;
        weights[usize::from(!heavier)] += by;
    }
}

/// Divides a core's vCPUs that compute among its classes anew, if some in the better class had more than others by more
/// than `turn`.
pub fn within(core: &mut [Computing], turn: Nanos) {
    let was = |io: bool| core.iter().filter(move |it| it.was_io == io);
    let (Some(io), Some(cpu)) = (latest(was(true)), latest(was(false))) else {
        return;
    };
    let better = io > cpu;
    let there = core.iter().filter(|it| it.io == better);
    let mut room: u64 = there.map(|it| it.weight).sum();
    // A vCPU that was there gives way only to one that had less by more than a turn.
    let had = |it: &Computing| match it.was_io == better {
        true => it.had.less(turn, it.weight),
        false => it.had,
    };
    core.sort_by_key(|it| (had(it), it.was_io != better, it.task));
    let fits = |it: &Computing| {
        let fits = it.weight <= room;
        room -= if fits { it.weight } else { 0 };
        fits
    };
    let chosen: Vec<bool> = core.iter().map(fits).collect();
    if room == 0 {
        for (it, chosen) in core.iter_mut().zip(chosen) {
            it.io = chosen == better;
        }
    }
}

/// Pairs of vCPUs that change cores, at most one pair per core: the one in the better place had more, by more than
/// `lead`. It weighs the same as the other, or so much less that the core it comes from weighs no more than the other
/// core afterwards. `weights`: what all on each core weigh; `group`: vCPUs change places within it; `may`: may this
/// vCPU run on that core?
pub fn between(
    cores: &[Vec<Computing>],
    weights: &[u64],
    lead: Nanos,
    group: impl Fn(usize) -> (usize, u64),
    may: impl Fn(TaskId, usize) -> bool,
) -> Vec<(TaskId, TaskId)> {
    let means: Vec<Option<Service>> = cores.iter().map(|of| latest(of.iter())).collect();
    let mut most: Vec<(usize, Computing)> = (cores.iter().enumerate())
        .filter_map(|(core, of)| Some((core, *of.iter().max_by_key(|it| (it.had, it.task))?)))
        .collect();
    most.sort_by_key(|(core, it)| (std::cmp::Reverse(it.had), *core));
    let mut moved = vec![false; cores.len()];
    let mut pairs = Vec::new();
    for (here, one) in most {
        let had = one.had.less(lead, one.weight);
        let worse = |there: &usize| group(*there) == group(here) && means[*there] < means[here];
        let open = (0..cores.len()).filter(|&there| !moved[there] && may(one.task, there));
        let others = open.filter(worse).flat_map(|there| {
            let of = cores[there].iter().filter(|it| it.had < had);
            of.map(move |it| (there, *it))
        });
        let fits = |there: usize, it: &Computing| {
            let room = weights[there].saturating_sub(weights[here]) / 2;
            (0..=room).contains(&it.weight.wrapping_sub(one.weight))
        };
        let fitting = others.filter(|(there, it)| fits(*there, it) && may(it.task, here));
        let Some((there, other)) = fitting
            .filter(|_| !moved[here])
            .min_by_key(|(_, it)| (it.had, it.task))
        else {
            continue;
        };
        (moved[here], moved[there]) = (true, true);
        pairs.push((one.task, other.task));
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use corun_model::time::MS;
    use proptest::prelude::*;

    const PERIOD: Nanos = 100 * MS;
    const TURN: Nanos = 24 * MS;

    fn core(first: u32, weights: &[u64]) -> Vec<Computing> {
        let one = |(task, &weight): (u32, &u64)| Computing {
            task: TaskId(task),
            weight,
            had: Service::default(),
            latest: Service::default(),
            was_io: false,
            io: false,
        };
        (first..).zip(weights).map(one).collect()
    }

    /// What all on each core weigh, if all compute.
    fn weights(cores: &[Vec<Computing>]) -> Vec<u64> {
        let weight = |of: &Vec<Computing>| of.iter().map(|it| it.weight).sum();
        cores.iter().map(weight).collect()
    }

    /// A period: each hardware thread is shared by weight, or one that is alone there has it.
    fn run(core: &mut [Computing]) -> Vec<(TaskId, Nanos)> {
        let weight = |io: bool, core: &[Computing]| -> u64 {
            core.iter()
                .filter(|it| it.io == io)
                .map(|it| it.weight)
                .sum()
        };
        let all = [weight(false, core), weight(true, core)];
        let one = |it: &mut Computing| {
            let alone = core_share(it, all);
            it.latest = Service::of(alone, it.weight);
            it.had = it.had.and(it.latest);
            it.was_io = it.io;
            (it.task, alone)
        };
        core.iter_mut().map(one).collect()
    }

    fn core_share(it: &Computing, all: [u64; 2]) -> Nanos {
        PERIOD * it.weight / all[usize::from(it.io)]
    }

    /// What each had in the last 30 of 40 periods, in per cent of one hardware thread; `io`: which vCPUs begin as
    /// I/O-bound.
    fn shares(weights: &[u64], io: &[usize]) -> Vec<u64> {
        let mut core = core(0, weights);
        io.iter().for_each(|&at| core[at].io = true);
        let mut had = vec![0; weights.len()];
        for period in 0..40 {
            for (task, ran) in run(&mut core) {
                had[task.index()] += if period < 10 { 0 } else { ran };
            }
            within(&mut core, TURN);
        }
        had.iter().map(|had| had * 100 / (30 * PERIOD)).collect()
    }

    #[test]
    fn of_an_odd_number_of_equals_each_has_a_hardware_thread_to_itself_as_often() {
        let three = shares(&[100; 3], &[0]);
        assert!(
            three.iter().all(|share| (64..=69).contains(share)),
            "{three:?}"
        );
        let five = shares(&[100; 5], &[1, 3]);
        assert!(
            five.iter().all(|share| (38..=42).contains(share)),
            "{five:?}"
        );
    }

    #[test]
    fn where_classes_can_only_weigh_nearly_alike_shares_are_by_weight_all_the_same() {
        let told = shares(&[200, 100, 100, 100], &[0]);
        assert!((74..=86).contains(&told[0]), "{told:?}");
        assert!(
            told[1..].iter().all(|share| (36..=44).contains(share)),
            "{told:?}"
        );
    }

    #[test]
    fn where_shares_are_equal_nobody_is_moved() {
        let mut core = core(0, &[100; 4]);
        (core[1].io, core[2].io) = (true, true);
        for _ in 0..20 {
            run(&mut core);
            // But for a turn.
            core[0].had = core[0].had.and(Service::of(12 * MS, 100));
            core[0].had = Service(core[1].had.0 + Service::of(12 * MS, 100).0);
            within(&mut core, TURN);
            core.sort_by_key(|it| it.task);
            let io: Vec<bool> = core.iter().map(|it| it.io).collect();
            assert_eq!(io, [false, true, true, false]);
        }
    }

    /// Which vCPUs of these weights are I/O-bound afterwards; `io` were at first; `others` as in `even_out()`.
    fn evened(weights: &[u64], io: &[usize], others: [u64; 2]) -> Vec<usize> {
        let mut core = core(0, weights);
        io.iter().for_each(|&at| core[at].io = true);
        even_out(&mut core, || others);
        let io = core.iter().enumerate().filter(|(_, it)| it.io);
        io.map(|(at, _)| at).collect()
    }

    #[test]
    fn classes_of_equals_weigh_as_nearly_alike_as_can_be_whoever_began_where() {
        // 170 and 380 become 250 and 300.
        assert_eq!(evened(&[100, 150, 230, 70], &[0, 3], [0, 0]), [0, 1]);
        assert_eq!(evened(&[100, 150, 230, 70], &[1, 2], [0, 0]), [2, 3]);
        assert_eq!(evened(&[100, 150, 230, 70], &[0, 1], [0, 0]), [0, 1]);
        // Beside others of 200 in the CPU-bound class, 250 and 500 become 380 and 370.
        assert_eq!(evened(&[100, 150, 230, 70], &[0, 1], [200, 0]), [1, 2]);
        // Among equal weights the ranks decide.
        assert_eq!(evened(&[100; 4], &[0], [0, 0]), [0]);
        assert_eq!(evened(&[], &[], [100, 300]), [0usize; 0]);
    }

    #[test]
    fn five_on_two_cores_change_places_and_have_the_same() {
        let mut cores = vec![core(0, &[100; 3]), core(10, &[100; 2])];
        (cores[0][0].io, cores[1][0].io) = (true, true);
        let mut had = std::collections::BTreeMap::<TaskId, Nanos>::new();
        let mut changes = 0;
        for period in 0..125 {
            for core in &mut cores {
                for (task, ran) in run(core) {
                    *had.entry(task).or_default() += if period < 25 { 0 } else { ran };
                }
                within(core, TURN);
            }
            if period % 6 != 0 {
                continue;
            }
            let pairs = between(&cores, &weights(&cores), PERIOD, |_| (0, 0), |_, _| true);
            for (one, other) in pairs {
                let at = |task| {
                    cores
                        .iter()
                        .position(|of| of.iter().any(|it| it.task == task))
                };
                let [here, there] = [one, other].map(|task| at(task).unwrap());
                let place =
                    |core: usize, task| cores[core].iter().position(|it| it.task == task).unwrap();
                let [from, to] = [place(here, one), place(there, other)];
                let (own, others) = (cores[here][from], cores[there][to]);
                cores[here][from] = Computing {
                    io: own.io,
                    ..others
                };
                cores[there][to] = Computing {
                    io: others.io,
                    ..own
                };
                changes += 1;
            }
        }
        let all: Vec<Nanos> = had.values().map(|had| had / (100 * MS)).collect();
        // Four hardware threads in 100 periods, by five.
        assert!(all.iter().all(|had| (74..=86).contains(had)), "{all:?}");
        assert!((5..=21).contains(&changes), "{changes}");
    }

    #[test]
    fn nobody_changes_to_where_it_may_not_run_nor_to_another_group_nor_for_one_of_another_weight() {
        let mut cores = vec![core(0, &[100; 2]), core(10, &[100; 3])];
        for (at, one) in cores.iter_mut().flatten().enumerate() {
            one.latest = Service::of(if at < 2 { PERIOD } else { PERIOD / 2 }, 100);
            one.had = Service(one.latest.0 * 8);
        }
        let same = |_| (0, 0);
        assert_eq!(
            between(&cores, &weights(&cores), PERIOD, same, |_, _| true),
            [(TaskId(1), TaskId(10))]
        );
        assert_eq!(
            between(&cores, &weights(&cores), PERIOD, same, |task, _| task.0
                != 10),
            [(TaskId(1), TaskId(11))]
        );
        assert_eq!(
            between(
                &cores,
                &weights(&cores),
                PERIOD,
                |core| (core, 0),
                |_, _| true
            ),
            []
        );
        assert_eq!(
            between(&cores, &weights(&cores), 5 * PERIOD, same, |_, _| true),
            []
        );
        cores[1].iter_mut().for_each(|it| it.weight = 50);
        assert_eq!(
            between(&cores, &weights(&cores), PERIOD, same, |_, _| true),
            []
        );
    }

    #[test]
    fn a_heavier_one_comes_from_a_core_that_weighs_more() {
        let cores = |here: &[u64], there: &[u64]| {
            let mut cores = [core(0, here), core(10, there)];
            for (at, one) in cores
                .iter_mut()
                .enumerate()
                .flat_map(|(at, of)| of.iter_mut().map(move |it| (at, it)))
            {
                // By weight all of the second core had half of what those of the first one had.
                one.latest = Service::of(PERIOD, 100 * (1 + at as u64));
                one.had = Service(one.latest.0 * 8);
            }
            between(&cores, &weights(&cores), PERIOD, |_| (0, 0), |_, _| true)
        };
        // 200 and 400 become 300 each; 250 and 350 would be further off the other way round.
        assert_eq!(cores(&[100, 100], &[200, 200]), [(TaskId(1), TaskId(10))]);
        assert_eq!(cores(&[100, 100], &[250, 150]), [(TaskId(1), TaskId(11))]);
        assert_eq!(cores(&[100, 100], &[250, 50]), []);
        // Nor does a lighter one, that there is less for where it is.
        assert_eq!(cores(&[100, 100], &[90, 90, 90]), []);
    }

    proptest! {
        /// Cores weigh no less alike once two of them have changed places.
        #[test]
        fn no_pair_makes_cores_less_even(
            of in prop::collection::vec(prop::collection::vec((1u64..1000, 0u64..100), 0..5), 2..5),
        ) {
            let mut cores = Vec::new();
            for (at, of) in of.iter().enumerate() {
                let weights: Vec<u64> = of.iter().map(|one| one.0).collect();
                let mut core = core(10 * at as u32, &weights);
                for (it, &(_, had)) in core.iter_mut().zip(of) {
                    it.latest = Service::of(had * PERIOD, it.weight);
                    it.had = Service(it.latest.0 * 8);
                }
                cores.push(core);
            }
            let weights = weights(&cores);
            for (one, other) in between(&cores, &weights, PERIOD, |_| (0, 0), |_, _| true) {
                let at = |task: TaskId| (task.0 / 10) as usize;
                let weight = |task: TaskId| {
                    let known = cores[at(task)].iter().find(|it| it.task == task);
                    known.map_or(0, |it| it.weight)
                };
                let (here, there) = (weights[at(one)], weights[at(other)]);
                let after = [
                    here - weight(one) + weight(other),
                    there - weight(other) + weight(one),
                ];
                prop_assert!(after[0].abs_diff(after[1]) <= here.abs_diff(there));
            }
        }

        /// Whichever vCPU is in which class: no change of one, and no exchange of two, would make the classes more
        /// even, and they are no less even than before.
        #[test]
        fn nobody_is_left_who_would_make_classes_more_even(
            of in prop::collection::vec((1u64..1000, any::<bool>()), 0..12),
            others in prop::array::uniform2(0u64..3000),
        ) {
            let weights: Vec<u64> = of.iter().map(|one| one.0).collect();
            let mut core = core(0, &weights);
            for (it, &(_, io)) in core.iter_mut().zip(&of) {
                it.io = io;
            }
            let difference = |core: &[Computing]| {
                let weight = |io: bool| -> u64 {
                    let there = core.iter().filter(|it| it.io == io);
                    others[usize::from(io)] + there.map(|it| it.weight).sum::<u64>()
                };
                weight(false).abs_diff(weight(true))
            };
            let before = (core.clone(), difference(&core));
            even_out(&mut core, || others);
            prop_assert!(difference(&core) <= before.1);
            if weights.windows(2).all(|pair| pair[0] == pair[1]) {
                prop_assert_eq!(core, before.0);
                return Ok(());
            }
            for from in 0..core.len() {
                for to in 0..core.len() {
                    let mut other = core.clone();
                    other[from].io ^= true;
                    if to != from && core[to].io != core[from].io {
                        other[to].io ^= true;
                    }
                    prop_assert!(difference(&other) >= difference(&core));
                }
            }
        }

        /// Whatever vCPUs had, classes weigh what they did, and no vCPU is lost.
        #[test]
        fn classes_weigh_what_they_did(
            of in prop::collection::vec((1u64..1000, 0u64..1000, 0u64..100, any::<bool>()), 0..12),
        ) {
            let weights: Vec<u64> = of.iter().map(|one| one.0).collect();
            let mut core = core(0, &weights);
            for (it, &(_, had, latest, io)) in core.iter_mut().zip(&of) {
                (it.had, it.latest) = (Service(had << 40), Service(latest << 40));
                (it.io, it.was_io) = (io, had % 2 == 0);
            }
            let weight = |core: &[Computing]| core.iter().filter(|it| it.io).map(|it| it.weight).sum::<u64>();
            let before = (weight(&core), core.len());
            within(&mut core, TURN);
            prop_assert_eq!((weight(&core), core.len()), before);
        }
    }
}
