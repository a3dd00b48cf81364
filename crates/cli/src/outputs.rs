// SPDX-License-Identifier: GPL-2.0-only
//! Files that a command is to write, checked before it does its work.
//!
//! Problem: runs take minutes, and that a file's name is mistyped should not show at their end only; worse, a
//! file that is read, or written already, would be lost.
//! How: none may be a file that the command reads, nor one that it writes under another option; and each
//! is opened for writing, which leaves what is there as it was.

use crate::failure::Invalid;
use crate::{interrupt, output};
use anyhow::Context;
use corun_system::files;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// The only option whose file may be the standard output: tables are not printed then.
const CSV: &str = "--csv";

/// Does the name stand for the standard output?
fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Are comma-separated values printed, so that nothing else is?
///
/// # Errors
/// [`Invalid`] if JSON is printed, too.
pub fn csv_is_printed(file: Option<&PathBuf>, json: bool) -> anyhow::Result<bool> {
    match file.is_some_and(|file| is_stdout(file)) {
        true if json => Err(Invalid::error(format!(
            "{CSV} -: --json has the standard output already; expected a file"
        ))),
        printed => Ok(printed),
    }
}

/// What a command is to write.
#[derive(Debug, Default)]
pub struct Outputs(Vec<Output>);

#[derive(Debug)]
struct Output {
    option: &'static str,
    path: PathBuf,
    is: Option<Identity>,
}

/// Which file it is, whatever its name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Identity {
    /// Device and inode.
    There(u64, u64),
    /// Not there yet: its name in a directory without links.
    ToCome(PathBuf),
}

impl Identity {
    /// `None` if nothing is lost by writing there (terminals, pipes, `/dev/null`), or if that cannot be found out.
    fn of(path: &Path) -> Option<Self> {
        match fs::metadata(path) {
            Ok(found) if found.is_file() => Some(Self::There(found.dev(), found.ino())),
            Ok(_) => None,
            Err(_) => {
                let folder = fs::canonicalize(folder(path)).ok()?;
                Some(Self::ToCome(folder.join(path.file_name()?)))
            }
        }
    }
}

