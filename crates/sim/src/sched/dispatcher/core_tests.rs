// SPDX-License-Identifier: GPL-2.0-only
//! Retention and classes of a core's vCPUs, by hand and at random.

use super::Dispatcher;
use crate::host::{Host, TaskState};
use crate::sched::HostScheduler;
use crate::sched::forward::forward;
use crate::testing::{Does, Job, Jobs, host, run, run_shares};
use corun_dispatcher::HoldCounters;
use corun_model::time::{MS, SEC, US};
use corun_model::{
    Demand, DispatcherParams, Nanos, PcpuId, PcpuPlan, Placement, Plan, TaskId, TaskPlan, VmId,
    VmPlan,
};
use proptest::prelude::*;
use std::cell::Cell;
use std::rc::Rc;

/// The dispatcher on cores of two hardware threads, where the first few tasks are I/O-bound, task n on core n; checks
/// what must always hold.
pub(super) struct Cores {
    pub(super) dispatcher: Dispatcher,
    /// Is the plan made here, rather than by a policy?
    pub(super) by_hand: bool,
    io: usize,
    hold: Nanos,
    /// May both hardware threads be held?
    both: bool,
    /// Do holds end for any task that is queued?
    pub(super) gives_way: bool,
    /// Since when plans ask for cores; [`Nanos::MAX`]: they do not. Earlier holds end as they would have.
    pub(super) since: Nanos,
    /// What the first tasks ask of their cores.
    demands: Vec<Demand>,
    /// The cookies of the first VMs, those of others being 0; empty: cookies do not matter.
    cookies: Vec<u32>,
    /// Do vCPUs have homes?
    homes: bool,
    /// Per pCPU: since when it idles, not held, while a task waits.
    wasted: Vec<Option<Nanos>>,
    /// Per pCPU: has the dispatcher been asked for the next task there?
    asked: Vec<bool>,
    /// Holds of pCPU 1 so far.
    counted: Rc<Cell<HoldCounters>>,
}

impl Cores {
    pub(super) fn new(topology: &str, io: usize, hold: Nanos) -> Self {
        let params = host(topology, 250);
        Self {
            dispatcher: Dispatcher::new(DispatcherParams::default(), &params),
            by_hand: true,
            io,
            hold,
            both: false,
            gives_way: false,
            since: 0,
            demands: Vec::new(),
            cookies: Vec::new(),
            homes: true,
            wasted: vec![None; params.topology.pcpus() as usize],
            asked: vec![false; params.topology.pcpus() as usize],
            counted: Rc::default(),
        }
    }

    fn plan(&self, host: &Host, task: TaskId) -> Plan {
        let pcpus = host.pcpus() as u32;
        let io = task.index() < self.io;
        let told = TaskPlan {
            home: (self.homes).then(|| PcpuId(task.0 * 2 % pcpus + u32::from(io))),
            demand: self.demands.get(task.index()).copied(),
            cookie: match self.cookies.is_empty() {
                true => 0,
                false => host.task(task).vm().map_or(0, |vm| self.cookie(vm)),
            },
            ..TaskPlan::of(task)
        };
        let thread = |cpu: PcpuId| PcpuPlan {
            cpu,
            partner: PcpuId(cpu.0 ^ 1),
            hold: if self.both || cpu.0 % 2 == 1 {
                self.hold
            } else {
                0
            },
            retention: 0,
            gives_way: self.gives_way,
            cookies: !self.cookies.is_empty(),
            wait_wait: 277,
            miss_miss: 910,
        };
        let vms = 0..self.dispatcher.plans.len();
        Plan {
            vms: vms
                .map(|vm| VmPlan::placed(VmId::from(vm), Placement::Core))
                .collect(),
            tasks: vec![told],
            pcpus: host.all_pcpus().map(thread).collect(),
            ..Plan::default()
        }
    }

    fn cookie(&self, vm: VmId) -> u32 {
        self.cookies.get(vm.index()).copied().unwrap_or(0) + 1
    }

