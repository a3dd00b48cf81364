// SPDX-License-Identifier: GPL-2.0-only
//! Writes `docs/emergence.md`.

use std::fmt::Write;

/// A phenomenon.
pub struct Section {
    pub title: &'static str,
    /// The file in `experiments/emergence`, without its ending.
    pub scenario: &'static str,
    /// What the paper says, and where.
    pub paper: &'static str,
    /// Does the phenomenon come out?
    pub verdict: &'static str,
    /// Table: heads, then rows.
    pub heads: &'static [&'static str],
    pub rows: Vec<Vec<String>>,
    /// What causes it.
    pub mechanism: &'static str,
    /// What does not fit, and why.
    pub differs: &'static str,
}

const HEAD: &str = "\
<!-- SPDX-License-Identifier: GPL-2.0-only -->
<!-- Written by `CORUN_UPDATE=1 cargo test -p corun --test command emergence`; the test compares it with the runs. -->
# Emergence: phenomena from mechanism alone

The first sections are about phenomena reported in the papers that corun implements. The others
([from here on](#a-task-that-sleeps-half-of-the-time)) are about what others measured, mostly kernel developers, who
give their numbers in commit messages.

Each phenomenon is run from a scenario in `experiments/emergence` with the source's setting, by
`corun compare FILE --json`; the same test asserts what this page says. No number of a model was fitted to these
results. What a paper leaves open is commented in the scenario and, where much depends on it, run in several ways.
Figures are medians over seeds, with the lowest and highest in brackets where they differ. A seed decides which vCPUs
run in step, so wide ranges are a result, not noise.

Some choices were made with results in view, though:

- VMs start at different times (if they did not, all seeds of a disk run would be alike).
- Variants with pause-loop exits and with rarer locks were added after the first.
- Lengths and numbers of seeds are what a minute allows.
- The limits that the tests assert were set after the values were seen, so they guard against change and are no
  predictions.
- Of two readings of the paper's web server, the one that its text describes is listed first.

Mechanisms are argued from the models, not read off timelines. Others' measurements were chosen because their sources
state what was run and on what, and because they could be run here at all. Three of these sections revealed gaps in the
model (TLB flushes of idle vCPUs, slices of idle groups, which tasks that wait for room in a socket are woken).
";

/// The whole page.
pub fn page(sections: &[Section]) -> String {
    let mut page = format!("{HEAD}\n| phenomenon | does it come out? |\n|---|---|\n");
    for section in sections {
        writeln!(page, "| {} | {} |", section.title, section.verdict).unwrap();
    }
    for section in sections {
        let file = section.scenario;
        write!(
            page,
            "\n## {}\n\n{}\nScenario: [`{file}.toml`](../experiments/emergence/{file}.toml).\n\n",
            section.title, section.paper
        )
        .unwrap();
        row(&mut page, section.heads.iter());
        row(&mut page, section.heads.iter().map(|_| "---"));
        for cells in &section.rows {
            row(&mut page, cells.iter());
        }
        write!(page, "\n*Mechanism.* {}\n", section.mechanism).unwrap();
        write!(page, "\n*What does not fit.* {}\n", section.differs).unwrap();
    }
    page
}

fn row(page: &mut String, cells: impl Iterator<Item = impl AsRef<str>>) {
    page.push('|');
    for cell in cells {
        write!(page, " {} |", cell.as_ref()).unwrap();
    }
    page.push('\n');
}
