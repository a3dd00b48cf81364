// SPDX-License-Identifier: GPL-2.0-only
//! Equals take turns: vCPUs that only compute have equal shares of a core's hardware threads, and of cores (our
//! addition to vSMT-IO, dissertation §3.4.3).
//!
//! Problem: RASS gives each class a hardware thread. Of vCPUs that do nothing but compute some are in the I/O-bound
//! class all the same, since both classes are to weigh alike, and none of them is by merit. Where one class has fewer
//! of them, or beside it vCPUs that leave their hardware thread to others, it is the better place to be: one of three
//! had twice what each other one had, for good. The same is so of cores that have different numbers of vCPUs.
//!
//! So what vCPUs have had lately is compared, by weight. Within a core, those that had least have the better class next,
//! as long as both classes weigh what they do; and between two cores the one that had most changes places with one of
//! the same weight that had least. A vCPU that waits or retains more than a little is not moved: its class is by merit.
//! Where shares are equal but for a turn, nobody is moved: hardware threads of a core share its caches, cores do not.

use corun_model::{Nanos, TaskId};

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
    /// Was it in the I/O-bound class then?
    pub was_io: bool,
    /// Is it to be?
    pub io: bool,
}

/// CPU time for a weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Service(u64);

impl Service {
    /// Parts of a ns per unit of weight.
    const PARTS: u32 = 20;

    /// So much time for this weight.
    pub fn of(time: Nanos, weight: u64) -> Self {
        let all = (u128::from(time) << Self::PARTS) / u128::from(weight.max(1));
        Self(u64::try_from(all).unwrap_or(u64::MAX))
    }

    /// After another period with this. What is long past fades: the last eight periods or so count.
    pub fn and(self, latest: Self) -> Self {
        Self((self.0 - self.0 / 8).saturating_add(latest.0))
    }

    /// Without what `time` is for this weight.
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

/// Divides those of a core that compute among its classes anew, if some of those in the better one had more than others by
/// more than `turn`.
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

/// Pairs of vCPUs that change cores, at most one pair of each core: those in the better place had more by more than
/// `lead`. `group`: vCPUs change places within it; `may`: may this vCPU run on that one of the cores?
pub fn between(
    cores: &[Vec<Computing>],
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
        let equals = others.filter(|(_, it)| it.weight == one.weight && may(it.task, here));
        let Some((there, other)) = equals
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

    /// What each had in the last 30 of 40 periods, in per cent of one hardware thread; `io`: who begins as I/O-bound.
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
            for (one, other) in between(&cores, PERIOD, |_| (0, 0), |_, _| true) {
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
            between(&cores, PERIOD, same, |_, _| true),
            [(TaskId(1), TaskId(10))]
        );
        assert_eq!(
            between(&cores, PERIOD, same, |task, _| task.0 != 10),
            [(TaskId(1), TaskId(11))]
        );
        assert_eq!(between(&cores, PERIOD, |core| (core, 0), |_, _| true), []);
        assert_eq!(between(&cores, 5 * PERIOD, same, |_, _| true), []);
        cores[1].iter_mut().for_each(|it| it.weight = 50);
        assert_eq!(between(&cores, PERIOD, same, |_, _| true), []);
    }

    proptest! {
        /// Whatever vCPUs had, classes weigh what they did, and nobody is lost.
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