    /// Never two cookies on a core at the same time. `picked` as in [`Cores::check`].
    fn check_cookies(&self, host: &Host, picked: Option<(PcpuId, TaskId)>) {
        let cookie = |cpu: PcpuId| {
            let given = picked.filter(|&(to, _)| to == cpu).map(|(_, task)| task);
            let task = given.or_else(|| host.current(cpu))?;
            host.task(task).vm().map(|vm| self.cookie(vm))
        };
        for cpu in host.all_pcpus() {
            let both = cookie(cpu).zip(cookie(PcpuId(cpu.0 ^ 1)));
            let mixed = both.is_some_and(|(one, other)| one != other);
            assert!(!mixed, "{both:?} on the core of {cpu} at {}", host.now());
        }
    }

    fn held(&self, cpu: PcpuId) -> bool {
        self.dispatcher.native.cpu(cpu.0).held != 0
    }

    /// Is it held as plans now ask? A hold that another pCPU has cut short has ended, although the pCPU has yet to
    /// notice.
    fn held_now(&self, cpu: PcpuId) -> bool {
        let since = self.dispatcher.native.cpu(cpu.0).held_since;
        self.held(cpu) && since != 0 && since >= self.since
    }

    /// Both hardware threads of a core are never held while a task waits there, none is held while
    /// a task waits for it if holds give way, and none for longer than the timeout. No other pCPU
    /// idles while a task waits, for longer than it takes to call the pCPU; except that a pCPU that
    /// has not been asked since the dispatcher was loaded may idle for a slice once. `picked`: the
    /// task that is about to get a pCPU; the host does not know yet.
    pub(super) fn check(&mut self, host: &Host, picked: Option<(PcpuId, TaskId)>) {
        if !self.cookies.is_empty() {
            // A waiting task may have to wait, although a hardware thread idles.
            return self.check_cookies(host, picked);
        }
        let waiting = |cpu: PcpuId| {
            let waits = |(id, task): (TaskId, &crate::host::Task)| {
                let runs = picked.is_some_and(|(_, next)| next == id);
                !runs && task.state == TaskState::Ready && task.runqueue() == Some(cpu)
            };
            host.tasks().any(waits)
        };
        for cpu in host.all_pcpus() {
            self.check_counts(host, cpu);
            let partner = PcpuId(cpu.0 ^ 1);
            if self.held_now(cpu) && self.held_now(partner) {
                assert!(
                    !waiting(cpu) && !waiting(partner),
                    "both held at {}",
                    host.now()
                );
            }
            assert!(
                !(self.gives_way && self.held_now(cpu) && waiting(cpu)),
                "{cpu} held beside one that waits at {}",
                host.now()
            );
            let until = self.dispatcher.native.cpu(cpu.0).held_until;
            assert!(
                !self.held(cpu) || host.now() <= until,
                "{cpu} held after {until}"
            );
            let given = picked.is_some_and(|(to, _)| to == cpu);
            let idle = host.current(cpu).is_none() && !given && !self.held(cpu);
            let wasted = idle && host.all_pcpus().any(waiting);
            match wasted {
                true => {
                    let since = *self.wasted[cpu.index()].get_or_insert(host.now());
                    let most = match self.asked[cpu.index()] {
                        true => MS,
                        false => DispatcherParams::default().slice + MS,
                    };
                    let idle = host.now() - since;
                    assert!(idle <= most, "{cpu} idles since {since}, for {idle}");
                }
                false => self.wasted[cpu.index()] = None,
            }
        }
    }
}

impl Cores {
    /// Each hold is under way or has ended in one of three ways; none was longer than the timeout, since timers
    /// are exact here.
    fn check_counts(&self, host: &Host, cpu: PcpuId) {
        let ctx = self.dispatcher.native.cpu(cpu.0);
        let (holds, under_way) = (ctx.holds, u64::from(ctx.held_since != 0));
        let ended = holds.woke + holds.expired + holds.gave_way;
        assert_eq!(holds.begun, ended + under_way, "{cpu} at {}", host.now());
        let unheld = ctx.held_since == 0 || ctx.held_since < self.since;
        assert!(unheld || ctx.held != 0, "{cpu}: {ctx:?}");
        assert!(holds.longest <= self.hold && holds.latest == 0, "{holds:?}");
        assert!(holds.length <= ended * holds.longest, "{holds:?}");
        if cpu == PcpuId(1) {
            self.counted.set(holds);
        }
    }
}

