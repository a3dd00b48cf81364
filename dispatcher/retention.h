/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Retention: a pCPU is held, idle, for a vCPU that has halted there (vSMT-IO, dissertation §3.4.2).
 *
 * So a vCPU that waits for I/O runs at once when the I/O is done. Until then no other vCPU is
 * switched in, and the SMT sibling has the core for itself. That needs neither a changed guest nor
 * a changed KVM: the pCPU just gets nothing to run. A hold ends when the vCPU wakes, or when its
 * timeout has passed (a timer), or for another task: when the vCPU's slice is over and others wait,
 * or when a task wakes that is owed so much more that it would have preempted the vCPU, had that
 * run. If the policy wants holds to give way, one ends for any task that is queued there, and none
 * begins while a task is. The time of a hold is charged as if the vCPU had run; when the vCPU is
 * back, a task that is owed more goes first.
 *
 * While a task waits for a core, its two hardware threads are never both held.
 *
 * While a pCPU is held its `idle` is 0: to others it is not free.
 *
 * A guest that halts without an exit (MWAIT or HLT passed through) retains its context by itself,
 * without limit; to the host it seems to run. If the policy has found by a vCPU's cycles that it
 * does so, the vCPU's slice is the timeout: after that it goes on only if no task waits for the
 * core. Whether it is dormant at that moment cannot be known here.
 */
#ifndef CORUN_RETENTION_H
#define CORUN_RETENTION_H

#include "fair.h"
#include "platform/platform.h"
#include "timer.h"

/* What the policy wants of `cpu`; NULL if no plan asks for cores. */
static inline struct pcpu_conf *core_conf(s32 cpu)
{
	return with_cores() ? pcpu_conf_at(cpu) : NULL;
}

/* The SMT sibling of `cpu`; NO_PCPU if it has none, or no plan asks for cores. */
static inline s32 partner_of(s32 cpu)
{
	struct pcpu_conf *conf = core_conf(cpu);
	s32 partner;

	if (!conf)
		return NO_PCPU;
	partner = (s32)shared(conf->partner) - 1;
	return partner < nr_pcpus() ? partner : NO_PCPU;
}

/*
 * Counts the end of the hold of `c`, if one is under way; `woke`: its vCPU wakes. A timer and a
 * wake-up may end a hold at the same time, on two pCPUs: whichever comes first counts it. The
 * maxima may miss one of two holds that follow each other that closely.
 */
RARE void hold_count(struct cpu_ctx *c, bool woke, u64 now)
{
	u64 since = exchange(c->held_since, 0);
	u64 until = shared(c->held_until);
	u64 length, late;

	if (!since)
		return;
	store(c->hold_ends[opaque(shared(c->hold_no)) % HOLD_ENDS], now);
	length = before(since, now) ? now - since : 0;
	late = before(until, now) ? now - until : 0;
	if (!before(now, until))
		fetch_add(c->holds.expired, 1);
	else if (woke)
		fetch_add(c->holds.woke, 1);
	else
		fetch_add(c->holds.gave_way, 1);
	fetch_add(c->holds.length, length);
	if (shared(c->holds.longest) < length)
		store(c->holds.longest, length);
	if (shared(c->holds.latest) < late)
		store(c->holds.latest, late);
}

/* The hold of `c` ends for another reason than that its vCPU runs again. */
static inline void hold_over(struct cpu_ctx *c, u64 now)
{
	hold_count(c, false, now);
	store(c->held, 0);
	exchange(c->idle, 1);
}

/*
 * The same, called on another pCPU and without the lock of the runqueue of `c`: the vCPU may come
 * back at this moment, and then the pCPU does not idle. So the pCPU ends the hold itself, as soon
 * as it dispatches (dispatch_thread()).
 */
static inline void hold_cut(struct cpu_ctx *c, u64 now)
{
	hold_count(c, false, now);
	store(c->held_until, now);
}

/* Is the SMT sibling of `cpu` held? */
static inline bool partner_held(s32 cpu)
{
	struct cpu_ctx *other = cpu_at(partner_of(cpu));

	return other && shared(other->held);
}

/* Does a task wait for a hardware thread of the core of `cpu`? */
static inline bool core_waits(s32 cpu)
{
	s32 partner = partner_of(cpu);

	return queue_length(cpu) || (partner != NO_PCPU && queue_length(partner));
}

/* In how many ns must a hold be checked that ends at `until` at the latest, in this slice? */
static inline u64 hold_look(struct cpu_ctx *c, u64 until, u64 now)
{
	u64 end = shared(c->slice_end);

	if (before(now, end) && before(end, until))
		return end - now;
	return before(now, until) ? until - now : 1;
}

/* Is the first task that waits for `cpu` owed more than one with this virtual time? */
static inline bool others_first(s32 cpu, u64 vtime)
{
	struct task_struct *p;
	bool first = false;

	if (!queue_length(cpu))
		return false;
	for_each_queued (p, cpu) {
		first = before(queued_vtime(p), vtime);
		break;
	}
	return first;
}

/*
 * Withdraws the hold of `c` that has just begun for `t`: dispatch is about to choose the next task
 * there.
 */
static inline void hold_withdraw(struct cpu_ctx *c, struct task_ctx *t, u64 now)
{
	hold_count(c, false, now);
	store(c->held, 0);
	t->held_since = 0;
}

