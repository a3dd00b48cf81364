// SPDX-License-Identifier: GPL-2.0-only
//! An idle pCPU: what it pulls as it begins to idle, how long it usually idles, and which pCPU balances for it later,
//! since it has no ticks.
//!
//! - *Beginning to idle* (`idle_balance()`, `newidle_balance()`): the pCPU tries to pull a task, domain by domain up to
//!   other nodes (`SD_BALANCE_NEWIDLE` is set at all levels: `SD_*_INIT` since 2.6.32, `sd_init()`), if it tends to
//!   idle long enough to be worth it. The kernel stops where its usual idle time is shorter than what looking took so
//!   far plus the most it takes at the next level (`max_newidle_lb_cost`, since 3.13). The kernel measures that cost;
//!   here it is a setting (`newidle_cost`) for 5.5 and later, which is 0 unless a scenario says otherwise.
//!   2.6.33 gives up at the first domain where there was something to pull and nothing could be
//!   moved (`load_balance_newidle()` returns -1 then).
//!   Since 3.x beginning to idle also brings the pCPU's next balancing forward to an idle pCPU's interval; in 2.6.33
//!   only if it is overdue, so that up to a busy pCPU's interval passes first. Kernels with `NI_RANDOM` (6.12.117 and
//!   7.2 have it, 6.6.0 does not) try at a domain only as often as that brought something lately ([`Pulls`]); those
//!   with `NI_RATE` (7.2) try more often where the occasion is rare. If no task waited when the whole host was looked
//!   at last, the pCPU does not try at all (`rd->overload`).
//! - *How long it idles* (`rq->avg_idle`) is learnt when a task wakes up there. A task that other pCPUs' balancing
//!   moves there does not wake up, so the idle time counts on; not so in 7.2.13, where it is learnt when the pCPU
//!   leaves its idle task (`update_rq_avg_idle()`).
//! - *Idling* (`nohz_idle_balance()`): ticks of busy pCPUs make one idle pCPU balance for all idle ones, for each when
//!   it is due. In 2.6.33 one idle pCPU keeps its ticks, and when *it* is due it balances for all.

use super::balance::{Idle, Tried};
use super::tuning::Generation;
use super::{Fair, Order};
use crate::host::Host;
use corun_model::{Nanos, PcpuId, time::SEC};

/// How often a pull from a domain brings something to a pCPU about to idle (`update_newidle_stats()`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pulls {
    calls: u32,
    successes: u32,
    /// Of 1024.
    ratio: u32,
    /// When that was learnt.
    since: Nanos,
}

impl Pulls {
    /// `sd_init()`.
    pub(super) const UNKNOWN: Self = Self {
        calls: 512,
        successes: 256,
        ratio: 512,
        since: 0,
    };

    /// A pull is tried if a random number from 0 to 1023 is at most this.
    fn odds(&self) -> u32 {
        1 + self.ratio
    }

    /// What a success counts: the number of chances per try.
    fn worth(&self) -> u32 {
        (1024 + self.odds() / 2) / self.odds()
    }

    /// Books one more chance, with that many successes. `rate`: do rare chances count for more?
    fn book(&mut self, success: u32, now: Nanos, rate: bool) {
        self.calls += 1;
        self.successes += success;
        if self.calls >= 1024 {
            let time = now - std::mem::replace(&mut self.since, now);
            let rare = if rate {
                (time >> 22).min(1024) as u32
            } else {
                0
            };
            self.ratio = (rare + self.successes).min(1024);
            self.calls /= 2;
            self.successes /= 2;
        }
    }
}