impl HostScheduler for Cores {
    forward! { dispatcher: know_vms know_cgroups block tick directs_yields yield_pcpu flush_ipi co_stopped throttled turns }

    fn add(&mut self, host: &mut Host, task: TaskId) {
        self.dispatcher.add(host, task);
        if self.by_hand {
            let plan = self.plan(host, task);
            self.dispatcher.apply(host, &plan);
        }
    }
    fn wake(&mut self, host: &mut Host, task: TaskId, waker: Option<PcpuId>) {
        self.dispatcher.wake(host, task, waker);
        self.check(host, None);
    }
    fn pick(&mut self, host: &mut Host, cpu: PcpuId) -> Option<TaskId> {
        let next = self.dispatcher.pick(host, cpu);
        self.asked[cpu.index()] = true;
        self.check(host, next.map(|task| (cpu, task)));
        next
    }
    fn timer(&mut self, host: &mut Host, token: u64) {
        self.dispatcher.timer(host, token);
        self.check(host, None);
    }
}

/// A vCPU in a VM of its own that computes and waits, always for the same times.
fn io(vm: u32, work: Nanos, sleep: Nanos) -> Job {
    let does = Does::Cycles {
        work,
        sleep,
        spread: 0,
    };
    Job::new(does).vcpu(vm, 0)
}

fn hog(vm: u32) -> Job {
    Job::hog().vcpu(vm, 0)
}

/// The outcome on one core: I/O that returns within the timeout or not, with two vCPUs that
/// compute.
fn beside_hogs(sleep: Nanos, hold: Nanos) -> (Vec<f64>, Vec<(Nanos, PcpuId, TaskId)>, u64) {
    let jobs = vec![io(0, 100 * US, sleep), hog(1), hog(2)];
    let params = host("1n1l1c2t", 250);
    let cores = Cores::new("1n1l1c2t", 1, hold);
    let (outcome, runs) = run(&params, cores, Jobs::new(jobs, 1), 0, SEC);
    let held = outcome.vms[0].held;
    (run_shares(&outcome), runs, held)
}

#[test]
fn a_hardware_thread_is_kept_for_a_vcpu_that_comes_back_in_time() {
    let (shares, runs, held) = beside_hogs(900 * US, 3 * MS);
    // It computes for a tenth of the time, and its hardware thread is held for the rest.
    assert!((shares[0] - 0.1).abs() < 0.01, "{shares:?}");
    assert!((held as f64 / SEC as f64 - 0.9).abs() < 0.02, "{held}");
    // No other task has been there since it first came; the others share the SMT sibling.
    let first = runs
        .iter()
        .position(|&(_, _, task)| task == TaskId(0))
        .unwrap();
    let there = |&&(_, cpu, task): &&(Nanos, PcpuId, TaskId)| cpu == PcpuId(1) && task != TaskId(0);
    assert_eq!(runs[first..].iter().filter(there).count(), 0);
    assert!((shares[1] + shares[2] - 1.0).abs() < 0.01, "{shares:?}");
}

#[test]
fn after_the_timeout_it_is_lent_and_taken_back_at_once() {
    let (shares, runs, held) = beside_hogs(9_900 * US, 2 * MS);
    // Of each 10 ms it computes for 0.1 and its thread is held for 2; for 7.9 ms the other has its
    // place.
    assert!((held as f64 / SEC as f64 - 0.2).abs() < 0.01, "{held}");
    assert!((shares[1] + shares[2] - 1.79).abs() < 0.03, "{shares:?}");
    // It starts every 10 ms to the microsecond, whatever task is there: nothing costs time here.
    let starts: Vec<Nanos> = runs
        .iter()
        .filter(|&&(_, _, task)| task == TaskId(0))
        .map(|&(at, _, _)| at)
        .collect();
    let late = |pair: &[Nanos]| (pair[1] - pair[0]).abs_diff(10 * MS);
    assert!(starts.len() >= 98 && starts.windows(2).all(|pair| late(pair) < US));
}

