// SPDX-License-Identifier: GPL-2.0-only
//! Pages in Markdown, as far as their tests read them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// A fenced block.
pub struct Block {
    /// The first word behind the fence.
    pub language: String,
    /// The rest of that line.
    pub kind: String,
    /// What is in it.
    pub text: String,
    /// Where it begins.
    pub line: usize,
}

/// A page.
pub struct Page {
    /// Its path in the repository.
    pub name: String,
    /// Its fenced blocks.
    pub blocks: Vec<Block>,
    /// Where its links lead.
    pub links: Vec<String>,
    /// Places within it that links may lead to.
    anchors: BTreeSet<String>,
}

impl Page {
    /// Reads a page.
    pub fn read(name: &str) -> Self {
        let text = fs::read_to_string(root().join(name)).unwrap();
        let mut page = Self {
            name: name.to_string(),
            blocks: Vec::new(),
            links: Vec::new(),
            anchors: BTreeSet::new(),
        };
        let mut open: Option<Block> = None;
        for (number, line) in text.lines().enumerate() {
            match (&mut open, line.strip_prefix("```")) {
                (None, Some(info)) => {
                    let (language, kind) = info.split_once(' ').unwrap_or((info, ""));
                    open = Some(Block {
                        language: language.to_string(),
                        kind: kind.to_string(),
                        text: String::new(),
                        line: number + 1,
                    });
                }
                (Some(_), Some(_)) => page.blocks.extend(open.take()),
                (Some(block), None) => block.text += &format!("{line}\n"),
                (None, None) => page.line(line),
            }
        }
        assert!(open.is_none(), "{name}: a block does not end");
        page
    }

    fn line(&mut self, line: &str) {
        if line.starts_with('#') {
            self.anchors.insert(slug(line.trim_start_matches('#')));
        }
        // Text between back-ticks is no link.
        let prose: String = line.split('`').step_by(2).collect();
        let targets = prose.split("](").skip(1);
        let targets = targets.filter_map(|rest| Some(rest.split_once(')')?.0.to_string()));
        self.links.extend(targets);
    }

    /// Does this link lead somewhere?
    pub fn follow(&self, link: &str) -> Result<(), String> {
        if link.starts_with("https:") {
            return Ok(());
        }
        let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
        let folder = Path::new(&self.name).parent().unwrap();
        let name = match path {
            "" => PathBuf::from(&self.name),
            path => folder.join(path),
        };
        let file = root().join(&name).canonicalize();
        let file = file.map_err(|error| error.to_string())?;
        if !file.starts_with(root()) {
            return Err("it leaves the repository".to_string());
        }
        let chapter = |path: &Path| path.starts_with(root().join("docs"));
        if path.ends_with(".md") && chapter(&root().join(&self.name)) && !chapter(&file) {
            return Err(
                "it is no chapter: where the book is read as pages, it is not there".into(),
            );
        }
        if anchor.is_empty() || Page::read(&name.to_string_lossy()).anchors.contains(anchor) {
            return Ok(());
        }
        Err(format!("no heading {anchor:?}"))
    }
}

/// The name of a heading in links: as on GitHub and in mdBook.
fn slug(heading: &str) -> String {
    let kept = |c: char| c.is_alphanumeric() || "-_ ".contains(c);
    let plain = heading.trim().to_lowercase().replace('`', "");
    plain
        .chars()
        .filter(|c| kept(*c))
        .collect::<String>()
        .replace(' ', "-")
}
