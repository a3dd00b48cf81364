#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Which slices vCPUs get where some are asked for: lengths of their turns on pCPUs, from recordings.

Usage: slices.py DIR    DIR: recordings of vCPUs that only compute, named by the slice: 30ms.trace

A vCPU's turn lasts until another vCPU has its pCPU: what the host itself does in between is no part of
it, and does not end it.
"""

import re
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "validate"))
import trace as recordings  # noqa: E402
from trace import percentile  # noqa: E402

# Upper edges of the histogram's bins, in slices.
EDGES = (0.25, 0.5, 0.75, 0.9, 1.1, 1.25, 1.5, 2.0, float("inf"))
# A slice is delivered if the median turn is within this of it, or within a tick, where slices end late. Under the
# kernel's own scheduler, a vCPU interrupted by a thread of the host, however short, is not the next to run: there the
# longest turns (90th percentile) show whether slices are heeded at all.
WITHIN = 0.25
TICK = 0.004
JUDGED = {"slices-ext": ("median", 0.5), "slices-fair": ("90th percentile", 0.9)}


def turns(path):
    """Lengths of turns, s."""
    vm_of, found = recordings.events(path, {"sched_switch"})
    whose, ran, since = {}, {}, {}  # by pCPU; the first turn's beginning is not known
    lengths = []
    for now, cpu, _, _, text in found:
        match = recordings.SWITCH.search(text)
        if not match:
            continue
        before, after = int(match[1]), int(match[3])
        if before in vm_of and cpu in since:
            ran[cpu] = ran.get(cpu, 0.0) + now - since.pop(cpu)
        if after in vm_of:
            if whose.get(cpu) != after:
                lengths += [ran[cpu]] if cpu in ran else []
                # When turns begin is known only from the second vCPU on.
                ran.pop(cpu, None)
                if cpu in whose:
                    ran[cpu] = 0.0
                whose[cpu] = after
            since[cpu] = now
    return lengths


def histogram(lengths, slice_s):
    """Shares of turns per bin, percent."""
    counts = Counter(next(at for at, edge in enumerate(EDGES) if length / slice_s <= edge) for length in lengths)
    return [100 * counts[at] / len(lengths) if lengths else 0.0 for at in range(len(EDGES))]


def judge(directory, table=None):
    """Prints the table; what must hold goes into `table`, if there is one."""
    said = {path: re.match(r"(\d+)ms$", path.stem) for path in directory.glob("*.trace")}
    files = sorted((int(match[1]), path) for path, match in said.items() if match)
    names = [f"<= {edge}" for edge in EDGES[:-1]] + [f"> {EDGES[-2]}"]
    print(f"\n{directory.name}:\n\n| slice | turns | p10, ms | median, ms | p90, ms | " + " | ".join(f"{n}, %" for n in names) + " |")
    print("|---|" + "---|" * (len(EDGES) + 4))
    for milliseconds, path in files:
        lengths, slice_s = turns(path), milliseconds / 1000
        cells = " | ".join(f"{1000 * percentile(lengths, share):.2f}" for share in (0.1, 0.5, 0.9))
        bins = " | ".join(f"{share:.0f}" for share in histogram(lengths, slice_s))
        print(f"| {milliseconds} ms | {len(lengths)} | {cells} | {bins} |")
        if table and lengths:
            what, share = JUDGED.get(directory.name, JUDGED["slices-ext"])
            turn = percentile(lengths, share)
            good = abs(turn - slice_s) <= max(WITHIN * slice_s, TICK)
            detail = f"{what} of turns {1000 * turn:.2f} ms, {len(lengths)} turns"
            table.row(good, f"{directory.name}: {milliseconds} ms", detail, measured=True)
        elif table:
            table.row(False, f"{directory.name}: {milliseconds} ms", "no turns recorded")
    print()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    judge(Path(sys.argv[1]))
