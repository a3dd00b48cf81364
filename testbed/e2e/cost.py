# SPDX-License-Identifier: GPL-2.0-only
"""What corun costs a host, by the phases `cost` and `crowd` (host/cost.sh).

Reads cost.tsv (pCPUs, run, scheduler, microbenchmark, ns), the kernel's statistics of BPF programs in
cost/, and crowd.tsv (policy, percent of the emulated pCPU, resident and of it anonymous memory, kB); prints the tables
that docs/cost.md has, and judges the ratios that are promised.
"""

import json
import statistics
from collections import defaultdict

SCHEDULERS = ("kernel", "minimal", "weighted", "plain")

# How often each microbenchmark does its operation while callbacks are counted (host/cost.sh).
OPERATIONS = {"pipe": 30100, "wakes": 4000, "messages": 2 * 25 * 40}

# How long an operation may take, as a multiple of that under the minimal sched_ext scheduler.
MOST_RATIO = 1.15
# In the counted host an instruction takes a nanosecond. Assumed for a server: 3 GHz, and one instruction a cycle,
# because the daemon's work is system calls.
INSTRUCTIONS_PER_NS = 3
# The daemon at 500 vCPUs: percent of a pCPU, and kB. AQL_Sched is called every 30 ms, as in its paper, the others every
# 100 or 200.
MOST_PERCENT = 1.0
MOST_PERCENT_OF = {"aql": 2.5}
MOST_KB = 40 * 1024


def judge(out, table):
    """Tables for people; what is promised goes into `table`."""
    if (out / "cost.tsv").exists():
        judge_operations(out / "cost.tsv", table)
    if (out / "cost" / "plain.pipe-end").exists():
        print_callbacks(out / "cost")
    if (out / "crowd.tsv").exists():
        judge_daemon(out / "crowd.tsv", table)


def judge_operations(file, table):
    found = defaultdict(lambda: defaultdict(list))
    for line in file.read_text().splitlines():
        pcpus, _, scheduler, name, ns = line.split("\t")
        found[pcpus, name][scheduler].append(float(ns))
    print(
        "\n| pCPUs | operation | kernel's own, ns | minimal, ns | weighted, ns | corun, ns "
        "| corun / minimal | corun / weighted | corun / kernel's own |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for (pcpus, name), runs in found.items():
        counts = {len(runs[scheduler]) for scheduler in SCHEDULERS}
        if len(counts) != 1 or 0 in counts:
            table.row(False, f"cost: {name}, {pcpus} pCPUs", "not measured under all four")
            continue
        median = {scheduler: statistics.median(runs[scheduler]) for scheduler in SCHEDULERS}
        ratio = median["plain"] / median["minimal"]
        each = " | ".join(f"{median[scheduler]:.0f}" for scheduler in SCHEDULERS)
        ratios = " | ".join(f"{median['plain'] / median[other]:.3f}" for other in ("minimal", "weighted", "kernel"))
        print(f"| {pcpus} | {name} | {each} | {ratios} |")
        spread = max((max(values) - min(values)) / median[scheduler] for scheduler, values in runs.items())
        detail = f"{ratio:.3f} times minimal's (<= {MOST_RATIO}), {counts.pop()} runs within {100 * spread:.1f} %"
        table.row(ratio <= MOST_RATIO, f"cost: {name}, {pcpus} pCPUs", detail, measured=pcpus != "1")
    print()


def programs(file):
    """BPF program → (calls, ns)."""
    listed = json.loads(file.read_text() or "[]")
    return {p["name"]: (p.get("run_cnt", 0), p.get("run_time_ns", 0)) for p in listed if "name" in p}


def print_callbacks(directory):
    """What each callback costs, and how many there are, per operation."""
    print("| operation | scheduler | callbacks: calls per operation × ns each | ns per operation |")
    print("|---|---|---|---|")
    for name, operations in OPERATIONS.items():
        for scheduler in SCHEDULERS[1:]:
            begin, end = (programs(directory / f"{scheduler}.{name}-{moment}") for moment in ("begin", "end"))
            spent = {program: [b - a for a, b in zip(begin.get(program, (0, 0)), end[program])] for program in end}
            spent = {program: (calls, ns) for program, (calls, ns) in spent.items() if calls >= operations / 10}
            if not spent:
                continue  # one turn hands over many messages
            each = ", ".join(
                f"{program.split('_', 1)[-1]} {calls / operations:.1f} × {ns / calls:.0f}"
                for program, (calls, ns) in sorted(spent.items())
            )
            whole = sum(ns for _, ns in spent.values()) / operations
            print(f"| {name} | {scheduler} | {each} | {whole:.0f} |")
    print()


def judge_daemon(file, table):
    print("| policy | instructions per second, million | percent of a pCPU | resident, MB | of it its own, MB |")
    print("|---|---|---|---|---|")
    for line in file.read_text().splitlines():
        policy, counted, resident, own = line.split("\t")
        percent, megabytes = float(counted) / INSTRUCTIONS_PER_NS, int(resident) / 1024
        millions = float(counted) * 10
        print(f"| {policy} | {millions:.1f} | {percent:.2f} | {megabytes:.1f} | {int(own) / 1024:.1f} |")
        most = MOST_PERCENT_OF.get(policy, MOST_PERCENT)
        table.row(percent < most, f"500 vCPUs: its time, {policy}", f"{percent:.2f} % (< {most} %)")
        table.row(int(resident) < MOST_KB, f"500 vCPUs: its memory, {policy}", f"{megabytes:.1f} MB (< 40 MB)")
    print()
