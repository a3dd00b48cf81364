#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: the effect of `corun guest` has to be measured in a VM whose vCPUs really lose their pCPUs.
# How: builds the programs, packs them with the testbed's kernel, and lets bench.py run an emulated
# VM of two vCPUs, each tied to a CPU that a competitor takes half of the time.
#
# Usage: run.sh [OUT [OPTION…]]  OUT: out/bench-guest; options of bench.py. Needs root (real-time
#                                priorities) and two CPUs
# Exit codes: 0 measured, 77 packages cannot be had, else failed
set -euo pipefail
# shellcheck source=testbed/common.sh
. "$(dirname "$0")/../common.sh"

guest_dir="$(cd "$(dirname "$0")" && pwd)"
repository="$testbed_dir/.."
target=x86_64-unknown-linux-gnu
out="${1:-$repository/out/bench-guest}"
options=("${@:2}")

# Both programs, as DIR/bin/*.
stage() {
	local static="${CARGO_TARGET_DIR:-$repository/target}/$target/static"
	(cd "$repository" && RUSTFLAGS="-C target-feature=+crt-static" \
		cargo build --quiet --profile static --locked --target "$target" -p corun-guestload)
	stage_corun "$1"
	cp "$static/corun-guestload" "$1/bin/"
}

# Packs directory $1 as a cpio archive onto standard output; all files become root's.
pack() { (cd "$1" && find . | "$testbed_cache/tools/usr/bin/busybox" cpio -o -H newc -R 0:0 2>/dev/null); }

make_initramfs() {
	local root="$work/root"
	mkdir -p "$root"/{bin,proc,sys,dev,tmp,run,root,modules,test}
	cp -r "$work/test/lib" "$root/lib"
	ln -s lib "$root/lib64"
	cp "$testbed_cache/tools/usr/bin/busybox" "$root/bin/"
	ln -s busybox "$root/bin/sh"
	cp "$guest_dir/init" "$guest_dir/robust.sh" "$root/"
	cp "$testbed_cache/kernel/modules/virtio_blk.ko" "$root/modules/"
	cp -r "$work/test/bin" "$root/test/"
	pack "$root" >"$work/initramfs"
}

main() {
	[ "$(id -u)" = 0 ] || die "competitors need real-time priorities: run this as root"
	[ "$(nproc)" -ge 2 ] || die "two CPUs are needed"
	work="$(mktemp -d "${TMPDIR:-/tmp}/corun-guest.XXXXXX")"
	trap 'rm -rf "$work"' EXIT
	"$testbed_dir/fetch.sh"
	stage "$work/test"
	make_initramfs
	mkdir -p "$out"
	exec 9>"$testbed_cache/boot.lock"
	flock 9
	python3 "$guest_dir/bench.py" --qemu "$testbed_cache/qemu/qemu-system-x86_64" \
		--kernel "$testbed_cache/kernel/vmlinuz" --initramfs "$work/initramfs" \
		--load "$work/test/bin/corun-guestload" --out "$out" "${options[@]}"
}

main "$@"
