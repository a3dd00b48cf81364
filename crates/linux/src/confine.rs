// SPDX-License-Identifier: GPL-2.0-only
//! What the daemon gives up once the dispatcher is in charge.
//!
//! Loading a scheduler takes an administrator's rights; talking to it does not: the tables are reached through open
//! descriptors, and threads through files that everybody may read. So the daemon gives up
//!
//! - all capabilities but CAP_PERFMON, which the counters of some policies take;
//! - the system calls by which an attacker that has taken over the daemon could start programs, reach a network, look
//!   into other processes or change the kernel. Such a call fails, and does not kill the daemon: that would end the
//!   scheduler as well, perhaps for an innocent call (man 2 seccomp, man 7 capabilities, docs/security.md);
//! - writing to files, except those that are open and those in its state directory; of the
//!   directories of its sockets, it may only remove the sockets (man 7 landlock; not on kernels without Landlock).
//!   Writing to files needs neither capabilities nor calls that could be refused: the files belong to root, and so does
//!   the daemon. An attacker who writes `|/var/lib/corun/x` to /proc/sys/kernel/core_pattern and then crashes has the
//!   kernel run x with all rights.
//!
//! One thing needs more: the kernel shows core-scheduling cookies only to a process that may trace the VM's threads,
//! which takes CAP_SYS_PTRACE. With that capability, a process could also write into any process, through
//! /proc/PID/mem, which no filter of system calls can tell from another file. So only one thread has it (cookies.rs);
//! only a short list of calls is allowed for that thread, and all others fail.

use crate::smt::PR_SCHED_CORE_GET;
use caps::{CapSet, Capability, CapsHashSet};
use landlock::{
    ABI, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus,
};
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, sock_filter,
};
use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::path::{Path, PathBuf};

/// What stays.
const KEPT: [Capability; 1] = [Capability::CAP_PERFMON];

/// What is refused from then on.
const REFUSED: [libc::c_long; 43] = [
    // Other programs.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_memfd_create,
    // A network. The control socket listens already.
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    // The memory of other processes, and identity.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_capset,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // The kernel, its devices and its view of files.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_open_by_handle_at,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
];

