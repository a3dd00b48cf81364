// SPDX-License-Identifier: GPL-2.0-only
//! Which VMs and vCPUs there are.
//!
//! The dispatcher knows a vCPU by what it does (it is inside KVM_RUN) and lists VMs by process id; /proc adds names,
//! the order of vCPUs, affinities and weights. No manager is asked or needed. Processes come and go during a look: what
//! cannot be read is left out this time.

use crate::descriptors;
use crate::helpers::{self, Helper};
use crate::inventory::role::vcpu_number;
use crate::inventory::{Identity, MOST_THREADS, identity};
use crate::perf::VcpuCounters;
use crate::tables::Tables;
use crate::vcpu_own::{Own, Threads};
use crate::vm_table::VmSlot;
use crate::{cgroup, pidfd};
use corun_dispatcher::{NO_VM, TaskConf, VmConf};
use corun_model::{PcpuSet, TaskId, VmId};
use corun_policies::weighing::Place;
use corun_system::affinity;
use corun_system::procfs::{Process, ThreadKey};
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A vCPU thread.
#[derive(Debug)]
pub(crate) struct Vcpu {
    pub(crate) task: TaskId,
    pub(crate) key: ThreadKey,
    /// Its number in the VM, if its name has it.
    pub(crate) number: Option<u32>,
    pub(crate) pidfd: OwnedFd,
    pub(crate) allowed: PcpuSet,
    /// What it weighs among its siblings, and what limits it.
    pub(crate) own: Own,
    /// What the dispatcher has been told about it.
    pub(crate) told: Option<TaskConf>,
    /// What could not be set for it, and still has to be.
    pub(crate) owed: Option<TaskConf>,
    /// What the kernel counts of it, while a policy wants to see that.
    pub(crate) counters: Option<VcpuCounters>,
}

/// What the dispatcher counts for a VM at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VmCounts {
    /// vCPUs ready or running.
    pub(crate) occupied: u64,
    /// Sum of their weights.
    pub(crate) active_weight: u64,
}

impl VmCounts {
    fn of(slot: &VmSlot) -> Self {
        Self {
            occupied: slot.occupied,
            active_weight: slot.active_weight,
        }
    }
}

/// Threads get their names soon after they begin: they are looked at for this many looks after their number has changed
/// (assumed; VMMs name them at once).
const NAMED: u32 = 5;
/// Every this many looks all threads are looked at anyway: one may have replaced another.
const SURE: u32 = 10;

/// How many threads of a process are taken for vCPUs by their names alone, beyond those that the dispatcher has seen to
/// be vCPUs: each takes descriptors, of which other VMs need some (assumed: more than a VM begins with at once).
pub(crate) const MOST_BY_NAME: usize = 1024;
/// Threads that are looked at in one go, though always all of one VM: if there are more, VMs take turns.
const MOST_AT_ONCE: usize = 8192;

/// Have a VM's threads been looked at, and are they as many as then? Listing them and reading their names
/// was most of what the daemon did once a second on a host of 500 vCPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settled {
    threads: u64,
    looks: u32,
    /// They are to be looked at, and have not been yet.
    wanted: bool,
    /// How many were not looked at along with the others, because there were too many.
    pub(crate) beyond: usize,
}

impl Settled {
    /// There are that many now. Is another look at them worth it?
    fn look(&mut self, threads: u64) -> bool {
        if self.threads != threads {
            (self.threads, self.looks) = (threads, 0);
        }
        let worth = self.is_due();
        self.looks = self.looks.wrapping_add(1);
        worth
    }

    /// Are they to be looked at again even if there are as many as before?
    fn is_due(&self) -> bool {
        let look = self.looks.wrapping_add(1);
        look <= NAMED || look.is_multiple_of(SURE)
    }
}

