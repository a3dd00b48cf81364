// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the detector's BPF half. It is loaded by name at run time, where the kernel allows.

#[path = "../linux/compile_bpf.rs"]
mod compile_bpf;

use std::env;
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let source = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("bpf/requests.bpf.c");
    let object = PathBuf::from(env::var("OUT_DIR")?).join("requests.bpf.o");
    compile_bpf::compiler(&source, &[])?.obj(object).build()?;
    Ok(())
}
