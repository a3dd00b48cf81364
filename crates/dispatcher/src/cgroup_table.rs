// SPDX-License-Identifier: GPL-2.0-only
//! The kernel build's table of cgroups (dispatcher/platform/cgroup.h) with a model of the kernel's cgroups
//! (cgroup_table.c).

use crate::layout::{GROUP_LEVELS, MAX_GROUPS};
use std::io;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the C side knows of a cgroup; only its address is of interest here.
#[repr(C)]
struct TaskGroup {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    static cgroup_table_task_group: u64;
    static cgroup_table_cgroup: u64;
    fn cgroup_table_empty(now: u64);
    fn cgroup_table_make(tg: *mut TaskGroup, cgroup: *mut u64, around: *mut TaskGroup);
    fn cgroup_table_find(tg: *mut TaskGroup) -> u32;
    fn cgroup_table_owner(group: u32) -> u64;
    fn cgroup_table_around(group: u32) -> u32;
    fn cgroup_table_enter(tg: *mut TaskGroup) -> u32;
    fn cgroup_table_leave(group: u32);
    fn cgroup_table_weigh(tg: *mut TaskGroup, weight: u32);
    fn cgroup_table_recount(ceases: u32);
    fn cgroup_table_below(group: u32) -> i64;
    fn cgroup_table_park(cpu: u32, at: u64);
    fn cgroup_table_started(cpu: u32) -> u32;
}

/// There is one table for the whole program.
static TABLE: Mutex<()> = Mutex::new(());

/// A task_group of a Linux 6.18 (`/proc/slabinfo`), and the slabs that these are cut from, bytes.
const TASK_GROUP: usize = 704;
const SLAB: usize = 16 << 10;
/// How many slabs there are addresses for.
const SLABS: usize = 1 << 14;
/// Where they begin, a multiple of [`SLAB`]: always at the same address, since the table goes by addresses. When tests
/// took memory wherever it was, about one run in sixty had more cgroups around one place than there is room for.
const BEGIN: usize = 0x2a00_0000_0000;

/// The memory that slabs are cut from. Pages are taken only when they are written to.
struct Memory(*mut u8);

impl Memory {
    fn reserve() -> Self {
        let (begin, size) = (BEGIN as *mut libc::c_void, SLAB * SLABS);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE
            | libc::MAP_ANONYMOUS
            | libc::MAP_NORESERVE
            | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: addresses that are in use are not replaced.
        let at = unsafe { libc::mmap(begin, size, access, kind, -1, 0) };
        assert_eq!(at, begin, "{}", io::Error::last_os_error());
        Self(at.cast())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: this was reserved above, and nothing points to it any more.
        unsafe { libc::munmap(self.0.cast(), SLAB * SLABS) };
    }
}

/// A kernel's cgroups, and the table they are looked up in.
struct Kernel {
    memory: Memory,
    /// The slab that task_groups are cut from, and how many have been.
    slab: usize,
    cut: usize,
    /// State of the random numbers.
    random: u64,
    /// What cgroups have besides their task_groups.
    cgroups: Vec<Vec<u64>>,
    root: *mut TaskGroup,
    _alone: MutexGuard<'static, ()>,
}

impl Kernel {
    fn new(seed: u64) -> Self {
        let alone = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: nobody else is at work on the table.
        unsafe { cgroup_table_empty(1_000_000_000) };
        let mut kernel = Self {
            memory: Memory::reserve(),
            slab: 0,
            cut: SLAB / TASK_GROUP,
            random: seed,
            cgroups: Vec::new(),
            root: ptr::null_mut(),
            _alone: alone,
        };
        kernel.root = kernel.within(ptr::null_mut(), 0);
        kernel
    }

    /// A cgroup at this depth, within one.
    fn within(&mut self, around: *mut TaskGroup, depth: usize) -> *mut TaskGroup {
        if self.cut == SLAB / TASK_GROUP {
            // An LCG with the constants of Knuth's MMIX.
            self.random = (self.random)
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.slab, self.cut) = (usize::try_from(self.random >> 33).unwrap() % SLABS, 0);
        }
        let at = self.slab * SLAB + self.cut * TASK_GROUP;
        self.cut += 1;
        // SAFETY: they are constants.
        let (task_group, cgroup) = unsafe { (cgroup_table_task_group, cgroup_table_cgroup) };
        assert!(task_group <= TASK_GROUP as u64);
        let words = usize::try_from(cgroup / 8).unwrap() + depth + 1;
        self.cgroups.push(vec![0; words]);
        // SAFETY: within the memory.
        let tg = unsafe { self.memory.0.add(at) }.cast();
        let cgroup = self.cgroups.last_mut().unwrap().as_mut_ptr();
        // SAFETY: both are large enough, and stay as long as this.
        unsafe { cgroup_table_make(tg, cgroup, around) };
        tg
    }

    /// A cgroup with so many around it, the root among them, from the outermost on.
    fn path(&mut self, depth: usize) -> Vec<*mut TaskGroup> {
        let mut path = vec![self.root];
        for level in 1..=depth {
            path.push(self.within(path[level - 1], level));
        }
        path
    }

    /// The cgroup in which tasks of this one count; `None`: the root.
    fn counts_in(&self, tg: *mut TaskGroup) -> Option<*mut TaskGroup> {
        // SAFETY: it is one of this kernel's.
        let group = unsafe { cgroup_table_find(tg) };
        self.owner(group)
    }

    fn owner(&self, group: u32) -> Option<*mut TaskGroup> {
        // SAFETY: it was said by the table.
        let owner = unsafe { cgroup_table_owner(group) };
        (owner != 0).then_some(owner as *mut TaskGroup)
    }
}

