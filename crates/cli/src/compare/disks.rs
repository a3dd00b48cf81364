// SPDX-License-Identifier: GPL-2.0-only
//! From a scenario's disks to the simulator's.

use super::demand;
use super::schedulers::{elsewhere, set, unknown};
use corun_model::guests::IMAGE;
use corun_model::time::{self, SEC};
use corun_model::{NEUTRAL_WEIGHT, Nanos};
use corun_scenario::{
    AnticipatoryKeys, DeadlineKeys, Disk, HddKeys, Located, Problems, SsdKeys, Vm,
};
use corun_sim::device::disk::{
    AnticipatoryParams, DeadlineParams, DiskParams, HddParams, MediumParams, SchedulerParams,
    Share, SsdParams,
};
use corun_sim::guest::{self, DiskSpec, ThreadSpec};

/// All disks of a case, whose host has `hz` timer ticks per second.
///
/// # Errors
/// Kinds and schedulers that do not exist.
pub fn specs(disks: &[Disk], hz: u32) -> Result<Vec<DiskSpec>, Problems> {
    let (mut specs, mut problems) = (Vec::new(), Problems::default());
    for disk in disks {
        let params = problems.take(params(disk, hz));
        specs.extend(params.map(|params| DiskSpec {
            name: disk.name.clone(),
            params,
        }));
    }
    problems.or_ok(specs)
}

/// A VM's place on its disk, if it has one: it names one, or its threads need one.
///
/// # Errors
/// If it needs one, but names none of several, or there is none.
pub fn place(vm: &Vm, threads: &[ThreadSpec]) -> Result<Option<guest::DiskUse>, Problems> {
    let said = &vm.disk;
    let uses = |thread: &ThreadSpec| thread.program.uses_disk();
    let first = threads.iter().position(uses);
    let uses = first.is_some();
    let unplaced = first.filter(|_| said.disk.is_none());
    if let Some(place) = unplaced.and_then(|thread| demand::said_of(vm, thread)) {
        let message = format!(
            "VM {} reads or writes, but has no disk; add one [device.NAME] with kind = \"ssd\" or \
             \"hdd\", or say disk = \"NAME\" if there are several",
            vm.name
        );
        return Err(place.problem(message).into());
    }
    let place = |disk| guest::DiskUse {
        disk,
        size: said.size.as_ref().map_or(IMAGE, |size| size.value),
        share: Share {
            weight: said.weight.unwrap_or(NEUTRAL_WEIGHT),
            quota: said.quota,
        },
    };
    Ok(said.disk.filter(|_| uses || said.named).map(place))
}

fn params(disk: &Disk, hz: u32) -> Result<DiskParams, Problems> {
    let capacity = disk.capacity.as_ref().map(|said| said.value);
    let medium = match disk.kind.value.as_str() {
        "ssd" => MediumParams::Ssd(ssd(&disk.ssd, capacity)),
        "hdd" => MediumParams::Hdd(hdd(&disk.hdd, capacity)?),
        _ => return Err(unknown(Some(&disk.kind), &["ssd", "hdd"])),
    };
    let mut params = DiskParams::new(medium);
    set(&mut params.submit, disk.submit);
    set(&mut params.complete, disk.complete);
    set(&mut params.page_cache, disk.page_cache);
    let scheduler = disk.scheduler.as_ref().map(|said| said.value.as_str());
    params.scheduler = match scheduler {
        None | Some("deadline") => SchedulerParams::Deadline(deadline(&disk.deadline)),
        Some("none") => SchedulerParams::None,
        Some("anticipatory") => {
            let solid = matches!(params.medium, MediumParams::Ssd(_));
            SchedulerParams::Anticipatory(anticipatory(&disk.anticipatory, solid, hz))
        }
        Some(_) => {
            let known = ["none", "deadline", "anticipatory"];
            return Err(unknown(disk.scheduler.as_ref(), &known));
        }
    };
    Ok(params)
}

fn ssd(keys: &SsdKeys, capacity: Option<u64>) -> SsdParams {
    let mut params = SsdParams::default();
    set(&mut params.capacity, capacity);
    set(&mut params.read_latency, keys.read_latency);
    set(&mut params.write_latency, keys.write_latency);
    set(&mut params.read_bandwidth, keys.read_bandwidth);
    set(&mut params.write_bandwidth, keys.write_bandwidth);
    set(&mut params.parallel, keys.parallel);
    set(&mut params.queue_depth, keys.queue_depth);
    params
}

fn hdd(keys: &HddKeys, capacity: Option<u64>) -> Result<HddParams, Problems> {
    let mut params = HddParams::default();
    set(&mut params.capacity, capacity);
    set(&mut params.rpm, keys.rpm);
    let value = |said: &Option<Located<Nanos>>| said.as_ref().map(|said| said.value);
    set(&mut params.seek_track, value(&keys.seek_track));
    set(&mut params.seek_average, value(&keys.seek_average));
    set(&mut params.seek_full, value(&keys.seek_full));
    set(&mut params.bandwidth, keys.bandwidth);
    set(&mut params.link, keys.link);
    set(&mut params.read_ahead, keys.read_ahead);
    seeks_grow(keys, &params)?;
    Ok(params)
}

/// Checks that longer seeks do not take less time.
fn seeks_grow(keys: &HddKeys, params: &HddParams) -> Result<(), Problems> {
    let seeks = [
        ("seek_track", params.seek_track, &keys.seek_track),
        ("seek_average", params.seek_average, &keys.seek_average),
        ("seek_full", params.seek_full, &keys.seek_full),
    ];
    for pair in seeks.windows(2) {
        let [(near, short, said_near), (far, long, said_far)] = pair else {
            continue;
        };
        if short <= long {
            continue;
        }
        let (short, long) = (time::show(*short), time::show(*long));
        let message = format!("{near} is {short} and {far} {long}, expected at least as much");
        let said = said_far.as_ref().or(said_near.as_ref());
        return Err(said.map_or_else(
            || elsewhere(&message),
            |said| said.problem(message.clone()).into(),
        ));
    }
    Ok(())
}

fn deadline(keys: &DeadlineKeys) -> DeadlineParams {
    let mut params = DeadlineParams::default();
    set(&mut params.read_expire, keys.read_expire);
    set(&mut params.write_expire, keys.write_expire);
    set(&mut params.batch, keys.batch);
    set(&mut params.writes_starved, keys.writes_starved);
    params
}

fn anticipatory(keys: &AnticipatoryKeys, solid: bool, hz: u32) -> AnticipatoryParams {
    let mut params = match solid {
        true => AnticipatoryParams::solid(),
        false => AnticipatoryParams::default(),
    };
    params.tick = SEC / Nanos::from(hz.max(1));
    set(&mut params.slice_idle, keys.slice_idle);
    set(&mut params.group_idle, keys.group_idle);
    set(&mut params.slice, keys.slice);
    set(&mut params.target_latency, keys.target_latency);
    set(&mut params.expire, keys.expire);
    set(&mut params.quantum, keys.quantum);
    params
}
