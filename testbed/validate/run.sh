#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: a simulator is worth as much as its agreement with what it models.
# How: runs the scenarios in the testbed under the kernel's own scheduler, three boots, and in the
# simulator with the costs measured there; validate.py compares them row by row (docs/validation.md).
#
# Usage: run.sh [--write] [--judge-only | --again N] [OUT]
#   --write       also write docs/validation.md
#   --judge-only  compare what lies in OUT already
#   --again N     boot number N anew, then compare it with the others that lie in OUT
#   OUT           default out/validate
# Exit codes: 0 all within tolerance and all controls caught, 77 packages cannot be had, else failed
set -euo pipefail
# shellcheck source=testbed/common.sh
. "$(dirname "$0")/../common.sh"

validate_dir="$(cd "$(dirname "$0")" && pwd)"
repository="$(cd "$testbed_dir/.." && pwd)"
boots="${CORUN_VALIDATE_BOOTS:-3}"
# A busy machine stalls the emulated host's pCPUs.
most_load="${CORUN_VALIDATE_LOAD:-3}"
most_tries=3
doc=() judge_only="" numbers=""
while [[ ${1:-} == --* ]]; do
	case $1 in
	--write) doc=("$repository/docs/validation.md") ;;
	--judge-only) judge_only=yes ;;
	--again)
		numbers="${2:-}"
		if ! [[ $numbers =~ ^[1-9]$ ]] || [ "$numbers" -gt "$boots" ]; then
			say "error: --again \"$numbers\": expected the number of a boot, 1 to $boots"
			exit "$exit_usage"
		fi
		shift
		;;
	*)
		say "error: unknown option $1: expected --write, --judge-only or --again N"
		exit "$exit_usage"
		;;
	esac
	shift
done
out="${1:-$repository/out/validate}"

# Waits, ten minutes at most, until the machine is calm.
wait_for_calm() {
	local tries=0 load
	while load="$(cut -d ' ' -f 1 /proc/loadavg)" && awk -v l="$load" -v m="$most_load" 'BEGIN { exit l <= m }'; do
		[ $tries -lt 60 ] || die "the load is $load; validation needs a machine that does nothing else"
		[ $tries -gt 0 ] || say "waiting for a calm machine, the load is $load"
		tries=$((tries + 1))
		sleep 10
	done
}

# spoiled NUMBER: says why a boot that ended well shows nothing, if so. If a guest lost its registers, that was the
# emulator's fault: these boots run under the kernel's own scheduler, without corun.
spoiled() {
	head -n 1 "$out/boot$1/dmesg.txt"
	grep -h -m 1 'the guest stopped' "$out/boot$1"/log-*.log || true
	# Guests that only compute for the calibration write no log.
	grep -h -m 1 'No such process' "$out/boot$1/console.log" || true
}

# boot NUMBER: one boot of the testbed; tries again if the emulator spoiled it.
boot() {
	local try status why
	for try in $(seq $most_tries); do
		status=0
		wait_for_calm
		rm -rf "${out:?}/boot$1"
		CORUN_TESTBED_PUNCTUAL=1 CORUN_TESTBED_TIMEOUT="${CORUN_TESTBED_TIMEOUT:-300}" \
			"$testbed_dir/boot.sh" "$work/test" "$out/boot$1" || status=$?
		case $status in
		0)
			why="$(spoiled "$1")"
			[ -n "$why" ] || return 0
			;;
		124 | 125) why="it did not end" ;;
		*) exit "$status" ;;
		esac
		say "the emulator spoiled boot $1, try $try of $most_tries (status $status): $why"
	done
	die "the emulator spoiled all $most_tries tries of boot $1"
}

if [ -z "$judge_only" ]; then
	work="$(mktemp -d "${TMPDIR:-/tmp}/corun-validate.XXXXXX")"
	trap 'rm -rf "$work"' EXIT
	stage_microvm "$work/test"
	cp "$validate_dir"/host/* "$work/test/"
	python3 -B "$validate_dir/validate.py" plan >"$work/test/scenarios"
	if [ -z "$numbers" ]; then
		rm -rf "$out"
		mapfile -t numbers < <(seq "$boots")
	fi
	mkdir -p "$out"
	for number in "${numbers[@]}"; do boot "$number"; done
fi
(cd "$repository" && cargo build --quiet --release --locked -p corun)
status=0
python3 -B "$validate_dir/validate.py" judge "$out" \
	"${CARGO_TARGET_DIR:-$repository/target}/release/corun" "${doc[@]}" || status=$?
say "everything lies in $out"
exit "$status"
