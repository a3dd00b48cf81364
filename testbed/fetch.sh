#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: the emulated host needs a kernel with sched_ext and a QEMU newer than Debian 12's, on a
# machine whose own packages must stay as they are.
# How: apt with a private configuration (this user's cache, the system's mirror, suite sid)
# downloads and checks the packages; they are unpacked into the cache, never installed. No root.
#
# Usage: fetch.sh [--refresh | --stress | --kernel SERIES]
#        --stress: stress-ng and rt-tests, too (100 MB of downloads, 10 MB kept)
#        --kernel: Debian stable's backport of Linux SERIES (6.16, say), too, as the cache's kernel-SERIES;
#                  then CORUN_TESTBED_KERNEL=DIR testbed/e2e/run.sh
#        exit 0: complete, 77: cannot be had here, 1: error
set -euo pipefail
# shellcheck source=testbed/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=testbed/apt.sh
. "$(dirname "$0")/apt.sh"

suite=sid
series=""
apt_dir="$testbed_cache/apt"
kernel="$testbed_cache/kernel"
qemu="$testbed_cache/qemu"
tools="$testbed_cache/tools"
bpftool="$testbed_cache/bpftool"
stress="$testbed_cache/stress"
rt_tests="hackbench cyclictest pi_stress ptsematest svsematest pmqtest sigwaittest"

# Downloads PACKAGES with everything they need, and unpacks them into ROOT.
unpack_with_dependencies() {
	local root="$1" deb
	shift
	rm -rf "$root" "$apt_dir/cache/archives/"*.deb
	mkdir -p "$root"
	private_apt apt-get --quiet=2 --yes --download-only install "$@" >/dev/null ||
		skip "these packages of $suite cannot be had: $*"
	for deb in "$apt_dir/cache/archives/"*.deb; do
		dpkg-deb --extract "$deb" "$root"
	done
	rm -f "$apt_dir/cache/archives/"*.deb
}

fetch_tools() {
	say "fetching busybox (the emulated host's programs)"
	unpack_with_dependencies "$tools.new" busybox-static
	"$tools.new/usr/bin/busybox" true || die "busybox of $suite does not run here"
	rm -rf "$tools"
	mv "$tools.new" "$tools"
}

# Keeps its libraries, too: stage_bpftool (common.sh) takes them into the emulated host.
fetch_bpftool() {
	say "fetching bpftool"
	unpack_with_dependencies "$bpftool.new" bpftool
	rm -rf "$bpftool"
	mv "$bpftool.new" "$bpftool"
}

# They depend on much that they do not link: only what they link is kept.
fetch_stress() {
	local program
	say "fetching stress-ng and rt-tests"
	unpack_with_dependencies "$stress.root" stress-ng rt-tests
	rm -rf "$stress.new"
	stage_program "$stress.new" stress-ng "$stress.root" usr/bin/stress-ng
	for program in $rt_tests; do
		stage_program "$stress.new" "$program" "$stress.root" "usr/bin/$program"
	done
	rm -rf "$stress" "$stress.root"
	mv "$stress.new" "$stress"
}

fetch_qemu() {
	local version
	say "fetching QEMU"
	unpack_with_dependencies "$qemu.new/root" qemu-system-x86 seabios
	# It gets its own loader and libraries: those of this system are too old for it.
	cat >"$qemu.new/qemu-system-x86_64" <<-'END'
		#!/bin/sh
		root="$(dirname "$0")/root"
		QEMU_MODULE_DIR="$root/usr/lib/x86_64-linux-gnu/qemu" exec \
			"$root/usr/lib64/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu" \
			"$root/usr/bin/qemu-system-x86_64" \
			-L "$root/usr/share/seabios" -L "$root/usr/share/qemu" "$@"
	END
	chmod +x "$qemu.new/qemu-system-x86_64"
	version="$("$qemu.new/qemu-system-x86_64" --version | head -n 1)" ||
		die "QEMU of $suite does not run here"
	python3 "$testbed_dir/mend-qemu.py" "$qemu.new/root/usr/bin/qemu-system-x86_64" >"$qemu.new/mended"
	say "$(cat "$qemu.new/mended")"
	echo "$version" >"$qemu.new/version"
	rm -rf "$qemu"
	mv "$qemu.new" "$qemu"
	say "have $version"
}

# The packages that make up kernel VERSION: newer ones are split in four, older ones are one.
kernel_packages() {
	private_apt apt-cache pkgnames | grep -Fx -e "linux-image-$1" -e "linux-binary-$1" \
		-e "linux-modules-$1" -e "linux-base-$1"
}

# The versions of a series, if one is named, else all; the newest first.
kernel_versions() {
	private_apt apt-cache pkgnames "linux-image-${series:+$series.}" | sed -n 's/^linux-image-\([0-9].*-cloud-amd64\)$/\1/p' |
		sort --version-sort --reverse
}

# Decompresses module NAME of the kernel unpacked in ROOT.
take_module() {
	local found
	found="$(find "$1" -name "$2.ko*" -print -quit)"
	case "$found" in
	*.ko) cp "$found" "$kernel.new/modules/$2.ko" ;;
	*.xz) "$tools/usr/bin/busybox" unxz -c "$found" >"$kernel.new/modules/$2.ko" ;;
	*.zst) zstd -qdc "$found" >"$kernel.new/modules/$2.ko" ;;
	*) die "module $2 is missing from the kernel packages" ;;
	esac
}

