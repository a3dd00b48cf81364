// SPDX-License-Identifier: GPL-2.0-only
//! Calling the dispatcher, and answering what it asks for.
//!
//! The C side reaches its world through `struct native_host`, a table of functions. Here the table
//! is made for any [`Services`]: each entry turns the context pointer back into [`Inner`] and calls
//! the method. C code holds task pointers only during a call; tasks are named by index outside.

use crate::conf::{GroupConf, Knobs, PcpuConf, PoolConf, VmConf};
use crate::layout::{
    CpuCtx, GangCtx, GangSlots, GroupCtx, MAX_GROUPS, MAX_PCPUS, MAX_VMS, PcpuIndex, TaskStruct,
    VmCtx,
};
use corun_model::{Nanos, PcpuSet, VmPlan};
use std::alloc::{self, Layout};
use std::ffi::c_void;
use std::ptr;

/// How the dispatcher asks a pCPU to schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kick {
    /// Only if it idles.
    Idle,
    /// The running task's slice is over.
    Preempt,
}

/// `IN_MICRO`: is looked for tasks with micro slices?
const MICRO: u32 = 24;

/// Is a value of this kind one that passes the tap? Some inputs do only where they are not 0.
pub fn passes(kind: u32, value: u64) -> bool {
    kind != MICRO || value != 0
}

/// How the dispatcher is compiled (dispatcher/platform/native.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// pCPUs are found by an index: for simulations.
    Indexed,
    /// The host takes part in every exchange: for replays.
    Tapped,
    /// pCPUs are gone through one by one, as in the kernel's build: for counting instructions.
    Plain,
}

/// What the dispatcher is called for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Callback {
    SelectCpu,
    Enqueue,
    Dispatch,
    Running,
    Stopping,
    Yield,
    Timer,
    Release,
    FlushIpi,
    InitTask,
    ExitTask,
}

impl Callback {
    /// Its name in `struct sched_ext_ops`, or among corun's own.
    pub fn name(self) -> &'static str {
        match self {
            Self::SelectCpu => "select_cpu",
            Self::Enqueue => "enqueue",
            Self::Dispatch => "dispatch",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Yield => "yield",
            Self::Timer => "timer",
            Self::Release => "release",
            Self::FlushIpi => "flush_ipi",
            Self::InitTask => "init_task",
            Self::ExitTask => "exit_task",
        }
    }
}

/// What the dispatcher needs done. Tasks are indices as given by [`Native::add_task`], queues are
/// numbered like pCPUs; from [`MAX_PCPUS`] on, they are those of who is parked there.
pub trait Services {
    /// Was `cpu` idle? If so it is claimed.
    fn claim_idle(&mut self, cpu: u32) -> bool;
    /// Tasks in a queue.
    fn queue_length(&mut self, queue: u64) -> u32;
    /// Moves the head of a queue to the dispatching pCPU's local queue.
    fn move_first(&mut self, queue: u64) -> bool;
    /// The task behind `after` in a queue, or its head.
    fn next_queued(&mut self, queue: u64, after: Option<usize>) -> Option<usize>;
    /// Moves a queued task to the local queue of `cpu`.
    fn move_queued(&mut self, task: usize, cpu: u32) -> bool;
    /// Moves a task from the queue it is in to another.
    fn requeue(&mut self, task: usize, queue: u64, vtime: u64) -> bool;
    /// Puts a task into a queue by virtual time.
    fn insert(&mut self, task: usize, queue: u64, slice: Nanos, vtime: u64);
    /// Puts a task at the head of the local queue of `cpu`, whose running task's slice is over.
    fn insert_next(&mut self, task: usize, cpu: u32, slice: Nanos);
    /// Puts the task being woken into the local queue of the pCPU that select_cpu returns.
    fn insert_local(&mut self, task: usize, slice: Nanos);
    /// Asks `cpu` to schedule.
    fn kick(&mut self, cpu: u32, how: Kick);
    /// The running task keeps its pCPU for another slice.
    fn set_slice(&mut self, task: usize, slice: Nanos);
    /// Calls [`Native::timer`] for the pCPU `timer` after `delay`; from [`MAX_PCPUS`] on
    /// [`Native::release`], for the pCPU that is so much less.
    fn start_timer(&mut self, timer: u32, delay: Nanos);

