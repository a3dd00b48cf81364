// SPDX-License-Identifier: GPL-2.0-only
//! What the tests of the `corun` command share: they run it as users do and look at its output.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

/// Runs `corun` in a directory; what it prints may be 80 columns wide.
pub fn corun_in(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corun"));
    command.env("COLUMNS", "80").current_dir(dir).args(args);
    command.output().unwrap()
}

/// Runs `corun` where the tests are run.
pub fn corun(args: &[&str]) -> Output {
    corun_in(Path::new("."), args)
}

/// Standard output of a command that succeeded.
#[track_caller]
pub fn printed(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The same, read as JSON.
#[track_caller]
pub fn json(output: Output) -> Value {
    serde_json::from_str(&printed(output)).unwrap()
}

/// Standard error of a command that ended with `code`, and printed nothing else.
#[track_caller]
pub fn failed(output: Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Standard error of a command that found something wrong with its input.
#[track_caller]
pub fn refused(output: Output) -> String {
    failed(output, 2)
}

/// All that a command left: its code, standard output, standard error.
pub fn left(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    (output.status.code(), stdout, stderr)
}

/// A file or folder of the repository.
pub fn in_tree(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(name)
}

/// Does the value match the schema in `docs/schema` for this command?
#[track_caller]
pub fn fits_schema(command: &str, json: &Value) {
    let file = in_tree(&format!("docs/schema/{command}.schema.json"));
    let schema = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    if let Err(error) = jsonschema::validate(&schema, json) {
        assert_eq!(error.to_string(), "", "the schema");
    }
}

/// Is a committed file, which `cargo test -p corun --test command TEST` writes, up to date?
#[track_caller]
pub fn is_fresh(name: &str, written: &str, test: &str) {
    let file = in_tree(name);
    if std::env::var_os("CORUN_UPDATE").is_some() {
        std::fs::write(&file, written).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        committed == written,
        "{name} is not what the code makes of it: CORUN_UPDATE=1 cargo test -p corun --test command \
         {test} writes it anew"
    );
}

/// The same for one table of a page: what follows its `head` (titles, rule) up to an empty line.
#[track_caller]
pub fn table_is_fresh(name: &str, head: &str, rows: &str, test: &str) {
    // Tests run side by side, and a page may have tables of several of them.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let page = std::fs::read_to_string(in_tree(name)).unwrap();
    let (before, rest) = page.split_once(head).unwrap();
    let (_, after) = rest.split_once("\n\n").unwrap();
    is_fresh(name, &format!("{before}{head}{rows}\n{after}"), test);
}

/// A directory of a test's own.
pub struct Place(PathBuf);

impl Place {
    /// Names must differ between all tests, as they run side by side.
    pub fn new(test: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    /// A directory with one file in it.
    pub fn with(test: &str, file: &str, content: &str) -> Self {
        let place = Self::new(test);
        place.write(file, content);
        place
    }

    pub fn dir(&self) -> &str {
        self.0.to_str().unwrap()
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    /// Writes a file, and the directories above it.
    pub fn write(&self, file: &str, content: impl AsRef<[u8]>) {
        let path = self.path(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.path(file)).unwrap()
    }

    pub fn corun(&self, args: &[&str]) -> Output {
        corun_in(&self.0, args)
    }

    #[track_caller]
    pub fn prints(&self, args: &[&str]) -> String {
        printed(self.corun(args))
    }

    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Value {
        json(self.corun(args))
    }

    #[track_caller]
    pub fn refused(&self, args: &[&str]) -> String {
        refused(self.corun(args))
    }
}
