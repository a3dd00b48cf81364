// SPDX-License-Identifier: GPL-2.0-only
//! The content of a recording: VM by VM, how much its vCPUs ran and waited, who woke them, and why they left their
//! guests.

use corun_linux::record::{Missing, Progress};
use corun_model::{Nanos, counted, time};
use corun_recording::{ExitClass, Recording, Vm, Wakers};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// A VM's vCPUs together.
#[derive(Default)]
struct Sum {
    run: Nanos,
    ready: Nanos,
    wakers: Wakers,
    exits: BTreeMap<ExitClass, u64>,
}

impl Sum {
    fn of(recording: &Recording, vm: &Vm) -> Self {
        let mut sum = Self::default();
        for task in vm.vcpus.iter().filter_map(|&id| recording.task(id)) {
            let (seen, wakers) = (&task.observed, task.observed.wakers);
            sum.run += seen.run;
            sum.ready += seen.ready;
            sum.wakers.siblings += wakers.siblings;
            sum.wakers.vm_threads += wakers.vm_threads;
            sum.wakers.others += wakers.others;
            sum.wakers.interrupts += wakers.interrupts;
            sum.wakers.timers += wakers.timers;
            sum.wakers.unknown += wakers.unknown;
            for (class, count) in task.kvm.exits_by_class() {
                *sum.exits.entry(class).or_default() += count;
            }
        }
        sum
    }

    /// Who woke them, by name.
    fn woken_by(&self) -> [(&'static str, u64); 6] {
        [
            ("siblings", self.wakers.siblings),
            ("vm threads", self.wakers.vm_threads),
            ("others", self.wakers.others),
            ("interrupts", self.wakers.interrupts),
            ("timers", self.wakers.timers),
            ("unknown", self.wakers.unknown),
        ]
    }
}

/// For people.
pub fn text(recording: &Recording) -> String {
    let mut text = format!(
        "{} on {}, kernel {}, under {}\n",
        time::show(recording.duration()),
        counted(recording.host.pcpus.value, "pCPU"),
        known(recording.host.kernel.as_ref().map(|fact| &fact.value)),
        known(recording.host.scheduler.as_ref().map(|fact| &fact.value)),
    );
    for vm in &recording.vms {
        let sum = Sum::of(recording, vm);
        let whole = recording.duration().max(1) as f64 * vm.vcpus.len().max(1) as f64 / 100.0;
        let (run, ready) = (sum.run as f64 / whole, sum.ready as f64 / whole);
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{}: {}, run {run:.1} %, ready {ready:.1} % of their time",
            vm.name,
            counted(vm.vcpus.len(), "vCPU")
        );
        let counts = |counts: &mut dyn Iterator<Item = (&'static str, u64)>| {
            let some = counts.filter(|(_, count)| *count > 0);
            let some: Vec<String> = some
                .map(|(what, count)| format!("{what} {count}"))
                .collect();
            some.join(", ")
        };
        let woken = counts(&mut sum.woken_by().into_iter());
        let exits = counts(
            &mut sum
                .exits
                .iter()
                .map(|(class, count)| (class.name(), *count)),
        );
        for (what, counted) in [("woken by", woken), ("exits", exits)] {
            if !counted.is_empty() {
                let _ = writeln!(text, "  {what}: {counted}");
            }
        }
    }
    text
}

fn known(text: Option<&String>) -> &str {
    text.map_or("unknown", String::as_str)
}

/// For programs. `missing` is what was not available, if that is known.
pub fn json(
    file: &Path,
    progress: &Progress,
    missing: Option<&[Missing]>,
    recording: Option<&Recording>,
) -> Value {
    let vm = |recording: &Recording, vm: &Vm| {
        let sum = Sum::of(recording, vm);
        let woken_by = sum
            .woken_by()
            .map(|(what, count)| (what.replace(' ', "_"), count));
        let exits = sum
            .exits
            .iter()
            .map(|(class, count)| (class.name(), *count));
        json!({
            "name": vm.name,
            "vcpus": vm.vcpus.len(),
            "run_ns": sum.run,
            "ready_ns": sum.ready,
            "woken_by": woken_by.into_iter().collect::<BTreeMap<String, u64>>(),
            "exits": exits.collect::<BTreeMap<&str, u64>>(),
        })
    };
    let vms = recording.map(|recording| {
        let vms = recording.vms.iter().map(|it| vm(recording, it));
        vms.collect::<Vec<_>>()
    });
    let missing = missing.map(|all| all.iter().map(|it| it.what).collect::<Vec<_>>());
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "file": file.display().to_string(),
        "duration_ns": progress.elapsed,
        "events": progress.events,
        "lost": progress.lost,
        "bytes": progress.bytes,
        "missing": missing,
        "vms": vms.unwrap_or_default(),
    })
}
