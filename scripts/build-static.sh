#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: the emulated host has no shared libraries; and the simulator must not hang on which compiler
# built its dispatcher.
# How: one build for both, static and with clang, where `cargo build` takes the machine's own compiler, and
# without the slow half of optimisation. Prints where the command lies.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(uname -m)-unknown-linux-gnu
CC=clang-19 RUSTFLAGS="-C target-feature=+crt-static" \
	cargo build --quiet --profile static --locked --target "$target" -p corun
echo "${CARGO_TARGET_DIR:-$PWD/target}/$target/static/corun"