/* `t` halts on `cpu`, a hardware thread of a core where it ran: is `cpu` held for it? */
RARE void hold_begin_one(struct task_struct *p, struct task_ctx *t, s32 cpu, u64 now)
{
	struct pcpu_conf *conf = core_conf(cpu);
	struct cpu_ctx *c = cpu_at(cpu);
	struct vm_ctx *vm = vm_of(t);
	u32 id, waiting;
	u64 hold;

	/* VMs that the policy does not cover (`--only`) are in fair order, without holds. */
	if (!conf || !c || !vm || !vm_conf_of(t, vm) || t->state != TASK_RUNNING)
		return;
	hold = shared(conf->hold);
	if (!hold || (shared(c->cur_is) & CUR_AWAY))
		return;
	if (partner_held(cpu) && core_waits(cpu))
		return;
	waiting = queue_length(cpu);
	if (waiting && shared(conf->gives_way))
		return;
	/* No hold at the expense of a task that is owed more. */
	if (others_first(cpu, t->vtime))
		return;
	id = id_of(p);
	t->held_since = now;
	t->held_until = now + hold;
	t->hold_no = shared(c->hold_no) + 1;
	/*
	 * A hold whose end nobody noticed, because no plan asked for cores then, has no known
	 * length.
	 */
	if (exchange(c->held_since, now))
		fetch_add(c->holds.gave_way, 1);
	fetch_add(c->holds.begun, 1);
	store(c->hold_no, t->hold_no);
	store(c->held_until, t->held_until);
	/*
	 * At this moment the vCPU on the SMT sibling may halt as well, or a task may be queued by a
	 * callback that saw no hold. Those callbacks write what they do, then read `held`; this one
	 * writes `held`, then looks again: at least one of the two sees the other's write.
	 */
	exchange(c->held, id);
	if (waiting < queue_length(cpu) || (partner_held(cpu) && core_waits(cpu)))
		hold_withdraw(c, t, now);
	else
		timer_within(c, cpu, hold_look(c, t->held_until, now), now);
}

/* `t` halts on `cpu`, where it ran: is `cpu` held for it? */
static inline void hold_begin(struct task_struct *p, struct task_ctx *t, s32 cpu, u64 now)
{
	if (with_cores())
		hold_begin_one(p, t, cpu, now);
}

/*
 * `t`, for which a pCPU was held, wakes: it is charged for the time. If the hold ended earlier, for
 * another task, the pCPU remembers when. If that was too many holds ago, `t` is charged for the
 * whole timeout at most.
 */
RARE void hold_end(struct task_struct *p, struct task_ctx *t, u64 now)
{
	struct cpu_ctx *c = cpu_at(t->last_cpu);
	u64 end = t->held_until;
	u64 held;

	if (!c)
		return;
	if (shared(c->held) == id_of(p)) {
		if (before(now, end))
			t->sum.kept++;
		hold_count(c, true, now);
		end = now;
	} else if (shared(c->hold_no) - t->hold_no < HOLD_ENDS) {
		end = shared(c->hold_ends[opaque(t->hold_no) % HOLD_ENDS]);
	}
	if (before(now, end))
		end = now;
	held = before(t->held_since, end) ? end - t->held_since : 0;
	t->held_since = 0;
	t->sum.held += held;
	t->vtime += fair_cost(held, fair_rate(p, t));
}

/* The timer of `cpu` fired; returns true if that was for a hold. */
static inline bool hold_timer(struct cpu_ctx *c, s32 cpu)
{
	u64 now, until;

	if (!shared(c->held))
		return false;
	now = now_ns();
	until = shared(c->held_until);
	if (before(now, until) && (before(now, shared(c->slice_end)) || !queue_length(cpu))) {
		timer_within(c, cpu, hold_look(c, until, now), now);
		return true;
	}
	/* On its own pCPU a timer interrupts nothing that holds the lock of the runqueue. */
	if (this_cpu() == cpu)
		hold_over(c, now);
	else
		hold_cut(c, now);
	kick(cpu, KICK_IDLE);
	return true;
}

/* Does a task that may be dormant run on `c`, and has it used up its slice? */
static inline bool dormant_enough(struct cpu_ctx *c, u64 now)
{
	return (shared(c->cur_is) & CUR_DORMANT) && !shared(c->idle) && !shared(c->held) &&
	       !before(now, shared(c->slice_end));
}

/*
 * The slice of the task on `cpu` is over. If its home is elsewhere, or it may be dormant, or its
 * cookie keeps tasks off the core (cookie.h), does a task wait for the SMT sibling, to which it
 * should give way?
 */
static inline bool beside_is_due(struct cpu_ctx *c, s32 cpu)
{
	struct cpu_ctx *other;
	s32 partner;
	u32 is;

	is = shared(c->cur_is);
	if (!is)
		return false;
	partner = partner_of(cpu);
	other = cpu_at(partner);
	if (!other || !queue_length(partner))
		return false;
	return is != CUR_COOKIE || shared(other->idle);
}

/* Do holds of `cpu` end for any task that is queued there? */
static inline bool hold_gives_way(s32 cpu)
{
	struct pcpu_conf *conf = core_conf(cpu);

	return conf && shared(conf->gives_way);
}

/*
 * How a task was queued. WAKE_FAIR: it is owed more than the task that has the pCPU. WAKE_AFAR: the
 * callback has another runqueue locked than that of the pCPU.
 */
enum wake {
	WAKE_FAIR = 1,
	WAKE_AFAR = 2,
};

/* Must the pCPU that is held for another vCPU be given to a task that was just queued there? */
static inline bool hold_yields(struct cpu_ctx *c, s32 cpu, bool fair, bool afar, u64 now)
{
	if (!fair && before(now, shared(c->held_until)) && !partner_held(cpu) &&
	    !hold_gives_way(cpu))
		return false;
	if (afar)
		hold_cut(c, now);
	else
		hold_over(c, now);
	return true;
}

#endif
