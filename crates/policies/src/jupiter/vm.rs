// SPDX-License-Identifier: GPL-2.0-only
//! What Jupiter knows of a VM from period to period, and how its parts act on that.

use super::dasl::{self, Limits, Went};
use super::dats::{self, Bounds};
use super::params::JupiterParams;
use super::predict::{self, Outcome, Trust};
use super::scaled;
use crate::usable;
use crate::weighing::PARTS;
use corun_model::{Claim, Doing, Nanos, PcpuId, TaskId, TaskSeen, VmId, VmSeen, Wakers};

/// For how many periods after siblings were seen to wake each other a VM counts as one whose siblings do: even in such
/// a VM they hardly do in some periods.
pub(super) const LATELY: u32 = 10;

/// A VM.
#[derive(Clone, Debug)]
pub(super) struct Vm {
    id: VmId,
    vcpus: Vec<Vcpu>,
    /// What its vCPUs weigh by themselves, together.
    own: u64,
    /// Does it have a weight of its own, which those of its vCPUs that want to run share?
    has_weight: bool,
    /// How their last period went.
    went: Vec<Went>,
    /// Which of them were cut off in it because they had used up their slices.
    depleted: Vec<bool>,
    /// What they used in it, together.
    used: Nanos,
    /// What they weigh by themselves, scaled to the same total as [`Self::weights`].
    rest: Vec<u64>,
    /// Weights and latencies, vCPU by vCPU, as the parts take them.
    weights: Vec<u64>,
    latencies: Vec<Nanos>,
    entitled: Nanos,
    /// What it may use of a period, loans included.
    has: Nanos,
    /// What it leaves of that to all others, because its bucket is full.
    leaves: Nanos,
    trust: Trust,
    /// Does hardware hide which tasks wake its vCPUs?
    hidden: bool,
    /// Periods since siblings were seen to wake each other, up to [`LATELY`].
    unseen: u32,
}

/// One of its vCPUs.
#[derive(Clone, Debug)]
struct Vcpu {
    task: TaskId,
    /// What it weighs by itself: the dispatcher multiplies its share by that.
    own: u64,
    /// What it may use in the period, ns; 0: it has had no slice yet.
    slice: Nanos,
    /// What it is expected to use.
    predicted: Nanos,
    /// What it used in the last period.
    used: Nanos,
    /// How long it was halted then.
    halted: Nanos,
    /// How long it wanted to run then.
    wanted: Nanos,
    /// What it could have used at most, by itself.
    most: Nanos,
    /// Could it have used more than its slice? Also true if it did use more because it was not cut
    /// off.
    wants: bool,
    conflicts: u64,
    /// Where it should be in this period, if it was swapped.
    home: Option<PcpuId>,
}

/// What a vCPU claims in the next period.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimed {
    pub task: TaskId,
    pub claim: Claim,
    pub home: Option<PcpuId>,
    /// The factor on its own weight, without loans; [`Claim::NEUTRAL`] is 1.
    pub weight: u64,
}

/// What a vCPU weighs by itself.
fn own_weight(vcpu: &TaskSeen) -> u64 {
    u64::from(vcpu.weight.max(1))
}

/// What a VM weighs against others, in parts. If it has no weight of its own, its vCPUs count one by one, each with its
/// weight.
pub(super) fn weight_among_vms(seen: &VmSeen) -> u64 {
    let own = || seen.vcpus.iter().map(own_weight).sum::<u64>() * PARTS;
    usable::of_vm(seen).unwrap_or_else(own)
}

/// Where this vCPU is among those of its VM: mostly where its number says, as they are given in sequence.
fn place(seen: &VmSeen, task: TaskId) -> Option<usize> {
    let first = seen.vcpus.first()?.task;
    let is_there = |at: &usize| seen.vcpus.get(*at).is_some_and(|vcpu| vcpu.task == task);
    let in_sequence = task.index().checked_sub(first.index()).filter(is_there);
    in_sequence.or_else(|| seen.vcpus.iter().position(|vcpu| vcpu.task == task))
}

/// How much of a period a vCPU may have out of turn. If it never pauses, others on its pCPU still have a part there: as
/// little as DATS leaves a vCPU of what it had.
pub(super) fn most_out_of_turn(period: Nanos) -> Nanos {
    period - period / dats::FLOOR
}

