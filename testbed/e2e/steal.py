# SPDX-License-Identifier: GPL-2.0-only
"""Steal, as KVM tells it to guests, beside ready time, as corun shows it.

Usage: steal.py DIR     with what host/steal.sh or ../steal.sh left in DIR/steal
"""

import json
import sys
from pathlib import Path

from table import Table

# Of a vCPU's time.
TOLERANCE = 0.02


def steal(out, when):
    """Share of the time between two lines of each VM that was steal, by VM and vCPU."""
    shares = {}
    for begin in sorted(out.glob(f"*-{when}-begin.json")):
        name = begin.name.removesuffix(f"-{when}-begin.json")
        first, last = (json.loads((out / f"{name}-{when}-{end}.json").read_text()) for end in ("begin", "end"))
        time = last["seconds"] - first["seconds"]
        for number, (now, then) in enumerate(zip(last["steal_ns"], first["steal_ns"])):
            shares[name, number] = (now - then) / 1e9 / time
    return shares


def of_status(out):
    """Ready time by the dispatcher's own books."""
    first, last = (json.loads((out / f"status-{end}.json").read_text()) for end in ("begin", "end"))
    time = last["for_s"] - first["for_s"]
    ready = lambda status: {
        (vm["name"], vcpu["number"]): vcpu["ready_s"] for vm in status["vms"] for vcpu in vm["vcpus"]
    }
    before = ready(first)
    return {key: (by_now - before[key]) / time for key, by_now in ready(last).items() if key in before}


def of_top(out):
    """By the kernel's, as `corun top` shows them."""
    rows = json.loads((out / "top.json").read_text())
    return {(row["name"], row["vcpu"]): row["ready"] for row in rows}


def judge(out, table):
    out = out / "steal"
    sources = [("top", of_top, "corun top"), ("status", of_status, "corun's dispatcher")]
    for when, ready_of, who in sources:
        told = steal(out, when)
        if not told:
            continue
        try:
            ready = ready_of(out)
        except ValueError:
            # The daemon did not answer, and said why on the console.
            ready = {}
        both = told.keys() & ready.keys()
        worst = max((abs(told[key] - ready[key]) for key in both), default=1)
        mean = sum(told.values()) / len(told)
        table.row(
            len(both) == 6 and mean > 0.3 and worst <= TOLERANCE,
            f"steal and ready time, {who}",
            f"{len(both)} vCPUs, steal {mean:.1%} of their time, most apart {worst:.2%}, at most {TOLERANCE:.0%}",
            measured=len(both) == 6,
        )


if __name__ == "__main__":
    verdicts = Table()
    judge(Path(sys.argv[1]), verdicts)
    sys.exit(0 if verdicts.passed and not verdicts.failed else 1)
