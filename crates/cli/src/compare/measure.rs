// SPDX-License-Identifier: GPL-2.0-only
//! From what the simulation saw to what is shown: shares, rates and rounding.

use corun_model::Nanos;
use corun_model::time::SEC;
use corun_policies::aql::Kind;
use corun_report::detail::{Detail, Times, VmTimes};
use corun_report::{
    AgentResult, ClientResult, DiskResult, HostResult, IoResult, KernelResult, Recognised, Run,
    SiblingResult, Stacking, TaskResult, VmResult, round,
};
use corun_sim::device::net::ClientOutcome;
use corun_sim::guest::is_housekeeping;
use corun_sim::host::Totals;
use corun_sim::load::{DeviceOutcome, IoAchieved};
use corun_sim::{Outcome, VmOutcome, Waits};

/// The result of a run, without its names.
pub fn run(outcome: &Outcome, pcpus: u32) -> Run {
    // The host's own threads are part of the host, and not what a scenario asks about.
    let asked = |name: &str, is_vcpu: bool| !is_vcpu && !is_housekeeping(name);
    let tasks = outcome.tasks.iter();
    let tasks = tasks.filter(|(name, is_vcpu, _)| asked(name, *is_vcpu));
    Run {
        policy: String::new(),
        case: String::new(),
        seed: 0,
        kernel: None,
        host: host(outcome, pcpus),
        vms: outcome
            .vms
            .iter()
            .map(|one| vm(one, outcome.measured))
            .collect(),
        tasks: tasks.map(|(name, _, totals)| task(name, totals)).collect(),
        disks: outcome
            .devices
            .iter()
            .map(|device| disk(device, outcome.measured))
            .collect(),
        clients: outcome
            .clients
            .iter()
            .map(|it| client(it, outcome))
            .collect(),
        detail: detail(outcome),
    }
}

/// The distributions that the page draws; the run itself is not watched here.
fn detail(outcome: &Outcome) -> Detail {
    let times = |waits: &Waits| Times {
        steps: waits.by_length(),
    };
    let vm = |vm: &VmOutcome| VmTimes {
        ready: times(&vm.ready_waits),
        wakeups: times(&vm.wakeups),
        turns: times(&vm.turns),
        locks: times(&vm.achieved.lock_waits),
        io: vm
            .achieved
            .io
            .as_ref()
            .map(|io| times(&io.waits))
            .unwrap_or_default(),
        left_alone: vm.left_alone.spans.clone(),
    };
    Detail {
        vms: outcome.vms.iter().map(vm).collect(),
        clients: outcome
            .clients
            .iter()
            .map(|it| times(&it.responses))
            .collect(),
        timeline: None,
    }
}

/// `part` as a share of `whole`.
fn share(part: Nanos, whole: Nanos) -> f64 {
    round(part as f64 / whole.max(1) as f64)
}

fn per_second(count: u64, measured: Nanos) -> f64 {
    round(count as f64 * SEC as f64 / measured.max(1) as f64)
}

fn disk(device: &DeviceOutcome, measured: Nanos) -> DiskResult {
    let totals = &device.totals;
    DiskResult {
        name: device.name.clone(),
        requests_per_s: per_second(totals.requests, measured),
        bytes_per_s: per_second(totals.bytes, measured),
        utilisation: share(totals.busy, measured),
        anticipation_share: share(totals.held, measured),
        seeks_per_s: per_second(totals.seeks, measured),
    }
}

fn io(io: &IoAchieved, measured: Nanos) -> IoResult {
    let threads = u64::try_from(io.threads).unwrap_or(u64::MAX);
    let [reads, writes] = io.requests.map(|done| done.mean().map(micros));
    IoResult {
        operations_per_s: per_second(io.operations, measured),
        bytes_per_s: per_second(io.bytes, measured),
        wait_p50_us: quantile(&io.waits, 0.5),
        wait_p99_us: quantile(&io.waits, 0.99),
        read_request_mean_us: reads,
        write_request_mean_us: writes,
        inactivity_s: round(io.inactivity as f64 / SEC as f64),
        inactivity_share: share(io.inactivity, measured.saturating_mul(threads)),
    }
}

