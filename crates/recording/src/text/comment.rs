// SPDX-License-Identifier: GPL-2.0-only
//! What a recording states about itself in comment lines.
//!
//! The tools' own headers (`#P:2`, `cpus=2`, `# os release : 6.12`) and the lines a recording
//! script adds: `# host: N pCPUs, kernel V, scheduler S, clock C`, `# process PID cmdline…`,
//! `# thread TID comm` (of the process above it).

use crate::event;
use crate::model::{Fact, Format};
use corun_model::harmless;
use std::collections::BTreeMap;

/// A list with more processes or threads than this is not believed.
const MAX_LISTED: usize = 1 << 20;

/// What the comments stated.
#[derive(Debug, Default)]
pub(crate) struct Stated {
    pub format: Option<Format>,
    pub pcpus: Option<Fact<u64>>,
    pub kernel: Option<Fact<String>>,
    pub scheduler: Option<Fact<String>>,
    pub clock: Option<Fact<String>>,
    /// Command lines by process id.
    pub processes: BTreeMap<u32, String>,
    /// Names of VMs by process id.
    pub vms: BTreeMap<u32, String>,
    /// Process and name by thread id.
    pub threads: BTreeMap<u32, (Option<u32>, String)>,
    /// Events overwritten or dropped while recording.
    pub lost: u64,
    /// Entries kept and entries written, if fewer were kept.
    pub overwritten: Option<(u64, u64)>,
    process: Option<u32>,
}

impl Stated {
    /// Takes in one comment, without its leading `#`. Returns whether it stated anything.
    pub(crate) fn comment(&mut self, text: &str) -> bool {
        let text = text.trim();
        if let Some(host) = text.strip_prefix("host:") {
            self.host(host);
        } else if let Some(process) = text.strip_prefix("process ") {
            self.process(process);
        } else if let Some(thread) = text.strip_prefix("thread ") {
            self.thread(thread);
        } else {
            return self.tool(text);
        }
        true
    }

    /// `2 pCPUs, kernel 6.12.1, scheduler EEVDF, clock mono`
    fn host(&mut self, text: &str) {
        const SOURCE: &str = "the `# host:` line";
        let fact = |value: &str| {
            Some(Fact {
                value: event::comm(value),
                source: SOURCE,
            })
        };
        for part in text.split(',').map(str::trim) {
            match part.split_once(' ') {
                Some((number, "pCPUs" | "pCPU")) => self.pcpus(number, SOURCE),
                Some(("kernel", value)) => self.kernel = fact(value),
                Some(("scheduler", value)) => self.scheduler = fact(value),
                Some(("clock", value)) => self.clock = fact(value),
                _ => {}
            }
        }
    }

    fn pcpus(&mut self, number: &str, source: &'static str) {
        if let (Ok(value), None) = (number.trim().parse(), &self.pcpus) {
            self.pcpus = Some(Fact { value, source });
        }
    }

    /// `118 qemu-system-x86_64 -name guest=vm1 …`
    fn process(&mut self, text: &str) {
        let (number, cmdline) = text.trim().split_once(' ').unwrap_or((text, ""));
        self.process = event::tid(number).ok();
        if let Some(tgid) = self.process.filter(|_| self.processes.len() < MAX_LISTED) {
            self.processes
                .insert(tgid, cmdline.chars().map(harmless).take(4096).collect());
        }
    }

    /// `126 CPU 0/KVM`
    fn thread(&mut self, text: &str) {
        let (number, comm) = text.trim().split_once(' ').unwrap_or((text, ""));
        let Ok(tid) = event::tid(number) else { return };
        if tid > 0 && self.threads.len() < MAX_LISTED {
            self.threads
                .insert(tid, (self.process, event::comm(comm.trim())));
        }
    }

