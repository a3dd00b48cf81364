// SPDX-License-Identifier: GPL-2.0-only
/*
 * corun's dispatcher: the sched_ext callbacks, thin. The decisions live in the headers, by theme.
 *
 * What happens to a task: when it wakes, select_cpu gives it a place (placement.h). enqueue queues
 * it there in fair order (enqueue.h, fair.h), or hands it the pCPU if it is owed more than the task
 * that has it. dispatch gives a pCPU its next task (dispatch.h): from its own queue, or, if that is
 * empty, from the queues of others (pull.h). running and stopping keep the accounts; when the task
 * blocks, stopping also marks it as waiting (task_state.h).
 *
 * The same file is compiled to BPF for the kernel and natively for the simulator
 * (platform/platform.h).
 */
#include "core.h"
#include "dispatch.h"
#include "dispatch_core.h"
#include "dispatch_gangs.h"
#include "enqueue.h"
#include "fair.h"
#include "gang_events.h"
#include "gang_pick.h"
#include "idle.h"
#include "micro.h"
#include "occupancy.h"
#include "platform/platform.h"
#include "quota.h"
#include "retention.h"
#include "slice.h"
#include "starve.h"
#include "task_state.h"
#include "timer.h"
#include "turn.h"
#include "types.h"
#include "vm.h"
#include "yield.h"

CALLBACK(s32, corun_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct task_ctx *t = callback_begin(OP_SELECT_CPU, p, (u32)prev_cpu);
	s32 cpu;
	u64 now;

	if (!t)
		return prev_cpu;
	notice_vcpu(p, t);
	now = now_ns();
	make_ready(p, t, prev_cpu, now);
	cpu = t->cpu;
	gang_woken(t, now);
	if (!quota_out(t, now) && may_start(t, cpu, now) && core_may_start(p, t, cpu)) {
		if (claim_idle(cpu)) {
			core_claimed(p, t, cpu);
			insert_local(p, kernel_slice(slice_of(p)));
			t->woken = 0;
			t->queued = 1;
		} else {
			t->woken = WOKEN_UNANSWERED;
		}
	}
	callback_end(cpu);
	return cpu;
}

CALLBACK(void, corun_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct task_ctx *t = callback_begin(OP_ENQUEUE, p, 0);
	struct cpu_ctx *c;
	u64 now, wait;
	bool woke;

	if (!t) {
		insert_unknown(p, enq_flags);
		return;
	}
	now = now_ns();
	notice_vcpu(p, t);
	/* The kernel took it out of a queue to change its weight, its cgroup or its affinity. */
	if (t->queued)
		leave(t);
	/* A task that may run on one pCPU only wakes without select_cpu. */
	woke = has_gang(t) && t->state == TASK_WAITING;
	if (t->woken || may_stay(p, t))
		c = cpu_at(t->cpu);
	else
		c = make_ready(p, t, t->cpu, now);
	if (woke)
		gang_woken_one(t, now);
	wait = c ? quota_out(t, now) : 0;
	if (wait && !park_is_over(t, now))
		park(p, t, wait, now, enq_flags);
	else if (c)
		enqueue_at(p, t, c, now, enq_flags);
	else
		insert_unknown(p, enq_flags);
	callback_end(0);
}

CALLBACK(void, corun_dispatch, s32 cpu, struct task_struct *prev)
{
	struct task_ctx *t = dispatch_begin(cpu, prev);
	struct cpu_ctx *c = cpu_at(cpu);

	if (!c)
		return;
	if (shared(c->incoming))
		forget_incoming(c, cpu);
	if (!rescue_starving(cpu, c) && !(shared(c->favoured) && move_favoured(cpu, c)) &&
	    !dispatch_core(cpu, c, prev, t)) {
		if (with_gangs())
			dispatch_gangs(cpu, c, prev, t);
		else if (t)
			dispatch_or_keep(cpu, c, prev, t);
		else
			dispatch_next(cpu, c);
	}
	callback_end(0);
}

/*
 * `t` starts on `cpu`, and ran on another pCPU last, if it ran at all. A pCPU that falls idle for a
 * moment takes any waiting task: so if `cpu` shares its core, and no other task waits here, `cpu`
 * looks for an idle core as soon as this turn is over (finds_idle_core()).
 */
