// SPDX-License-Identifier: GPL-2.0-only
use super::*;
use corun_model::time::MS;
use proptest::prelude::*;

/// Entitled to 100 ms of up to 400. A VM that wants more could use all of them.
fn vm(vm: u32, used: Nanos, wants: bool) -> VmUse {
    VmUse {
        vm: VmId(vm),
        on: true,
        allowed: PcpuSet::first(4),
        entitled: 100 * MS,
        most: if wants { 400 * MS } else { used * MS },
        used: used * MS,
        halted: (400 - used) * MS,
        wants,
        conflicts: 0,
    }
}

fn step(bank: &mut Bank, vms: &[VmUse]) -> Vec<(u32, u32, Nanos, bool)> {
    let transfers = bank.settle(vms, &JupiterParams::default()).iter();
    let plain = |t: &Transfer| (t.from.0, t.to.0, t.amount / MS, t.repays);
    transfers.map(plain).collect()
}

/// Lends 1 ms more each period.
fn lent_for(periods: u64) -> Bank {
    let mut bank = Bank::default();
    for period in 0..periods {
        let vms = [vm(0, 80, false), vm(1, 100 + period, true)];
        assert_eq!(step(&mut bank, &vms), [(0, 1, period + 1, false)]);
    }
    bank
}

#[test]
fn a_loan_grows_gradually_and_no_further_than_what_is_unused() {
    let mut bank = lent_for(20);
    let vms = [vm(0, 80, false), vm(1, 120, true)];
    assert_eq!(step(&mut bank, &vms), [(0, 1, 20, false)]);
    assert_eq!(step(&mut bank, &vms), [(0, 1, 20, false)]);
}

/// What is under way when it goes would be owed to it at the end of the period.
#[test]
fn a_vm_that_has_gone_is_owed_nothing() {
    let mut bank = lent_for(5);
    let stays = vm(1, 105, true);
    bank.forget_all_but(&BTreeSet::from([stays.vm]));
    step(&mut bank, &[stays]);
    let (totals, owed) = bank.totals();
    assert_eq!((owed, totals.lent), (0, totals.repaid + totals.written_off));
}

/// What it used when Jupiter went off for it counts; then it takes part in nothing, and its debts stay.
#[test]
fn a_borrower_that_goes_off_owes_what_it_used_of_its_last_loan() {
    let mut bank = lent_for(5);
    let (_, before) = bank.totals();
    let off = VmUse {
        on: false,
        ..vm(1, 105, true)
    };
    assert_eq!(step(&mut bank, &[vm(0, 80, false), off]), []);
    let (_, owed) = bank.totals();
    assert_eq!(owed, before + 5 * MS);
    assert_eq!(step(&mut bank, &[vm(0, 100, true), off]), []);
    assert_eq!(bank.totals().1, owed);
    let back = step(&mut bank, &[vm(0, 100, true), vm(1, 80, true)]);
    assert_eq!(back, [(1, 0, owed / MS, true)]);
}

/// A simple bucket (§4.3): in one step, all that is left.
#[test]
fn in_steps_of_all_that_there_is_what_is_left_is_lent_at_once() {
    let at_once = JupiterParams {
        loan_step: 100,
        ..JupiterParams::default()
    };
    let vms = [vm(0, 80, false), vm(1, 120, true)];
    let mut bank = Bank::default();
    let lent = bank.settle(&vms, &at_once).iter().map(|t| t.amount / MS);
    assert_eq!(lent.collect::<Vec<_>>(), [20]);
}

/// A VM that is never halted wants all it can get, whatever it is said to be entitled to.
#[test]
fn no_more_is_lent_than_halted_vcpus_leave() {
    for (halted, lent) in [(0, 0), (7, 7), (50, 20)] {
        let mut bank = Bank::default();
        let lender = VmUse {
            halted: halted * MS,
            ..vm(0, 80, false)
        };
        let last = (0..30).map(|_| step(&mut bank, &[lender, vm(1, 100 + lent, true)]));
        let amount = last.last().unwrap().first().map_or(0, |loan| loan.2);
        assert_eq!(amount, lent, "{halted} ms");
    }
}

#[test]
fn a_bucket_is_no_deeper_than_ten_periods() {
    let vms = [vm(0, 80, false), vm(1, 120, true)];
    let mut bank = Bank::default();
    let lent = (0..100).filter(|_| !step(&mut bank, &vms).is_empty());
    // 190 ms until the loan is 20 ms, then 41 more periods: 1010 ms of 1000.
    assert_eq!(lent.count(), 60);
}

/// §4.4.2: from 5 % on the lender is harmed.
#[test]
fn a_lender_that_uses_5_percent_less_than_before_halves_its_loan() {
    for (used, then) in [(76, 9), (75, 4)] {
        let mut bank = lent_for(8);
        let vms = [vm(0, used, false), vm(1, 108, true)];
        assert_eq!(step(&mut bank, &vms), [(0, 1, then, false)]);
    }
}

