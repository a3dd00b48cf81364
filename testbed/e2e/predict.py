#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Prediction beside outcome: replays recordings of a host under the kernel's scheduler by corun's
policies, and compares with recordings of the same VMs under these policies on the real kernel.

Usage: predict.py DIR CORUN [MARKDOWN]    DIR: what the group "predict" left, out/e2e/predict

Written to MARKDOWN, else to the standard output. "As before" is the prediction that nothing changes: one
that is no better than that is worth nothing.
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path

POLICIES = ["balance", "jupiter", "aql"]
HEAD = """<!-- SPDX-License-Identifier: GPL-2.0-only -->
<!-- Made by testbed/e2e/predict.py; edit it there. -->
# Prediction and outcome

Does a replay of a recording tell what a policy will do? In the testbed, an emulated host of two pCPUs with
real Linux and real KVM guests, the same VMs were recorded for 3 s under the kernel's own scheduler and then
under corun's policies, twice each. *Predicted* is what `corun compare` makes of the first recording under
the policy, *outcome* what the recording under that policy shows, *as before* what was so under the kernel's
scheduler. Medians of two recordings; times are shares of a vCPU's time, averaged over the VM's two vCPUs.

The emulated host is some 20 times slower than hardware, and differs from boot to boot and from minute to
minute; what a share misses by a few points is within that.

    testbed/e2e/run.sh out/predict predict
    testbed/e2e/predict.py out/predict/predict target/release/corun docs/prediction.md
"""


def compare(corun, recording, policies):
    command = [corun, "compare", recording, "--policies", ",".join(policies), "--json", "--quiet"]
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


def rows(cases):
    """What is compared, of several (before, predicted, outcome): name, unit, three medians."""
    middle = lambda pick: [statistics.median(pick(case[n]) for case in cases) for n in range(3)]
    for vm in cases[0][0]["vms"]:
        for at, what in enumerate(("run", "ready")):
            yield f"{vm}: {what}", 100, middle(lambda seen: seen["vms"][vm][at])
    yield "stacked", 100, middle(lambda seen: seen["stacking"])
    yield "vCPU switches/s", 0, middle(lambda seen: seen["switches"])


def table(title, cases, errors):
    print(f"\n## {title}\n\n| what | as before | predicted | outcome | off by | as before is off by |")
    print("|---|---|---|---|---|---|")
    for name, percent, (before, guess, outcome) in rows(cases):
        if percent:
            off, naive = (100 * abs(value - outcome) for value in (guess, before))
            errors.append((off, naive))
            shown = [f"{100 * value:.1f} %" for value in (before, guess, outcome)]
            missed = [f"{value:.1f} points" for value in (off, naive)]
        else:
            shown = [f"{value:,.0f}" for value in (before, guess, outcome)]
            missed = [f"{100 * abs(value / outcome - 1):.0f} %" for value in (guess, before)]
        print("| " + " | ".join([name, *shown, *missed]) + " |")


def main():
    folder, corun = Path(sys.argv[1]), sys.argv[2]
    if len(sys.argv) > 3:
        sys.stdout = open(sys.argv[3], "w", encoding="utf-8")
    print(HEAD, end="")
    errors = []
    for mix in sorted({file.stem.split("-")[0] for file in folder.glob("*-eevdf-*.txt")}):
        before = [
            (file, compare(corun, file, ["eevdf", *POLICIES])) for file in sorted(folder.glob(f"{mix}-eevdf-*.txt"))
        ]
        for policy in POLICIES:
            cases = []
            for file, results in before:
                outcome = folder / file.name.replace("eevdf", policy)
                if outcome.exists():
                    real = recorded(compare(corun, outcome, ["fair"]))
                    cases.append((recorded(results), predicted(results, policy), real))
            if cases:
                table(f"{mix}, {policy}", cases, errors)
    if not errors:
        sys.exit(f"predict.py: {folder}: no recordings MIX-eevdf-RUN.txt with others beside them")
    off, naive = (statistics.fmean(column) for column in zip(*errors))
    print(f"\nShares are off by {off:.1f} points on average; \"as before\" is off by {naive:.1f}.")


if __name__ == "__main__":
    main()
