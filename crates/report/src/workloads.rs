// SPDX-License-Identifier: GPL-2.0-only
//! The workloads that scenarios can name, for a terminal and for `docs/workloads.md`: what each is
//! known for, its programs, and what it does when nobody disturbs it.

use crate::format::{amount, percent};
use crate::layout::{lines, right, ruled, text_width, unbroken};
use crate::markdown::{cell, paragraph};
use comfy_table::{Cell, Table};
use corun_model::{Nanos, counted, time};
use serde::Serialize;

/// Programs of one workload that are shown; the others are similar.
const PROGRAMS_SHOWN: usize = 6;

/// A workload.
#[derive(Clone, Debug, Serialize)]
pub struct Workload {
    /// What scenarios call it.
    pub name: String,
    /// The benchmarks that it belongs to.
    pub family: String,
    /// What it is known for, and where its structure and times come from.
    pub about: String,
    /// Name and program of each of its threads in a VM of four vCPUs.
    pub threads: Vec<(String, String)>,
    /// The clients it brings along, in the words of scenarios.
    pub clients: Vec<String>,
    /// What it does alone: one VM of four vCPUs on four pCPUs.
    pub alone: Alone,
}

/// What a workload does alone. Shares of time are of the time used.
#[derive(Clone, Debug, Serialize)]
pub struct Alone {
    /// Length of the measured part.
    pub measured_ns: Nanos,
    /// Units of work per second.
    pub throughput: f64,
    /// What a unit is.
    pub throughput_unit: String,
    /// Share of the four pCPUs' time.
    pub cpu_share: f64,
    /// In the guest kernel: interrupts and thread switches.
    pub kernel_share: f64,
    /// Spinning.
    pub spin_share: f64,
    /// Times that a vCPU changed its thread.
    pub thread_switches_per_s: f64,
    /// Times that a halted vCPU was woken.
    pub vcpu_wakeups_per_s: f64,
    /// Contended acquisitions of locks.
    pub lock_waits_per_s: f64,
    /// Answers to its clients.
    pub responses_per_s: Option<f64>,
    /// Mean time until they arrived.
    pub response_mean_ns: Option<Nanos>,
}

impl Alone {
    /// One sentence: what the table does not say.
    fn sentence(&self) -> String {
        let measured = time::show(self.measured_ns);
        let work = format!("{} {}", amount(self.throughput), self.throughput_unit);
        let locks = amount(self.lock_waits_per_s);
        let mut text =
            format!("Alone, measured over {measured}: {work}, {locks} contended locks/s");
        if let (Some(rate), Some(mean)) = (self.responses_per_s, self.response_mean_ns) {
            let mean = time::show(mean);
            text += &format!(
                "; {} answers/s to clients, on average after {mean}",
                amount(rate)
            );
        }
        text + "."
    }
}

const COLUMNS: [&str; 8] = [
    "workload",
    "threads",
    "throughput",
    "CPU",
    "kernel",
    "spin",
    "switches/s",
    "wake-ups/s",
];

fn row(workload: &Workload) -> [String; 8] {
    let alone = &workload.alone;
    [
        workload.name.clone(),
        workload.threads.len().to_string(),
        format!("{} {}", amount(alone.throughput), alone.throughput_unit),
        percent(alone.cpu_share),
        percent(alone.kernel_share),
        percent(alone.spin_share),
        amount(alone.thread_switches_per_s),
        amount(alone.vcpu_wakeups_per_s),
    ]
}

/// All workloads for a terminal of `width` columns: a table for each family.
pub fn table(workloads: &[Workload], width: u16) -> String {
    let mut out = String::new();
    let families = workloads.chunk_by(|one, next| one.family == next.family);
    for members in families {
        if members.len() < workloads.len() {
            out += &format!("{}\n", members[0].family);
        }
        out += &match width < NARROW {
            true => members_list(members),
            false => lines(members_table(members, width)),
        };
        out += if members.len() < workloads.len() {
            "\n"
        } else {
            ""
        };
    }
    out + &textwrap::fill(LEGEND, text_width(width)) + "\n"
}

/// Below that many columns there is no room for a table.
const NARROW: u16 = 80;

/// Each workload with its figures below.
fn members_list(workloads: &[Workload]) -> String {
    let mut out = String::new();
    for [name, _, throughput, cpu, kernel, spin, switches, wakeups] in workloads.iter().map(row) {
        out += &format!(
            "{name}: {throughput}\n    CPU {cpu}, kernel {kernel}, spin {spin}\n    \
             switch {switches} /s, wake {wakeups} /s\n"
        );
    }
    out
}

