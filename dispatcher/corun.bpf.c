// SPDX-License-Identifier: GPL-2.0-only
/*
 * corun's dispatcher: the sched_ext callbacks, thin. The decisions live in the headers, by theme.
 *
 * A task's way: select_cpu places it when it wakes (placement.h); enqueue queues it there in fair
 * order (fair.h), or hands it the pCPU if it is owed more than who has it; dispatch gives a pCPU
 * its next task, its own first, others' if it has none (pull.h); running and stopping keep the
 * accounts, and stopping sees it go to wait.
 *
 * The same file is compiled to BPF for the kernel and natively for the simulator
 * (platform/platform.h).
 */
#include "cookie.h"
#include "core.h"
#include "fair.h"
#include "gang_pick.h"
#include "idle.h"
#include "micro.h"
#include "occupancy.h"
#include "placement.h"
#include "platform/platform.h"
#include "pull.h"
#include "quota.h"
#include "retention.h"
#include "slice.h"
#include "starve.h"
#include "timer.h"
#include "turn.h"
#include "types.h"
#include "vm.h"
#include "yield.h"

/* `t` leaves its state for `state`; what it ran is added up where it is charged (fair.h). */
static inline void turn_to(struct task_ctx *t, enum task_state state, u64 now)
{
	if (t->member)
		gang_state(t, state, now);
	t->state = state;
	t->since = now;
}

/* `t`, which does not run, enters `state`: what it spent in the old one is added up. */
static inline void enter(struct task_ctx *t, enum task_state state, u64 now)
{
	u64 spent = t->since && before(t->since, now) ? now - t->since : 0;

	if (t->state == TASK_READY)
		t->sum.ready += spent;
	else if (t->state == TASK_WAITING)
		t->sum.wait += spent;
	else if (t->state == TASK_THROTTLED)
		quota_waited(t, spent, now);
	turn_to(t, state, now);
}

/* The VM of `t` has one more vCPU that wants to run. */
RARE void activate_in_vm(struct task_struct *p, struct task_ctx *t)
{
	struct vm_ctx *vm = vm_of(t);

	if (!vm)
		return;
	t->active_weight = fair_weight(p, t);
	fetch_add(vm->active_weight, t->active_weight);
}

/* `t` wants to run from now on: its VM's weight, or its cgroup's, is shared by one more. */
INLINED void activate(struct task_struct *p, struct task_ctx *t)
{
	if (!t->group_weight && knobs.groups)
		group_enter(p, t);
	if (t->vm != NO_VM && !t->active_weight)
		activate_in_vm(p, t);
}

/* The VM of `t` has one less. */
RARE void deactivate_in_vm(struct task_ctx *t)
{
	struct vm_ctx *vm = vm_of(t);

	if (vm)
		fetch_add(vm->active_weight, -(s64)t->active_weight);
	t->active_weight = 0;
}

static inline void deactivate(struct task_ctx *t)
{
	group_leave(t);
	if (t->active_weight)
		deactivate_in_vm(t);
}

/* `t` does not want to run any more, for whatever reason: nowhere is it counted from now on. */
static inline void leave(struct task_ctx *t)
{
	occupancy_leave(t);
	deactivate(t);
	t->rest = 0;
	t->woken = 0;
	t->queued = 0;
}

/* `t`, which wants to run, has become a vCPU of VM `id`, whose accounts begin. */
RARE void notice_new_vcpu(struct task_struct *p, struct task_ctx *t, u32 id)
{
	if (!vm_notice(t, id))
		return;
	/* What it did before it was a vCPU is no reason to stay, what it did as one is. */
	t->last_cpu = NO_PCPU;
	if (!t->sum.switches && was_vcpu())
		t->last_cpu = task_cpu_of(p);
	siblings_add(t->vm, t->cpu);
	activate(p, t);
}

/* Has a task that wants to run become a vCPU? */
static inline void notice_vcpu(struct task_struct *p, struct task_ctx *t)
{
	u32 id = t->vm == NO_VM ? vcpu_of(p) : 0;

	if (id)
		notice_new_vcpu(p, t, id);
}

