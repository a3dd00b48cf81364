// SPDX-License-Identifier: GPL-2.0-only
//! From a scenario's case, a policy and a seed to a simulation: the one place that knows both the
//! scenario's words for hosts and guests and the simulator's. Schedulers: see [`schedulers`].

use super::cgroups::cgroups;
use super::network;
use super::schedulers::{self, elsewhere, set, unknown};
use super::{demand, disks};
use corun_model::{Nanos, PcpuSet};
use corun_policies::vmigrater::MigraterParams;
use corun_scenario::{
    Case, Client, ClientKind, EmulatorKeys, GuestKeys, HaltPoll, HostTask, Located, Problem,
    Problems, Run, Vm,
};
use corun_sim::Simulation;
use corun_sim::guest::{
    Agent, BalloonParams, BlockIrq, EmulatorParams, GuestError, GuestParams, Guests,
    HaltPollParams, HostTaskSpec, HousekeepingParams, IdleMode, LockKind, PleFavours, STAGGER,
    TlbFlush, VmSpec,
};
use corun_sim::host::{CacheParams, Costs, HardwareParams, HostParams, Observer, SmtParams};

/// Can this case be run at all?
///
/// # Errors
/// Everything wrong with its names and programs.
pub fn check(case: &Case) -> Result<(), Problems> {
    let mut problems = Problems::default();
    let params = host_params(case);
    problems.take(schedulers::check(&case.schedulers, &params));
    problems.take(guests(case, 0));
    problems.take(known_policies(case));
    problems.or_ok(())
}

/// What is wrong with a case in which something is wrong already, as far as each thing can be judged by itself:
/// consequences for the rest are not looked for.
///
/// # Errors
/// Everything of that kind.
pub fn check_each(case: &Case) -> Result<(), Problems> {
    let mut problems = Problems::default();
    problems.take(schedulers::check(&case.schedulers, &host_params(case)));
    let mut threads = 0;
    for vm in &case.vms {
        if problems.take(demand::few_enough(vm, threads)).is_none() {
            break;
        }
        // Its file has not been read.
        let without_file = Vm {
            rt_app: None,
            ..vm.clone()
        };
        let found = problems.take(demand::threads(&without_file));
        threads += found.map_or(0, |found| found.len());
        problems.take(guest_params(vm));
    }
    for task in &case.tasks {
        problems.take(demand::program(&task.program));
    }
    problems.take(known_policies(case));
    problems.or_ok(())
}

fn known_policies(case: &Case) -> Result<(), Problems> {
    let mut problems = Problems::default();
    for policy in case.run.policies.iter().flatten() {
        let known = schedulers::known_policy(&policy.value);
        problems.take(known.map_err(|message| policy.problem(message)));
    }
    problems.or_ok(())
}

/// The simulation of `case` under `policy`.
///
/// # Errors
/// As [`check`] and [`known_policy`].
pub fn simulation(
    case: &Case,
    policy: &str,
    seed: u64,
    observer: Option<Box<dyn Observer>>,
) -> Result<Simulation, Problems> {
    let params = host_params(case);
    let load = Box::new(guests(case, seed)?);
    schedulers::put_together(params, policy, &case.schedulers, seed, load, observer)
}

/// The machine of a case.
pub fn host_params(case: &Case) -> HostParams {
    let (said, default) = (case.host.costs, Costs::default());
    HostParams {
        topology: case.host.topology,
        hz: case.host.hz,
        tick_skew: case.host.tick_skew,
        costs: Costs {
            switch: said.switch.unwrap_or(default.switch),
            ipi: said.ipi.unwrap_or(default.ipi),
            idle_wake: said.idle_wake.unwrap_or(default.idle_wake),
            migration: said.migration.unwrap_or(default.migration),
            exit: said.exit.unwrap_or(default.exit),
            preemption: said.preemption.unwrap_or(default.preemption),
            timer: said.timer.unwrap_or(default.timer),
        },
        idle_states: case.host.idle_states.clone(),
        hardware: hardware(&case.host),
    }
}

/// What the host does of its own accord.
fn housekeeping(case: &Case) -> HousekeepingParams {
    let mut params = HousekeepingParams::default();
    set(&mut params.wakeups, case.host.housekeeping);
    params
}

/// The time within which VMs begin: all have begun when the warm-up is over.
fn stagger(run: &Run) -> Nanos {
    run.stagger.unwrap_or(STAGGER.min(run.warm_up))
}

