// SPDX-License-Identifier: GPL-2.0-only
//! Why there is no VM, or no longer one.

use kvm_bindings::{KVM_INTERNAL_ERROR_EMULATION, kvm_run};
use std::fmt::Write;
use std::io;

/// Why there is no VM, or no longer one.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// No KVM.
    #[error("there is no /dev/kvm: KVM's module is not loaded, or this machine cannot virtualise")]
    Absent,
    /// This user may not open it.
    #[error("/dev/kvm may not be opened: it takes root, or the group that the file belongs to")]
    Forbidden,
    /// Another error in opening it.
    #[error("/dev/kvm cannot be opened: {0}")]
    Unopened(#[source] io::Error),
    /// A call to KVM failed.
    #[error("KVM {what}: {error}")]
    Refused {
        /// What failed.
        what: &'static str,
        /// What KVM says.
        #[source]
        error: io::Error,
    },
    /// The guest's memory cannot be mapped.
    #[error("{} MiB for a guest cannot be mapped: {error}", bytes >> 20)]
    Memory {
        /// How much.
        bytes: usize,
        /// What the kernel says.
        #[source]
        error: io::Error,
    },
    /// A thread cannot be started or set up.
    #[error("the thread of vCPU {vcpu} cannot be started or set up: {error}")]
    Thread {
        /// The vCPU.
        vcpu: usize,
        /// What the kernel says.
        #[source]
        error: io::Error,
    },
    /// `KVM_EXIT_FAIL_ENTRY`.
    #[error("vCPU {vcpu}: the processor refuses to enter the guest, reason {reason:#x}")]
    NotEntered {
        /// The vCPU.
        vcpu: usize,
        /// The processor's number for the reason.
        reason: u64,
    },
    /// `KVM_EXIT_INTERNAL_ERROR`.
    #[error("vCPU {vcpu}: KVM cannot go on, {what}")]
    Internal {
        /// The vCPU.
        vcpu: usize,
        /// KVM's number for the reason, and the instruction if there is one.
        what: String,
    },
    /// The guest crashed, or did what no guest here does.
    #[error("vCPU {vcpu}: the guest stopped: {what}")]
    Stopped {
        /// The vCPU.
        vcpu: usize,
        /// How, and where.
        what: String,
    },
    /// The guest makes no progress.
    #[error("the guest does not get on: KVM runs it, but nothing happens")]
    Stuck,
}

impl MachineError {
    /// Reports a failure to open /dev/kvm.
    pub(crate) fn unopened(error: kvm_ioctls::Error) -> Self {
        match error.errno() {
            // ENODEV: the file exists, but the processor lacks what KVM needs.
            libc::ENOENT | libc::ENODEV | libc::ENXIO => Self::Absent,
            libc::EACCES | libc::EPERM => Self::Forbidden,
            _ => Self::Unopened(error.into()),
        }
    }

    /// Reports the failure of any other call.
    pub(crate) fn refused(what: &'static str) -> impl FnOnce(kvm_ioctls::Error) -> Self {
        move |error| Self::Refused {
            what,
            error: error.into(),
        }
    }

    /// Reports an internal error, as KVM left it in `run`.
    pub(crate) fn internal(vcpu: usize, run: &kvm_run) -> Self {
        // SAFETY: the last exit was an internal error, for which KVM fills this part of the union; it holds nothing but
        // numbers anyway.
        let internal = unsafe { run.__bindgen_anon_1.internal };
        Self::Internal {
            vcpu,
            what: internal_error(internal.suberror, internal.ndata, &internal.data),
        }
    }
}

/// An internal error in words: its number, and the bytes of the instruction that could not be emulated, if KVM gives
/// them (`KVM_INTERNAL_ERROR_EMULATION_FLAG_INSTRUCTION_BYTES`: a byte says how many, and up to 15 follow).
fn internal_error(suberror: u32, ndata: u32, data: &[u64]) -> String {
    const INSTRUCTION_BYTES: u64 = 1;
    let mut text = format!("internal error {suberror}");
    if suberror != KVM_INTERNAL_ERROR_EMULATION {
        return text;
    }
    text += ": it cannot emulate an instruction";
    let told = ndata >= 3
        && data
            .first()
            .is_some_and(|flags| flags & INSTRUCTION_BYTES != 0);
    let bytes: Vec<u8> = data
        .iter()
        .skip(1)
        .flat_map(|word| word.to_le_bytes())
        .collect();
    if let (true, Some((count, bytes))) = (told, bytes.split_first()) {
        text += " of the bytes";
        for byte in bytes.iter().take(usize::from(*count).min(15)) {
            let _ = write!(text, " {byte:02x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_that_cannot_be_emulated_is_shown() {
        let data = [1, u64::from_le_bytes([2, 0xcd, 0x80, 9, 9, 9, 9, 9]), 0];
        let said = internal_error(1, 4, &data);
        assert!(said.ends_with("of the bytes cd 80"), "{said}");
        let untold = internal_error(1, 0, &data);
        assert!(untold.ends_with("an instruction"), "{untold}");
        assert_eq!(internal_error(3, 4, &data), "internal error 3");
    }

    #[test]
    fn what_keeps_kvm_from_being_opened() {
        let of = |errno| MachineError::unopened(kvm_ioctls::Error::new(errno)).to_string();
        assert!(of(libc::ENOENT).contains("there is no /dev/kvm"));
        assert!(of(libc::EACCES).contains("may not be opened"));
        assert!(of(libc::EMFILE).contains("cannot be opened: "));
    }
}
