// SPDX-License-Identifier: GPL-2.0-only
//! Runs scenarios through `corun compare --json` and takes figures from what it prints.

use crate::common;
use serde_json::Value;
use std::fmt;

/// The runs of one command.
pub struct Runs(Vec<Value>);

/// One run, a case with a seed.
pub struct Run<'a>(&'a Value);

/// Runs a scenario of `experiments/emergence`, with these settings.
pub fn compare(scenario: &str, args: &[&str]) -> Runs {
    let dir = common::in_tree("experiments/emergence");
    let compare = ["compare", &format!("{scenario}.toml"), "--json", "-q"];
    let output = common::corun_in(&dir, &[&compare, args].concat());
    let json = common::json(output);
    Runs(json["runs"].as_array().unwrap().clone())
}

/// The same with each of these values of a key; `args` are for all.
pub fn sweep(scenario: &str, key: &str, values: &[&str], args: &[&str]) -> Vec<Runs> {
    let run = |value: &&str| {
        let set = format!("{key}={value}");
        compare(scenario, &[&["--set", &set], args].concat())
    };
    values.iter().map(run).collect()
}

impl Runs {
    /// The runs under one policy.
    pub fn under(&self, policy: &str) -> Self {
        let runs = self.0.iter().filter(|run| run["policy"] == policy);
        Self(runs.cloned().collect())
    }

    /// A figure over the seeds of a case.
    pub fn of(&self, case: &str, figure: impl Fn(Run) -> f64) -> Spread {
        let runs = self.0.iter().filter(|run| run["case"] == case);
        Spread::of(runs.map(|run| figure(Run(run))).collect())
    }

    /// Its mean, where seeds end in one of two states.
    pub fn mean(&self, figure: impl Fn(Run) -> f64) -> f64 {
        let all = self.0.iter().map(|run| figure(Run(run)));
        all.sum::<f64>() / self.0.len() as f64
    }
}

impl Run<'_> {
    /// A number of the host.
    pub fn host(&self, figure: &str) -> f64 {
        self.0["host"][figure].as_f64().unwrap()
    }

    /// A number of a VM; 0 if there is none, as a mean without events.
    pub fn vm(&self, name: &str, figure: &str) -> f64 {
        number(&self.named("vms", name)[figure])
    }

    /// A number of all VMs together.
    pub fn all_vms(&self, figure: &str) -> f64 {
        let vms = self.0["vms"].as_array().unwrap().iter();
        vms.map(|vm| number(&vm[figure])).sum()
    }

    /// A number of all tasks of the host together.
    pub fn all_tasks(&self, figure: &str) -> f64 {
        let tasks = self.0["tasks"].as_array().unwrap().iter();
        tasks.map(|task| number(&task[figure])).sum()
    }

    /// MB/s of a VM's disk.
    pub fn disk_rate(&self, vm: &str) -> f64 {
        number(&self.named("vms", vm)["io"]["bytes_per_s"]) / 1e6
    }

    /// MB/s of all VMs' disks.
    pub fn disk_total(&self) -> f64 {
        let vms = self.0["vms"].as_array().unwrap().iter();
        vms.map(|vm| number(&vm["io"]["bytes_per_s"])).sum::<f64>() / 1e6
    }

    /// A number of a client.
    pub fn client(&self, name: &str, figure: &str) -> f64 {
        number(&self.named("clients", name)[figure])
    }

    fn named(&self, kind: &str, name: &str) -> &Value {
        let all = self.0[kind].as_array().unwrap();
        all.iter().find(|one| one["name"] == name).unwrap()
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

/// A median with its range.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            1 => values[middle],
            _ => (values[middle - 1] + values[middle]) / 2.0,
        };
        Self {
            median,
            low: values[0],
            high: values[values.len() - 1],
        }
    }

    /// Converts to other units.
    pub fn times(self, factor: f64) -> Self {
        Self {
            median: self.median * factor,
            low: self.low * factor,
            high: self.high * factor,
        }
    }
}

/// Three figures, or the whole number if it has more.
fn short(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 99.95 || v == 0.0 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let [median, low, high] = [self.median, self.low, self.high].map(short);
        match low == high {
            true => write!(f, "{median}"),
            false => write!(f, "{median} ({low}–{high})"),
        }
    }
}
