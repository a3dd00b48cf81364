// SPDX-License-Identifier: GPL-2.0-only
//! From followed tasks to the recording: roles, names, figures.

use super::causes::Causes;
use super::contested;
use super::stacking::{self, Vcpu};
use super::track::{Being, Track};
use super::vms::{self, Group};
use super::{Cpu, Current, Rebuild};
use crate::model::{AtEnd, HostObserved, PcpuObserved, Role, Task, TaskObserved, Vm, VmThread};
use crate::names;
use crate::text::comment::Stated;
use corun_model::{Nanos, PcpuId, TaskId, VmId};

/// What the events amount to.
pub(crate) struct Finished {
    /// The first event's time, ns on the recorded clock.
    pub start: Nanos,
    pub end: Nanos,
    pub vms: Vec<Vm>,
    pub tasks: Vec<Task>,
    /// Without the counts of events.
    pub observed: HostObserved,
}

/// Closes all accounts at the last event. `pcpus` is at least the highest pCPU seen plus one.
pub(crate) fn finish(mut rebuild: Rebuild, stated: &Stated, pcpus: u32) -> Finished {
    let (start, end) = (rebuild.start.unwrap_or(0), rebuild.now);
    list_threads(&mut rebuild, stated);
    let at_end: Vec<_> = rebuild
        .tracks
        .iter_mut()
        .map(|track| track.finish(end))
        .collect();
    let groups = vms::group(&rebuild.tracks, &rebuild.edges);
    let roles = roles(&groups, &rebuild.tracks);
    contest(&groups, &mut rebuild.tracks, end);
    let observed = HostObserved {
        switches: rebuild.switches,
        pcpus: cpus(&rebuild.cpus, pcpus, end),
        stacked: stacked(&groups, &rebuild.tracks, end),
        ..HostObserved::default()
    };
    let vms = groups.iter().map(|it| vm(it, &rebuild.tracks, stated));
    let vms = unique(vms.collect());
    let causes = Causes::new(roles, &rebuild.tracks);
    let tracks = rebuild.tracks.into_iter().zip(at_end).enumerate();
    let tasks = tracks
        .map(|(slot, (track, at_end))| task(slot, track, at_end, &causes))
        .collect();
    Finished {
        start,
        end: start + end,
        vms,
        tasks,
        observed,
    }
}

fn task(slot: usize, track: Track, at_end: AtEnd, causes: &Causes) -> Task {
    let burst = |raw| causes.burst(slot, raw);
    Task {
        first_pcpu: first_pcpu(&track),
        tid: track.tid,
        tgid: track.tgid,
        role: causes.role(slot),
        at_start: track.at_start,
        at_end,
        bursts: track.bursts.iter().map(burst).collect(),
        observed: TaskObserved {
            wakers: causes.count(slot, &track),
            ..track.seen
        },
        comm: track.comm,
        kvm: track.kvm,
    }
}

/// Takes in what the header lists: processes of threads, and threads that did nothing.
fn list_threads(rebuild: &mut Rebuild, stated: &Stated) {
    for (&tid, (tgid, comm)) in &stated.threads {
        let slot = match rebuild.slots.get(&tid) {
            Some(&slot) => slot,
            None => rebuild.add(tid, comm),
        };
        if let Some(track) = rebuild.tracks.get_mut(slot) {
            track.tgid = track.tgid.or(*tgid);
            if track.comm.is_empty() {
                track.comm.clone_from(comm);
            }
        }
    }
}

fn roles(groups: &[Group], tracks: &[Track]) -> Vec<Role> {
    let mut roles = vec![Role::Host; tracks.len()];
    let mut set = |slot: usize, role| {
        if let Some(place) = roles.get_mut(slot) {
            *place = role;
        }
    };
    for (number, group) in groups.iter().enumerate() {
        let vm = VmId::from(number);
        for &(index, slot) in &group.vcpus {
            set(slot, Role::Vcpu { vm, index });
        }
        for &slot in &group.threads {
            let kind = tracks.get(slot).map_or(VmThread::Other, |track| {
                names::vm_thread(&track.comm, track.tgid == Some(track.tid))
            });
            set(slot, Role::VmThread { vm, kind });
        }
    }
    roles
}

