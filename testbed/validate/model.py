# SPDX-License-Identifier: GPL-2.0-only
"""A scenario of the validation as a scenario of the simulator, with measured costs."""

import json
import subprocess

import trace

WARM_UP = 1.0
DURATION = 5.0
SEEDS = (1, 2, 3)
PROGRAMS = {
    "spin": ["loop {{ compute 10ms }}"],
    "timer": ["loop {{ compute {work}us ±{spread}%; count 1 rounds; sleep {sleep}us }}"],
    "lock": ["loop {{ lock shared {{ compute {work}us ±{spread}%; count 1 rounds }}; compute {work}us ±{spread}% }}"],
    "barrier": ["loop {{ compute {work}us ±{spread}%; count 1 rounds; barrier all }}"],
    "ping": [
        "queue there 1; queue back 1; send there; "
        "loop {{ recv back; compute {work}us ±{spread}%; count 1 rounds; send there }}",
        "loop {{ recv there; compute {work}us ±{spread}%; count 1 rounds; send back }}",
    ],
}


def scenario(about, vms, costs):
    """The text of a scenario; `vms` as in scenarios.toml, `costs` as from calibrate()."""
    us = lambda name: f'"{round(1000 * costs[name])}ns"'
    lines = [
        "# SPDX-License-Identifier: GPL-2.0-only",
        "# Made by testbed/validate; costs are those measured in the testbed.",
        f"title = {json.dumps(about)}",
        "[host]",
        "pcpus = 2",
        "hz = 250",
        f"costs = {{ switch = {us('switch')}, ipi = {us('ipi')}, idle_wake = {us('idle_wake')}, preemption = {us('preemption')}, timer = {us('timer')}, migration = \"0us\" }}",
        'halt_poll = { most = "0us" }',  # as host/run sets it
        "[run]",
        f'duration = "{DURATION:.0f}s"',
        f'warm_up = "{WARM_UP:.0f}s"',
        'policies = ["eevdf"]',
        "[scheduler]",
        'eevdf.preset = "7.x"',
    ]
    for name, vm in vms.items():
        lines += [f"[vm.{name}]", f"vcpus = {vm['vcpus']}"]
        if "weight" in vm:
            lines.append(f"weight = {vm['weight']}")
        if "pcpus" in vm:
            lines.append(f'allowed = "{vm["pcpus"]}"')
        interrupt, ipi, slack = "timer_interrupt", '"0us"', us("timer_slack")
        if vm["mode"] in ("ping", "barrier"):
            interrupt, ipi = "ping_interrupt", us("ping_send")
        lines += [
            f"[vm.{name}.guest]",
            # The guest has no ticks of its own; those of the host interrupt it as often.
            "hz = 250",
            f"tick = {us('tick')}",
            f"interrupt = {us(interrupt)}",
            f"ipi = {ipi}",
            'thread_switch = "0us"',
            f"timer_slack = {slack}",
            'lock = "unfair"',
        ]
        programs = PROGRAMS[vm["mode"]]
        work = round(vm.get("work", 0) * costs["slowdown"])
        for vcpu in range(vm["vcpus"]):
            program = programs[vcpu % len(programs)]
            program = program.format(work=work, sleep=vm.get("sleep"), spread=round(100 * costs["spread"]))
            lines += [f"[[vm.{name}.thread]]", f"vcpu = {vcpu}", f"program = {json.dumps(program)}"]
    return "\n".join(lines) + "\n"


def simulate(corun, file, spinning, slowdown, policy="eevdf", keys=()):
    """One (Trace, {VM: throughput}) per seed; `spinning` VMs compute `slowdown` times slower than alone."""
    results = []
    for seed in SEEDS:
        recording = file.with_suffix(f".{policy}.{seed}.events")
        command = [corun, "compare", file, "--policies", policy, "--seed", str(seed)]
        command += ["--events", recording, "--json", "--quiet"]
        for key in keys:
            command += ["--set", key]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        run = json.loads(said)["runs"][0]
        rates = {vm["name"]: vm["throughput"] for vm in run["vms"]}
        for vm in spinning:
            rates[vm] /= slowdown
        results.append((trace.Trace(recording, skip=WARM_UP), rates))
        recording.unlink()
    return results
