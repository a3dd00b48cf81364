// SPDX-License-Identifier: GPL-2.0-only
//! What the dispatcher's callbacks cost, in instructions: `make bench-decisions`.
//!
//! Problem: times on a shared machine prove nothing of how a decision's cost grows, and what passes
//! the tap (`corun bench`) leaves out what is computed between.
//! How: a busy host of each size is simulated under each policy, scheduled by the build that goes
//! through pCPUs one by one as the kernel's does (`dispatcher/platform/native.h`, PLAIN), within
//! callgrind. That counts while a callback runs, and not while the callback has the host do something
//! (move a task, start a timer: in the kernel that is the kernel's own work); after each callback it is
//! asked how much that is by now. The same compiler gives the same numbers on every machine.
//!
//! Options: `--policy NAME`, `--quick` (fewer sizes), `--markdown` (tables for docs/cost.md).

#![allow(clippy::expect_used)] // the hosts are ours

use corun_dispatcher::Callback;
use corun_policies::PolicyInfo;
use corun_sim::complexity::{self, Size};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::error::Error;
use std::process::{Command, ExitCode, Stdio};
use std::rc::Rc;

/// Callbacks that are counted on a host, once it is as usual.
const MOST_CALLS: usize = 4000;

/// How one asks callgrind how much it has counted: a monitor command, whose answer goes to its log.
const ASK: &[u8] = b"status internal\0";

/// What a callback cost.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    calls: u64,
    sum: u64,
    most: u64,
}

impl Tally {
    fn mean(self) -> u64 {
        (self.sum + self.calls / 2) / self.calls.max(1)
    }
}

type Costs = BTreeMap<String, Tally>;

/// Sends valgrind a request, if this runs within it; else nothing happens.
#[cfg(target_arch = "x86_64")]
fn ask_valgrind() {
    /// `VG_USERREQ__GDB_MONITOR_COMMAND` of valgrind.h.
    const MONITOR_COMMAND: u64 = 0x1202;
    let request: [u64; 6] = [MONITOR_COMMAND, ASK.as_ptr() as u64, 0, 0, 0, 0];
    // SAFETY: the rotations add up to nothing and the exchange is of a register with itself; within
    // valgrind, that sequence reads the six words at rax, which live until it is over, and what the
    // second of them points at, a constant.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") request.as_ptr(),
            inout("rdx") 0u64 => _,
        );
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn ask_valgrind() {}

/// Within callgrind: lets the host run, asks after each callback, and prints their names.
fn run(policy: &PolicyInfo, size: Size) -> bool {
    let names = Rc::new(RefCell::new(Vec::new()));
    let noted = Rc::clone(&names);
    let told = Box::new(move |callback: Callback, usual: bool| {
        let mut noted = noted.borrow_mut();
        // One more than is counted: costs are differences.
        if usual && noted.len() <= MOST_CALLS {
            ask_valgrind();
            noted.push(callback.name());
        }
    });
    let can_be = complexity::watch(policy, size, told);
    println!("{}", names.borrow().join("\n"));
    can_be
}

/// What callgrind answered, one by one: what it had counted by then.
fn answers(log: &str) -> Vec<u64> {
    let count = |line: &str| line.trim().strip_prefix("events-1: ")?.parse().ok();
    log.lines().filter_map(count).collect()
}

/// Runs this program within callgrind on such a host, and makes sense of what both say.
fn count(policy: &PolicyInfo, size: Size) -> Result<Costs, Box<dyn Error>> {
    let program = std::env::current_exe()?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(["--toggle-collect=plain_corun_*"])
        // What the host does for a callback: the functions of the table in native.rs.
        .args(["--toggle-collect=*corun_dispatcher*native*Table*"])
        .arg(program)
        .args(["--within", policy.name])
        .args([size.pcpus, size.per_pcpu, size.siblings].map(|n| n.to_string()))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("valgrind: {error}; scripts/install.sh bench installs it"))?;
    let log = String::from_utf8_lossy(&output.stderr);
    let said = String::from_utf8_lossy(&output.stdout);
    let names: Vec<&str> = said.lines().collect();
    let counts = answers(&log);
    if !output.status.success() || counts.len() != names.len() || counts.len() < 2 {
        let (asked, answered) = (names.len(), counts.len());
        return Err(format!("callgrind answered {answered} of {asked} questions: {log}").into());
    }
    let mut costs = Costs::new();
    for (name, pair) in names[1..].iter().zip(counts.windows(2)) {
        let cost = pair[1] - pair[0];
        let tally = costs.entry((*name).to_owned()).or_default();
        tally.calls += 1;
        tally.sum += cost;
        tally.most = tally.most.max(cost);
    }
    Ok(costs)
}

