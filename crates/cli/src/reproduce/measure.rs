// SPDX-License-Identifier: GPL-2.0-only
//! Measured values: which run, and which of its numbers.
//!
//! `[balance in balance/exp1 @ 2 VMs: vm.web.throughput]`: policy, experiment, case, and the path of a
//! number in what `corun compare --json` prints of a run, with names instead of positions.

use super::claims::matches;
use corun_report::{
    AgentResult, ClientResult, DiskResult, HostResult, IoResult, KernelResult, Recognised,
    SiblingResult, TaskResult, VmResult,
};
use corun_scenario::or_nearest;
use serde::Serialize;
use serde_json::Value;

/// What may be left out of a reference.
#[derive(Clone, Debug, Default)]
pub struct Defaults {
    /// The experiment.
    pub experiment: Option<String>,
    /// Its case.
    pub case: Option<String>,
    /// The path.
    pub measure: Option<String>,
}

/// A number in the runs of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// Under this policy.
    pub policy: String,
    /// Such as `balance/table1`.
    pub experiment: String,
    /// Its case; `None` for the only one.
    pub case: Option<String>,
    /// Which number.
    pub path: Path,
}

/// Which number of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    fold: Option<Fold>,
    section: Section,
    /// A pattern; empty for the host.
    name: String,
    field: Field,
}

/// Which of the numbers of a VM, a client and so on.
#[derive(Clone, Debug, PartialEq)]
enum Field {
    /// Keys, such as `io.wait_p99_us`.
    Known(String),
    /// What a VM counts besides its throughput, by its unit: only a run knows which there are.
    Counted(String),
}

/// The place of these among the values measured for a VM.
const COUNTED: &str = "other_throughputs";

impl Field {
    /// The number in what was measured; NaN if it was not.
    ///
    /// # Errors
    /// If nothing of this unit is counted.
    fn of(&self, measured: &Value) -> Result<f64, String> {
        let value = match self {
            Self::Known(path) => path.split('.').try_fold(measured, |of, key| of.get(key)),
            Self::Counted(unit) => Some(counted(measured, unit)?),
        };
        Ok(value.and_then(Value::as_f64).unwrap_or(f64::NAN))
    }
}

fn counted<'a>(vm: &'a Value, unit: &str) -> Result<&'a Value, String> {
    let all = vm.get(COUNTED).and_then(Value::as_object);
    all.and_then(|all| all.get(unit)).ok_or_else(|| {
        let units: Vec<&str> = all
            .into_iter()
            .flatten()
            .map(|(unit, _)| &unit[..])
            .collect();
        let (name, hint) = (&vm["name"], or_nearest(unit, &units));
        format!("VM {name} counts no {unit:?} besides its throughput, {hint}")
    })
}

/// How several numbers become one.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fold {
    Sum,
    Mean,
    Min,
    Max,
}

const FOLDS: [(&str, Fold); 4] = [
    ("sum", Fold::Sum),
    ("mean", Fold::Mean),
    ("min", Fold::Min),
    ("max", Fold::Max),
];

/// What the number belongs to.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Section {
    Host,
    Vm,
    Task,
    Disk,
    Client,
}

impl Section {
    const NAMES: [(&'static str, Self); 5] = [
        ("host", Self::Host),
        ("vm", Self::Vm),
        ("task", Self::Task),
        ("disk", Self::Disk),
        ("client", Self::Client),
    ];

    /// Its key in a run.
    fn key(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Vm => "vms",
            Self::Task => "tasks",
            Self::Disk => "disks",
            Self::Client => "clients",
        }
    }

    /// The paths of all its numbers.
    fn fields(self) -> Vec<String> {
        let vm = || VmResult {
            io: Some(IoResult::default()),
            agent: Some(AgentResult::default()),
            siblings: Some(SiblingResult::default()),
            kernel: Some(KernelResult::default()),
            recognised: Some(Recognised::default()),
            guest_cpu_share: Some(0.0),
            beyond_recording_share: Some(0.0),
            ..VmResult::default()
        };
        match self {
            Self::Host => fields(&HostResult::default()),
            Self::Vm => fields(&vm()),
            Self::Task => fields(&TaskResult::default()),
            Self::Disk => fields(&DiskResult::default()),
            Self::Client => fields(&ClientResult::default()),
        }
    }
}

/// The paths of all numbers of a result.
fn fields(result: &impl Serialize) -> Vec<String> {
    fn walk(value: &Value, path: &str, all: &mut Vec<String>) {
        match value {
            Value::Object(inner) => inner.iter().for_each(|(key, value)| {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                walk(value, &path, all);
            }),
            Value::Number(_) | Value::Null => all.push(path.to_string()),
            _ => {}
        }
    }
    let mut all = Vec::new();
    if let Ok(value) = serde_json::to_value(result) {
        walk(&value, "", &mut all);
    }
    all
}

