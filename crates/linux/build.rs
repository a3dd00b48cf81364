// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the dispatcher to BPF and generates its skeleton, and what `corun record` loads by name.

mod compile_bpf;

use compile_bpf::compiler;
use std::env;
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../..");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let dispatcher = root.join("dispatcher");
    compiler(&dispatcher.join("corun.bpf.c"))?.build_and_generate(out.join("corun.skel.rs"))?;
    println!("cargo:rerun-if-changed={}", dispatcher.display());
    compiler(&root.join("crates/linux/bpf/record.bpf.c"))?
        .obj(out.join("record.bpf.o"))
        .build()?;
    Ok(())
}
