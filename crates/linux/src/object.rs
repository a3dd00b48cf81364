// SPDX-License-Identifier: GPL-2.0-only
//! Compiled programs, as they are embedded.

/// Aligned as ELF wants it; bytes that are only included may lie anywhere.
#[repr(align(8))]
pub(crate) struct Aligned<T: ?Sized>(pub(crate) T);
