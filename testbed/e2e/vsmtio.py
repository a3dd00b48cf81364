#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""What holds of pCPUs do on a kernel: how they end, how late, and what wake-ups of I/O wait.

Usage: vsmtio.py OUT    OUT/vsmtio: holds.tsv, what the dispatcher counted, and recordings, SCHEDULER-RUN.trace

From each recording: the time from each wake-up of the guest that does I/O to its running. Where it takes the pCPU
from another VM's vCPU, that one had been lent it, or was interrupted.
"""

import statistics
import sys
from collections import defaultdict
from pathlib import Path

from table import Table

sys.path.insert(0, str(Path(__file__).parent.parent / "validate"))
import trace as recordings  # noqa: E402
from trace import percentile  # noqa: E402

IO = "io"
# The timeout that is asked for, s: no PMU is emulated, so timeouts stay where they begin.
TIMEOUT = 0.003
# How far beyond its timeout the longest hold of all runs may end (docs/vsmtio.md), s: a tick of that kernel, since an
# emulated timer is late when the emulator waits for a core of the machine.
MARGIN = 0.004
# How long a vCPU that was lent a pCPU may take to give way, s: for half of all runs' wake-ups, the time that the
# dispatcher and the kernel take for it; for 99 of 100, which may meet an emulator that waits for a core, a tick longer,
# for the same reason as above. Both are less than the slices that are left to it, 12 ms and longer.
GIVES_WAY = 0.002
GIVES_WAY_LATE = GIVES_WAY + MARGIN
RUNS = 5
KEYS = ("begun", "woke", "expired", "gave_way", "under_way", "held_s", "longest_s", "latest_s")


def wakeups(path):
    """Waits of the guest that does I/O, s: all of them, and those that ended by taking another VM's pCPU."""
    vm_of, found = recordings.events(path, {"sched_switch", "sched_waking"})
    woken, running, waits, taken = {}, set(), [], []
    for now, _, _, name, text in found:
        if name == "sched_waking":
            match = recordings.WAKE.search(text)
            thread = int(match[1]) if match else None
            if thread in vm_of and vm_of[thread][0] == IO and thread not in running:
                woken.setdefault(thread, now)
        elif match := recordings.SWITCH.search(text):
            before, after = int(match[1]), int(match[3])
            running.discard(before)
            running.add(after)
            if after in woken:
                waits.append(now - woken.pop(after))
                if before in vm_of and vm_of[before][0] != IO:
                    taken.append(waits[-1])
    return waits, taken


def counted(directory):
    """What each run's daemon had counted by when it was asked: (policy, counts), and that order."""
    lines = (directory / "holds.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in lines]
    return [(row[0], dict(zip(KEYS, map(float, row[2:]), strict=True))) for row in rows]


def spread(values, scale=1.0):
    of = [scale * value for value in values]
    if not of:
        return "none"
    return f"{statistics.median(of):.2f} ({min(of):.2f} to {max(of):.2f})"


def judge_holds(directory, table):
    by_policy = defaultdict(list)
    before = {}
    for policy, run in counted(directory):
        ended = run["woke"] + run["expired"] + run["gave_way"] + run["under_way"]
        # pCPUs go on while their counts are read, one after the other.
        detail = f"{run['begun']:.0f} began, {ended:.0f} ended or are under way"
        table.row(run["begun"] > 0 and abs(run["begun"] - ended) <= 2, f"{policy}: every hold ends in one way", detail)
        # The same daemon goes on counting when it is told to give way.
        since = before if policy == "giving-way" else {}
        by_policy[policy].append({key: run[key] - since.get(key, 0.0) for key in KEYS} | {"run": run})
        before = run
    for policy, runs in by_policy.items():
        share = {key: [run[key] / max(run["begun"], 1) for run in runs] for key in ("woke", "expired", "gave_way")}
        told = ", ".join(f"{key} {spread(values, 100)} %" for key, values in share.items())
        length = spread([run["held_s"] / max(run["begun"], 1) for run in runs], 1000)
        print(f"      {policy}: {spread([run['begun'] for run in runs])} holds began; {told}; mean length {length} ms")
    runs = [run["run"] for run in by_policy["vsmtio"]]
    longest = [run["longest_s"] for run in runs]
    latest = [run["latest_s"] for run in runs]
    detail = f"longest {spread(longest, 1000)} ms (all <= {1000 * (TIMEOUT + MARGIN):.0f}), latest {spread(latest, 1000)} ms late"
    good = len(runs) >= RUNS and max(longest) <= TIMEOUT + MARGIN
    table.row(good, "vsmtio: holds end with their timeout", detail, measured=True)


def judge_wakeups(directory, table):
    waits, taken = defaultdict(list), defaultdict(list)
    for path in sorted(directory.glob("*.trace")):
        scheduler = path.stem.rpartition("-")[0]
        all_of_it, by_taking = wakeups(path)
        waits[scheduler].append(all_of_it)
        taken[scheduler].append(by_taking)
    print("\n| wake-ups of the guest that does I/O | p50, ms | p99, ms | takes a pCPU from another vCPU, of 100 | p50, ms | p90, ms |")
    print("|---|---|---|---|---|---|")
    for scheduler, runs in waits.items():
        by = taken[scheduler]
        of = [100 * len(few) / max(len(run), 1) for run, few in zip(runs, by, strict=True)]
        cells = [spread([percentile(run, share) for run in runs], 1000) for share in (0.5, 0.99)]
        cells += [spread(of)]
        some = [run for run in by if run]
        cells += [spread([percentile(run, share) for run in some], 1000) if some else "" for share in (0.5, 0.9)]
        print(f"| {scheduler} | {' | '.join(cells)} |")
        fewest = min(len(run) for run in runs)
        table.row(
            len(runs) >= RUNS and fewest >= 100,
            f"vsmtio: wake-ups under {scheduler}",
            f"{len(runs)} runs (>= {RUNS}), {fewest} wake-ups at least (>= 100)",
        )
    lent = [run for run in taken["giving-way"] if run]
    waits_of_all = [wait for run in lent for wait in run]
    median, late = (percentile(waits_of_all, share) for share in (0.5, 0.99))
    detail = (
        f"{1000 * median:.2f} ms at the median (<= {1000 * GIVES_WAY:.0f}), {1000 * late:.2f} at the 99th percentile "
        f"(<= {1000 * GIVES_WAY_LATE:.0f}) of {len(waits_of_all)} in {len(lent)} runs"
    )
    good = len(lent) >= RUNS and median <= GIVES_WAY and late <= GIVES_WAY_LATE
    table.row(good, "vsmtio: who was lent a pCPU gives way", detail, measured=True)


def judge(out, table):
    directory = out / "vsmtio"
    if directory.is_dir():
        judge_holds(directory, table)
        judge_wakeups(directory, table)


if __name__ == "__main__":
    judge(Path(sys.argv[1]), Table())
