// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the dispatcher natively. `CC` chooses the compiler; decisions do not depend on it.

use std::env;
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let dispatcher = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../dispatcher");
    cc::Build::new()
        .file(dispatcher.join("corun.bpf.c"))
        .std("gnu11")
        .opt_level(2)
        .warnings(true)
        .extra_warnings(true)
        .flag("-Wno-unused-parameter")
        .compile("corun_native");
    println!("cargo:rerun-if-changed={}", dispatcher.display());
    Ok(())
}
