// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the detector's BPF half. It is loaded by name at run time, where the kernel allows.

use libbpf_cargo::SkeletonBuilder;
use std::env;
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let source = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("bpf/requests.bpf.c");
    let object = PathBuf::from(env::var("OUT_DIR")?).join("requests.bpf.o");
    // The multiarch directory holds asm/types.h, which linux/bpf.h needs.
    let multiarch = format!(
        "/usr/include/{}-linux-gnu",
        env::var("CARGO_CFG_TARGET_ARCH")?
    );
    SkeletonBuilder::new()
        .source(&source)
        .obj(object)
        .clang(env::var("BPF_CLANG").unwrap_or_else(|_| "clang-19".into()))
        .clang_args([
            "-mcpu=v3",
            "-Wall",
            "-Wextra",
            "-Wno-unused-parameter",
            "-I",
            &multiarch,
        ])
        .build()?;
    println!("cargo:rerun-if-changed={}", source.display());
    println!("cargo:rerun-if-env-changed=BPF_CLANG");
    Ok(())
}
