# shellcheck shell=sh disable=SC2086,SC2154  # lists of names are split; set by run and lib.sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: is it visible in KVM when a vCPU waits for a sibling that is ready, and does that sibling run then?
# How: a guest whose vCPUs call each other, as Linux does to have TLBs flushed, and spin until they have answered,
# beside two that compute: under cosched-demand with and without looking at calls. Then once more, with decisions on
# record.

callers() {
	names="caller a b"
	start_vm caller call --work 100000
	for vm in a b; do start_vm $vm spin; done
	sleep 1
}

# Is the program that looks at KVM's interrupts attached at the moment?
looks() {
	_program="$(bpftool prog show name delivered | sed -n 's/^\([0-9]*\):.*/\1/p')"
	[ -n "$_program" ] && bpftool link show | grep -qw "prog $_program"
}

looks_no_more() { ! looks; }

# Interrupts to vCPUs that were ready, so far.
seen() { bpftool --json map dump name awaited.bss | sed -n 's/.*"awaited":\([0-9]*\).*/\1/p'; }

# Calls per second, for 4 s.
measure_calls() {
	did="$(counted caller)"
	sleep 4
	calls="$((($(counted caller) - did) / 4))"
	number "calls $1 /s" "$calls"
}

more_than_half_again() { [ $((2 * $1)) -gt $((3 * $2)) ]; }

# Entering an emulated vCPU and its answer take longer than 100 us.
longer="--set flush_boost=2ms --set boost_limit=10ms"

phase_awaited() {
	begin "awaited"
	callers
	start_corun cosched-demand
	corun policy cosched-demand $longer
	corun policy | tee /tmp/policy.txt
	verdict "awaited: nothing is hidden" "$(grep 'not seen' /tmp/policy.txt)" none_hidden
	sleep 1
	before="$(seen)"
	measure_calls seen
	with="$calls" saw="$(($(seen) - before))"
	verdict "awaited: calls of ready vCPUs are seen" "$saw in 4 s" [ "$saw" -gt 0 ]
	verdict "awaited: KVM's interrupts are looked at" "$(bpftool link show | tail -n 3 | tr '\n\t' '  ')" looks
	corun policy cosched-demand $longer --set sees_flushes=false
	verdict "awaited: and not if nobody wants to know" "" looks_no_more
	sleep 1
	measure_calls unseen
	verdict "awaited: who is waited for runs" "$with calls/s, $calls if it is not seen" \
		more_than_half_again "$with" "$calls"
	corun policy cosched-demand
	verdict "awaited: looked at again" "" looks
	corun policy balance
	verdict "awaited: nor under another policy" "" looks_no_more
	stop_corun
	start_corun cosched-demand --record /out/lockstep-awaited.bin
	sleep 3
	saw="$(seen)"
	verdict "awaited: seen while on record" "$saw" [ "$saw" -gt 0 ]
	verdict "awaited: every vCPU makes progress" "$names" all_alive $names
	stop_corun
	verdict "awaited: leaves cleanly" "$exit_reason" left_cleanly
	verdict "awaited: its program has gone" "" no_program
	stop_vms >/dev/null
}

none_hidden() { ! grep -q 'not seen' /tmp/policy.txt; }
no_program() { [ -z "$(bpftool prog show name delivered)" ]; }