/// How the host polls for halted vCPUs.
fn halt_polling(said: &HaltPoll) -> HaltPollParams {
    let mut params = HaltPollParams::default();
    set(&mut params.most, said.most);
    set(&mut params.grow, said.grow);
    set(&mut params.grow_start, said.grow_start);
    set(&mut params.shrink, said.shrink);
    set(&mut params.shared, said.shared);
    set(&mut params.to_end, said.to_end);
    params
}

/// What tasks that share the machine do to each other.
fn hardware(host: &corun_scenario::Host) -> HardwareParams {
    let (mut caches, mut smt) = (CacheParams::default(), SmtParams::default());
    // An LLC is no smaller than an L2: one that is not given makes way.
    let llc = caches.llc_bytes(&host.topology);
    let (said_l2, said_llc) = (host.hardware.l2, host.hardware.llc);
    caches.l2 = said_l2.unwrap_or(caches.l2.min(said_llc.unwrap_or(llc)));
    caches.llc = said_llc.or(Some(llc.max(caches.l2)));
    set(&mut caches.llc_adaptive, host.hardware.llc_adaptive);
    set(&mut caches.llc_latency, host.costs.llc);
    set(&mut caches.memory_latency, host.costs.memory);
    let said = &host.hardware.smt;
    set(&mut smt.switching, said.switching);
    set(&mut smt.halt_polling, said.halt_polling);
    set(&mut smt.idle_polling, said.idle_polling);
    set(&mut smt.spinning, said.spinning);
    set(&mut smt.yields, said.yields);
    HardwareParams {
        smt: Some(smt),
        caches: Some(caches),
    }
}

fn guests(case: &Case, seed: u64) -> Result<Guests, Problems> {
    let mut problems = Problems::default();
    let all = PcpuSet::first(case.host.topology.pcpus());
    let (mut vms, mut threads) = (Vec::new(), 0);
    for vm in &case.vms {
        if problems.take(demand::few_enough(vm, threads)).is_none() {
            break;
        }
        let spec = problems.take(vm_spec(vm, all));
        threads += spec.as_ref().map_or(0, |spec| spec.threads.len());
        vms.extend(spec);
    }
    let mut tasks = Vec::new();
    for task in &case.tasks {
        tasks.extend(problems.take(task_spec(task, all)));
    }
    let own = housekeeping(case).tasks(case.host.topology.pcpus());
    tasks.extend(own.map_err(|error| elsewhere(&error.to_string()))?);
    let disks = problems.take(disks::specs(&case.disks, case.host.hz));
    let network = problems.take(network::spec(case));
    problems.or_ok(())?;
    let (disks, network) = (disks.unwrap_or_default(), network.unwrap_or_default());
    let guests = Guests::with_devices(vms, tasks, &disks, &network, seed)
        .map_err(|error| unfit(case, &error))?;
    Ok(guests
        .with_halt_polling(halt_polling(&case.host.halt_poll))
        .begun_within(stagger(&case.run), seed)
        .in_cgroups(cgroups(case)))
}

/// A problem between programs, reported at the place of what it concerns.
fn unfit(case: &Case, error: &GuestError) -> Problems {
    // Subjects are "VM web", "VM web, thread 1", "host task backup", "client users".
    let is = |kind: &str, name: &str| {
        let rest = error.subject.strip_prefix(kind);
        let rest = rest.and_then(|rest| rest.strip_prefix(name));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(','))
    };
    let vm = case.vms.iter().find(|vm| is("VM ", &vm.name));
    let task = case.tasks.iter().find(|task| is("host task ", &task.name));
    let client = case.clients.iter().find(|it| is("client ", &it.name));
    let channel = case.channels.iter().find(|it| is("channel ", &it.name));
    let image = vm.filter(|_| error.key == Some("disk_size"));
    if let Some(size) = image.and_then(|vm| said_size(case, vm)) {
        return size.problem(error.to_string()).into();
    }
    let said = |vm| match error.thread {
        Some(thread) => demand::said_of(vm, thread),
        None => demand::said(vm),
    };
    let place = vm
        .and_then(said)
        .or(task.map(|task| &task.program))
        .or(client.map(|client| said_of_client(client, error.key)))
        .or(channel.map(|channel| match error.key {
            Some("to") => &channel.said_to,
            _ => &channel.said_from,
        }));
    match place {
        Some(place) => place.problem(error.to_string()).into(),
        None => elsewhere(&error.to_string()),
    }
}

