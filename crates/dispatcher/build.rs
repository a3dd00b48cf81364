// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the dispatcher natively: with its tap for replays, without for simulations, and without
//! both tap and index to count what decisions cost (dispatcher/platform/native.h).
//!
//! Decisions must not depend on the compiler, so two are used: release builds take the machine's own, debug builds the
//! one that makes the kernel's build, and scripts/determinism.sh compares what they do. `CC` chooses another one.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let dispatcher = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../dispatcher");
    compile(&dispatcher, "corun_tapped", &[]);
    compile(&dispatcher, "corun_untapped", &["UNTAPPED"]);
    compile(&dispatcher, "corun_plain", &["UNTAPPED", "PLAIN"]);
    compile_table_of_cgroups();
    println!("cargo:rerun-if-changed={}", dispatcher.display());
    for name in ["CC", "BPF_CLANG"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    Ok(())
}

fn compile(dispatcher: &Path, library: &str, defines: &[&str]) {
    let mut build = cc::Build::new();
    for name in defines {
        build.define(name, None);
    }
    if env::var_os("CC").is_none() && env::var("PROFILE").is_ok_and(|name| name == "debug") {
        build.compiler(env::var("BPF_CLANG").unwrap_or_else(|_| "clang-19".into()));
    }
    build
        .file(dispatcher.join("corun.bpf.c"))
        .std("gnu11")
        .opt_level(3)
        .warnings(true)
        .extra_warnings(true)
        .flag("-Wno-unused-parameter")
        // The context is found through a thread-local pointer, at almost every step. Code that is linked into a
        // program, rather than loaded later, may read that without a call.
        .flag("-ftls-model=initial-exec")
        .compile(library);
}

/// What only the kernel's build has, for tests (src/cgroup_table.rs).
fn compile_table_of_cgroups() {
    let source = "src/cgroup_table.c";
    println!("cargo:rerun-if-changed={source}");
    cc::Build::new()
        .file(source)
        .std("gnu11")
        .warnings(true)
        .extra_warnings(true)
        .flag("-Wno-unused-parameter")
        .flag("-Wno-unused-function")
        .compile("corun_cgroup_table");
}