/*
 * `t`, placed on the pCPU of `c`, is told by the clock there: it comes from a wait; or it was
 * `ready` before, and had to leave where it was. Then nothing is forgiven that it ran, or it would
 * have more than its share by moving. Inlined, since a call costs each wake-up more (docs/cost.md).
 */
INLINED void arrive(struct task_ctx *t, struct cpu_ctx *c, bool ready)
{
	u64 was = t->vtime;

	if (ready && t->clock_cpu == t->cpu)
		return;
	fair_arrive(t, c, t->cpu, ready ? FAIR_ANY_LEAD : gang_ahead(t));
	if (ready)
		gang_moved(t, c, was);
	t->rest = 0;
}

/* `t`, which was throttled, is ready. */
RARE void unpark(struct task_ctx *t, u64 now)
{
	quota_returns(t);
	enter(t, TASK_READY, now);
}

/* `t` begins to run though it was not queued by its own callback: it was released from a quota, or
 * is back from another class. */
RARE void activate_late(struct task_struct *p, struct task_ctx *t)
{
	if (t->state == TASK_THROTTLED)
		quota_returns(t);
	activate(p, t);
}

/* Chooses a place for `t`, which becomes ready, or has to leave where it is. */
INLINED struct cpu_ctx *make_ready(struct task_struct *p, struct task_ctx *t, s32 prev, u64 now)
{
	bool ready = t->state == TASK_READY;
	struct cpu_ctx *c;

	gang_join(p, t, now);
	if (t->state == TASK_WAITING) {
		t->sum.wakeups++;
		enter(t, TASK_READY, now);
		if (t->held_since)
			hold_end(p, t, now);
	} else if (t->state == TASK_THROTTLED) {
		unpark(t, now);
	}
	if (!ready) {
		t->woken = 1;
		t->fresh = FRESH;
		t->rest = 0;
	}
	activate(p, t);
	c = place(p, t, prev);
	if (c)
		arrive(t, c, ready);
	return c;
}

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

/* wake_pcpu() for a hardware thread with a partner; if it is not for `t`, perhaps another one
 * idles. */
RARE void wake_core(struct task_struct *p, struct task_ctx *t, struct cpu_ctx *c, u32 how, u64 now)
{
	s32 cpu = t->cpu;

	if (core_preempts(p, t, c, cpu, how, now)) {
		kick(cpu, KICK_PREEMPT);
		return;
	}
	/* It may never have been asked who is next there. */
	if (with_cookies(cpu) && !shared(c->runs))
		kick(cpu, KICK_IDLE);
	core_call(p, t, cpu, now);
}

/*
 * Makes `cpu` look at its queue if `t`, just put there, should not wait for the next switch;
 * `fair`: because it is owed so much.
 */
static inline void wake_pcpu(struct task_struct *p, struct task_ctx *t, struct cpu_ctx *c, s32 cpu,
			     bool fair, u64 now)
{
	u32 how = fair ? WAKE_FAIR : 0;

	/* See idles(). */
	if (shared_after(c->idle)) {
		kick(cpu, KICK_IDLE);
		if (t->woken == WOKEN_UNANSWERED)
			call_other(p, cpu);
		return;
	}
	/* For another pCPU than that of its runqueue the kernel inserts it only once this callback
	 * is over: what was read above does not count then. */
	if (task_cpu_of(p) != cpu) {
		kick(cpu, KICK_IDLE);
		how |= WAKE_AFAR;
	}
	if (partner_of(cpu) != NO_PCPU)
		wake_core(p, t, c, how, now);
	else if (gang_preempts(t, c, cpu, now, fair))
		kick(cpu, KICK_PREEMPT);
}

/*
 * `t`, which woke, is owed more than who runs on its pCPU: may it be handed over at once, without a
 * queue in between? Not if somebody else was just now: then they go in order. Nor if nobody of ours
 * runs there: who is handed over is out of reach for other pCPUs, and one of a higher class may run
 * for long.
 */
static inline bool may_hand_over(struct task_struct *p, struct task_ctx *t, struct cpu_ctx *c)
{
	return !with_gangs() && !with_cores() && shared(c->runs) && task_cpu_of(p) == t->cpu;
}