    /// Which of the dispatcher's builds works for this host.
    const BUILD: Build = Build::Indexed;
    /// A callback, made at `now`, has returned.
    #[inline]
    fn returned(&mut self, callback: Callback, now: Nanos) {
        let _ = (callback, now);
    }
    /// [`Build::Tapped`]: an input of `kind` is about to be used; what shall its value be?
    fn tap_in(&mut self, kind: u32, value: u64) -> u64 {
        let _ = kind;
        value
    }
    /// [`Build::Tapped`]: a decision of `kind` was made.
    fn tap_out(&mut self, kind: u32, value: u64) {
        let _ = (kind, value);
    }
}

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

#[repr(C)]
struct Context {
    this: *mut c_void,
    host: *const HostTable,
    cpus: *mut CpuCtx,
    vms: *mut VmCtx,
    vm_confs: *mut VmConf,
    gangs: *mut GangCtx,
    pools: *mut PoolConf,
    pcpu_confs: *mut PcpuConf,
    group_confs: *mut GroupConf,
    groups: *mut GroupCtx,
    current: *mut TaskStruct,
    knobs: Knobs,
    slots: GangSlots,
    now: u64,
    cpu: i32,
    vms_seen: u32,
    index: PcpuIndex,
}

/// The dispatcher's callbacks as one of its builds has them.
struct Callbacks {
    enter: unsafe extern "C" fn(*mut Context),
    select_cpu: unsafe extern "C" fn(*mut TaskStruct, i32, u64) -> i32,
    enqueue: unsafe extern "C" fn(*mut TaskStruct, u64),
    dispatch: unsafe extern "C" fn(i32, *mut TaskStruct),
    running: unsafe extern "C" fn(*mut TaskStruct),
    stopping: unsafe extern "C" fn(*mut TaskStruct, bool),
    yields: unsafe extern "C" fn(*mut TaskStruct, *mut TaskStruct) -> bool,
    init_task: unsafe extern "C" fn(*mut TaskStruct, *mut c_void) -> i32,
    exit_task: unsafe extern "C" fn(*mut TaskStruct, *mut c_void),
    timer: unsafe extern "C" fn(i32),
    release: unsafe extern "C" fn(i32),
    flush_ipi: unsafe extern "C" fn(*mut TaskStruct),
}

/// Declares a build's callbacks, which all bear the same prefix.
macro_rules! callbacks {
    ($table:ident: $enter:ident, $select_cpu:ident, $enqueue:ident, $dispatch:ident, $running:ident,
     $stopping:ident, $yields:ident, $init_task:ident, $exit_task:ident, $timer:ident,
     $release:ident, $flush_ipi:ident) => {
        // SAFETY: the signatures are those of dispatcher/corun.bpf.c in its native builds.
        unsafe extern "C" {
            fn $enter(context: *mut Context);
            fn $select_cpu(p: *mut TaskStruct, prev_cpu: i32, wake_flags: u64) -> i32;
            fn $enqueue(p: *mut TaskStruct, enq_flags: u64);
            fn $dispatch(cpu: i32, prev: *mut TaskStruct);
            fn $running(p: *mut TaskStruct);
            fn $stopping(p: *mut TaskStruct, runnable: bool);
            fn $yields(p: *mut TaskStruct, to: *mut TaskStruct) -> bool;
            fn $init_task(p: *mut TaskStruct, args: *mut c_void) -> i32;
            fn $exit_task(p: *mut TaskStruct, args: *mut c_void);
            fn $timer(cpu: i32);
            fn $release(cpu: i32);
            fn $flush_ipi(p: *mut TaskStruct);
        }

        const $table: Callbacks = Callbacks {
            enter: $enter,
            select_cpu: $select_cpu,
            enqueue: $enqueue,
            dispatch: $dispatch,
            running: $running,
            stopping: $stopping,
            yields: $yields,
            init_task: $init_task,
            exit_task: $exit_task,
            timer: $timer,
            release: $release,
            flush_ipi: $flush_ipi,
        };
    };
}

