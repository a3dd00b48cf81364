// SPDX-License-Identifier: GPL-2.0-only
//! The plan that the testbed writes into the kernel's tables, bypassing the daemon (`testbed/e2e/host/torture.sh`), is,
//! byte by byte, the plan that it means: a shell has no headers, and this is run rarely.

// Helpers of tests, too, say what they expect by panicking.
#![allow(clippy::unwrap_used, clippy::panic)]

use corun_dispatcher::VmConf;
use corun_model::PcpuSet;
use std::mem::transmute;
use std::process::Command;

/// Of `enum gang_mode` (dispatcher/types.h).
const STRICT: u32 = 2;

/// What the shell function makes of these arguments.
fn written(args: &str) -> Vec<u8> {
    let script = format!(". ../../testbed/e2e/host/torture.sh && conf_bytes {args}");
    let output = Command::new("sh").args(["-euc", &script]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace()
        .map(|byte| byte.parse().unwrap())
        .collect()
}

#[test]
fn the_plan_that_starves_a_vm_is_laid_out_as_the_dispatcher_reads_it() {
    let bytes = written(&format!("70000 10000 {STRICT} 900000000000 2"));
    let bytes: [u8; size_of::<VmConf>()] = bytes
        .try_into()
        .unwrap_or_else(|bytes: Vec<u8>| panic!("{} bytes", bytes.len()));
    // SAFETY: whole numbers without gaps between them: whatever the bytes are, it is a value.
    let conf: VmConf = unsafe { transmute(bytes) };
    let meant = VmConf {
        id: 70_000,
        weight: 10_000,
        gang: STRICT,
        slot: 900_000_000_000,
        pcpus: PcpuSet::first(2),
        ..VmConf::default()
    };
    assert_eq!(conf, meant);
}
