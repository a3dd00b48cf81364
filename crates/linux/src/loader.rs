// SPDX-License-Identifier: GPL-2.0-only
//! Loads the dispatcher into the kernel, puts it in charge, takes it out again.
//!
//! Whatever happens to this process, the kernel unregisters the scheduler when its last file descriptor is closed, and
//! goes back to its own.

use crate::awaited::{Awaited, NotSeen};
use crate::books::TaskStates;
use crate::knobs::{self, Live};
use crate::machine;
use crate::skel::{self, CorunSkel, types};
use crate::status::CgroupsNow;
use crate::tables::{Pcpus, Tables};
use crate::vm_table::VmTable;
use crate::{log, sched_ext};
use corun_dispatcher::{MAX_GROUPS, MAX_PCPUS};
use corun_model::DispatcherParams;
use corun_model::PcpuSet;
use corun_system::clock;
use libbpf_rs::skel::OpenSkel;
use libbpf_rs::{ErrorKind, Link, OpenObject};
use serde::Serialize;
use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Room for records that wait for the recorder, bytes: some seconds of a busy host.
const RECORD_ROOM: u32 = 64 << 20;
/// The least a ring buffer may have.
const NO_ROOM: u32 = 4096;
/// How long the kernel may take to switch back to its own scheduler.
const DETACH_LIMIT: Duration = Duration::from_secs(5);

/// Why the dispatcher is not in charge.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The object could not be opened or loaded; the log is libbpf's and the verifier's.
    #[error("the kernel did not accept the dispatcher: {cause}\n{log}")]
    Load {
        /// What failed.
        cause: libbpf_rs::Error,
        /// What libbpf said.
        log: String,
    },
    /// The object that records does not fit into what this kernel's verifier allows (Linux 6.12's: 8 nested calls,
    /// 512 bytes of stack for all of them).
    #[error(
        "decisions cannot be recorded under this kernel, whose verifier allows fewer nested calls than that takes: \
         leave --record out, or boot a newer one ({cause})"
    )]
    Record {
        /// What failed.
        cause: libbpf_rs::Error,
    },
    /// Another one was put in charge while it was loaded; nothing of the host was touched.
    #[error("another sched_ext scheduler is in charge by now: {cause:#}")]
    Taken {
        /// What failed.
        cause: libbpf_rs::Error,
    },
    /// It was loaded, but could not be made the scheduler.
    #[error("the dispatcher could not be put in charge: {cause}{reason}\n{log}")]
    Attach {
        /// What failed.
        cause: libbpf_rs::Error,
        /// The kernel's reason, if it gave one.
        reason: String,
        /// What libbpf said.
        log: String,
    },
    /// Its table of VMs could not be shared with this process.
    #[error("the dispatcher's table of VMs cannot be mapped: {0}")]
    Map(std::io::Error),
    /// The object lacks a section; a mistake in the build.
    #[error("the dispatcher's object has no {0}: built from other sources?")]
    Object(&'static str),
}

impl LoadError {
    fn load(cause: libbpf_rs::Error, log: String, recording: bool) -> Self {
        let too_deep = ["frames is too deep", "combined stack size of"];
        if recording && too_deep.iter().any(|words| log.contains(words)) {
            return Self::Record { cause };
        }
        Self::Load { cause, log }
    }

    /// `errno`: the kernel's; `exit`: what the kernel told the dispatcher, if that had begun.
    fn attach(
        cause: libbpf_rs::Error,
        errno: Option<i32>,
        exit: Option<ExitInfo>,
        log: String,
    ) -> Self {
        if exit.is_none() && errno == Some(libc::EBUSY) {
            return Self::Taken { cause };
        }
        let reason = exit.map_or_else(String::new, |e| format!(" ({}: {})", e.reason, e.message));
        Self::Attach { cause, reason, log }
    }

    /// Will it be the same however often it is tried? A verifier that refuses a program does so each time.
    pub fn stays(&self) -> bool {
        use ErrorKind::{InvalidInput, PermissionDenied, TooBig, Unsupported};
        match self {
            Self::Load { cause, .. } => matches!(
                cause.kind(),
                InvalidInput | PermissionDenied | TooBig | Unsupported
            ),
            Self::Record { .. } | Self::Object(_) => true,
            Self::Taken { .. } | Self::Attach { .. } | Self::Map(_) => false,
        }
    }
}

/// Why a scheduler was unloaded, as the kernel reported it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExitInfo {
    /// `enum scx_exit_kind`: 64 unregistered by us, 1024 and above an error.
    pub kind: u32,
    /// Its exit code.
    pub code: i64,
    /// In a few words.
    pub reason: String,
    /// Details.
    pub message: String,
}

impl ExitInfo {
    /// `SCX_EXIT_UNREG`: taken out by its own process.
    pub(crate) const UNREGISTERED: u32 = 64;
    /// `SCX_ECODE_ACT_RESTART`.
    const ACT_RESTART: i64 = 1 << 48;

