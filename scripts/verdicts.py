#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""No verdict that experiments/verdicts.toml keeps of `corun reproduce --quick` may get worse.

Usage: verdicts.py                            compare
       verdicts.py --update [CLAIM or glob…]  keep the verdicts of now, those of more claims, too

Only some claims are kept: those whose experiments are done soon. `make claims` does all. Takes the
release build: with a debug build it would be minutes.
"""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "experiments/verdicts.toml"
# The higher, the better; what was not checked ranks lowest.
RANK = {"exact": 3, "close": 3, "holds": 3, "direction": 2, "missed": 1, "out-of-scope": 0}
HEAD = """# SPDX-License-Identifier: GPL-2.0-only
# Verdicts of `corun reproduce --quick`: `make test` fails where one gets worse. Written anew by
# scripts/verdicts.py --update, which also takes claims to add.
"""


def verdicts(names):
    command = [ROOT / "target/release/corun", "reproduce", "--quick", "--json", "-q", *names]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    claims = json.loads(said)["claims"]
    return {claim["id"]: claim["verdict"] for claim in claims if claim["status"] == "checked"}


def main():
    update = sys.argv[1:2] == ["--update"]
    if sys.argv[1:] and not update:
        sys.exit(__doc__)
    kept = tomllib.loads(KEPT.read_text(encoding="utf-8"))["quick"]
    ours = verdicts([*kept, *sys.argv[2:]])
    if update:
        lines = [f'"{name}" = "{verdict}"\n' for name, verdict in sorted(ours.items())]
        KEPT.write_text(HEAD + "\n[quick]\n" + "".join(lines))
        return
    now = {name: ours.get(name, "out-of-scope") for name in kept}
    for name, before in kept.items():
        if RANK[now[name]] > RANK[before]:
            print(f"better: {name}: {now[name]}")
    worse = [f"{name}: {now[name]}, was {was}" for name, was in kept.items() if RANK[now[name]] < RANK[was]]
    if worse:
        sys.exit("verdicts got worse:\n" + "\n".join(worse) + "\nif they must: scripts/verdicts.py --update")
    print(f"verdicts: {len(kept)} claims, none worse than before")


if __name__ == "__main__":
    main()
