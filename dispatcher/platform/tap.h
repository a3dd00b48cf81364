/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The tap: everything that enters or leaves the dispatcher passes here, with a kind.
 *
 * Inputs (time, idle CPUs, shared counters, …) go through tap_in(), decisions (insert, kick, …)
 * through tap_out(). In the kernel the tap can append both to a recording; in the native build a
 * recording can be played back: tap_in() then returns the recorded value and tap_out() compares.
 * Because a callback touches nothing but its task's own struct and tapped values, a recording made
 * on many CPUs replays callback by callback, without knowing how the CPUs interleaved.
 *
 * A walk over a queue ends where no IN_NEXT_QUEUED follows; OUT_WALK separates walks. What passes
 * tap_if() is recorded only if it is not 0, and read as 0 where its kind does not follow: so inputs
 * can be added that older recordings do not have.
 *
 * The numbers are part of the recording's format: append, never renumber.
 */
#ifndef CORUN_TAP_H
#define CORUN_TAP_H

enum tap_kind {
	/* inputs */
	IN_NOW = 1,
	IN_THIS_CPU = 2,
	IN_ALLOWED = 3,
	IN_WEIGHT = 4,
	IN_TASK_CPU = 5,
	IN_PRESENT = 6,
	IN_CLAIM_IDLE = 7,
	IN_QUEUE_LENGTH = 8,
	IN_MOVED = 9,
	IN_NEXT_QUEUED = 10,
	IN_QUEUED_VTIME = 11,
	IN_SHARED = 12,
	IN_FETCHED = 13,
	IN_VCPU_OF = 14,
	IN_TASK_ID = 15,
	IN_VM_SLOT = 16,
	IN_ACTIVE_SLOT = 17,
	IN_WAKER_SLOT = 18,
	IN_WAKER_ID = 19,
	IN_GROUP = 20,
	IN_BOUND = 21,
	IN_TICK = 22,
	IN_WAS_VCPU = 23,
	IN_MICRO = 24, /* by tap_if() */
	IN_ROOM = 25,
	IN_RUNS_NOTHING = 26, /* by tap_if() */
	IN_NO_ANSWER = 27,    /* by tap_if() */
	IN_KEPT = 28,	      /* by tap_if() */
	IN_RECOUNTED = 29,    /* by tap_if() */
	IN_INTERRUPT = 30,    /* by tap_if() */
	/* decisions */
	OUT_RETURN = 64,
	OUT_INSERT_QUEUE = 65,
	OUT_INSERT_SLICE = 66,
	OUT_INSERT_VTIME = 67,
	OUT_KICK = 68,
	OUT_SLICE = 69,
	OUT_MOVE = 70,
	OUT_TIMER = 71,
	OUT_STORE = 72,
	OUT_ADD = 73,
	OUT_WALK = 74,
	OUT_REQUEUE = 75,
	OUT_RELEASE_TIMER = 76,
	OUT_INSERT_NEXT = 77,
	OUT_BITS = 78,
};

enum tap_op {
	OP_SELECT_CPU = 1,
	OP_ENQUEUE = 2,
	OP_DISPATCH = 3,
	OP_RUNNING = 4,
	OP_STOPPING = 5,
	/* 6: was quiescent; must not be used again */
	OP_TIMER = 7,
	OP_FLUSH_IPI = 8, /* in no recording: the kernel has no such callback */
	OP_RELEASE = 9,
	OP_YIELD = 10,
};

#endif
