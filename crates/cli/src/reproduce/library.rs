// SPDX-License-Identifier: GPL-2.0-only
//! Claims, experiments and checks as files: those built in, or those of a directory.

use crate::compare::input;
use crate::failure::Invalid;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Everything below `experiments/` that is TOML, by its name there.
const BUILT_IN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/experiments.rs"));

/// Folders deeper than this hold no experiments.
const DEEPEST: u32 = 4;

/// A file.
pub struct File {
    /// For messages.
    pub name: String,
    /// What it says.
    pub text: String,
}

/// All files, by their names below `experiments/`.
pub struct Library(BTreeMap<String, File>);

impl Library {
    /// Those that were built in.
    pub fn built_in() -> Self {
        let file = |(name, text): &(&str, &str)| {
            let file = File {
                name: format!("experiments/{name}"),
                text: (*text).to_string(),
            };
            ((*name).to_string(), file)
        };
        Self(BUILT_IN.iter().map(file).collect())
    }

    /// Those of a test.
    #[cfg(test)]
    pub fn new(files: impl IntoIterator<Item = (String, File)>) -> Self {
        Self(files.into_iter().collect())
    }

    /// Those below a directory.
    ///
    /// # Errors
    /// [`Invalid`] if something cannot be read.
    pub fn of(directory: &Path) -> anyhow::Result<Self> {
        let expected = |why: &str| {
            Invalid::error(format!(
                "--experiments {}: {why}; expected a directory with claims.toml and checks/, such as experiments/ \
                 of corun's source",
                directory.display()
            ))
        };
        let mut files = BTreeMap::new();
        fs::read_dir(directory).map_err(|error| expected(&error.to_string()))?;
        read(directory, "", DEEPEST, &mut files)?;
        if !files.contains_key("claims.toml") {
            return Err(expected("there is no claims.toml"));
        }
        Ok(Self(files))
    }

    /// All of them.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.0.values()
    }

    /// The file of this name.
    pub fn get(&self, name: &str) -> Option<&File> {
        self.0.get(name)
    }

    /// The experiment of this name, such as `balance/table1`.
    pub fn experiment(&self, name: &str) -> Option<&File> {
        self.get(&format!("{name}.toml"))
    }

    /// The names of all experiments.
    pub fn experiments(&self) -> Vec<&str> {
        let names = self.0.keys().filter_map(|name| name.strip_suffix(".toml"));
        names
            .filter(|name| !["claims", "verdicts"].contains(name) && !name.starts_with("checks/"))
            .collect()
    }

    /// The files of checks.
    pub fn checks(&self) -> Vec<&File> {
        let checks = self
            .0
            .iter()
            .filter(|(name, _)| name.starts_with("checks/"));
        checks.map(|(_, file)| file).collect()
    }
}

fn read(
    folder: &Path,
    prefix: &str,
    deeper: u32,
    files: &mut BTreeMap<String, File>,
) -> anyhow::Result<()> {
    let refuse =
        |path: &Path, error: std::io::Error| Invalid::error(format!("{}: {error}", path.display()));
    for entry in fs::read_dir(folder).map_err(|error| refuse(folder, error))? {
        let path = entry.map_err(|error| refuse(folder, error))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{prefix}{name}");
        if path.is_dir() && deeper > 0 {
            read(&path, &format!("{name}/"), deeper - 1, files)?;
        } else if path.is_file() && name.ends_with(".toml") {
            let file = File {
                name: path.display().to_string(),
                text: input::text(&path).map_err(Invalid::error)?,
            };
            files.insert(name, file);
        }
    }
    Ok(())
}
