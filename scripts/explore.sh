#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: tests with random cases find a fault that one case in a thousand shows only if they are run often, and then
# blame whatever was changed last.
# How: `cargo test` draws the same cases every time (.cargo/config.toml); this draws others, round after round, until
# one fails. proptest then writes the case beside the test: commit it with the fix.
#
# Usage: explore.sh [ROUNDS] [PACKAGE…]    default: 10 rounds of the packages with property tests
set -euo pipefail
cd "$(dirname "$0")/.."

rounds="${1:-10}"
shift || true
if ! [[ $rounds =~ ^[1-9][0-9]*$ ]]; then
	echo "explore.sh: ROUNDS is \"$rounds\": expected a number from 1" >&2
	exit 2
fi
packages=("$@")
if [ ${#packages[@]} -eq 0 ]; then
	mapfile -t packages < <(git grep -l proptest -- 'crates/*/Cargo.toml' | cut -d / -f 2 | sed 's/^/corun-/; s/^corun-cli$/corun/')
fi
for ((round = 1; round <= rounds; round++)); do
	seed=$((RANDOM << 30 | RANDOM << 15 | RANDOM))
	echo "round $round of $rounds: PROPTEST_RNG_SEED=$seed"
	PROPTEST_RNG_SEED=$seed cargo test --quiet "${packages[@]/#/--package=}"
done
