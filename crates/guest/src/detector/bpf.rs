// SPDX-License-Identifier: GPL-2.0-only
//! I/O by the block layer's own account: bpf/requests.bpf.c in the kernel, whose books are mapped here, so that a
//! heartbeat reads them without a system call.

use super::Sighting;
use corun_model::Nanos;
use corun_model::time::SEC;
use corun_policies::vmigrater::{Core, MigraterParams};
use corun_system::procfs::{Proc, ThreadKey};
use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, RingBuffer, RingBufferBuilder,
};
use libbpf_rs::{PrintLevel, ProgramInput};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// The compiled program, aligned as ELF wants it.
#[repr(align(8))]
struct Aligned<T: ?Sized>(T);
static PROGRAM: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/requests.bpf.o")));

/// Threads that can be watched at a time (`MOST_BOOKS`).
const MOST: usize = 1024;
/// vCPUs whose idling is watched (`MOST_VCPUS`).
const MOST_VCPUS: usize = 512;
/// The inode of the first PID namespace (include/linux/proc_ns.h): only there the kernel's numbers of
/// threads are ours.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// `struct book`.
#[repr(C)]
struct Book {
    busy: AtomicU64,
    since: AtomicU64,
    under_way: AtomicU32,
    vcpu: AtomicU32,
    tid: AtomicU32,
    unused: u32,
}

/// Requests that are under way for longer are taken for ones that never end: their books may have missed the end. While
/// a CPU changes a map for a process, the kernel runs no programs there (`bpf_disable_instrumentation()`): on Linux
/// 6.18, 22 of 394,000 ends were lost during 800,000 changes a second, none during as many reads.
const ENDLESS: Nanos = 5 * SEC;

impl Book {
    /// How long there was a request under way, up to `now`.
    fn busy(&self, now: Nanos) -> Nanos {
        let busy = || self.busy.load(Ordering::Acquire);
        let before = busy();
        if self.under_way.load(Ordering::Acquire) == 0 {
            return before;
        }
        let lasts = now.saturating_sub(self.since.load(Ordering::Acquire));
        if lasts <= ENDLESS {
            return before + lasts;
        }
        // The next request starts the count anew. Until then, ends of those that do end are lost.
        if self.under_way.swap(0, Ordering::AcqRel) > 0 {
            self.busy.fetch_add(lasts, Ordering::AcqRel);
        }
        busy()
    }
}

/// The books, mapped.
struct WatchedIo(*const Book);

// SAFETY: the mapping is shared memory of atomics, and stays as long as the process.
unsafe impl Send for WatchedIo {}

impl WatchedIo {
    fn map(map: &MapHandle) -> io::Result<Self> {
        Ok(Self(mapped(map, MOST * size_of::<Book>())?))
    }

    fn get(&self, slot: usize) -> &Book {
        debug_assert!(slot < MOST);
        // SAFETY: slots are below MOST, and the mapping has room for that many.
        unsafe { &*self.0.add(slot.min(MOST - 1)) }
    }
}

/// A map of `length` bytes, mapped.
fn mapped<T>(map: &MapHandle, length: usize) -> io::Result<*const T> {
    // SAFETY: a new mapping of a descriptor of ours; nothing of ours is replaced.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            map.as_fd().as_raw_fd(),
            0,
        )
    };
    match at == libc::MAP_FAILED {
        true => Err(io::Error::last_os_error()),
        false => Ok(at.cast_const().cast()),
    }
}

/// When vCPUs last began to run something after idling, ns, mapped.
struct Awake(*const AtomicU64);

// SAFETY: as for books.
unsafe impl Send for Awake {}

impl Awake {
    fn map(map: &MapHandle) -> io::Result<Self> {
        Ok(Self(mapped(map, MOST_VCPUS * size_of::<u64>())?))
    }

    fn since(&self, vcpu: u32) -> Option<Nanos> {
        let at = usize::try_from(vcpu).ok().filter(|at| *at < MOST_VCPUS)?;
        // SAFETY: `at` is below what the mapping has room for.
        let since = unsafe { &*self.0.add(at) };
        Some(since.load(Ordering::Acquire))
    }
}

