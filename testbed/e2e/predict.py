#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Prediction beside outcome: replays recordings of a host under the kernel's scheduler by corun's
policies, and compares with recordings of the same VMs under these policies on the real kernel.

Usage: predict.py DIR CORUN [MARKDOWN]    DIR: what the group "predict" left, out/e2e/predict

Written to MARKDOWN, else to the standard output.
"""

import contextlib
import io
import json
import statistics
import subprocess
import sys
from pathlib import Path

POLICIES = ["balance", "jupiter", "aql"]
HEAD = """<!-- SPDX-License-Identifier: GPL-2.0-only -->
<!-- Made by testbed/e2e/predict.py; edit it there. -->
# Prediction and outcome

Does a replay of a recording tell what a policy will do? In the testbed, an emulated host of two pCPUs with real Linux
and real KVM guests, the same VMs were recorded for 3 s under the kernel's own scheduler and then under corun's
policies, in {runs} boots. *Predicted* is what `corun compare` makes of the first recording under the policy, *outcome*
what the recording under that policy shows. *As before* is what was so under the kernel's scheduler: a prediction that
is no better than that is worth nothing. All values are medians over boots. *Run* and *ready* are shares of a vCPU's
time, averaged over the VM's two vCPUs; *of the VMs* is a VM's part of what all VMs ran.

*Not vCPUs* is the part of both pCPUs that no vCPU had. An emulated host is some 20 times slower than hardware, and so
is corun's daemon. No replay predicts that, and it is missing from every VM's run time. (This table revealed a daemon
that took up to half of both pCPUs here, because it copied a table at every look.)

These values were measured on 30 November 2026, on a machine on which all that the emulated host does for a guest
takes two to three times as long as on that of 28 November. There, predictions had been off by 0.5, 1.7 and 1.1 points
of run and ready time. Replays that let siblings at a barrier run ahead of each other, as all did until then, were off
by 2.1, 1.3 and 2.3 points here ([advise](advise.md#what-a-recording-cannot-tell)). What AQL uses to distinguish vCPUs
is not in a recording, as `corun compare` says. To the replay all are alike, and whether its pools stack siblings is
chance (*meeting*: 0, 0 and 100 % instead of 68).

    testbed/e2e/run.sh out/predict predict
    testbed/e2e/predict.py out/predict/predict target/release/corun docs/prediction.md
"""
# What is compared, and in what unit a prediction is off.
KINDS = {"time": "run and ready", "part": "of the VMs", "stacked": "stacked", "switches": "switches"}
PCPUS = 2


def compare(corun, recording, policies):
    command = [corun, "compare", recording, "--policies", ",".join(policies), "--seed", "0", "--json", "--quiet"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def recorded(results):
    """Of a recording itself: per VM (run share, ready share), switches per second, stacking."""
    replay, seconds = results["replay"], results["runs"][0]["host"]["duration_s"]
    vms = {}
    for vcpu in replay["vcpus"]:
        times = vms.setdefault(vcpu["name"].rsplit("/", 1)[0], [])
        times.append([vcpu[key]["recorded"] / seconds for key in ("run_s", "ready_s")])
    return {
        "vms": {name: [statistics.fmean(column) for column in zip(*times)] for name, times in vms.items()},
        "switches": replay["switches"]["recorded"] / seconds,
        "stacking": replay["stacking_probability"]["recorded"],
    }


def predicted(results, policy):
    run = next(run for run in results["runs"] if run["policy"] == policy)
    return {
        "vms": {vm["name"]: [vm["run_share"], vm["ready_share"]] for vm in run["vms"]},
        "switches": run["host"]["vcpu_switches_per_s"],
        "stacking": run["host"]["stacking_probability"],
    }


def busy(seen):
    """The part of the pCPUs that vCPUs had."""
    return sum(run for run, _ in seen["vms"].values()) * 2 / PCPUS


def part(seen, vm):
    return seen["vms"][vm][0] / sum(run for run, _ in seen["vms"].values())


def rows(cases):
    """What is compared, of several (before, predicted, outcome): kind, name, three medians."""
    middle = lambda pick: [statistics.median(pick(case[n]) for case in cases) for n in range(3)]
    for vm in cases[0][0]["vms"]:
        yield "time", f"{vm}: run", middle(lambda seen: seen["vms"][vm][0])
        yield "time", f"{vm}: ready", middle(lambda seen: seen["vms"][vm][1])
        yield "part", f"{vm}: of the VMs", middle(lambda seen: part(seen, vm))
    yield "", "not vCPUs", middle(lambda seen: 1 - busy(seen))
    yield "stacked", "stacked", middle(lambda seen: seen["stacking"])
    yield "switches", "vCPU switches/s", middle(lambda seen: seen["switches"])


def table(title, cases, errors):
    """Prints a table; appends to `errors`: kind, by how much the prediction is off, and "as before"."""
    print(f"\n## {title}\n\n| what | as before | predicted | outcome | off by | as before is off by |")
    print("|---|---|---|---|---|---|")
    for kind, name, (before, guess, outcome) in rows(cases):
        if kind == "switches":
            off, naive = (100 * abs(value / outcome - 1) for value in (guess, before))
            shown = [f"{value:,.0f}" for value in (before, guess, outcome)]
            missed = [f"{value:.0f} %" for value in (off, naive)]
        else:
            off, naive = (100 * abs(value - outcome) for value in (guess, before))
            shown = [f"{100 * value:.1f} %" for value in (before, guess, outcome)]
            missed = [f"{value:.1f} points" for value in (off, naive)]
        if kind:
            errors.append((kind, off, naive))
        print("| " + " | ".join([name, *shown, *missed]) + " |")


def summary(errors):
    """The table of means, by policy."""
    print("\n| off by, on average | " + " | ".join(KINDS.values()) + " |")
    print("|---" * (len(KINDS) + 1) + "|")
    for policy, found in errors.items():
        cells = []
        for kind in KINDS:
            off, naive = (statistics.fmean(error[n] for error in found if error[0] == kind) for n in (1, 2))
            cells.append(f"{off:.0f} % (as before: {naive:.0f})" if kind == "switches" else f"{off:.1f} ({naive:.1f}) points")
        print(f"| {policy} | " + " | ".join(cells) + " |")


def main():
    folder, corun = Path(sys.argv[1]), sys.argv[2]
    recordings = sorted(folder.glob("*-eevdf-*.txt"))
    if not recordings:
        sys.exit(f"predict.py: {folder}: no recordings MIX-eevdf-RUN.txt")
    before = {file: compare(corun, file, ["eevdf", *POLICIES]) for file in recordings}
    mixes = sorted({file.stem.split("-")[0] for file in recordings})
    errors, tables = {}, io.StringIO()
    for policy in POLICIES:
        for mix in mixes:
            cases = []
            for file, results in before.items():
                outcome = folder / file.name.replace("eevdf", policy)
                if file.name.startswith(f"{mix}-") and outcome.exists():
                    real = recorded(compare(corun, outcome, ["fair"]))
                    cases.append((recorded(results), predicted(results, policy), real))
            if cases:
                with contextlib.redirect_stdout(tables):
                    table(f"{mix}, {policy}", cases, errors.setdefault(policy, []))
    if len(sys.argv) > 3:
        sys.stdout = open(sys.argv[3], "w", encoding="utf-8")
    print(HEAD.format(runs=len(recordings) // len(mixes)), end="")
    summary(errors)
    print(tables.getvalue(), end="")


if __name__ == "__main__":
    main()