/// A VM.
#[derive(Debug)]
pub(crate) struct Vm {
    pub(crate) vm: VmId,
    /// Its place in the dispatcher's table.
    pub(crate) slot: u32,
    /// Its process.
    pub(crate) key: ThreadKey,
    pub(crate) name: String,
    /// What its manager calls it.
    pub(crate) identity: Identity,
    /// The cgroup that its process is in, as /proc has it.
    pub(crate) cgroup: Option<String>,
    /// The one around that which it has to itself.
    pub(crate) own_cgroup: Option<PathBuf>,
    /// `cpu.weight` of that.
    pub(crate) weight: Option<u32>,
    /// The cgroups around it, and what they weigh.
    pub(crate) place: Place,
    pub(crate) vcpus: Vec<Vcpu>,
    /// Its other threads.
    pub(crate) helpers: Vec<Helper>,
    /// As of the last look.
    pub(crate) counts: VmCounts,
    /// vCPUs the dispatcher counted when threads were looked for last.
    pub(crate) counted: u32,
    /// Whether there is anything to look for.
    pub(crate) settled: Settled,
    /// Threads about which nothing is known, since no descriptor was left for them.
    pub(crate) left_out: usize,
    /// What the dispatcher has been told about it.
    pub(crate) told: Option<VmConf>,
}

/// All VMs, in the order of their appearance.
#[derive(Debug, Default)]
pub(crate) struct Vms {
    pub(crate) list: Vec<Vm>,
    next_vm: u32,
    next_task: u32,
    /// Whose threads are looked at first.
    first: u32,
}

impl Vms {
    /// Brings the list up to date with the dispatcher's table. `thorough`: affinities, weights and
    /// threads, too; otherwise only what is new.
    pub(crate) fn refresh(&mut self, slots: &[VmSlot], tables: &Tables<'_, '_>, thorough: bool) {
        self.drop_ended(slots, thorough);
        let mut look = Look::at(slots);
        // Otherwise all of them are known: each has a slot of its own.
        if self.list.len() < slots.len() {
            let known: BTreeSet<u32> = self.list.iter().map(|vm| vm.slot).collect();
            for slot in slots.iter().filter(|slot| !known.contains(&slot.at)) {
                self.add(slot.at, slot.id, &mut look);
            }
        }
        for vm in &mut self.list {
            let Some(slot) = slot_at(slots, vm.slot) else {
                continue;
            };
            vm.counts = VmCounts::of(slot);
            if thorough {
                vm.weigh(&mut look);
                vm.vcpus.iter_mut().for_each(refresh_allowed);
            }
            let threads = || Process::here(vm.key.tgid).thread_count().unwrap_or(0);
            if vm.counted != slot.vcpus || thorough && vm.settled.look(threads()) {
                vm.counted = slot.vcpus;
                vm.settled.wanted = true;
            }
        }
        let mut next_task = self.next_task;
        self.take_turns(|vm| vm.find_threads(tables, &look, &mut next_task));
        self.next_task = next_task;
    }

    /// Has the threads of VMs looked at where that is wanted, until they are [`MOST_AT_ONCE`]; those that are left come first the
    /// next time. `look` returns how many there were.
    fn take_turns(&mut self, mut look: impl FnMut(&mut Vm) -> usize) {
        let begin = self.list.partition_point(|vm| vm.vm.0 < self.first);
        let (before, after) = self.list.split_at_mut(begin);
        let mut looked = 0;
        for vm in after.iter_mut().chain(before) {
            if !vm.settled.wanted {
                continue;
            }
            if looked >= MOST_AT_ONCE {
                self.first = vm.vm.0;
                break;
            }
            vm.settled.wanted = false;
            looked += look(vm);
        }
    }

    /// Forgets VMs that have gone. Another one may have got both the slot and the process's number since: where all
    /// vCPUs have gone, or threads are to be looked at, the start of that process is checked (the kernel sums up all
    /// threads for that).
    fn drop_ended(&mut self, slots: &[VmSlot], thorough: bool) {
        let is_listed =
            |vm: &Vm| slot_at(slots, vm.slot).is_some_and(|slot| slot.id == vm.key.tgid);
        let is_another = |vm: &Vm| {
            let start = || Process::here(vm.key.tgid).start();
            (vm.vcpus.is_empty() || vm.settled.is_due())
                && start().is_some_and(|start| start != vm.key.start)
        };
        self.list
            .retain(|vm| is_listed(vm) && !(thorough && is_another(vm)));
    }