#[test]
fn without_a_timeout_nothing_is_held() {
    let (shares, _, held) = beside_hogs(900 * US, 0);
    assert_eq!(held, 0);
    assert!(
        (shares.iter().sum::<f64>() - 2.0).abs() < 0.01,
        "{shares:?}"
    );
}

#[test]
fn a_vcpu_that_computes_gets_a_core_to_itself_if_there_is_nothing_else() {
    // Both have their home on the same hardware thread.
    let jobs = vec![hog(0), hog(1)];
    let params = host("1n1l1c2t", 250);
    let (outcome, runs) = run(
        &params,
        Cores::new("1n1l1c2t", 0, MS),
        Jobs::new(jobs, 1),
        0,
        SEC,
    );
    assert!(run_shares(&outcome).iter().all(|share| *share > 0.99));
    assert!(runs.len() < 10, "they do not go to and fro: {runs:?}");
}

#[test]
fn retention_is_charged_as_time_on_the_pcpu() {
    // Two on the I/O-bound hardware thread, in turn: one that computes and one for which it is
    // held.
    let jobs = vec![io(0, 100 * US, 900 * US), hog(1)];
    let params = host("1n1l1c2t", 250);
    let mut cores = Cores::new("1n1l1c2t", 2, 3 * MS);
    cores.io = 2;
    // The other hardware thread is taken by a vCPU that may not leave it.
    let mut jobs = jobs;
    jobs.push(hog(2).on("0"));
    let (outcome, _) = run(&params, cores, Jobs::new(jobs, 1), 0, SEC);
    let shares = run_shares(&outcome);
    let kept = shares[0] + outcome.vms[0].held as f64 / SEC as f64;
    assert!(
        (0.3..0.62).contains(&kept) && shares[1] > 0.38,
        "{kept} {shares:?}"
    );
}

#[test]
fn a_hold_ends_for_a_vcpu_that_waits_if_it_gives_way() {
    // Two vCPUs on the I/O-bound hardware thread, one held for all the time, and the other thread is taken.
    let waits = |gives_way| {
        let mut cores = Cores::new("1n1l1c2t", 2, 5 * MS);
        cores.gives_way = gives_way;
        // The second vCPU is owed less: it wants more than its half.
        let io = [io(0, 100 * US, 2 * MS), io(1, 3 * MS, MS)];
        let jobs = io.into_iter().chain([hog(2).on("0")]).collect();
        let params = host("1n1l1c2t", 250);
        let (outcome, _) = run(&params, cores, Jobs::new(jobs, 1), 0, SEC);
        let wait = |vm: usize| outcome.vms[vm].ready_waits.quantile(0.9);
        (wait(1), outcome.vms[0].held)
    };
    let ((kept_out, _), (let_in, held)) = (waits(false), waits(true));
    // Never for longer than the other computes.
    assert!(let_in <= 101 * US && kept_out > MS, "{let_in} {kept_out}");
    assert!(held > 100 * MS, "{held}");
}

/// What was counted for the I/O-bound hardware thread of one core within a second.
fn counted(cores: Cores, jobs: Vec<Job>) -> HoldCounters {
    let counted = Rc::clone(&cores.counted);
    run(&host("1n1l1c2t", 250), cores, Jobs::new(jobs, 1), 0, SEC);
    counted.get()
}

