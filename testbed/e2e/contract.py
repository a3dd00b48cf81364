# SPDX-License-Identifier: GPL-2.0-only
"""The resource contract: what VMs get under corun beside what the kernel gives them.

Reads contract.tsv (case, scheduler, pCPU time of the VMs a, b, c and d within some 2 s, ns) and judges each
case by what part of their time each VM had, for an emulated host's seconds are not exact; the table is
printed in the form that docs/contract.md has.
"""

import json
from collections import defaultdict

PCPUS = 2

# Case: what was configured, and the part of both pCPUs that each VM should have by that; None: not checked.
CASES = {
    "weights": ("weights c 100, d 200, slice of a and b 1000", (5 / 13, 5 / 13, 1 / 13, 2 / 13)),
    "nested": ("slice 300 with a 100 and b 200; c 100", (1 / 4, 1 / 2, 1 / 4, 0)),
    "quota": ("c alone, cpu.max 20 %", (0, 0, 0.1, 0)),
    "half": ("c and d cpu.max 20 %; a and b in a slice", (0.4, 0.4, 0.1, 0.1)),
    "outer": ("slice of a and b cpu.max 40 %; c", (0.1, 0.1, 0.8, 0)),
    "idle": ("d cpu.idle; c", (0, 0, 1, 0)),
    "cpuset": ("c moved to one pCPU; d", (0, 0, None, None)),
    "inner": ("vCPUs of c, which never wait, cpu.max 20 %", (0, 0, 0.1, 0)),
    "around": ("c, cpu.max 20 %, vCPUs in a cgroup within", (0, 0, 0.1, 0)),
    "each": ("vCPUs of c, cpu.max 20 % each", (0, 0, 0.2, 0)),
}
# The cases in which a VM has a quota, and which VM that is.
QUOTAS = {"quota": [2], "half": [2, 3], "outer": [0, 1], "inner": [2], "around": [2], "each": [2]}

# How far a VM may be from what the kernel gives it, as a part of the whole: 2 s of emulated slices are few.
NEAR = 0.06
# A VM with a quota may have this many times what the kernel gives it: up to 1.18 was seen, and 1.25 while the daemon
# took a tenth of the host from VMs without a quota.
QUOTA_SLACK = 1.22
# What Jupiter leaves of both pCPUs to the others in the case "each", in a period of 100 ms: all but twice 20 ms, and
# some rounding. By weights alone, c would have a third.
OTHERS_MS = 155


def judge(out, table):
    """A row per case for check.py's table, and the table for people."""
    file = out / "contract.tsv"
    if not file.exists():
        return
    shares = defaultdict(dict)
    for line in file.read_text().splitlines():
        case, scheduler, *times = line.split("\t")
        times = [float(time) for time in times[0].split()]
        # A VM that is alone has its part of both pCPUs instead.
        whole = sum(times) if sum(map(bool, times)) > 1 else PCPUS * 2e9
        shares[case][scheduler] = [time / whole for time in times]
    for case, (said, wanted) in CASES.items():
        kernel, corun = shares[case].get("kernel"), shares[case].get("corun")
        if not kernel or not corun:
            table.row(False, f"contract: {case}", "not measured")
            continue
        off = max(abs(mine - its) for mine, its in zip(corun, kernel))
        limited = [(corun[vm], kernel[vm]) for vm in QUOTAS.get(case, [])]
        good = off <= NEAR and all(mine <= QUOTA_SLACK * its for mine, its in limited)
        detail = f"at most {100 * off:.1f} points from the kernel's (<= {100 * NEAR:.0f})"
        table.row(good, f"contract: {case}", detail, measured=True)
        print(f"      | {said} | {percents(wanted)} | {percents(kernel)} | {percents(corun)} |")
    judge_seen(out, table)


def judge_seen(out, table):
    """Does Jupiter, which is only asked, allot the others what quotas of its vCPUs keep from c?"""
    lines = (out / "contract-quotas.json").read_text().splitlines()
    if not lines:
        table.row(False, "contract: a policy sees quotas of vCPUs", "said nothing")
        return
    last = json.loads(lines[-1])
    names = {int(key.split()[1]): name for key, name in last["names"].items() if key.startswith("task ")}
    claims = [task["claim"] for task in last["plan"]["tasks"] if names[task["task"]][0] != "c"]
    allotted = sum(claim["allotment"] for claim in claims if claim) / 1e6
    detail = f"{allotted:.1f} ms of each 100 to the others (>= {OTHERS_MS}; without quotas 133)"
    table.row(allotted >= OTHERS_MS, "contract: a policy sees quotas of vCPUs", detail)


def percents(parts):
    return ", ".join("–" if part is None else f"{100 * part:.1f}" for part in parts)
