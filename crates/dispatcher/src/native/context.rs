// SPDX-License-Identifier: GPL-2.0-only
//! What C is handed at each call: where the dispatcher's tables lie, and a table of functions for what it needs
//! done (`struct native_host` of `dispatcher/platform/native.h`).
//!
//! The table of functions is made for any [`Services`]: each entry turns the context pointer back into [`Inner`]
//! and calls the method. C code holds task pointers only during a call; outside, tasks are named by index.

use super::services::{Kick, Services};
use crate::conf::{GroupConf, Knobs, PcpuConf, PoolConf, VmConf};
use crate::layout::{
    CpuCtx, GangCtx, GangSlots, GroupCtx, MAX_PCPUS, MAX_VMS, PcpuIndex, TaskStruct, VmCtx,
};
use std::alloc::{self, Layout};
use std::ffi::c_void;
use std::ptr;

/// `struct native_host`: what C calls.
#[repr(C)]
struct HostTable {
    claim_idle: extern "C" fn(*mut c_void, i32) -> bool,
    queue_length: extern "C" fn(*mut c_void, u64) -> u32,
    move_first: extern "C" fn(*mut c_void, u64) -> bool,
    next_queued: extern "C" fn(*mut c_void, u64, *mut TaskStruct) -> *mut TaskStruct,
    move_queued: extern "C" fn(*mut c_void, *mut TaskStruct, i32) -> bool,
    requeue: extern "C" fn(*mut c_void, *mut TaskStruct, u64, u64) -> bool,
    insert: extern "C" fn(*mut c_void, *mut TaskStruct, u64, u64, u64, u64),
    insert_next: extern "C" fn(*mut c_void, *mut TaskStruct, i32, u64),
    insert_local: extern "C" fn(*mut c_void, *mut TaskStruct, u64),
    kick: extern "C" fn(*mut c_void, i32, u32),
    set_slice: extern "C" fn(*mut c_void, *mut TaskStruct, u64),
    start_timer: extern "C" fn(*mut c_void, i32, u64),
    tap_in: extern "C" fn(*mut c_void, u32, u64) -> u64,
    tap_out: extern "C" fn(*mut c_void, u32, u64),
}

/// `struct native_context`: what C knows of the host, the callback and the time.
#[repr(C)]
pub(super) struct Context {
    pub(super) this: *mut c_void,
    host: *const HostTable,
    pub(super) cpus: *mut CpuCtx,
    pub(super) vms: *mut VmCtx,
    vm_confs: *mut VmConf,
    pub(super) gangs: *mut GangCtx,
    pools: *mut PoolConf,
    pcpu_confs: *mut PcpuConf,
    pub(super) group_confs: *mut GroupConf,
    pub(super) groups: *mut GroupCtx,
    pub(super) current: *mut TaskStruct,
    pub(super) knobs: Knobs,
    pub(super) slots: GangSlots,
    pub(super) now: u64,
    pub(super) cpu: i32,
    vms_seen: u32,
    vms_ended: u64,
    pub(super) interrupt: u64,
    pub(super) index: PcpuIndex,
}

/// What the C side's pointers lead to. Boxed, so that it stays where it is.
pub(super) struct Inner<S> {
    pub(super) context: Context,
    pub(super) services: S,
    pub(super) tasks: Vec<TaskStruct>,
    pub(super) cpus: Box<[CpuCtx]>,
    pub(super) vms: Box<[VmCtx]>,
    pub(super) vm_confs: Box<[VmConf]>,
    pub(super) gangs: Box<[GangCtx]>,
    pub(super) pools: Box<[PoolConf]>,
    pub(super) pcpu_confs: Box<[PcpuConf]>,
    pub(super) group_confs: Box<[GroupConf]>,
    pub(super) groups: Box<[GroupCtx]>,
}

/// Turns the context pointer of a C call back into what it points at.
///
/// # Safety
/// `this` must be the pointer that `Native::enter` stored, during the call that it makes.
unsafe fn inner<'a, S>(this: *mut c_void) -> &'a mut Inner<S> {
    // SAFETY: per contract the box lives and nobody else uses it: `enter` has exclusive access and
    // does not touch it until C returns.
    unsafe { &mut *this.cast::<Inner<S>>() }
}

impl<S> Inner<S> {
    fn index_of(&self, p: *const TaskStruct) -> usize {
        let offset = (p as usize).wrapping_sub(self.tasks.as_ptr() as usize);
        offset / size_of::<TaskStruct>()
    }

    pub(super) fn pointer_to(&mut self, task: usize) -> *mut TaskStruct {
        debug_assert!(task < self.tasks.len());
        self.tasks.as_mut_ptr().wrapping_add(task)
    }

    /// The same of a task that there may be none of: null then.
    pub(super) fn pointer_or_null(&mut self, task: Option<usize>) -> *mut TaskStruct {
        task.map_or(ptr::null_mut(), |task| self.pointer_to(task))
    }
}

