// SPDX-License-Identifier: GPL-2.0-only
//! The table, column by column, as text; the screen shows the same.

use corun_linux::watch::{Row, Sample};
use corun_model::counted;
use corun_model::time::SEC;

/// A column: its head, its width, and its text for a line.
pub(super) struct Column {
    pub(super) head: &'static str,
    pub(super) width: usize,
    pub(super) left: bool,
    pub(super) cell: fn(&Row) -> String,
}

fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

fn maybe<T>(value: Option<T>, show: fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_string(), show)
}

const fn column(head: &'static str, width: usize, cell: fn(&Row) -> String) -> Column {
    Column {
        head,
        width,
        left: false,
        cell,
    }
}

/// The columns of the table, by VM or by vCPU.
pub(super) fn columns(vcpus: bool) -> Vec<Column> {
    let name = Column {
        head: "NAME",
        width: 20,
        left: true,
        cell: |row| row.name.clone(),
    };
    let who = match vcpus {
        true => [
            column("VCPU", 4, |row| maybe(row.vcpu, |n| n.to_string())),
            column("TID", 8, |row| maybe(row.tid, |n| n.to_string())),
        ],
        false => [
            column("NVCPU", 5, |row| row.vcpus.to_string()),
            column("PID", 8, |row| row.pid.to_string()),
        ],
    };
    let shares = [
        column("WEIGHT", 6, |row| maybe(row.weight, |n| n.to_string())),
        column("%RUN", 6, |row| percent(row.run)),
        column("%RDY", 6, |row| percent(row.ready)),
        column("%CSTP", 6, |row| maybe(row.costop, percent)),
        column("%MLMTD", 6, |row| maybe(row.throttled, percent)),
        column("%WAIT", 6, |row| percent(row.wait)),
        column("SW/S", 8, |row| format!("{:.0}", row.switches_per_s)),
        column("LAT ms", 7, |row| format!("{:.2}", row.latency_ms)),
        column("CLASS", 8, |row| maybe(row.class.clone(), |name| name)),
    ];
    let mut columns = vec![name];
    columns.extend(who);
    columns.extend(shares);
    match vcpus {
        true => columns.extend([
            column("SLICE ms", 8, |row| {
                maybe(row.slice_ms, |ms| format!("{ms:.2}"))
            }),
            column("POOL", 4, |row| maybe(row.pool, |pool| pool.to_string())),
        ]),
        false => columns.extend([
            column("%HLP", 6, |row| maybe(row.helpers, percent)),
            column("POLICY", 6, |row| {
                let state = match (row.under_policy, row.enforced) {
                    (None, _) => "-",
                    (Some(false), _) => "fair",
                    (_, Some(false)) => "off",
                    _ => "yes",
                };
                state.to_string()
            }),
            column("%LOAN", 6, |row| {
                maybe(row.loan_percent, |percent| format!("{percent:+.1}"))
            }),
        ]),
    }
    columns
}

/// Columns that are dropped first if there is no room for all: they show who it is, not how it fares.
const SPARED: [&str; 3] = ["PID", "TID", "WEIGHT"];
/// The longest that NAME becomes in batch mode.
const LONGEST_NAME: usize = 60;

/// How wide columns are side by side.
fn total(columns: &[Column]) -> usize {
    let widths: usize = columns.iter().map(|column| column.width).sum();
    widths + columns.len().saturating_sub(1)
}

/// The columns that fit into `width`, without the first `aside` after the name, which has room for `longest` if there
/// is some.
pub(super) fn shown(vcpus: bool, width: usize, aside: usize, longest: usize) -> Vec<Column> {
    let mut columns = columns(vcpus);
    for spared in SPARED {
        if total(&columns) > width {
            columns.retain(|column| column.head != spared);
        }
    }
    // The last column stays.
    columns.drain(1..=aside.min(columns.len() - 2));
    while columns.len() > 2 && total(&columns) > width {
        columns.pop();
    }
    let room = width.saturating_sub(total(&columns));
    columns[0].width += longest.saturating_sub(columns[0].width).min(room);
    columns
}

/// A cell, visibly cut to its column.
pub(super) fn fitted(column: &Column, text: &str) -> String {
    let mut short: String = text.chars().take(column.width).collect();
    if text.chars().count() > column.width {
        short.pop();
        short.push('…');
    }
    match column.left {
        true => format!("{short:<width$}", width = column.width),
        false => format!("{short:>width$}", width = column.width),
    }
}