fn agent(vm: &VmOutcome, measured: Nanos) -> Option<AgentResult> {
    let did = vm.achieved.agent.as_ref()?;
    let whole = measured.saturating_mul(vm.vcpus.len() as Nanos);
    let pushes = did.pushed + did.soon;
    let cost = (did.costs.count() > 0).then(|| micros(did.costs.mean()));
    Some(AgentResult {
        migrations_per_s: per_second(pushes + did.pulled + did.spread, measured),
        pushes_per_s: per_second(pushes, measured),
        pulls_per_s: per_second(did.pulled, measured),
        migration_cost_mean_us: cost,
        work_share: share(did.work, whole),
        ballooned_share: share(did.ballooned, whole),
    })
}

fn quantile(waits: &Waits, share: f64) -> Option<f64> {
    (waits.count() > 0).then(|| micros(waits.quantile(share) as f64))
}

fn mean(waits: &Waits) -> Option<f64> {
    (waits.count() > 0).then(|| micros(waits.mean()))
}

/// The kernel's result; replayed VMs have no kernel.
fn kernel(vm: &VmOutcome, measured: Nanos) -> Option<KernelResult> {
    let did = &vm.achieved;
    did.idle?;
    let whole = measured.saturating_mul(vm.vcpus.len() as Nanos);
    let rate = |count| per_second(count, measured);
    let polls = did.halt_polls;
    Some(KernelResult {
        spin_share: share(did.spin, whole),
        work_share: share(did.kernel, whole),
        thread_switches_per_s: rate(did.thread_switches),
        pause_exits_per_s: rate(did.pause_loop_exits),
        lock_halts_per_s: rate(did.lock_halts),
        flushes_per_s: rate(did.shootdowns),
        flush_wait_mean_us: mean(&did.shootdown_waits),
        flush_wait_p99_us: quantile(&did.shootdown_waits, 0.99),
        halt_polls_per_s: rate(polls),
        halt_poll_hit_share: (polls > 0).then(|| share(did.halt_poll_hits, polls)),
    })
}

fn host(outcome: &Outcome, pcpus: u32) -> HostResult {
    let seconds = outcome.measured as f64 / SEC as f64;
    let rate = |count: u64| {
        round(if seconds > 0.0 {
            count as f64 / seconds
        } else {
            0.0
        })
    };
    let share = |siblings: usize| outcome.stacking.get(siblings).copied().unwrap_or(0.0);
    let more: f64 = outcome.stacking.iter().skip(4).sum();
    let vcpus = outcome.vms.iter().flat_map(|vm| &vm.vcpus);
    let waits = outcome.vms.iter().map(|vm| &vm.achieved.lock_waits);
    let lock_waits: u64 = waits.clone().map(Waits::count).sum();
    let waited: f64 = waits.map(|waits| waits.mean() * waits.count() as f64).sum();
    HostResult {
        pcpus,
        vcpus: u32::try_from(vcpus.clone().count()).unwrap_or(u32::MAX),
        duration_s: round(seconds),
        stacking_probability: round(share(2) + share(3) + more),
        stacking: Stacking {
            two: round(share(2)),
            three: round(share(3)),
            four_or_more: round(more),
        },
        vcpu_switches_per_s: rate(outcome.vcpu_switches),
        switches_per_s: rate(outcome.switches),
        switches_between_vcpus_per_s: rate(outcome.switches_between_vcpus),
        vcpu_migrations_per_s: rate(vcpus.map(|totals| totals.migrations).sum()),
        idle_share: round(outcome.idle_share),
        runqueue_mean: round(runqueue(pcpus, outcome)),
        lock_waits,
        lock_wait_mean_us: (lock_waits > 0).then(|| micros(waited / lock_waits as f64)),
    }
}

