// SPDX-License-Identifier: GPL-2.0-only
//! What the daemon gives up once the dispatcher is in charge.
//!
//! Loading a scheduler takes an administrator; talking to it does not: tables are reached by
//! descriptors that are open, and threads are looked at through files that everybody may read. So all
//! capabilities go but one, CAP_PERFMON, for the counters that some policies ask for; and so do the
//! system calls by which a daemon that somebody has taken over could start programs, reach a network,
//! look into other processes or change the kernel. They are refused, not fatal, and only they are: a
//! daemon that was killed for an innocent call would take the scheduler with it (man 2 seccomp,
//! man 7 capabilities, docs/security.md).

use caps::{CapSet, Capability, CapsHashSet};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::collections::BTreeMap;
use std::env::consts::ARCH;

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
    // Other processes' insides, and who one is.
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

/// Why the daemon could not give something up.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// Capabilities.
    #[error("cannot give up capabilities: {0}")]
    Capabilities(#[from] caps::errors::CapsError),
    /// The filter cannot be made.
    #[error("cannot make a filter of system calls: {0}")]
    Filter(#[from] seccompiler::BackendError),
    /// The filter cannot be set.
    #[error("cannot set a filter of system calls: {0}")]
    Set(#[from] seccompiler::Error),
}

/// Gives it up, for this thread and those it will start.
pub(crate) fn confine() -> Result<(), ConfineError> {
    let kept: CapsHashSet = KEPT.into_iter().collect();
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
    caps::set(None, CapSet::Permitted, &kept)?;
    seccompiler::apply_filter(&filter()?)?;
    Ok(())
}

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let always = Vec::new;
    let rules: BTreeMap<i64, _> = REFUSED.into_iter().map(|call| (call, always())).collect();
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, ARCH.try_into()?)?;
    filter.try_into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;
    use std::process::Command;
    use std::thread;

    /// In a thread of its own: what is given up does not come back.
    #[test]
    fn what_was_given_up_is_refused_and_all_else_works() {
        let checked = thread::spawn(|| {
            confine().unwrap();
            assert!(Command::new("/bin/true").status().is_err());
            assert!(TcpListener::bind(("127.0.0.1", 0)).is_err());
            assert!(UnixListener::bind("/tmp/corun-never").is_err());
            let left = caps::read(None, CapSet::Permitted).unwrap();
            assert!(left.iter().all(|left| KEPT.contains(left)), "{left:?}");
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("file"), "text").unwrap();
            assert!(
                fs::read_to_string("/proc/thread-self/status")
                    .unwrap()
                    .contains("Seccomp:\t2")
            );
            assert!(crate::pidfd::allowed(std::process::id()).is_some());
            assert!(crate::pidfd::open_thread(std::process::id()).is_ok());
        });
        checked.join().unwrap();
        assert!(
            Command::new("/bin/true").status().is_ok(),
            "other threads are as before"
        );
    }
}
