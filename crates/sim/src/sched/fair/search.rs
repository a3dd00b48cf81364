// SPDX-License-Identifier: GPL-2.0-only
//! An idle pCPU for a sleeper that wakes up, and how far the kernel looks for one (`select_idle_sibling()`).
//!
//! It tries the pCPU the task shall go to, the one it ran on last, one it used before that
//! (`recent_used_cpu`, since 4.16), and then those that share the LLC, round from the first: a core that
//! idles as a whole, if there is one, else a hardware thread. To look at a pCPU means to read a cache line that others
//! change, so on busy hosts kernels give up before they have looked at all pCPUs:
//!
//! - 4.13 to 5.19 (`SIS_PROP`) spend, for each pCPU of the LLC, up to 1/512 of the waking pCPU's average idle time,
//!   judged by how long searches took lately, but look at 3 pCPUs at least.
//! - Since 6.0 (`SIS_UTIL`) they look at fewer pCPUs the busier the LLC is: at all where it idles, at none from 85 %
//!   on. How busy it is, periodic balancing finds out.
//!
//! Either way a hardware thread of the same core is tried, too.

use super::decay::FULL;
use super::domains::Level;
use super::{Fair, Order};
use corun_model::{Nanos, PcpuId, PcpuSet, TaskId};

/// How far a wake-up looks for an idle pCPU in the LLC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Search {
    /// At all pCPUs (before 4.13).
    All,
    /// As long as it is worth it (`SIS_PROP`); the number is what a look at one pCPU takes, ns.
    Worthwhile(Nanos),
    /// The less far, the busier the LLC is (`SIS_UTIL`).
    ByUtil,
}

/// The time to look whether another pCPU idles: a read of a cache line that another core of the socket has modified.
/// 50.3 ns on a Xeon of the Skylake generation ("Local Socket L2->L2 HITM latency" of Intel's
/// Memory Latency Checker, github.com/FDio/csit, docs/report/introduction/test_environment_sut_calib_skx.rst).
pub(crate) const LOOK: Nanos = 50;

impl<O: Order> Fair<O> {
    /// An idle pCPU near `target` for `task`, which was on `last` and is woken on `here`; else `target`.
    pub(super) fn idle_near(
        &mut self,
        task: TaskId,
        target: PcpuId,
        last: PcpuId,
        here: PcpuId,
    ) -> PcpuId {
        let recent = self.take_recent(task, last);
        let allowed = self.books.task(task).allowed;
        let idle = allowed.and(self.crowds.free());
        if idle.contains(target) {
            return target;
        }
        let near = |cpu: PcpuId| self.domains.share_llc(cpu, target) && idle.contains(cpu);
        if last != target && near(last) {
            return last;
        }
        if let Some(recent) = recent.filter(|&cpu| cpu != last && cpu != target && near(cpu)) {
            if self.tuning.search != Search::ByUtil {
                self.books.task_mut(task).recent = Some(last);
            }
            return recent;
        }
        let found = match self.tuning.search {
            Search::All => self.idle_in_llc(target, &allowed),
            Search::Worthwhile(look) => self.search_while_worth_it(target, here, &allowed, look),
            Search::ByUtil => self.search_by_util(target, last, &allowed),
        };
        found.unwrap_or(target)
    }

    /// The pCPU that `task` was on before its last one, `last`, in kernels that remember it.
    fn take_recent(&mut self, task: TaskId, last: PcpuId) -> Option<PcpuId> {
        match self.tuning.search {
            Search::All => None,
            Search::Worthwhile(_) => self.books.task(task).recent,
            Search::ByUtil => self.books.task_mut(task).recent.replace(last),
        }
    }

    /// Until 5.12 a waker on `here` that might have pulled the task remembers `here` as a pCPU that
    /// the waker itself used.
    pub(super) fn remember_waking(&mut self, here: PcpuId) {
        if matches!(self.tuning.search, Search::Worthwhile(_))
            && let Some(waker) = self.books.rq(here).current
        {
            self.books.task_mut(waker).recent = Some(here);
        }
    }

    /// An idle core in the LLC of `target`, else a hardware thread.
    fn idle_in_llc(&self, target: PcpuId, allowed: &PcpuSet) -> Option<PcpuId> {
        let core = self.idle_core_in_llc(target, allowed);
        core.or_else(|| self.idle_thread_in_llc(target, allowed))
    }