RARE void started_elsewhere(struct task_ctx *t, struct cpu_ctx *c, s32 cpu, u64 now)
{
	if (t->last_cpu != NO_PCPU)
		t->sum.migrations++;
	t->last_cpu = cpu;
	if (smt_sibling_of(cpu) != NO_PCPU && shared(c->nr) == 1 && shares_core(cpu))
		store(c->balanced_at, now - knobs.balance_interval);
}

/* Was `t`, which starts on `cpu`, running there and taken off only to be changed (its weight, its
 * cgroup, its affinity)? */
static inline bool is_changed(struct task_ctx *t, s32 cpu)
{
	return !t->queued && t->state == TASK_WAITING && t->clock_cpu == cpu && !t->woken;
}

/*
 * `t` starts on `cpu`, where enqueue did not queue it: it was pulled, and starts out of turn; or it
 * was `changed` while it ran, or throttled. In the latter two cases all of its lead still counts: a
 * task may change its own affinity as often as it likes, and must not gain by that.
 */
RARE void starts_unqueued(struct task_struct *p, struct task_ctx *t, struct cpu_ctx *c, s32 cpu,
			  bool changed)
{
	bool throttled = t->state == TASK_THROTTLED;
	u64 was = t->vtime;
	u64 here;

	if (throttled)
		starts_again(p, t);
	here = fair_arrive(t, c, cpu);
	bound_lag(p, t, c, here);
	t->rest = 0;
	if (changed || throttled)
		return;
	here = gang_clock(c, here);
	if (before(here, t->vtime))
		t->vtime = here;
	gang_moved(t, c, was);
}

/* If another task changes `p` while `p` runs, this is called on the pCPU of that other task. */
CALLBACK(void, corun_running, struct task_struct *p)
{
	struct task_ctx *t = callback_begin(OP_RUNNING, p, 0);
	s32 cpu = task_cpu_of(p);
	struct cpu_ctx *c = cpu_at(cpu);
	bool changed, rescued, gang;
	u64 ready, now;

	if (!t || !c)
		return;
	now = now_ns();
	ready = now - t->since;
	changed = is_changed(t, cpu);
	if (occupancy_start(t, c, cpu, id_of(p)))
		starts_unqueued(p, t, c, cpu, changed);
	/* A task that was queued is active already. One that the kernel did not have queued when it
	 * was interrupted has no place in the order from which to go on. */
	if (!t->queued) {
		activate_late(p, t);
		t->rest = 0;
	}
	rescued = is_rescued(t, c, ready);
	enter(t, TASK_RUNNING, now);
	t->woken = 0;
	t->queued = 0;
	t->charged = now;
	group_charged(t, now);
	t->parked_since = 0;
	t->sum.switches++;
	if (t->last_cpu != cpu)
		started_elsewhere(t, c, cpu, now);
	store(c->idle, 0);
	store(c->runs, 1);
	store(c->switches, shared(c->switches) + 1);
	if (rescued)
		t->rest = SLICE_MIN;
	if (t->rest)
		turn_goes_on(p, c, now);
	else if (changed)
		turn_cut(t, c, now);
	turn_begins(p, t, c, cpu, now);
	gang = has_gang(t);
	if (rescued || (gang && shared(c->brief)))
		shorten_turn(p, c, cpu, now);
	if (gang) {
		store(c->brief, 0);
		gang_started(p, t, c, cpu, now);
		if (ready <= STARVE_LIMIT)
			gang_stays(t, c, cpu);
	}
	callback_end(0);
}

/*
 * `t` loses its pCPU, and wants to run on. If dispatch names no task for a pCPU, the kernel lets
 * the pCPU idle even if it keeps a task for it (kernel_keeps()).
 */
static inline void interrupted(struct task_struct *p, struct task_ctx *t, u64 now)
{
	struct cpu_ctx *c = cpu_at(t->cpu);

	t->rest = 0;
	set_state(t, TASK_READY, now);
	if (c && !before(now, shared(c->slice_end))) {
		t->sum.depleted++;
		t->fresh = 0;
	} else {
		t->sum.preempted++;
		if (t->fresh)
			t->fresh = FRESH_BACK;
	}
	if (!c)
		return;
	store(c->runs, 0);
	turn_cut(t, c, now);
	if (kernel_keeps(p))
		kick(t->cpu, KICK_IDLE);
}