    /// Headers that the tools write.
    fn tool(&mut self, text: &str) -> bool {
        const LOST: [&str; 3] = ["overrun:", "commit overrun:", "dropped events:"];
        let lost = LOST.iter().find_map(|name| text.strip_prefix(name));
        if let Some((_, number)) = text.split_once("#P:") {
            self.format = Some(Format::Ftrace);
            self.pcpus(number, "ftrace's `#P:` header");
            self.entries(text);
        } else if let Some(number) = text.strip_prefix("cpus=") {
            self.format = Some(Format::TraceCmd);
            self.pcpus(number, "trace-cmd's `cpus=` header");
        } else if let Some(number) = lost {
            let events = number.trim().parse().unwrap_or(0);
            self.lost = self.lost.saturating_add(events);
        } else if text.starts_with("tracer:") {
            self.format = Some(Format::Ftrace);
        } else {
            return self.perf(text);
        }
        true
    }

    /// `perf script --header`: `nrcpus online : 4`, `os release : 6.12.1`.
    fn perf(&mut self, text: &str) -> bool {
        let Some((key, value)) = text.split_once(':') else {
            return false;
        };
        match key.trim() {
            "nrcpus online" => self.pcpus(value, "perf's `nrcpus online` header"),
            "os release" => {
                let value = event::comm(value.trim());
                self.kernel = Some(Fact {
                    value,
                    source: "perf's `os release` header",
                });
            }
            _ => return false,
        }
        self.format = Some(Format::PerfScript);
        true
    }

    /// `entries-in-buffer/entries-written: 1000/5000   #P:2`
    fn entries(&mut self, text: &str) {
        let numbers = text
            .split_once("entries-written:")
            .and_then(|(_, rest)| rest.split_whitespace().next())
            .and_then(|pair| pair.split_once('/'));
        let Some((kept, written)) = numbers else {
            return;
        };
        if let (Ok(kept), Ok(written)) = (kept.parse::<u64>(), written.parse::<u64>()) {
            self.overwritten = (kept < written).then_some((kept, written));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stated(lines: &[&str]) -> Stated {
        let mut stated = Stated::default();
        for line in lines {
            stated.comment(line);
        }
        stated
    }

    #[test]
    fn the_host_line() {
        let s = stated(&[" host: 2 pCPUs, kernel 7.2.13+x, scheduler EEVDF, clock mono"]);
        assert_eq!(s.pcpus.map(|f| f.value), Some(2));
        assert_eq!(s.kernel.map(|f| f.value).as_deref(), Some("7.2.13+x"));
        assert_eq!(s.scheduler.map(|f| f.value).as_deref(), Some("EEVDF"));
        assert_eq!(s.clock.map(|f| f.value).as_deref(), Some("mono"));
    }

    #[test]
    fn processes_and_their_threads() {
        let s = stated(&[
            " process 118 qemu -name a",
            " thread 126 CPU 0/KVM",
            " process 119 x",
        ]);
        assert_eq!(
            s.processes.get(&118).map(String::as_str),
            Some("qemu -name a")
        );
        assert_eq!(
            s.threads.get(&126),
            Some(&(Some(118), "CPU 0/KVM".to_string()))
        );
    }

    #[test]
    fn headers_of_the_tools() {
        let s = stated(&[
            " entries-in-buffer/entries-written: 10/30   #P:4",
            " overrun: 20",
        ]);
        assert_eq!((s.overwritten, s.lost), (Some((10, 30)), 20));
        assert_eq!(
            (s.pcpus.map(|f| f.value), s.format),
            (Some(4), Some(Format::Ftrace))
        );
        let s = stated(&["cpus=8"]);
        assert_eq!(
            (s.pcpus.map(|f| f.value), s.format),
            (Some(8), Some(Format::TraceCmd))
        );
        let s = stated(&[" nrcpus online : 4", " os release : 6.12.1"]);
        assert_eq!(s.pcpus.map(|f| f.value), Some(4));
        assert_eq!(s.kernel.map(|f| f.value).as_deref(), Some("6.12.1"));
    }

    #[test]
    fn nonsense_states_nothing() {
        let s = stated(&[
            "",
            " host:",
            " host: x pCPUs",
            " thread x",
            " process",
            "P:",
            "#P:x",
        ]);
        assert!(s.pcpus.is_none() && s.threads.is_empty() && s.processes.is_empty());
    }
}