# Finds where kernel VERSION, unpacked in ROOT, keeps its file NAME (vmlinuz or config).
kernel_file() {
	local place
	for place in "$1/usr/lib/modules/$2/$3" "$1/lib/modules/$2/$3" "$1/boot/$3-$2"; do
		if [ -e "$place" ]; then
			echo "$place"
			return
		fi
	done
	die "the packages of kernel $2 hold no $3"
}

# Once a newer kernel has replaced one, Debian may keep only a part of it.
is_whole() {
	case "$(kernel_packages "$1")" in
	*linux-binary-*linux-modules-* | *linux-modules-*linux-binary-*) ;;
	*linux-binary-*) return 1 ;;
	esac
}

unpack_kernel() {
	local version="$1" root="$2" deb
	local -a packages
	rm -rf "$kernel.new"
	mkdir -p "$kernel.new/debs"
	mapfile -t packages < <(kernel_packages "$version")
	say "fetching kernel $version"
	(cd "$kernel.new/debs" && private_apt apt-get --quiet=2 download "${packages[@]}") ||
		skip "the packages of kernel $version cannot be had"
	for deb in "$kernel.new/debs/"*.deb; do
		dpkg-deb --extract "$deb" "$root"
	done
}

# Keeps the parts of kernel VERSION, unpacked in ROOT, that the testbed boots.
keep_kernel() {
	local version="$1" root="$2" file module
	file="$(kernel_file "$root" "$version" vmlinuz)"
	cp "$file" "$kernel.new/vmlinuz"
	mkdir -p "$kernel.new/modules"
	for module in "${testbed_modules[@]}"; do
		take_module "$root" "$module"
	done
	rm -rf "$root" "$kernel.new/debs"
	echo "$version" >"$kernel.new/version"
	rm -rf "$kernel"
	mv "$kernel.new" "$kernel"
	say "have kernel $version with sched_ext"
}

fetch_kernel() {
	local version file root="$kernel.new/root"
	for version in $(kernel_versions); do
		if ! is_whole "$version"; then
			say "kernel $version: Debian has only a part of its packages"
			continue
		fi
		unpack_kernel "$version" "$root"
		file="$(kernel_file "$root" "$version" config)"
		cp "$file" "$kernel.new/config"
		if grep -q '^CONFIG_SCHED_CLASS_EXT=y' "$kernel.new/config"; then
			keep_kernel "$version" "$root"
			return
		fi
		say "kernel $version is built without sched_ext"
	done
	skip "no cloud kernel ${series:+$series }with sched_ext can be had from $suite"
}

is_complete() {
	[ -e "$tools" ] && [ -e "$bpftool" ] && [ -e "$qemu/mended" ] && [ -e "$kernel/version" ] &&
		{ [ ! "$1" ] || [ -e "$stress" ]; }
}

usage() {
	echo "usage: $0 [--refresh | --stress | --kernel SERIES]" >&2
	exit "$exit_usage"
}

fetch_backport() {
	suite=trixie-backports
	apt_dir="$testbed_cache/apt-$suite"
	kernel="$testbed_cache/kernel-$series"
	if [ -e "$kernel/version" ]; then return; fi
	configure_apt
	fetch_kernel
	# Like build-kernel.sh's, these may have no deadline server for sched_ext.
	case "$series" in
	6.*) echo rcutree.kthread_prio=1 >"$kernel/append" ;;
	esac
	rm -rf "$apt_dir"
}

main() {
	local refresh="" with_stress=""
	case "${1:-}" in
	"") ;;
	--refresh) refresh=yes ;;
	--stress) with_stress=yes ;;
	--kernel)
		[[ ${2:-} =~ ^[0-9]+\.[0-9]+$ ]] || usage
		"$0"
		series="$2" && fetch_backport
		return
		;;
	*) usage ;;
	esac
	if [ ! "$refresh" ] && is_complete "$with_stress"; then return; fi
	[ "$(uname -m)" = x86_64 ] || skip "only x86-64 machines are supported, this one is $(uname -m)"
	command -v apt-get >/dev/null || skip "this system has no apt to fetch packages with"
	mkdir -p "$testbed_cache"
	exec 9>"$testbed_cache/fetch.lock"
	flock 9
	configure_apt
	# What an interrupted run has already fetched is kept.
	if [ "$refresh" ] || [ ! -e "$tools" ]; then fetch_tools; fi
	if [ "$refresh" ] || [ ! -e "$bpftool" ]; then fetch_bpftool; fi
	if [ "$with_stress" ] && [ ! -e "$stress" ]; then fetch_stress; fi
	# One that is not mended yet is fetched anew.
	if [ "$refresh" ] || [ ! -e "$qemu/mended" ]; then fetch_qemu; fi
	if [ "$refresh" ] || [ ! -e "$kernel/version" ]; then fetch_kernel; fi
	rm -rf "$apt_dir"
	say "complete in $testbed_cache ($(du -sh "$testbed_cache" | cut -f 1))"
}

main "$@"
