#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: unless it was installed and removed before, a package shows what is wrong with it only on somebody's host.
# How: builds it twice (same bytes?), has Debian's checker and systemd look at it, installs, removes and purges
# it in a clean root of this system's release, with every file listed before and after; and runs the Ansible
# role there against stand-ins for systemd and for hosts that do well or badly.
#
# Usage: test.sh [BINARY [OUT]]   BINARY: target/release/corun; OUT: out/package. Needs root.
#        CORUN_PACKAGE_CACHE      where the clean root is kept (~/.cache/corun/package)
set -euo pipefail

repository="$(cd "$(dirname "$0")/.." && pwd)"
binary="${1:-$repository/target/release/corun}"
out="${2:-$repository/out/package}"
cache="${CORUN_PACKAGE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/corun/package}"
# Worse is refused; `systemd-analyze security` says what each unit leaves open.
most_exposed=3.0
passed=0 failed=0

# verdict NAME COMMAND…: passed if the command succeeds; its output is shown if it does not.
verdict() {
	local name="$1" said
	shift
	if said="$("$@" 2>&1)"; then
		passed=$((passed + 1))
		echo "pass  $name"
	else
		failed=$((failed + 1))
		printf 'FAIL  %s\n%s\n' "$name" "$said"
	fi
}

# inside COMMAND…: in the clean root, with processes of its own and this machine's devices.
inside() {
	# shellcheck disable=SC2016  # the inner shell's variables
	unshare --mount --pid --fork -- sh -c '
		mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" || exit
		root="$1"
		shift
		exec chroot "$root" env -i "$@"' sh "$root" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin HOME=/root \
		LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}

make_root() {
	local release tar
	release="$(. /etc/os-release && echo "$VERSION_CODENAME")"
	tar="$cache/$release.tar"
	if [ ! -e "$tar" ]; then
		echo "Making a clean root of $release (once, some minutes)"
		mkdir -p "$cache"
		mmdebstrap --quiet --format=tar --variant=minbase --include=systemd-sysv,ansible-core "$release" "$tar.new"
		mv "$tar.new" "$tar"
	fi
	mkdir "$root"
	tar -x -f "$tar" -C "$root" --exclude=./dev/*
	mkdir -p "$root/dev"
}

# snapshot NAME: every file with its kind, mode and size, and what configuration says; without dpkg's, apt's and
# systemd's records of their own work.
snapshot() {
	(
		cd "$root"
		find . -xdev \( -path ./proc -o -path ./dev -o -path ./tmp -o -path ./var/cache -o -path ./var/log \
			-o -path ./run/systemd -o -path ./var/lib/dpkg -o -path ./var/lib/apt \) -prune -o \( -type d -printf '%p %y %m\n' \
			-o -printf '%p %y %m %s %l\n' \) | LC_ALL=C sort
		find etc -type f -exec sha256sum {} + | LC_ALL=C sort -k 2
	) >"$out/$1.list"
}

# same A B: are these snapshots the same?
same() { diff "$out/$1.list" "$out/$2.list"; }

# The exposure of a unit, as systemd computes it, is at most what we say.
exposed() {
	local said level
	said="$(systemd-analyze security --offline=true "$1" | tail -n 1)"
	level="$(grep -oE '[0-9]+\.[0-9]+' <<<"$said")"
	echo "      ${1##*/}: $level" >&3
	awk -v level="$level" -v most="$most_exposed" 'BEGIN { exit !(level <= most) }' || {
		echo "$said (at most $most_exposed)"
		return 1
	}
}

# Heartbeats of the guest's daemon are real-time threads.
real_time() { ! grep '^RestrictRealtime=' "$repository/packaging/systemd/corun-guest.service"; }

# setting NAME: what corun.service says.
setting() { sed -n "s/^$1=//p" "$repository/packaging/systemd/corun.service"; }

# The limit on starts stops what fails at once, and nothing that worked for half a second.
starts_again() {
	local within most pause
	within="$(setting StartLimitIntervalSec)" most="$(setting StartLimitBurst)" pause="$(setting RestartSec)"
	[ $((most * pause)) -lt "$within" ] && [ $((most * (2 * pause + 1))) -gt $((2 * within)) ]
}

same_bytes() {
	local again
	again="$("$repository/packaging/deb/build.sh" "$binary" "$work/again" | tail -n 1)"
	cmp "$package" "$again"
}

# Does the manual page that each unit names exist, and each completion?
documented() {
	local page
	for page in $(sed -n 's/^Documentation=man:\(.*\)(1)/\1/p' "$repository"/packaging/systemd/*.service) corun; do
		[ -s "$root/usr/share/man/man1/$page.1.gz" ] || { echo "no $page.1" && return 1; }
	done
	bash -n "$root/usr/share/bash-completion/completions/corun"
	grep -q preflight "$root/usr/share/zsh/vendor-completions/_corun" "$root/usr/share/fish/vendor_completions.d/corun.fish"
}

# What systemd says about the units where the package is installed: nothing.
verified() {
	local said
	said="$(inside systemd-analyze verify --man=no corun.service corun-metrics.service corun-guest.service 2>&1)" || true
	if grep -i corun <<<"$said"; then return 1; fi
}

try_package() {
	cp "$package" "$root/tmp/corun.deb"
	snapshot before
	verdict "apt installs it" inside apt-get install -q -y --no-install-recommends /tmp/corun.deb
	snapshot installed
	verdict "the command runs" inside corun policies
	verdict "pages and completions are there" documented
	verdict "systemd finds nothing wrong with the units" verified
	verdict "nothing is started or enabled" test ! -e "$root/etc/systemd/system/multi-user.target.wants/corun.service"
	# As on a host on which the service ran.
	verdict "the service can be enabled" inside systemctl enable corun.service
	mkdir -p "$root/var/lib/corun"
	echo '{}' >"$root/var/lib/corun/runs.json"
	verdict "it installs over itself" inside apt-get install -q -y --reinstall --no-install-recommends /tmp/corun.deb
	verdict "and stays enabled" test -L "$root/etc/systemd/system/multi-user.target.wants/corun.service"
	verdict "apt removes it" inside apt-get remove -q -y corun
	snapshot removed
	verdict "apt purges it" inside apt-get purge -q -y corun
	snapshot purged
	verdict "nothing is left behind" same before purged
	echo "      files: $(grep -c ' f ' "$out/before.list") before, $(grep -c ' f ' "$out/installed.list") installed," \
		"$(grep -c ' f ' "$out/removed.list") removed, $(grep -c ' f ' "$out/purged.list") purged"
}

main() {
	[ "$(id -u)" = 0 ] || {
		echo "test.sh: a clean root needs root: run this as root" >&2
		exit 2
	}
	exec 3>&1
	work="$(mktemp -d)"
	trap 'rm -rf "$work"' EXIT
	root="$work/root"
	mkdir -p "$out"
	package="$("$repository/packaging/deb/build.sh" "$binary" "$out" | tail -n 1)"
	verdict "the package is the same when built again" same_bytes
	verdict "lintian is content" lintian --allow-root --fail-on error,warning --info "$package"
	local unit
	for unit in "$repository"/packaging/systemd/*.service; do
		verdict "exposure of ${unit##*/}" exposed "$unit"
	done
	verdict "the guest's heartbeats may be real-time threads" real_time
	verdict "only what fails at once is not started again" starts_again
	make_root
	try_package
	# shellcheck source=packaging/ansible/test.sh
	. "$repository/packaging/ansible/test.sh"
	try_role
	echo "$passed passed, $failed failed"
	[ "$failed" = 0 ]
}

main
