#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Compares the simulator with a real kernel; prints a table.

Usage: validate.py plan                       the scenarios, for host/run
       validate.py judge OUT CORUN [DOC]      OUT: a directory per boot, boot1, boot2 …; DOC: to write

Exit status of judge: 0 if all rows are within tolerance and all controls are caught, else 1.
"""

import statistics
import sys
import tomllib
from pathlib import Path

import calibrate
import document
import model
import trace

HERE = Path(__file__).parent
WAKES = ("wake_p50", "wake_p90", "wake_p99")
# What host/run calibrates with.
PING_WORK, TIMER_WORK, TIMER_SLEEP = 300, 500, 2000
# In terms of a VM's own clock: the recording lasts from 1 to 6 s after its start.
RATE_FROM, RATE_TO = 1.2, 5.8
LEAST_BOOTS = 3
# The calibrated quantities that are not times.
SHARES = ("slowdown", "spread")
# Slices are 1.4 ms: if timers come a quarter of that late on average, the machine was busy with other
# things, and neither costs nor delays mean anything.
MOST_LATE = 350


def read(name):
    return tomllib.loads((HERE / name).read_text(encoding="utf-8"))


def plan():
    for name, scenario in read("scenarios.toml").items():
        vms = scenario["vm"].items()
        spec = [
            f"{vm},{v['mode']},{v['vcpus']},{v.get('work', 100)},{v.get('sleep', 1000)},{v.get('weight', 0)},{v.get('pcpus', 'any')}"
            for vm, v in vms
        ]
        print(name, *spec)


def rows_of(scenario):
    for row in scenario["judge"]:
        kind, _, what = row.partition(":")
        yield from ([f"{wake}:{what}" for wake in WAKES] if kind == "wake" else [row])


def value(row, seen, rates):
    """The number of a row from a recording and the VMs' throughput; None if it is not there."""
    kind, _, what = row.partition(":")
    if kind == "rate":
        return rates.get(what)
    if kind == "ratio":
        above, below = (rates.get(vm) for vm in what.split("/"))
        return above / below if above and below else None
    return seen.metric(row)


def measured_rate(log, spin_per_s):
    """Rounds per second of all vCPUs, or what they computed per second; None if it is not there."""
    points = []
    for line in log.read_text(encoding="utf-8").splitlines():
        if line.startswith("{"):
            report = model.json.loads(line)
            if RATE_FROM <= report["seconds"] <= RATE_TO:
                points.append((report["seconds"], sum(report["iterations"]), report["mode"]))
    if len(points) < 4 or points[-1][0] - points[0][0] < 2:
        return None
    (t0, n0, mode), (t1, n1, _) = points[0], points[-1]
    return (n1 - n0) / (t1 - t0) / (spin_per_s if mode == "spin" else 1)


class Boot:
    """What one boot of the testbed showed."""

    def __init__(self, out):
        lines = (out / "calibration.tsv").read_text().splitlines()
        self.speed = {name: float(text) for name, text in (line.split("\t") for line in lines)}
        self.costs = calibrate.calibrate(out, self.speed, PING_WORK, TIMER_WORK, TIMER_SLEEP)
        if self.costs["late"] > MOST_LATE:
            late = f"{self.costs['late']:.0f} us late on average, accepted are {MOST_LATE}"
            raise trace.Broken(f"{out.name}: the machine was not calm, timers came {late}")
        self.out = out
        self.known = {}

    def values(self, name, scenario):
        """Each row's number; rows of a recording that cannot be used are not there."""
        if name not in self.known:
            self.known[name] = self.measure(name, scenario)
        return self.known[name]

    def measure(self, name, scenario):
        try:
            seen = trace.Trace(self.out / f"run-{name}.txt")
        except (trace.Broken, OSError) as error:
            print(f"missing: {error}")
            return {}
        rates = {}
        for vm in scenario["vm"]:
            log = self.out / f"log-{name}-{vm}.log"
            rates[vm] = measured_rate(log, self.speed["spin_per_s"]) if log.exists() else None
        return {row: value(row, seen, rates) for row in rows_of(scenario)}


def median(values):
    """The median, or None if any is missing."""
    return statistics.median(values) if values and None not in values else None