    /// A VM that has just turned up, unless it has already gone again.
    fn add(&mut self, slot: u32, tgid: u32, look: &mut Look<'_>) {
        let process = Process::here(tgid);
        let Some((start, words)) = process.start().zip(process.words()) else {
            return;
        };
        let cgroup = process.cgroup();
        let identity = identity::of(Path::new("/"), tgid, &words, cgroup.as_deref());
        let own_cgroup = look.own_cgroup(tgid, cgroup.as_deref());
        let (weight, place) = look.place(own_cgroup.as_deref(), cgroup.as_deref());
        self.list.push(Vm {
            vm: VmId(self.next_vm),
            slot,
            key: ThreadKey {
                tgid,
                tid: tgid,
                start,
            },
            name: identity.name.clone(),
            identity,
            weight,
            place,
            cgroup,
            own_cgroup,
            vcpus: Vec::new(),
            helpers: Vec::new(),
            counts: VmCounts::default(),
            counted: 0,
            settled: Settled::default(),
            left_out: 0,
            told: None,
        });
        self.next_vm += 1;
    }

    /// Where a VM is among the cgroups.
    pub(crate) fn place(&self, vm: VmId) -> Option<&Place> {
        let at = self.list.binary_search_by_key(&vm, |it| it.vm).ok()?;
        self.list.get(at).map(|vm| &vm.place)
    }

    /// Forgets vCPUs whose threads have gone.
    pub(crate) fn drop_gone(&mut self, gone: &BTreeSet<TaskId>) {
        for vm in &mut self.list {
            vm.vcpus.retain(|vcpu| !gone.contains(&vcpu.task));
        }
    }
}

impl Vm {
    /// Brings its weight up to date. Which cgroup is its own takes listing processes: that is looked up when it goes
    /// to another one, or its own is gone, and when its threads are looked at.
    fn weigh(&mut self, look: &mut Look<'_>) {
        let cgroup = Process::here(self.key.tgid).cgroup();
        let is_there = |own: &PathBuf| own.exists();
        if cgroup != self.cgroup || !self.own_cgroup.as_ref().is_none_or(is_there) {
            self.cgroup = cgroup;
            self.find_cgroup(look);
        }
        (self.weight, self.place) = look.place(self.own_cgroup.as_deref(), self.cgroup.as_deref());
    }

    /// Looks up which cgroup is its own.
    fn find_cgroup(&mut self, look: &Look<'_>) {
        self.own_cgroup = look.own_cgroup(self.key.tgid, self.cgroup.as_deref());
    }

    /// Adds vCPU threads that are not known yet, and brings its cgroup, what its vCPUs weigh and its other
    /// threads up to date. Returns how many threads were looked at.
    fn find_threads(
        &mut self,
        tables: &Tables<'_, '_>,
        look: &Look<'_>,
        next_task: &mut u32,
    ) -> usize {
        let tgid = self.key.tgid;
        let process = Process::here(tgid);
        self.find_cgroup(look);
        let owns = Threads::of(tgid, look.mount());
        for vcpu in &mut self.vcpus {
            vcpu.own = owns.of_thread(vcpu.key.tid);
        }
        let threads = process.some_threads(MOST_THREADS);
        let count = process.thread_count().unwrap_or(0) as usize;
        self.settled.beyond = count.saturating_sub(MOST_THREADS);
        let known = self.tids();
        let number = |tid| vcpu_number(&process.thread(tid).name()?);
        let new = threads.iter().copied().filter(|tid| !known.contains(tid));
        let new = new.map(|tid| (tid, number(tid))).collect();
        self.left_out = 0;
        self.add_vcpus(new, &owns, tables, next_task);
        self.vcpus
            .sort_by_key(|vcpu| (vcpu.number.unwrap_or(u32::MAX), vcpu.key.tid));
        let vcpus = self.tids();
        self.left_out += helpers::refresh(&mut self.helpers, &vcpus, &process, tgid, &threads);
        threads.len()
    }

