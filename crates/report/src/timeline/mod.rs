// SPDX-License-Identifier: GPL-2.0-only
//! A run as a timeline for [Perfetto](https://ui.perfetto.dev): tracks with nested slices, instants
//! and counters.
//!
//! Problem: a run of minutes has tens of millions of events, and whoever looks at it wants to see some milliseconds. So
//! a [`Timeline`] is written as it happens, through a buffer, and its memory is bounded by the numbers of tracks, of
//! names and of slices open at a time, not by the length of the run; and a [`Window`] leaves out what is before and
//! after, except for what is open when it begins.
//!
//! The file is a sequence of Perfetto's `TracePacket`s (`protos/perfetto/trace`), all of one packet
//! sequence. Names are interned and tracks numbered in the order in which they are first used: an
//! event takes some 20 bytes. Times are ns since the run began, on the trace's own clock. Same run,
//! same bytes.
//!
//! What tracks mean is the caller's business; [`read`] reads a timeline back for checks.

mod packets;
mod read;
mod writer;

pub use read::{Slice, Timelines, Track, Unreadable, read};
pub use writer::{Look, NameId, Timeline, TrackId, Window};
