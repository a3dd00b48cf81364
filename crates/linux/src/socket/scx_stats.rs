// SPDX-License-Identifier: GPL-2.0-only
//! The protocol of the scx_stats library, which sched_ext schedulers have in common: scxtop, `scx_stats` clients and
//! its OpenMetrics exporter show corun like any of them.
//!
//! A request is a line of JSON, `{"req": "stats", "args": {"target": "top"}}` or `{"req": "stats_meta"}`,
//! and so is its answer, `{"errno": 0, "args": {"resp": …}}` (github.com/sched-ext/scx, rust/scx_stats:
//! server.rs, client.rs; stats.rs for what `stats_meta` says). That library's own server has no limits on
//! lines, connections and time and a thread for each connection; here the daemon answers as on its own socket
//! (client.rs), with the same limits. It is read-only: no request changes anything.
//!
//! Shares are those since the connection's last request; the first answer covers all the time in charge.

use super::protocol::{Command, Outcome, Reply};
use crate::status::{HostStatus, VcpuNow, VmNow};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Where clients of scx_stats look by default.
pub const DEFAULT: &str = "/var/run/scx/root/stats";

#[derive(Deserialize)]
struct Request {
    req: String,
    #[serde(default)]
    args: BTreeMap<String, String>,
}

/// What is answered to `stats`.
#[derive(Debug, Serialize)]
struct HostStats {
    version: String,
    policy: String,
    at_s: f64,
    interval_s: f64,
    vms: u64,
    vcpus: u64,
    run: f64,
    ready: f64,
    lapses: u64,
    vm: BTreeMap<String, VmStats>,
}

#[derive(Debug, Serialize)]
struct VmStats {
    pid: u64,
    vcpus: u64,
    weight: u64,
    under_policy: u64,
    placement: String,
    run_percent: f64,
    ready_percent: f64,
    costop_percent: f64,
    throttled_percent: f64,
    helpers_percent: f64,
    switches_per_s: f64,
}

