// SPDX-License-Identifier: GPL-2.0-only
//! The C functions of the dispatcher's three native builds ([`Build`](super::Build)), a table for each.
//!
//! The builds are one source, compiled with other settings and with another prefix before each name
//! (`build.rs`), so that one process can have all of them.

use super::context::Context;
use crate::layout::TaskStruct;
use std::ffi::c_void;

/// The dispatcher's callbacks as one of its builds has them.
pub(super) struct Callbacks {
    pub(super) enter: unsafe extern "C" fn(*mut Context),
    pub(super) select_cpu: unsafe extern "C" fn(*mut TaskStruct, i32, u64) -> i32,
    pub(super) enqueue: unsafe extern "C" fn(*mut TaskStruct, u64),
    pub(super) dispatch: unsafe extern "C" fn(i32, *mut TaskStruct),
    pub(super) running: unsafe extern "C" fn(*mut TaskStruct),
    pub(super) stopping: unsafe extern "C" fn(*mut TaskStruct, bool),
    pub(super) yields: unsafe extern "C" fn(*mut TaskStruct, *mut TaskStruct) -> bool,
    pub(super) init_task: unsafe extern "C" fn(*mut TaskStruct, *mut c_void) -> i32,
    pub(super) exit_task: unsafe extern "C" fn(*mut TaskStruct, *mut c_void),
    pub(super) timer: unsafe extern "C" fn(i32),
    pub(super) release: unsafe extern "C" fn(i32),
    pub(super) flush_ipi: unsafe extern "C" fn(*mut TaskStruct),
}

/// Declares a build's callbacks, which all bear the same prefix.
macro_rules! callbacks {
    ($table:ident: $enter:ident, $select_cpu:ident, $enqueue:ident, $dispatch:ident, $running:ident,
     $stopping:ident, $yields:ident, $init_task:ident, $exit_task:ident, $timer:ident,
     $release:ident, $flush_ipi:ident) => {
        // SAFETY: the signatures are those of dispatcher/corun.bpf.c in its native builds.
        unsafe extern "C" {
            fn $enter(context: *mut Context);
            fn $select_cpu(p: *mut TaskStruct, prev_cpu: i32, wake_flags: u64) -> i32;
            fn $enqueue(p: *mut TaskStruct, enq_flags: u64);
            fn $dispatch(cpu: i32, prev: *mut TaskStruct);
            fn $running(p: *mut TaskStruct);
            fn $stopping(p: *mut TaskStruct, runnable: bool);
            fn $yields(p: *mut TaskStruct, to: *mut TaskStruct) -> bool;
            fn $init_task(p: *mut TaskStruct, args: *mut c_void) -> i32;
            fn $exit_task(p: *mut TaskStruct, args: *mut c_void);
            fn $timer(cpu: i32);
            fn $release(cpu: i32);
            fn $flush_ipi(p: *mut TaskStruct);
        }

        pub(super) const $table: Callbacks = Callbacks {
            enter: $enter,
            select_cpu: $select_cpu,
            enqueue: $enqueue,
            dispatch: $dispatch,
            running: $running,
            stopping: $stopping,
            yields: $yields,
            init_task: $init_task,
            exit_task: $exit_task,
            timer: $timer,
            release: $release,
            flush_ipi: $flush_ipi,
        };
    };
}

callbacks!(TAPPED: corun_enter, corun_select_cpu, corun_enqueue, corun_dispatch, corun_running,
    corun_stopping, corun_yield, corun_init_task, corun_exit_task, corun_timer,
    corun_release, corun_flush_ipi);
callbacks!(UNTAPPED: untapped_corun_enter, untapped_corun_select_cpu, untapped_corun_enqueue,
    untapped_corun_dispatch, untapped_corun_running, untapped_corun_stopping,
    untapped_corun_yield, untapped_corun_init_task, untapped_corun_exit_task,
    untapped_corun_timer, untapped_corun_release, untapped_corun_flush_ipi);
callbacks!(PLAIN: plain_corun_enter, plain_corun_select_cpu, plain_corun_enqueue,
    plain_corun_dispatch, plain_corun_running, plain_corun_stopping, plain_corun_yield,
    plain_corun_init_task, plain_corun_exit_task, plain_corun_timer, plain_corun_release,
    plain_corun_flush_ipi);
