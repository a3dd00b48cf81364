#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Same scenario, same seed: same bytes. Compares JSON and timeline of a debug and a release build, whose
# dispatchers are compiled by clang and by gcc (crates/dispatcher/build.rs), and of one thread and eight.
set -euo pipefail
cd "$(dirname "$0")/.."

# The second uses every model there is: SMT, caches, locks, disks, network.
scenarios=(experiments/example.toml experiments/shop.toml)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

run() { # name binary jobs
	local name=$1 binary=$2 jobs=$3
	local policies=cfs,cfs-cosched-dt,cfs-cosched-demand,eevdf,credit,affinity,balance
	for scenario in "${scenarios[@]}"; do
		"$binary" compare "$scenario" --policies "$policies" --seeds 1,2 \
			--duration 300ms --jobs "$jobs" --json --quiet >>"$work/$name.json"
		"$binary" compare "$scenario" --policies balance --seed 1 --duration 300ms --jobs "$jobs" \
			--json --quiet --trace "$work/$name.part" >/dev/null
		cat "$work/$name.part" >>"$work/$name.trace"
	done
}

same() { # what a b
	if cmp -s "$work/$2.json" "$work/$3.json" && cmp -s "$work/$2.trace" "$work/$3.trace"; then
		echo "ok   $1: identical JSON and timeline"
		passed=$((passed + 1))
	else
		echo "FAIL $1: $2 and $3 differ"
		failed=$((failed + 1))
	fi
}

# Built as by `cargo test`: with the features of the whole workspace, so that nothing is built twice.
cargo test -q --workspace --no-run
cargo build -q --release -p corun

run release target/release/corun 1
run threads target/release/corun 8
run debug target/debug/corun 2
test -s "$work/release.json" && test -s "$work/release.trace"
same "one thread and eight" release threads
same "debug and release, clang and gcc" release debug

echo "determinism: $passed passed, $failed failed"
[[ $failed == 0 ]]
