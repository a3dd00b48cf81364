// SPDX-License-Identifier: GPL-2.0-only
//! Reads the dispatcher's state of many tasks at once: bpf/books.bpf.c copies it to memory that is mapped here. A
//! system call for each vCPU, ten times a second, was a third of what the daemon cost under Jupiter with 504 vCPUs
//! (docs/cost.md).

use crate::mapping::{Access, Mapping, read_into, words_of};
use crate::namespaces;
use crate::object::Aligned;
use crate::skel::types;
use corun_model::Nanos;
use corun_system::clock;
use corun_system::procfs::ThreadKey;
use libbpf_rs::{MapCore, MapHandle, Object, ObjectBuilder, ProgramInput, ProgramMut};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// The compiled program.
static PROGRAM: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/books.bpf.o")));

/// Tasks asked for at a time (`MOST_ASKED`).
const MOST: usize = 512;
/// Words of `struct asked`: numbers of process and thread in one, and the start.
const ASKED: usize = 2;
/// Words of `struct told`: whether the thread is known, and its state.
const TOLD: usize = 1 + words_of::<types::task_ctx>();

/// The program, loaded.
pub(crate) struct TaskStates {
    object: Object,
    asked: Mapping,
    told: Mapping,
}

impl TaskStates {
    /// Loads the program, for what the dispatcher keeps in `task_ctxs`.
    ///
    /// # Errors
    /// The kernel's reason: it may be too old for such programs to look for tasks. Or this process names
    /// threads otherwise than the kernel does.
    pub(crate) fn load(task_ctxs: BorrowedFd<'_>) -> libbpf_rs::Result<Self> {
        if !namespaces::numbers_are_the_kernels() || !namespaces::starts_are_the_kernels() {
            let why = "this process is in a PID or time namespace of its own";
            return Err(io::Error::other(why).into());
        }
        Self::load_for(Some(task_ctxs))
    }

    /// For a table of its own if none is given.
    fn load_for(task_ctxs: Option<BorrowedFd<'_>>) -> libbpf_rs::Result<Self> {
        let mut open = ObjectBuilder::default()
            .name("books")?
            .open_memory(&PROGRAM.0)?;
        for mut map in open.maps_mut() {
            if let ("task_ctxs", Some(dispatchers)) = (map.name().to_str().unwrap_or(""), task_ctxs)
            {
                map.reuse_fd(dispatchers)?;
            }
        }
        let object = open.load()?;
        let map = |name: &str, words, access| {
            let found = object.maps().find(|map| map.name() == name);
            let missing = || libbpf_rs::Error::from(io::Error::other(format!("no map {name}")));
            let map = MapHandle::try_from(&found.ok_or_else(missing)?)?;
            Mapping::of(map.as_fd(), MOST * words, access).map_err(libbpf_rs::Error::from)
        };
        Ok(Self {
            asked: map("asked", ASKED, Access::Write)?,
            told: map("told", TOLD, Access::Read)?,
            object,
        })
    }

    /// The dispatcher's state of these threads, and when it was copied, passed one by one in their order; `None` for
    /// those that have gone, or that it has not seen.
    ///
    /// # Errors
    /// If the program cannot be run.
    pub(crate) fn read(
        &self,
        threads: &[ThreadKey],
        mut tell: impl FnMut(Option<(&types::task_ctx, Nanos)>),
    ) -> libbpf_rs::Result<()> {
        let mut ctx = types::task_ctx::default();
        for some in threads.chunks(MOST) {
            self.ask(some)?;
            let now = clock::now();
            let told = self.told.words().chunks_exact(TOLD).take(some.len());
            told.for_each(|told| tell(is_known(told, &mut ctx).then_some((&ctx, now))));
        }
        Ok(())
    }

    fn ask(&self, threads: &[ThreadKey]) -> libbpf_rs::Result<()> {
        let (asked, _) = self.asked.words().as_chunks::<ASKED>();
        for (asked, key) in asked.iter().zip(threads) {
            let [a, b, c, d] = key.tgid.to_ne_bytes();
            let [e, f, g, h] = key.tid.to_ne_bytes();
            let thread = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
            for (word, value) in asked.iter().zip([thread, key.start]) {
                word.store(value, Ordering::Relaxed);
            }
        }
        let mut count = (threads.len() as u64).to_ne_bytes();
        let input = ProgramInput {
            context_in: Some(&mut count),
            ..ProgramInput::default()
        };
        self.program()?.test_run(input).map(drop)
    }

    fn program(&self) -> libbpf_rs::Result<ProgramMut<'_>> {
        let found = self.object.progs_mut().find(|it| it.name() == "books");
        found.ok_or_else(|| io::Error::other("no program books").into())
    }
}

/// Is it known? What of it goes to `ctx`.
fn is_known(told: &[AtomicU64], ctx: &mut types::task_ctx) -> bool {
    let Some((known, words)) = told.split_first() else {
        return false;
    };
    known.load(Ordering::Acquire) != 0 && read_into(words, ctx)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pidfd;
    use crate::tables::bytes_of;
    use corun_system::procfs::Process;
    use libbpf_rs::{ErrorKind, MapFlags};
    use std::os::fd::AsRawFd;

    #[test]
    fn threads_are_told_by_number_and_start() {
        let books = match TaskStates::load_for(None) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                eprintln!("not tested: this takes CAP_BPF");
                return;
            }
            books => books.unwrap(),
        };
        let map = books.object.maps().find(|map| map.name() == "task_ctxs");
        let (tgid, tid) = (std::process::id(), std::process::id());
        let ctx = types::task_ctx {
            vtime: 4711,
            group_weight: 77,
            ..types::task_ctx::default()
        };
        let thread = pidfd::open_thread(tid).unwrap();
        map.unwrap()
            .update(
                &thread.as_raw_fd().to_ne_bytes(),
                bytes_of(&ctx),
                MapFlags::ANY,
            )
            .unwrap();
        let start = Process::here(tgid).thread(tid).start().unwrap();
        let key = ThreadKey { tgid, tid, start };
        let again = ThreadKey {
            start: start + 1,
            ..key
        };
        let foreign = ThreadKey { tgid: 1, ..key };
        let gone = ThreadKey {
            tid: u32::MAX >> 1,
            ..key
        };
        let mut all = vec![key, again, foreign, gone];
        // More than are asked for at a time.
        all.resize(MOST + 1, key);
        let mut read = Vec::new();
        books
            .read(&all, |told| read.push(told.map(|(ctx, _)| *ctx)))
            .unwrap();
        let is_ours = |read: &Option<types::task_ctx>| {
            read.as_ref()
                .is_some_and(|read| bytes_of(read) == bytes_of(&ctx))
        };
        let found: Vec<bool> = read.iter().map(is_ours).collect();
        assert_eq!(found[..4], [true, false, false, false]);
        assert_eq!(found.len(), MOST + 1);
        assert!(found[4..].iter().all(|found| *found));
        assert!(read[1..4].iter().all(Option::is_none));
    }
}
