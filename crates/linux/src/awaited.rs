// SPDX-License-Identifier: GPL-2.0-only
//! For which ready vCPUs siblings wait, as KVM shows it: attaches bpf/awaited.bpf.c while a policy wants to know
//! (`policy.cosched-demand.sees_flushes`).
//!
//! It is loaded with the dispatcher, while the daemon still may load programs, and looks at interrupts only as long as
//! there are vCPUs to look for. When the daemon ends, for whatever reason, the kernel takes it out.

use crate::namespaces;
use crate::object::Aligned;
use corun_model::AwaitedHidden;
use corun_system::procfs::ThreadKey;
use libbpf_rs::{Link, Object, ObjectBuilder, ProgramInput, ProgramMut};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// The compiled program.
static PROGRAM: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/awaited.bpf.o")));

/// Why there is none, and what the kernel said if it refused one.
pub(crate) type NotSeen = (AwaitedHidden, Option<libbpf_rs::Error>);

/// The program, loaded.
pub(crate) struct Awaited {
    object: Object,
    looks: RefCell<Looks>,
}

/// What it does at the moment.
#[derive(Default)]
struct Looks {
    /// Attached to KVM's event.
    link: Option<Link>,
    /// Threads whose vCPUs it knows.
    known: BTreeSet<ThreadKey>,
}

impl Awaited {
    /// Loads the program, for what the dispatcher keeps in `task_ctxs`.
    ///
    /// # Errors
    /// Why KVM's interrupts are not seen here, with the kernel's reason if it refuses.
    pub(crate) fn load(task_ctxs: BorrowedFd<'_>) -> Result<Self, NotSeen> {
        if let Some(why) = hidden(Path::new("/")) {
            return Err((why, None));
        }
        if !namespaces::numbers_are_the_kernels() || !namespaces::starts_are_the_kernels() {
            return Err((AwaitedHidden::Namespace, None));
        }
        let load = || {
            let mut open = ObjectBuilder::default()
                .name("awaited")?
                .open_memory(&PROGRAM.0)?;
            for mut map in open.maps_mut() {
                if map.name() == "task_ctxs" {
                    map.reuse_fd(task_ctxs)?;
                }
            }
            open.load()
        };
        match load() {
            Ok(object) => Ok(Self {
                object,
                looks: RefCell::default(),
            }),
            Err(why) => Err((AwaitedHidden::Refused, Some(why))),
        }
    }

    /// From now on looks for these vCPU threads, and for no others; if there are none, not at all. A thread that is
    /// outside KVM just now is added the next time.
    ///
    /// # Errors
    /// The kernel's reason.
    pub(crate) fn look_for(&self, vcpus: &BTreeSet<ThreadKey>) -> libbpf_rs::Result<()> {
        let looks = &mut *self.looks.borrow_mut();
        looks.known.retain(|key| vcpus.contains(key));
        if vcpus.is_empty() {
            looks.link = None;
            return Ok(());
        }
        if looks.link.is_none() {
            looks.link = Some(self.program("delivered")?.attach()?);
        }
        for key in vcpus {
            if !looks.known.contains(key) && self.introduce(*key)? {
                looks.known.insert(*key);
            }
        }
        Ok(())
    }

    /// Is its vCPU known now?
    fn introduce(&self, key: ThreadKey) -> libbpf_rs::Result<bool> {
        // `struct thread_key`.
        let mut wanted = [0; 16];
        wanted[..4].copy_from_slice(&key.tgid.to_ne_bytes());
        wanted[4..8].copy_from_slice(&key.tid.to_ne_bytes());
        wanted[8..].copy_from_slice(&key.start.to_ne_bytes());
        let input = ProgramInput {
            context_in: Some(&mut wanted),
            ..ProgramInput::default()
        };
        let told = self.program("introduce")?.test_run(input)?;
        Ok(told.return_value == 1)
    }

    fn program(&self, name: &str) -> libbpf_rs::Result<ProgramMut<'_>> {
        let found = self.object.progs_mut().find(|it| it.name() == name);
        found.ok_or_else(|| io::Error::other(format!("no program {name}")).into())
    }
}

/// Why KVM's events are not available below `root`, if so: a program that wants one is refused as a whole.
fn hidden(root: &Path) -> Option<AwaitedHidden> {
    let module = root.join("sys/module/kvm");
    if !module.exists() {
        return Some(AwaitedHidden::NoKvm);
    }
    // Built in, its types are the kernel's own.
    let loaded = module.join("initstate").exists();
    (loaded && !root.join("sys/kernel/btf/kvm").exists()).then_some(AwaitedHidden::NoTypes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_host_without_kvms_types_says_why() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(hidden(root.path()), Some(AwaitedHidden::NoKvm));
        let module = root.path().join("sys/module/kvm");
        fs::create_dir_all(&module).unwrap();
        assert_eq!(hidden(root.path()), None, "built in");
        fs::write(module.join("initstate"), "live\n").unwrap();
        assert_eq!(hidden(root.path()), Some(AwaitedHidden::NoTypes));
        fs::create_dir_all(root.path().join("sys/kernel/btf/kvm")).unwrap();
        assert_eq!(hidden(root.path()), None);
    }
}