    /// The threads of its vCPUs. A set: to search the list for each of a process's threads took seconds with 50,000.
    fn tids(&self) -> BTreeSet<u32> {
        self.vcpus.iter().map(|vcpu| vcpu.key.tid).collect()
    }

    /// Adds the vCPUs among its `new` threads, which come with the numbers in their names.
    fn add_vcpus(
        &mut self,
        new: Vec<(u32, Option<u32>)>,
        owns: &Threads,
        tables: &Tables<'_, '_>,
        next_task: &mut u32,
    ) {
        let tgid = self.key.tgid;
        for (tid, number) in self.believed(self.may_be_vcpus(new)) {
            let mut vcpu = match open_vcpu((tgid, tid), number, owns, tables, TaskId(*next_task)) {
                Ok(Some(vcpu)) => vcpu,
                Ok(None) => continue,
                Err(why) => {
                    self.left_out += usize::from(descriptors::are_all_taken(&why));
                    continue;
                }
            };
            *next_task += 1;
            // Before it had its name it may have been taken for something else.
            let was = self.helpers.iter().find(|helper| helper.key == vcpu.key);
            vcpu.told = was.map(|helper| helper.told);
            self.vcpus.push(vcpu);
        }
    }

    /// Which of its other threads may be vCPUs, with the numbers in their names. If a VMM names its threads
    /// differently, the dispatcher decides, which notices vCPUs one by one as they want to run: then it is asked at
    /// every look about each thread that is not known yet.
    fn may_be_vcpus(&self, mut new: Vec<(u32, Option<u32>)>) -> Vec<(u32, Option<u32>)> {
        let is_named = |(_, number): &(u32, Option<u32>)| number.is_some();
        let tell = new.iter().any(is_named) || self.vcpus.iter().any(|vcpu| vcpu.number.is_some());
        new.retain(|thread| !tell || is_named(thread));
        new
    }

    /// These threads, but of those that are vCPUs only by their names, no more than can be believed.
    fn believed(&mut self, mut new: Vec<(u32, Option<u32>)>) -> Vec<(u32, Option<u32>)> {
        let most = self.counted as usize + MOST_BY_NAME;
        let mut room = most.saturating_sub(self.vcpus.len());
        let all = new.len();
        // For threads without such a name, the dispatcher decides.
        new.retain(|(_, number)| {
            let is_believed = number.is_none() || room > 0;
            room = room.saturating_sub(usize::from(number.is_some()));
            is_believed
        });
        self.settled.beyond += all - new.len();
        new
    }
}

/// A vCPU for thread `tid` of process `tgid`; `None` if it has gone, or has no vCPU's name and the dispatcher does not
/// know it as one.
///
/// # Errors
/// Why there is no descriptor for it.
fn open_vcpu(
    (tgid, tid): (u32, u32),
    number: Option<u32>,
    owns: &Threads,
    tables: &Tables<'_, '_>,
    task: TaskId,
) -> io::Result<Option<Vcpu>> {
    let pidfd = pidfd::open_thread(tid)?;
    let is_vcpu = || {
        let ctx = tables.task(pidfd.as_fd()).ok().flatten();
        ctx.is_some_and(|ctx| ctx.vm != NO_VM)
    };
    // Read after the descriptor was opened: if the thread is still there, both mean the same one.
    let start = Process::here(tgid).thread(tid).start();
    let there = start.filter(|_| number.is_some() || is_vcpu());
    Ok(there
        .zip(affinity::get(tid).ok())
        .map(|(start, allowed)| Vcpu {
            task,
            key: ThreadKey { tgid, tid, start },
            number,
            pidfd,
            allowed,
            own: owns.of_thread(tid),
            told: None,
            owed: None,
            counters: None,
        }))
}

fn refresh_allowed(vcpu: &mut Vcpu) {
    if let Ok(allowed) = affinity::get(vcpu.key.tid) {
        vcpu.allowed = allowed;
    }
}

/// The slot with this place in the table, if it is occupied: they are listed in the order of the table.
fn slot_at(slots: &[VmSlot], at: u32) -> Option<&VmSlot> {
    let found = slots.binary_search_by_key(&at, |slot| slot.at).ok()?;
    slots.get(found)
}