impl<O: Order> Fair<O> {
    /// `cpu` has no task left: it pulls one from the nearest domain that has any to spare.
    pub(super) fn go_idle(&mut self, host: &mut Host, cpu: PcpuId) {
        let (now, old) = (host.now(), self.is_old());
        let worth_it = match self.tuning.generation {
            Generation::Linux6 => self.tuning.newidle_cost,
            _ => self.tuning.migration_cost,
        };
        let rq = self.books.rq_mut(cpu);
        rq.idle_since = Some(now);
        let mut pulls = rq.mean_idle >= worth_it;
        if old && !pulls {
            return;
        }
        let depth = self.domains.depth();
        pulls &= old || self.overloaded;
        let (mut next, mut found) = (now + SEC, false);
        for n in 0..depth {
            let Some(level) = self.domains.level(n) else {
                break;
            };
            // The cost of all domains up to this one, each at its highest.
            let cost = self.tuning.newidle_cost.saturating_mul(n as u64 + 1);
            pulls &= self.books.rq(cpu).mean_idle >= cost;
            let tried = match pulls {
                true => self.pull_soon(host, cpu, n),
                false => Tried::Nothing,
            };
            let interval = self.interval(cpu, n, &level, Idle::Soon);
            next = next.min(self.domains.memory(cpu, n).last + interval);
            found = tried == Tried::Got || (old && tried == Tried::InVain);
            if found || !pulls {
                break;
            }
        }
        let rq = self.books.rq_mut(cpu);
        if found {
            rq.idle_since = None;
        }
        if !old {
            rq.next_balance = rq.next_balance.min(next);
        } else if found || now > rq.next_balance {
            rq.next_balance = next;
        }
    }

    /// Pulls from one domain, unless the odds are against trying.
    fn pull_soon(&mut self, host: &mut Host, cpu: PcpuId, level: usize) -> Tried {
        if !self.tuning.pulls_by_success {
            return self.balance_level(host, cpu, level, Idle::Soon);
        }
        let (now, rate) = (host.now(), self.tuning.pulls_if_rare);
        let pulls = self.domains.memory(cpu, level).pulls;
        let dice = &mut self.dice[cpu.index()];
        if dice.between(0, 1023) > u64::from(pulls.odds()) {
            self.domains.memory(cpu, level).pulls.book(0, now, rate);
            return Tried::Nothing;
        }
        let tried = self.balance_level(host, cpu, level, Idle::Soon);
        let success = match tried {
            Tried::Got => pulls.worth(),
            _ => 0,
        };
        let memory = self.domains.memory(cpu, level);
        memory.pulls.book(success, now, rate);
        tried
    }

    /// `cpu` is given a task, which may have come there without a wake-up.
    pub(super) fn end_idling_at_switch(&mut self, cpu: PcpuId, now: Nanos) {
        if self.tuning.idles_until_switch {
            self.end_idling(cpu, now);
        }
    }

    /// A task wakes up on `cpu`, which may have idled until now.
    pub(super) fn end_idling(&mut self, cpu: PcpuId, now: Nanos) {
        let looking = self
            .tuning
            .newidle_cost
            .saturating_mul(self.domains.depth() as u64);
        let (most, old) = (2 * self.tuning.migration_cost.max(looking), self.is_old());
        let rq = self.books.rq_mut(cpu);
        if let Some(since) = rq.idle_since.take() {
            let idle = now.saturating_sub(since);
            rq.mean_idle = match old && idle > most {
                // Until 3.12 one long time was enough.
                true => most,
                // An eighth towards the new value, as update_avg() does.
                false => (rq.mean_idle - rq.mean_idle / 8 + idle / 8).min(most),
            };
        }
    }

    /// At a tick of a busy pCPU: balances for the idle ones.
    pub(super) fn balance_for_idle(&mut self, host: &mut Host) {
        let now = host.now();
        let owner = match self.is_old() {
            true => self.idle_owner(),
            false => None,
        };
        if let Some(owner) = owner {
            let load = self.present_load(owner);
            self.books.rq_mut(owner).book_tick(load);
            if now < self.books.rq(owner).next_balance {
                return;
            }
            self.rebalance(host, owner, Idle::Yes);
        }
        let mut first = 0;
        // Asked anew each time: balancing may have given the next one something.
        while let Some(other) = self.crowds.idle().first_in(first..u32::MAX) {
            first = other.0 + 1;
            match owner {
                // The idle owner has something to run itself now.
                Some(owner) if !self.crowds.idle().contains(owner) => break,
                Some(owner) if owner != other => {
                    self.rebalance(host, other, Idle::Yes);
                    let next = self.books.rq(other).next_balance;
                    let rq = self.books.rq_mut(owner);
                    rq.next_balance = rq.next_balance.min(next);
                }
                None if now >= self.books.rq(other).next_balance => {
                    self.rebalance(host, other, Idle::Yes);
                }
                _ => {}
            }
        }
    }

