// SPDX-License-Identifier: GPL-2.0-only
//! vMigrater and xBalloon in guests: a reader among computing threads, two VMs of 4 vCPUs on 4 pCPUs, as in
//! [`super::io_inactivity`].

use super::*;
use crate::device::disk::{DiskParams, MediumParams, SsdParams};
use crate::load::{AgentAchieved, IoAchieved};
use crate::sched::cfs::{Cfs, CfsParams};
use corun_policies::vmigrater::MigraterParams;
use proptest::prelude::*;

const VMIGRATER: Option<Agent> = Some(Agent::VMigrater(MigraterParams {
    heartbeat: 300_000,
    gap: 600_000,
    push: 600_000,
    worth: 2_000_000,
    slices: 1,
    overrun: 500,
    window: 5_000_000,
    enter: 300,
    leave: 100,
    unshared: 1_000_000_000,
    idle: 3_000_000,
    suspended: 10_000_000_000,
}));

fn xballoon() -> Option<Agent> {
    Some(Agent::XBalloon(BalloonParams::default()))
}

fn ssd() -> DiskSpec {
    DiskSpec {
        name: "disk".into(),
        params: DiskParams::new(MediumParams::Ssd(SsdParams::default())),
    }
}

fn stored(mut spec: VmSpec, agent: Option<Agent>) -> VmSpec {
    spec.params.agent = agent;
    spec.disk = Some(image());
    spec
}

/// Something to compute on each of four vCPUs, and a reader that may go anywhere.
fn guest(name: &str, reader: &str, agent: Option<Agent>) -> VmSpec {
    let mut programs = vec!["sleep 20ms exp; loop { compute 100ms }"; 4];
    programs.push(reader);
    let mut spec = stored(vm(name, GuestParams::default(), &programs), agent);
    spec.vcpus = 4;
    spec.weight = Some(100);
    spec.threads
        .iter_mut()
        .for_each(|thread| thread.vcpu = None);
    spec
}

const READER: &str = "loop { read 16KB random; compute 5us; count reads }";

fn cfs_run(vms: Vec<VmSpec>) -> Outcome {
    seeded_run(vms, 3)
}

fn seeded_run(vms: Vec<VmSpec>, seed: u64) -> Outcome {
    let host = machine(4, Costs::default());
    let mut cfs = CfsParams::preset("rhel-virtual-host", 4).unwrap();
    cfs.latency = 22 * MS;
    let sched = Box::new(Cfs::new(cfs, &host));
    let guests = Guests::with_disks(vms, Vec::new(), &[ssd()], seed).unwrap();
    Simulation::new(host, sched, Box::new(guests), None).run(SEC, 4 * SEC, |_| {})
}

fn io(outcome: &Outcome) -> &IoAchieved {
    outcome.vms[0].achieved.io.as_ref().unwrap()
}

fn agent(outcome: &Outcome) -> &AgentAchieved {
    outcome.vms[0].achieved.agent.as_ref().unwrap()
}

fn moves(outcome: &Outcome) -> u64 {
    let it = agent(outcome);
    it.pushed + it.pulled + it.soon + it.spread
}

#[test]
fn the_default_is_what_these_tests_have() {
    let default = Some(Agent::VMigrater(MigraterParams::default()));
    assert_eq!(VMIGRATER, default);
}

#[test]
fn vmigrater_keeps_a_reader_active() {
    let with = |agent| cfs_run(vec![guest("a", READER, agent), guest("b", READER, None)]);
    let (vanilla, migrated) = (with(None), with(VMIGRATER));
    let gain = io(&migrated).bytes as f64 / io(&vanilla).bytes as f64;
    assert!(gain > 1.6, "{gain} times as fast");
    let (before, after) = (io(&vanilla).inactivity, io(&migrated).inactivity);
    assert!(after * 4 < before, "inactive for {after} of {before}");
    // A thread that is sent elsewhere again before it has run there has one cost for both moves.
    let (costs, moves) = (agent(&migrated).costs.count(), moves(&migrated));
    assert!(costs <= moves && costs * 2 > moves, "{costs} of {moves}");
    // The other VM and the computing threads lose next to nothing.
    let work = |outcome: &Outcome, vm: usize| outcome.vms[vm].achieved.work;
    assert!(work(&migrated, 1) * 100 > work(&vanilla, 1) * 97);
    assert!(work(&migrated, 0) * 100 > work(&vanilla, 0) * 95);
}

/// With steal time vMigrater knows to the nanosecond how much the host took from a vCPU, and that it took nothing from
/// an idle one. With the paper's slices that neither helps nor harms.
#[test]
fn vmigrater_may_be_told_of_steal_time() {
    let with = |agent, steal_time| {
        let mut spec = guest("a", READER, agent);
        spec.params.steal_time = steal_time;
        cfs_run(vec![spec, guest("b", READER, None)])
    };
    let (vanilla, beats) = (with(None, false), with(VMIGRATER, false));
    let told = with(VMIGRATER, true);
    let (before, after) = (io(&vanilla).inactivity, io(&told).inactivity);
    assert!(after * 4 < before, "inactive for {after} of {before}");
    let by_beats = io(&beats).inactivity;
    assert!(after <= by_beats, "{after} and {by_beats}");
}