fn members_table(workloads: &[Workload], width: u16) -> Table {
    let mut table = ruled(width);
    let aligned = |(at, text): (usize, String)| match at {
        0 => Cell::new(text),
        _ => right(text),
    };
    // Short headers and no number of threads: it all fits 80 columns.
    let header = COLUMNS.map(|column| match column {
        "switches/s" => "switch\n/s".to_string(),
        "wake-ups/s" => "wake\n/s".to_string(),
        other => other.to_string(),
    });
    let without_threads = |cells: [String; 8]| {
        let kept = cells.into_iter().enumerate().filter(|(at, _)| *at != 1);
        kept.map(aligned).collect::<Vec<_>>()
    };
    table.set_header(without_threads(header.clone()));
    let rows: Vec<_> = workloads.iter().map(row).collect();
    let needed = |at: usize| {
        let words = header[at].lines().map(str::len);
        let cells = rows.iter().map(|cells| cells[at].chars().count());
        words.chain(cells).max().unwrap_or(0)
    };
    for (column, at) in [(0, 0), (1, 2), (2, 3)] {
        unbroken(&mut table, column, needed(at), width);
    }
    rows.into_iter().for_each(|cells| {
        table.add_row(without_threads(cells));
    });
    // Figures keep a blank to their left; one is enough.
    for column in table.column_iter_mut().skip(1) {
        column.set_padding((0, 1));
    }
    table
}

const LEGEND: &str = "Each alone in a VM of 4 vCPUs on 4 pCPUs. CPU: share of the pCPUs' time; kernel \
    (interrupts and thread switches) and spin(ning): shares of the time used; switch: of threads in \
    the guest; wake: of halted vCPUs.";

/// One workload in full, for a terminal of `width` columns.
pub fn text(workload: &Workload, width: u16) -> String {
    let width = text_width(width);
    let about = textwrap::fill(&workload.about, width);
    let mut out = format!("{}\n\n{about}\n\n", workload.name);
    for line in programs(workload, width.saturating_sub(2)).lines() {
        out += &format!("  {line}\n");
    }
    for client in &workload.clients {
        let wrapped = textwrap::Options::new(width)
            .initial_indent("  # client: ")
            .subsequent_indent("  #   ");
        out += &format!("{}\n", textwrap::fill(client, &wrapped));
    }
    out += &format!(
        "\n{}\n\n",
        textwrap::fill(&workload.alone.sentence(), width)
    );
    out + &table(std::slice::from_ref(workload), width as u16)
}

/// Each program once, under the names of the threads that run it.
fn programs(workload: &Workload, width: usize) -> String {
    let mut different: Vec<(Vec<&str>, &str)> = Vec::new();
    for (name, program) in &workload.threads {
        match different.iter_mut().find(|(_, known)| known == program) {
            Some((names, _)) => names.push(name),
            None => different.push((vec![name], program)),
        }
    }
    let wrapped = textwrap::Options::new(width).subsequent_indent("    ");
    let comment = textwrap::Options::new(width)
        .initial_indent("# ")
        .subsequent_indent("# ");
    let mut out = String::new();
    for (names, program) in different.iter().take(PROGRAMS_SHOWN) {
        out += &textwrap::fill(&names.join(", "), &comment);
        out += &format!("\n{}\n", textwrap::fill(program, &wrapped));
    }
    match different.len().saturating_sub(PROGRAMS_SHOWN) {
        0 => out,
        more => out + &format!("# … and {} like these\n", counted(more, "more program")),
    }
}

/// The page `docs/workloads.md`; `families` are names and what their members have in common.
pub fn markdown(workloads: &[Workload], families: &[(String, String)]) -> String {
    let mut page = String::from(HEAD);
    let members = |family: &str| {
        let of = |workload: &&Workload| workload.family == family;
        workloads.iter().filter(of).collect::<Vec<_>>()
    };
    for (family, _) in families {
        page += &format!("**{family}**\n\n| {} |\n", COLUMNS.join(" | "));
        page += "|---|--:|--:|--:|--:|--:|--:|--:|\n";
        for workload in members(family) {
            let [name, rest @ ..] = row(workload);
            let rest: Vec<String> = rest.iter().map(|text| cell(text)).collect();
            page += &format!("| [`{name}`](#{name}) | {} |\n", rest.join(" | "));
        }
        page += "\n";
    }
    for (family, about) in families {
        page += &format!("## {family}\n\n{}\n\n", paragraph(about));
        members(family).iter().for_each(|one| page += &section(one));
    }
    page.truncate(page.trim_end().len());
    page + "\n"
}