/* `t`, placed on the pCPU of `c`, is queued there, or runs there next. */
static inline void enqueue_at(struct task_struct *p, struct task_ctx *t, struct cpu_ctx *c, u64 now,
			      u64 enq_flags)
{
	u64 slice = slice_of(p), vtime = t->vtime;
	bool fair = t->woken && fair_preempts(t, c, now);

	if (t->rest)
		turn_rest(t, c, &slice, &vtime);
	slice = kernel_slice(slice);
	if (fair && may_hand_over(p, t, c)) {
		store(c->runs, 0);
		insert_next(p, t->cpu, slice, enq_flags);
	} else {
		insert(p, t->cpu, slice, vtime, enq_flags);
		wake_pcpu(p, t, c, t->cpu, fair, now);
		if (!t->woken)
			offer(p, t, c, t->cpu, now);
		if (t->due && with_micro())
			micro_waits(t, c, t->cpu, now);
	}
	t->woken = 0;
	t->queued = 1;
}

/* Has `t` a place, and is not to go on elsewhere? */
static inline bool is_settled(struct task_ctx *t)
{
	return t->cpu != NO_PCPU && t->over != TURN_MOVES;
}

/*
 * May `t` stay where it is? Affinity, or what its VM's mode makes of it, may have changed.
 * Load-conscious placement has put it beside siblings, if it has, on purpose; and while it `runs`,
 * it is the sibling that waits there who had better go.
 */
RARE bool still_admitted(struct task_struct *p, struct task_ctx *t, bool runs)
{
	u32 mode;

	if (!allowed(p, t->cpu))
		return false;
	mode = placement_of(p, t);
	if (mode == PLACE_LOAD_CONSCIOUS || (mode == PLACE_BALANCE && runs))
		mode = PLACE_FREE;
	return mode_admits(p, t, mode, t->cpu) && !gang_moves(p, t);
}

/* May `t`, queued again, wait where it was? */
static inline bool may_stay(struct task_struct *p, struct task_ctx *t)
{
	return is_settled(t) && still_admitted(p, t, false);
}

/* Nothing is left of its quotas for `t`, for `wait` ns: it does not want to run until then. */
RARE void park(struct task_struct *p, struct task_ctx *t, u64 wait, u64 now, u64 enq_flags)
{
	s32 here = this_cpu();
	struct cpu_ctx *c = cpu_at(here);

	t->parked_for = t->cpu;
	t->parked_active = t->active_weight;
	t->parked_weight = t->group_weight;
	leave(t);
	enter(t, TASK_THROTTLED, now);
	insert(p, parking_of(here), kernel_slice(slice_of(p)), t->vtime, enq_flags);
	if (c)
		release_in(c, here, wait, now);
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
	/* It was taken out of a queue to be changed: its weight, its cgroup, where it may run. */
	if (t->queued)
		leave(t);
	/* Who may run on one pCPU only wakes without select_cpu. */
	woke = has_gang(t) && t->state == TASK_WAITING;
	if (t->woken || may_stay(p, t))
		c = cpu_at(t->cpu);
	else
		c = make_ready(p, t, t->cpu, now);
	if (woke)
		gang_woken_one(t, now);
	wait = c ? quota_out(t, now) : 0;
	if (wait)
		park(p, t, wait, now, enq_flags);
	else if (c)
		enqueue_at(p, t, c, now, enq_flags);
	else
		insert_unknown(p, enq_flags);
	callback_end(0);
}

/* `t`, of a VM or a group, has `c` from now on, or keeps it: at which rate? It is another one than
 * before if others' weights have changed. */
RARE u64 turn_rate(struct task_struct *p, struct task_ctx *t, struct cpu_ctx *c, u64 now)
{
	u64 rate;

	/* Before the pCPU's clock, which does not go on with who is urgent. */
	gang_awaited(t, now);
	rate = fair_rate(p, t);
	occupancy_reload(t, c, fair_load_at(rate));
	return rate;
}