/* `t`, which ran, blocks; or it is taken off its pCPU to be changed, and queued again at once. */
static inline void blocks(struct task_struct *p, struct task_ctx *t, u64 now)
{
	s32 cpu = t->cpu;
	struct cpu_ctx *c = cpu_at(cpu);

	if (c) {
		store(c->runs, 0);
		if (shared(c->nr) == 1)
			fair_clock_idles(t, c);
	}
	leave(t);
	hold_begin(p, t, cpu, now);
	set_state(t, TASK_WAITING, now);
}

/*
 * Blocking is handled here: the `quiescent` callback would report the same, at the cost of one more
 * callback.
 */
CALLBACK(void, corun_stopping, struct task_struct *p, bool runnable)
{
	struct task_ctx *t = callback_begin(OP_STOPPING, p, runnable);
	u64 now;

	if (!t)
		return;
	now = now_ns();
	quota_settle(t, now);
	fair_charge(p, t, now);
	gang_stopped(p, t, runnable, now);
	if (with_micro())
		micro_ran(p, t, now);
	if (runnable) {
		put_in_reach(p);
		interrupted(p, t, now);
	} else {
		blocks(p, t, now);
	}
	callback_end(0);
}

/*
 * `p`, which runs, lets other tasks go first: `to`, which waits somewhere, or any (sched_yield()).
 */
CALLBACK(bool, corun_yield, struct task_struct *p, struct task_struct *to)
{
	struct task_ctx *t = callback_begin(OP_YIELD, p, to != NULL);
	bool yields;

	if (!t)
		return false;
	yields = to ? yield_to(p, t, to) : end_turn(p, t, TURN_OVER);
	callback_end(yields);
	return yields;
}

CALLBACK_SLEEPABLE(s32, corun_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task_ctx *t = raw_new_task_ctx(p);

	/*
	 * The memory for task_ctx is charged to the daemon's cgroup. If none is left there, tasks
	 * can be forked all the same: one without a task_ctx gets turns, too (insert_unknown()).
	 */
	if (!t)
		return args->fork ? 0 : -ENOMEM;
	t->vm = NO_VM;
	t->cpu = NO_PCPU;
	t->last_cpu = NO_PCPU;
	t->clock_cpu = NO_PCPU;
	return 0;
}

/* `p` leaves this scheduler: for another scheduling class, or for good. */
KERNEL_CALLBACK(corun_disable, struct task_struct *p)
{
	struct task_ctx *t = raw_task_ctx(p);

	if (!t)
		return;
	give_up_place(t);
	/* Otherwise it would seem, when it comes back, to have been ready all the time. */
	enter(t, TASK_WAITING, raw_now());
}

CALLBACK(void, corun_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct task_ctx *t = raw_task_ctx(p);
	u32 vm;

	if (!t)
		return;
	give_up_place(t);
	relaxed_leave(t);
	vm = vm_leave(t);
	if (vm) {
		gang_ends(t);
		vm_ends(t, vm);
	}
	t->vm = NO_VM;
}

/* A sibling waits for `p`; in the kernel, KVM's code reports that (awaited.h). */
SIMULATED_CALLBACK(corun_flush_ipi, struct task_struct *p)
{
	struct task_ctx *t = callback_begin(OP_FLUSH_IPI, p, 0);
	s32 cpu = NO_PCPU;
	struct gang g;

	if (!t)
		return;
	g = gang_of(t);
	if (g.conf && g.mode == GANG_DEMAND && shared(g.conf->flush_boost) &&
	    note_awaited(t, now_ns()))
		cpu = awaited_at(t);
	if (cpu != NO_PCPU)
		kick(cpu, KICK_PREEMPT);
	callback_end(0);
}

/* The slice timer of `cpu` fired: on that pCPU, or on another one from which a task that runs there
 * was changed (see corun_running). */
TIMER_CALLBACK(corun_timer, s32 cpu)
{
	struct cpu_ctx *c = cpu_at(cpu);

	timer_begin(cpu);
	if (c) {
		bool offered;

		looked(c);
		offered = offer_timer(c, cpu);
		if (!hold_timer(c, cpu) && (!offered || slice_is_timed(c)))
			slice_timer(c, cpu);
	}
	callback_end(0);
}

/* The release timer of `cpu` fired, on that pCPU: tasks parked there may have something left. */
TIMER_CALLBACK(corun_release, s32 cpu)
{
	struct cpu_ctx *c = cpu_at(cpu);

	release_begin(cpu);
	if (c)
		release_parked(c, cpu, now_ns());
	callback_end(0);
}

SCHEDULER(corun, WATCHDOG / 1000000 /* ms */)