callbacks!(TAPPED: corun_enter, corun_select_cpu, corun_enqueue, corun_dispatch, corun_running,
    corun_stopping, corun_yield, corun_init_task, corun_exit_task, corun_timer,
    corun_release, corun_flush_ipi);
callbacks!(UNTAPPED: untapped_corun_enter, untapped_corun_select_cpu, untapped_corun_enqueue,
    untapped_corun_dispatch, untapped_corun_running, untapped_corun_stopping,
    untapped_corun_yield, untapped_corun_init_task, untapped_corun_exit_task,
    untapped_corun_timer, untapped_corun_release, untapped_corun_flush_ipi);
callbacks!(PLAIN: plain_corun_enter, plain_corun_select_cpu, plain_corun_enqueue,
    plain_corun_dispatch, plain_corun_running, plain_corun_stopping, plain_corun_yield,
    plain_corun_init_task, plain_corun_exit_task, plain_corun_timer, plain_corun_release,
    plain_corun_flush_ipi);

/// What the C side's pointers lead to. Boxed, so that it stays where it is.
struct Inner<S> {
    context: Context,
    services: S,
    tasks: Vec<TaskStruct>,
    cpus: Box<[CpuCtx]>,
    vms: Box<[VmCtx]>,
    vm_confs: Box<[VmConf]>,
    gangs: Box<[GangCtx]>,
    pools: Box<[PoolConf]>,
    pcpu_confs: Box<[PcpuConf]>,
    group_confs: Box<[GroupConf]>,
    groups: Box<[GroupCtx]>,
}

/// The dispatcher with its state, and the host it works for.
pub struct Native<S: Services> {
    inner: Box<Inner<S>>,
}

/// Turns the context pointer of a C call back into what it points at.
///
/// # Safety
/// `this` must be the pointer that [`Native::new`] stored, during a call made by [`Native::call`].
unsafe fn inner<'a, S>(this: *mut c_void) -> &'a mut Inner<S> {
    // SAFETY: per contract the box lives and nobody else uses it: `call` has exclusive access and
    // does not touch it until C returns.
    unsafe { &mut *this.cast::<Inner<S>>() }
}

impl<S> Inner<S> {
    fn index_of(&self, p: *const TaskStruct) -> usize {
        let offset = (p as usize).wrapping_sub(self.tasks.as_ptr() as usize);
        offset / size_of::<TaskStruct>()
    }

    fn pointer_to(&mut self, task: usize) -> *mut TaskStruct {
        debug_assert!(task < self.tasks.len());
        self.tasks.as_mut_ptr().wrapping_add(task)
    }
}

/// The table of VMs, nobody in it. Two megabytes of which most hosts use little: memory that the
/// system hands out as zeros costs nothing until somebody looks at it.
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