    /// A core that idles as a whole (`select_idle_core()`); without SMT there is no such search.
    fn idle_core_in_llc(&self, target: PcpuId, allowed: &PcpuSet) -> Option<PcpuId> {
        let cores = self.domains.core_of(target).len() > 1;
        let idle = cores.then(|| allowed.and(self.crowds.idle_cores()))?;
        self.first_behind(target, &idle)
    }

    fn idle_thread_in_llc(&self, target: PcpuId, allowed: &PcpuSet) -> Option<PcpuId> {
        self.first_behind(target, &allowed.and(self.crowds.free()))
    }

    /// The first of `set` behind `target`, round its LLC.
    fn first_behind(&self, target: PcpuId, set: &PcpuSet) -> Option<PcpuId> {
        let llc = self.domains.llc_of(target);
        let behind = set.first_in(target.0 + 1..llc.end);
        behind.or_else(|| set.first_in(llc.start..target.0))
    }

    /// Steps from `target` round its LLC to `cpu`.
    fn distance(&self, target: PcpuId, cpu: PcpuId) -> u32 {
        let size = self.domains.llc_size();
        (cpu.0 + size - target.0) % size
    }

    /// An idle hardware thread on the core of `cpu`, but for `not` (`select_idle_smt()`).
    fn idle_on_core(&self, cpu: PcpuId, allowed: &PcpuSet, not: PcpuId) -> Option<PcpuId> {
        let idle = allowed.and(self.crowds.free());
        let core = self.domains.core_of(cpu).map(PcpuId);
        core.into_iter()
            .find(|&thread| thread != not && idle.contains(thread))
    }

    /// `SIS_PROP`: `select_idle_cpu()` of 4.13 to 5.19.
    fn search_while_worth_it(
        &mut self,
        target: PcpuId,
        here: PcpuId,
        allowed: &PcpuSet,
        look: Nanos,
    ) -> Option<PcpuId> {
        if let Some(core) = self.idle_core_in_llc(target, allowed) {
            return Some(core);
        }
        let span = Nanos::from(self.domains.llc_size());
        let rq = self.books.rq(here);
        let (time, usual) = (span * (rq.mean_idle / 512), rq.mean_search + 1);
        // At the last of these looks the search gives up, and the first is at `target`, which is
        // known to be busy.
        let most = (time / usual).max(4).min(span + 1) - 2;
        let found = self
            .idle_thread_in_llc(target, allowed)
            .filter(|&cpu| Nanos::from(self.distance(target, cpu)) <= most);
        let looked = match found {
            Some(cpu) => Some(Nanos::from(self.distance(target, cpu)) + 1),
            // How long a search took that gave up is not counted.
            None => (most + 1 == span).then_some(span),
        };
        if let Some(looked) = looked {
            let rq = self.books.rq_mut(here);
            rq.mean_search = rq.mean_search - rq.mean_search / 8 + looked * look / 8;
        }
        found.or_else(|| self.idle_on_core(target, allowed, target))
    }

    /// `SIS_UTIL`: `select_idle_cpu()` since 6.0.
    fn search_by_util(&self, target: PcpuId, last: PcpuId, allowed: &PcpuSet) -> Option<PcpuId> {
        let smt = self.domains.core_of(target).len() > 1;
        let cores = self.crowds.idle_cores();
        let no_core = !smt || cores.first_in(self.domains.llc_of(target)).is_none();
        if no_core && self.domains.share_llc(last, target) {
            let beside = self.idle_on_core(last, allowed, target);
            if beside.is_some() {
                return beside;
            }
        }
        let llc = target.0 / self.domains.llc_size();
        let looks = self.looks.get(llc as usize).copied().unwrap_or(0);
        match (looks, no_core) {
            (0, _) => None,
            (_, false) => self.idle_in_llc(target, allowed),
            (_, true) => self
                .idle_thread_in_llc(target, allowed)
                .filter(|&cpu| self.allowed_up_to(target, cpu, allowed) <= looks),
        }
    }

    /// How many of the pCPUs from behind `target` up to `cpu` are allowed: others are not looked
    /// at.
    fn allowed_up_to(&self, target: PcpuId, cpu: PcpuId, allowed: &PcpuSet) -> u32 {
        let (llc, size) = (self.domains.llc_of(target), self.domains.llc_size());
        let behind = |step| PcpuId(llc.start + (target.0 - llc.start + step) % size);
        let steps = 1..=self.distance(target, cpu);
        steps.filter(|&step| allowed.contains(behind(step))).count() as u32
    }

