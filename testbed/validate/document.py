# SPDX-License-Identifier: GPL-2.0-only
"""The results of the validation as text, and docs/validation.md around them."""

import tomllib
from pathlib import Path

HERE = Path(__file__).parent


def number(value):
    if value is None:
        return "–"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(rows):
    lines = [
        "| scenario | what | testbed: median (runs) | simulator | off by | allowed | |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        unit = row.rule["unit"]
        runs = ", ".join(number(value) for value in row.measured)
        off = None if None in (row.real, row.simulated) else row.simulated - row.real
        allowed = number(getattr(row, "allowed", None))
        lines.append(
            f"| {row.scenario} | {row.name} | {number(row.real)} {unit} ({runs}) | {number(row.simulated)} | "
            f"{number(off)} | ±{allowed} | {row.verdict} |"
        )
    return lines


def tally(rows):
    count = lambda verdict: sum(row.verdict == verdict for row in rows)
    return f"{count('ok')} of {len(rows)} rows within tolerance, {count('OUT')} out of it, {count('noisy')} noisy, {count('missing')} missing"


def controls_of(caught, controls):
    lines = ["", "Negative controls, a simulator wrong on purpose; rows that it breaks and the model keeps:", ""]
    for name, broken in caught.items():
        word = "caught" if all(broken.values()) else "NOT CAUGHT"
        where = "; ".join(f"{scenario}: {', '.join(rows) or 'none'}" for scenario, rows in broken.items())
        lines.append(f"- **{word}**: {controls[name]['about']}. {where}")
    return lines


def explained(rows):
    """What is known of the rows that are not ok."""
    notes = tomllib.loads((HERE / "explanations.toml").read_text(encoding="utf-8"))
    lines = []
    for row in rows:
        if row.verdict == "OUT":
            known = notes.get(row.scenario, {}).get(row.name, "not explained")
            lines.append(f"- {row.scenario}, {row.name}: {known}")
    return ["", "Out of tolerance:", ""] + lines if lines else []


def results(rows, before, caught, controls, costs, boots):
    measured = ", ".join(f"{name} {cost:.0f}" for name, cost in costs.items())
    each = "; ".join(", ".join(f"{boot.costs[n]:.0f}" for n in ("switch", "ipi", "idle_wake", "timer")) for boot in boots)
    lines = table(rows) + ["", f"{tally(rows)}."]
    lines += controls_of(caught, controls) + explained(rows)
    lines += [
        "",
        f"Without `slice_at_switch` and `lazy_preemption`: {tally(before)}.",
        "",
        f"Costs measured in the testbed, µs, medians: {measured}. (switch, ipi, idle_wake, timer of each boot: {each}.)",
    ]
    return "\n".join(lines) + "\n"


def page(text, scenarios, tolerances, kernel):
    release, features, preempt, base = kernel.splitlines()[:4]
    lines = [(HERE / "head.md").read_text(encoding="utf-8"), "## Results", "", text]
    lines += [f"Kernel {release}; preemption: {preempt}; base slice {int(base) / 1e6:g} ms; features: `{features.strip()}`.", ""]
    lines += ["## Scenarios", ""]
    lines += [f"- **{name}**: {scenario['about']}" for name, scenario in scenarios.items()]
    lines += ["", "## Tolerances", "", "| what | relative | absolute | why |", "|---|---|---|---|"]
    for name, rule in tolerances.items():
        relative = f"{100 * rule['relative']:.0f} %" if "relative" in rule else "–"
        lines.append(f"| {name} | {relative} | {rule['absolute']:g} {rule['unit']} | {rule['why']} |")
    return "\n".join(lines) + "\n"
