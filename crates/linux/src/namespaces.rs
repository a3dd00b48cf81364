// SPDX-License-Identifier: GPL-2.0-only
//! Does this process name threads as the kernel does?
//!
//! BPF programs see the threads' ids in the first PID namespace, and their start times by the clock of the first time
//! namespace; in other namespaces, such as a container's, both differ. The first namespaces have fixed inodes
//! (include/linux/proc_ns.h, `PROC_PID_INIT_INO` and `PROC_TIME_INIT_INO`).

use std::path::Path;

/// Are numbers of threads the kernel's?
pub(crate) fn numbers_are_the_kernels() -> bool {
    numbers_are_the_kernels_below(Path::new("/"))
}

/// The same on the host whose files lie below `root`.
pub(crate) fn numbers_are_the_kernels_below(root: &Path) -> bool {
    is_first(root, "pid", "pid:[4026531836]")
}

/// Are the threads' start times given by the kernel's clock?
pub(crate) fn starts_are_the_kernels() -> bool {
    is_first(Path::new("/"), "time", "time:[4026531834]")
}

/// If that cannot be found out, the kernel is too old to have another.
fn is_first(root: &Path, kind: &str, first: &str) -> bool {
    let link = std::fs::read_link(root.join(format!("proc/self/ns/{kind}")));
    link.map_or(true, |link| link.as_os_str() == first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_name_is_another_namespace() {
        let is_first = |kind, first| is_first(Path::new("/"), kind, first);
        assert!(!is_first("pid", "pid:[0]"));
        assert!(is_first("no such kind", "of namespace"));
    }
}