    /// The idle pCPU that keeps its ticks (`nohz.load_balancer`): while it idles, always the same.
    fn idle_owner(&mut self) -> Option<PcpuId> {
        let idle = self.crowds.idle();
        let kept = self.idle_owner.filter(|owner| idle.contains(*owner));
        self.idle_owner = kept.or_else(|| idle.first_in(0..u32::MAX));
        self.idle_owner
    }
}

#[cfg(test)]
mod tests {
    use super::Pulls;
    use crate::host::{Host, HostParams};
    use crate::load::Load;
    use crate::sched::HostScheduler;
    use crate::sched::cfs::{CfsOrder, CfsParams, fair};
    use crate::sched::eevdf::{self, EevdfParams};
    use crate::sched::fair::Fair;
    use crate::testing::{Does, Job, Jobs, host, run};
    use corun_model::time::{MS, SEC, US};
    use corun_model::{Nanos, PcpuId, TaskId};

    fn setting(preset: &str, topology: &str) -> (Fair<CfsOrder>, HostParams) {
        let params = host(topology, 1000);
        let cfs = fair(CfsParams::preset(preset, 4).unwrap(), &params);
        (cfs, params)
    }

    #[test]
    fn pulls_are_tried_as_often_as_they_succeed() {
        let mut pulls = Pulls::UNKNOWN;
        // Tried every second time and successful each time: a success counts for two chances.
        for n in 0..512 {
            pulls.book(if n % 2 == 0 { pulls.worth() } else { 0 }, 0, false);
        }
        assert_eq!((pulls.ratio, pulls.odds(), pulls.worth()), (768, 769, 1));
        // Never successful: 384 of 512 are left, and half of that after as many chances again.
        (0..512).for_each(|_| pulls.book(0, 0, false));
        assert_eq!(pulls.ratio, 384);
        (0..512).for_each(|_| pulls.book(0, 0, false));
        assert_eq!(pulls.ratio, 192);
        (0..512 * 8).for_each(|_| pulls.book(0, 0, false));
        assert_eq!((pulls.odds(), pulls.worth()), (1, 1024));
    }

    /// With `NI_RATE`, 512 chances within a second are tried a quarter of the time though none succeeds,
    /// within 5 s all the time.
    #[test]
    fn rare_pulls_are_tried_more_often() {
        let ratio = |time, rate| {
            let mut pulls = Pulls::UNKNOWN;
            for n in 0..512 * 12 {
                pulls.book(0, (n + 1) * time / 512, rate);
            }
            pulls.ratio
        };
        assert_eq!((ratio(SEC, false), ratio(SEC, true)), (0, 238));
        assert_eq!(ratio(5 * SEC, true), 1024);
    }

    /// Hogs share a pCPU, and a heavy task leaves the other one, which idles for 0.2 ms on average. Until the
    /// next tick it is on its own.
    #[test]
    fn a_pcpu_that_idles_shortly_does_not_look_where_looking_takes_long() {
        let pulls = |newidle_cost| {
            let (mut cfs, params) = setting("5.x", "1n1l2c1t");
            cfs.tuning.newidle_cost = newidle_cost;
            cfs.books.rq_mut(PcpuId(0)).mean_idle = 200 * US;
            let leaves = 60 * MS + 100 * US;
            let mut jobs = vec![Job::new(Does::Once { work: leaves }).weight(10_000).on("0")];
            jobs.extend((0..3).map(|_| Job::new(Does::Hog { from: 20 * MS })));
            let (_, runs) = run(&params, cfs, Jobs::new(jobs, 1), 0, leaves + 800 * US);
            runs.iter().any(|(at, cpu, _)| cpu.0 == 0 && *at >= leaves)
        };
        assert_eq!([0, 100 * US, 300 * US].map(pulls), [true, true, false]);
    }

