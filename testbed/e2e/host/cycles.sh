# shellcheck shell=sh disable=SC2154  # sourced by run; $log and $corun_pid are corun.sh's
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: are the cycles of vCPUs counted while nobody runs beside them, and only then? The emulated host has no
# performance monitoring unit.
# How: a calibration file names the clock of a pCPU in place of its cycles. Of two cores with two hardware threads, one
# has a single vCPU, which computes and sleeps; the other one has a loop on each thread, and the daemon, this shell and
# the VMMs. ../cycles.py, outside, judges how much of the time of each was counted.

calibration=/tmp/symbiosis.toml
knob=/proc/sys/kernel/perf_event_paranoid

# symbiosis_file MACHINE…: topology, L2 and LLC of a machine that the file says it was made on.
symbiosis_file() {
	cat >$calibration <<-END
		format = "corun-symbiosis-1"
		source = "the testbed: a clock in place of cycles, nothing in place of stalls"
		[machine]
		topology = "$1"
		l2 = "$2"
		llc = "$3"
		[coefficient]
		base = 1396
		wait = 861
		wait_wait = 277
		miss = 1436
		miss_miss = 910
		[event.cycles]
		type = "software"
		config = "cpu-clock"
		[event.stalls]
		type = "software"
		config = "alignment-faults"
	END
}

# A file of another machine is refused, and the message says what this machine is: "this one is 1n2l1c2t, L2 512 KiB,
# LLC 16 MiB".
foreign_is_refused() {
	symbiosis_file 1n1l3c1t 4KB 8KB
	! corun policy vsmtio --calibration $calibration >/tmp/refused.txt 2>&1 &&
		machine="$(sed -n 's/.*this one is \([0-9nlct]*\), L2 \(.*\), LLC \(.*\)$/\1 \2 \3/p' /tmp/refused.txt |
			sed 's/ \([KMG]\)iB/\1B/g')" && [ "$machine" ]
}

# bound VM PCPUS: its vCPUs run on these only.
bound() {
	for _task in $(vcpus_of "$1"); do taskset -p "$2" "$_task" >/dev/null; done
}

# Links to its program.
links() {
	_id="$(bpftool prog show name cycles | sed -n 's/^\([0-9]*\):.*/\1/p')"
	[ "$_id" ] || return 0
	bpftool link show | grep -c "prog $_id *\$"
}

# Counters that the daemon has open.
counters() {
	for _fd in "/proc/$corun_pid/fd/"*; do readlink "$_fd"; done | grep -c perf_event
}

none() { [ "$("$@")" = 0 ]; }

nothing_open() { none links && none counters; }

# Is the program attached once, and does each pCPU count both events? vCPUs have counters of their own besides.
counts() { [ "$(links)" = 1 ] && [ "$(counters)" -ge 8 ]; }

told_by_policy() { corun policy | tee /tmp/policy.txt | grep -q "$1"; }

# A vCPU that has core 1 to itself, for a few milliseconds at a time, and two that share core 0 and never wait.
alone_and_together() {
	start_vm lone timer --vcpus 1 --work 50000 --sleep-us 1000
	for vm in left right; do start_vm $vm spin --vcpus 1; done
	sleep 3
	bound lone c
	bound left 3
	bound right 3
	sleep 3
}

# Debian's kernels require more rights than the daemon has kept, unless told otherwise.
restricted() {
	corun policy vsmtio --calibration $calibration >/dev/null && sleep 1 && none counters &&
		told_by_policy "not counted: cycles, software cpu-clock.*sysctl kernel.perf_event_paranoid=2" &&
		told_by_policy "refuses counters of vCPUs.*sysctl kernel.perf_event_paranoid=2" && corun policy fair
}

phase_cycles() {
	begin "cycles"
	mkdir -p /out/cycles
	paranoid="$(cat $knob)"
	# This also holds for what is started from here; vCPUs are bound elsewhere.
	taskset -p 3 $$ >/dev/null
	start_corun fair
	alone_and_together
	verdict "cycles: nothing is attached or open under fair" "$(links) links, $(counters) counters" nothing_open
	verdict "cycles: a file of another machine is refused" "1n1l3c1t" foreign_is_refused
	# shellcheck disable=SC2086  # three words
	symbiosis_file $machine
	[ "$paranoid" -lt 3 ] || verdict "cycles: people are told that counting is restricted" "$paranoid" restricted
	echo 2 >$knob
	verdict "cycles: people are told that there are no counters" "hardware cpu-cycles" without_events
	verdict "cycles: told to count" "$machine" corun policy vsmtio --calibration $calibration
	verdict "cycles: the program is attached, counters are open" "$(links) link, $(counters) counters" counts
	sleep 2
	verdict "cycles: says by what they are counted" "cpu-clock" told_by_policy "cycles by software cpu-clock"
	for run in 1 2 3 4 5 6; do
		corun status --json >/out/cycles/$run.json
		sleep 2
	done
	verdict "cycles: goes over to fair" "$(in_charge)" corun policy fair
	verdict "cycles: the program is detached, counters are closed" "$(links) links, $(counters) counters" nothing_open
	corun status --json >/out/cycles/after.json
	verdict "cycles: comes back" "$(in_charge)" corun policy vsmtio --calibration $calibration
	verdict "cycles: the program is attached again" "$(links) link, $(counters) counters" counts
	stop_vms >/dev/null
	kill -KILL "$corun_pid"
	wait "$corun_pid" 2>/dev/null
	verdict "cycles: killed, the kernel's scheduler is back" "$(scheduler)" wait_for_eevdf
	verdict "cycles: killed, the program is gone" "SIGKILL" program_gone
	echo "$paranoid" >$knob
	start_corun vsmtio --calibration $calibration
	verdict "cycles: counts from the start, restricted or not" "$(links) link, $(counters) counters" counts
	stop_corun
	verdict "cycles: leaves cleanly" "$exit_reason" left_cleanly
	verdict "cycles: with the daemon the program is gone" "SIGTERM" program_gone
	taskset -p f $$ >/dev/null
}

without_events() {
	corun policy vsmtio >/dev/null && sleep 1 && none links &&
		told_by_policy "not counted: cycles, hardware cpu-cycles.*not counted on this machine" &&
		grep -q "no symbiosis, fair order" /tmp/policy.txt
}

program_gone() {
	# The kernel lets go of a program a moment after its last descriptor.
	sleep 1
	! bpftool prog show name cycles | grep -q .
}