impl Reference {
    /// Reads what stands in the brackets.
    ///
    /// # Errors
    /// What is missing or unknown.
    pub fn parse(text: &str, defaults: &Defaults) -> Result<Self, String> {
        let split = |text: &str, at: &str| match text.split_once(at) {
            Some((head, tail)) => (head.trim().to_string(), Some(tail.trim().to_string())),
            None => (text.trim().to_string(), None),
        };
        let (run, path) = split(text, ":");
        let (run, case) = split(&run, "@");
        let (policy, experiment) = split(&run, " in ");
        let here = experiment.is_none();
        let experiment = experiment.or(defaults.experiment.clone());
        // The default case belongs to the default experiment.
        let case = case.or(defaults.case.clone().filter(|_| here));
        let path = path.or(defaults.measure.clone());
        let missing = |what: &str, key: &str| {
            format!("[{text}]: says no {what}, and neither does the check's key `{key}`")
        };
        Ok(Self {
            policy,
            experiment: experiment.ok_or_else(|| missing("experiment", "experiment"))?,
            case,
            path: Path::parse(&path.ok_or_else(|| missing("path", "measure"))?)?,
        })
    }
}

impl Path {
    fn parse(text: &str) -> Result<Self, String> {
        let (fold, path) = match text.split_once(' ') {
            None => (None, text),
            Some((word, path)) => match FOLDS.iter().find(|(name, _)| *name == word) {
                Some((_, fold)) => (Some(*fold), path.trim()),
                None => (None, text),
            },
        };
        let (word, rest) = path.split_once('.').unwrap_or((path, ""));
        let known = Section::NAMES;
        let Some((_, section)) = known.into_iter().find(|(name, _)| *name == word) else {
            let hint = or_nearest(word, &known.map(|(name, _)| name));
            return Err(format!("path {text:?}: begins with {word:?}, {hint}"));
        };
        let counts = rest.split_once(&format!(".{COUNTED}."));
        if let (Section::Vm, Some((name, unit))) = (section, counts) {
            return Ok(Self {
                fold,
                section,
                name: name.to_string(),
                field: Field::Counted(unit.to_string()),
            });
        }
        let fields = section.fields();
        let (name, field) = match section {
            Section::Host => ("", rest),
            // Names may have dots, too: the field is the part that is known.
            _ => longest(rest, &fields).unwrap_or(rest.split_once('.').unwrap_or((rest, ""))),
        };
        if !fields.iter().any(|known| known == field) {
            let known: Vec<&str> = fields.iter().map(String::as_str).collect();
            let hint = or_nearest(field, &known);
            return Err(format!("path {text:?}: unknown measure {field:?}, {hint}"));
        }
        Ok(Self {
            fold,
            section,
            name: name.to_string(),
            field: Field::Known(field.to_string()),
        })
    }

    /// The number in a run; NaN if it was not measured.
    ///
    /// # Errors
    /// If the run has nothing of this name or unit, or several where one is expected.
    pub fn of(&self, run: &Value) -> Result<f64, String> {
        let all = run.get(self.section.key()).unwrap_or(&Value::Null);
        if self.section == Section::Host {
            return self.field.of(all);
        }
        let all = all.as_array().map_or(&[][..], |all| &all[..]);
        let name = |of: &Value| of["name"].as_str().unwrap_or_default().to_string();
        let found = all.iter().filter(|of| matches(&self.name, &name(of)));
        let values: Vec<f64> = found
            .map(|of| self.field.of(of))
            .collect::<Result<_, _>>()?;
        let kind = self.section.key();
        match (&values[..], self.fold) {
            ([], _) => {
                let names: Vec<String> = all.iter().map(name).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let hint = or_nearest(&self.name, &names);
                Err(format!(
                    "none of the run's {kind} is {:?}, {hint}",
                    self.name
                ))
            }
            ([value], _) => Ok(*value),
            (several, None) => Err(format!(
                "{} of the run's {kind} are {:?}: say sum, mean, min or max before the path",
                several.len(),
                self.name
            )),
            (several, Some(fold)) => Ok(folded(several, fold)),
        }
    }
}

/// The longest known field that a path ends with, and what is before it.
fn longest<'a>(rest: &'a str, fields: &[String]) -> Option<(&'a str, &'a str)> {
    let ends = fields.iter().filter_map(|field| {
        let name = rest.strip_suffix(field.as_str())?.strip_suffix('.')?;
        Some((name, &rest[name.len() + 1..]))
    });
    ends.max_by_key(|(_, field)| field.len())
}

