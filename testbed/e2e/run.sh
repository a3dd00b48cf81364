#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Problem: that corun works on a real kernel, with real KVM guests, has to be shown, not claimed.
# How: builds the command and the guests, boots the emulated host with host/run, and judges what comes out
# with check.py; the recorded decisions are replayed through the native build.
#
# Usage: run.sh [OUT [GROUP…]]   OUT: out/e2e; GROUP: only these boots (below), such as weights; "brief": the
#                                four that CI runs; or "contract", "costs", "jupiter", "vsmtio", "examples",
#                                "slices", "predict", "record", "recordings", "vsmtio_record", "book", "cost", "parallel", "crowd" or "torture",
#                                which take long and are not among those run by default
#        EXAMPLE: the policy that "examples" switches to, instead of calm
# Exit codes: 0 all passed, 77 packages cannot be had, else failed
set -euo pipefail
# shellcheck source=testbed/common.sh
. "$(dirname "$0")/../common.sh"

e2e_dir="$(cd "$(dirname "$0")" && pwd)"
repository="$testbed_dir/.."
out="${1:-$repository/out/e2e}"
most_tries=4

# stage_strain DIR: microbenchmarks as bin/corun-strain, without shared libraries, and the two minimal sched_ext
# schedulers, without and with weights.
stage_strain() {
	local target=x86_64-unknown-linux-gnu
	(cd "$repository" && RUSTFLAGS="-C target-feature=+crt-static" \
		cargo build --quiet --profile static --locked --target "$target" -p corun-strain)
	cp "${CARGO_TARGET_DIR:-$repository/target}/$target/static/corun-strain" "$1/bin/"
	local least
	for least in minimal weighted; do
		clang-19 -g -O2 -target bpf -c "$testbed_dir/strain/$least.bpf.c" -o "$1/$least.bpf.o"
	done
}

# The policies that a host can run under, one a line: those that `corun policies` calls a host's.
host_policies() {
	"$1/bin/corun" policies --json |
		python3 -c 'import json, sys
for policy in json.load(sys.stdin):
    if policy["host"]: print(policy["name"])'
}

# Policies that the boot of all policies leaves to the group "others": the emulation spoils long boots.
others="aql|vslicer|vturbo|microsliced"
# Policies that the shortest run looks at, from `fair` to one after the other: those whose decisions differ most from
# fair order.
glance="cosched-strict|jupiter"

# policies_of GROUP: those of all policies (standard input) that it goes through.
policies_of() {
	case $1 in
	others) grep -xE "$others" ;;
	glance) grep -xE "$glance" ;;
	examples) printf '%s\n' fair "${EXAMPLE:-calm}" ;;
	*) grep -vxE "$others" ;;
	esac
}

# lockstep FILE: replays natively what the kernel decided; prints a verdict for check.py.
lockstep() {
	local said word=pass
	said="$("$work/test/bin/corun" lockstep "$out/$1" 2>&1)" || word=fail
	echo "$word:$1:$(tr '\n' ' ' <<<"$said")"
}

# What happens in one boot of the host. Several short boots: the emulation rarely fails early, and then spoils little.
groups=(
	"stacking"
	"idling;policy fair"
	"policy balance"
	"policy affinity"
	"kill"
	"weights;steal"
	"yield"
	"awaited"
	"cores"
	"cycles"
	"policies"
	"others"
	"preflight;hang"
	"guard;loop"
	"canary;watch"
)

# What shows within some six minutes that a change broke nothing: stacking, the hand-back, the decisions, and that
# policies take over live from each other.
brief=(
	"stacking"
	"policy balance"
	"kill;guard"
	"glance"
)

# Recordings of the same guests under one scheduler after the other, for predict.py.
predict=(
	"predict mix 1" "predict meeting 1"
	"predict mix 2" "predict meeting 2"
	"predict mix 3" "predict meeting 3"
)

# One fault after the other; suspended VMs under every policy, four in a boot; and boot storms, which the emulator
# spoils most often, one in a boot (host/torture.sh).
torture_groups() {
	groups=("hotplug" "rt;fakes" "nonsense;oom" "starve" "stress" "rt_tests")
	local -a four
	local policy
	while mapfile -t -n 4 four && [ ${#four[@]} -gt 0 ]; do
		groups+=("suspend ${four[*]}")
	done <"$work/policies"
	while read -r policy; do groups+=("storm $policy"); done <"$work/policies"
}

# The same slices asked of sched_ext and of the kernel's own scheduler.
slices=("slices ext" "slices fair")

# Did the emulator stop a pCPU of the host? A scheduler that starves tasks leaves the pCPU its ticks; only a loop with
# interrupts off would look the same. So each repeat is reported, and worth a look. Prints the evidence.
emulator_broke() {
	awk '/rcu:.*ticks this GP/ { sub(/.*\(/, ""); ticks = $1 + 0; seen = 1 }
		/rcu:.*detected by.*t=/ { sub(/.*t=/, ""); age = $1 + 0 }
		END { if (!seen || ticks * 10 >= age) exit 1
			printf "a pCPU took %d ticks in %d jiffies", ticks, age }' "$work/out/console.log" ||
		lockup
}

# Did the kernel take the scheduler off because a pCPU stood still for 15 s or more? It does so whatever the reason, and
# before it says anything itself (scx_softlockup() in ext.c, called by is_softlockup() at three quarters of the limit).
# On a machine with other users, the emulator's threads may stand still for as long. A scheduler that often stops pCPUs
# does so in the next try, too, and each repeat is reported; one that starves tasks gets another message. Prints the
# kernel's words.
lockup() {
	grep -saoE 'sched_ext: corun: (RCU CPU stall|soft lockup|hard lockup|Soft lockup).*' "$work/out/dmesg.txt" | head -n 1 |
		grep .
}

# limit_of GROUP: seconds it may take; some three times what it takes on a machine that does nothing else.
limit_of() {
	case $1 in
	recordings) echo 1500 ;;
	vsmtio | jupiter) echo 900 ;;
	costs | policies | others | glance | book | cost | crowd | suspend*) echo 600 ;;
	policy* | kill*) echo 420 ;;
	storm*) echo 240 ;;
	*) echo 600 ;;
	esac
}