#[test]
fn vmigrater_leaves_a_guest_alone_that_shares_nothing() {
    let outcome = cfs_run(vec![guest("a", READER, VMIGRATER)]);
    assert_eq!(moves(&outcome), 0);
    // 2 of 4 vCPUs' 300 us: interrupt, two switches and the beat's own work are 6 us.
    let share = agent(&outcome).work as f64 / (4 * outcome.measured) as f64;
    assert!((0.01..0.02).contains(&share), "{share}");
}

/// Two of four vCPUs have nothing to do except for the reader, on a host where a vCPU that wakes does not preempt. The
/// reader's vCPU waits for a turn each time its disk wakes it, until vMigrater moves the reader to one that computes.
/// Idle vCPUs are woken ten times less often than the hearts of others beat, which makes the reader slower by a tenth:
/// a task stays for a beat where it was sent.
#[test]
fn vmigrater_lets_idle_vcpus_sleep_and_finds_the_reader_among_them() {
    let reads = |agent| {
        let mut vm = guest("a", READER, agent);
        vm.threads.drain(..2);
        let vms = [vm, guest("b", READER, None)];
        let outcomes = (1..=6).map(|seed| io(&seeded_run(vms.to_vec(), seed)).bytes);
        outcomes.sum::<u64>()
    };
    let resting = |idle| {
        Some(Agent::VMigrater(MigraterParams {
            idle,
            ..MigraterParams::default()
        }))
    };
    let (alone, as_often, rested) = (reads(None), reads(resting(0)), reads(resting(3 * MS)));
    assert!(rested > 10 * alone, "{rested} and {alone} bytes");
    assert!(rested * 10 > as_often * 9, "{rested} and {as_often} bytes");
}

/// Three vCPUs have nothing to do: to their guest they are idle, whether they give their pCPUs back or poll.
#[test]
fn vmigrater_lets_idle_vcpus_rest_however_they_idle() {
    let work = |idle, rest| {
        let params = MigraterParams {
            idle: rest,
            ..MigraterParams::default()
        };
        let mut vm = guest("a", READER, Some(Agent::VMigrater(params)));
        vm.params.idle = idle;
        vm.threads.drain(..3);
        agent(&cfs_run(vec![vm])).work
    };
    for idle in [IdleMode::Halt, IdleMode::Poll, IdleMode::Retention(0)] {
        let (as_often, rested) = (work(idle, 0), work(idle, 3 * MS));
        assert!(
            3 * rested < 2 * as_often,
            "{idle:?}: {rested} of {as_often}"
        );
    }
}

#[test]
fn vmigrater_moves_no_task_that_computes_or_is_bound() {
    let computing = "loop { read 16KB random; compute 20ms; count reads }";
    let mut vms = vec![guest("a", computing, VMIGRATER), guest("b", READER, None)];
    assert_eq!(moves(&cfs_run(vms.clone())), 0);
    vms[0] = guest("a", READER, VMIGRATER);
    vms[0].threads[4].vcpu = Some(2);
    assert_eq!(moves(&cfs_run(vms)), 0);
}

#[test]
fn xballoon_sleeps_no_longer_than_it_may() {
    let outcome = cfs_run(vec![
        guest("a", READER, xballoon()),
        guest("b", READER, None),
    ]);
    let slept = agent(&outcome).ballooned;
    // One vCPU of four has the reader; half of the time at most.
    assert!(slept > 0 && slept <= outcome.measured * 11 / 20, "{slept}");
}

#[test]
fn xballoon_sleeps_at_the_price_of_its_process() {
    let outcome = cfs_run(vec![
        guest("a", READER, xballoon()),
        guest("b", READER, None),
    ]);
    let (agent, reads) = (agent(&outcome), io(&outcome).operations);
    // A switch of 1.5 us and a system call of 0.5 us for most reads: those during which it may
    // sleep.
    let most = reads * 2_000;
    assert!(
        agent.work > most / 2 && agent.work <= most * 11 / 10,
        "{} of {most}",
        agent.work
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the programs, the guests stay consistent (each event checks), no time is lost, and
    /// threads that read go on reading.
    #[test]
    fn random_guests_with_agents(
        seed in any::<u64>(),
        threads in 2u64..7,
        vcpus in 1u32..5,
        pcpus in 1u32..4,
        slice in 500_000u64..8_000_000,
        balloon in any::<bool>(),
    ) {
        let thread = |index| ThreadSpec {
            name: format!("t{index}"),
            program: Program::parse(
                &random_program(seed, index).replacen("loop {", "loop { loop 9 { read 8KB random }; ", 1),
            ).unwrap(),
            vcpu: None,
        };
        let agent = if balloon { xballoon() } else { VMIGRATER };
        let spec = |name: &str| {
            let mut spec = stored(vm(name, GuestParams::default(), &[]), agent);
            spec.vcpus = vcpus;
            spec.threads = (0..threads).map(thread).collect();
            spec
        };
        let guests = Guests::with_disks(vec![spec("a"), spec("b")], Vec::new(), &[ssd()], 7).unwrap();
        let sched = Box::new(RoundRobin::new(slice));
        let simulation = Simulation::new(machine(pcpus, Costs::default()), sched, Box::new(guests), None);
        let outcome = simulation.run(0, 60 * MS, |_| {});
        for (name, _, totals) in &outcome.tasks {
            prop_assert_eq!(totals.run + totals.ready + totals.wait, outcome.measured, "{}", name);
        }
        prop_assert!(io(&outcome).operations > 0);
    }
}
