// SPDX-License-Identifier: GPL-2.0-only
//! Small dense numbers for the things a host consists of.
//!
//! Every id is an index into a table of its owner, so that look-ups in the simulator's hot path
//! are array accesses.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $letters:literal) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The id as an index into a table.
            #[inline]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl From<usize> for $name {
            /// Tables here never outgrow `u32`; a larger index saturates.
            fn from(index: usize) -> Self {
                Self(u32::try_from(index).unwrap_or(u32::MAX))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letters, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A physical CPU: one hardware thread.
    PcpuId, "pcpu"
);
id!(
    /// A virtual machine.
    VmId, "vm"
);
id!(
    /// Something the host schedules: a vCPU thread or any other host task.
    TaskId, "task"
);