/// What the thread that reads cookies may do besides: wait for requests, have memory, and end.
const READERS: [libc::c_long; 13] = [
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Why the daemon could not give something up.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// Capabilities.
    #[error("cannot give up capabilities: {0}")]
    Capabilities(#[from] caps::errors::CapsError),
    /// What may be written.
    #[error("cannot give up other files: {0}")]
    Files(#[from] landlock::RulesetError),
    /// A directory that may be written.
    #[error("cannot give up other files: {0}")]
    Folder(#[from] landlock::PathFdError),
    /// The filter cannot be made.
    #[error("cannot make a filter of system calls: {0}")]
    Filter(#[from] seccompiler::BackendError),
    /// The filter cannot be set.
    #[error("cannot set a filter of system calls: {0}")]
    Set(#[from] seccompiler::Error),
}

/// Where files may be changed from then on.
pub(crate) struct Places {
    state: PathBuf,
    sockets: Vec<PathBuf>,
}

impl Places {
    /// `state`: where all may be written; `sockets`: files that may be removed.
    pub(crate) fn new<'a>(state: &Path, sockets: impl IntoIterator<Item = &'a Path>) -> Self {
        let folder = |socket: &Path| match socket.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
            _ => PathBuf::from("."),
        };
        Self {
            state: state.to_path_buf(),
            sockets: sockets.into_iter().map(folder).collect(),
        }
    }
}

/// Gives it up, for this thread and those it will start. Returns what people should know.
pub(crate) fn confine(places: &Places) -> Result<Option<&'static str>, ConfineError> {
    let held = give_up_files(places)?;
    give_up_all_but(&KEPT)?;
    #[cfg(target_arch = "x86_64")]
    seccompiler::apply_filter(&no_second_numbers())?;
    seccompiler::apply_filter(&filter()?)?;
    Ok((!held).then_some(
        "this kernel has no Landlock: the daemon may write whatever root may and the service's unit allows",
    ))
}

/// Returns whether the kernel enforces that; a kernel that knows less than this asks for enforces what it can.
fn give_up_files(places: &Places) -> Result<bool, ConfineError> {
    // Linux 6.10; reading is not among them.
    let writing = AccessFs::from_write(ABI::V5);
    let in_state: BitFlags<AccessFs> =
        AccessFs::WriteFile | AccessFs::Truncate | AccessFs::MakeReg | AccessFs::RemoveFile;
    let mut rules = Ruleset::default()
        .handle_access(writing)?
        .create()?
        .add_rule(PathBeneath::new(PathFd::new(&places.state)?, in_state))?;
    for folder in &places.sockets {
        // Where there is none, nothing is to be removed.
        if let Ok(folder) = PathFd::new(folder) {
            rules = rules.add_rule(PathBeneath::new(folder, AccessFs::RemoveFile))?;
        }
    }
    let status = rules.restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// Refuses what x86-64 has a second number for, that of x32: a list of what is refused, by number, would let all of
/// them pass (man 2 seccomp). Kernels without `CONFIG_X86_X32_ABI` have none of them.
#[cfg(target_arch = "x86_64")]
fn no_second_numbers() -> BpfProgram {
    /// `__X32_SYSCALL_BIT` (asm/unistd.h).
    const X32: u32 = 0x4000_0000;
    let say = |code: u32, (jt, jf): (u8, u8), k: u32| sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let answer = |action: SeccompAction| say(libc::BPF_RET | libc::BPF_K, (0, 0), action.into());
    vec![
        // The number comes first in `struct seccomp_data`.
        say(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, (0, 0), 0),
        say(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, (0, 1), X32),
        answer(refuse()),
        answer(SeccompAction::Allow),
    ]
}

/// The same for the thread that reads cookies: it can do nothing else.
pub(crate) fn confine_to_cookies() -> Result<(), ConfineError> {
    give_up_all_but(&[Capability::CAP_SYS_PTRACE])?;
    seccompiler::apply_filter(&filter_of_reader()?)?;
    Ok(())
}

/// Gives up all capabilities but these; gains none.
fn give_up_all_but(kept: &[Capability]) -> Result<(), caps::errors::CapsError> {
    let kept: CapsHashSet = kept.iter().copied().collect();
    // While CAP_SETPCAP is there.
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)? {
        for bounded in caps::read(None, CapSet::Bounding)?.difference(&kept) {
            caps::drop(None, CapSet::Bounding, *bounded)?;
        }
    }
    let had = caps::read(None, CapSet::Permitted)?;
    let kept: CapsHashSet = had.intersection(&kept).copied().collect();
    caps::clear(None, CapSet::Inheritable)?;
    caps::set(None, CapSet::Effective, &kept)?;
    caps::set(None, CapSet::Permitted, &kept)
}

fn filter() -> Result<BpfProgram, BackendError> {
    let always = Vec::new;
    let rules: BTreeMap<i64, _> = REFUSED.into_iter().map(|call| (call, always())).collect();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse(), ARCH.try_into()?)?;
    filter.try_into()
}

fn filter_of_reader() -> Result<BpfProgram, BackendError> {
    let always = Vec::new;
    let mut rules: BTreeMap<i64, _> = READERS.into_iter().map(|call| (call, always())).collect();
    let what = u64::from(libc::PR_SCHED_CORE.unsigned_abs());
    let get = SeccompRule::new(vec![
        SeccompCondition::new(0, Dword, SeccompCmpOp::Eq, what)?,
        SeccompCondition::new(1, Qword, SeccompCmpOp::Eq, PR_SCHED_CORE_GET)?,
    ])?;
    rules.insert(libc::SYS_prctl, vec![get]);
    let filter = SeccompFilter::new(rules, refuse(), SeccompAction::Allow, ARCH.try_into()?)?;
    filter.try_into()
}

/// Calls fail, but do not kill the daemon.
fn refuse() -> SeccompAction {
    SeccompAction::Errno(libc::EPERM.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use corun_system::files;
    use std::fs;
    use std::io::Write;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;
    use std::process::Command;
    use std::thread;

    /// In threads of their own: what is given up does not come back.
    #[test]
    fn the_reader_of_cookies_can_do_nothing_else() {
        let checked = thread::spawn(|| {
            // Results go into memory that is there already: reporting them takes more calls than the thread has.
            let mut found = Vec::with_capacity(8);
            confine_to_cookies().unwrap();
            found.push(crate::smt::cookie(std::process::id()).is_ok());
            found.push(fs::read("/proc/self/stat").is_err());
            found.push(Command::new("/bin/true").status().is_err());
            found.push(caps::read(None, CapSet::Permitted).is_err());
            // SAFETY: `PR_SCHED_CORE_CREATE` takes integers only.
            let create = unsafe { libc::prctl(libc::PR_SCHED_CORE, 1, 0, 0, 0) };
            let refused = std::io::Error::last_os_error().raw_os_error();
            found.push(create != 0 && refused == Some(libc::EPERM));
            found
        });
        assert_eq!(checked.join().unwrap(), [true; 5]);
        let left = thread::spawn(|| {
            let had = caps::read(None, CapSet::Permitted).unwrap();
            give_up_all_but(&[Capability::CAP_SYS_PTRACE]).unwrap();
            let left = caps::read(None, CapSet::Permitted).unwrap();
            (had.contains(&Capability::CAP_SYS_PTRACE), left)
        });
        let (had, left) = left.join().unwrap();
        let expected = had.then_some(Capability::CAP_SYS_PTRACE);
        assert_eq!(
            left.into_iter().collect::<Vec<_>>(),
            Vec::from_iter(expected)
        );
    }

    #[test]
    fn what_was_given_up_is_refused_and_all_else_works() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_path_buf();
        let checked = thread::spawn(move || {
            let at = |name: &str| root.join(name);
            for name in ["state", "run", "else"] {
                fs::create_dir(at(name)).unwrap();
            }
            fs::write(at("run/socket"), "").unwrap();
            fs::write(at("else/there"), "text").unwrap();
            let mut open = fs::File::create(at("else/open")).unwrap();
            let socket = at("run/socket");
            let places = Places::new(&at("state"), [socket.as_path(), Path::new("host.sock")]);
            let without = confine(&places).unwrap();
            assert!(Command::new("/bin/true").status().is_err());
            assert!(TcpListener::bind(("127.0.0.1", 0)).is_err());
            assert!(UnixListener::bind("/tmp/corun-never").is_err());
            #[cfg(target_arch = "x86_64")]
            {
                // SAFETY: getpid() by its number of x32, which takes nothing.
                let got = unsafe { libc::syscall(0x4000_0000 | libc::SYS_getpid) };
                let why = std::io::Error::last_os_error().raw_os_error();
                assert_eq!((got, why), (-1, Some(libc::EPERM)));
            }
            let left = caps::read(None, CapSet::Permitted).unwrap();
            assert!(left.iter().all(|left| KEPT.contains(left)), "{left:?}");
            // As the daemon writes down how it ended.
            for _ in 0..2 {
                files::replace_durably(&at("state/file"), b"text").unwrap();
            }
            fs::rename(at("state/file"), at("state/before")).unwrap();
            fs::remove_file(at("run/socket")).unwrap();
            open.write_all(b"text").unwrap();
            assert_eq!(fs::read_to_string(at("else/there")).unwrap(), "text");
            if without.is_none() {
                let refused = |done: std::io::Result<()>| {
                    let why = done.unwrap_err().kind();
                    assert_eq!(why, std::io::ErrorKind::PermissionDenied);
                };
                refused(fs::write(at("else/new"), "text"));
                refused(fs::write(at("else/there"), "text"));
                refused(fs::remove_file(at("else/there")));
                refused(fs::write(at("run/new"), "text"));
                refused(fs::create_dir(at("state/folder")));
                let mut append = fs::File::options();
                let tunable = append.append(true).open("/proc/sys/kernel/core_pattern");
                refused(tunable.map(|_| ()));
            }
            assert!(
                fs::read_to_string("/proc/thread-self/status")
                    .unwrap()
                    .contains("Seccomp:\t2")
            );
            assert!(corun_system::affinity::get(std::process::id()).is_ok());
            assert!(crate::pidfd::open_thread(std::process::id()).is_ok());
        });
        checked.join().unwrap();
        assert!(
            Command::new("/bin/true").status().is_ok(),
            "other threads are as before"
        );
    }
}