/// If some were not measured, the result was not.
fn folded(values: &[f64], fold: Fold) -> f64 {
    let sum: f64 = values.iter().sum();
    match fold {
        _ if sum.is_nan() => f64::NAN,
        Fold::Sum => sum,
        Fold::Mean => sum / values.len() as f64,
        Fold::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
        Fold::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn value(text: &str) -> Result<f64, String> {
        let vm = |name: &str, throughput: u32| {
            json!({"name": name, "throughput": throughput, "lock_wait_mean_us": null,
                   "io": {"wait_p50_us": 7.5}})
        };
        let run = json!({
            "host": {"stacking": {"two": 0.25}},
            "vms": [vm("web1", 10), vm("web2", 30), vm("d.b", 5),
                    {"name": "c", "throughput": 1, "other_throughputs": {"images/s": 2.5}}],
        });
        Path::parse(text).unwrap().of(&run)
    }

    #[test]
    fn numbers_are_found_by_names() {
        assert_eq!(value("host.stacking.two"), Ok(0.25));
        assert_eq!(value("vm.web2.throughput"), Ok(30.0));
        assert_eq!(value("vm.d.b.io.wait_p50_us"), Ok(7.5));
        assert_eq!(value("vm.c.other_throughputs.images/s"), Ok(2.5));
        assert_eq!(value("sum vm.web*.throughput"), Ok(40.0));
        assert_eq!(value("mean vm.*b*.throughput"), Ok(15.0));
        assert_eq!(value("min vm.*b*.throughput"), Ok(5.0));
        assert_eq!(value("max vm.*.throughput"), Ok(30.0));
        assert!(value("vm.web1.lock_wait_mean_us").unwrap().is_nan());
        assert!(value("sum vm.web*.lock_wait_mean_us").unwrap().is_nan());
        assert!(value("vm.web1.io.wait_p99_us").unwrap().is_nan());
    }

    #[test]
    fn names_that_nothing_has_are_told() {
        assert_eq!(
            value("vm.web3.throughput").unwrap_err(),
            "none of the run's vms is \"web3\", did you mean \"web1\"? Accepted are web1, web2, d.b, c"
        );
        assert!(
            value("vm.web*.throughput")
                .unwrap_err()
                .starts_with("2 of the run's vms are")
        );
        let counts = value("vm.c.other_throughputs.image/s").unwrap_err();
        assert!(counts.starts_with(
            "VM \"c\" counts no \"image/s\" besides its throughput, did you mean \"images/s\"?"
        ));
        assert!(value("vm.web1.other_throughputs.images/s").is_err());
        assert!(
            value("disk.a.utilisation")
                .unwrap_err()
                .ends_with("nothing is accepted here")
        );
    }

    #[test]
    fn paths_are_known_before_anything_runs() {
        let wrong = |text| Path::parse(text).unwrap_err();
        assert!(
            wrong("vms.a.throughput").starts_with(
                "path \"vms.a.throughput\": begins with \"vms\", did you mean \"vm\"?"
            )
        );
        assert!(wrong("vm.a.troughput").contains("did you mean \"throughput\"?"));
        assert!(wrong("host.stacking").contains("unknown measure \"stacking\""));
        assert!(Path::parse("vm.a.siblings.co_run_share").is_ok());
        assert!(wrong("vm.a.name").contains("unknown measure"));
        assert!(Path::parse("vm.a.siblings.co_run_share").is_ok());
        assert!(wrong("").contains("begins with \"\""));
    }

    #[test]
    fn a_reference_says_what_differs_from_the_defaults() {
        let defaults = Defaults {
            experiment: Some("balance/a".to_string()),
            case: Some("1 VM".to_string()),
            measure: Some("host.idle_share".to_string()),
        };
        let read = |text| Reference::parse(text, &defaults).unwrap();
        let short = read("cfs");
        assert_eq!((&*short.policy, &*short.experiment), ("cfs", "balance/a"));
        assert_eq!(short.case.as_deref(), Some("1 VM"));
        let long = read("cosched-dt in balance/b @ 2 VMs: vm.a.throughput");
        assert_eq!(
            (&*long.policy, &*long.experiment),
            ("cosched-dt", "balance/b")
        );
        assert_eq!(long.case.as_deref(), Some("2 VMs"));
        assert_eq!(long.path.name, "a");
        assert_eq!(read("cfs in balance/b").case, None);
        let nothing = Reference::parse("cfs: host.idle_share", &Defaults::default());
        assert!(nothing.unwrap_err().contains("says no experiment"));
    }
}