/// As many cgroups as 640 VMs of two vCPUs have under libvirt. With many more, some find no place by chance.
const MANY: usize = 2880;

#[test]
fn every_cgroup_of_a_large_host_has_a_place() {
    for seed in 0..4 {
        let mut kernel = Kernel::new(seed);
        for number in 0..MANY {
            let cgroup = kernel.within(kernel.root, 1);
            assert_eq!(
                kernel.counts_in(cgroup),
                Some(cgroup),
                "number {number}, seed {seed}"
            );
        }
    }
}

#[test]
fn a_cgroup_deeper_than_is_told_apart_counts_in_the_deepest_that_is() {
    for depth in [1, 9, 10, 11, 31, 32, 33, 500] {
        let mut kernel = Kernel::new(1);
        let path = kernel.path(depth);
        let wanted = path[depth.min(GROUP_LEVELS)];
        assert_eq!(
            kernel.counts_in(path[depth]),
            Some(wanted),
            "{depth} levels"
        );
    }
}

/// However crowded the table is, no task escapes the settings of the cgroups around its own.
#[test]
fn a_cgroup_without_a_place_counts_in_the_one_around_it() {
    let mut kernel = Kernel::new(1);
    let slice = kernel.within(kernel.root, 1);
    assert_eq!(kernel.counts_in(slice), Some(slice));
    let (mut without, mut around_without) = (0, 0);
    for _ in 0..MAX_GROUPS {
        let scope = kernel.within(slice, 2);
        let vcpu = kernel.within(scope, 3);
        let counted = kernel.counts_in(vcpu).unwrap();
        assert!([vcpu, scope, slice].contains(&counted));
        // SAFETY: as in counts_in().
        let around = unsafe { cgroup_table_around(cgroup_table_find(vcpu)) };
        if counted == vcpu {
            let around = kernel.owner(around).unwrap();
            assert!([scope, slice].contains(&around));
            around_without += usize::from(around == slice);
        }
        without += usize::from(counted == slice);
    }
    assert!(without > MAX_GROUPS / 4, "{without}");
    assert!(around_without > 0);
}

/// A slice with two cgroups, each with a task that wants to run: it, theirs, and where they count.
fn two_in_a_slice(kernel: &mut Kernel) -> (u32, [*mut TaskGroup; 2], [u32; 2]) {
    let slice = kernel.within(kernel.root, 1);
    let within = [kernel.within(slice, 2), kernel.within(slice, 2)];
    // SAFETY: they are this kernel's.
    let counted = within.map(|tg| unsafe { cgroup_table_enter(tg) });
    // SAFETY: the same.
    let slice = unsafe { cgroup_table_find(slice) };
    assert_eq!(below(slice), 2048);
    (slice, within, counted)
}

/// What wants to run in the cgroups within this one.
fn below(group: u32) -> i64 {
    // SAFETY: it was said by the table.
    unsafe { cgroup_table_below(group) }
}

#[test]
fn who_ceases_to_want_to_run_while_cgroups_are_counted_anew_is_counted_no_more() {
    let mut kernel = Kernel::new(1);
    let (slice, _, [first, second]) = two_in_a_slice(&mut kernel);
    // SAFETY: they were said by the table, and count one task each.
    unsafe { cgroup_table_recount(second) };
    assert_eq!(below(slice), 1024);
    // SAFETY: the same.
    unsafe { cgroup_table_leave(first) };
    assert_eq!(below(slice), 0);
}

#[test]
fn a_weight_that_changes_while_it_counts_is_counted_out_as_it_was_counted_in() {
    let mut kernel = Kernel::new(1);
    let (slice, [heavier, _], [first, second]) = two_in_a_slice(&mut kernel);
    // SAFETY: they are this kernel's, were said by the table, and count one task each.
    unsafe {
        cgroup_table_weigh(heavier, 3072);
        assert_eq!(cgroup_table_find(heavier), first);
        assert_eq!(below(slice), 2048);
        cgroup_table_leave(first);
        assert_eq!(below(slice), 1024);
        assert_eq!(cgroup_table_enter(heavier), first);
        assert_eq!(below(slice), 4096);
        cgroup_table_weigh(heavier, 512);
        cgroup_table_recount(0);
        assert_eq!(below(slice), 1536);
        cgroup_table_leave(first);
        cgroup_table_leave(second);
    }
    assert_eq!(below(slice), 0);
}

/// The kernel may have no memory for a timer while interrupts are off. Tasks parked then would stay parked.
#[test]
fn a_timer_of_parked_tasks_that_could_not_be_started_is_started_with_the_next_count() {
    let started = |parked: [u64; 2]| {
        let _kernel = Kernel::new(1);
        // SAFETY: the table has these pCPUs; it is 1 s since the host began.
        unsafe {
            cgroup_table_park(0, parked[0]);
            cgroup_table_park(1, parked[1]);
            cgroup_table_recount(0);
            [0, 1].map(|cpu| cgroup_table_started(cpu))
        }
    };
    // No task is parked; one is, and due soon, or was due a moment ago.
    assert_eq!(started([0, 1_005_000_000]), [0, 0]);
    assert_eq!(started([999_000_000, 0]), [0, 0]);
    assert_eq!(started([0, 800_000_000]), [0, 1]);
}
