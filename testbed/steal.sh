#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: does the steal reported to guests equal the ready time that `corun top` shows?
# How: on this machine, without emulation: three VMs of two vCPUs on two pCPUs, all of which compute. KVM writes steal
# to the guests' memory, corun-microvm prints it; e2e/steal.py compares it with corun's. Nothing is changed. Needs KVM;
# CORUN, MICROVM: the binaries.
#
# Usage: steal.sh OUT [SECONDS]     SECONDS: how long to look (14)
# Exit codes: 0 the same within 2 % of the time, 77 it cannot be measured here, else failed
set -euo pipefail

here="$(cd "$(dirname "$0")" && pwd)"
corun="${CORUN:-$here/../target/release/corun}"
microvm="${MICROVM:-$here/../target/release/corun-microvm}"
out="${1:?usage: steal.sh OUT [SECONDS]}"
seconds="${2:-14}"

skip() {
	echo "steal.sh: $*" >&2
	exit 77
}

[ "$(nproc)" -ge 2 ] || skip "needs two pCPUs"
[ -w /dev/kvm ] || skip "no /dev/kvm, or not for this user"
for binary in "$corun" "$microvm"; do
	[ -x "$binary" ] || skip "no $binary: cargo build --release -p corun -p corun-microvm"
done
pair="$(taskset -cp $$ | sed 's/.*: //; s/-/ /; s/,/ /g' | awk '{ print $1 "," $1 + 1 }')"

names="stealone stealtwo stealthree"
logs="$(mktemp -d "${TMPDIR:-/tmp}/corun-steal.XXXXXX")"
pids=()
cleanup() {
	[ "${#pids[@]}" = 0 ] || kill "${pids[@]}" 2>/dev/null || true
	rm -rf "$logs"
}
trap cleanup EXIT
mkdir -p "$out/steal"

for name in $names; do
	taskset -c "$pair" "$microvm" -name "guest=$name" --mode spin --vcpus 2 --seconds 0 --progress 100 --steal 1 >"$logs/$name" &
	pids+=($!)
done
sleep 3
now() { for name in $names; do tail -n 1 "$logs/$name" >"$out/steal/$name-top-$1.json"; done; }
now begin
"$corun" top --json --vcpus -d "$seconds" >"$out/steal/top.json"
now end
python3 "$here/e2e/steal.py" "$out"