/// The longest name of all lines.
pub(super) fn longest_name(rows: &[Row]) -> usize {
    let lengths = rows.iter().map(|row| row.name.chars().count());
    lengths.max().unwrap_or(0)
}

/// The whole table.
pub(super) fn text(rows: &[Row], vcpus: bool) -> String {
    let mut columns = columns(vcpus);
    columns[0].width = longest_name(rows).clamp(columns[0].width, LONGEST_NAME);
    let line = |cell: &dyn Fn(&Column) -> String| {
        let cells: Vec<String> = columns.iter().map(|c| fitted(c, &cell(c))).collect();
        cells.join(" ").trim_end().to_string() + "\n"
    };
    let mut text = line(&|column| column.head.to_string());
    for row in rows {
        text += &line(&|column| (column.cell)(row));
    }
    text
}

/// What to say about the host.
pub(super) fn title(now: &Sample) -> String {
    let vcpus: usize = now.vms.iter().map(|vm| vm.machine.vcpus().count()).sum();
    let scheduler = match &now.daemon {
        Some(daemon) => format!("corun, policy {}", daemon.policy),
        None if now.scheduler == "kernel" => "the kernel's own scheduler".to_string(),
        None => now.scheduler.clone(),
    };
    let up = now.at / SEC;
    format!(
        "{}, {}, {scheduler}, up {}:{:02}:{:02}",
        counted(now.vms.len(), "VM"),
        counted(vcpus, "vCPU"),
        up / 3600,
        up / 60 % 60,
        up % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stand_under_their_heads() {
        let row = Row {
            name: "a-name-that-is-much-too-long-for-any-column-however-wide-that-may-be".into(),
            run: 0.5,
            ready: 0.25,
            costop: Some(0.1),
            vcpus: 2,
            pid: 4711,
            ..Row::default()
        };
        let table = text(&[row], false);
        let [head, line] = table.lines().collect::<Vec<_>>()[..] else {
            panic!("two lines: {table}")
        };
        for (name, value) in [
            ("%RUN", "50.0"),
            ("%RDY", "25.0"),
            ("%CSTP", "10.0"),
            ("%MLMTD", "-"),
        ] {
            let end = head.find(name).unwrap() + name.len();
            let until: String = line.chars().take(end).collect();
            assert!(until.ends_with(value), "{name}\n{table}");
        }
        assert!(line.starts_with("a-name-that-is-much-too-long-for-any-column-however-wide-th… "));
    }

    #[test]
    fn what_vms_lack_is_seen_on_narrow_terminals() {
        let heads = |width, aside| {
            let columns = shown(false, width, aside, 30);
            assert!(total(&columns) <= width);
            let heads = columns.iter().map(|column| column.head);
            (heads.collect::<Vec<_>>().join(" "), columns[0].width)
        };
        assert_eq!(heads(40, 0), ("NAME NVCPU %RUN %RDY".to_string(), 20));
        assert!(heads(40, 5).0.starts_with("NAME %WAIT SW/S"));
        assert_eq!(heads(40, 99).0, "NAME %LOAN");
        let (all, name) = heads(300, 0);
        assert!(
            all.contains("PID WEIGHT") && all.ends_with("%LOAN"),
            "{all}"
        );
        assert_eq!(name, 30);
    }

    #[test]
    fn a_vm_that_its_policy_leaves_alone_says_so() {
        let cells = |under_policy, enforced, loan_percent| {
            let row = Row {
                under_policy,
                enforced,
                loan_percent,
                ..Row::default()
            };
            let columns = columns(false);
            let cell = |head| (columns.iter().find(|c| c.head == head).unwrap().cell)(&row);
            [cell("POLICY"), cell("%LOAN")]
        };
        assert_eq!(
            cells(Some(true), Some(false), Some(-12.5)),
            ["off", "-12.5"]
        );
        assert_eq!(cells(Some(true), Some(true), Some(3.0)), ["yes", "+3.0"]);
        assert_eq!(cells(Some(true), None, None), ["yes", "-"]);
        assert_eq!(cells(Some(false), None, None), ["fair", "-"]);
        assert_eq!(cells(None, None, None), ["-", "-"]);
    }
}