    /// A pCPU idles, until others' balancing brings it one of two hogs. Does it know then that it does not idle any
    /// more?
    #[test]
    fn what_is_brought_to_an_idle_pcpu_ends_its_idling_in_7_2() {
        let idles = |preset| {
            let params = host("1n1l2c1t", 1000);
            let cpu = PcpuId(0);
            let mut eevdf = eevdf::fair(EevdfParams::preset(preset, 2).unwrap(), &params);
            let mut host = Host::new(params, None);
            for spec in Jobs::new(vec![Job::hog(), Job::hog()], 1).tasks() {
                let task = host.add_task(spec);
                eevdf.add(&mut host, task);
                host.make_ready(task);
                eevdf.wake(&mut host, task, None);
            }
            let task = eevdf.books.members(cpu, true).unwrap();
            // As if the task had not woken up there.
            eevdf.books.rq_mut(cpu).idle_since = Some(0);
            host.advance(MS);
            assert_eq!(eevdf.pick(&mut host, cpu), Some(task));
            eevdf.books.rq(cpu).idle_since.is_some()
        };
        assert_eq!(["6.6", "6.12", "7.x"].map(idles), [true, true, false]);
    }

    #[test]
    fn one_long_idle_time_was_enough_for_2_6_33() {
        let learns = |preset, idle: Nanos| {
            let (mut cfs, _) = setting(preset, "1n2l2c1t");
            let rq = cfs.books.rq_mut(PcpuId(0));
            (rq.mean_idle, rq.idle_since) = (80 * US, Some(MS));
            cfs.end_idling(PcpuId(0), MS + idle);
            cfs.books.rq(PcpuId(0)).mean_idle / US
        };
        assert_eq!(
            (learns("2.6.33", 400 * US), learns("4.x", 400 * US)),
            (120, 120)
        );
        assert_eq!(
            (learns("2.6.33", 2 * MS), learns("4.x", 2 * MS)),
            (1000, 320)
        );
    }

    /// Balanced lately while busy, for 64 and 32 intervals; intervals are 1 and 2 ms here.
    #[test]
    fn beginning_to_idle_brings_the_next_balancing_forward() {
        let next = |preset| {
            let (mut cfs, params) = setting(preset, "1n2l2c1t");
            let mut host = Host::new(params, None);
            let cpu = PcpuId(0);
            for level in 0..2 {
                cfs.domains.memory(cpu, level).last = 10 * MS;
            }
            cfs.books.rq_mut(cpu).next_balance = 74 * MS;
            cfs.go_idle(&mut host, cpu);
            cfs.books.rq(cpu).next_balance / MS
        };
        assert_eq!((next("2.6.33"), next("4.x"), next("5.x")), (74, 12, 12));
    }

    /// pCPU 0 is busy. Does its tick, at time 0, have pCPU 2 balance, by when pCPUs 1 and 2 are due?
    #[test]
    fn one_idle_pcpu_balances_for_all_in_2_6_33() {
        let balances = |preset, first: Nanos, second: Nanos| {
            let (mut cfs, params) = setting(preset, "1n2l2c1t");
            let mut host = Host::new(params, None);
            cfs.crowds.change(PcpuId(0), 0, 1, &cfs.domains);
            cfs.books.rq_mut(PcpuId(1)).next_balance = first;
            cfs.books.rq_mut(PcpuId(2)).next_balance = second;
            cfs.balance_for_idle(&mut host);
            cfs.books.rq(PcpuId(2)).next_balance != second
        };
        assert!(!balances("2.6.33", MS, 0) && balances("4.x", MS, 0));
        assert!(balances("2.6.33", 0, 99 * MS) && !balances("4.x", 0, 99 * MS));
    }