fn folder(path: &Path) -> &Path {
    let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

impl Outputs {
    /// Takes options, each with the file that it names, if it is given.
    ///
    /// # Errors
    /// [`Invalid`] if two name the same file, or one is `-`.
    pub fn of<const N: usize>(said: [(&'static str, Option<&PathBuf>); N]) -> anyhow::Result<Self> {
        let mut all: Vec<Output> = Vec::new();
        for (option, path) in said {
            let Some(path) = path else { continue };
            if option == CSV && is_stdout(path) {
                continue;
            }
            refuse_dash(option, path)?;
            let is = Identity::of(path);
            if let Some(other) = all.iter().find(|other| is.is_some() && other.is == is) {
                return Err(Invalid::error(format!(
                    "{option} {}: {} {} is the same file; expected another one for each",
                    path.display(),
                    other.option,
                    other.path.display(),
                )));
            }
            let path = path.clone();
            all.push(Output { option, path, is });
        }
        Ok(Self(all))
    }

    /// Makes sure that none of them is `read`, a file that the command reads.
    ///
    /// # Errors
    /// [`Invalid`] if one is.
    pub fn spare(&self, read: &Path) -> anyhow::Result<()> {
        let is = Identity::of(read);
        match self.0.iter().find(|output| is.is_some() && output.is == is) {
            Some(Output { option, path, .. }) => Err(Invalid::error(format!(
                "{option} {}: this would overwrite {}, which is read; expected another file",
                path.display(),
                read.display(),
            ))),
            None => Ok(()),
        }
    }

    /// Makes sure that each can be written, as far as that can be known beforehand, and that nothing is lost except
    /// what corun wrote.
    ///
    /// # Errors
    /// If one cannot; [`Invalid`] if a file holds something else.
    pub fn try_out(&self) -> anyhow::Result<()> {
        for Output { option, path, .. } in &self.0 {
            spare_unlike(option, path)?;
            try_out(path).with_context(|| format!("{option}: cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

/// Makes sure that it is not `-`, by which many mean the standard output: nobody wants a file of this name.
///
/// # Errors
/// [`Invalid`] if it is.
pub fn refuse_dash(option: &str, path: &Path) -> anyhow::Result<()> {
    match is_stdout(path) {
        true => Err(Invalid::error(format!(
            "{option} -: expected a file; the standard output cannot be written to by this name"
        ))),
        false => Ok(()),
    }
}

/// Makes sure that nothing is lost except what an earlier `writer` wrote, which begins with `beginning`: for files that
/// are replaced, or removed, again and again by commands that mostly run as root.
///
/// # Errors
/// [`Invalid`] if the file is there and holds something else; anything else if it is no file, or cannot be read.
pub fn spare_foreign(
    option: &str,
    file: &Path,
    writer: &str,
    beginning: &str,
) -> anyhow::Result<()> {
    refuse_dash(option, file)?;
    let named = || format!("{option} {}", file.display());
    files::spare_others(file).with_context(named)?;
    let mut found = Vec::new();
    match File::open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened.and_then(|file| file.take(beginning.len() as u64).read_to_end(&mut found)),
    }
    .with_context(|| format!("{}: cannot look at it", named()))?;
    match found.is_empty() || found == beginning.as_bytes() {
        true => Ok(()),
        false => Err(Invalid::error(format!(
            "{}: this file is there and holds something else; expected a new file, an empty one, or one that \
             {writer} wrote (it begins with {beginning:?})",
            named()
        ))),
    }
}

/// What files are, and how to recognise them by their beginning.
type Kind = (&'static str, fn(&[u8]) -> bool);

/// The kind of an option's files; `None`: any kind.
fn kind(option: &str) -> Option<Kind> {
    Some(match option {
        "--report" => ("a report", |found| {
            found.starts_with(
                b"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">",
            )
        }),
        CSV => ("comma-separated values", |found| {
            let columns = found.strip_prefix(b"parameter,").unwrap_or(found);
            columns.starts_with(b"case,policy,seed,of,name,measure,value")
        }),
        "--svg" => ("a picture", |found| found.starts_with(b"<svg xmlns=")),
        // People who edit it may have changed what follows.
        "--output" => ("a calibration", |found| {
            found.starts_with(b"# Calibration of ") || found.starts_with(b"# Symbiosis of ")
        }),
        // A packet, how long it is, and which sequence it is of.
        "--trace" => ("a trace", |found| {
            let sequence = found.windows(2).take(4).any(|two| two == [0x50, 1]);
            found.starts_with(b"\n") && sequence
        }),
        "--events" => ("events", |found| {
            let mut lines = found.split(|byte| *byte == b'\n');
            let first = lines.next().unwrap_or_default();
            first.starts_with(b"# host: ")
                && String::from_utf8_lossy(first).contains("kernel simulated")
        }),
        _ => return None,
    })
}

/// Makes sure that nothing is lost except what an earlier run wrote for this option.
///
/// # Errors
/// [`Invalid`] if the file is there and holds something else.
fn spare_unlike(option: &str, file: &Path) -> anyhow::Result<()> {
    let Some((what, is_one)) = kind(option) else {
        return Ok(());
    };
    // Pipes and terminals lose nothing; that a file cannot be read is told when it is written.
    if !fs::metadata(file).is_ok_and(|found| found.is_file()) {
        return Ok(());
    }
    let mut found = Vec::new();
    if let Ok(opened) = File::open(file) {
        let _ = opened.take(LONGEST_BEGINNING).read_to_end(&mut found);
    }
    match found.is_empty() || is_one(&found) {
        true => Ok(()),
        false => Err(Invalid::error(format!(
            "{option} {}: this file is there and holds something else; expected a new file, an empty one, or {what} \
             that corun wrote",
            file.display()
        ))),
    }
}

/// More than the beginning of any file that corun recognises by it.
const LONGEST_BEGINNING: u64 = 256;

/// Opens a file for writing and leaves everything as it was.
fn try_out(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        // Opening a pipe waits for its reader, and closing it tells the reader that this was all.
        Ok(found) if !found.is_file() && !found.is_dir() => Ok(()),
        Ok(_) => OpenOptions::new().write(true).open(path).map(drop),
        Err(_) => {
            let mut options = OpenOptions::new();
            options
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)?;
            // If the name is a link to a missing file, the link stays.
            fs::remove_file(fs::canonicalize(path)?)
        }
    }
}

/// Writes a file: whole, if that is possible, so that the old one is not lost if there is no room for the new one, and
/// if two commands write at the same time, one of the files is complete.
///
/// # Errors
/// If it cannot be written.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let written = match replacement(path) {
        Some((new, place)) => replace(new, &place, text),
        None => fs::write(path, text),
    };
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// A file that may take the place of another, and that place. `None` for pipes, terminals and the like, for
/// files of somebody else, and in folders where none can be made: these are written into.
fn replacement(path: &Path) -> Option<(NamedTempFile, PathBuf)> {
    // A link stays a link.
    let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let old = fs::metadata(&place).ok();
    let mode = match &old {
        Some(old) if !old.is_file() => return None,
        Some(old) => old.permissions(),
        None => Permissions::from_mode(0o666),
    };
    let mut new = tempfile::Builder::new();
    let new = new.prefix(".corun-").permissions(mode.clone());
    let new = new.tempfile_in(folder(&place)).ok()?;
    if let Some(old) = old {
        let is = new.as_file().metadata().ok()?;
        if (is.uid(), is.gid()) != (old.uid(), old.gid()) {
            return None;
        }
        // Whatever the umask is now.
        new.as_file().set_permissions(mode).ok()?;
    }
    Some((new, place))
}

/// A file that is written while a command does its work, under a name of its own until it is whole: nobody mistakes
/// half of it for all of it, and the old one stays if the work fails or is interrupted.
#[derive(Debug)]
pub struct Unfinished(Option<(NamedTempFile, PathBuf)>);

impl Unfinished {
    /// Begins it; pipes and the like are written into.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn begin(path: &Path) -> io::Result<(Self, File)> {
        // Before there is something to be removed.
        interrupt::tidy_up()?;
        match replacement(path) {
            Some((new, place)) => {
                interrupt::leave_nothing_of(new.path(), path);
                let to = new.reopen();
                let unfinished = Self(Some((new, place)));
                Ok((unfinished, to?))
            }
            None => Ok((Self(None), File::create(path)?)),
        }
    }

    /// The file is whole: gives it its name.
    ///
    /// # Errors
    /// If it cannot be given its name.
    pub fn finish(mut self) -> io::Result<()> {
        let Some((new, place)) = self.0.take() else {
            return Ok(());
        };
        let temporary = new.path().to_path_buf();
        interrupt::unless_interrupted(&temporary, || {
            new.persist(place).map(drop).map_err(|lost| lost.error)
        })
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some((new, _)) = self.0.take() {
            let temporary = new.path().to_path_buf();
            interrupt::unless_interrupted(&temporary, || drop(new));
        }
    }
}

fn replace(mut new: NamedTempFile, place: &Path, text: &str) -> io::Result<()> {
    new.write_all(text.as_bytes())?;
    new.persist(place).map(drop).map_err(|lost| lost.error)
}

/// Writes the report, if one is wanted, and says so unless `quiet`.
///
/// # Errors
/// If it cannot be made or written. Results are there all the same: callers print them first.
pub fn report(
    file: Option<&PathBuf>,
    quiet: bool,
    page: impl FnOnce() -> anyhow::Result<String>,
) -> anyhow::Result<()> {
    named("report", file, quiet, page)
}

/// Writes comma-separated values, or prints them, if they are wanted, and says so unless `quiet`.
///
/// # Errors
/// As [`report`].
pub fn csv(
    file: Option<&PathBuf>,
    quiet: bool,
    table: impl FnOnce() -> anyhow::Result<String>,
) -> anyhow::Result<()> {
    match file.filter(|file| is_stdout(file)) {
        Some(_) => output::print(&table()?),
        None => named("csv", file, quiet, table),
    }
}

fn named(
    what: &str,
    file: Option<&PathBuf>,
    quiet: bool,
    text: impl FnOnce() -> anyhow::Result<String>,
) -> anyhow::Result<()> {
    let Some(file) = file else { return Ok(()) };
    let text = text().with_context(|| format!("the {what}"))?;
    write(file, &text).with_context(|| format!("--{what}"))?;
    if !quiet {
        output::note(&format!("{what}: {}", file.display()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn refused(result: anyhow::Result<impl Sized>) -> String {
        let error = result.err().unwrap();
        assert!(error.is::<Invalid>(), "{error:#}");
        error.to_string()
    }

    #[test]
    fn what_is_read_or_named_twice_is_not_written() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("in"), "dear").unwrap();
        symlink(at("in"), at("link")).unwrap();
        fs::hard_link(at("in"), at("hard")).unwrap();
        for name in ["in", "link", "hard", "./in"] {
            let path = at(name);
            let outputs = Outputs::of([("--report", Some(&path))]).unwrap();
            assert!(refused(outputs.spare(&at("in"))).contains("--report"));
        }
        let twice = Outputs::of([("--report", Some(&at("new"))), ("-o", Some(&at("./new")))]);
        assert!(refused(twice).contains("-o"));
        let twice = Outputs::of([("--report", Some(&at("in"))), ("-o", Some(&at("link")))]);
        assert!(refused(twice).contains("same file"));
        // People who want none of it may say so as often as they like.
        let null = PathBuf::from("/dev/null");
        let outputs = Outputs::of([("--report", Some(&null)), ("-o", Some(&null))]).unwrap();
        outputs.spare(&null).unwrap();
    }

    #[test]
    fn the_standard_output_is_for_one() {
        let stdout = PathBuf::from("-");
        let outputs = Outputs::of([("--csv", Some(&stdout))]).unwrap();
        outputs.try_out().unwrap();
        let report = Outputs::of([("--report", Some(&stdout))]);
        assert!(refused(report).contains("--report -: expected a file"));
        assert!(csv_is_printed(Some(&stdout), false).unwrap());
        assert!(!csv_is_printed(Some(&PathBuf::from("./-")), true).unwrap());
        assert!(refused(csv_is_printed(Some(&stdout), true)).contains("--json has"));
    }

    #[test]
    fn trying_leaves_everything_as_it_was() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("old"), "# Calibration of dear").unwrap();
        symlink(at("nothing"), at("dangling")).unwrap();
        for name in ["old", "new", "dangling"] {
            let path = at(name);
            Outputs::of([("-o", Some(&path))])
                .unwrap()
                .try_out()
                .unwrap();
        }
        let old = fs::read_to_string(at("old")).unwrap();
        assert_eq!(old, "# Calibration of dear");
        assert!(!at("new").exists() && !at("nothing").exists());
        assert!(fs::symlink_metadata(at("dangling")).is_ok());
        for path in [at("no/such"), place.path().to_path_buf()] {
            let outputs = Outputs::of([("-o", Some(&path))]).unwrap();
            let said = format!("{:#}", outputs.try_out().unwrap_err());
            assert!(said.starts_with("-o: cannot write"), "{said}");
        }
    }

    #[test]
    fn what_corun_did_not_write_stays() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        let try_with = |option, text: &str| {
            fs::write(&file, text).unwrap();
            Outputs::of([(option, Some(&file))]).unwrap().try_out()
        };
        for option in [
            "--report", "--csv", "--svg", "--output", "--trace", "--events",
        ] {
            let said = refused(try_with(option, "[host]\npcpus = 4\n"));
            assert!(said.contains("holds something else"), "{said}");
            assert_eq!(fs::read_to_string(&file).unwrap(), "[host]\npcpus = 4\n");
            try_with(option, "").unwrap();
        }
        let runs = corun_report::csv::runs(&[]).unwrap();
        let points = corun_report::csv::points(&[]).unwrap();
        try_with("--csv", &runs).unwrap();
        try_with("--csv", &points).unwrap();
        try_with("--svg", "<svg xmlns=\"").unwrap();
    }

    #[test]
    fn what_is_not_finished_is_not_there() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("old"), "dear").unwrap();
        for name in ["old", "new"] {
            let (unfinished, mut to) = Unfinished::begin(&at(name)).unwrap();
            to.write_all(b"half").unwrap();
            drop(unfinished);
        }
        assert_eq!(fs::read_to_string(at("old")).unwrap(), "dear");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
        for name in ["old", "new"] {
            let (unfinished, mut to) = Unfinished::begin(&at(name)).unwrap();
            to.write_all(b"whole").unwrap();
            unfinished.finish().unwrap();
            assert_eq!(fs::read_to_string(at(name)).unwrap(), "whole");
        }
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
        let (unfinished, _) = Unfinished::begin(Path::new("/dev/null")).unwrap();
        unfinished.finish().unwrap();
    }

    #[test]
    fn a_file_is_replaced_whole_and_stays_what_it_was() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("old"), "dear").unwrap();
        fs::set_permissions(at("old"), Permissions::from_mode(0o640)).unwrap();
        symlink(at("old"), at("link")).unwrap();
        let before = File::open(at("old")).unwrap();
        write(&at("link"), "new").unwrap();
        assert_eq!(fs::read_to_string(at("old")).unwrap(), "new");
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
        let mode = fs::metadata(at("old")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        let found = io::read_to_string(before).unwrap();
        assert_eq!(found, "dear", "who reads the old one has it whole");
        write(&at("fresh"), "new").unwrap();
        let plain = File::create(at("plain")).unwrap().metadata().unwrap();
        let fresh = fs::metadata(at("fresh")).unwrap();
        assert_eq!(
            fresh.permissions(),
            plain.permissions(),
            "as the umask says"
        );
        write(Path::new("/dev/null"), "new").unwrap();
        assert!(write(&at("no/such"), "new").is_err());
        let left = fs::read_dir(place.path()).unwrap().count();
        assert_eq!(left, 4, "nothing is left over");
    }
}