fn vm(group: &Group, tracks: &[Track], stated: &Stated) -> Vm {
    let ids = |slots: &mut dyn Iterator<Item = usize>| slots.map(TaskId::from).collect();
    Vm {
        name: name(group, tracks, stated),
        tgid: group.tgid,
        vcpus: ids(&mut group.vcpus.iter().map(|v| v.1)),
        threads: ids(&mut group.threads.iter().copied()),
        grouping: group.grouping,
    }
}

/// The stated name, or the command line's, else the main thread's name and process id, else the first vCPU's thread id.
fn name(group: &Group, tracks: &[Track], stated: &Stated) -> String {
    let Some(tgid) = group.tgid else {
        let first = group.vcpus.first().and_then(|v| tracks.get(v.1));
        return format!("vm-{}", first.map_or(0, |track| track.tid));
    };
    if let Some(name) = stated.vms.get(&tgid) {
        return name.clone();
    }
    if let Some(name) = stated
        .processes
        .get(&tgid)
        .and_then(|line| names::vm_name(line))
    {
        return name;
    }
    let main = tracks
        .iter()
        .rev()
        .find(|track| track.tid == tgid && !track.comm.is_empty());
    format!("{}-{tgid}", main.map_or("vm", |track| track.comm.as_str()))
}

/// Makes names of VMs unique by adding their process or place.
fn unique(mut vms: Vec<Vm>) -> Vec<Vm> {
    let names: Vec<String> = vms.iter().map(|vm| vm.name.clone()).collect();
    for (number, vm) in vms.iter_mut().enumerate() {
        if names.iter().filter(|name| **name == vm.name).count() > 1 {
            let id = vm.tgid.map_or(number as u64, u64::from);
            vm.name = format!("{}/{id}", vm.name);
        }
    }
    vms
}

fn cpus(cpus: &[Cpu], count: u32, end: Nanos) -> Vec<PcpuObserved> {
    let observed = |number: u32| {
        let cpu = cpus.get(number as usize).copied().unwrap_or_default();
        let busy = match cpu.current {
            Current::Slot(_) => cpu.busy + end.saturating_sub(cpu.since),
            _ => cpu.busy,
        };
        PcpuObserved {
            busy,
            idle: end.saturating_sub(busy),
            switches: cpu.switches,
        }
    };
    (0..count).map(observed).collect()
}

fn stacked(groups: &[Group], tracks: &[Track], end: Nanos) -> Nanos {
    let vcpus: Vec<Vcpu<'_>> = groups
        .iter()
        .enumerate()
        .flat_map(|(vm, group)| group.vcpus.iter().map(move |&(_, slot)| (vm, slot)))
        .filter_map(|(vm, slot)| {
            tracks.get(slot).map(|t| Vcpu {
                vm,
                queue: &t.queue,
            })
        })
        .collect();
    stacking::stacked(&vcpus, end)
}

/// Sets for each vCPU for how long it ran while a sibling was kept from running.
fn contest(groups: &[Group], tracks: &mut [Track], end: Nanos) {
    for group in groups {
        let lives: Vec<&[(Nanos, Being)]> = group
            .vcpus
            .iter()
            .map(|&(_, slot)| tracks.get(slot).map_or(&[][..], |track| &track.life))
            .collect();
        let sums = contested::contested(&lives, end);
        for (&(_, slot), sum) in group.vcpus.iter().zip(sums) {
            if let Some(track) = tracks.get_mut(slot) {
                track.seen.contested = sum;
            }
        }
    }
}

/// The runqueue on which the recording first shows `track`; the list of runqueues is not in order
/// of time.
fn first_pcpu(track: &Track) -> Option<PcpuId> {
    let placed = track.queue.iter().filter_map(|&(at, cpu)| Some((at, cpu?)));
    placed.min_by_key(|&(at, _)| at).map(|(_, cpu)| PcpuId(cpu))
}