/// Where cgroups of this host are mounted.
fn mounted() -> Option<PathBuf> {
    cgroup::mount(Path::new("/"))
}

/// What has to be known of this host only once for all VMs that are looked at together, and only if it is asked for: in
/// most looks it is not.
struct Look<'a> {
    slots: &'a [VmSlot],
    /// The processes of all VMs.
    processes: OnceCell<BTreeSet<u32>>,
    /// Where cgroups are mounted.
    mount: OnceCell<Option<PathBuf>>,
    /// The cgroups that have been read.
    read: cgroup::Read,
}

impl<'a> Look<'a> {
    fn at(slots: &'a [VmSlot]) -> Self {
        Self {
            slots,
            processes: OnceCell::new(),
            mount: OnceCell::new(),
            read: cgroup::Read::new(),
        }
    }

    fn mount(&self) -> Option<&Path> {
        self.mount.get_or_init(mounted).as_deref()
    }

    /// Of the cgroup that a process of this host is in and those around it, the one that it has to itself among all VMs.
    fn own_cgroup(&self, tgid: u32, cgroup: Option<&str>) -> Option<PathBuf> {
        let all = || self.slots.iter().map(|slot| slot.id).collect();
        let is_vm = |process: u32| self.processes.get_or_init(all).contains(&process);
        cgroup::own_cgroup(self.mount()?, tgid, cgroup?, &is_vm)
    }