fn limits(params: &JupiterParams) -> Limits {
    Limits {
        least: params.latency_least,
        neutral: params.latency,
        most: params.latency_most,
        step: params.latency_step,
    }
}

impl Vm {
    /// This VM, which has just come. At first, what each of its vCPUs weighs by itself is also its share of the VM's
    /// time.
    pub fn new(seen: &VmSeen, params: &JupiterParams) -> Self {
        let vcpu = |vcpu: &TaskSeen| Vcpu {
            task: vcpu.task,
            own: own_weight(vcpu),
            slice: 0,
            predicted: 0,
            used: 0,
            halted: 0,
            wanted: 0,
            most: vcpu.most(params.period),
            wants: false,
            conflicts: 0,
            home: None,
        };
        let nothing = Went {
            doing: Doing::Waiting,
            consumed: false,
            wakers: Vec::new(),
            hidden: false,
        };
        let vcpus: Vec<Vcpu> = seen.vcpus.iter().map(vcpu).collect();
        let own: u64 = vcpus.iter().map(|vcpu| vcpu.own).sum();
        let total = dats::NEUTRAL * vcpus.len() as u64;
        let weight = |vcpu: &Vcpu| scaled(total, vcpu.own, own.max(1));
        let rest: Vec<u64> = vcpus.iter().map(weight).collect();
        Self {
            id: seen.vm,
            went: vec![nothing; vcpus.len()],
            depleted: vec![false; vcpus.len()],
            used: 0,
            weights: rest.clone(),
            rest,
            latencies: vec![params.latency; vcpus.len()],
            vcpus,
            own,
            has_weight: false,
            entitled: 0,
            has: 0,
            leaves: 0,
            trust: Trust::default(),
            hidden: false,
            unseen: LATELY,
        }
    }

    /// Are these its vCPUs, and do they weigh that by themselves?
    pub fn is_of(&self, seen: &VmSeen) -> bool {
        let known = self.vcpus.iter().map(|vcpu| (vcpu.task, vcpu.own));
        known.eq((seen.vcpus.iter()).map(|vcpu| (vcpu.task, own_weight(vcpu))))
    }

    pub fn id(&self) -> VmId {
        self.id
    }

    /// Takes over the homes of those vCPUs that this VM had `before`.
    pub fn keep_homes_of(&mut self, before: &Self) {
        for vcpu in &mut self.vcpus {
            let mut same = before.vcpus.iter().filter(|then| then.task == vcpu.task);
            vcpu.home = same.next().and_then(|then| then.home);
        }
    }

    /// Removes homes that their vCPUs may not use.
    pub fn leave_forbidden_homes(&mut self, seen: &VmSeen) {
        for (vcpu, seen) in self.vcpus.iter_mut().zip(&seen.vcpus) {
            vcpu.home = vcpu.home.filter(|home| seen.allowed.contains(*home));
        }
    }

    /// A period is over: no vCPU has a home any more.
    pub fn leave_homes(&mut self) {
        self.vcpus.iter_mut().for_each(|vcpu| vcpu.home = None);
    }

    /// The vCPU `task` should be at `home`.
    pub fn settle(&mut self, task: TaskId, home: PcpuId) {
        for vcpu in self.vcpus.iter_mut().filter(|vcpu| vcpu.task == task) {
            vcpu.home = Some(home);
        }
    }

