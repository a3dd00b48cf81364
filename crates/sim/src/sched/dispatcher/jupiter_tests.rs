// SPDX-License-Identifier: GPL-2.0-only
//! What Jupiter owes every VM on whatever host: its share, and plain balance where it is off.

use super::Dispatcher;
use crate::Simulation;
use crate::host::{Observer, Task, TaskState};
use crate::testing::{Does, Job, Jobs, Runs, Witness, host};
use corun_model::time::{MS, SEC};
use corun_model::{Doing, Nanos, PcpuId, Plan, Snapshot, TaskId, VmId};
use corun_policies::jupiter::{Jupiter, JupiterParams};
use corun_policies::{Balance, Policy, Settings, find};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

const PERIOD: Nanos = 100 * MS;

/// A VM: what it weighs, and what its vCPUs do.
#[derive(Clone, Debug)]
struct Guest {
    weight: u32,
    vcpus: Vec<Does>,
}

/// A VM with `vcpus` vCPUs that all compute, that compute and sleep, or of which each wakes the next one.
fn any_guest(vcpus: usize) -> impl Strategy<Value = Guest> {
    let sleeper = (MS / 10..20 * MS, MS / 10..60 * MS).prop_map(|(work, sleep)| Does::Cycles {
        work,
        sleep,
        spread: 50,
    });
    let link = (MS / 10..5 * MS).prop_map(|work| Does::Hands {
        work,
        to: 0,
        first: false,
    });
    let vcpus = prop_oneof![
        Just(vec![Does::Hog { from: 0 }; vcpus]),
        prop::collection::vec(sleeper, vcpus),
        prop::collection::vec(link, vcpus),
    ];
    (50u32..800, vcpus).prop_map(|(weight, vcpus)| Guest { weight, vcpus })
}

/// A host of 1 to 8 pCPUs with 2 to 5 VMs that have a vCPU for each: with fewer, what a VM may have is up to which
/// others are on the same pCPUs.
fn any_host() -> impl Strategy<Value = (u32, Vec<Guest>)> {
    (1u32..=8).prop_flat_map(|pcpus| {
        let guests = prop::collection::vec(any_guest(pcpus as usize), 2..=5);
        (Just(pcpus), guests)
    })
}

/// The load of these VMs; links of chains are closed to rings.
fn load(guests: &[Guest], seed: u64) -> Jobs {
    let mut jobs = Vec::new();
    for (vm, guest) in (0..).zip(guests) {
        let (first, count) = (jobs.len() as u32, guest.vcpus.len() as u32);
        for (number, does) in (0..).zip(&guest.vcpus) {
            let does = match does.clone() {
                Does::Hands { work, .. } => Does::Hands {
                    work,
                    to: first + (number + 1) % count,
                    first: number == 0,
                },
                does => does,
            };
            jobs.push(Job::new(does).vcpu(vm, number));
        }
    }
    let weights: Vec<u32> = guests.iter().map(|guest| guest.weight).collect();
    Jobs::new(jobs, seed).with_vm_weights(&weights)
}

/// What a VM's vCPUs did in a tenth of a second, ns.
#[derive(Clone, Copy, Debug, Default)]
struct Did {
    run: Nanos,
    wait: Nanos,
}

/// By VM and tenth.
type Tenths = Rc<RefCell<BTreeMap<VmId, Vec<Did>>>>;

/// Adds up what VMs' vCPUs do, tenth by tenth.
struct Ledger {
    tenths: Tenths,
    since: BTreeMap<TaskId, (VmId, TaskState, Nanos)>,
}

impl Ledger {
    fn book(&self, vm: VmId, state: TaskState, mut from: Nanos, until: Nanos) {
        let mut tenths = self.tenths.borrow_mut();
        let of_vm = tenths.entry(vm).or_default();
        while from < until {
            let at = (from / PERIOD) as usize;
            let end = until.min((at as Nanos + 1) * PERIOD);
            if of_vm.len() <= at {
                of_vm.resize(at + 1, Did::default());
            }
            match state {
                TaskState::Running(_) => of_vm[at].run += end - from,
                TaskState::Waiting => of_vm[at].wait += end - from,
                TaskState::Ready => {}
            }
            from = end;
        }
    }
}

impl Observer for Ledger {
    fn state(&mut self, now: Nanos, id: TaskId, task: &Task, old: TaskState) {
        let Some((vm, _)) = task.spec.vcpu else {
            return;
        };
        let (_, state, since) = self.since.get(&id).copied().unwrap_or((vm, old, 0));
        self.book(vm, state, since, now);
        self.since.insert(id, (vm, task.state, now));
    }

    fn finish(&mut self, now: Nanos) {
        for &(vm, state, since) in self.since.values() {
            self.book(vm, state, since, now);
        }
    }
}

/// What each VM did in each tenth of `length`, under a policy as by default.
fn tenths(policy: &str, pcpus: u32, guests: &[Guest], length: Nanos, seed: u64) -> Vec<Vec<Did>> {
    let policy = (find(policy).unwrap().make)(&Settings::default());
    tenths_under(policy, pcpus, guests, length, seed)
}

