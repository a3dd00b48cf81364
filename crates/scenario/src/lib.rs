// SPDX-License-Identifier: GPL-2.0-only
//! Reads a host scenario: a TOML file that says what a host looks like, which VMs it has, what they
//! do, and how to run it. `docs/scenario.md` lists every key.
//!
//! A scenario becomes plain data ([`Scenario`]): names of workloads and presets and the texts of programs stay texts
//! with their places, for those crates that know what they mean. Everything else is checked here, and every problem
//! found is reported at once, with file, line, key, what was found and what is accepted.
//!
//! On its way a document passes through [`tree`] (positions kept), [`merge`] (cases and overrides
//! from the command line), [`reader`] (typed access) and the sections.

mod calibration;
mod cgroups;
mod disks;
mod hardware;
mod host;
pub mod merge;
mod names;
mod network;
mod policy;
mod problem;
pub mod reader;
mod settings;
mod suggest;
mod symbiosis;
pub mod tree;
mod vms;

pub use calibration::{Calibrated, CalibrationFile, calibration};
pub use cgroups::{CgroupKeys, CpuMax, Group};
pub use corun_model::nearest;
pub use disks::{AnticipatoryKeys, DeadlineKeys, Disk, DiskUse, HddKeys, SsdKeys};
pub use merge::Override;
pub use network::{Channel, Client, ClientKind, Network, Requests};
pub use policy::{CALIBRATED, CalibrationSaid, PolicyKeys};
pub use problem::{Located, Place, Problem, Problems};
pub use settings::{
    Case, CfsKeys, CorunKeys, Costs, Demand, EevdfKeys, EmulatorKeys, GuestKeys, HaltPoll,
    Hardware, Host, HostTask, RtApp, Run, Scenario, Schedulers, Smt, Thread, Vm, Workload,
};
pub use suggest::or_nearest;

use reader::{Collected, Reader};

/// Names of the limits that hold for every scenario.
pub mod limits {
    /// vCPUs of one VM.
    pub const VCPUS_PER_VM: u32 = 512;
    /// vCPUs of all VMs; host tasks in all.
    pub const VCPUS: u32 = 4096;
    /// A VM's cap in percent of one pCPU: that of as many pCPUs as there may be.
    pub const CAP: u32 = 51_200;
    /// Threads of one VM.
    pub const THREADS: u32 = 65_536;
    /// Threads of all VMs: some 200 MB of memory in each run that goes on at the same time.
    pub const ALL_THREADS: usize = 131_072;
    /// Connections of one client.
    pub const CONNECTIONS: u32 = 65_536;
    /// cgroups around VMs.
    pub const GROUPS: u32 = 1024;
    /// All cgroups, if vCPUs have some to themselves: as many as the dispatcher has room for.
    pub const CGROUPS: u32 = 4096;
    /// Bytes of a scenario file; the largest sensible ones have a few thousand.
    pub const FILE_BYTES: usize = 1 << 20;
    /// Cases of a scenario.
    pub const CASES: usize = 256;
}

/// Reads the scenario `text`, which came from the file that `file` names, with `overrides` on top.
///
/// # Errors
/// Everything that is wrong with it.
pub fn read(file: &str, text: &str, overrides: &[Override]) -> Result<Scenario, Problems> {
    let (scenario, problems) = read_as_far(file, text, overrides);
    problems.or_ok(scenario)
}

/// As [`read`]. If something is wrong, what could be read of the scenario comes with it, for callers that check names
/// and programs: cases with those of their VMs and tasks that could be read completely.
pub fn read_as_far(file: &str, text: &str, overrides: &[Override]) -> (Scenario, Problems) {
    let nothing = || Scenario {
        file: file.to_string(),
        title: None,
        source: None,
        cases: Vec::new(),
    };
    let documents = tree::parse(file, text).and_then(|document| merge::cases(document, overrides));
    let documents = match documents {
        Ok(documents) => documents,
        Err(problems) => return (nothing(), problems),
    };
    let problems = Collected::default();
    let mut cases = Vec::new();
    let (mut title, mut source) = (None, None);
    for (name, document) in &documents {
        let top = Reader::top(document, file, &problems);
        (title, source) = (top.text("title"), top.text("source"));
        for (key, said) in [("title", &title), ("source", &source)] {
            if said.iter().any(|text| text.contains(char::is_control)) {
                top.problem(key, "found a control character, expected one line");
            }
        }
        cases.extend(case(name, &top));
        // The scenario's own cases were taken out of the document.
        if let Some(within) = top.find("case") {
            top.problem_at(&within.place, "case: a case has no cases of its own");
        }
        top.finish();
    }
    let scenario = Scenario {
        title,
        source,
        cases,
        ..nothing()
    };
    (scenario, problems.into_all())
}

/// Does this text look like a scenario, or at least like an attempt at one? Used to tell scenarios
/// from recordings by content: a scenario's first meaningful line is a table header, perhaps without its bracket at
/// the end, or `key = `.
pub fn looks_like_scenario(text: &str) -> bool {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines().map(str::trim);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
    first.is_some_and(|line| {
        let name = line.trim_start_matches('[');
        let end = name
            .find(|c: char| !(c.is_ascii_alphanumeric() || "_-.\"' ".contains(c)))
            .unwrap_or(name.len());
        let (name, rest) = name.split_at(end);
        let unclosed = rest.is_empty() && name.starts_with(|c: char| c.is_ascii_alphabetic());
        let header = line.starts_with('[') && (rest.starts_with(']') || unclosed);
        (header || rest.starts_with('=')) && !name.trim().is_empty()
    })
}

fn case(name: &str, top: &Reader<'_>) -> Option<Case> {
    let host = top.table("host").and_then(host::host);
    let run = host::run(top.table("run"));
    let mut schedulers = host::schedulers(top.table("scheduler"));
    schedulers.policies = policy::policies(top.table("policy"));
    // Without a host, lists of pCPUs cannot be checked; everything else can.
    let pcpus = host.as_ref().map(|host| host.topology.pcpus());
    let disks = disks::disks(top);
    let groups = cgroups::groups(top);
    let vms = vms::vms(top, pcpus, &disks, &groups);
    let tasks = vms::tasks(top, pcpus, &vms);
    let network = network::network(top.table("network"));
    let clients = network::clients(top, &vms);
    let channels = network::channels(top, &vms);
    if !top.has("host") {
        top.missing("host", "a table with topology = \"1n1l4c1t\" or pcpus = 4");
    }
    if top.is_empty("vm") && top.is_empty("task") {
        top.missing("vm", "at least one table such as [vm.web]");
    }
    Some(Case {
        name: name.to_string(),
        host: host?,
        run: run?,
        schedulers,
        disks,
        groups,
        vms: vms.read,
        tasks,
        network,
        clients,
        channels,
    })
}
