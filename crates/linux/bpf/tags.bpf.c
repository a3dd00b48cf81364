// SPDX-License-Identifier: GPL-2.0-only
/*
 * No new core-scheduling cookies, as long as this is attached. For crates/linux/src/tags.rs.
 *
 * Problem: on a host with SMT the first task with a cookie has hung the whole host under every
 * sched_ext scheduler, within milliseconds (sched-ext/scx issue 3715). Noticing a cookie is too
 * late. How: cookies are made by prctl(PR_SCHED_CORE) alone and inherited at fork. A task that asks
 * for one gets the kernel's answer on machines without SMT (sched_core_share_pid() in
 * kernel/sched/core_sched.c), which programs that want cookies have to handle anyway. Reading them
 * stays allowed.
 *
 * This is not a Linux security module, with which a kernel would have to be booted: the verifier
 * lets programs decide the result of every function named security_*
 * (check_attach_modify_return()).
 */
#include "../../../dispatcher/platform/kernel_types.h"

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* linux/prctl.h */
#define PR_SCHED_CORE 62
#define PR_SCHED_CORE_GET 0

#define ENODEV 19

SEC("fmod_ret/security_task_prctl")
int BPF_PROG(no_new_cookies, int option, unsigned long what)
{
	if (option == PR_SCHED_CORE && what != PR_SCHED_CORE_GET)
		return -ENODEV;
	return 0;
}

char _license[] SEC("license") = "GPL";
