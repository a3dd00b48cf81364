# shellcheck shell=sh disable=SC2154  # sourced by run; $exit_reason is corun.sh's
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: two tasks that compute share a core of two hardware threads while another core idles. Does one leave for it
# (dispatcher/pull.h), and do vCPUs that begin find cores of their own (placement.h)?
# How: pCPUs 0 and 1 are one core of the emulated host, 2 and 3 the other one. The emulator's hardware threads do not
# slow each other down: only who runs where is checked.

# core_of THREAD: the core that it last ran on; field 39 of its stat is the pCPU.
core_of() { sed 's/.*) //' "/proc/$1/stat" | awk '{ print int($37 / 2) }'; }

# vcpus_of VM: its vCPU threads.
vcpus_of() {
	for _task in "/proc/$(vm_pid "$1")/task/"*; do
		! grep -q '^CPU' "$_task/comm" || echo "${_task##*/}"
	done
}

# apart THREAD THREAD: how many of 20 looks in 2 s found them on different cores.
apart() {
	_times=0
	for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		[ "$(core_of "$1")" = "$(core_of "$2")" ] || _times=$((_times + 1))
		sleep 0.1
	done
	echo $_times
}

# Two loops on the hardware threads of core 0, bound to them for a second, and then free.
release_pair() {
	taskset 1 sh -c 'while :; do :; done' &
	first=$!
	taskset 2 sh -c 'while :; do :; done' &
	second=$!
	sleep 1
	bound=$(apart $first $second)
	taskset -p f $first >/dev/null
	taskset -p f $second >/dev/null
	sleep 1
	free=$(apart $first $second)
	kill $first $second
}

# Core-scheduling cookies have hung SMT hosts under sched_ext: none can be made while corun is in charge.
cookie() { corun-strain cookie | cut -f 2; }

phase_cores() {
	begin "cores"
	cookies="$(cookie)"
	start_corun balance --record /out/lockstep-cores.bin
	# A kernel without core scheduling makes none anyway.
	if [ "$cookies" = made ]; then
		_said="$(cookie)"
		verdict "cores: no core-scheduling cookie is made" "$_said" [ "$_said" != "${_said#No such device}" ]
		corun status >/tmp/status.txt
		verdict "cores: and corun status says so" "corun status" grep -q "cookies cannot be made" /tmp/status.txt
	fi
	release_pair
	verdict "cores: a pair shares a core while it is bound" "apart in $bound of 20 looks" [ "$bound" -eq 0 ]
	verdict "cores: one leaves for the core that idles" "apart in $free of 20 looks" [ "$free" -ge 15 ]
	start_vm lone spin
	sleep 2
	# shellcheck disable=SC2046  # two threads
	alone=$(apart $(vcpus_of lone))
	verdict "cores: a VM's two vCPUs have a core each" "apart in $alone of 20 looks" [ "$alone" -ge 15 ]
	stop_vms >/dev/null
	stop_corun
	verdict "cores: leaves cleanly" "$exit_reason" left_cleanly
	if [ "$cookies" = made ]; then
		_said="$(cookie)"
		verdict "cores: cookies can be made again" "$_said" [ "$_said" = made ]
	fi
}
