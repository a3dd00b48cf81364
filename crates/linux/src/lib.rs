// SPDX-License-Identifier: GPL-2.0-only
//! corun on a Linux host.
mod skel {
    #![allow(
        missing_docs,
        clippy::all,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::undocumented_unsafe_blocks
    )]
    include!(concat!(env!("OUT_DIR"), "/corun.skel.rs"));
}