/// It wants less for good: the loan is halved until it is over, and then it lends what it leaves.
#[test]
fn a_lender_whose_demand_falls_lends_again() {
    let mut bank = lent_for(20);
    let vms = [vm(0, 20, false), vm(1, 120, true)];
    let lent = (0..30).map(|_| step(&mut bank, &vms).first().map_or(0, |loan| loan.2));
    let lent: Vec<Nanos> = lent.collect();
    assert_eq!(lent[..6], [10, 5, 2, 1, 0, 1]);
    assert!(lent[29] > 20, "{lent:?}");
}

#[test]
fn the_vm_with_the_fewest_conflicts_borrows() {
    let conflicting = |number, conflicts| VmUse {
        conflicts,
        ..vm(number, 100, true)
    };
    let vms = [vm(0, 40, false), conflicting(1, 7), conflicting(2, 3)];
    assert_eq!(step(&mut Bank::default(), &vms), [(0, 2, 1, false)]);
}

/// Otherwise the first of them would borrow from all, and owe all of them at once.
#[test]
fn of_vms_with_as_few_conflicts_the_one_borrows_that_owes_least() {
    let lenders = [vm(0, 80, false), vm(1, 80, false)];
    let all = |more: [Nanos; 2]| {
        let borrowers = [vm(2, 100 + more[0], true), vm(3, 100 + more[1], true)];
        [&lenders[..], &borrowers].concat()
    };
    let mut bank = Bank::default();
    let first = step(&mut bank, &all([0, 0]));
    assert_eq!(first, [(0, 2, 1, false), (1, 3, 1, false)]);
    // VM 2 owes a millisecond from now on. A third lender comes, and lends to the other one.
    let late = [&all([1, 0])[..], &[vm(4, 80, false)]].concat();
    assert_eq!(step(&mut bank, &late)[2], (4, 3, 1, false));
}

#[test]
fn nothing_is_lent_to_a_vm_that_may_not_use_those_pcpus() {
    let elsewhere = VmUse {
        allowed: "4-7".parse().unwrap(),
        ..vm(1, 100, true)
    };
    let mut bank = Bank::default();
    assert!(step(&mut bank, &[vm(0, 40, false), elsewhere]).is_empty());
    let vms = [vm(0, 40, false), vm(1, 100, true)];
    assert_eq!(step(&mut bank, &vms), [(0, 1, 1, false)]);
    assert!(
        step(&mut bank, &[vm(0, 40, false), elsewhere]).is_empty(),
        "moved away"
    );
}

#[test]
fn what_was_used_of_a_loan_is_repaid_when_the_lender_wants_more() {
    let mut bank = lent_for(8);
    // 1 to 7 ms were used in the periods after the first, 8 now.
    let vms = [vm(0, 100, true), vm(1, 108, false)];
    assert_eq!(step(&mut bank, &vms), [(1, 0, 36, true)]);
    let vms = [vm(0, 130, true), vm(1, 100, false)];
    assert_eq!(step(&mut bank, &vms), [(1, 0, 6, true)]);
    let vms = [vm(0, 106, true), vm(1, 100, false)];
    assert_eq!(step(&mut bank, &vms), [(1, 0, 0, false); 0]);
}

/// A borrower that went without what it owed has repaid it, even if the lender had no use for it: others had the time.
#[test]
fn a_debt_costs_the_borrower_no_more_than_what_is_owed() {
    let lender = vm(0, 100, true);
    let owes = [(1, 0, 36, true)];
    let after = |borrower| {
        let mut bank = lent_for(8);
        assert_eq!(step(&mut bank, &[lender, vm(1, 108, true)]), owes);
        step(&mut bank, &[lender, borrower])
    };
    assert_eq!(after(vm(1, 64, true)), []);
    assert_eq!(after(vm(1, 90, true)), [(1, 0, 26, true)]);
    // It did not go without: it has what it is entitled to, or wants no more (and lends what it leaves).
    assert_eq!(after(vm(1, 100, true)), owes);
    assert_eq!(after(vm(1, 20, false)), [(1, 0, 1, false), owes[0]]);
}

/// A debtor that leaves nearly all to all others repays from what it keeps, even if what others leave has raised what it is
/// entitled to since.
#[test]
fn who_leaves_time_to_all_does_not_repay_from_that() {
    let mut bank = lent_for(8);
    let sleeps = |entitled: Nanos| VmUse {
        entitled: entitled * MS,
        ..vm(1, 0, false)
    };
    for _ in 0..200 {
        step(&mut bank, &[vm(0, 100, false), sleeps(100)]);
    }
    assert_eq!(bank.keeps(VmId(1)), Some(0));
    let repaid = step(&mut bank, &[vm(0, 100, true), sleeps(300)]);
    assert_eq!(repaid, []);
}