/// A workload's part of the page.
fn section(workload: &Workload) -> String {
    let (name, about) = (&workload.name, paragraph(&workload.about));
    let programs = match workload.threads.is_empty() {
        true => "# no threads\n".to_string(),
        false => programs(workload, 100),
    };
    let clients = workload
        .clients
        .iter()
        .map(|client| format!("# client: {client}\n"));
    let clients: String = clients.collect();
    let alone = paragraph(&workload.alone.sentence());
    format!("### {name}\n\n{about}\n\n```text\n{programs}{clients}```\n\n{alone}\n\n")
}

const HEAD: &str = "\
<!-- SPDX-License-Identifier: GPL-2.0-only -->
<!-- Written by `corun workloads --markdown`; a test compares it with the code. -->
# Workloads

What `workload = \"NAME\"` stands for in a [scenario](scenario.md): programs in the language that
scenarios use themselves, as many threads as are usual in a VM of 4 vCPUs. On the terminal:
`corun workloads [NAME]`.

A workload that serves brings its clients along (`# client:`), in the words of
[`[client.NAME]`](scenario.md#clientname-programs-outside-the-host); a scenario's own client or
channel of the same VM and port takes their place. One that reads or writes needs a `[device.NAME]`.

The figures are the simulator's own: each workload in a VM of 4 vCPUs, each vCPU alone on a pCPU of
its own, seed 1, measured over 2 s, or less if something happens all the time (how long is said with
each). *CPU*: share of the 4 pCPUs' time; *kernel* (the guest's interrupts and thread switches) and
*spin*ning: shares of the time used; *switches*: of threads in the guest; *wake-ups*: of halted
vCPUs. *work s*: seconds of undisturbed computing. Disks are solid-state disks of their own; what
a workload calls in other VMs has pCPUs of its own.

";

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Workload {
        let thread = |n: usize| {
            (
                format!("worker{n}"),
                format!("loop {{ compute {}ms }}", n / 2),
            )
        };
        Workload {
            name: "some".to_string(),
            family: "Some".to_string(),
            about: "Known for | nothing. ".repeat(10),
            threads: (0..20).map(thread).collect(),
            clients: vec!["kind = \"sink\"".to_string()],
            alone: Alone {
                measured_ns: time::SEC,
                throughput: 1234.5,
                throughput_unit: "frames/s".to_string(),
                cpu_share: 0.5,
                kernel_share: 0.1,
                spin_share: 0.0,
                thread_switches_per_s: 10.0,
                vcpu_wakeups_per_s: 123_456.0,
                lock_waits_per_s: 0.0,
                responses_per_s: Some(10.0),
                response_mean_ns: Some(time::MS),
            },
        }
    }

    #[test]
    fn equal_programs_are_shown_once_and_many_are_cut() {
        let text = text(&sample(), 80);
        assert!(text.contains("# worker0, worker1\n"), "{text}");
        assert!(text.contains("and 4 more programs"), "{text}");
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{text}");
    }

    #[test]
    fn each_family_has_its_table() {
        let other = Workload {
            family: "Other".to_string(),
            ..sample()
        };
        let text = table(&[sample(), sample(), other], 80);
        assert_eq!(text.matches("workload").count(), 2, "{text}");
        assert!(
            text.starts_with("Some\n") && text.contains("\nOther\n"),
            "{text}"
        );
        assert!(!table(&[sample()], 80).contains("Some"));
    }

    #[test]
    fn the_page_has_a_row_and_a_section() {
        let families = [("Some".to_string(), "Of some kind.".to_string())];
        let page = markdown(&[sample()], &families);
        assert!(
            page.contains("| [`some`](#some) | 20 | 1,234 frames/s | 50.0 % |"),
            "{page}"
        );
        assert!(page.contains("\n### some\n"));
        assert!(page.contains("## Some\n\nOf some kind.\n"));
        assert!(page.contains("# client: kind = \"sink\"\n```"), "{page}");
        assert!(page.contains("10.0 answers/s to clients"), "{page}");
    }
}