/// How many tasks run or are ready, for each pCPU.
fn runqueue(pcpus: u32, outcome: &Outcome) -> f64 {
    let queued = |(_, _, totals): &(String, bool, Totals)| (totals.run + totals.ready) as f64;
    let queued: f64 = outcome.tasks.iter().map(queued).sum();
    let throttled: Nanos = outcome.vms.iter().map(|vm| vm.throttled).sum();
    let time = outcome.measured as f64 * f64::from(pcpus);
    match time > 0.0 {
        true => (queued - throttled as f64) / time,
        false => 0.0,
    }
}

fn vm(vm: &VmOutcome, measured: Nanos) -> VmResult {
    let sum = |of: fn(&Totals) -> Nanos| vm.vcpus.iter().map(of).sum();
    let [run, ready, wait] = shares(sum(|t| t.run), sum(|t| t.ready), sum(|t| t.wait));
    let locks = &vm.achieved.lock_waits;
    let vcpu_time = measured.saturating_mul(vm.vcpus.len() as u64);
    VmResult {
        name: vm.name.clone(),
        vcpus: u32::try_from(vm.vcpus.len()).unwrap_or(u32::MAX),
        throughput: round(vm.achieved.throughput),
        throughput_unit: vm.achieved.throughput_unit.clone(),
        other_throughputs: (vm.achieved.other_throughputs.iter())
            .map(|(unit, rate)| (unit.clone(), round(*rate)))
            .collect(),
        utilisation: run,
        run_share: run,
        ready_share: ready,
        wait_share: wait,
        guest_cpu_share: guest_cpu(vm, measured),
        retained_share: share(sum(|t| t.retained) + vm.held, vcpu_time),
        polled_share: share(sum(|t| t.polled), vcpu_time),
        second_share: share(sum(|t| t.second), vcpu_time),
        second_retained_share: share(sum(|t| t.second_retained), vcpu_time),
        lent_share: share(sum(|t| t.lent - t.lent_retained), vcpu_time),
        wakeups_per_s: per_second(vm.vcpus.iter().map(|totals| totals.wakeups).sum(), measured),
        ready_wait_mean_us: mean(&vm.ready_waits),
        ready_wait_max_us: (vm.ready_waits.count() > 0)
            .then(|| micros(vm.ready_waits.max() as f64)),
        ready_wait_p50_us: quantile(&vm.ready_waits, 0.5),
        ready_wait_p99_us: quantile(&vm.ready_waits, 0.99),
        turn_p50_us: quantile(&vm.turns, 0.5),
        turn_p99_us: quantile(&vm.turns, 0.99),
        recognised: recognised(vm, measured),
        lock_waits: locks.count(),
        lock_wait_mean_us: mean(locks),
        lock_wait_p50_us: quantile(locks, 0.5),
        lock_wait_p99_us: quantile(locks, 0.99),
        kernel: kernel(vm, measured),
        siblings: (vm.vcpus.len() > 1).then(|| siblings(vm, measured)),
        policy_off_s: vm.left_alone.from().map(seconds),
        policy_on_s: vm.left_alone.until().map(seconds),
        io: vm.achieved.io.as_ref().map(|done| io(done, measured)),
        agent: agent(vm, measured),
        beyond_recording_share: None,
    }
}

fn seconds(time: Nanos) -> f64 {
    round(time as f64 / SEC as f64)
}

/// The time that the guest's kernel does not count as idle; replayed VMs have none.
fn guest_cpu(vm: &VmOutcome, measured: Nanos) -> Option<f64> {
    let whole = measured.saturating_mul(vm.vcpus.len() as Nanos);
    let idle = vm.achieved.idle?;
    (whole > 0).then(|| round(1.0 - share(idle, whole)))
}

