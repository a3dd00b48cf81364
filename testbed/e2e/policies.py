# SPDX-License-Identifier: GPL-2.0-only
"""What the phases `policies` and `costs` measured, policy by policy, as a table.

Problem: policies are to be compared on the same guests in one boot, while they are exchanged live.
How: progress from what the guests counted; gang skew and stacking from the recording of
scheduling events; the dispatcher's cost from the kernel's statistics of BPF programs.

*Co-start skew*: a VM of which no vCPU runs starts one; each sibling that is ready at that moment
starts so much later. It *misses* if the VM has no vCPU running any more before it starts. *Co-run
share*: of the time in which a vCPU of the VM runs and at least two do not wait, the share in which
all that do not wait run.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "validate"))
import trace as recordings  # noqa: E402
from trace import percentile  # noqa: E402

# The callbacks by the first 15 characters of their names: the kernel keeps no more, newer bpftools find the rest.
CALLBACKS = {
    "corun_select_cp": "select_cpu",
    "corun_enqueue": "enqueue",
    "corun_dispatch": "dispatch",
    "corun_running": "running",
    "corun_stopping": "stopping",
}


class Gangs:
    """Follows the vCPUs of each VM through a recording."""

    def __init__(self, path):
        wanted = {"sched_switch", "sched_waking"}
        self.vm_of, found = recordings.events(path, wanted)
        self.state = {thread: None for thread in self.vm_of}
        self.pending = defaultdict(dict)  # VM → vCPU that was ready when a sibling started, and when that was
        self.skews, self.missed = [], 0
        self.contended = self.together = 0.0
        before = None
        for now, cpu, _, name, text in found:
            if before is not None:
                self.spend(now - before)
            before = now
            if name == "sched_waking" and (match := recordings.WAKE.search(text)):
                thread = int(match[1])
                if self.state.get(thread) in (None, "wait") and thread in self.state:
                    self.state[thread] = "ready"
            elif name == "sched_switch" and (match := recordings.SWITCH.search(text)):
                self.stop(int(match[1]), match[2].startswith("R"))
                self.start(int(match[3]), now)

    def siblings(self, vm, state):
        return [t for t, at in self.state.items() if at == state and self.vm_of[t][0] == vm]

    def stop(self, thread, wants_more):
        if thread not in self.state:
            return
        self.state[thread] = "ready" if wants_more else "wait"
        vm = self.vm_of[thread][0]
        if not self.siblings(vm, "run"):
            self.missed += len(self.pending.pop(vm, ()))

    def start(self, thread, now):
        if thread not in self.state:
            return
        vm = self.vm_of[thread][0]
        first = not self.siblings(vm, "run")
        self.state[thread] = "run"
        if first:
            self.pending[vm] = {sibling: now for sibling in self.siblings(vm, "ready")}
        elif thread in self.pending[vm]:
            self.skews.append(now - self.pending[vm].pop(thread))

    def spend(self, time):
        for vm in {vm for vm, _ in self.vm_of.values()}:
            running, ready = len(self.siblings(vm, "run")), len(self.siblings(vm, "ready"))
            if running and running + ready > 1:
                self.contended += time
                self.together += time * (ready == 0)


def ratio(part, whole):
    return part / whole if whole else float("nan")


def progress(directory, name):
    """Iterations per second of all vCPUs of each VM."""

    def read(moment):
        lines = (directory / f"{name}.{moment}").read_text().splitlines()
        return {vm: (float(time), sum(map(int, counts))) for vm, time, *counts in map(str.split, lines)}

    begin, end = read("begin"), read("end")
    return {vm: ratio(end[vm][1] - begin[vm][1], end[vm][0] - begin[vm][0]) for vm in end}


def costs(directory, name):
    """Callback → (calls, ns each); empty without statistics."""

    def read(moment):
        programs = json.loads((directory / f"{name}.bpf-{moment}").read_text() or "[]")
        return {p["name"][:15]: (p.get("run_cnt", 0), p.get("run_time_ns", 0)) for p in programs if "name" in p}

    begin, end = read("begin"), read("end")
    found = {}
    for program, callback in CALLBACKS.items():
        calls, time = (b - a for a, b in zip(begin.get(program, (0, 0)), end.get(program, (0, 0))))
        if calls > 0:
            found[callback] = (calls, time / calls)
    return found


class Row:
    """One policy."""

    def __init__(self, directory, name):
        self.name = name
        self.progress = progress(directory, name)
        trace = directory / f"{name}.trace"
        whole = recordings.Trace(trace)
        gangs = Gangs(trace)
        self.vcpus = len(gangs.vm_of)
        self.stacking = whole.metric("stacking")
        self.switches = whole.metric("switches")
        self.skew = (ratio(sum(gangs.skews), len(gangs.skews)), percentile(gangs.skews, 0.99))
        self.missed = ratio(gangs.missed, gangs.missed + len(gangs.skews))
        self.together = ratio(gangs.together, gangs.contended)
        self.costs = costs(directory, name)


def judge(out, table):
    """Prints the tables; what must hold goes into `table`."""
    judge_lockstep(out / "lockstep-policies.json", table)
    directory = out / "policies"
    if directory.is_dir():
        judge_measured(directory, table)


def judge_lockstep(file, table):
    if not file.exists() or not file.stat().st_size:
        return
    for row in json.loads(file.read_text())["by_policy"]:
        good = row["decisions"] > 1000 and row["diverged"] == 0
        detail = f"{row['decisions']} decisions, {row['diverged']} callbacks differ"
        table.row(good, f"live {row['policy']}: lockstep", detail)


def judge_measured(directory, table):
    names = sorted((path.stem for path in directory.glob("*.end")), key=lambda name: name != "eevdf")
    rows = [Row(directory, name) for name in names]
    print_outcome(rows)
    print_costs([row for row in rows if row.name != "eevdf"])
    for row in rows:
        good = row.vcpus == 6 and all(value > 0 for value in row.progress.values())
        table.row(good, f"live {row.name}: measured", f"{row.vcpus} vCPUs")
        if row.name != "eevdf":
            counted = len(row.costs) == len(CALLBACKS)
            table.row(counted, f"live {row.name}: costs counted", f"{len(row.costs)} callbacks")
        if row.name == "balance":
            table.row(row.stacking < 0.005, "live balance: stacking", f"{100 * row.stacking:.3f} % (< 0.5 %)")


def print_outcome(rows):
    vms = list(rows[0].progress)
    each = " | ".join(f"{vm}, /s" for vm in vms)
    print(f"\n| policy | {each} | stacked | co-start skew, mean / p99 | missed | co-run share | switches/s |")
    print("|---|" + "---|" * (len(vms) + 5))
    for row in rows:
        counts = " | ".join(f"{row.progress[vm]:.0f}" for vm in vms)
        skew = " / ".join(f"{1000 * value:.2f}" for value in row.skew)
        print(
            f"| {row.name} | {counts} | {100 * row.stacking:.2f} % | {skew} ms | {100 * row.missed:.1f} % "
            f"| {100 * row.together:.1f} % | {row.switches:.0f} |"
        )


def print_costs(rows):
    print("\n| policy | " + " | ".join(f"{name}, ns" for name in CALLBACKS.values()) + " | per switch, ns |")
    print("|---|" + "---|" * (len(CALLBACKS) + 1))
    for row in rows:
        each = " | ".join(f"{row.costs.get(name, (0, float('nan')))[1]:.0f}" for name in CALLBACKS.values())
        whole = sum(calls * time for calls, time in row.costs.values())
        per_switch = ratio(whole, row.costs.get("running", (0, 0))[0])
        print(f"| {row.name} | {each} | {per_switch:.0f} |")
    print()