/// The callbacks that tables show, in a task's order through them.
const SHOWN: [&str; 6] = [
    "select_cpu",
    "enqueue",
    "dispatch",
    "running",
    "stopping",
    "timer",
];

fn cells(costs: &Costs) -> Vec<String> {
    let cell = |name: &&str| match costs.get(*name) {
        Some(tally) => format!("{}; {}", tally.mean(), tally.most),
        None => "–".to_owned(),
    };
    SHOWN.iter().map(cell).collect()
}

fn table(policy: &PolicyInfo, sizes: &[[u32; 3]], markdown: bool) -> Result<(), Box<dyn Error>> {
    if markdown {
        let heads = SHOWN.join(" | ");
        println!("\n| {}: pCPUs, siblings, waiting | {heads} |", policy.name);
        println!("|---|{}", "---|".repeat(SHOWN.len()));
    } else {
        let heads: String = SHOWN.iter().map(|head| format!("{head:>16}")).collect();
        println!("\n{:<20}pCPUs siblings waiting{heads}", policy.name);
    }
    for &[pcpus, siblings, per_pcpu] in sizes {
        let cells = cells(&count(
            policy,
            Size::new(policy, pcpus, per_pcpu, siblings),
        )?);
        if markdown {
            println!(
                "| {pcpus}, {siblings}, {per_pcpu} | {} |",
                cells.join(" | ")
            );
        } else {
            let cells: String = cells.iter().map(|cell| format!("{cell:>16}")).collect();
            println!("{:<20}{pcpus:>5}{siblings:>9}{per_pcpu:>8}{cells}", "");
        }
    }
    Ok(())
}

/// All sizes: pCPUs, vCPUs of a VM, vCPUs per pCPU. `quick`: one in the middle, and one thing otherwise.
fn sizes(quick: bool) -> Vec<[u32; 3]> {
    if quick {
        let pcpus = [8, 32, 128].map(|pcpus| [pcpus, 4, 2]);
        return [&pcpus[..], &[[32, 2, 2], [32, 16, 2], [32, 4, 16]]].concat();
    }
    let mut all = Vec::new();
    for pcpus in [8, 32, 128] {
        for siblings in [2, 4, 16] {
            for per_pcpu in [2, 16] {
                all.push([pcpus, siblings, per_pcpu]);
            }
        }
    }
    all
}

fn within(args: &[String]) -> Option<bool> {
    let [policy, numbers @ ..] = args else {
        return None;
    };
    let numbers: Vec<u32> = numbers.iter().map_while(|n| n.parse().ok()).collect();
    let &[pcpus, per_pcpu, siblings] = numbers.as_slice() else {
        return None;
    };
    let policy = corun_policies::find(policy)?;
    Some(run(policy, Size::new(policy, pcpus, per_pcpu, siblings)))
}

fn measure(args: &[String]) -> Result<(), Box<dyn Error>> {
    let mut wanted = None;
    let (mut quick, mut markdown) = (false, false);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--bench" => {} // cargo says so
            "--quick" => quick = true,
            "--markdown" => markdown = true,
            "--policy" => wanted = Some(args.next().ok_or("--policy: which?")?),
            other => {
                return Err(
                    format!("{other}: expected --policy NAME, --quick or --markdown").into(),
                );
            }
        }
    }
    if cfg!(not(target_arch = "x86_64")) {
        return Err("how callgrind is asked is known for x86_64 only".into());
    }
    if let Some(name) = wanted.filter(|name| corun_policies::find(name).is_none()) {
        return Err(format!("--policy {name}: there is no such policy; see corun policies").into());
    }
    println!("instructions of a callback, mean; most; 'waiting': vCPUs per pCPU, nearly all ready");
    for policy in corun_policies::all() {
        if wanted.is_none_or(|name| name == policy.name) {
            table(policy, &sizes(quick), markdown)?;
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|first| first == "--within") {
        return match within(&args[1..]) {
            Some(true) => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        };
    }
    match measure(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