impl<S: Services> Inner<S> {
    /// The tables of a host for which nothing has been set yet, each pCPU idle, and the context that leads C to them.
    pub(super) fn new(knobs: Knobs, services: S) -> Box<Self> {
        let idle = CpuCtx {
            idle: 1,
            ..CpuCtx::default()
        };
        let mut inner = Box::new(Self {
            context: Context {
                this: ptr::null_mut(),
                host: &Table::<S>::HOST,
                cpus: ptr::null_mut(),
                vms: ptr::null_mut(),
                vm_confs: ptr::null_mut(),
                gangs: ptr::null_mut(),
                pools: ptr::null_mut(),
                pcpu_confs: ptr::null_mut(),
                group_confs: ptr::null_mut(),
                groups: ptr::null_mut(),
                current: ptr::null_mut(),
                knobs,
                slots: GangSlots::default(),
                now: 0,
                cpu: 0,
                vms_seen: 0,
                vms_ended: 0,
                interrupt: 0,
                index: PcpuIndex::empty(),
            },
            services,
            tasks: Vec::new(),
            cpus: vec![idle; MAX_PCPUS].into(),
            vms: no_vms(),
            vm_confs: vec![VmConf::default(); MAX_VMS].into(),
            gangs: Box::default(),
            pools: vec![PoolConf::default(); MAX_PCPUS].into(),
            pcpu_confs: vec![PcpuConf::default(); MAX_PCPUS].into(),
            group_confs: Box::default(),
            groups: Box::default(),
        });
        inner.context.cpus = inner.cpus.as_mut_ptr();
        inner.context.vms = inner.vms.as_mut_ptr();
        inner.context.vm_confs = inner.vm_confs.as_mut_ptr();
        inner.context.pools = inner.pools.as_mut_ptr();
        inner.context.pcpu_confs = inner.pcpu_confs.as_mut_ptr();
        inner
    }
}

/// The table of VMs, empty. It has two megabytes, of which most hosts use little: memory that the system hands out as
/// zeros costs nothing until it is touched.
fn no_vms() -> Box<[VmCtx]> {
    let layout = Layout::new::<[VmCtx; MAX_VMS]>();
    // SAFETY: the layout has a size above 0. A `VmCtx` is numbers, so all zeros are one.
    unsafe {
        let table = alloc::alloc_zeroed(layout).cast::<[VmCtx; MAX_VMS]>();
        if table.is_null() {
            alloc::handle_alloc_error(layout);
        }
        Box::from_raw(table)
    }
}

/// The functions that C calls on a kind of host.
struct Table<S>(std::marker::PhantomData<S>);

impl<S: Services> Table<S> {
    const HOST: HostTable = HostTable {
        claim_idle: Self::claim_idle,
        queue_length: Self::queue_length,
        move_first: Self::move_first,
        next_queued: Self::next_queued,
        move_queued: Self::move_queued,
        requeue: Self::requeue,
        insert: Self::insert,
        insert_next: Self::insert_next,
        insert_local: Self::insert_local,
        kick: Self::kick,
        set_slice: Self::set_slice,
        start_timer: Self::start_timer,
        tap_in: Self::tap_in,
        tap_out: Self::tap_out,
    };

    extern "C" fn claim_idle(this: *mut c_void, cpu: i32) -> bool {
        // SAFETY: called by C during `Native::enter`.
        unsafe { inner::<S>(this) }.services.claim_idle(cpu as u32)
    }

    extern "C" fn queue_length(this: *mut c_void, queue: u64) -> u32 {
        // SAFETY: called by C during `Native::enter`.
        unsafe { inner::<S>(this) }.services.queue_length(queue)
    }

    extern "C" fn move_first(this: *mut c_void, queue: u64) -> bool {
        // SAFETY: called by C during `Native::enter`.
        unsafe { inner::<S>(this) }.services.move_first(queue)
    }

    extern "C" fn next_queued(
        this: *mut c_void,
        queue: u64,
        after: *mut TaskStruct,
    ) -> *mut TaskStruct {
        // SAFETY: called by C during `Native::enter`.
        let inner = unsafe { inner::<S>(this) };
        let after = (!after.is_null()).then(|| inner.index_of(after));
        let next = inner.services.next_queued(queue, after);
        inner.pointer_or_null(next)
    }

    extern "C" fn move_queued(this: *mut c_void, p: *mut TaskStruct, cpu: i32) -> bool {
        // SAFETY: called by C during `Native::enter`.
        let inner = unsafe { inner::<S>(this) };
        let task = inner.index_of(p);
        inner.services.move_queued(task, cpu as u32)
    }

    extern "C" fn requeue(this: *mut c_void, p: *mut TaskStruct, queue: u64, vtime: u64) -> bool {
        // SAFETY: called by C during `Native::enter`.
        let inner = unsafe { inner::<S>(this) };
        let task = inner.index_of(p);
        inner.tasks[task].queued_vtime = vtime;
        inner.services.requeue(task, queue, vtime)
    }