/// The same under `policy`.
fn tenths_under(
    policy: Box<dyn Policy>,
    pcpus: u32,
    guests: &[Guest],
    length: Nanos,
    seed: u64,
) -> Vec<Vec<Did>> {
    let tenths = Tenths::default();
    let ledger = Ledger {
        tenths: tenths.clone(),
        since: BTreeMap::new(),
    };
    simulation(pcpus, load(guests, seed), Box::new(ledger), policy).run(0, length, |_| {});
    let mut tenths = tenths.take();
    let vms = (0..guests.len()).map(|vm| tenths.remove(&VmId::from(vm)).unwrap_or_default());
    let whole = (length / PERIOD) as usize;
    vms.map(|mut tenths| {
        tenths.resize(whole, Did::default());
        tenths
    })
    .collect()
}

fn simulation(
    pcpus: u32,
    load: Jobs,
    observer: Box<dyn Observer>,
    policy: Box<dyn Policy>,
) -> Simulation {
    let params = host(&format!("1n1l{pcpus}c1t"), 1000);
    let dispatcher: Dispatcher = Dispatcher::new(corun_model::DispatcherParams::default(), &params);
    Simulation::new(params, Box::new(dispatcher), Box::new(load), Some(observer))
        .with_policy(policy)
}

/// By VM and period: what it gives of what it is entitled to, as a loan or to repay one; thousandths.
type Given = Arc<Mutex<BTreeMap<VmId, Vec<u64>>>>;

/// Jupiter, of which is booked what VMs give. A period of its is a tenth.
struct Booked {
    jupiter: Jupiter,
    given: Given,
}

impl Policy for Booked {
    fn period(&self) -> Nanos {
        self.jupiter.period()
    }

    fn decide(&mut self, seen: &Snapshot, plan: &mut Plan) {
        self.jupiter.decide(seen, plan);
        let mut given = self.given.lock().unwrap();
        for vm in self.jupiter.status().vms {
            let of_vm = given.entry(vm.vm).or_default();
            of_vm.resize((seen.now / PERIOD) as usize, 0);
            of_vm.push(vm.loan.min(0).unsigned_abs());
        }
    }
}

/// The window, in tenths.
const WINDOW: usize = 20;

/// What a VM is due by weight of what all pCPUs do in `length`, ns.
fn share(pcpus: u32, guests: &[Guest], vm: &Guest, length: Nanos) -> Nanos {
    let whole: u64 = guests.iter().map(|guest| u64::from(guest.weight)).sum();
    let share = u64::from(pcpus) * length * u64::from(vm.weight) / whole;
    share.min(vm.vcpus.len() as u64 * length)
}

/// What VMs besides `but` may take beyond their shares whose vCPUs take turns: they want one pCPU's time at most, and
/// have their whole weight on each pCPU, where others have a part of theirs
/// (`a_vm_whose_vcpus_take_turns_has_more_than_its_share`).
fn taken_in_turns(pcpus: u32, guests: &[Guest], but: usize, length: Nanos) -> Nanos {
    let whole: u64 = guests.iter().map(|guest| u64::from(guest.weight)).sum();
    let pcpus_there = u64::from(pcpus);
    let takes = |guest: &Guest| {
        let own = u64::from(guest.weight);
        let beside = (whole - own) / pcpus_there;
        let has = length.min(pcpus_there * length * own / (own + beside));
        has.saturating_sub(share(pcpus, guests, guest, length))
    };
    let others = guests.iter().enumerate().filter(|(vm, _)| *vm != but);
    others
        .map(|(_, guest)| guest)
        .filter(|guest| matches!(guest.vcpus[0], Does::Hands { .. }))
        .map(takes)
        .sum()
}

/// The most by which a VM lacks, in any window of two seconds after the first two under Jupiter, what its weight gives
/// it, others do not take in turns, it does not give itself, and its vCPUs wanted; share of what it is due, and which
/// VM it is.
fn worst(pcpus: u32, guests: &[Guest], seed: u64) -> (f64, String) {
    let given = Given::default();
    let policy = Booked {
        jupiter: Jupiter::default(),
        given: given.clone(),
    };
    let did = tenths_under(Box::new(policy), pcpus, guests, 6 * SEC, seed);
    let length = WINDOW as Nanos * PERIOD;
    let mut worst = (0.0, String::new());
    for (vm, (guest, did)) in guests.iter().zip(&did).enumerate() {
        let share = share(pcpus, guests, guest, length);
        let left = share.saturating_sub(taken_in_turns(pcpus, guests, vm, length));
        let given = &given.lock().unwrap()[&VmId::from(vm)];
        for (from, window) in did.windows(WINDOW).enumerate().skip(WINDOW) {
            let run: Nanos = window.iter().map(|did| did.run).sum();
            // What it lends it does not want, mostly.
            let waived: Nanos = (window.iter().zip(&given[from..]))
                .map(|(did, given)| did.wait.max(share / WINDOW as Nanos * given / 1000))
                .sum();
            let due = left.saturating_sub(waived);
            let lacks = due.saturating_sub(run) as f64 / share as f64;
            if lacks > worst.0 {
                let vm_and_time = format!("VM {vm} from {from}: {run} of {due} of {share}");
                worst = (lacks, vm_and_time);
            }
        }
    }
    worst
}

