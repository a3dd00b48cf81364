# shellcheck shell=sh
# shellcheck disable=SC2034,SC2154  # $names is set for, and by, those that start VMs
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: does a replay of a recording predict what a policy will do?
# How: records the same VMs under the kernel's scheduler and then under corun's policies;
# ../predict.py replays the first recording and compares it with the others.

# One VM whose vCPUs meet at a barrier, one with a lock, one that computes.
meeting() {
	names="meets locks computes"
	start_vm meets barrier --work 300000
	start_vm locks lock --work 20000
	start_vm computes spin
	sleep 1
}

# Records into /out/predict/MIX-SCHEDULER-RUN.txt, once policies have settled, which takes some periods.
record_for_prediction() {
	sleep "$settle"
	trace_start 16384
	sleep 3
	trace_stop "/out/predict/$mix-$by-$run.txt" "$policy"
}

# phase_predict MIX RUN
phase_predict() {
	mkdir -p /out/predict
	mix="$1" run="$2" by=eevdf settle=0 policy=""
	begin "predict: $mix under $by, run $run"
	with_vms "$mix" record_for_prediction
	for by in balance jupiter aql; do
		settle=2 policy=$by
		begin "predict: $mix under $by, run $run"
		start_corun $by
		with_vms "$mix" record_for_prediction
		stop_corun
		verdict "predict: $mix under $by leaves cleanly" "$exit_reason" left_cleanly
	done
}