/// The C function table for a kind of host.
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
        // SAFETY: called by C during Native::call.
        unsafe { inner::<S>(this) }.services.claim_idle(cpu as u32)
    }

    extern "C" fn queue_length(this: *mut c_void, queue: u64) -> u32 {
        // SAFETY: called by C during Native::call.
        unsafe { inner::<S>(this) }.services.queue_length(queue)
    }

    extern "C" fn move_first(this: *mut c_void, queue: u64) -> bool {
        // SAFETY: called by C during Native::call.
        unsafe { inner::<S>(this) }.services.move_first(queue)
    }

    extern "C" fn next_queued(
        this: *mut c_void,
        queue: u64,
        after: *mut TaskStruct,
    ) -> *mut TaskStruct {
        // SAFETY: called by C during Native::call.
        let inner = unsafe { inner::<S>(this) };
        let after = (!after.is_null()).then(|| inner.index_of(after));
        match inner.services.next_queued(queue, after) {
            Some(task) => inner.pointer_to(task),
            None => ptr::null_mut(),
        }
    }

    extern "C" fn move_queued(this: *mut c_void, p: *mut TaskStruct, cpu: i32) -> bool {
        // SAFETY: called by C during Native::call.
        let inner = unsafe { inner::<S>(this) };
        let task = inner.index_of(p);
        inner.services.move_queued(task, cpu as u32)
    }

    extern "C" fn requeue(this: *mut c_void, p: *mut TaskStruct, queue: u64, vtime: u64) -> bool {
        // SAFETY: called by C during Native::call.
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
        // SAFETY: called by C during Native::call.
        let inner = unsafe { inner::<S>(this) };
        let task = inner.index_of(p);
        inner.tasks[task].queued_vtime = vtime;
        inner.services.insert(task, queue, slice, vtime);
    }

    extern "C" fn insert_next(this: *mut c_void, p: *mut TaskStruct, cpu: i32, slice: u64) {
        // SAFETY: called by C during Native::call.
        let inner = unsafe { inner::<S>(this) };
        let task = inner.index_of(p);
        inner.services.insert_next(task, cpu as u32, slice);
    }

    extern "C" fn insert_local(this: *mut c_void, p: *mut TaskStruct, slice: u64) {
        // SAFETY: called by C during Native::call.
        let inner = unsafe { inner::<S>(this) };
        let task = inner.index_of(p);
        inner.services.insert_local(task, slice);
    }

    extern "C" fn kick(this: *mut c_void, cpu: i32, how: u32) {
        let how = if how == 1 { Kick::Idle } else { Kick::Preempt };
        // SAFETY: called by C during Native::call.
        unsafe { inner::<S>(this) }.services.kick(cpu as u32, how);
    }

    extern "C" fn set_slice(this: *mut c_void, p: *mut TaskStruct, slice: u64) {
        // SAFETY: called by C during Native::call.
        let inner = unsafe { inner::<S>(this) };
        let task = inner.index_of(p);
        inner.services.set_slice(task, slice);
    }

    extern "C" fn start_timer(this: *mut c_void, timer: i32, delay: u64) {
        // SAFETY: called by C during Native::call.
        unsafe { inner::<S>(this) }
            .services
            .start_timer(timer as u32, delay);
    }

    extern "C" fn tap_in(this: *mut c_void, kind: u32, value: u64) -> u64 {
        // SAFETY: called by C during Native::call.
        unsafe { inner::<S>(this) }.services.tap_in(kind, value)
    }

    extern "C" fn tap_out(this: *mut c_void, kind: u32, value: u64) {
        // SAFETY: called by C during Native::call.
        unsafe { inner::<S>(this) }.services.tap_out(kind, value);
    }
}

impl<S: Services> Native<S> {
    const C: Callbacks = match S::BUILD {
        Build::Indexed => UNTAPPED,
        Build::Tapped => TAPPED,
        Build::Plain => PLAIN,
    };