#[test]
fn holds_are_counted_by_how_they_end() {
    let beside = |sleep, hold| {
        let cores = Cores::new("1n1l1c2t", 1, hold);
        counted(cores, vec![io(0, 100 * US, sleep), hog(1), hog(2)])
    };
    // Back after 0.9 ms, of 3 ms that it may take.
    let in_time = beside(900 * US, 3 * MS);
    assert!((998..=1000).contains(&in_time.begun), "{in_time:?}");
    assert_eq!((in_time.expired, in_time.gave_way), (0, 0));
    assert_eq!(in_time.longest, 900 * US);
    assert_eq!(in_time.length, in_time.woke * 900 * US);
    // After 9.9, of 2.
    let too_late = beside(9_900 * US, 2 * MS);
    assert!((98..=100).contains(&too_late.begun), "{too_late:?}");
    assert_eq!((too_late.woke, too_late.gave_way), (0, 0));
    assert_eq!(too_late.length, too_late.expired * 2 * MS);
    // A hold that gives way to another vCPU, which now and then computes for long.
    let mut cores = Cores::new("1n1l1c2t", 2, 5 * MS);
    cores.gives_way = true;
    let io = [io(0, 100 * US, 2 * MS), io(1, 3 * MS, MS)];
    let jobs = io.into_iter().chain([hog(2).on("0")]).collect();
    let gave_way = counted(cores, jobs);
    assert!(
        gave_way.gave_way > 100 && gave_way.longest <= 2 * MS,
        "{gave_way:?}"
    );
}

/// For which part of the time two tasks of different kinds share the core, according to `runs`: of
/// four tasks the first two are of one kind.
fn opposites(runs: &[(Nanos, PcpuId, TaskId)]) -> f64 {
    let mut there = [None; 2];
    let (mut since, mut opposite) = (0, 0);
    for &(now, cpu, task) in runs {
        if there[0] != there[1] {
            opposite += now - since;
        }
        there[cpu.index()] = Some(task.index() / 2);
        since = now;
    }
    opposite as f64 / since as f64
}

#[test]
fn a_vcpu_that_gets_along_goes_first_but_none_waits_for_ever_for_it() {
    // Two that always execute and two that miss the caches, all CPU-bound on one core: the other hardware thread is
    // lent.
    let demand = |alone, wait, miss| Demand { alone, wait, miss };
    let done = |demands: [Demand; 2]| {
        let mut cores = Cores::new("1n1l1c2t", 0, 0);
        cores.demands = [[demands[0]; 2], [demands[1]; 2]].concat();
        let jobs = (0..4).map(hog).collect();
        let params = host("1n1l1c2t", 250);
        let (outcome, runs) = run(&params, cores, Jobs::new(jobs, 1), 0, 2 * SEC);
        let shares = run_shares(&outcome);
        let fair = |share: &f64| (share - 0.5).abs() < 0.02;
        assert!(shares.iter().all(fair), "{shares:?}");
        opposites(&runs)
    };
    let (base, misses) = (demand(1370, 10, 5), demand(1370, 10, 70));
    let told = done([base, misses]);
    assert!(told > 0.7, "{told}");
    // A vCPU that gets along with all others is not preferred for ever.
    done([demand(1200, 10, 5), misses]);
}

#[test]
fn whatever_a_hold_gave_way_to_the_vcpu_pays_for_no_more_than_it_had() {
    // Three on the I/O-bound hardware thread, each halted for longer than the others compute: one hold after the other
    // begins and gives way before its vCPU is back.
    let mut cores = Cores::new("1n1l1c2t", 3, 5 * MS);
    cores.gives_way = true;
    let counted = Rc::clone(&cores.counted);
    let io = (0..3).map(|n| io(n, 200 * US, (4 + u64::from(n)) * MS));
    let jobs = io.chain([hog(3).on("0")]).collect();
    let params = host("1n1l1c2t", 250);
    let (outcome, _) = run(&params, cores, Jobs::new(jobs, 1), 0, SEC);
    let charged: Nanos = outcome.vms.iter().map(|vm| vm.held).sum();
    let holds = counted.get();
    assert!(holds.gave_way > 200, "{holds:?}");
    // Some are still halted: for those it is not known how long it will be.
    assert!(
        charged.abs_diff(holds.length) <= 15 * MS,
        "{charged} {holds:?}"
    );
}