    /// Does the kernel want it started anew, because pCPUs came or went?
    pub(crate) fn asks_for_restart(&self) -> bool {
        self.kind < 1024 && self.code & Self::ACT_RESTART != 0
    }
}

/// `struct lease`.
#[repr(C)]
struct Lease {
    renewed: AtomicU64,
    lapsed: AtomicU64,
    lapses: AtomicU64,
}

const _: () = {
    assert!(size_of::<Lease>() == size_of::<types::lease>());
    assert!(offset_of!(Lease, renewed) == offset_of!(types::lease, renewed));
    assert!(offset_of!(Lease, lapsed) == offset_of!(types::lease, lapsed));
    assert!(offset_of!(Lease, lapses) == offset_of!(types::lease, lapses));
};

/// The dispatcher in the kernel.
pub(crate) struct Dispatcher<'obj> {
    skel: CorunSkel<'obj>,
    link: Option<Link>,
    /// `struct lease` in its .bss.
    lease: *const Lease,
    /// `struct knobs` there.
    knobs: *mut types::knobs,
    /// What it knows of pCPUs, there.
    pcpus: *const [types::cpu_ctx; MAX_PCPUS],
    vms: VmTable,
    /// Or why there are none: then tasks are looked up one by one.
    states: Result<TaskStates, String>,
    /// Or why there is none.
    awaited: Result<Awaited, NotSeen>,
}

impl<'obj> Dispatcher<'obj> {
    /// Loads the dispatcher for a host with these pCPUs. It does not schedule yet.
    ///
    /// # Errors
    /// [`LoadError`] with the verifier's words.
    pub(crate) fn load(
        storage: &'obj mut MaybeUninit<OpenObject>,
        params: &DispatcherParams,
        online: &PcpuSet,
        recording: bool,
    ) -> Result<Self, LoadError> {
        log::begin();
        let load = |cause| LoadError::load(cause, log::take(), recording);
        let mut open = skel::open(storage, recording).map_err(load)?;
        let room = if recording { RECORD_ROOM } else { NO_ROOM };
        open.maps.records.set_max_entries(room).map_err(load)?;
        let bss = open.maps.bss_data.as_deref_mut();
        bss.ok_or(LoadError::Object(".bss"))?.knobs =
            knobs::raw(params, online, &machine::sharing(online));
        let mut skel = open.load().map_err(load)?;
        let vms = VmTable::map(skel.maps.vm_ctxs.as_fd()).map_err(LoadError::Map)?;
        let states = TaskStates::load(skel.maps.task_ctxs.as_fd());
        let states = states.map_err(|why| format!("{why:#}"));
        let awaited = Awaited::load(skel.maps.task_ctxs.as_fd());
        let bss = skel.maps.bss_data.as_deref_mut();
        let bss = bss.ok_or(LoadError::Object(".bss"))?;
        let lease = (&raw const bss.lease).cast();
        let knobs = &raw mut bss.knobs;
        let pcpus = &raw const bss.cpu_ctxs;
        Ok(Self {
            skel,
            link: None,
            lease,
            knobs,
            pcpus,
            vms,
            states,
            awaited,
        })
    }

    /// The kernel's error for the program that looks for vCPUs that siblings wait for, if it
    /// refused it.
    pub(crate) fn awaited_refused(&self) -> Option<&libbpf_rs::Error> {
        self.awaited.as_ref().err()?.1.as_ref()
    }

    /// Puts it in charge of all tasks.
    ///
    /// # Errors
    /// [`LoadError::Taken`] when another scheduler is active, else [`LoadError::Attach`].
    pub(crate) fn attach(&mut self) -> Result<(), LoadError> {
        log::begin();
        match self.skel.maps.corun.attach_struct_ops() {
            Ok(link) => self.link = Some(link),
            Err(cause) => {
                // libbpf leaves it there; its own error only offers a kind, and this error has none.
                let errno = io::Error::last_os_error().raw_os_error();
                return Err(LoadError::attach(
                    cause,
                    errno,
                    self.exit_info(),
                    log::take(),
                ));
            }
        }
        Ok(())
    }

    /// Takes it out; returns once the kernel's own scheduler is back in charge, with the reason.
    pub(crate) fn detach(&mut self) -> Option<ExitInfo> {
        drop(self.link.take());
        sched_ext::wait_until_disabled(DETACH_LIMIT);
        self.exit_info()
    }

    /// Why it left, once it has.
    pub(crate) fn exit_info(&self) -> Option<ExitInfo> {
        let bss = self.skel.maps.bss_data.as_deref()?;
        let seen = &raw const bss.exit_seen;
        // SAFETY: `seen` points into the object's mapped .bss, which lives as long as `skel`; the
        // kernel writes `kind` last, so volatile reads of kind first, then of the rest are whole.
        let seen = unsafe {
            if (&raw const (*seen).kind).read_volatile() == 0 {
                return None;
            }
            seen.read_volatile()
        };
        Some(ExitInfo {
            kind: seen.kind,
            code: seen.code,
            reason: text(&seen.reason),
            message: text(&seen.message),
        })
    }