class Row:
    """One number of one scenario on both sides; boot by boot, since costs differ between boots."""

    def __init__(self, scenario, name, measured, simulated, tolerances):
        self.scenario, self.name, self.measured, self.simulated = scenario, name, measured, simulated
        self.rule = tolerances[name.partition(":")[0]]
        self.off = self.allowed = None
        self.verdict = self.judge()

    def judge(self):
        if len(self.measured) < LEAST_BOOTS or None in self.measured + self.simulated:
            return "missing"
        off = [simulated - real for real, simulated in zip(self.measured, self.simulated)]
        self.off = median(off)
        self.allowed = max(self.rule.get("relative", 0.0) * median(self.measured), self.rule["absolute"])
        if max(abs(one - self.off) for one in off) > self.allowed:
            return "noisy"
        return "ok" if abs(self.off) <= self.allowed else "OUT"


def simulated(corun, file, scenario, costs, policy="eevdf", keys=(), vms=None):
    """Each row's value, the median over seeds."""
    file.write_text(model.scenario(scenario["about"], vms or scenario["vm"], costs))
    spinning = [vm for vm, v in scenario["vm"].items() if v["mode"] == "spin"]
    runs = model.simulate(corun, file, spinning, costs["slowdown"], policy, keys)
    return {row: median([value(row, *run) for run in runs]) for row in rows_of(scenario)}


def compare(boots, scenarios, tolerances, corun, label="eevdf", times=1, more=0, **how):
    """All rows, simulated as `how` says, with `times` the costs and `more` vCPUs that spin."""
    rows = []
    for name, scenario in scenarios.items():
        vms = {vm: {**v, "vcpus": v["vcpus"] + more * (v["mode"] == "spin")} for vm, v in scenario["vm"].items()}
        real, ours = [], []
        for boot in boots:
            costs = {cost: (1 if cost in SHARES else times) * took for cost, took in boot.costs.items()}
            real.append(boot.values(name, scenario))
            ours.append(simulated(corun, boot.out / f"{name}.{label}.toml", scenario, costs, vms=vms, **how))
        for row in rows_of(scenario):
            measured, simulation = ([values.get(row) for values in side] for side in (real, ours))
            rows.append(Row(name, row, measured, simulation, tolerances))
    return rows


def control(rule, rows, boots, scenarios, tolerances, corun, label):
    """Per scenario: the rows that the model keeps and this wrong model breaks."""
    chosen = {name: scenarios[name] for name in rule["breaks"]}
    how = {"policy": rule.get("policy", "eevdf"), "keys": rule.get("keys", ()), "more": rule.get("more", 0)}
    wrong = compare(boots, chosen, tolerances, corun, label=label, times=rule.get("costs", 1), **how)
    kept = {(row.scenario, row.name) for row in rows if row.verdict == "ok"}
    return {
        name: [r.name for r in wrong if r.scenario == name and r.verdict == "OUT" and (name, r.name) in kept]
        for name in chosen
    }


def judge(out, corun, doc):
    scenarios, tolerances = read("scenarios.toml"), read("tolerances.toml")
    controls = tolerances.pop("control")
    try:
        boots = [Boot(path) for path in sorted(out.glob("boot*"))]
    except (trace.Broken, OSError) as error:
        sys.exit(f"missing: {error}")
    if len(boots) < LEAST_BOOTS:
        sys.exit(f"missing: {len(boots)} boots, {LEAST_BOOTS} are needed")
    rows = compare(boots, scenarios, tolerances, corun)
    without = ["scheduler.eevdf.slice_at_switch=false", "scheduler.eevdf.lazy_preemption=false", "scheduler.eevdf.timer_stays=false"]
    before = compare(boots, scenarios, tolerances, corun, label="before", keys=without)
    caught = {
        name: control(rule, rows, boots, scenarios, tolerances, corun, name)
        for name, rule in controls.items()
    }
    text = document.results(rows, before, caught, controls, boots)
    print(text)
    (out / "table.md").write_text(text)
    good = all(row.verdict == "ok" for row in rows) and all(all(c.values()) for c in caught.values())
    if doc:
        Path(doc).write_text(document.page(text, scenarios, tolerances, (boots[0].out / "kernel.txt").read_text()))
    return 0 if good else 1


def main():
    if sys.argv[1:] == ["plan"]:
        return plan()
    if len(sys.argv) in (4, 5) and sys.argv[1] == "judge":
        return judge(Path(sys.argv[2]), sys.argv[3], sys.argv[4] if len(sys.argv) == 5 else None)
    sys.exit(__doc__)


if __name__ == "__main__":
    sys.exit(main())
