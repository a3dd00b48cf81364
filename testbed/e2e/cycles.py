#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""What is counted of vCPUs beside an idle SMT sibling, and beside one that is always busy.

Usage: cycles.py OUT    OUT/cycles: N.json, what `corun status` said one after the other; after.json, under fair order

The clock of a pCPU stands for its cycles, so what was counted of a vCPU is set beside how long it ran.
"""

import json
import sys
from pathlib import Path

from table import Table

# What must have been counted of the run time of a vCPU that has a core to itself, percent: 96 on two busy cores.
# Whatever runs on its SMT sibling, however briefly, costs it a whole turn of a few milliseconds: 5 to 47 % were counted
# with the daemon, the shell and the VMMs there.
LEAST = 60
# No more than it ran; its switches are in one count and not in the other.
MOST = 105
# Beside loops that are always there: what is counted is turns that begin before the loops, or after a kernel thread.
NEARLY_NONE = 5


def vcpus(path):
    """(run time, s; cycles or None) of each VM's only vCPU."""
    status = json.loads(path.read_text())
    return {vm["name"]: (vm["vcpus"][0]["run_s"], vm["vcpus"][0]["cycles"]) for vm in status["vms"] if vm["vcpus"]}


def judge(out, table):
    directory = out / "cycles"
    if not directory.is_dir():
        return
    paths = sorted(directory.glob("[0-9]*.json"))
    looks = [vcpus(path) for path in paths]
    if len(looks) < 2:
        table.row(False, "cycles: are counted", f"{len(looks)} looks")
        return
    first, last = looks[0], looks[-1]
    for vm in ("lone", "left", "right"):
        if not (first.get(vm, (0, None))[1] and last.get(vm, (0, None))[1]):
            table.row(False, f"cycles: {vm} is watched", f"{first.get(vm)} to {last.get(vm)}")
            continue
        ran = 1e9 * (last[vm][0] - first[vm][0])
        did = {key: last[vm][1][key] - first[vm][1][key] for key in ("cycles", "base", "miss")}
        share = 100 * did["cycles"] / max(ran, 1)
        alone = vm == "lone"
        detail = f"{share:.1f} % of {ran / 1e9:.2f} s ({f'{LEAST} to {MOST}' if alone else f'<= {NEARLY_NONE}'})"
        good = LEAST <= share <= MOST if alone else share <= NEARLY_NONE
        beside = "an idle" if alone else "a busy"
        table.row(good and ran > 1e9, f"cycles: {vm}, beside {beside} SMT sibling", detail, measured=True)
        divided = did["base"] == did["cycles"] and did["miss"] == 0
        table.row(divided, f"cycles: {vm}, no stalls were counted", str(did))
    after = vcpus(directory / "after.json")
    table.row(all(cycles is None for _, cycles in after.values()), "cycles: none under fair", str(after))


if __name__ == "__main__":
    judge(Path(sys.argv[1]), Table())
