/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Relaxed co-scheduling: what VMware published of ESX ("Co-scheduling SMP VMs in VMware ESX
 * Server", 2008; "The CPU Scheduler in VMware ESX 4", 2010), in the words of Sukwong & Kim, EuroSys
 * 2011, §6. (VMware's strict co-scheduling, ESX 2, is like that of gang_strict.h.)
 *
 * A vCPU makes progress while it runs or is halted; while it is ready, it makes none. Its lead is
 * how much more progress it has made than its slowest sibling. Leads are sampled every `sample`:
 *
 *   relaxed      (ESX 4) a vCPU whose lead exceeds `stop` is stopped, alone, until its lead is
 *                below `resume`;
 *   relaxed-all  (ESX 3) then the whole VM is stopped. The vCPUs that lag start together when every
 *                pCPU where one of them waits would run it next, or when another pCPU, which would
 *                idle, stands in for it; a vCPU that is ahead of them by `resume` or more stays
 *                stopped until it is not.
 *
 * A stopped vCPU keeps no pCPU: a pCPU that would idle takes a sibling that lags, even where
 * balance placement keeps siblings apart (joins_stopped() in pull.h). Otherwise, with few VMs, as
 * many pCPUs would idle as in strict co-scheduling, which is what VMware relaxed.
 *
 * In mode relaxed, a pCPU that would idle takes a vCPU that is the slowest of its VM before others.
 * All vCPUs of a VM go at the pace of the one that waits for the most crowded pCPU, and a large VM
 * always has one there. Without this rule, the time that stopped vCPUs leave would go to small VMs,
 * which are seldom stopped: where each vCPU is owed 0.29 of a pCPU, those of two-vCPU VMs got 0.50,
 * and those of sixteen-vCPU VMs 0.25. With it they get 0.38 and 0.27 (docs/contract.md has them as
 * parts of what is owed).
 *
 * ESX 4 still tries to start siblings together. After a stop, the slowest vCPU, when it gets its
 * turn, calls the siblings that wait, as in gang_dynamic.h; stopped siblings follow as soon as they
 * may go on. Otherwise stopped vCPUs would lose their turns to other tasks on their pCPUs and be
 * the slowest next: with slices much longer than `stop` the VM would get next to nothing.
 *
 * Entitlement comes first ("the ratio of the consumed CPU resources to the entitlement is used as
 * the priority of the world", "The CPU Scheduler in VMware vSphere 5.1"): in mode relaxed (ESX 4),
 * a call does not count for a vCPU that is ahead of a task that waits. And a vCPU that moves to
 * another pCPU keeps its virtual time, whatever the clocks of the two pCPUs say, but within a slice
 * of its own of the new clock. Otherwise nothing would be left of a lead: stopped siblings leave
 * pCPUs to those that lag, which start there out of turn and advance the clock; the next one would
 * come from there to a pCPU where another task runs as if it had had no time at all. With slices of
 * 50 ms, a single vCPU that competed with a VM of four got 0.34 of a pCPU, where each is owed 0.8.
 *
 * A vCPU that wakes up is not ahead of the slowest by more than `resume`: the lead that it gained
 * while halted is no progress that its siblings had a part in (our reading; the papers do not say).
 *
 * The slowest vCPU is never stopped, so a VM always makes progress; how long another one stays
 * stopped depends on when the slowest gets its turn, at most until STARVE_LIMIT (starve.h).
 */
#ifndef CORUN_GANG_RELAXED_H
#define CORUN_GANG_RELAXED_H

#include "gang.h"
#include "gang_dynamic.h"

/* Is the progress of the gang's vCPUs compared? */
static inline bool is_relaxed(struct gang *g)
{
	return g->mode == GANG_RELAXED || g->mode == GANG_RELAXED_ALL;
}

/* The gang's member numbered `member` - 1; NULL if `member` is 0. */
static inline struct gang_vcpu *gang_member(struct gang_ctx *ctx, u32 member)
{
	u32 index = opaque(member - 1) % GANG_VCPUS;

	return member ? &ctx->vcpu[index] : NULL;
}

/* How much progress a member has missed, ns. */
static inline u64 lag_of(struct gang_vcpu *v, u64 now)
{
	u64 since = shared(v->since);

	return shared(v->behind) + (since && before(since, now) ? now - since : 0);
}

/* How much progress the slowest member of the gang in this slot of the table has missed, ns. */
CALLED u64 lag_most(u32 slot, u64 now)
{
	struct gang_ctx *ctx = gang_at(slot);
	u32 members = ctx ? shared(ctx->members) : 0;
	u64 most = 0;
	u32 i;

	if (!ctx)
		return 0;
	repeat (i, GANG_VCPUS) {
		struct gang_vcpu *v = &ctx->vcpu[opaque(i) % GANG_VCPUS];
		u64 lag;

		if (i >= members)
			break;
		lag = shared(v->id) ? lag_of(v, now) : 0;
		if (lag > most)
			most = lag;
	}
	return most;
}

/* How far a member is ahead of the slowest, ns of progress. */
static inline u64 lead_of(struct gang *g, struct gang_vcpu *v, u64 now)
{
	u64 most = lag_most(g->slot, now);
	u64 mine = lag_of(v, now);

	return most > mine ? most - mine : 0;
}

/*
 * From now on, the progress of `t` is compared with its siblings'; it begins as far behind as the
 * slowest.
 */
static inline void relaxed_join(struct gang *g, struct task_ctx *t, u32 id, u64 now)
{
	u64 lag = lag_most(g->slot, now);
	u32 i;

	repeat (i, GANG_VCPUS) {
		struct gang_vcpu *v = &g->ctx->vcpu[opaque(i) % GANG_VCPUS];

		if (exchange_if_zero(v->id, id))
			continue;
		store(v->behind, lag);
		store(v->since, 0);
		store(v->stopped, 0);
		store(v->costop, 0);
		t->member = i + 1;
		if (shared(g->ctx->members) < i + 1)
			store(g->ctx->members, i + 1);
		break;
	}
}

/* The progress of `t` is not compared any more: it exits, or its VM's mode has changed. */
static inline void relaxed_leave(struct task_ctx *t)
{
	struct gang_ctx *ctx = t->member ? gang_at(t->vm) : NULL;
	struct gang_vcpu *v = ctx ? gang_member(ctx, t->member) : NULL;

	if (v) {
		/* The next vCPU in this place must not be taken for as far behind as this one. */
		store(v->since, 0);
		store(v->behind, 0);
		store(v->id, 0);
	}
	t->member = 0;
}

/*
 * `t`, which is ready, comes to `c` with virtual time `vtime`, and keeps it within a slice of its
 * own of the clock there; a lead may be larger by what calls are granted (call_lead() in
 * gang_pick.h). The slice is not reckoned by the task that runs there: where that task weighs much,
 * it would be next to nothing, and all that others owe that task would be forgotten whenever they
 * come.
 */
static inline void relaxed_moved(struct task_ctx *t, struct cpu_ctx *c, u64 vtime)
{
	u64 here = shared(c->vnow);
	u64 turn = fair_cost(knobs.slice, fair_own_rate(t->load));
	u64 most = here + turn + knobs.wakeup_gran;

	vtime = later(vtime, here - turn);
	t->vtime = before(most, vtime) ? most : vtime;
}

/* A member that was stopped may go on; its time stopped counts until `end` only. */
static inline void relaxed_release(struct gang_vcpu *v, u64 end)
{
	u64 since = exchange(v->stopped, 0);

	if (since && before(since, end))
		fetch_add(v->costop, end - since);
}

/* `t` changes to `state` from the state that it is in. */
static inline void relaxed_state(struct gang *g, struct task_ctx *t, u32 state, u64 now)
{
	struct gang_vcpu *v = gang_member(g->ctx, t->member);
	u64 most, resume;

	if (!v)
		return;
	if (t->state == TASK_READY) {
		u64 lag = lag_of(v, now);

		/* In this order: a pCPU that looks in between misses the wait, instead of counting
		 * it twice. */
		store(v->since, 0);
		store(v->behind, lag);
		relaxed_release(v, now);
	}
	if (state != TASK_READY)
		return;
	if (t->state == TASK_WAITING) {
		most = lag_most(g->slot, now);
		resume = shared(g->conf->resume);
		if (most > shared(v->behind) + resume)
			store(v->behind, most - resume);
	}
	store(v->since, now);
}

static inline u32 relaxed_rank(struct gang *g, struct ranked *r)
{
	struct gang_vcpu *v = gang_member(g->ctx, r->member);

	if (v && shared(v->stopped)) {
		if (lead_of(g, v, r->now) >= shared(g->conf->resume))
			return RANK_NOT;
		relaxed_release(v, r->now);
	}
	return dynamic_rank(g, r->cpu, r->runs, r->now);
}

/* Is a member of the gang in this slot of the table stopped? */
CALLED u32 relaxed_has_stopped(u32 slot)
{
	struct gang_ctx *ctx = gang_at(slot);
	u32 stopped = 0;
	u32 i;

	if (!ctx)
		return 0;
	repeat (i, GANG_VCPUS) {
		struct gang_vcpu *v = &ctx->vcpu[opaque(i) % GANG_VCPUS];

		if (shared(v->id) && shared(v->stopped)) {
			stopped = 1;
			break;
		}
	}
	return stopped;
}

/*
 * Is `member` of the gang in this slot of the table the slowest of several, so that its siblings
 * may have to wait for it? In mode relaxed only: in mode relaxed-all, a vCPU that starts by itself
 * has the whole VM stopped the sooner.
 */
CALLED u32 relaxed_is_slowest(u32 slot, u32 member, u64 now)
{
	struct gang g = gang_in(slot);
	struct gang_vcpu *v = g.ctx ? gang_member(g.ctx, member) : NULL;

	if (!g.vm || !g.ctx || !v || g.mode != GANG_RELAXED || shared(g.vm->vcpus) < 2)
		return 0;
	return !lead_of(&g, v, now);
}

/*
 * `member`, the task `id`, was given `cpu` and has it until `slice_end`. If siblings are stopped
 * and it is not ahead itself, it calls the siblings that wait.
 */
static inline void relaxed_started(struct gang *g, u32 member, s32 cpu, u32 id, u64 slice_end,
				   u64 now)
{
	struct gang_vcpu *v = gang_member(g->ctx, member);

	if (gang_together(g, now))
		store(*gang_target(g, cpu), 0);
	else if (v && lead_of(g, v, now) < shared(g->conf->resume) && relaxed_has_stopped(g->slot))
		gang_call(g->slot, cpu, id, slice_end);
}

/*
 * Calls again the members that were called but have not started, because they were stopped then:
 * they may be allowed to go on by now.
 */
CALLED u32 relaxed_call_again(u32 slot)
{
	struct gang g = gang_in(slot);
	u32 epoch;
	s32 i;

	if (!g.vm || !g.ctx)
		return 0;
	epoch = shared(g.ctx->epoch);
	repeat (i, nr_pcpus()) {
		struct cpu_ctx *c = cpu_at(i);

		if (c && shared(*gang_target(&g, i)) == epoch && gang_here(&g, i) &&
		    !gang_runs_on(&g, c))
			kick(i, KICK_PREEMPT);
	}
	return epoch;
}

/* Is `member`, which runs, too far ahead? Then it is stopped, and must give up its pCPU: true. */
static inline bool relaxed_sample(struct gang *g, u32 member, u64 now)
{
	struct gang_vcpu *v = gang_member(g->ctx, member);

	if (!v)
		return false;
	if (lead_of(g, v, now) <= shared(g->conf->stop)) {
		if (gang_together(g, now) && shared(g->ctx->leader) == shared(v->id))
			relaxed_call_again(g->slot);
		return false;
	}
	exchange_if_zero(v->stopped, now);
	return true;
}

/*
 * Stops each member of the gang in this slot of the table that is ahead of the slowest by `resume`
 * or more.
 */
CALLED u32 relaxed_stop_leaders(u32 slot, u64 now)
{
	struct gang g = gang_in(slot);
	u64 most = lag_most(slot, now);
	u32 members, stopped = 0;
	u64 resume;
	u32 i;

	if (!g.vm || !g.conf || !g.ctx)
		return 0;
	members = shared(g.ctx->members);
	resume = shared(g.conf->resume);
	repeat (i, GANG_VCPUS) {
		struct gang_vcpu *v = &g.ctx->vcpu[opaque(i) % GANG_VCPUS];

		if (i >= members)
			break;
		if (!shared(v->id) || most < lag_of(v, now) + resume)
			continue;
		exchange_if_zero(v->stopped, now);
		stopped++;
	}
	return stopped;
}

/*
 * relaxed-all: is `member`, which runs on `cpu`, too far ahead? Then stops the whole VM, makes
 * earlier calls void, and returns true.
 */
static inline bool relaxed_all_sample(struct gang *g, u32 member, s32 cpu, u64 now)
{
	struct gang_vcpu *v = gang_member(g->ctx, member);
	s32 i;

	if (!v || lead_of(g, v, now) <= shared(g->conf->stop) ||
	    exchange_if_zero(g->ctx->stopped, now))
		return false;
	store(g->ctx->until, now);
	fetch_add(g->ctx->epoch, 1);
	relaxed_stop_leaders(g->slot, now);
	repeat (i, nr_pcpus()) {
		struct cpu_ctx *c = cpu_at(i);

		if (c && i != cpu && gang_here(g, i) && gang_runs_on(g, c))
			kick(i, KICK_PREEMPT);
	}
	return true;
}

/*
 * The gang, stopped since `since`, goes on, except the members that are stopped individually
 * because they are ahead.
 */
static inline void relaxed_all_release(struct gang *g, u64 since, u64 now)
{
	u32 members = shared(g->ctx->members);
	u32 i;

	repeat (i, GANG_VCPUS) {
		struct gang_vcpu *v = &g->ctx->vcpu[opaque(i) % GANG_VCPUS];
		u64 ready;

		if (i >= members)
			break;
		ready = shared(v->since);
		if (shared(v->id) && ready && !shared(v->stopped))
			fetch_add(v->costop, now - later(since, ready));
	}
}

/*
 * `cpu` agrees that the stopped gang may go on. If `cpu` is `spare`, it also agrees in place of one
 * other pCPU, from which it takes a vCPU that lags. If all other pCPUs where members wait have
 * agreed in this epoch, the gang goes on, and this returns true.
 */
INLINED bool relaxed_all_goes_on(struct gang *g, s32 cpu, bool spare, u64 now)
{
	u32 epoch = shared(g->ctx->epoch);
	bool all = true;
	u64 since;
	s32 i;

	store(*gang_target(g, cpu), epoch);
	repeat (i, nr_pcpus()) {
		struct cpu_ctx *c = cpu_at(i);

		if (!c || !gang_here(g, i) || shared(*gang_target(g, i)) == epoch)
			continue;
		all = spare && !gang_runs_on(g, c);
		if (!all)
			break;
		store(*gang_target(g, i), epoch);
		spare = false;
	}
	since = all ? exchange(g->ctx->stopped, 0) : 0;
	if (!since)
		return false;
	relaxed_all_release(g, since, now);
	gang_call(g->slot, cpu, 0, now + knobs.slice);
	return true;
}

/* Is this member stopped individually, because it is ahead of those that lag? */
static inline bool relaxed_is_ahead(struct gang *g, struct gang_vcpu *v, u64 now)
{
	u64 lead = shared(v->stopped) ? lead_of(g, v, now) : 0;

	return lead && lead >= shared(g->conf->resume);
}

/*
 * The member behind `r` waits while its gang is stopped; `next`: it would run next on its pCPU. The
 * gang goes on if all members that lag are next, each on its own pCPU or on one that would idle
 * (relaxed_all_spares()); a member that is ahead does not keep them waiting. Returns true if the
 * gang goes on and this member with it.
 */
static inline bool relaxed_all_willing(struct gang *g, struct ranked *r, bool next)
{
	struct gang_vcpu *v = gang_member(g->ctx, r->member);
	bool ahead = v && relaxed_is_ahead(g, v, r->now);
	u64 stopped = shared(g->ctx->stopped);

	if (!stopped)
		return false;
	/*
	 * The whole gang is stopped since `stopped`: relaxed_all_release() counts the time from
	 * then on.
	 */
	if (v && !ahead)
		relaxed_release(v, before(stopped, r->now) ? stopped : r->now);
	if (!ahead && !next)
		return false;
	return relaxed_all_goes_on(g, r->cpu, false, r->now) && !ahead;
}

/*
 * No task at all may start on the pCPU where the member behind `r` waits. If its gang is stopped
 * and the member is ahead, the pCPU may take a member that lags instead: returns true if the gang
 * goes on because of that.
 */
static inline bool relaxed_all_spares(struct gang *g, struct ranked *r)
{
	struct gang_vcpu *v = gang_member(g->ctx, r->member);

	if (!v || !shared(g->ctx->stopped) || !relaxed_is_ahead(g, v, r->now))
		return false;
	return relaxed_all_goes_on(g, r->cpu, true, r->now);
}

static inline u32 relaxed_all_rank(struct gang *g, struct ranked *r)
{
	return shared(g->ctx->stopped) ? RANK_NOT : relaxed_rank(g, r);
}

#endif