/* `t` has `cpu` for a slice from now on, or for the rest of its turn: the pCPU's clock goes on, its
 * slice begins. */
INLINED void turn_begins(struct task_struct *p, struct task_ctx *t, struct cpu_ctx *c, s32 cpu,
			 u64 now)
{
	u64 slice = turn_slice(p, t);
	bool goes_on = t->rest != 0;
	u64 rate = fair_alone(t) ? fair_own_rate(weight_of(p)) : turn_rate(p, t, c, now);

	fair_clock(t, c, rate, goes_on, now);
	if (goes_on)
		t->rest = 0;
	else
		turn_starts(t, c);
	slice = gang_turn(p, t, c, slice, now);
	core_turn(p, t, c, cpu, now);
	slice_begin(c, cpu, quota_turn(t, c, slice, now), now);
	if (!t->due && with_micro())
		micro_look(c, cpu, now);
}

/* May `prev`, whose turn is over, have another one? */
static inline bool may_go_on(struct task_struct *prev, struct task_ctx *t, u64 now)
{
	return is_settled(t) && still_admitted(prev, t, true) && !quota_out(t, now);
}

/*
 * `prev`, charged up to now, has `cpu` for another slice, or for the rest of this one. Where
 * somebody was to be taken from a queue before and had gone, the kernel has unlocked the runqueue
 * for it, and `prev` may be of another class by now, and counted nowhere.
 */
CALLED u32 keep(s32 cpu, struct task_struct *prev TRUSTED, struct task_ctx *t, u64 now)
{
	struct cpu_ctx *c = cpu_at(cpu);

	if (!c || !t || t->cpu != cpu)
		return 0;
	set_slice(prev, kernel_slice(turn_slice(prev, t)));
	quota_settle(t, now);
	fair_charge(prev, t, now);
	turn_begins(prev, t, c, cpu, now);
	return 0;
}

/*
 * `cpu` idles from now on, unless somebody has just been queued here. They queue, then read `idle`;
 * we write `idle`, then look at the queue: one of us sees the other.
 */
static inline void idles(s32 cpu, struct cpu_ctx *c)
{
	exchange(c->idle, 1);
	if (queue_length(cpu) && move_first(cpu))
		store(c->idle, 0);
}

/* Nobody waits for `cpu`: who waits elsewhere may have it, or it idles. */
RARE void dispatch_idle(s32 cpu, struct cpu_ctx *c)
{
	if (!pull_idle(cpu))
		idles(cpu, c);
}

/* `prev` still wants `cpu`: does somebody interrupt it who woke, or is its turn over? */
RARE void dispatch_or_keep(s32 cpu, struct cpu_ctx *c, struct task_struct *prev, struct task_ctx *t)
{
	u64 now = now_ns();
	bool stays = may_go_on(prev, t, now);
	bool looks;

	turn_cut(t, c, now);
	looks = !t->rest && balance_is_due(c, now);
	if (looks && pull_busy(cpu, 0, now))
		return;
	if (stays && t->rest && move_fresh(cpu, fair_current(c, now)))
		return;
	if (stays && t->rest && with_micro()) {
		if (t->due || !move_due(cpu, shared(c->vnow), now))
			keep(cpu, prev, t, now);
		return;
	}
	if (!(stays && !lets_others(t) && still_first(c, cpu, now)) && move_next(cpu, c)) {
		t->over |= TURN_OVER;
		return;
	}
	if (!stays) {
		dispatch_idle(cpu, c);
	} else if (looks && finds_idle_core(cpu, c, prev, t)) {
		t->over = TURN_MOVES;
		idles(cpu, c);
	} else {
		keep(cpu, prev, t, now);
	}
}

/* `cpu` has nothing: what waits for it, else what waits elsewhere. */
static inline void dispatch_next(s32 cpu, struct cpu_ctx *c)
{
	if (!move_next(cpu, c))
		dispatch_idle(cpu, c);
}

/* The rank of who runs on `cpu`, if anybody does and may stay there. */
RARE u32 rank_of_current(s32 cpu, struct cpu_ctx *c, struct task_struct *prev, struct task_ctx *t,
			 u64 now)
{
	struct ranked r;

	if (!t || !may_go_on(prev, t, now))
		return RANK_NOT;
	r = ranked(t, cpu, true, now);
	return rank_of(&r);
}