    /// What its vCPUs did in the period of `passed` ns that is over, and whether it was expected.
    /// `hidden`: hardware hides which task woke which.
    pub fn judge(&mut self, seen: &VmSeen, passed: Nanos, hidden: bool, params: &JupiterParams) {
        self.hidden = hidden;
        self.has_weight = seen.weight.is_some();
        self.used = 0;
        let mut woken_by_siblings = false;
        let each = self.vcpus.iter_mut().zip(&mut self.went);
        for (((vcpu, went), depleted), did) in each.zip(&mut self.depleted).zip(&seen.vcpus) {
            let turns = &did.turns;
            went.wakers.clear();
            if !hidden {
                for waker in turns.wakers.iter().filter_map(|task| place(seen, *task)) {
                    went.wakers.push(waker);
                    woken_by_siblings = true;
                }
            }
            // In that case the task that seems to have woken it was there by accident.
            went.hidden = hidden && turns.wakeups > 0;
            went.doing = turns.doing;
            went.consumed = vcpu.judge(did, passed, params);
            *depleted = vcpu.wants && (turns.depleted > 0 || turns.doing == Doing::Ready);
            self.used += vcpu.used;
        }
        self.unseen = match woken_by_siblings {
            true => 0,
            false => (self.unseen + 1).min(LATELY),
        };
        // What it was expected to do is known once it has had slices: all vCPUs have theirs at once.
        if self.vcpus.first().is_none_or(|vcpu| vcpu.slice > 0) {
            let outcomes = self.vcpus.iter().map(|vcpu| Outcome {
                predicted: vcpu.predicted,
                used: vcpu.used,
                slice: vcpu.slice,
            });
            let right = predict::is_right(outcomes, params.error, params.grain);
            self.trust.learn(right, params.wrong, params.right);
        }
    }

    /// Weights and latencies for the next period. `lack`: some VM does not have its share.
    pub fn adjust(&mut self, lack: bool, params: &JupiterParams) {
        if params.dats {
            self.adjust_weights(params);
        }
        if params.dasl {
            let limits = limits(params);
            match self.has_its_share(params) {
                true => dasl::relax(&mut self.latencies, &self.went, &limits, lack),
                false => dasl::adjust(&mut self.latencies, &self.went, &limits),
            }
        }
    }

    fn adjust_weights(&mut self, params: &JupiterParams) {
        let (total, entitled) = (self.rest.iter().sum(), self.entitled);
        let bounds = |&rest| Bounds::new(rest, total, entitled, params.period);
        let bounds: Vec<Bounds> = self.rest.iter().map(bounds).collect();
        let served = self.has_its_share(params);
        if !served {
            // A vCPU that is ready for long wants much, even if it has little to do; one that still has some of its slice
            // left needs no more weight.
            let own = |rest| scaled(entitled, rest, total.max(1)).min(params.period);
            let each = self.vcpus.iter().zip(&self.depleted).zip(&self.rest);
            let back = each.map(|((vcpu, &depleted), &rest)| depleted && vcpu.wanted >= own(rest));
            let back: Vec<bool> = back.collect();
            dats::give_back(&mut self.weights, &bounds, &back);
        }
        let step = params.weight_step;
        dats::adjust(&mut self.weights, &bounds, &self.depleted, served, step);
    }

    /// Did it use what it is entitled to, or nearly? What it lent counts: it lends what it cannot use.
    fn has_its_share(&self, params: &JupiterParams) -> bool {
        let enough = 100 - u128::from(params.lack.min(100));
        u128::from(self.used()) * 100 >= u128::from(self.entitled) * enough
    }

    /// Could it have used more of its share, had it been served sooner?
    pub fn lacks(&self, params: &JupiterParams) -> bool {
        !self.has_its_share(params) && self.went.iter().any(Went::came_late)
    }

    /// The VM has `has` ns of the next period, of the `entitled` that are its share, and `leaves` some of that unused.
    pub fn allot(&mut self, entitled: Nanos, has: Nanos, leaves: Nanos, params: &JupiterParams) {
        self.entitled = entitled;
        self.has = has;
        self.leaves = leaves;
        // Its vCPUs divide what it borrows as they do the rest. What it lends comes out of what some of them leave;
        // only what is still missing comes out of what all have: it lends what is not used.
        let divided = entitled.max(has);
        let total: u64 = self.weights.iter().sum();
        let part = |weight| scaled(divided, weight, total.max(1));
        let each = self.vcpus.iter().zip(&self.weights).zip(&self.depleted);
        let left = each.map(|((vcpu, &weight), &depleted)| vcpu.leaves(part(weight), depleted));
        let left = left.sum::<Nanos>();
        let lent = (divided - has).min(left);
        let each = self.vcpus.iter_mut().zip(&self.weights);
        for ((vcpu, &weight), &depleted) in each.zip(&self.depleted) {
            let part = part(weight);
            let lent_of_it = scaled(vcpu.leaves(part, depleted), lent, left.max(1));
            let part = scaled(part - lent_of_it, has, (divided - lent).max(1));
            vcpu.slice = part.clamp(1, params.period);
            vcpu.predicted = if depleted {
                vcpu.used.max(vcpu.slice)
            } else {
                vcpu.used
            };
        }
    }