/// What the scenario says about the room that a VM's image has: the image's size, or else the disk's.
fn said_size<'a>(case: &'a Case, vm: &'a Vm) -> Option<&'a Located<u64>> {
    let disk = vm.disk.disk.and_then(|disk| case.disks.get(disk));
    let capacity = disk.and_then(|disk| disk.capacity.as_ref());
    vm.disk.size.as_ref().or(capacity)
}

fn said_of_client<'a>(client: &'a Client, key: Option<&str>) -> &'a Located<String> {
    match &client.kind {
        ClientKind::Closed { requests, .. } | ClientKind::Open { requests, .. }
            if key == Some("port") =>
        {
            &requests.port
        }
        ClientKind::Sink { port } | ClientKind::Stream { port, .. } if key == Some("port") => port,
        _ => &client.said_vm,
    }
}

fn vm_spec(vm: &Vm, all: PcpuSet) -> Result<VmSpec, Problems> {
    let mut problems = Problems::default();
    let threads = problems.take(demand::threads(vm));
    let params = problems.take(guest_params(vm));
    let (Some(threads), Some(params)) = (threads, params) else {
        return Err(problems);
    };
    Ok(VmSpec {
        name: vm.name.clone(),
        vcpus: vm.vcpus,
        weight: vm.weight,
        vcpu_weight: vm.vcpu_weight,
        cookie: vm.cookie,
        cap: vm.cap.unwrap_or(0),
        realtime: vm.realtime,
        slice: vm.slice,
        allowed: vm.allowed.unwrap_or(all),
        vcpu_allowed: vm.vcpu_allowed.clone(),
        params,
        disk: disks::place(vm, &threads)?,
        emulator: vm.emulator.map(emulator_params),
        threads,
    })
}

fn task_spec(task: &HostTask, all: PcpuSet) -> Result<HostTaskSpec, Problem> {
    let spec = HostTaskSpec {
        name: task.name.clone(),
        helper_of: task.helper_of.map(Into::into),
        weight: task.weight,
        allowed: task.allowed.unwrap_or(all),
        program: demand::program(&task.program)?,
    };
    let checked = spec.check();
    checked.map_err(|error| task.program.problem(error.to_string()))?;
    Ok(spec)
}

fn emulator_params(keys: EmulatorKeys) -> EmulatorParams {
    let mut params = EmulatorParams::default();
    set(&mut params.transmit_timer, keys.transmit_timer);
    set(&mut params.shortest_alarm, keys.shortest_alarm);
    set(&mut params.ioeventfd, keys.ioeventfd);
    params
}

/// What a guest runs against I/O inactivity.
fn agent(keys: &GuestKeys) -> Result<Option<Agent>, Problems> {
    let Some(said) = &keys.agent else {
        return Ok(None);
    };
    Ok(Some(match said.value.as_str() {
        "vmigrater" => {
            let mut params = MigraterParams::default();
            if let Some(heartbeat) = keys.heartbeat {
                params = params.beating_every(heartbeat);
            }
            set(&mut params.idle, keys.heartbeat_idle);
            set(&mut params.slices, keys.predict_from.map(|it| it as usize));
            Agent::VMigrater(params)
        }
        "xballoon" => {
            let mut params = BalloonParams::default();
            set(&mut params.sleep, keys.balloon_sleep);
            Agent::XBalloon(params)
        }
        _ => return Err(unknown(Some(said), &["vmigrater", "xballoon"])),
    }))
}

const BLOCK_IRQS: [(&str, BlockIrq); 3] = [
    ("issuer", BlockIrq::Issuer),
    ("vcpu0", BlockIrq::Vcpu0),
    ("reserved", BlockIrq::Reserved),
];

/// What the name in `said` stands for.
fn named<T: Copy, const N: usize>(
    said: &Located<String>,
    known: [(&str, T); N],
) -> Result<T, Problems> {
    let found = known.iter().find(|(name, _)| *name == said.value);
    let names = known.map(|(name, _)| name);
    found
        .map(|(_, value)| *value)
        .ok_or_else(|| unknown(Some(said), &names))
}