/* `t` runs, if anybody does, and has this rank: gang_choice.stays. */
static inline u16 stays_as(u32 rank, struct task_ctx *t)
{
	if (!t || rank == RANK_NOT)
		return 0;
	return t->fresh == FRESH_BACK ? STAYS_WOKEN : STAYS;
}

/* Has the slot ended in which `t` was dispatched? */
static inline bool slot_is_over(struct task_ctx *t, u64 now)
{
	struct gang g = gang_of(t);

	return g.mode == GANG_STRICT && !slot_is_open(now);
}

/* `cpu` shall idle: those who may not start now are looked at again, before they starve. */
RARE void idle_for_now(s32 cpu, struct cpu_ctx *c, u64 again, u64 now)
{
	struct gang_choice best = {.again = again, .now = now};

	/* As in idles(). */
	exchange(c->idle, 1);
	if (queue_length(cpu))
		best_waiting(cpu, &best);
	if (best.id && take(cpu, best.id))
		store(c->idle, 0);
	else if (best.again)
		look_in(c, cpu, best.again < STARVE_LOOK ? best.again : STARVE_LOOK, now);
}

/* On a host with gangs: who is next on `cpu`, `prev` among others if it still wants it? */
RARE void dispatch_gangs(s32 cpu, struct cpu_ctx *c, struct task_struct *prev, struct task_ctx *t)
{
	u64 now = now_ns();
	struct gang_choice best = {.bound = t ? fair_current(c, now) : 0, .now = now};
	bool better, looks;
	u32 rank;

	if (t)
		demand_charge(t, now);
	rank = rank_of_current(cpu, c, prev, t, now);
	best.stays = stays_as(rank, t);
	best_waiting(cpu, &best);
	if (best.slot_over || (t && slot_is_over(t, now))) {
		strict_open_slot(cpu, now);
		rank = rank_of_current(cpu, c, prev, t, now);
		best.stays = stays_as(rank, t);
		best_waiting(cpu, &best);
	}
	rank = rank_beside(rank, best.bound, &best, cpu, t ? compared(t->member, t->vm) : NO_VM);
	looks = rank >= RANK_ORDINARY && best.rank <= rank && balance_is_due(c, now);
	if (looks && pull_busy(cpu, best.awake, now))
		return;
	if (rank < RANK_ORDINARY && best.rank < RANK_ORDINARY && pull_owner(cpu))
		return;
	/* Who yielded lets others go first, whatever it is owed. */
	better =
	    best.rank > rank || (best.rank == rank && rank != RANK_URGENT &&
				 ((t && t->over & TURN_OVER) || before(best.vtime, best.bound)));
	if (better && best.id && take(cpu, best.id)) {
		if (t)
			store(c->brief, interrupts_woken(t, &best));
		return;
	}
	if (t && looks && finds_idle_core(cpu, c, prev, t)) {
		t->over = TURN_MOVES;
		idle_for_now(cpu, c, best.again, now);
	} else if (t && rank != RANK_NOT) {
		if (t->fresh && !before(now, shared(c->slice_end)))
			t->fresh = 0;
		keep(cpu, prev, t, now);
	} else if (!pull_idle(cpu)) {
		idle_for_now(cpu, c, best.again, now);
	}
}

/* `cpu`, a hardware thread of a core, idles from now on: as in idles(). */
RARE void core_idles(s32 cpu, struct cpu_ctx *c, u64 now)
{
	exchange(c->idle, 1);
	if (queue_length(cpu) && core_next(cpu))
		store(c->idle, 0);
	else
		cookie_idles(cpu, now);
}

/* Who runs on a hardware thread of a core wants to go on: is it its turn still, or somebody else's?
 */
static inline void core_dispatch_or_keep(s32 cpu, s32 partner, struct cpu_ctx *c,
					 struct task_struct *prev, struct task_ctx *t, u64 now)
{
	bool guest = shared(c->cur_is) & CUR_AWAY;
	bool lets = dormant_enough(c, now);
	bool stays = !guest && may_go_on(prev, t, now);
	bool first;