    /// What it has and does not leave to others.
    pub fn keeps(&self) -> Nanos {
        self.has.saturating_sub(self.leaves)
    }

    /// What the slices of its vCPUs keep of a pCPU, without what the VM leaves to others, and whether their latencies
    /// are low ones; vCPU 0 first.
    pub fn slices(&self, params: &JupiterParams) -> impl Iterator<Item = (Nanos, bool)> {
        let limits = limits(params);
        let kept = |slice| match self.leaves {
            0 => slice,
            _ => scaled(slice, self.keeps(), self.has.max(1)),
        };
        let each = self.vcpus.iter().zip(&self.latencies);
        each.map(move |(vcpu, &latency)| (kept(vcpu.slice), limits.is_low(latency)))
    }

    /// What it was entitled to in the last period, without loans; 0: it has just come.
    pub fn entitled(&self) -> Nanos {
        self.entitled
    }

    #[cfg(test)]
    pub fn has(&self) -> Nanos {
        self.has
    }

    #[cfg(test)]
    pub fn total_weight(&self) -> u64 {
        self.weights.iter().sum()
    }

    pub fn is_on(&self) -> bool {
        self.trust.is_on()
    }

    pub fn vcpus(&self) -> u64 {
        self.vcpus.len() as u64
    }

    /// What it used in the last period, ns.
    pub fn used(&self) -> Nanos {
        self.used
    }

    /// How long its vCPUs were halted in the last period, together, ns.
    pub fn halted(&self) -> Nanos {
        self.vcpus.iter().map(|vcpu| vcpu.halted).sum()
    }

    /// Could it have used more, had it had more?
    pub fn wants(&self) -> bool {
        self.vcpus.iter().any(|vcpu| vcpu.wants)
    }

    /// What it could have used of a period in which its pCPUs have `most` for it: what each vCPU that wants more can
    /// use, and what the others used.
    pub fn usable(&self, most: Nanos) -> Nanos {
        let each = |vcpu: &Vcpu| if vcpu.wants { vcpu.most } else { vcpu.used };
        (self.vcpus.iter().map(each).sum::<Nanos>()).min(most)
    }

    /// What it had a claim to in the last period, if it could have used `usable`: no more than it is entitled to.
    pub fn claimed(&self, usable: Nanos) -> Nanos {
        match self.wants() {
            true => self.entitled.min(usable),
            false => self.used,
        }
    }

    /// How often its vCPUs with low latencies were preempted or late, as RCR counts it: thousandths of once
    /// per vCPU, so that a VM with more of them does not count as worse for that.
    pub fn conflicts(&self, params: &JupiterParams) -> u64 {
        let limits = limits(params);
        let each = self.vcpus.iter().zip(&self.latencies);
        let low = each.filter(|(_, latency)| limits.is_low(**latency));
        let sum: u64 = low.map(|(vcpu, _)| vcpu.conflicts).sum();
        sum.saturating_mul(1000) / self.vcpus().max(1)
    }

    /// What wakes its vCPUs. If hardware hides that, a sibling that seems to have done it may have
    /// been there by accident.
    pub fn wakers(&self) -> Wakers {
        match self.unseen {
            _ if self.hidden => Wakers::Hidden,
            0..LATELY => Wakers::Siblings,
            _ => Wakers::Others,
        }
    }

    /// What it has borrowed (lent, if negative), thousandths of what it is entitled to.
    pub fn loan(&self) -> i64 {
        let whole = i64::try_from(self.entitled.max(1)).unwrap_or(i64::MAX);
        let more = i64::try_from(self.has).unwrap_or(i64::MAX) - whole;
        more.saturating_mul(1000) / whole
    }

    /// The part of its entitlement that it has, in fixed point.
    pub fn part(&self) -> u32 {
        match self.entitled {
            0 => Claim::NEUTRAL,
            entitled => {
                let part = scaled(self.has, Claim::NEUTRAL.into(), entitled);
                u32::try_from(part).unwrap_or(u32::MAX)
            }
        }
    }

