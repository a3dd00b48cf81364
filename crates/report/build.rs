// SPDX-License-Identifier: GPL-2.0-only
//! Puts uPlot into the crate, for reports. `page/package.json` declares it, `page/package-lock.json`
//! pins it with its checksum, and npm has brought it (`scripts/install.sh build`).

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let package = Path::new("page/node_modules/uplot");
    let out = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("no OUT_DIR"))?;
    let out = Path::new(&out);
    fs::create_dir_all(out.join("dist"))?;
    for name in ["LICENSE", "dist/uPlot.iife.min.js", "dist/uPlot.min.css"] {
        let file = package.join(name);
        println!("cargo::rerun-if-changed={}", file.display());
        let copied = fs::copy(&file, out.join(name));
        copied.map_err(|error| {
            let file = file.display();
            io::Error::other(format!(
                "crates/report/{file}: {error}; `scripts/install.sh build` brings what is missing"
            ))
        })?;
    }
    Ok(())
}