/// One thread of it is busy, and it could use 90 ms at most: nothing comes back. If it has nearly all of them, it lends
/// what even that leaves, and nothing if it is short of them.
#[test]
fn nothing_is_repaid_to_a_vm_that_cannot_use_more_than_its_own() {
    let one_busy = |number, used, most| VmUse {
        most: most * MS,
        ..vm(number, used, true)
    };
    let mut bank = lent_for(8);
    let vms = [one_busy(0, 85, 90), vm(1, 108, true)];
    assert!(step(&mut bank, &vms).is_empty());
    let mut bank = lent_for(8);
    for period in 0..5 {
        let vms = [one_busy(0, 86, 90), vm(1, 108, true)];
        let lent = (9 + period).min(10);
        assert_eq!(step(&mut bank, &vms), [(0, 1, lent, false)]);
    }
    // Of what it can use beyond its own, and no more: what it uses of that is repaid.
    let (_, owed) = bank.totals();
    let vms = [one_busy(0, 100, 115), vm(1, 110, false)];
    assert_eq!(step(&mut bank, &vms), [(1, 0, 15, true)]);
    step(&mut bank, &[one_busy(0, 115, 115), vm(1, 80, false)]);
    let (totals, still) = bank.totals();
    assert_eq!(totals.repaid, 15 * MS);
    assert!(owed > 15 * MS && still + totals.repaid == totals.lent);
}

#[test]
fn nothing_is_lent_to_a_vm_that_cannot_use_more_than_its_own() {
    let full = VmUse {
        most: 100 * MS,
        ..vm(1, 100, true)
    };
    let vms = [vm(0, 40, false), full, vm(2, 100, true)];
    assert_eq!(step(&mut Bank::default(), &vms), [(0, 2, 1, false)]);
}

#[test]
fn debts_of_a_vm_that_has_gone_are_written_off() {
    let mut bank = lent_for(8);
    // Jupiter is off for the borrower, and then it has gone.
    step(&mut bank, &[vm(0, 100, true)]);
    assert_eq!(bank.totals().1, 28 * MS);
    bank.forget_all_but(&[VmId(0)].into());
    let (totals, owed) = bank.totals();
    assert_eq!((totals.written_off, totals.repaid, owed), (28 * MS, 0, 0));
}

proptest! {
    /// Nothing is lent twice, nothing is made or lost, everything is owed, repaid or written off.
    #[test]
    fn loans_are_conserved(
        periods in prop::collection::vec(
            prop::collection::vec((0u64..400, any::<bool>(), 0u64..400, 0u64..10, 0u32..16), 5), 1..60),
    ) {
        let mut bank = Bank::default();
        let mut lent = (0, 0);
        for period in periods {
            let vms: Vec<VmUse> = period
                .into_iter()
                .enumerate()
                .filter(|(_, (.., here))| *here > 0)
                .map(|(n, (used, wants, more, conflicts, here))| VmUse {
                    conflicts,
                    on: here > 2,
                    most: if wants { (used + more).min(400) } else { used } * MS,
                    ..vm(n as u32, used, wants)
                })
                .collect();
            // What those that are still here used of what was agreed on, loans last or first.
            for vm in &vms {
                let to_it = || bank.agreed.iter().filter(|t| t.to == vm.vm);
                let loans: Nanos = to_it().filter(|t| !t.repays).map(|t| t.amount).sum();
                let all: Nanos = to_it().map(|t| t.amount).sum();
                let used = vm.used_beyond().min(all);
                lent.0 += used.saturating_sub(all - loans);
                lent.1 += used.min(loans);
            }
            bank.close(&vms, &JupiterParams::default());
            let booked = bank.totals().0.lent;
            prop_assert!((lent.0..=lent.1).contains(&booked), "{} of {:?}", booked, lent);
            let has = bank.agree(&vms, &JupiterParams::default());
            let transfers = &bank.agreed;
            let (totals, owed) = bank.totals();
            prop_assert_eq!(totals.lent, totals.repaid + totals.written_off + owed);
            prop_assert_eq!(has.iter().sum::<Nanos>(), 100 * MS * vms.len() as u64);
            for (vm, has) in vms.iter().zip(has) {
                prop_assert!(vm.on || has == vm.entitled);
                prop_assert!(has <= vm.most.max(vm.entitled), "{} of {}", has, vm.most);
                let sum = |side: fn(&Transfer) -> VmId| -> Nanos {
                    let those = transfers.iter().filter(|t| side(t) == vm.vm);
                    those.map(|t| t.amount).sum()
                };
                prop_assert_eq!(has + sum(|t| t.from), vm.entitled + sum(|t| t.to));
                let lent = transfers.iter().filter(|t| t.from == vm.vm && !t.repays);
                let lent: Vec<Nanos> = lent.map(|t| t.amount).collect();
                let slack = vm.entitled.saturating_sub(vm.used).min(vm.halted);
                prop_assert!(lent.len() <= 1 && lent.iter().all(|&lent| lent <= slack));
                prop_assert!(lent.iter().all(|&lent| vm.most + lent <= vm.entitled));
            }
        }
    }
}
