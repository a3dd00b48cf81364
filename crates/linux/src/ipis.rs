// SPDX-License-Identifier: GPL-2.0-only
//! Can the host see which vCPU wakes which?
//!
//! A vCPU that halts is woken by an IPI of a sibling, mostly. As a rule sending an IPI causes an
//! exit: KVM wakes the target in the sender's thread, and the task that runs where the wake-up
//! comes from is the sender. With Intel's IPI virtualisation there is no exit. The hardware posts
//! the IPI, and a halted target is woken by an interrupt (KVM's `pi_wakeup_handler()`) on whichever
//! pCPU it halted on: who sent it is lost.
//!
//! AMD's AVIC does not hide it. It delivers IPIs to vCPUs that run; an IPI to a halted vCPU makes
//! the sender exit (`AVIC_IPI_FAILURE_TARGET_NOT_RUNNING`), which wakes the vCPU as usual. So
//! `avic` of `kvm_amd`, and its `enable_ipiv`, do not matter here.

use std::fs;
use std::path::Path;

/// KVM clears it when it is loaded if the CPU cannot do it.
const POSTED: &str = "sys/module/kvm_intel/parameters/enable_ipiv";

/// Does the hardware below `root` hide which vCPU wakes which? Without KVM there are no vCPUs to
/// wake.
pub(crate) fn hide_wakers(root: &Path) -> bool {
    let text = fs::read_to_string(root.join(POSTED)).unwrap_or_default();
    matches!(text.trim(), "Y" | "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host whose KVM has these parameters.
    fn host(parameters: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, value) in parameters {
            let file = root.path().join("sys/module").join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, format!("{value}\n")).unwrap();
        }
        root
    }

    #[test]
    fn intels_ipi_virtualisation_hides_wakers_and_nothing_else_does() {
        let ipiv = "kvm_intel/parameters/enable_ipiv";
        for (parameters, hidden) in [
            (vec![], false),
            (vec![(ipiv, "Y")], true),
            (vec![(ipiv, "1")], true),
            (vec![(ipiv, "N")], false),
            (vec![("kvm_intel/parameters/enable_apicv", "Y")], false),
            (
                vec![
                    ("kvm_amd/parameters/avic", "Y"),
                    ("kvm_amd/parameters/enable_ipiv", "Y"),
                ],
                false,
            ),
        ] {
            let root = host(&parameters);
            assert_eq!(hide_wakers(root.path()), hidden, "{parameters:?}");
        }
    }
}