/// Jupiter, which sees in its first period something else than it expected: off for all from then on.
struct Off {
    jupiter: Jupiter,
    misled: bool,
}

impl Off {
    fn new() -> Self {
        let params = JupiterParams {
            wrong: 1,
            right: u32::MAX,
            ..JupiterParams::default()
        };
        Self {
            jupiter: Jupiter::new(params),
            misled: false,
        }
    }
}

impl Policy for Off {
    fn period(&self) -> Nanos {
        self.jupiter.period()
    }

    fn decide(&mut self, seen: &Snapshot, plan: &mut Plan) {
        let mut seen = seen.clone();
        if seen.now == PERIOD {
            for vcpu in seen.vms.iter_mut().flat_map(|vm| &mut vm.vcpus) {
                vcpu.run = PERIOD;
                vcpu.turns.doing = Doing::Running;
            }
            self.misled = true;
        }
        self.jupiter.decide(&seen, plan);
        let alone = self.jupiter.status().vms.iter().all(|vm| !vm.enforced);
        assert_eq!(alone, self.misled, "{}", seen.now);
    }
}

/// Which vCPU began to run where and when, of VMs that begin when Jupiter is off.
fn switches(
    pcpus: u32,
    guests: &[Guest],
    seed: u64,
    policy: Box<dyn Policy>,
) -> Vec<(Nanos, PcpuId, TaskId)> {
    let runs = Runs::default();
    let witness = Box::new(Witness(runs.clone()));
    let load = load(guests, seed).beginning_at(PERIOD + MS);
    simulation(pcpus, load, witness, policy).run(0, SEC, |_| {});
    runs.take()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever VMs do and weigh: none has less, in any two seconds, than four fifths of its share, minus what it
    /// did not want, what it lends or repays, and what others take in turns. (For cgroups on a host that is not
    /// full virtual time goes slowly, and a sleeper's credit is worth that much more: docs/limits.md.)
    #[test]
    fn every_vm_has_its_share_in_every_window((pcpus, guests) in any_host(), seed: u64) {
        let (lacks, vm_and_time) = worst(pcpus, &guests, seed);
        prop_assert!(lacks <= 0.2, "{lacks}: {vm_and_time}");
    }

    /// Off, it still predicts, and the dispatcher does what it does under balance: the same vCPU on the same
    /// pCPU at the same time, nothing of what it was told before left.
    #[test]
    fn where_jupiter_is_off_all_runs_as_under_balance((pcpus, guests) in any_host(), seed: u64) {
        let off = switches(pcpus, &guests, seed, Box::new(Off::new()));
        prop_assert!(off.len() > 10);
        let balance = switches(pcpus, &guests, seed, Box::new(Balance));
        let apart = off.iter().zip(&balance).find(|(off, balance)| off != balance);
        prop_assert!(off == balance, "{apart:?}");
    }
}

/// The test above would see a difference: on, it does not do as balance.
#[test]
fn where_jupiter_is_on_all_does_not_run_as_under_balance() {
    let sleeper = Does::Cycles {
        work: 5 * MS,
        sleep: 20 * MS,
        spread: 50,
    };
    let hog = Does::Hog { from: 0 };
    let guests = [vec![hog.clone(), sleeper], vec![hog.clone(), hog]];
    let guests = guests.map(|vcpus| Guest { weight: 100, vcpus });
    let on = switches(2, &guests, 1, Box::new(Jupiter::default()));
    assert_ne!(on, switches(2, &guests, 1, Box::new(Balance)));
}

/// What fair order does not see, whichever policy is asked: of three VMs, one computes on both pCPUs, and the vCPUs
/// of the others hand work to each other, so that the whole weight of those is on whichever pCPU one of them wants.
/// The one that computes lacks an eighth under plain balance, and less under Jupiter.
#[test]
fn a_vm_whose_vcpus_take_turns_has_more_than_its_share() {
    let link = |work| Does::Hands {
        work,
        to: 0,
        first: false,
    };
    let guest = |weight, vcpus| Guest { weight, vcpus };
    let guests = [
        guest(526, vec![Does::Hog { from: 0 }; 2]),
        guest(215, vec![link(1_781_028), link(757_158)]),
        guest(369, vec![link(1_231_968), link(3_620_153)]),
    ];
    let lacks = |policy| {
        let did = tenths(policy, 2, &guests, 20 * SEC, 1);
        let run: Nanos = did[0].iter().map(|did| did.run).sum();
        let share = 2 * 20 * SEC * 526 / (526 + 215 + 369);
        share.saturating_sub(run) as f64 / share as f64
    };
    let (balance, jupiter) = (lacks("balance"), lacks("jupiter"));
    assert!((0.1..0.2).contains(&balance), "{balance}");
    assert!(jupiter < 0.5 * balance, "{jupiter}, {balance}");
}