	if ((guest || !before(now, shared(c->slice_end))) && cookie_blocks(cpu)) {
		cookie_cede(cpu);
		return;
	}
	first = stays && !t->over && !lets && still_first(c, cpu, now);
	if (!first) {
		if (core_next(cpu))
			return;
		if (cookie_waits(cpu)) {
			core_idles(cpu, c, now);
			return;
		}
	}
	if (stays) {
		if (!lets || !core_borrow_beside(cpu, partner))
			keep(cpu, prev, t, now);
		return;
	}
	if (guest && allowed(prev, cpu) && guest_stays(prev, t) && !quota_out(t, now)) {
		keep(cpu, prev, t, now);
		return;
	}
	if (core_borrow(cpu, partner, c))
		return;
	core_idles(cpu, c, now);
}

/* Who is next on `cpu`, perhaps a hardware thread of a core? False if it is none, or nothing is
 * wanted of it. */
RARE bool dispatch_thread(s32 cpu, struct cpu_ctx *c, struct task_struct *prev, struct task_ctx *t)
{
	s32 partner = partner_of(cpu);
	u64 now;

	if (partner == NO_PCPU)
		return false;
	now = now_ns();
	if (shared(c->held)) {
		if (!t && before(now, shared(c->held_until)))
			return true;
		hold_over(c, now);
	}
	if (t) {
		core_dispatch_or_keep(cpu, partner, c, prev, t, now);
		return true;
	}
	/* Somebody has just left. */
	if (!shared(c->idle) && cookie_blocks(cpu)) {
		cookie_cede(cpu);
		return true;
	}
	if (core_next(cpu)) {
		core_pass_call(cpu, c);
		return true;
	}
	store(c->called, 0);
	if (!cookie_waits(cpu) && core_borrow(cpu, partner, c))
		return true;
	core_idles(cpu, c, now);
	return true;
}

