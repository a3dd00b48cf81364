// SPDX-License-Identifier: GPL-2.0-only
//! How C becomes BPF: for the build scripts of this crate and of crates/guest.

use libbpf_cargo::SkeletonBuilder;
use std::env::{self, VarError};
use std::path::Path;

/// The compiler call for `source` with these `options`; tells cargo what the result depends on.
pub fn compiler(source: &Path, options: &[&str]) -> Result<SkeletonBuilder, VarError> {
    println!("cargo:rerun-if-changed={}", source.display());
    println!("cargo:rerun-if-env-changed=BPF_CLANG");
    // The multiarch directory holds asm/types.h, which linux/bpf.h needs.
    let multiarch = format!(
        "/usr/include/{}-linux-gnu",
        env::var("CARGO_CFG_TARGET_ARCH")?
    );
    let common = [
        "-mcpu=v3",
        "-Wall",
        "-Wextra",
        "-Wno-unused-parameter",
        "-I",
        &multiarch,
    ];
    let mut builder = SkeletonBuilder::new();
    builder
        .source(source)
        .clang(env::var("BPF_CLANG").unwrap_or_else(|_| "clang-19".into()))
        .clang_args(common.iter().chain(options));
    Ok(builder)
}