    extern "C" fn insert(
        this: *mut c_void,
        p: *mut TaskStruct,
        queue: u64,
        slice: u64,
        vtime: u64,
        _flags: u64,
    ) {
        // SAFETY: called by C during `Native::enter`.
        let inner = unsafe { inner::<S>(this) };
        let task = inner.index_of(p);
        inner.tasks[task].queued_vtime = vtime;
        inner.services.insert(task, queue, slice, vtime);
    }

    extern "C" fn insert_next(this: *mut c_void, p: *mut TaskStruct, cpu: i32, slice: u64) {
        // SAFETY: called by C during `Native::enter`.
        let inner = unsafe { inner::<S>(this) };
        let task = inner.index_of(p);
        inner.services.insert_next(task, cpu as u32, slice);
    }

    extern "C" fn insert_local(this: *mut c_void, p: *mut TaskStruct, slice: u64) {
        // SAFETY: called by C during `Native::enter`.
        let inner = unsafe { inner::<S>(this) };
        let task = inner.index_of(p);
        inner.services.insert_local(task, slice);
    }

    extern "C" fn kick(this: *mut c_void, cpu: i32, how: u32) {
        let how = if how == 1 { Kick::Idle } else { Kick::Preempt };
        // SAFETY: called by C during `Native::enter`.
        unsafe { inner::<S>(this) }.services.kick(cpu as u32, how);
    }

    extern "C" fn set_slice(this: *mut c_void, p: *mut TaskStruct, slice: u64) {
        // SAFETY: called by C during `Native::enter`.
        let inner = unsafe { inner::<S>(this) };
        let task = inner.index_of(p);
        inner.services.set_slice(task, slice);
    }

    extern "C" fn start_timer(this: *mut c_void, timer: i32, delay: u64) {
        // SAFETY: called by C during `Native::enter`.
        unsafe { inner::<S>(this) }
            .services
            .start_timer(timer as u32, delay);
    }

    extern "C" fn tap_in(this: *mut c_void, kind: u32, value: u64) -> u64 {
        // SAFETY: called by C during `Native::enter`.
        unsafe { inner::<S>(this) }.services.tap_in(kind, value)
    }

    extern "C" fn tap_out(this: *mut c_void, kind: u32, value: u64) {
        // SAFETY: called by C during `Native::enter`.
        unsafe { inner::<S>(this) }.services.tap_out(kind, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::TaskCtx;
    use std::mem::offset_of;

    unsafe extern "C" {
        static corun_places: [usize; PLACES];
        static untapped_corun_places: [usize; PLACES];
        static plain_corun_places: [usize; PLACES];
        static corun_sizes: [usize; 11];
        static untapped_corun_sizes: [usize; 11];
        static plain_corun_sizes: [usize; 11];
        static corun_gang_modes: [u32; 7];
    }

    /// Fields of the structs that only native builds have.
    const PLACES: usize = 54;

    /// Where fields lie, in order.
    macro_rules! places {
        ($($of:ident: $($field:ident)*;)*) => { [$($(offset_of!($of, $field)),*),*] };
    }

    /// Two fields of one type that have changed places do not change a size.
    #[test]
    fn the_fields_of_native_structs_lie_where_they_do_in_c() {
        let ours: [usize; PLACES] = places! {
        TaskStruct: id vcpu_of weight cpu queued_vtime allowed group pinned conf ctx;
        HostTable: claim_idle queue_length move_first next_queued move_queued requeue insert insert_next insert_local kick set_slice start_timer tap_in tap_out;
        Context: this host cpus vms vm_confs gangs pools pcpu_confs group_confs groups current knobs slots now cpu vms_seen vms_ended interrupt index;
        GangSlots: end opening first number round spare;
        PcpuIndex: trees waiting fixed llc llcs_known;
        };
        // SAFETY: constant arrays of the C side, of this length.
        let builds = unsafe { [corun_places, untapped_corun_places, plain_corun_places] };
        assert_eq!([ours; 3], builds);
    }

    #[test]
    fn gang_modes_have_the_numbers_of_c() {
        use crate::conf::gang_mode::*;
        let ours = [
            NONE,
            DYNAMIC,
            STRICT,
            DEMAND,
            RELAXED,
            RELAXED_ALL,
            ASYMMETRIC,
        ];
        // SAFETY: a constant array of the C side, of this length.
        assert_eq!(ours, unsafe { corun_gang_modes });
    }

    #[test]
    fn the_structs_are_laid_out_as_in_c() {
        // SAFETY: constant arrays of the C side, of this length.
        let builds = unsafe { [corun_sizes, untapped_corun_sizes, plain_corun_sizes] };
        let ours = [
            size_of::<TaskStruct>(),
            size_of::<TaskCtx>(),
            size_of::<CpuCtx>(),
            size_of::<VmCtx>(),
            size_of::<VmConf>(),
            size_of::<GangCtx>(),
            size_of::<PoolConf>(),
            size_of::<PcpuConf>(),
            size_of::<GroupConf>(),
            size_of::<GroupCtx>(),
            size_of::<Context>(),
        ];
        assert_eq!([ours; 3], builds);
    }
}
