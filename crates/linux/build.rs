// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the dispatcher to BPF and generates its skeleton, and what `corun record` loads by name.

use libbpf_cargo::SkeletonBuilder;
use std::env;
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../..");
    let dispatcher = root.join("dispatcher");
    let skeleton = PathBuf::from(env::var("OUT_DIR")?).join("corun.skel.rs");
    // The multiarch directory holds asm/types.h, which linux/bpf.h needs.
    let multiarch = format!(
        "/usr/include/{}-linux-gnu",
        env::var("CARGO_CFG_TARGET_ARCH")?
    );
    let compiler = |source: PathBuf| {
        println!("cargo:rerun-if-changed={}", source.display());
        let mut builder = SkeletonBuilder::new();
        builder
            .source(source)
            .clang(env::var("BPF_CLANG").unwrap_or_else(|_| "clang-19".into()))
            .clang_args([
                "-mcpu=v3",
                "-Wall",
                "-Wextra",
                "-Wno-unused-parameter",
                "-I",
                &multiarch,
            ]);
        builder
    };
    compiler(dispatcher.join("corun.bpf.c")).build_and_generate(&skeleton)?;
    println!("cargo:rerun-if-changed={}", dispatcher.display());
    compiler(root.join("crates/linux/bpf/record.bpf.c"))
        .obj(PathBuf::from(env::var("OUT_DIR")?).join("record.bpf.o"))
        .build()?;
    println!("cargo:rerun-if-env-changed=BPF_CLANG");
    Ok(())
}
