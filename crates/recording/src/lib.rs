// SPDX-License-Identifier: GPL-2.0-only
//! Reads recordings of real KVM hosts and rebuilds which tasks wanted a pCPU when, and why.
//!
//! A recording is a file that `corun record` wrote ([`native`]), text by Linux' own tools
//! (`/sys/kernel/tracing/trace`, `trace-cmd report`, or `perf script` of `perf sched record`), or a trace of
//! Perfetto; plain or gzip'ed. It becomes a [`Recording`]: the host, its VMs and tasks, each task's *demand*
//! (what it wanted, for a replay under other policies) and what the recorded scheduler gave it (the truth
//! that a replay is checked against).
//!
//! ```no_run
//! let import = corun_recording::read("host.ftrace.gz".as_ref())?;
//! for note in &import.notes {
//!     eprintln!("{note}");
//! }
//! # Ok::<(), corun_recording::ImportError>(())
//! ```
//!
//! The path of an event: `text` (bytes to lines to events), `native` (blocks to events) or `perfetto` → `gather`,
//! `order` (events in order of time) → `rebuild` (events to states, states to demand). Problems on the way are counted
//! and reported as a [`Note`]; a file that cannot be used at all gives an [`ImportError`].

mod error;
mod event;
mod gather;
mod import;
mod model;
mod names;
pub mod native;
mod note;
mod order;
mod perfetto;
mod rebuild;
pub mod scheduler;
mod text;
mod what_if;

pub use error::ImportError;
pub use import::Import;
pub use model::{
    AtEnd, AtStart, Burst, BurstEnd, ExitClass, Fact, Format, Grouping, Host, HostObserved,
    KvmSeen, PcpuObserved, Recording, Role, Task, TaskObserved, Vm, VmThread, WakeCause, Wakers,
};
pub use names::vcpu_index;
pub use note::{Note, Place, Quote};

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Reads a recording from a file.
///
/// # Errors
/// [`ImportError`] if the file cannot be read or is no usable recording.
pub fn read(path: &Path) -> Result<Import, ImportError> {
    let file = path.display().to_string();
    match File::open(path) {
        Ok(source) => import::import(&file, source),
        Err(source) => Err(ImportError::Io { file, source }),
    }
}

/// Reads a recording from any source, to its end, such as a file whose reading is watched; `name` stands for it in
/// messages.
///
/// # Errors
/// [`ImportError`] if it cannot be read or is no usable recording.
pub fn read_from(name: &str, source: impl Read) -> Result<Import, ImportError> {
    import::import(name, source)
}

/// For a text that may be a recording or something else: what follows the lines with which `trace-cmd report` begins.
/// `None` if an event follows, or nothing: then it can only be a recording.
pub fn behind_headers(text: &str) -> Option<&str> {
    text::behind_headers(text)
}

/// Reads a recording from memory; `name` stands for the file in messages.
///
/// # Errors
/// [`ImportError`] if the bytes are no usable recording.
pub fn read_bytes(name: &str, bytes: &[u8]) -> Result<Import, ImportError> {
    import::import(name, bytes)
}