/* dispatch_thread(), where plans ask for cores at all. */
static inline bool dispatch_core(s32 cpu, struct cpu_ctx *c, struct task_struct *prev,
				 struct task_ctx *t)
{
	return with_cores() && dispatch_thread(cpu, c, prev, t);
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
 * `t` starts on `cpu`, and ran on another one last, if on any. A pCPU that falls idle for a moment
 * takes whoever waits anywhere: where it shares its core, and nobody else waits here, `cpu` looks
 * for a core that idles as soon as this turn is over, see finds_idle_core().
 */
RARE void started_elsewhere(struct task_ctx *t, struct cpu_ctx *c, s32 cpu, u64 now)
{
	if (t->last_cpu != NO_PCPU)
		t->sum.migrations++;
	t->last_cpu = cpu;
	if (smt_sibling_of(cpu) != NO_PCPU && shared(c->nr) == 1 && shares_core(cpu))
		store(c->balanced_at, now - knobs.balance_interval);
}

/* Was `t`, which starts on `cpu`, taken off it to be changed, and put back? */
static inline bool is_changed(struct task_ctx *t, s32 cpu)
{
	return !t->queued && t->state == TASK_WAITING && t->clock_cpu == cpu && !t->woken;
}

/*
 * `t` starts on `cpu`, where it was not queued: it was pulled, and starts out of turn; or it was
 * `changed` while it ran. Then nothing is forgiven that it ran: anybody may change its own affinity
 * as often as it likes.
 */
RARE void starts_unqueued(struct task_ctx *t, struct cpu_ctx *c, s32 cpu, bool changed)
{
	u64 was = t->vtime;

	fair_arrive(t, c, cpu, changed ? FAIR_ANY_LEAD : 0);
	if (!changed)
		gang_moved(t, c, was);
	t->rest = 0;
}

/* May be called on another pCPU than that where `p` starts: on that of who changes it while it
 * runs. */
CALLBACK(void, corun_running, struct task_struct *p)
{
	struct task_ctx *t = callback_begin(OP_RUNNING, p, 0);
	s32 cpu = task_cpu_of(p);
	struct cpu_ctx *c = cpu_at(cpu);
	bool changed, rescued;
	u64 ready, now;

	if (!t || !c)
		return;
	now = now_ns();
	ready = now - t->since;
	changed = is_changed(t, cpu);
	if (occupancy_start(t, c, cpu, id_of(p)))
		starts_unqueued(t, c, cpu, changed);
	/* Who was queued is known to want to run. */
	if (!t->queued)
		activate_late(p, t);
	rescued = is_rescued(t, c, ready);
	enter(t, TASK_RUNNING, now);
	t->woken = 0;
	if (t->fresh == FRESH)
		t->fresh = FRESH_TURN;
	t->queued = 0;
	t->charged = now;
	t->sum.switches++;
	if (t->last_cpu != cpu)
		started_elsewhere(t, c, cpu, now);
	store(c->idle, 0);
	store(c->runs, 1);
	store(c->switches, shared(c->switches) + 1);
	if (rescued)
		t->rest = SLICE_MIN;
	if (t->rest)
		turn_goes_on(p, c);
	else if (changed)
		turn_cut(t, c, now);
	turn_begins(p, t, c, cpu, now);
	if (rescued || shared(c->brief))
		shorten_turn(p, c, cpu, now);
	store(c->brief, 0);
	if (has_gang(t)) {
		gang_started(p, t, c, cpu, now);
		if (ready <= STARVE_LIMIT)
			gang_stays(t, c, cpu);
	}
	callback_end(0);
}

/* `t` loses its pCPU, and wants to run on. */
static inline void interrupted(struct task_ctx *t, u64 now)
{
	struct cpu_ctx *c = cpu_at(t->cpu);

	t->rest = 0;
	turn_to(t, TASK_READY, now);
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
}

/* `t`, which ran, goes to wait; or it is taken off its pCPU to be changed, and queued at once. */
static inline void blocks(struct task_struct *p, struct task_ctx *t, u64 now)
{
	s32 cpu = t->cpu;
	struct cpu_ctx *c = cpu_at(cpu);

	if (c)
		store(c->runs, 0);
	leave(t);
	hold_begin(p, t, cpu, now);
	turn_to(t, TASK_WAITING, now);
}

/* The kernel's `quiescent` would tell the same of who blocks, and costs a callback more. */
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
		interrupted(t, now);
	} else {
		blocks(p, t, now);
	}
	callback_end(0);
}

/* `p`, which runs, lets others go first: `to`, which waits somewhere, or anybody (sched_yield()).
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
	 * What is kept of tasks is charged to the daemon's cgroup. If that has no memory left,
	 * nobody is kept from being created for it: who is not known has turns all the same.
	 */
	if (!t)
		return args->fork ? 0 : -ENOMEM;
	t->vm = NO_VM;
	t->cpu = NO_PCPU;
	t->last_cpu = NO_PCPU;
	t->clock_cpu = NO_PCPU;
	return 0;
}

/* `t` is the dispatcher's no more, in whatever state that finds it. */
static inline void give_up_place(struct task_ctx *t)
{
	if (t->state == TASK_THROTTLED)
		quota_returns(t);
	leave(t);
}

/* `p` is somebody else's from now on: of another scheduling class, if not gone. */
KERNEL_CALLBACK(corun_disable, struct task_struct *p)
{
	struct task_ctx *t = raw_task_ctx(p);

	if (!t)
		return;
	give_up_place(t);
	/* Else it would seem to have been ready all the time when it is back. */
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

/* A sibling waits for `p`; in the kernel KVM tells of it (awaited.h). */
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

/* The slice timer of `cpu` fired: on that pCPU, unless it was started last from elsewhere, by who
 * changed a task that runs there. */
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

/* The release timer of `cpu` fired, on that pCPU: those parked there may have something left. */
TIMER_CALLBACK(corun_release, s32 cpu)
{
	struct cpu_ctx *c = cpu_at(cpu);

	release_begin(cpu);
	if (c)
		release_parked(c, cpu, now_ns());
	callback_end(0);
}

SCHEDULER(corun, WATCHDOG / 1000000 /* ms */)