    /// A dispatcher that knows no task yet.
    pub fn new(knobs: Knobs, services: S) -> Self {
        let mut inner = Box::new(Inner {
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
                index: PcpuIndex::empty(),
            },
            services,
            tasks: Vec::new(),
            cpus: vec![
                CpuCtx {
                    idle: 1,
                    ..CpuCtx::default()
                };
                MAX_PCPUS
            ]
            .into(),
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
        let mut native = Self { inner };
        if knobs.gangs != 0 {
            native.make_room_for_gangs();
        }
        if knobs.groups != 0 {
            native.make_room_for_groups();
        }
        native
    }

    /// C looks at cgroups only if its knobs say that there are some.
    fn make_room_for_groups(&mut self) {
        self.inner.context.knobs.groups = 1;
        if self.inner.groups.is_empty() {
            self.inner.group_confs = vec![GroupConf::default(); MAX_GROUPS].into();
            self.inner.groups = vec![GroupCtx::default(); MAX_GROUPS].into();
            self.inner.context.group_confs = self.inner.group_confs.as_mut_ptr();
            self.inner.context.groups = self.inner.groups.as_mut_ptr();
        }
    }

    /// C looks at gangs only if its knobs say that there are some; most hosts have none.
    fn make_room_for_gangs(&mut self) {
        self.inner.context.knobs.gangs = 1;
        if self.inner.gangs.is_empty() {
            self.inner.gangs = vec![GangCtx::default(); MAX_VMS].into();
            self.inner.context.gangs = self.inner.gangs.as_mut_ptr();
        }
    }

    /// Who the dispatcher works for.
    pub fn services(&mut self) -> &mut S {
        &mut self.inner.services
    }

    /// What the dispatcher knows of a task.
    pub fn task(&mut self, task: usize) -> &mut TaskStruct {
        &mut self.inner.tasks[task]
    }

    /// The same, to be looked at.
    pub fn peek(&self, task: usize) -> &TaskStruct {
        &self.inner.tasks[task]
    }

    /// Number of tasks.
    pub fn tasks(&self) -> usize {
        self.inner.tasks.len()
    }

    /// What the dispatcher knows of a pCPU.
    pub fn cpu(&self, cpu: u32) -> &CpuCtx {
        &self.inner.cpus[cpu as usize]
    }

    /// The VM in a slot of the table.
    pub fn vm(&self, slot: usize) -> &VmCtx {
        &self.inner.vms[slot]
    }

    /// The table of VMs as C has it, for tests that change it in the midst of a callback.
    #[cfg(test)]
    pub(crate) fn vms(&mut self) -> *mut VmCtx {
        self.inner.context.vms
    }

    /// The same of pCPUs.
    #[cfg(test)]
    pub(crate) fn cpus(&mut self) -> *mut CpuCtx {
        self.inner.context.cpus
    }

    /// The same of cgroups.
    #[cfg(test)]
    pub(crate) fn groups(&mut self) -> *mut GroupCtx {
        self.inner.groups.as_mut_ptr()
    }

    /// Are VMs' gang modes looked at? Where no VM has one any more they need not be: decisions are those of
    /// a host that never had any.
    pub fn look_at_gangs(&mut self, wanted: bool) {
        if wanted {
            self.make_room_for_gangs();
        } else {
            self.inner.context.knobs.gangs = 0;
        }
    }

    /// Some tasks have micro slices from now on, perhaps.
    pub fn look_at_micro_slices(&mut self) {
        self.inner.context.knobs.micro = 1;
    }

    /// What is known of the gang of the VM in a slot of the table, if there are gangs.
    pub fn gang(&self, slot: usize) -> Option<&GangCtx> {
        self.inner.gangs.get(slot)
    }

    /// Says what a plan asks for VM `id` (not 0), what it weighs (`None`: vCPU by vCPU), and the pCPUs that any of
    /// its vCPUs may use.
    pub fn configure_vm(&mut self, id: u32, plan: &VmPlan, weight: Option<u32>, allowed: &PcpuSet) {
        let conf = VmConf::of(id, plan, weight, allowed);
        if conf.gang != 0 {
            self.make_room_for_gangs();
        }
        self.inner.vm_confs[id as usize % MAX_VMS] = conf;
        self.inner.context.index.fixed = PcpuSet::default();
    }

    /// Says what the first pools are; tasks name them by their place.
    pub fn configure_pools(&mut self, pools: impl IntoIterator<Item = PoolConf>) {
        for (place, pool) in self.inner.pools.iter_mut().zip(pools) {
            *place = pool;
        }
        self.inner.context.index.fixed = PcpuSet::default();
    }

    /// Says what is wanted for the cgroup in a place of the table; tasks name it by that, plus 1. C
    /// looks at cgroups only once something has been said. A place that there is not is passed over.
    pub fn configure_group(&mut self, place: usize, conf: GroupConf) {
        self.make_room_for_groups();
        if let Some(group) = self.inner.group_confs.get_mut(place) {
            *group = conf;
        }
    }

    /// What is known of the cgroup in a place of the table, if there are cgroups.
    pub fn group(&self, place: usize) -> Option<&GroupCtx> {
        self.inner.groups.get(place)
    }

    /// Says what is wanted of a pCPU that is a hardware thread of a core with two. C looks at that
    /// only once something has been said.
    pub fn configure_pcpu(&mut self, cpu: u32, conf: PcpuConf) {
        self.inner.context.knobs.cores = 1;
        if let Some(place) = self.inner.pcpu_confs.get_mut(cpu as usize) {
            *place = conf;
        }
    }

    /// A task exists from now on. Returns its index.
    pub fn add_task(&mut self, task: TaskStruct, now: Nanos) -> usize {
        self.inner.tasks.push(task);
        let index = self.inner.tasks.len() - 1;
        self.call(Callback::InitTask, now, 0, index, |p| {
            // SAFETY: `p` is a live task of this context; the arguments are not looked at.
            let refused = unsafe { (Self::C.init_task)(p, ptr::null_mut()) };
            debug_assert_eq!(refused, 0, "the native build has memory for every task");
        });
        index
    }

    /// A task, which waits, is gone.
    pub fn exit_task(&mut self, task: usize, now: Nanos) {
        // SAFETY: `p` is a live task of this context; the arguments are not looked at.
        self.call(Callback::ExitTask, now, 0, task, |p| unsafe {
            (Self::C.exit_task)(p, ptr::null_mut())
        });
    }

    /// `task` wakes on `cpu`, where `current` runs, having last run on `prev`. Returns where it
    /// should go.
    pub fn select_cpu(
        &mut self,
        now: Nanos,
        cpu: u32,
        task: usize,
        prev: u32,
        current: Option<usize>,
    ) -> u32 {
        self.begin_beside(current);
        // SAFETY: `p` and `current` are live tasks of this context; no task is added meanwhile.
        let chosen = self.call(Callback::SelectCpu, now, cpu, task, |p| unsafe {
            (Self::C.select_cpu)(p, prev as i32, 0)
        });
        self.inner.context.current = ptr::null_mut();
        chosen as u32
    }

    /// The callback that follows is a wake-up by `current`.
    fn begin_beside(&mut self, current: Option<usize>) {
        self.inner.context.current = match current {
            Some(task) => self.inner.pointer_to(task),
            None => ptr::null_mut(),
        };
    }

    /// `task`, which may run on one pCPU only, so that nobody is asked where it should go, wakes on
    /// `cpu`, where `current` runs.
    pub fn enqueue_woken(&mut self, now: Nanos, cpu: u32, task: usize, current: Option<usize>) {
        self.begin_beside(current);
        self.enqueue(now, cpu, task);
        self.inner.context.current = ptr::null_mut();
    }

    /// `task` must be queued.
    pub fn enqueue(&mut self, now: Nanos, cpu: u32, task: usize) {
        // SAFETY: `p` is a live task of this context.
        self.call(Callback::Enqueue, now, cpu, task, |p| unsafe {
            (Self::C.enqueue)(p, 0)
        });
    }

    /// `cpu` needs something to run; `prev` has it and still wants it, if given.
    pub fn dispatch(&mut self, now: Nanos, cpu: u32, prev: Option<usize>) {
        let prev = match prev {
            Some(task) => self.inner.pointer_to(task),
            None => ptr::null_mut(),
        };
        // SAFETY: `prev` is null or a live task of this context.
        self.enter(Callback::Dispatch, now, cpu, || unsafe {
            (Self::C.dispatch)(cpu as i32, prev)
        });
    }

    /// `task` has `cpu` from now on.
    pub fn running(&mut self, now: Nanos, cpu: u32, task: usize) {
        // SAFETY: `p` is a live task of this context.
        self.call(Callback::Running, now, cpu, task, |p| unsafe {
            (Self::C.running)(p)
        });
    }

    /// `task` loses `cpu`; does it want to run on, or go to wait?
    pub fn stopping(&mut self, now: Nanos, cpu: u32, task: usize, runnable: bool) {
        // SAFETY: `p` is a live task of this context.
        self.call(Callback::Stopping, now, cpu, task, |p| unsafe {
            (Self::C.stopping)(p, runnable)
        });
    }

    /// `task`, running on `cpu`, lets others go first: `to`, which waits, or anybody. False: it goes on.
    pub fn yields(&mut self, now: Nanos, cpu: u32, task: usize, to: Option<usize>) -> bool {
        let to = match to {
            Some(task) => self.inner.pointer_to(task),
            None => ptr::null_mut(),
        };
        // SAFETY: `p` is a live task of this context, `to` is null or another one.
        self.call(Callback::Yield, now, cpu, task, |p| unsafe {
            (Self::C.yields)(p, to)
        })
    }

    /// The timer of `cpu` fired, on that pCPU.
    pub fn timer(&mut self, now: Nanos, cpu: u32) {
        // SAFETY: no pointers are passed.
        self.enter(Callback::Timer, now, cpu, || unsafe {
            (Self::C.timer)(cpu as i32)
        });
    }

    /// The same on the pCPU `here`, from which the timer was started: simulated timers do not do that.
    #[cfg(test)]
    pub fn timer_elsewhere(&mut self, now: Nanos, here: u32, cpu: u32) {
        // SAFETY: no pointers are passed.
        self.enter(Callback::Timer, now, here, || unsafe {
            (Self::C.timer)(cpu as i32)
        });
    }

    /// The release timer of `cpu` fired, on that pCPU.
    pub fn release(&mut self, now: Nanos, cpu: u32) {
        // SAFETY: no pointers are passed.
        self.enter(Callback::Release, now, cpu, || unsafe {
            (Self::C.release)(cpu as i32)
        });
    }

    /// A sibling waits for the ready `task` to flush its TLB. Kernels do not tell of it.
    pub fn flush_ipi(&mut self, now: Nanos, cpu: u32, task: usize) {
        // SAFETY: `p` is a live task of this context.
        self.call(Callback::FlushIpi, now, cpu, task, |p| unsafe {
            (Self::C.flush_ipi)(p)
        });
    }

    /// The same in the midst of a callback on this thread: on another CPU, as it were.
    ///
    /// # Safety
    /// `task` must be a live task of the dispatcher whose callback it is.
    #[cfg(test)]
    pub(crate) unsafe fn flush_ipi_within(task: *mut TaskStruct) {
        // SAFETY: the caller's promise.
        unsafe { (Self::C.flush_ipi)(task) }
    }

    /// Calls C for `task`, with time and place set.
    fn call<R>(
        &mut self,
        name: Callback,
        now: Nanos,
        cpu: u32,
        task: usize,
        callback: impl FnOnce(*mut TaskStruct) -> R,
    ) -> R {
        let p = self.inner.pointer_to(task);
        self.enter(name, now, cpu, || callback(p))
    }

    fn enter<R>(
        &mut self,
        name: Callback,
        now: Nanos,
        cpu: u32,
        callback: impl FnOnce() -> R,
    ) -> R {
        let this: *mut Inner<S> = &mut *self.inner;
        // SAFETY: `this` is our box, borrowed exclusively for this call; C and the table's functions
        // reach it only through this pointer, and only until `callback` returns.
        unsafe {
            (*this).context.this = this.cast();
            (*this).context.now = now;
            (*this).context.cpu = cpu as i32;
            (Self::C.enter)(&raw mut (*this).context);
        }
        let result = callback();
        self.inner.services.returned(name, now);
        result
    }
}

// SAFETY: the pointers in the context lead into the same box; the thread-local on the C side is set
// anew by every call.
unsafe impl<S: Services + Send> Send for Native<S> {}

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
    }

    /// Fields of the structs that only native builds have.
    const PLACES: usize = 51;

    /// Where fields lie, in order.
    macro_rules! places {
        ($($of:ident: $($field:ident)*;)*) => { [$($(offset_of!($of, $field)),*),*] };
    }

    /// Two fields of one type that have changed places do not change a size.
    #[test]
    fn the_fields_of_native_structs_lie_where_they_do_in_c() {
        let ours: [usize; PLACES] = places! {
        TaskStruct: id vcpu_of weight cpu queued_vtime allowed group conf ctx;
        HostTable: claim_idle queue_length move_first next_queued move_queued requeue insert insert_next insert_local kick set_slice start_timer tap_in tap_out;
        Context: this host cpus vms vm_confs gangs pools pcpu_confs group_confs groups current knobs slots now cpu vms_seen index;
        GangSlots: end opening first number round spare;
        PcpuIndex: trees waiting fixed llc llcs_known;
        };
        // SAFETY: constant arrays of the C side, of this length.
        let builds = unsafe { [corun_places, untapped_corun_places, plain_corun_places] };
        assert_eq!([ours; 3], builds);
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