/// The types recognised; `None` if the policy does not have AQL_Sched's types.
fn recognised(vm: &VmOutcome, measured: Nanos) -> Option<Recognised> {
    let seen = &vm.recognised;
    let types = Kind::KNOWN.iter().chain([&Kind::Unknown]);
    let whole: u64 = types.filter_map(|kind| seen.kinds.get(kind.name())).sum();
    let vcpu_seconds = measured as f64 / SEC as f64 * vm.vcpus.len() as f64;
    let share = |kind: Kind| {
        let count = seen.kinds.get(kind.name()).copied().unwrap_or(0);
        round(count as f64 / whole as f64)
    };
    (whole > 0).then(|| Recognised {
        ioint: share(Kind::IoInt),
        conspin: share(Kind::ConSpin),
        llcf: share(Kind::Llcf),
        llco: share(Kind::Llco),
        lolcf: share(Kind::LoLcf),
        unknown: share(Kind::Unknown),
        pool_changes_per_s: round(seen.pool_changes as f64 / vcpu_seconds),
    })
}

fn siblings(vm: &VmOutcome, measured: Nanos) -> SiblingResult {
    let skew = &vm.siblings;
    let called = skew.co_starts.count() + skew.never;
    let vcpus = u64::try_from(vm.vcpus.len()).unwrap_or(u64::MAX);
    SiblingResult {
        co_start_skew_mean_us: mean(&skew.co_starts),
        co_start_skew_p99_us: quantile(&skew.co_starts, 0.99),
        co_start_never_share: (called > 0).then(|| share(skew.never, called)),
        co_run_share: (skew.together_due > 0).then(|| share(skew.together, skew.together_due)),
        progress_skew_mean_us: mean(&skew.progress),
        progress_skew_max_us: quantile(&skew.progress, 1.0),
        co_stop_share: share(vm.co_stopped, measured.saturating_mul(vcpus)),
    }
}

fn client(client: &ClientOutcome, outcome: &Outcome) -> ClientResult {
    let seconds = outcome.measured as f64 / SEC as f64;
    // Rounding makes the rates of a run of no length zero.
    let rate = |count: u64| round(count as f64 / seconds);
    let responses = &client.responses;
    let some = responses.count() > 0;
    let quantile = |share| some.then(|| micros(responses.quantile(share) as f64));
    let bulk = matches!(client.kind, "sink" | "stream");
    let vm = outcome.vms.get(client.vm.index());
    ClientResult {
        name: client.name.clone(),
        kind: client.kind.to_string(),
        vm: vm.map_or(String::new(), |vm| vm.name.clone()),
        replies_per_s: (!bulk).then(|| rate(responses.count())),
        response_mean_us: some.then(|| micros(responses.mean())),
        response_p50_us: quantile(0.5),
        response_p95_us: quantile(0.95),
        response_p99_us: quantile(0.99),
        response_max_us: some.then(|| micros(responses.max() as f64)),
        sent_per_s: (client.kind == "open loop").then(|| rate(client.wished)),
        overloaded: client.overloaded,
        timeouts: client.timeouts,
        retransmissions: client.retransmissions,
        bytes_per_s: rate(client.bytes),
    }
}

fn task(name: &str, totals: &Totals) -> TaskResult {
    let [run_share, ready_share, wait_share] = shares(totals.run, totals.ready, totals.wait);
    TaskResult {
        name: name.to_string(),
        run_share,
        ready_share,
        wait_share,
    }
}

fn micros(ns: f64) -> f64 {
    round(ns / 1e3)
}

/// Shares of the whole that add up to 1 after rounding, too; all waiting if there is no whole.
fn shares(run: Nanos, ready: Nanos, wait: Nanos) -> [f64; 3] {
    let whole = run as f64 + ready as f64 + wait as f64;
    if whole <= 0.0 {
        return [0.0, 0.0, 1.0];
    }
    let (run, ready) = (round(run as f64 / whole), round(ready as f64 / whole));
    [run, ready, round((1.0 - run - ready).max(0.0))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shares_add_up(run in 0..u64::MAX / 4, ready in 0..u64::MAX / 4, wait in 0u64..1 << 40) {
            let shares = shares(run, ready, wait);
            prop_assert!((shares.iter().sum::<f64>() - 1.0).abs() < 2e-6, "{shares:?}");
            prop_assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)));
        }
    }
}