#[derive(Clone, Copy, Debug)]
struct Watched {
    slot: usize,
    /// How much of its busy time the core has been told.
    told: Nanos,
}

/// The part of the tracing that beats use.
pub(crate) struct Traced {
    object: Object,
    _links: Vec<Link>,
    index: MapHandle,
    heirs: MapHandle,
    books: WatchedIo,
    watched: BTreeMap<u32, Watched>,
    /// Free slots, the one that is free for longest first: a request that began as its thread was let go, or that ends
    /// now, goes to a book that nobody reads rather than to another thread's.
    free: VecDeque<usize>,
    /// What the kernel reports besides requests.
    extras: &'static [&'static str],
    awake: Awake,
}

// SAFETY: libbpf's objects have no ties to the thread that made them, and one thread at a time uses them, behind the
// migrater's lock.
unsafe impl Send for Traced {}

/// What the kernel reports, for the daemon's own thread.
pub(crate) struct Sightings {
    ring: RingBuffer<'static>,
    seen: Rc<RefCell<Vec<Sighting>>>,
}

/// The tracepoints between which a request is under way, better ones first. With the first pair, a request that is
/// merged with another before it is issued has begun.
const PAIRS: [&[&str]; 2] = [
    &["io_start", "io_done", "rq_merge"],
    &["rq_issue", "rq_complete"],
];

/// What the kernel may report besides requests: time stolen from vCPUs (not where it does not list its data by name),
/// and which vCPUs idle. Without them everything else works.
const EXTRAS: [&[&str]; 4] = [&["stolen", "idle"], &["idle"], &["stolen"], &[]];

/// Begins to trace.
///
/// # Errors
/// Why that cannot be done here, in words.
pub(crate) fn trace(params: &MigraterParams) -> Result<(Traced, Sightings), String> {
    let namespace = std::fs::read_link("/proc/self/ns/pid");
    if namespace.is_ok_and(|it| it.as_os_str() != FIRST_PID_NAMESPACE) {
        return Err("the daemon runs in a PID namespace of its own".to_string());
    }
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, _| {})));
    let mut failed = String::new();
    for extras in EXTRAS {
        for pair in PAIRS {
            match load(pair, extras, params) {
                Ok(object) => return start(object, extras).map_err(|error| error.to_string()),
                Err(error) => failed = error.to_string(),
            }
        }
    }
    Err(failed)
}

fn load(pair: &[&str], extras: &[&str], params: &MigraterParams) -> libbpf_rs::Result<Object> {
    let mut open = ObjectBuilder::default()
        .name("requests")?
        .open_memory(&PROGRAM.0)?;
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let name = name.as_str();
        let wanted = pair.contains(&name) || name == "fork" || extras.contains(&name);
        program.set_autoload(wanted);
    }
    for mut map in open.maps_mut() {
        if map.name().to_string_lossy().ends_with(".rodata")
            && let Some(constants) = map.initial_value_mut()
        {
            let enough = params.window * params.enter / 1000;
            set_constants(constants, params.window, enough);
        }
    }
    open.load()
}

/// `window` and `enough`, in the order in which the source has them.
fn set_constants(constants: &mut [u8], window: Nanos, enough: Nanos) {
    for (place, value) in constants.chunks_exact_mut(8).zip([window, enough]) {
        place.copy_from_slice(&value.to_ne_bytes());
    }
}

/// Lets the programs run from now on, and maps what they write.
fn start(
    object: Object,
    extras: &'static [&'static str],
) -> libbpf_rs::Result<(Traced, Sightings)> {
    let mut links = Vec::new();
    for program in object.progs_mut() {
        if program.autoload() && program.name() != "stolen" {
            links.push(program.attach()?);
        }
    }
    let map = |name: &str| {
        let found = object.maps().find(|map| map.name() == name);
        let missing = || libbpf_rs::Error::from(io::Error::other(format!("no map {name}")));
        MapHandle::try_from(&found.ok_or_else(missing)?)
    };
    let sightings = Sightings::of(&map("sightings")?)?;
    let (books, index) = (WatchedIo::map(&map("books")?)?, map("watched")?);
    let (heirs, awake) = (map("heirs")?, Awake::map(&map("awake")?)?);
    let traced = Traced {
        object,
        _links: links,
        index,
        heirs,
        books,
        watched: BTreeMap::new(),
        free: (0..MOST).collect(),
        extras,
        awake,
    };
    Ok((traced, sightings))
}