    /// The daemon is there, and answers for its plan (dispatcher/platform/lease.h).
    pub(crate) fn renew_lease(&self) {
        self.lease().renewed.store(clock::now(), Ordering::Release);
    }

    /// Has the dispatcher fallen back to fair order? True once per lapse: the caller then writes the plan anew. The
    /// lease must have been renewed before.
    pub(crate) fn take_lapse(&self) -> bool {
        self.lease().lapsed.swap(0, Ordering::AcqRel) != 0
    }

    /// How often it has.
    pub(crate) fn lapses(&self) -> u64 {
        self.lease().lapses.load(Ordering::Acquire)
    }

    /// How crowded its table of cgroups is (dispatcher/platform/cgroup.h).
    pub(crate) fn cgroups(&self) -> CgroupsNow {
        let bss = self.skel.maps.bss_data.as_deref();
        // SAFETY: points into the object's mapped .bss, which lives as long as `skel`; numbers that the kernel
        // writes one by one.
        let seen = bss.map(|bss| unsafe { (&raw const bss.group_table).read_volatile() });
        CgroupsNow {
            taken: seen.as_ref().map_or(0, |table| table.taken),
            places: MAX_GROUPS as u64,
            crowded: seen.as_ref().map_or(0, |table| table.crowded),
        }
    }

    fn lease(&self) -> &Lease {
        // SAFETY: points to three aligned u64 in the object's mapped .bss, which lives as long as
        // `skel` and is writable; the kernel and this process access them as whole words only.
        unsafe { &*self.lease }
    }

    /// Callbacks that found no room in the records' ring buffer.
    pub(crate) fn records_lost(&self) -> u64 {
        let lost = self
            .skel
            .maps
            .bss_data
            .as_deref()
            .map(|bss| &raw const bss.records_lost);
        // SAFETY: points into the object's mapped .bss, which lives as long as `skel`.
        lost.map_or(0, |lost| unsafe { lost.read_volatile() })
    }

    /// The ring buffer of the recording.
    pub(crate) fn records(&self) -> &libbpf_rs::MapMut<'obj> {
        &self.skel.maps.records
    }

    /// The dispatcher's tables.
    pub(crate) fn tables(&self) -> Tables<'_, 'obj> {
        // SAFETY: points into the object's mapped .bss, which lives as long as `skel`; it is written
        // through this only.
        let live = unsafe { Live::new(self.knobs) };
        // SAFETY: as above; the dispatcher alone writes it.
        let pcpus = unsafe { Pcpus::new(self.pcpus) };
        Tables::new(
            &self.skel.maps,
            &self.vms,
            self.states.as_ref().map_err(String::as_str),
            self.awaited.as_ref().map_err(|(why, _)| *why),
            live,
            pcpus,
        )
    }
}

/// A C string in a fixed array.
fn text(bytes: &[i8]) -> String {
    let bytes: Vec<u8> = bytes.iter().map(|&c| c.cast_unsigned()).collect();
    let end = bytes.iter().position(|&c| c == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_of_a_kernel_that_cannot_record_is_told_so() {
        let said = |log: &str, recording| {
            let cause = libbpf_rs::Error::from_raw_os_error(7);
            LoadError::load(cause, log.into(), recording).to_string()
        };
        let deep = "the call stack of 8 frames is too deep !";
        assert!(said(deep, true).contains("leave --record out"));
        assert!(
            said("combined stack size of 5 calls is 528. Too large", true).contains("--record")
        );
        assert!(said(deep, false).contains(deep));
        assert!(said("R1 invalid mem access", true).contains("R1 invalid"));
    }

    /// The service goes on trying what may pass, and that only.
    #[test]
    fn what_a_kernel_refuses_each_time_is_told_from_what_may_pass() {
        let system = libbpf_rs::Error::from_raw_os_error;
        let load = |errno| LoadError::load(system(errno), String::new(), false);
        for errno in [libc::EACCES, libc::EINVAL, libc::E2BIG] {
            assert!(load(errno).stays(), "{errno}");
        }
        for errno in [libc::ENOMEM, libc::EAGAIN, libc::EMFILE, libc::EBUSY] {
            assert!(!load(errno).stays(), "{errno}");
        }
        let deep = "the call stack of 8 frames is too deep !";
        assert!(LoadError::load(system(libc::E2BIG), deep.into(), true).stays());
    }

    #[test]
    fn a_host_that_another_scheduler_has_by_now_is_told_from_one_that_was_touched() {
        let attach = |errno, exit| {
            let cause = libbpf_rs::Error::from_raw_os_error(errno);
            LoadError::attach(cause, Some(errno), exit, String::new())
        };
        let exit = ExitInfo {
            kind: 1024,
            code: 0,
            reason: "runtime error".into(),
            message: "init".into(),
        };
        assert!(matches!(attach(libc::EBUSY, None), LoadError::Taken { .. }));
        for touched in [attach(libc::EBUSY, Some(exit)), attach(libc::ENOMEM, None)] {
            assert!(matches!(touched, LoadError::Attach { .. }), "{touched}");
        }
    }
}