    /// Balancing looked at the domains of `cpu` at `level`, whose averages are up to date: so many pCPUs of the
    /// LLC are worth a look from now on (`update_idle_cpu_scan()`).
    pub(super) fn learn_looks(&mut self, cpu: PcpuId, level: &Level) {
        let size = self.domains.llc_size();
        if self.tuning.search != Search::ByUtil || level.span != size {
            return;
        }
        let domain = level.domain(cpu);
        let util: u64 = domain
            .map(|cpu| self.books.rq(PcpuId(cpu)).util.value.min(FULL))
            .sum();
        let looks = looks(util / u64::from(size), level.imbalance_pct, size);
        if let Some(known) = self.looks.get_mut((cpu.0 / size) as usize) {
            *known = looks;
        }
    }
}

/// How many of `size` pCPUs that are busy for `util` of [`FULL`] are worth a look, where a domain counts as
/// overloaded by `imbalance_pct`.
fn looks(util: u64, imbalance_pct: u64, size: u32) -> u32 {
    const SCALE: u64 = 1024;
    let busy = util * SCALE / FULL;
    let less = busy * busy * imbalance_pct * imbalance_pct / (10_000 * SCALE);
    (SCALE.saturating_sub(less) * u64::from(size) / SCALE) as u32
}

#[cfg(test)]
mod tests {
    use super::super::state::Member;
    use super::{Search, looks};
    use crate::sched::cfs::{CfsOrder, CfsParams, fair};
    use crate::sched::fair::Fair;
    use crate::sched::fair::decay::{Average, FULL};
    use crate::testing::{Does, Job, Jobs, host, run};
    use corun_model::time::{MS, SEC, US};
    use corun_model::{Nanos, PcpuId, PcpuSet, TaskId};

    const TASK: TaskId = TaskId(0);

    /// A host where every pCPU but these has a task, and a sleeper, task 0.
    fn busy_but(topology: &str, idle: &[u32], search: Search) -> Fair<CfsOrder> {
        let params = host(topology, 250);
        let pcpus = params.topology.pcpus();
        let mut cfs = fair(CfsParams::preset("4.x", pcpus).unwrap(), &params);
        cfs.tuning.search = search;
        let every = PcpuSet::first(pcpus);
        cfs.books.tasks.push(Member::new(1024, None, every));
        let busy = (0..pcpus).filter(|cpu| !idle.contains(cpu));
        busy.for_each(|cpu| cfs.crowds.change(PcpuId(cpu), 0, 1, &cfs.domains));
        cfs
    }

    /// Where task 0 wakes up, whose target is pCPU 0 and which was on `last`.
    fn found(cfs: &mut Fair<CfsOrder>, last: u32) -> u32 {
        cfs.idle_near(TASK, PcpuId(0), PcpuId(last), PcpuId(0)).0
    }

    #[test]
    fn a_busy_waker_looks_at_three_pcpus() {
        let goes = |mean_idle: Nanos, idle| {
            let mut cfs = busy_but("1n1l12c1t", &[idle], Search::Worthwhile(50));
            let rq = cfs.books.rq_mut(PcpuId(0));
            // Searches took as long as twelve looks lately.
            (rq.mean_idle, rq.mean_search) = (mean_idle, 12 * 50);
            found(&mut cfs, 0)
        };
        // The first of the three is pCPU 0 itself.
        assert_eq!([goes(100 * US, 2), goes(100 * US, 3)], [2, 0]);
        // 1 ms / 512 = 1953 ns, times 12, by 601 ns: 38 looks.
        assert_eq!(goes(MS, 11), 11);
        // 400 us / 512 = 781 ns, times 12, by 601: 15. 300 us: 11, of which the last is not made.
        assert_eq!([goes(400 * US, 11), goes(300 * US, 9)], [11, 9]);
        assert_eq!(goes(300 * US, 10), 0);
    }

    #[test]
    fn what_a_search_took_is_learnt_unless_it_gave_up() {
        let learnt = |mean_idle: Nanos, idle: &[u32]| {
            let mut cfs = busy_but("1n1l12c1t", idle, Search::Worthwhile(80));
            let rq = cfs.books.rq_mut(PcpuId(0));
            (rq.mean_idle, rq.mean_search) = (mean_idle, 800);
            found(&mut cfs, 0);
            cfs.books.rq(PcpuId(0)).mean_search
        };
        // 800 - 800 / 8 + 80 / 8 for each pCPU looked at.
        assert_eq!(learnt(MS, &[5]), 700 + 6 * 10);
        assert_eq!(learnt(MS, &[]), 700 + 12 * 10);
        assert_eq!(learnt(100 * US, &[]), 800);
    }

