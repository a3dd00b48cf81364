/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The map of tasks' state, for the dispatcher and for other objects that read it
 * (crates/linux/bpf/books.bpf.c): libbpf shares maps whose declarations agree.
 */
#ifndef CORUN_TASK_CTXS_H
#define CORUN_TASK_CTXS_H

#include "../types.h"

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_ctx);
} task_ctxs SEC(".maps");

#endif