# Is everything that failed a measured time or share, which cores with other users make uneven? What must hold at any
# speed is never tried again. Prints what failed.
uneven() {
	local status=0
	python3 "$e2e_dir/check.py" "$work/out" >"$work/judged" || status=$?
	[ "$status" = 75 ] && grep '^FAIL' "$work/judged" | head -n 1
}

# attempt GROUP: its phases in the emulated host. Sets $reason if the emulator spoiled them, and $unfit if they show
# nothing.
attempt() {
	local status=0
	reason="" unfit=""
	rm -rf "$work/out"
	# Two hardware threads per core, which QEMU's AMD CPUs report with this flag only.
	local -a machine=()
	case $1 in cost | crowd) machine=(CORUN_TESTBED_CPUS=1 CORUN_TESTBED_COUNTED=1 CORUN_TESTBED_BOOT_TIMEOUT=180) ;; esac
	case $1 in vsmtio* | cores | cycles) machine=(CORUN_TESTBED_THREADS=2 "CORUN_TESTBED_CPU_MODEL=max,la57=off,topoext=on") ;; esac
	case $1 in cores | cycles) machine+=(CORUN_TESTBED_CPUS=4) ;; esac
	tr ';' '\n' <<<"$1" >"$work/test/phases"
	policies_of "$1" <"$work/policies" >"$work/test/policies"
	env "${machine[@]}" CORUN_TESTBED_TIMEOUT="${CORUN_TESTBED_TIMEOUT:-$(limit_of "$1")}" \
		"$testbed_dir/boot.sh" "$work/test" "$work/out" || status=$?
	# 77: no packages; 126: boots hung; 124 and 125: the host stood still or died.
	case $status in
	0) unfit="$(emulator_broke || true)" ;;
	124 | 125) unfit="$(emulator_broke || echo "the emulated host stood still, exit $status")" ;;
	*) exit "$status" ;;
	esac
	reason="${unfit:-$(uneven || true)}"
}

# run_group GROUP: runs it again if the emulator spoils it, and says so. Its results join those in $out.
run_group() {
	local tries=1
	attempt "$1"
	while [ "$reason" ] && [ "$tries" -lt "$most_tries" ]; do
		say "try $tries of $most_tries of '$1' is made again: $reason"
		repeated=$((repeated + 1))
		tries=$((tries + 1))
		attempt "$1"
	done
	if [ "$unfit" ]; then
		say "nothing is known of '$1'"
		printf 'fail\t%s\tthe emulator spoiled all %d tries: %s\n' "$1" "$most_tries" "$unfit" >>"$out/verdicts.tsv"
		return
	fi
	local file
	for file in "$work"/out/*; do
		case $file in
		*.tsv | *.log | dmesg.txt) cat "$file" >>"$out/${file##*/}" ;;
		*) cp -r "$file" "$out/" ;;
		esac
	done
}

# What the host's kernel and the daemon complained about: where only the output of a run is kept, nothing else helps to
# find a fault.
complaints() {
	grep -saE 'rcu:|soft lockup|RIP: |sched_ext: corun|BUG:|WARNING:|^error:|"error"' "$out/console.log" |
		cut -c 1-240 | head -n 40 || true
}

main() {
	work="$(mktemp -d "${TMPDIR:-/tmp}/corun-e2e.XXXXXX")"
	trap 'rm -rf "$work"' EXIT
	stage_microvm "$work/test"
	stage_corun "$work/test"
	stage_strain "$work/test"
	"$testbed_dir/fetch.sh"
	stage_bpftool "$work/test"
	case " ${*:2} " in *" torture "* | *" stress "* | *" rt_tests "*)
		"$testbed_dir/fetch.sh" --stress
		stage_stress "$work/test"
		;;
	esac
	host_policies "$work/test" >"$work/policies"
	for kind in host running guest; do "$repository/scripts/book.py" list $kind >"$work/test/book-$kind"; done
	cp "$e2e_dir"/host/* "$work/test/"
	rm -rf "$out"
	mkdir -p "$out"
	repeated=0
	local group
	[ $# -le 1 ] || groups=("${@:2}")
	case "${groups[*]}" in
	brief) groups=("${brief[@]}") ;;
	predict) groups=("${predict[@]}") ;;
	torture) torture_groups ;;
	slices) groups=("${slices[@]}") ;;
	esac
	for group in "${groups[@]}"; do run_group "$group"; done
	say "${#groups[@]} boots judged, $repeated made again before"
	if [ -e "$out/lockstep-policies.bin" ]; then
		"$work/test/bin/corun" lockstep --json "$out/lockstep-policies.bin" >"$out/lockstep-policies.json" || true
	fi
	local -a verdicts=()
	local recording
	for recording in "$out"/lockstep*.bin; do
		[ ! -e "$recording" ] || verdicts+=("$(lockstep "${recording##*/}")")
	done
	local status=0
	python3 "$e2e_dir/check.py" "$out" "${verdicts[@]}" || status=$?
	[ "$status" = 0 ] || complaints
	return "$status"
}

main "$@"
