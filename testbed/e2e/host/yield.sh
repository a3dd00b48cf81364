# shellcheck shell=sh disable=SC2086,SC2154  # lists of names are split; set by run and lib.sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: does a vCPU that spins make its preempted sibling run, under corun as under the kernel's own scheduler? The
# emulated processor has no pause-loop exits.
# How: a guest that asks by hypercall, which ends in the same yield_to(); KVM counts how often it asked the scheduler,
# and with what success. Then once more, with decisions on record.

kvm_count() { cat "/sys/kernel/debug/kvm/directed_yield_$1"; }

# How often KVM asked, and with success, for 4 s; what the guest did, per second.
measure_yields() {
	asked="$(kvm_count attempted)" heard="$(kvm_count successful)" did="$(counted locker)"
	sleep 4
	number "yields $1 asked/s" "$((($(kvm_count attempted) - asked) / 4))"
	heard=$(($(kvm_count successful) - heard))
	number "yields $1 heard/s" "$((heard / 4))"
	number "yields $1 locks/s" "$((($(counted locker) - did) / 4))"
}

lockers() {
	names="locker a b"
	start_vm locker yield --work 20000
	for vm in a b; do start_vm $vm spin; done
	sleep 1
}

phase_yield() {
	begin "yield"
	lockers
	measure_yields eevdf
	start_corun fair
	sleep 1
	measure_yields corun
	stop_corun
	# Recording takes a good part of a pCPU, and vCPUs have to wait for it.
	start_corun fair --record /out/lockstep-yield.bin
	sleep 3
	verdict "yield: corun hears spinners" "$heard times in 4 s" [ "$heard" -gt 0 ]
	verdict "yield: every vCPU makes progress" "$names" all_alive $names
	stop_corun
	verdict "yield: leaves cleanly" "$exit_reason" left_cleanly
	verdict "yield: guests live on" "under $(scheduler)" all_alive $names
	stop_vms >/dev/null
}