/// `struct sighting`.
fn sighting(bytes: &[u8]) -> Option<Sighting> {
    let (kind, rest) = bytes.split_first_chunk()?;
    let (tid, rest) = rest.split_first_chunk()?;
    let tid = u32::from_ne_bytes(*tid);
    match u32::from_ne_bytes(*kind) {
        0 => Some(Sighting::Candidate(tid)),
        1 => heir(tid, rest),
        _ => None,
    }
}

/// The rest of `struct sighting`, for an heir.
fn heir(tid: u32, bytes: &[u8]) -> Option<Sighting> {
    let (root, rest) = bytes.split_first_chunk()?;
    // Only the first bit counts: the kernel's mask may be shorter, with something else behind it.
    let (_, allowed) = rest.split_first_chunk::<4>()?;
    let words = allowed.chunks_exact(8).zip(0..);
    let first = |(word, at): (&[u8], u32)| {
        let word = u64::from_ne_bytes(word.try_into().ok()?);
        (word != 0).then(|| at * u64::BITS + word.trailing_zeros())
    };
    Some(Sighting::Heir {
        tid,
        root: u32::from_ne_bytes(*root),
        vcpu: words.filter_map(first).next()?,
    })
}

impl Sightings {
    /// From this ring.
    fn of(map: &MapHandle) -> libbpf_rs::Result<Self> {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let mut builder = RingBufferBuilder::new();
        let taken = Rc::clone(&seen);
        builder.add(map, move |bytes| {
            taken.borrow_mut().extend(sighting(bytes));
            0
        })?;
        let ring = builder.build()?;
        Ok(Self { ring, seen })
    }

    /// Waits for at most `limit` for something to be seen.
    pub(crate) fn wait(&self, limit: Duration) -> Vec<Sighting> {
        // A signal may interrupt it: then there is nothing, or something next time.
        let _ = self.ring.poll(limit);
        std::mem::take(&mut *self.seen.borrow_mut())
    }
}

impl Traced {
    pub(crate) fn watch(&mut self, key: &ThreadKey) -> io::Result<()> {
        let slot = self
            .free
            .pop_front()
            .ok_or_else(|| io::Error::other(format!("{MOST} threads are watched already")))?;
        let book = self.books.get(slot);
        for zero in [&book.busy, &book.since] {
            zero.store(0, Ordering::Relaxed);
        }
        book.under_way.store(0, Ordering::Relaxed);
        book.tid.store(key.tid, Ordering::Relaxed);
        let vcpu = Proc::default()
            .thread(key.tgid, key.tid)
            .stat()
            .map_or(0, |stat| stat.cpu);
        book.vcpu.store(vcpu, Ordering::Release);
        let (tid, value) = (key.tid.to_ne_bytes(), (slot as u32).to_ne_bytes());
        if let Err(error) = self.index.update(&tid, &value, MapFlags::ANY) {
            self.free.push_back(slot);
            return Err(io::Error::other(error));
        }
        self.watched.insert(key.tid, Watched { slot, told: 0 });
        Ok(())
    }

    pub(crate) fn unwatch(&mut self, tid: u32) {
        if let Some(watched) = self.watched.remove(&tid) {
            // It can only fail because it is not there.
            let _ = self.index.delete(&tid.to_ne_bytes());
            self.books.get(watched.slot).tid.store(0, Ordering::Relaxed);
            self.free.push_back(watched.slot);
        }
    }

    pub(crate) fn judged(&self, tid: u32, root: u32) {
        // `struct heir`.
        let heir = [root, 1].map(u32::to_ne_bytes).concat();
        // It can only fail because the kernel has forgotten it already.
        let _ = self
            .heirs
            .update(&tid.to_ne_bytes(), &heir, MapFlags::EXIST);
    }