    /// A heavy task leaves pCPU 0, next to which two hogs share a pCPU; three more share one of the other cache. One of
    /// the two has just run, so that it is not moved. When does pCPU 0 get another?
    #[test]
    fn what_cannot_be_moved_ends_the_search_in_2_6_33() {
        let runs = |preset, work| {
            let (cfs, params) = setting(preset, "1n2l2c1t");
            let mut jobs = vec![Job::new(Does::Once { work }).weight(10_000).on("0")];
            jobs.extend((0..2).map(|_| Job::hog().on("0-1")));
            jobs.extend((0..3).map(|_| Job::hog().on("0,2")));
            let (_, runs) = run(&params, cfs, Jobs::new(jobs, 1), 0, 150 * MS);
            runs
        };
        let idles = |preset| {
            let switches = runs(preset, 200 * MS);
            let beside = |&(at, cpu, _): &(Nanos, PcpuId, TaskId)| cpu == PcpuId(1) && at > 50 * MS;
            let last = switches.iter().find(|run| beside(run)).unwrap().0;
            let leaves = last + 100 * US;
            let next = |&(at, cpu, _): &(Nanos, PcpuId, TaskId)| cpu == PcpuId(0) && at >= leaves;
            let taken = *runs(preset, leaves).iter().find(|run| next(run)).unwrap();
            (taken.0 - leaves, taken.2.0 > 2)
        };
        let ((old, _), (later, other_cache)) = (idles("2.6.33"), idles("4.x"));
        assert!(old >= 500 * US, "{old}");
        assert!(later == 0 && other_cache, "{later}");
    }

    /// A heavy task leaves pCPU 0; its neighbour has a hog, and four share the other node.
    /// All levels have `SD_BALANCE_NEWIDLE`, that of the nodes, too.
    #[test]
    fn a_pcpu_about_to_idle_pulls_from_other_nodes() {
        let idles = |preset| {
            let (cfs, params) = setting(preset, "2n1l2c1t");
            let leaves = 60 * MS + 900 * US;
            let mut jobs = vec![
                Job::new(Does::Once { work: leaves }).weight(10_000).on("0"),
                Job::hog().on("1"),
            ];
            jobs.extend((0..4).map(|_| Job::hog().on("0,2-3")));
            let (_, runs) = run(&params, cfs, Jobs::new(jobs, 1), 0, leaves + 99 * MS);
            let mut next = runs
                .iter()
                .filter(|(at, cpu, _)| cpu.0 == 0 && *at >= leaves);
            next.next().map(|run| run.0 - leaves)
        };
        assert_eq!(["2.6.33", "4.x", "5.x"].map(idles), [Some(0); 3]);
    }

    /// Two hogs are put on one core while other tasks have the other core for 50 ms. No task waits for a pCPU, yet the
    /// idle pCPUs are to balance: two are busy (`nr_busy_cpus` in `nohz_balancer_kick()`).
    #[test]
    fn hogs_on_one_core_spread_when_another_one_idles() {
        for preset in ["2.6.33", "4.x", "5.x"] {
            let (cfs, params) = setting(preset, "1n1l2c2t");
            let brief = || Job::new(Does::Once { work: 50 * MS }).weight(10_000);
            let jobs = vec![brief().on("2"), brief().on("3"), Job::hog(), Job::hog()];
            let (_, runs) = run(&params, cfs, Jobs::new(jobs, 1), 0, 2 * SEC);
            let last = |task| runs.iter().rfind(|run| run.2.0 == task).unwrap();
            let cores = [2, 3].map(|task| last(task).1.0 / 2);
            assert_ne!(cores[0], cores[1], "{preset}: {runs:?}");
            // And they stay there.
            assert!(
                [2, 3].iter().all(|&task| last(task).0 < SEC),
                "{preset}: {runs:?}"
            );
        }
    }

    /// A heavy task leaves pCPU 0, next to which four hogs share a pCPU. Which task runs there soon after?
    #[test]
    fn a_pcpu_about_to_idle_takes_its_half_until_5_4() {
        let taken = |preset| {
            let (cfs, params) = setting(preset, "1n1l2c1t");
            let leaves = 60 * MS + 900 * US;
            let mut jobs = vec![Job::new(Does::Once { work: leaves }).weight(10_000).on("0")];
            jobs.extend((0..4).map(|_| Job::hog()));
            let (_, runs) = run(&params, cfs, Jobs::new(jobs, 1), 0, leaves + 20 * MS);
            let soon = runs
                .iter()
                .filter(|(at, cpu, _)| cpu.0 == 0 && *at >= leaves);
            soon.map(|run| run.2)
                .collect::<std::collections::BTreeSet<_>>()
                .len()
        };
        assert_eq!((taken("2.6.33"), taken("4.x"), taken("5.x")), (2, 2, 1));
    }
}