pub(super) fn any_job() -> impl Strategy<Value = (Does, u32)> {
    let cycles = (20u64..5000, 20u64..20_000).prop_map(|(work, sleep)| Does::Cycles {
        work: work * US,
        sleep: sleep * US,
        spread: 50,
    });
    let does = prop_oneof![3 => cycles, 1 => Just(Does::Hog { from: 0 })];
    (does, prop::sample::select(vec![30u32, 100, 300]))
}

/// What each of these VMs gets of one core for which they have these cookies: thousandths of a pCPU.
fn of_a_core(cookies: &[u32], homes: bool) -> Vec<u64> {
    let mut cores = Cores::new("1n1l1c2t", 1, MS);
    (cores.cookies, cores.homes) = (cookies.to_vec(), homes);
    let jobs = (0..cookies.len()).map(|vm| hog(vm as u32)).collect();
    let params = host("1n1l1c2t", 250);
    let (outcome, _) = run(&params, cores, Jobs::new(jobs, 1), 0, 2 * SEC);
    let share = |share: &f64| (share * 1_000.0) as u64;
    run_shares(&outcome).iter().map(share).collect()
}

#[test]
fn vms_with_different_cookies_have_a_core_by_turns() {
    for homes in [true, false] {
        let together = of_a_core(&[5, 5], homes);
        assert!(together.iter().all(|share| *share > 980), "{together:?}");
        let by_turns = of_a_core(&[5, 6], homes);
        // No task on the SMT sibling, each for half of the time.
        assert!(by_turns.iter().sum::<u64>() >= 980, "{by_turns:?}");
        assert!(by_turns.iter().all(|share| *share > 400), "{by_turns:?}");
        let three = of_a_core(&[5, 6, 5], homes);
        assert!(three.iter().all(|share| *share > 200), "{three:?}");
    }
}

/// Runs `jobs`, three vCPUs to a VM, for a second: all of them get to run.
fn nobody_starves(
    sched: Cores,
    jobs: &[(Does, u32)],
    cores: u32,
    seed: u64,
) -> Result<(), TestCaseError> {
    let vcpu = |(number, (does, weight)): (usize, &(Does, u32))| {
        let job = Job::new(does.clone()).weight(*weight);
        job.vcpu(number as u32 / 3, number as u32 % 3)
    };
    let jobs: Vec<Job> = jobs.iter().enumerate().map(vcpu).collect();
    let params = host(&format!("1n1l{cores}c2t"), 250);
    let (outcome, _) = run(&params, sched, Jobs::new(jobs, seed), 0, SEC);
    for (name, _, totals) in &outcome.tasks {
        prop_assert!(totals.run > 0, "{name} never ran");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever they do, with homes or without: at no event are there two cookies on a core, and no task starves.
    #[test]
    fn no_core_is_shared_across_cookies(
        jobs in prop::collection::vec(any_job(), 1..14),
        cores in 1u32..4,
        io in 0usize..14,
        hold in 0u64..5,
        gives_way: bool,
        homes: bool,
        cookies in prop::collection::vec(0u32..3, 5),
        seed: u64,
    ) {
        let mut sched = Cores::new(&format!("1n1l{cores}c2t"), io, hold * MS);
        (sched.gives_way, sched.homes, sched.cookies) = (gives_way, homes, cookies);
        nobody_starves(sched, &jobs, cores, seed)?;
    }

    /// Whatever they do: see [`Cores::check`]; and no task starves.
    #[test]
    fn holds_end_and_nobody_idles_beside_work(
        jobs in prop::collection::vec(any_job(), 1..14),
        cores in 1u32..4,
        io in 0usize..14,
        hold in 0u64..5,
        both: bool,
        gives_way: bool,
        seed: u64,
    ) {
        let mut sched = Cores::new(&format!("1n1l{cores}c2t"), io, hold * MS);
        (sched.both, sched.gives_way) = (both, gives_way);
        nobody_starves(sched, &jobs, cores, seed)?;
    }
}
