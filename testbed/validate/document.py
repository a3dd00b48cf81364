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
        "| scenario | what | unit | testbed, boot by boot | simulator, with each boot's costs | off by (median) | allowed | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        real, ours = (", ".join(number(value) for value in side) for side in (row.measured, row.simulated))
        lines.append(
            f"| {row.scenario} | {row.name} | {row.rule['unit']} | {real} | {ours} | "
            f"{number(row.off)} | ±{number(row.allowed)} | {row.verdict} |"
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
        if row.verdict in ("OUT", "noisy"):
            known = notes.get(row.scenario, {}).get(row.name, "not explained")
            lines.append(f"- {row.scenario}, {row.name}: {known}")
    return ["", "Out of tolerance or noisy:", ""] + lines if lines else []


def results(rows, before, caught, controls, boots):
    lines = table(rows) + ["", f"{tally(rows)}."]
    lines += controls_of(caught, controls) + explained(rows)
    lines += [
        "",
        f"Without `slice_at_switch`, `timer_stays` and `lazy_preemption`: {tally(before)}.",
        "",
        "Costs measured in each boot, µs; `slowdown` and `spread` are ratios:",
        "",
        "| boot | " + " | ".join(boots[0].costs) + " |",
        "|---" * (len(boots[0].costs) + 1) + "|",
    ]
    for boot in boots:
        lines.append(f"| {boot.out.name} | " + " | ".join(number(cost) for cost in boot.costs.values()) + " |")
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
