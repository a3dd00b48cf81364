# shellcheck shell=sh disable=SC2086,SC2154  # lists of names are split; set by run and lib.sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: KVM reports to guests how long they were kept waiting (steal); corun shows ready time. Are these the same?
# How: three VMs of two vCPUs on two pCPUs, all of which compute: two thirds of their time is steal. KVM writes it to
# the guests' memory, corun-microvm prints it; ../steal.py compares it with corun's.

# steal_now WHEN: the last line of each VM.
steal_now() {
	for vm in $names; do tail -n 1 "$vms/$vm.log" >"/out/steal/$vm-$1.json"; done
}

phase_steal() {
	begin "steal against ready time"
	mkdir -p /out/steal
	# As on every host.
	[ -e /var/run ] || { mkdir -p /var && ln -s /run /var/run; }
	equals --steal 1
	steal_now top-begin
	corun top --json --vcpus -d 15 >/out/steal/top.json
	steal_now top-end
	start_corun fair
	sleep 2
	corun status --json >/out/steal/status-begin.json
	steal_now status-begin
	sleep 15
	corun status --json >/out/steal/status-end.json
	steal_now status-end
	verdict "steal: every vCPU makes progress" "$names" all_alive $names
	verdict "steal: scxtop finds corun" "/var/run/scx/root/stats" [ -S /var/run/scx/root/stats ]
	stop_corun
	verdict "steal: leaves cleanly" "$exit_reason" left_cleanly
	verdict "steal: no socket of scx_stats is left" "/var/run/scx/root/stats" [ ! -e /var/run/scx/root/stats ]
	stop_vms >/dev/null
}
