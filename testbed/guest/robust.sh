# SPDX-License-Identifier: GPL-2.0-only
# Functions are called by name, $options are words, and $pid is set by `start`, in init:
# shellcheck shell=sh disable=SC2317,SC2086,SC2154
#
# Problem: what `corun guest` does when something goes wrong while threads are moved can only be seen where vCPUs lose
# their CPUs.
# How: each function is one such fault (busybox sh, part of the guest's process 1); it prints the outcome in words, and
# returns whether that is as it should be. `outcomes` runs all of them.

options="--heartbeat 10ms --own-permille 500"

# What the daemon does now: the value of KEY in its status.
now() { corun guest status --json | sed -n "s/.*\"$1\":\"\{0,1\}\([^,\"]*\).*/\1/p"; }

# reading SECONDS: starts a reader and computing threads; sets $load and $reader, its thread. The reader is left alone
# for its first 10 s.
reading() {
	corun-guestload inside "$1" 1 /dev/vda >/tmp/load &
	load=$!
	reader=""
	until [ "$reader" ] || ! kill -0 "$load"; do
		sleep 0.1
		reader="$(grep -l '^reader/0$' "/proc/$load/task/"*/comm 2>/dev/null | cut -d / -f 5)"
	done
}

# The vCPUs that the reader may use.
mask() { sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "/proc/$load/task/$reader/status"; }

# until_within SECONDS COMMAND…: waits until it succeeds.
until_within() {
	left=$(($1 * 5))
	shift
	while ! "$@"; do
		left=$((left - 1))
		[ $left -gt 0 ] || return 1
		sleep 0.2
	done
}

is_moved() { case "$(mask)" in 0 | 1) ;; *) return 1 ;; esac }
is_free() { [ "$(mask)" = 0-1 ]; }
is_one_vcpu() { [ "$(now doing)" = "stood down" ]; }

# over: the daemon and the load end.
over() {
	kill -TERM "$pid" 2>/dev/null
	wait "$pid" 2>/dev/null
	[ -z "$load" ] || kill -KILL "$load" 2>/dev/null
	wait "$load" 2>/dev/null
	echo 1 >/sys/devices/system/cpu/cpu1/online
}

killed() {
	start $options
	reading 60
	until_within 30 is_moved || return 1
	kill -KILL "$pid"
	wait "$pid"
	left="$(mask)"
	corun guest restore 2>/dev/null
	printf 'left on vCPU %s; restored to vCPUs %s' "$left" "$(mask)"
	is_free
}

storm() {
	start $options
	reading 60
	until_within 30 is_moved || return 1
	made="$(corun-guestload storm 5 /dev/vda)"
	printf '%s threads a second, each with a read: %s' "$made" "$(now doing)"
	kill -0 "$pid" && [ "$(now doing)" = working ]
}

regrouped() {
	mkdir -p /sys/fs/cgroup/selected
	start $options --cgroup /selected
	reading 60
	sleep 3
	before="$(mask)"
	echo "$load" >/sys/fs/cgroup/selected/cgroup.procs
	until_within 30 is_moved || return 1
	echo "$load" >/sys/fs/cgroup/cgroup.procs
	until_within 5 is_free
	printf 'outside vCPUs %s, inside moved, outside again vCPUs %s' "$before" "$(mask)"
	[ "$before" = 0-1 ] && is_free
}

one_vcpu() {
	start $options
	reading 60
	until_within 30 is_moved || return 1
	echo 0 >/sys/devices/system/cpu/cpu1/online
	until_within 10 is_one_vcpu || return 1
	# Otherwise the mask of its last move would be taken for that of a new one.
	until_within 10 is_free || return 1
	said="$(now because)"
	alone="$(mask)"
	echo 1 >/sys/devices/system/cpu/cpu1/online
	until_within 20 is_moved
	printf '"%s", vCPUs %s; both again: %s' "$said" "$alone" "$(now doing)"
	is_moved
}

# The wall clock goes an hour back and a day forward.
clock() {
	start $options
	reading 60
	until_within 30 is_moved || return 1
	date -s "@$(($(date +%s) - 3600))" >/dev/null
	sleep 2
	date -s "@$(($(date +%s) + 90000))" >/dev/null
	sleep 2
	printf '%s' "$(now doing)"
	[ "$(now doing)" = working ]
}

# The benchmark outside stops the whole VM for 12 s meanwhile.
suspended() {
	start $options
	reading 60
	until_within 30 is_moved || return 1
	uptime="$(cut -d . -f 1 /proc/uptime)"
	echo suspend >&3
	read -r _ <&3
	gone=$(($(cut -d . -f 1 /proc/uptime) - uptime))
	until_within 20 is_moved
	printf 'gone for %s s, then %s' "$gone" "$(now doing)"
	[ $gone -ge 10 ] && is_moved
}

ended() {
	start $options
	reading 60
	until_within 30 is_moved || return 1
	kill -TERM "$pid"
	wait "$pid"
	printf 'vCPUs %s' "$(mask)"
	is_free
}

outcomes() {
	for it in ended killed storm regrouped one_vcpu clock suspended; do
		load=""
		if $it >/tmp/outcome; then right=true; else right=false; fi
		over
		echo "{\"what\":\"$it\",\"outcome\":\"$(sed 's/"/\\"/g' /tmp/outcome)\",\"right\":$right}" >&3
	done
	echo '{"what":"end"}' >&3
}
