// SPDX-License-Identifier: GPL-2.0-only
//! The dispatcher's tables, read and written as the C structs they hold.
//!
//! Tasks are looked up by pidfd: the kernel finds the one thread that the descriptor stands for, even if its id is used
//! again, and no walk over all tasks of the host is needed, as a BPF task iterator would make.

use crate::apply::Told;
use crate::awaited::Awaited;
use crate::books::TaskStates;
use crate::discovery::Vcpu;
use crate::knobs::{Live, Parts};
use crate::skel::{CorunMaps, types};
use crate::vm_table::{VmSlot, VmTable};
use corun_dispatcher::{MAX_PCPUS, PcpuConf, PoolConf, TaskConf, VmConf};
use corun_model::{AwaitedHidden, Nanos};
use corun_system::clock;
use corun_system::procfs::ThreadKey;
use libbpf_rs::{MapCore, MapFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// # Safety
/// Every pattern of bytes must be a value of the type, and it must have no padding.
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: integers only, laid out by the C compiler's BTF without gaps.
unsafe impl Plain for types::task_ctx {}
// SAFETY: as above.
unsafe impl Plain for types::vm_ctx {}
// SAFETY: as above.
unsafe impl Plain for types::knobs {}
// SAFETY: as above.
unsafe impl Plain for types::gang_ctx {}
// SAFETY: integers only, as large as what the C compiler laid out (see below), so without gaps.
unsafe impl Plain for VmConf {}
// SAFETY: as above.
unsafe impl Plain for TaskConf {}
// SAFETY: as above.
unsafe impl Plain for PoolConf {}
// SAFETY: as above.
unsafe impl Plain for PcpuConf {}

/// The native build and the BPF build get the same settings: both take their layout from `dispatcher/types.h`.
const _: () = {
    assert!(size_of::<VmConf>() == size_of::<types::vm_conf>());
    assert!(size_of::<TaskConf>() == size_of::<types::task_conf>());
    assert!(size_of::<PoolConf>() == size_of::<types::pool_conf>());
    assert!(size_of::<PcpuConf>() == size_of::<types::pcpu_conf>());
};

/// The bytes of a value.
pub(crate) fn bytes_of<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: `Plain` has no padding, so all of its bytes are initialised.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// What a loaded dispatcher knows of pCPUs: its `cpu_ctxs`, which it writes at any time.
#[derive(Clone, Copy)]
pub(crate) struct Pcpus<'a> {
    all: *const [types::cpu_ctx; MAX_PCPUS],
    mapped: PhantomData<&'a ()>,
}

impl Pcpus<'_> {
    /// # Safety
    /// `all` points to the dispatcher's, mapped for as long as `'a`; nobody holds a reference to them.
    pub(crate) unsafe fn new(all: *const [types::cpu_ctx; MAX_PCPUS]) -> Self {
        Self {
            all,
            mapped: PhantomData,
        }
    }

    fn get(self, cpu: u32) -> Option<types::cpu_ctx> {
        let one = self.all.cast::<types::cpu_ctx>().wrapping_add(cpu as usize);
        // SAFETY: by the contract of `new`, and within the array. All of its fields are integers, so what
        // is read while the kernel writes is a value, at worst with fields of two moments.
        ((cpu as usize) < MAX_PCPUS).then(|| unsafe { one.read_volatile() })
    }
}

/// Access to the tables of a loaded dispatcher.
pub(crate) struct Tables<'a, 'obj> {
    maps: &'a CorunMaps<'obj>,
    vms: &'a VmTable,
    states: Result<&'a TaskStates, &'a str>,
    awaited: Result<&'a Awaited, AwaitedHidden>,
    live: Live<'a>,
    pcpus: Pcpus<'a>,
}

impl<'a, 'obj> Tables<'a, 'obj> {
    pub(crate) fn new(
        maps: &'a CorunMaps<'obj>,
        vms: &'a VmTable,
        states: Result<&'a TaskStates, &'a str>,
        awaited: Result<&'a Awaited, AwaitedHidden>,
        live: Live<'a>,
        pcpus: Pcpus<'a>,
    ) -> Self {
        Self {
            maps,
            vms,
            states,
            awaited,
            live,
            pcpus,
        }
    }

    /// What reading them takes more of than it should, a sentence, if it does.
    pub(crate) fn slow_because(&self) -> Option<String> {
        let why = self.states.err()?;
        Some(format!(
            "vCPUs' counters are read one by one, which with hundreds of them takes more of a pCPU: {why}"
        ))
    }

    /// From now on, notices when siblings wait for these vCPUs, and for no others. Returns the reason if it cannot: no
    /// reason to give up anything else.
    pub(crate) fn look_for_awaited(&self, vcpus: &BTreeSet<ThreadKey>) -> Option<AwaitedHidden> {
        match self.awaited {
            Ok(awaited) => (awaited.look_for(vcpus).err()).map(|_| AwaitedHidden::Refused),
            Err(hidden) => Some(hidden),
        }
    }

