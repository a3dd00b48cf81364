// SPDX-License-Identifier: GPL-2.0-only
//! Tables in their places in the documents: between `<!-- table NAME -->` and `<!-- end of table -->`, on lines of
//! their own. What stands there is replaced, everything else stays as it is.

use crate::failure::Invalid;
use crate::outputs;
use anyhow::Context;
use corun_report::tables::{Table, markdown};
use std::fs;
use std::path::{Path, PathBuf};

const BEGIN: &str = "<!-- table ";
const END: &str = "<!-- end of table -->";

/// The pages (`*.md`) of a directory that have places; `known` are the names of all tables.
///
/// # Errors
/// [`Invalid`] if one cannot be read, a place has no end, or is for a table that does not exist.
pub fn pages(directory: &Path, known: &[&str]) -> anyhow::Result<Vec<PathBuf>> {
    let refuse = |path: &Path, error: std::io::Error| {
        Invalid::error(format!("--pages: {}: {error}", path.display()))
    };
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).map_err(|error| refuse(directory, error))? {
        let path = entry.map_err(|error| refuse(directory, error))?.path();
        if path.extension().is_none_or(|it| it != "md") || !path.is_file() {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(|error| refuse(&path, error))?;
        let places = places(&text).map_err(|(line, message)| {
            Invalid::error(format!("{}:{line}: {message}", path.display()))
        })?;
        for (line, name) in &places {
            if !known.contains(name) {
                let hint = corun_scenario::or_nearest(name, known);
                let at = format!("{}:{line}", path.display());
                return Err(Invalid::error(format!(
                    "{at}: there is no table {name:?}, {hint}"
                )));
            }
        }
        if !places.is_empty() {
            all.push(path);
        }
    }
    all.sort();
    Ok(all)
}

/// The name of a place that begins on this line.
fn begins(line: &str) -> Option<&str> {
    let name = line.trim().strip_prefix(BEGIN)?.strip_suffix("-->")?;
    Some(name.trim())
}

/// The places of a page: the line of each, and its table's name.
fn places(text: &str) -> Result<Vec<(usize, &str)>, (usize, String)> {
    let mut all = Vec::new();
    let mut open: Option<usize> = None;
    for (at, line) in text.lines().enumerate() {
        match (begins(line), open) {
            (Some(_), Some(begun)) => {
                return Err((begun, format!("this place for a table has no {END}")));
            }
            (Some(name), None) => {
                open = Some(at + 1);
                all.push((at + 1, name));
            }
            (None, _) if line.trim() == END => open = None,
            (None, _) => {}
        }
    }
    match open {
        Some(begun) => Err((begun, format!("this place for a table has no {END}"))),
        None => Ok(all),
    }
}

/// The text with the given tables in their places.
fn replaced(text: &str, tables: &[Table]) -> String {
    let mut out = String::new();
    let mut within = false;
    for line in text.split_inclusive('\n') {
        let is_end = line.trim() == END;
        if !within || is_end {
            out += line;
        }
        if is_end {
            within = false;
        }
        let table = begins(line).and_then(|name| tables.iter().find(|it| it.name == name));
        if let Some(table) = table {
            within = true;
            out += &markdown(table);
        }
    }
    out
}

/// Writes the pages anew on which a table changes; returns how many. They are read only now, so that what somebody has
/// written on one since the runs began is not lost.
///
/// # Errors
/// If one cannot be read or written; those before it are written.
pub fn write(pages: &[PathBuf], tables: &[Table]) -> anyhow::Result<usize> {
    let mut changed = 0;
    for path in pages {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let new = replaced(&text, tables);
        if new != text {
            outputs::write(path, &new)?;
            changed += 1;
        }
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str) -> Table {
        Table {
            name: name.to_string(),
            title: String::new(),
            experiments: Vec::new(),
            seeds: 0,
            means: false,
            columns: vec!["ours".to_string()],
            rows: Vec::new(),
        }
    }

    #[test]
    fn only_what_is_in_a_place_is_replaced() {
        let text = "before\n<!-- table a.b -->\nold\n<!-- end of table -->\n\
            <!-- table c -->\nkept\n<!-- end of table -->\nafter";
        let new = replaced(text, &[table("a.b")]);
        let expected = "before\n<!-- table a.b -->\n|  | ours |\n|---|---|\n\n\
            (`corun reproduce --tables a.b`)\n<!-- end of table -->\n\
            <!-- table c -->\nkept\n<!-- end of table -->\nafter";
        assert_eq!(new, expected);
        assert_eq!(
            replaced(&new, &[table("a.b")]),
            new,
            "once more is the same"
        );
    }

    #[test]
    fn a_place_without_an_end_is_refused() {
        assert_eq!(places("\n<!-- table a -->\nx").unwrap_err().0, 2);
        let two = "<!-- table a -->\n<!-- table b -->\n<!-- end of table -->";
        assert_eq!(places(two).unwrap_err().0, 1);
        let fine =
            "<!-- table a -->\n<!-- end of table -->\n<!-- table b -->\n<!-- end of table -->";
        assert_eq!(places(fine).unwrap(), [(1, "a"), (3, "b")]);
    }

    #[test]
    fn pages_with_places_for_unknown_tables_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("a.md");
        fs::write(&page, "<!-- table x.one -->\n<!-- end of table -->\n").unwrap();
        fs::write(folder.path().join("b.md"), "nothing here\n").unwrap();
        let message = |known: &[&str]| match pages(folder.path(), known) {
            Ok(pages) => format!("{} pages", pages.len()),
            Err(error) => error.to_string(),
        };
        assert_eq!(message(&["x.one"]), "1 pages");
        let refused = message(&["x.two"]);
        assert!(
            refused.contains("a.md:1: there is no table \"x.one\""),
            "{refused}"
        );
        let pages = pages(folder.path(), &["x.one"]).unwrap();
        let late = "<!-- table x.one -->\n<!-- end of table -->\nwritten meanwhile\n";
        fs::write(&page, late).unwrap();
        assert_eq!(write(&pages, &[table("x.one")]).unwrap(), 1);
        let now = fs::read_to_string(page).unwrap();
        assert!(
            now.contains("| ours |") && now.ends_with("\nwritten meanwhile\n"),
            "{now}"
        );
    }
}