    /// `cpu.weight` of the cgroup that a VM of this host has to itself, `own`, and where the VM is, which is in `cgroup`.
    fn place(&mut self, own: Option<&Path>, cgroup: Option<&str>) -> (Option<u32>, Place) {
        let mount = self.mount.get_or_init(mounted).as_deref();
        let place = (mount.zip(cgroup))
            .map(|(mount, within)| cgroup::place(mount, own, within, &mut self.read));
        let weight = own.and_then(|own| self.read.weight(own));
        (weight, place.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first slot, of a VM with this process.
    fn slot(process: u32) -> VmSlot {
        VmSlot {
            id: process,
            ..VmSlot::default()
        }
    }

    #[test]
    fn a_vm_with_the_number_of_one_that_has_gone_is_another() {
        let me = std::process::id();
        let start = Process::here(me).start().unwrap();
        let left_after = |looks, start, slots: &[VmSlot], thorough| {
            let mut list = crate::apply::tests::host().0;
            list.truncate(1);
            list[0].settled.looks = looks;
            list[0].key = ThreadKey {
                tgid: me,
                tid: me,
                start,
            };
            let mut vms = Vms {
                list,
                ..Vms::default()
            };
            vms.drop_ended(slots, thorough);
            vms.list.len()
        };
        let left = |start, slots, thorough| left_after(0, start, slots, thorough);
        let slots = [slot(me)];
        assert_eq!(left(start, &slots, true), 1);
        assert_eq!(left_after(NAMED, start - 1, &slots, true), 1, "settled");
        assert_eq!(left_after(SURE - 1, start - 1, &slots, true), 0);
        assert_eq!(left(start - 1, &slots, false), 1, "not looked at");
        assert_eq!(left(start - 1, &slots, true), 0);
        assert_eq!(left(start, &[], false), 0);
    }

    /// crosvm and kvmtool, QEMU without `debug-threads=on`: vCPUs that slept when corun came, and those plugged in later.
    #[test]
    fn vcpus_without_names_are_asked_for_at_every_look() {
        let mut vm = crate::apply::tests::host().0.remove(0);
        let asked = |vm: &Vm, new: &[(u32, Option<u32>)]| -> Vec<u32> {
            let found = vm.may_be_vcpus(new.to_vec());
            found.iter().map(|(tid, _)| *tid).collect()
        };
        let (nameless, mixed) = ([(5, None), (6, None)], [(5, None), (6, Some(1))]);
        assert!(!vm.vcpus.is_empty());
        for number in [None, Some(0)] {
            vm.vcpus.iter_mut().for_each(|vcpu| vcpu.number = number);
            let all: &[u32] = if number.is_none() { &[5, 6] } else { &[] };
            assert_eq!(asked(&vm, &nameless), all, "some are known");
            assert_eq!(asked(&vm, &mixed), [6], "names tell");
        }
        vm.vcpus.clear();
        assert_eq!(asked(&vm, &nameless), [5, 6]);
        assert_eq!(asked(&vm, &mixed), [6]);
    }

    /// Anybody who may use /dev/kvm can give 50,000 threads such names beside one vCPU, and use up all descriptors.
    #[test]
    fn names_are_believed_as_far_as_there_may_be_vcpus() {
        let believed = |counted, new: &[(u32, Option<u32>)]| {
            let mut vm = crate::apply::tests::host().0.remove(0);
            assert_eq!(vm.vcpus.len(), 2);
            vm.counted = counted;
            let found = vm.believed(new.to_vec());
            assert_eq!(vm.settled.beyond, new.len() - found.len());
            found.len()
        };
        let named: Vec<_> = (0..50_000).map(|tid| (tid, Some(tid))).collect();
        assert_eq!(believed(2, &named), MOST_BY_NAME);
        assert_eq!(believed(0, &named), MOST_BY_NAME - 2);
        assert_eq!(believed(3000, &named), 3000 - 2 + MOST_BY_NAME);
        assert_eq!(believed(2, &named[..500]), 500);
        let nameless: Vec<_> = (0..5000).map(|tid| (tid, None)).collect();
        assert_eq!(believed(2, &nameless), 5000, "the dispatcher tells");
    }

    #[test]
    fn vms_with_very_many_threads_take_turns() {
        let mut vms = Vms {
            list: crate::apply::tests::host().0,
            ..Vms::default()
        };
        let looked = |vms: &mut Vms, want: bool, threads| {
            (vms.list.iter_mut()).for_each(|vm| vm.settled.wanted |= want);
            let mut looked = Vec::new();
            vms.take_turns(|vm| {
                looked.push(vm.vm.0);
                threads
            });
            looked
        };
        assert_eq!(looked(&mut vms, true, 50), [0, 1, 2]);
        assert!(looked(&mut vms, false, 50).is_empty());
        let most = MOST_AT_ONCE;
        assert_eq!(looked(&mut vms, true, most), [0], "one at least");
        assert_eq!(looked(&mut vms, true, most), [1], "not the first again");
        assert_eq!(looked(&mut vms, false, most / 2), [2, 0]);
        assert!(looked(&mut vms, false, most).is_empty());
    }

    #[test]
    fn a_cgroup_is_looked_up_anew_when_the_vm_goes_to_another_or_it_is_gone() {
        let me = std::process::id();
        let here = Process::here(me).cgroup();
        let own = tempfile::tempdir().unwrap();
        std::fs::write(own.path().join("cpu.weight"), "777\n").unwrap();
        let weighed = |cgroup: Option<String>, own: &Path| {
            let mut vm = crate::apply::tests::host().0.remove(0);
            vm.key.tgid = me;
            vm.cgroup = cgroup;
            vm.own_cgroup = Some(own.to_path_buf());
            let slots = [slot(me)];
            vm.weigh(&mut Look::at(&slots));
            assert_eq!(vm.cgroup, here);
            vm.weight
        };
        assert_eq!(weighed(here.clone(), own.path()), Some(777));
        assert_ne!(weighed(Some("/elsewhere".into()), own.path()), Some(777));
        assert_ne!(weighed(here.clone(), Path::new("/gone")), Some(777));
    }

    #[test]
    fn threads_are_looked_at_when_they_change_and_now_and_then() {
        let mut settled = Settled::default();
        let looked =
            |settled: &mut Settled, threads| (0..20).filter(|_| settled.look(threads)).count();
        assert_eq!(looked(&mut settled, 9), 5 + 2);
        assert_eq!(looked(&mut settled, 9), 2, "as many as before");
        assert_eq!(looked(&mut settled, 10), 5 + 2);
    }
}
