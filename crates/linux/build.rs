// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the dispatcher to BPF, with its tap and without, and generates a skeleton for both; and what
//! is loaded by name.

mod compile_bpf;

use compile_bpf::compiler;
use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../..");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let dispatcher = root.join("dispatcher");
    let source = dispatcher.join("corun.bpf.c");
    let skeleton = out.join("corun.skel.rs");
    compiler(&source, &[])?.build_and_generate(&skeleton)?;
    ask_for_object(&skeleton)?;
    compiler(&source, &["-DUNTAPPED"])?
        .obj(out.join("untapped.bpf.o"))
        .build()?;
    println!("cargo:rerun-if-changed={}", dispatcher.display());
    for name in ["record", "books", "awaited", "cycles", "tags"] {
        compiler(&root.join(format!("crates/linux/bpf/{name}.bpf.c")), &[])?
            .obj(out.join(format!("{name}.bpf.o")))
            .build()?;
    }
    Ok(())
}

/// A skeleton goes with one object, which it embeds. Ours goes with two that differ in their programs
/// only, and is to ask `src/skel.rs` which one to open.
fn ask_for_object(skeleton: &Path) -> Result<(), Box<dyn Error>> {
    let generated = fs::read_to_string(skeleton)?;
    let asking = generated.replace("Builder::new(&DATA)", "Builder::new(object(&DATA))");
    if asking == generated {
        return Err("libbpf-cargo's skeletons embed their object otherwise than this knows".into());
    }
    Ok(fs::write(skeleton, asking)?)
}
