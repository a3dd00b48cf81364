# shellcheck shell=sh disable=SC2154,SC2086  # set by run and corun.sh; lists of names are split
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: what an administrator sets for a cgroup must mean under corun what it means without it.
# How: the same VMs, the same settings, under corun and then under the kernel's own scheduler, in one boot; how much of
# the pCPUs each VM gets goes to /out/contract.tsv, and ../contract.py compares.

groups=/sys/fs/cgroup

# Four VMs that want all the CPU time they can get, two of them within a slice.
tree="gold.slice/a gold.slice/b c d"
build_tree() {
	names="a b c d"
	mkdir -p $groups/gold.slice
	echo "+cpu +cpuset" >$groups/gold.slice/cgroup.subtree_control
	for _group in $tree; do
		mkdir -p "$groups/$_group"
		start_vm "${_group##*/}" spin
		vm_pid "${_group##*/}" >"$groups/$_group/cgroup.procs"
	done
	sleep 1
}

# set_group FILE VALUE GROUP…
set_group() {
	_file="$1" _value="$2"
	shift 2
	for _group in "$@"; do echo "$_value" >"$groups/$_group/$_file" || fail "$_group/$_file: $_value"; done
}

# Resets everything to its default.
plain() {
	# An idle cgroup has no weight that could be set.
	set_group cpu.idle 0 gold.slice $tree
	set_group cpu.weight 100 gold.slice $tree
	set_group cpu.max "max 100000" gold.slice $tree
	set_group cpuset.cpus "0-1" gold.slice $tree
	for _inner in vcpus vcpu0 vcpu1; do
		[ ! -d "$groups/c/$_inner" ] || set_group cpu.max "max 100000" "c/$_inner"
	done
	signal_vms CONT $names
}

say_weights() {
	set_group cpu.weight 200 d
	set_group cpu.weight 1000 gold.slice
}
say_nested() {
	set_group cpu.weight 300 gold.slice
	set_group cpu.weight 200 gold.slice/b
	signal_vms STOP d
}
say_quota() {
	set_group cpu.max "20000 100000" c
	signal_vms STOP a b d
}
say_half() { set_group cpu.max "20000 100000" c d; }
say_outer() {
	set_group cpu.max "40000 100000" gold.slice
	signal_vms STOP d
}
say_idle() {
	set_group cpu.idle 1 d
	signal_vms STOP a b
}
say_cpuset() {
	set_group cpuset.cpus 0 c
	signal_vms STOP a b
}

# libvirt's vCPUs have cgroups of their own, in which nobody else wakes up now and then: these vCPUs compute all the
# time.
say_inner() {
	vcpus_apart
	set_group cpu.max "20000 100000" c/vcpus
	signal_vms STOP a b d
}
say_around() {
	vcpus_apart
	set_group cpu.max "20000 100000" c
	signal_vms STOP a b d
}
# Each vCPU has a cgroup to itself, as libvirt's do, and a limit of its own (libvirt's <quota>).
say_each() {
	vcpus_each
	set_group cpu.max "20000 100000" c/vcpu0 c/vcpu1
	signal_vms STOP a b d
}
# The vCPUs of c are in a cgroup within that of their VM, and have been running there for a while.
vcpus_apart() {
	threaded_group vcpus
	for _thread in $(vcpu_threads c); do
		echo "$_thread" >$groups/c/vcpus/cgroup.threads || fail "$_thread: c/vcpus"
	done
	sleep 0.5
}
# Each vCPU in a cgroup of its own.
vcpus_each() {
	_number=0
	for _thread in $(vcpu_threads c); do
		threaded_group "vcpu$_number"
		echo "$_thread" >"$groups/c/vcpu$_number/cgroup.threads" || fail "$_thread: c/vcpu$_number"
		_number=$((_number + 1))
	done
	sleep 0.5
}
# threaded_group NAME: a cgroup of threads within that of c.
threaded_group() {
	mkdir -p "$groups/c/$1"
	echo threaded >"$groups/c/$1/cgroup.type"
	echo "+cpu" >$groups/c/cgroup.subtree_control
}
vcpu_threads() {
	for _task in /proc/"$(vm_pid "$1")"/task/*; do
		! grep -q '^CPU [0-9]*/KVM$' "$_task/comm" || echo "${_task##*/}"
	done
}

# The last three leave the vCPUs of c in cgroups within its own.
contract_cases="weights nested quota half outer idle cpuset inner around each"

# What each VM gets under $under, case by case; settings change while they run.
measure_cases() {
	for _case in $contract_cases; do
		plain
		"say_$_case"
		# Settings must hold within 1 s; the rest is for what was owed before.
		sleep 1.5
		echo "$_case	$under	$(cpu_of 2 $names)" | tee -a /out/contract.tsv
		[ "$_case" != cpuset ] ||
			verdict "contract: $under keeps a cpuset" "moved to pCPU 0 while it ran" only_on 0 c
	done
	plain
}

# Did every vCPU of this VM last run on this pCPU?
only_on() {
	for _thread in $(vcpu_threads "$2"); do
		_stat="/proc/$(vm_pid "$2")/task/$_thread/stat"
		[ "$(sed 's/.*) //' "$_stat" | cut -d ' ' -f 37)" = "$1" ] || return 1
	done
}

phase_contract() {
	begin "contract"
	# Loading takes long where others want to run, too.
	start_corun fair
	build_tree
	under=corun
	measure_cases
	verdict "contract: every vCPU makes progress" "under corun" all_alive $names
	stop_corun
	verdict "contract: leaves cleanly" "$exit_reason" left_cleanly
	under=kernel
	measure_cases
	# What a policy makes of it: it is only asked.
	say_each
	corun host --policy jupiter --observe --for 3s --interval 1s --json >/out/contract-quotas.json
	plain
	stop_vms >/dev/null
}