    /// Occupied VM slots of a host whose pCPUs have numbers below `pcpus`.
    pub(crate) fn vms(&self, pcpus: u32) -> Vec<VmSlot> {
        self.vms.occupied(pcpus)
    }

    /// What the dispatcher knows of a pCPU; `None` of one with a number too high.
    pub(crate) fn cpu(&self, cpu: u32) -> Option<types::cpu_ctx> {
        self.pcpus.get(cpu)
    }

    /// What it knows of a task; `None` if the task has gone.
    pub(crate) fn task(&self, pidfd: BorrowedFd<'_>) -> libbpf_rs::Result<Option<types::task_ctx>> {
        lookup(&self.maps.task_ctxs, &pidfd.as_raw_fd().to_ne_bytes())
    }

    /// What it knows about these vCPUs, and when that was read, passed one by one in their order; `None` for those that
    /// have gone.
    pub(crate) fn vcpus(
        &self,
        vcpus: &[&Vcpu],
        mut tell: impl FnMut(&Vcpu, Option<(&types::task_ctx, Nanos)>),
    ) -> libbpf_rs::Result<()> {
        let Ok(states) = self.states else {
            return vcpus.iter().try_for_each(|vcpu| {
                let ctx = self.task(vcpu.pidfd.as_fd())?;
                tell(vcpu, ctx.as_ref().map(|ctx| (ctx, clock::now())));
                Ok(())
            });
        };
        let keys: Vec<_> = vcpus.iter().map(|vcpu| vcpu.key).collect();
        let mut next = vcpus.iter();
        states.read(&keys, |told| {
            if let Some(vcpu) = next.next() {
                tell(vcpu, told);
            }
        })
    }

    /// How long the vCPUs of the VM in a slot have been co-stopped, by thread, ns.
    pub(crate) fn costop(&self, slot: u32) -> libbpf_rs::Result<BTreeMap<u32, Nanos>> {
        let gang: Option<types::gang_ctx> = lookup(&self.maps.gang_ctxs, &slot.to_ne_bytes())?;
        let members = gang.iter().flat_map(|gang| &gang.vcpu);
        let known = members.filter(|member| member.id != 0);
        Ok(known.map(|member| (member.id, member.costop)).collect())
    }
}

impl Told for Tables<'_, '_> {
    /// The dispatcher may read at any time, so the entry is void (id 0) until all else is written.
    fn set_vm_conf(&self, slot: u32, conf: VmConf) -> libbpf_rs::Result<()> {
        let key = slot.to_ne_bytes();
        let map = &self.maps.vm_confs;
        let void = VmConf { id: 0, ..conf };
        map.update(&key, bytes_of(&void), MapFlags::ANY)?;
        map.update(&key, bytes_of(&conf), MapFlags::ANY)
    }

    fn set_task_conf(&self, pidfd: BorrowedFd<'_>, conf: TaskConf) -> libbpf_rs::Result<bool> {
        let key = pidfd.as_raw_fd().to_ne_bytes();
        let map = &self.maps.task_confs;
        let told = map.update(&key, bytes_of(&conf), MapFlags::ANY);
        gone_is_none(told.map(Some)).map(|told| told.is_some())
    }

    fn set_pool_conf(&self, pool: u32, conf: PoolConf) -> libbpf_rs::Result<()> {
        let map = &self.maps.pool_confs;
        map.update(&pool.to_ne_bytes(), bytes_of(&conf), MapFlags::ANY)
    }

    fn set_pcpu_conf(&self, cpu: u32, conf: PcpuConf) -> libbpf_rs::Result<()> {
        let map = &self.maps.pcpu_confs;
        map.update(&cpu.to_ne_bytes(), bytes_of(&conf), MapFlags::ANY)
    }

    fn set_parts(&self, parts: Parts) {
        self.live.set(parts);
    }
}

fn lookup<T: Plain>(map: &impl MapCore, key: &[u8]) -> libbpf_rs::Result<Option<T>> {
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: zeroed memory of exactly this length, borrowed for the call only.
    let bytes =
        unsafe { std::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
    let found = gone_is_none(map.lookup_into(key, bytes, MapFlags::ANY).map(Some))?;
    // SAFETY: `Plain` takes any bytes; they were zero, then filled.
    Ok((found == Some(true)).then(|| unsafe { value.assume_init() }))
}

/// A task that vanished is no error.
fn gone_is_none<T>(result: libbpf_rs::Result<Option<T>>) -> libbpf_rs::Result<Option<T>> {
    match result {
        Err(error) if is_gone(&error) => Ok(None),
        other => other,
    }
}

fn is_gone(error: &libbpf_rs::Error) -> bool {
    matches!(error.kind(), libbpf_rs::ErrorKind::NotFound)
        || std::error::Error::source(error)
            .and_then(|cause| cause.downcast_ref::<std::io::Error>())
            .is_some_and(|cause| cause.raw_os_error() == Some(libc::ESRCH))
}