    #[test]
    fn the_other_hardware_thread_is_always_tried() {
        let goes = |search| {
            let mut cfs = busy_but("1n1l6c2t", &[1, 9], search);
            let rq = cfs.books.rq_mut(PcpuId(0));
            (rq.mean_idle, rq.mean_search) = (0, 600);
            found(&mut cfs, 0)
        };
        assert_eq!(goes(Search::Worthwhile(50)), 1);
        assert_eq!(goes(Search::ByUtil), 1);
    }

    #[test]
    fn the_busier_the_fewer_looks() {
        let at = |percent: u64| looks(FULL * percent / 100, 117, 12);
        assert_eq!([at(0), at(25), at(50), at(75), at(84)], [12, 10, 7, 2, 0]);
        assert_eq!([at(86), at(100)], [0, 0]);
    }

    /// A quarter of twelve pCPUs, the far ones, is idle, and balancing knows from the averages.
    #[test]
    fn a_busy_llc_is_not_searched() {
        let goes = |busy: u64| {
            let mut cfs = busy_but("1n1l12c1t", &[9, 10, 11], Search::ByUtil);
            for cpu in 0..12 {
                cfs.books.rq_mut(PcpuId(cpu)).util = Average::starting_at(FULL * busy / 100, 0);
            }
            let level = cfs.domains.level(0).unwrap();
            cfs.learn_looks(PcpuId(3), &level);
            found(&mut cfs, 0)
        };
        // 10 looks, 7, none.
        assert_eq!([goes(25), goes(50), goes(90)], [9, 0, 0]);
    }

    #[test]
    fn pcpus_that_are_not_allowed_are_not_looked_at() {
        let mut cfs = busy_but("1n1l12c1t", &[9], Search::ByUtil);
        cfs.looks = vec![2];
        assert_eq!(found(&mut cfs, 0), 0);
        cfs.books.task_mut(TASK).allowed = "0,5,9".parse().unwrap();
        assert_eq!(found(&mut cfs, 0), 9);
    }

    #[test]
    fn a_sleeper_finds_its_way_back() {
        let mut cfs = busy_but("1n1l12c1t", &[8], Search::ByUtil);
        cfs.looks = vec![0];
        assert_eq!(found(&mut cfs, 8), 8, "it ran there last");
        assert_eq!(found(&mut cfs, 5), 8, "and before");
        assert_eq!(found(&mut cfs, 5), 0, "but no longer");
        let mut cfs = busy_but("1n1l12c1t", &[8], Search::Worthwhile(50));
        cfs.books.rq_mut(PcpuId(0)).mean_idle = 0;
        cfs.books.rq_mut(PcpuId(0)).mean_search = 600;
        assert_eq!(found(&mut cfs, 5), 0);
        cfs.books.task_mut(TASK).recent = Some(PcpuId(8));
        assert_eq!(found(&mut cfs, 5), 8, "where it last woke somebody");
        assert_eq!(cfs.books.task(TASK).recent, Some(PcpuId(5)));
    }

    /// Sleepers, and hogs on most of the pCPUs: in a kernel that does not look for an idle pCPU the
    /// sleepers wait.
    #[test]
    fn a_task_that_does_not_look_waits() {
        let served = |search| {
            let params = host("1n1l12c1t", 250);
            let mut cfs = fair(CfsParams::preset("4.x", 12).unwrap(), &params);
            cfs.tuning.search = search;
            let nap = Does::Cycles {
                work: MS,
                sleep: 3 * MS,
                spread: 50,
            };
            let mut jobs: Vec<Job> = (0..9).map(|_| Job::hog()).collect();
            jobs.extend((0..9).map(|_| Job::new(nap.clone())));
            let (outcome, _) = run(&params, cfs, Jobs::new(jobs, 1), SEC, 2 * SEC);
            let ready: Nanos = (9..18).map(|n| outcome.tasks[n].2.ready).sum();
            ready / 9 / MS
        };
        let (all, by_util) = (served(Search::All), served(Search::ByUtil));
        assert!(by_util > all, "{by_util} ms, {all} ms");
    }
}