/// A field of these: its name, its kind, its meaning.
type Field = (&'static str, &'static str, &'static str);

const HOST: [Field; 9] = [
    ("version", "string", "corun's version"),
    ("policy", "string", "the policy in force"),
    ("at_s", "float", "how long corun has been in charge, s"),
    ("interval_s", "float", "what the shares are of, s"),
    ("vms", "u64", "VMs"),
    ("vcpus", "u64", "their vCPUs"),
    ("run", "float", "vCPUs that ran, on average"),
    (
        "ready",
        "float",
        "vCPUs that wanted a pCPU and had none, on average",
    ),
    (
        "lapses",
        "u64",
        "how often VMs fell back to fair order because the daemon hung",
    ),
];

const VM: [Field; 11] = [
    ("pid", "u64", "its process"),
    ("vcpus", "u64", "its vCPUs"),
    (
        "weight",
        "u64",
        "cpu.weight of its own cgroup; 0: it has none",
    ),
    (
        "under_policy",
        "u64",
        "1: under the policy; 0: in fair order",
    ),
    ("placement", "string", "where its vCPUs may be queued"),
    ("run_percent", "float", "of its vCPUs' time: on a pCPU"),
    (
        "ready_percent",
        "float",
        "wanting one, co-stopped time included: steal",
    ),
    ("costop_percent", "float", "held back for siblings"),
    ("throttled_percent", "float", "throttled by cpu.max"),
    (
        "helpers_percent",
        "float",
        "its other threads on a pCPU, as a share of its vCPUs' time",
    ),
    (
        "switches_per_s",
        "float",
        "how often a vCPU was given a pCPU, per second",
    ),
];

/// A connection.
#[derive(Default)]
pub(super) struct Session {
    /// What it was sent last.
    before: Option<HostStatus>,
}

impl Session {
    /// The answer to a line, as it is sent.
    pub(super) fn answer(
        &mut self,
        line: &[u8],
        daemon: &mut dyn FnMut(Command) -> Reply,
    ) -> Vec<u8> {
        let request: Request = match serde_json::from_slice(line) {
            Ok(request) => request,
            Err(error) => return refusal(&format!("expected a request of scx_stats: {error}")),
        };
        let target = request.args.get("target").map_or("top", String::as_str);
        match (request.req.as_str(), target) {
            ("stats", "top") => self.stats(daemon),
            ("stats", other) => refusal(&format!("unknown target {other:?}, expected \"top\"")),
            ("stats_meta", _) => said(0, meta()),
            (other, _) => refusal(&format!(
                "unknown request {other:?}, expected \"stats\" or \"stats_meta\""
            )),
        }
    }

    fn stats(&mut self, daemon: &mut dyn FnMut(Command) -> Reply) -> Vec<u8> {
        let status = match daemon(Command::Status).outcome {
            Outcome::Ok(status) => status,
            Outcome::Error(error) => return said(libc::EIO, error.message.into()),
        };
        let now: HostStatus = match serde_json::from_value(status) {
            Ok(now) => now,
            Err(error) => return said(libc::EIO, error.to_string().into()),
        };
        let stats = stats(self.before.as_ref(), &now);
        self.before = Some(now);
        // Numbers, strings and maps of them: there is nothing in it that JSON does not have.
        said(0, serde_json::to_value(stats).unwrap_or_default())
    }
}

/// Why there is no answer to a request.
pub(super) fn refusal(message: &str) -> Vec<u8> {
    said(libc::EINVAL, message.into())
}

fn said(errno: i32, answer: Value) -> Vec<u8> {
    let reply = json!({ "errno": errno, "args": { "resp": answer } });
    format!("{reply}\n").into_bytes()
}

/// What clients that know nothing of corun need to know of its fields. Names that begin with `_om` are
/// for the OpenMetrics exporter.
fn meta() -> Value {
    let fields = |all: &[Field]| -> Map<String, Value> {
        let field = |(name, kind, about): &Field| {
            (name.to_string(), json!({ "datum": kind, "desc": about }))
        };
        all.iter().map(field).collect()
    };
    let mut host = fields(&HOST);
    let dict = json!({ "key": "string", "datum": { "struct": "CorunVm" } });
    host.insert(
        "vm".to_string(),
        json!({ "dict": dict, "desc": "VMs by name" }),
    );
    json!({
        "CorunHost": { "name": "CorunHost", "top": "true", "desc": "a host under corun",
            "user": { "_om_prefix": "corun_scx_" }, "fields": host },
        "CorunVm": { "name": "CorunVm", "desc": "a VM",
            "user": { "_om_prefix": "corun_scx_vm_", "_om_label": "domain" }, "fields": fields(&VM) },
    })
}

fn stats(before: Option<&HostStatus>, now: &HostStatus) -> HostStats {
    let interval_s = now.for_s - before.map_or(0.0, |then| then.for_s);
    let mut vms = BTreeMap::new();
    let (mut run, mut ready) = (0.0, 0.0);
    for vm in &now.vms {
        let did = Did::of(vm, before);
        run += ratio(did.run, interval_s);
        ready += ratio(did.ready, interval_s);
        // Two VMs may have one name, and a third may be called as the second is then.
        let mut name = vm.name.clone();
        while vms.contains_key(&name) {
            let _ = write!(name, "#{}", vm.pid);
        }
        vms.insert(name, vm_stats(vm, &did, interval_s));
    }
    HostStats {
        version: now.version.clone(),
        policy: now.policy.clone(),
        at_s: now.for_s,
        interval_s,
        vms: now.vms.len() as u64,
        vcpus: now.vms.iter().map(|vm| vm.vcpus.len() as u64).sum(),
        run,
        ready,
        lapses: now.lapses,
        vm: vms,
    }
}

fn vm_stats(vm: &VmNow, did: &Did, interval_s: f64) -> VmStats {
    let percent = |time_s: f64| 100.0 * ratio(time_s, interval_s * vm.vcpus.len() as f64);
    VmStats {
        pid: vm.pid.into(),
        vcpus: vm.vcpus.len() as u64,
        weight: vm.weight.unwrap_or(0).into(),
        under_policy: vm.under_policy.into(),
        placement: vm.placement.clone(),
        run_percent: percent(did.run),
        ready_percent: percent(did.ready),
        costop_percent: percent(did.costop),
        throttled_percent: percent(did.throttled),
        helpers_percent: percent(did.helpers),
        switches_per_s: ratio(did.switches, interval_s),
    }
}

/// What a VM did in an interval; s and counts.
#[derive(Default)]
struct Did {
    run: f64,
    ready: f64,
    costop: f64,
    throttled: f64,
    helpers: f64,
    switches: f64,
}

impl Did {
    fn of(vm: &VmNow, before: Option<&HostStatus>) -> Self {
        let old = before.and_then(|then| then.vms.iter().find(|old| old.pid == vm.pid));
        let mut did = Self::default();
        for vcpu in &vm.vcpus {
            let same = |old: &&VcpuNow| old.tid == vcpu.tid;
            let old = old.and_then(|old| old.vcpus.iter().find(same));
            // Counters begin with the vCPU.
            let since = |of: fn(&VcpuNow) -> f64| (of(vcpu) - old.map_or(0.0, of)).max(0.0);
            did.run += since(|vcpu| vcpu.run_s);
            did.ready += since(|vcpu| vcpu.ready_s);
            did.costop += since(|vcpu| vcpu.costop_s);
            did.throttled += since(|vcpu| vcpu.throttled_s);
            did.switches += since(|vcpu| vcpu.switches as f64);
        }
        let helpers = |vm: &VmNow| vm.helpers.iter().map(|all| all.run_s).sum::<f64>();
        did.helpers = (helpers(vm) - old.map_or(0.0, helpers)).max(0.0);
        did
    }
}

/// A share of nothing is 0.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests;