    pub(crate) fn vcpu(&self, tid: u32) -> u32 {
        let book = |watched: &Watched| self.books.get(watched.slot);
        let watched = self.watched.get(&tid).map(book);
        watched.map_or(0, |book| book.vcpu.load(Ordering::Acquire))
    }

    /// Tells `core` for how much of the time since the last beat the thread was in I/O.
    pub(crate) fn feed(&mut self, core: &mut Core, tid: u32, now: Nanos) {
        let Some(watched) = self.watched.get_mut(&tid) else {
            return;
        };
        let busy = self.books.get(watched.slot).busy(now);
        // A request that ends between the two looks is counted with the next beat.
        let newly = busy.saturating_sub(watched.told);
        watched.told = watched.told.max(busy);
        if newly > 0 {
            core.io_started(u64::from(tid), now.saturating_sub(newly));
            core.io_ended(u64::from(tid), now);
        }
    }

    /// When a vCPU last began to run something, after idling, ns; `None`: not available. 0: never yet.
    pub(crate) fn awake_since(&self, vcpu: u32) -> Option<Nanos> {
        let since = self.awake.since(vcpu);
        since.filter(|_| self.extras.contains(&"idle"))
    }

    /// The time that the host has taken from a vCPU since boot, ns, exactly; `None`: not available.
    pub(crate) fn stolen(&self, vcpu: u32) -> Option<Nanos> {
        if !self.extras.contains(&"stolen") {
            return None;
        }
        let program = self.object.progs_mut().find(|it| it.name() == "stolen")?;
        // `struct stolen`.
        let mut asked = [0u8; 16];
        asked[..4].copy_from_slice(&vcpu.to_ne_bytes());
        let input = ProgramInput {
            context_in: Some(&mut asked),
            ..ProgramInput::default()
        };
        program.test_run(input).ok()?;
        let known = asked[4..8] != [0; 4];
        let time = asked[8..].try_into().ok().map(u64::from_ne_bytes)?;
        known.then_some(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::os::unix::fs::OpenOptionsExt;
    use std::sync::Mutex;
    use std::time::Instant;

    /// Held by whoever changes maps, or counts what must not be lost meanwhile.
    static MAPS: Mutex<()> = Mutex::new(());

    #[test]
    fn a_request_whose_end_was_lost_is_not_under_way_for_ever() {
        let book = Book {
            busy: AtomicU64::new(7),
            since: AtomicU64::new(SEC),
            under_way: AtomicU32::new(1),
            vcpu: AtomicU32::new(0),
            tid: AtomicU32::new(1),
            unused: 0,
        };
        assert_eq!(book.busy(SEC + 3), 10);
        assert_eq!(book.busy(SEC + ENDLESS), 7 + ENDLESS);
        // From here on the request is taken for endless, and what it took until then stays.
        assert_eq!(book.busy(SEC + ENDLESS + 1), 8 + ENDLESS);
        assert_eq!(book.busy(9 * SEC), 8 + ENDLESS);
        // The next one begins.
        book.since.store(10 * SEC, Ordering::Relaxed);
        book.under_way.store(1, Ordering::Relaxed);
        assert_eq!(book.busy(10 * SEC + 2), 10 + ENDLESS);
    }

    /// Where BPF may look, and the disk of this folder has an elevator: adjacent requests are merged.
    #[test]
    fn a_request_that_was_merged_is_under_way_no_more() {
        let _alone = MAPS.lock();
        let Ok((mut traced, _sightings)) = trace(&MigraterParams::default()) else {
            return; // not allowed here
        };
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = folder.path().join("blocks");
        std::fs::write(&path, vec![1; 256 * BLOCK]).unwrap();
        let mut options = std::fs::OpenOptions::new();
        let opened = options.read(true).custom_flags(libc::O_DIRECT).open(&path);
        let Ok(file) = opened else {
            return; // no file system on a disk
        };
        file.sync_all().unwrap();
        // SAFETY: asks for a number only.
        let tid = unsafe { libc::gettid() }.cast_unsigned();
        let (tgid, start) = (std::process::id(), 0);
        traced.watch(&ThreadKey { tgid, tid, start }).unwrap();
        for round in 0..32 {
            // The one in the middle comes last, and joins the two others.
            read_at_once(&file, [0, 2, 1].map(|at| 8 * round + at));
        }
        let book = traced.books.get(traced.watched[&tid].slot);
        // Whoever waits for a request learns of its end before `block_io_done` does (blk_mq_end_request()).
        let under_way = || book.under_way.load(Ordering::Acquire);
        let until = Instant::now() + Duration::from_secs(5);
        while under_way() != 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(under_way(), 0);
    }

    /// Where BPF may look. A request that is under way when its thread is let go still has the number of that slot.
    #[test]
    fn a_slot_is_not_the_next_one_again() {
        let _alone = MAPS.lock();
        let Ok((mut traced, _sightings)) = trace(&MigraterParams::default()) else {
            return; // not allowed here
        };
        let (tgid, tid, start) = (std::process::id(), std::process::id(), 0);
        let mut slots = BTreeSet::new();
        for _ in 0..MOST {
            traced.watch(&ThreadKey { tgid, tid, start }).unwrap();
            slots.insert(traced.watched[&tid].slot);
            traced.unwatch(tid);
        }
        assert_eq!(slots.len(), MOST);
    }

    const BLOCK: usize = 4096;

    /// `struct iocb` (linux/aio_abi.h).
    #[repr(C)]
    #[derive(Default)]
    struct Iocb {
        data: u64,
        key: u32,
        flags: u32,
        opcode: u16,
        priority: i16,
        file: u32,
        buffer: u64,
        length: u64,
        offset: i64,
        rest: [u64; 2],
    }

    #[repr(C, align(4096))]
    struct Buffer([u8; 3 * BLOCK]);

    /// Reads these blocks of a file, all submitted before the first is waited for.
    fn read_at_once(file: &std::fs::File, blocks: [usize; 3]) {
        let mut buffer = Box::new(Buffer([0; 3 * BLOCK]));
        let mut places = buffer.0.chunks_exact_mut(BLOCK);
        let mut asked = blocks.map(|block| Iocb {
            file: file.as_raw_fd().cast_unsigned(),
            buffer: places.next().unwrap().as_mut_ptr() as u64,
            length: BLOCK as u64,
            offset: (block * BLOCK) as i64,
            ..Iocb::default()
        });
        let asked: [*mut Iocb; 3] = asked.each_mut().map(std::ptr::from_mut);
        let (mut context, mut events) = (0u64, [[0u64; 4]; 3]);
        // SAFETY: what is pointed to outlives the calls, the last of which waits for all three to be done.
        unsafe {
            let none = std::ptr::null::<libc::timespec>();
            assert_eq!(libc::syscall(libc::SYS_io_setup, 3, &raw mut context), 0);
            assert_eq!(
                libc::syscall(libc::SYS_io_submit, context, 3, asked.as_ptr()),
                3
            );
            let got = libc::syscall(
                libc::SYS_io_getevents,
                context,
                3,
                3,
                events.as_mut_ptr(),
                none,
            );
            assert_eq!(got, 3);
            assert_eq!(libc::syscall(libc::SYS_io_destroy, context), 0);
        }
    }

    #[test]
    fn books_are_as_the_kernel_writes_them() {
        assert_eq!(size_of::<Book>(), 32);
        let mut bytes = [0; 80];
        (bytes[4], bytes[8]) = (8, 7);
        assert_eq!(sighting(&bytes), Some(Sighting::Candidate(8)));
        bytes[0] = 1;
        assert_eq!(sighting(&bytes), None, "an heir of nothing");
        (bytes[24], bytes[25]) = (0b1000, 0xff);
        let (tid, root, vcpu) = (8, 7, 67);
        assert_eq!(sighting(&bytes), Some(Sighting::Heir { tid, root, vcpu }));
        bytes[0] = 2;
        assert_eq!(sighting(&bytes), None);
        assert_eq!(sighting(&[0; 7]), None);
    }
}