    /// The factor on what `vcpu` weighs by itself that gives it this weight, relative to its own and to the mean of its
    /// siblings.
    fn factor(&self, vcpu: &Vcpu, weight: u64) -> u64 {
        scaled(weight, self.own, (vcpu.own * self.vcpus()).max(1))
    }

    /// The mean factor of its vCPUs, by how long each of them wanted to run. A VM with a weight of its own has that
    /// weight for the vCPUs that want to run: if their factors were more than 1 in the mean, because siblings that idle
    /// have less, the whole VM would have more than its weight. In a VM without one, they have what siblings that idle
    /// do not.
    fn mean_of_those_that_want(&self) -> u64 {
        let neutral = u64::from(Claim::NEUTRAL);
        if !self.has_weight {
            return neutral;
        }
        let mut sum = 0;
        let mut of = 0;
        for (vcpu, &weight) in self.vcpus.iter().zip(&self.weights) {
            let wanted = u128::from(vcpu.own) * u128::from(vcpu.wanted);
            sum += u128::from(self.factor(vcpu, weight)) * wanted;
            of += wanted;
        }
        let mean = sum
            .checked_div(of)
            .and_then(|mean| u64::try_from(mean).ok());
        mean.unwrap_or(neutral).max(1)
    }

    /// What a vCPU's factor is relative to: the `mean` for the time that it wanted to run, and 1 for the rest. Were it
    /// the mean for all, a vCPU that begins to compute would get far less than its weight says beside a sibling that
    /// computed alone, which has had its VM's weight to itself.
    fn mean_for(&self, vcpu: &Vcpu, mean: u64, period: Nanos) -> u64 {
        let neutral = u64::from(Claim::NEUTRAL);
        let wanted = vcpu.wanted.min(period);
        let sum = mean
            .saturating_mul(wanted)
            .saturating_add(neutral * (period - wanted));
        let relative_to = sum.checked_div(period).unwrap_or(neutral);
        relative_to.max(1)
    }

    /// What its vCPUs claim, vCPU 0 first.
    pub fn claims(&self, params: &JupiterParams) -> impl Iterator<Item = Claimed> {
        let each = self.vcpus.iter().zip(&self.weights).zip(&self.latencies);
        let mean = self.mean_of_those_that_want();
        each.map(move |((vcpu, &weight), &latency)| {
            let weight = self.factor(vcpu, weight);
            let mean = self.mean_for(vcpu, mean, params.period);
            let among = scaled(weight, Claim::NEUTRAL.into(), mean);
            let share = scaled(among, self.has, self.entitled.max(1));
            Claimed {
                task: vcpu.task,
                home: vcpu.home,
                claim: Claim {
                    share: u32::try_from(share).unwrap_or(u32::MAX).max(1),
                    // Without DASL no vCPU has a latency of its own: all have the host's.
                    latency: if params.dasl { latency } else { 0 },
                    allotment: vcpu.slice.min(most_out_of_turn(params.period)),
                },
                weight,
            }
        })
    }
}

impl Vcpu {
    /// What it would leave of this part, by what it did in the last period: no more than the time that it was halted,
    /// since a vCPU that comes late could use its part.
    fn leaves(&self, part: Nanos, depleted: bool) -> Nanos {
        match depleted {
            true => 0,
            false => part.saturating_sub(self.used).min(self.halted),
        }
    }

    /// What it did in a period of `passed` ns. Returns whether it has used up its slice; a vCPU
    /// that has just joined had none yet, and has not.
    fn judge(&mut self, did: &TaskSeen, passed: Nanos, params: &JupiterParams) -> bool {
        // Scaled to a period if more time has passed.
        let in_a_period = |time| scaled(time, params.period, passed.max(1)).min(params.period);
        let turns = &did.turns;
        (self.used, self.halted) = (in_a_period(did.run), in_a_period(did.wait));
        self.wanted = in_a_period(did.run + did.ready);
        self.most = did.most(params.period);
        let tolerance = predict::tolerance(self.slice, params.grain);
        let consumed = self.slice > 0 && self.used + tolerance >= self.slice;
        self.wants = consumed && turns.doing != Doing::Waiting;
        self.conflicts = turns.preempted + turns.late;
        consumed
    }
}