fn guest_params(vm: &Vm) -> Result<GuestParams, Problems> {
    let (keys, mut params) = (&vm.guest, GuestParams::default());
    set(&mut params.hz, keys.hz);
    set(&mut params.tick, keys.tick);
    set(&mut params.interrupt, keys.interrupt);
    set(&mut params.ipi, keys.ipi);
    set(&mut params.thread_switch, keys.thread_switch);
    set(&mut params.futex, keys.futex);
    set(&mut params.timer_slack, keys.timer_slack);
    set(&mut params.latency, keys.latency);
    set(&mut params.min_granularity, keys.min_granularity);
    set(&mut params.wakeup_granularity, keys.wakeup_granularity);
    set(&mut params.pv_spin, keys.pv_spin);
    set(&mut params.block_submit, keys.block_submit);
    set(&mut params.cached_read, keys.cached_read);
    set(&mut params.copy_kib, keys.copy_kib);
    set(&mut params.read_ahead, keys.read_ahead);
    if let Some(said) = &keys.block_irq {
        params.block_irq = named(said, BLOCK_IRQS)?;
    }
    set(&mut params.net.irq, keys.net_irq);
    set(&mut params.net.queues, keys.net_queues);
    set(&mut params.net.packet, keys.net_packet);
    set(&mut params.net.copy, keys.net_copy);
    set(&mut params.net.kick, keys.net_kick);
    params.agent = agent(&vm.guest)?;
    set(&mut params.steal_time, vm.guest.steal_time);
    let some = |window: Nanos| (window > 0).then_some(window);
    set(&mut params.ple_window, keys.ple_window.map(some));
    set(&mut params.ple_grow, keys.ple_grow);
    set(&mut params.flush, keys.flush);
    if let Some(said) = &keys.ple_favours {
        params.ple_favours = named(said, PleFavours::NAMES)?;
    }
    if let Some(said) = &keys.tlb_flush {
        params.tlb_flush = named(said, TlbFlush::NAMES)?;
    }
    if let Some(said) = &keys.idle {
        params.idle = match said.value.as_str() {
            "halt" => IdleMode::Halt,
            "poll" => IdleMode::Poll,
            "retention" => IdleMode::Retention(keys.retention.unwrap_or(0)),
            "told" => IdleMode::Told,
            _ => return Err(unknown(Some(said), &["halt", "poll", "retention", "told"])),
        };
    }
    if let Some(said) = &keys.lock {
        let known = LockKind::NAMES;
        let found = known.iter().find(|(name, _)| *name == said.value);
        let kind = found.map(|(_, kind)| *kind);
        params.lock = kind.ok_or_else(|| unknown(Some(said), &known.map(|(name, _)| name)))?;
    }
    Ok(params)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(vm: &str) -> String {
        let text = format!("host.pcpus = 2\n[vm.a]\nvcpus = 2\n{vm}");
        let scenario = corun_scenario::read("a.toml", &text, &[]).unwrap();
        check(&scenario.cases[0]).unwrap_err().to_string()
    }

    #[test]
    fn problems_of_a_vm_and_of_tasks_are_told_at_once() {
        let said =
            "workload = \"cpuu\"\nguest.lock = \"foo\"\n[task.t]\nprogram = \"lock a { }\"\n";
        let found = problem(said);
        for place in [
            ":4: vm.a.workload",
            ":5: vm.a.guest.lock",
            ":7: task.t.program",
        ] {
            assert!(found.contains(place), "{found}");
        }
    }

    #[test]
    fn what_does_not_go_together_is_told_where_a_thread_says_it() {
        let thread = |program: &str| format!("[[vm.a.thread]]\nprogram = \"{program}\"\n");
        let two = thread("loop { compute 1ms }") + "count = 3\n" + &thread("compute 1ms");
        for (program, message) in [
            ("recv jobs", "queue jobs has receivers, but no sender"),
            ("send jobs", "queue jobs has senders, but no receiver"),
            ("mutex m { wait c }", "threads wait on condition c"),
            ("barrier b", "only one thread comes to barrier b"),
            ("spin-barrier b", "only one thread comes to barrier b"),
            ("request web; reply web 1KB", "the port web is used"),
        ] {
            let found = problem(&(two.clone() + &thread(program)));
            let place = "a.toml:10: vm.a.thread.program: VM a: ";
            assert!(
                found.starts_with(place) && found.contains(message),
                "{found}"
            );
            let found = problem(&("workload = \"cpu\"\n".to_string() + &thread(program)));
            assert!(
                found.starts_with("a.toml:6: vm.a.thread.program: "),
                "{found}"
            );
        }
        let other = thread("queue q 2; send q") + &thread("queue q 3; recv q");
        assert!(problem(&other).starts_with("a.toml:7: vm.a.thread.program: "));
        let ways = thread("compute 1ms") + &thread("lock a { lock b { } }; lock b { lock a { } }");
        assert!(problem(&ways).starts_with("a.toml:7: vm.a.thread.program: "));
    }
}
