/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Strict co-scheduling with static time slots: Ousterhout, "Scheduling techniques for concurrent
 * systems", 1982, as in Algorithm 1 of Sukwong & Kim, EuroSys 2011.
 *
 * Time is cut into slots, the same on all pCPUs. When a slot begins, VMs with a ready vCPU are
 * served in turn: each VM that finds as many pCPUs without an owner as it has ready vCPUs gets them
 * for the slot; a VM that does not waits for a later slot, as Algorithm 1 looks for the first slot
 * with enough available pCPUs. Only pCPUs that a vCPU of the VM may use (affinity, cpusets) count;
 * if there are fewer of them than vCPUs, all of them are enough, and only part of the VM starts.
 *
 * The first VM that found too few is served first in the next slot, when all pCPUs are available.
 * No VM gets a second slot before every ready VM has had its first, except on pCPUs that those
 * leave over: slots come in rounds, which last for no more slots than there are VMs. Without
 * rounds, on a host that cpusets divide into parts, the VM that is first in the table would get its
 * part of the host in each slot that begins with a VM of another part.
 *
 * A gang consists of the vCPUs that are ready: those that are halted need no pCPU, and other gangs
 * that fit beside it run in its slot (in Ousterhout's scheme, too, processes of a task force that
 * cannot run leave their pCPUs to others). A sibling that wakes during the slot gets a free pCPU of
 * its VM, or else a pCPU without an owner, which its VM then owns; if there is none, it waits,
 * since pCPUs assigned for a slot stay with their owners.
 *
 * A pCPU with an owner runs no other VM's vCPU, and a pCPU without an owner runs none: pCPUs stay
 * idle while vCPUs wait (fragmentation), and a vCPU that wakes up waits for the next slot (priority
 * inversion), as the paper's Figure 3 shows. With vm_conf.fill, vCPUs run on pCPUs that would idle,
 * until the owner wants them. Host tasks that are not vCPUs run in fair order with the vCPUs of the
 * owner.
 *
 * Of the pCPUs that a VM could have, it gets first those whose SMT sibling has no owner, and among
 * these first those where its vCPUs are.
 *
 * A pCPU that one vCPU of a VM may use counts as usable for all of them: where their affinities
 * differ, a VM may own a pCPU although none of the vCPUs that may run there is ready. The order of
 * turns ignores weights: all strict VMs get the same number of slots.
 */
#ifndef CORUN_GANG_STRICT_H
#define CORUN_GANG_STRICT_H

#include "gang.h"

/* Length of a slot when no VM asks for one, ns. */
#define SLOT_DEFAULT 10000000ull

static inline bool slot_is_open(u64 now)
{
	return before(now, shared(slots.end));
}

static inline bool strict_owns(struct gang *g, struct cpu_ctx *c)
{
	return shared(c->owner) == g->slot + 1;
}

static inline u32 strict_rank(struct gang *g, struct cpu_ctx *c)
{
	if (strict_owns(g, c))
		return RANK_ORDINARY;
	return shared(g->conf->fill) ? RANK_FILL : RANK_NOT;
}

/* Has `cpu` no SMT sibling, or one without an owner? */
static inline bool strict_is_lone(s32 cpu)
{
	struct cpu_ctx *beside = cpu_at(smt_sibling_of(cpu));

	return !beside || !shared(beside->owner);
}

/* Is `cpu` online and without an owner? */
static inline bool strict_available(struct cpu_ctx *c, s32 cpu)
{
	return c && is_online(cpu) && !shared(c->owner);
}

/* A slot that is being opened: the pCPUs without an owner yet, and the state of the rounds. */
struct strict_free {
	u64 pcpus[MASK_WORDS];
	u64 length; /* of the slot; 0: no VM has got it yet */
	u32 count;  /* of `pcpus` */
	u32 number; /* of the slot */
	u32 round; /* number of the slot in which the round began: VMs served since then are not due
		    */
	u32 missed; /* place of the first VM that was due and found too few pCPUs; or NO_VM */
	u32 others; /* 1: a VM was not due */
	u32 spare;  /* place of the VM that is served first with what is left over, plus 1 */
};

/*
 * Which pCPUs strict_take() takes: only those where vCPUs of the VM are; only those whose SMT
 * sibling has no owner.
 */
#define TAKE_HERE 1u
#define TAKE_LONE 2u

/*
 * for_each_bit(n, bits): runs until no bit is set; the body removes one bit each time, by
 * lowest_bit().
 */
#define for_each_bit(n, bits)                                                                      \
	repeat (n, 64)                                                                             \
		if (!(bits))                                                                       \
			break;                                                                     \
		else

/* Removes the lowest bit from `bits`, the word numbered `word` of a mask, and returns its pCPU. */
#define lowest_bit(word, bits)                                                                     \
	({                                                                                         \
		s32 lowest = (s32)((word) * 64) + __builtin_ctzll(bits);                           \
		(bits) &= (bits) - 1;                                                              \
		lowest;                                                                            \
	})

/* How many pCPUs the VM at a place of the table wants: one per vCPU that is ready or runs. */
CALLED u32 strict_wanted(u32 place)
{
	struct gang g = gang_in(place);
	u32 ready = 0;
	u32 word, n;

	if (!g.vm)
		return 0;
	repeat (word, words_in_use()) {
		u64 bits = shared(g.vm->where[opaque(word) % MASK_WORDS]);

		for_each_bit(n, bits) ready += gang_here(&g, lowest_bit(word, bits));
	}
	return ready;
}

/* The pCPUs in this word of a mask that any vCPU of `g`, which has a conf, may use. */
static inline u64 strict_may(struct gang *g, u32 word)
{
	return shared(g->conf->pcpus[opaque(word) % MASK_WORDS]);
}

/* Are `wanted` pCPUs free that the VM at a place of the table may use, or all that it may use? */
CALLED u32 strict_fits(u32 place, u32 wanted, struct strict_free *free)
{
	struct gang g = gang_in(place);
	u32 all = 0, open = 0;
	u32 word;

	if (!g.conf || !free)
		return true;
	repeat (word, words_in_use()) {
		u64 may = strict_may(&g, word);

		all += (u32)__builtin_popcountll(may & knobs.online[opaque(word) % MASK_WORDS]);
		open += (u32)__builtin_popcountll(may & free->pcpus[opaque(word) % MASK_WORDS]);
	}
	return open >= wanted || open >= all;
}

/*
 * Gives the VM at a place of the table at most `wanted` pCPUs, of those that it may use and that
 * `which` (TAKE_*) selects. Returns how many it did not get. Only looks at free pCPUs, and removes
 * each that is given away; otherwise opening a slot would take as long as there are VMs times
 * pCPUs.
 */
CALLED u32 strict_take(u32 place, u32 wanted, u32 which, struct strict_free *free)
{
	struct gang g = gang_in(place);
	u32 word, n;

	if (!g.vm || !g.conf || !free || !wanted)
		return 0;
	repeat (word, words_in_use()) {
		u64 bits = free->pcpus[opaque(word) % MASK_WORDS] & strict_may(&g, word);

		if (which & TAKE_HERE)
			bits &= shared(g.vm->where[opaque(word) % MASK_WORDS]);
		for_each_bit(n, bits)
		{
			s32 i;
			struct cpu_ctx *c;

			if (!wanted)
				break;
			i = lowest_bit(word, bits);
			c = cpu_at(i);
			if ((which & TAKE_LONE) && !strict_is_lone(i))
				continue;
			if ((which & TAKE_HERE) && !gang_here(&g, i))
				continue;
			/*
			 * A sibling that woke may have claimed the pCPU meanwhile: strict_claim().
			 */
			if (c && strict_available(c, i)) {
				store(c->owner, place + 1);
				wanted--;
			}
			free->pcpus[opaque(word) % MASK_WORDS] &= ~(1ull << ((u32)i % 64));
			free->count--;
		}
	}
	return wanted;
}

/*
 * Gives the VM at a place of the table pCPUs for the time slot: one per ready vCPU; or none, and
 * returns false.
 */
static inline bool strict_assign(u32 place, struct strict_free *free)
{
	u32 wanted = strict_wanted(place);

	if (!strict_fits(place, wanted, free))
		return false;
	wanted = strict_take(place, wanted, TAKE_LONE | TAKE_HERE, free);
	wanted = strict_take(place, wanted, TAKE_LONE, free);
	wanted = strict_take(place, wanted, TAKE_HERE, free);
	strict_take(place, wanted, 0, free);
	return true;
}

/* The place that is served after `place`, when serving began with `first`; or NO_VM. */
static inline u32 strict_next(u32 place, u32 first)
{
	u32 next = active_slot((place + 1) % MAX_VMS);

	if (next == NO_VM || (next - first) % MAX_VMS <= (place - first) % MAX_VMS)
		return NO_VM;
	return next;
}

/*
 * Has the VM of `g`, which has a gang_ctx, had none of the slots from `first` to the one that is
 * opened? Slot numbers wrap after some months: a number outside that range is long past, or never
 * was.
 */
static inline bool strict_waits_since(struct gang *g, u32 first, struct strict_free *free)
{
	return shared(g->ctx->turn) - first > free->number - first;
}

/* The strict VM `g` takes its turn in the slot, if it finds enough pCPUs. */
static inline bool strict_turn(struct gang *g, struct strict_free *free)
{
	if (!strict_assign(g->slot, free))
		return false;
	store(g->ctx->turn, free->number);
	if (!free->length)
		free->length = shared(g->conf->slot);
	return true;
}

/* Serves the VMs that are due in this round, once around the table from place `first`. */
CALLED u32 strict_serve_due(u32 first, struct strict_free *free)
{
	u32 place = first;
	u32 turn;

	if (!free)
		return 0;
	repeat (turn, MAX_VMS) {
		struct gang g;

		if (place == NO_VM || (!free->count && free->missed != NO_VM))
			break;
		g = gang_in(place);
		if (g.mode == GANG_STRICT) {
			if (!strict_waits_since(&g, free->round, free))
				free->others = 1;
			else if (!strict_turn(&g, free) && free->missed == NO_VM)
				free->missed = place;
		}
		place = strict_next(place, first);
	}
	return 0;
}

/* Serves the VMs that have had their time slot in this round with the pCPUs that are left over. */
CALLED u32 strict_serve_others(u32 first, struct strict_free *free)
{
	u32 place = first;
	u32 turn;

	if (!free)
		return 0;
	repeat (turn, MAX_VMS) {
		struct gang g;

		if (place == NO_VM || !free->count)
			break;
		g = gang_in(place);
		if (g.mode == GANG_STRICT && !strict_waits_since(&g, free->round, free) &&
		    strict_waits_since(&g, free->number, free) && strict_turn(&g, free))
			free->spare = place + 1;
		place = strict_next(place, first);
	}
	return 0;
}

/* Assigns all pCPUs for a slot that begins now. */
static inline void strict_assign_all(struct strict_free *free, u64 now)
{
	u32 first = active_slot(shared(slots.first) % MAX_VMS);

	free->number = shared(slots.number) + 1;
	free->round = shared(slots.round);
	free->spare = shared(slots.spare);
	free->missed = NO_VM;
	strict_serve_due(first, free);
	if (free->count && free->others)
		strict_serve_others(active_slot(free->spare % MAX_VMS), free);
	store(slots.first, free->missed != NO_VM ? free->missed : first + 1);
	store(slots.number, free->number);
	/* Every VM that was due was served: the next slot begins a new round. */
	if (free->missed == NO_VM)
		store(slots.round, free->number + 1);
	store(slots.spare, free->spare);
	store(slots.end, now + (free->length ? free->length : SLOT_DEFAULT));
}

/*
 * Must the pCPU of `c` pick again, now that owners have changed? With an owner, it must unless a
 * vCPU of that VM runs there. Without one, it must only if a vCPU of a strict VM runs there.
 */
static inline bool strict_repicks(struct cpu_ctx *c)
{
	u32 runs = shared(c->idle) ? NO_VM : shared(c->cur_vm);
	u32 owner = shared(c->owner);
	struct gang g;

	if (owner)
		return owner != runs + 1;
	g = gang_in(runs);
	return g.mode == GANG_STRICT;
}

/* Owners have changed: makes every pCPU but `cpu` for which that matters pick again. */
static inline void strict_enforce(s32 cpu)
{
	s32 i;

	repeat (i, nr_pcpus()) {
		struct cpu_ctx *c = cpu_at(i);

		if (c && i != cpu && strict_repicks(c))
			kick(i, KICK_PREEMPT);
	}
}

/* A slot is over, as `cpu` noticed: opens the next one, unless another pCPU is doing so. */
CALLED u32 strict_open_slot(s32 cpu, u64 now)
{
	struct strict_free free = {};
	s32 i;

	if (exchange(slots.opening, 1))
		return 0;
	if (!slot_is_open(now)) {
		repeat (i, nr_pcpus()) {
			struct cpu_ctx *c = cpu_at(i);

			if (!c)
				continue;
			store(c->owner, 0);
			if (!is_online(i))
				continue;
			free.pcpus[opaque((u32)i / 64) % MASK_WORDS] |= 1ull << ((u32)i % 64);
			free.count++;
		}
		strict_assign_all(&free, now);
		/*
		 * A full barrier: owners must be written before strict_enforce() reads which VM
		 * runs; see strict_began().
		 */
		raw_exchange(slots.opening, 1);
		strict_enforce(cpu);
	}
	exchange(slots.opening, 0);
	return 1;
}

/*
 * Finds a pCPU without an owner for `p`; the VM of `p` owns it for the rest of the slot. NO_PCPU:
 * there is none.
 */
CALLED s32 strict_claim(struct task_struct *p TRUSTED, u32 slot, s32 prev)
{
	s32 found = NO_PCPU;
	struct cpu_ctx *c;
	u32 best = 0;
	s32 i;

	/* The pCPU that assigns the next slot relies on what it found available. */
	if (shared(slots.opening))
		return NO_PCPU;
	repeat (i, nr_pcpus()) {
		u32 rank;

		c = cpu_at(i);
		if (!strict_available(c, i) || !allowed(p, i))
			continue;
		rank = 1 + 2 * strict_is_lone(i) + (i == prev);
		if (rank > best) {
			best = rank;
			found = i;
		}
	}
	c = found == NO_PCPU ? NULL : cpu_at(found);
	return c && !exchange_if_zero(c->owner, slot + 1) ? found : NO_PCPU;
}

/*
 * A pCPU for `p`, which occupies none: one that its VM owns and where none of the VM's vCPUs is;
 * NO_PCPU: there is none. A VM that has a time slot may also claim a pCPU that is still available;
 * a VM that has none waits for its own slot.
 */
CALLED s32 strict_place(struct task_struct *p TRUSTED, u32 slot, s32 prev)
{
	struct gang g = gang_in(slot);
	s32 found = NO_PCPU;
	bool has_slot = false;
	s32 i;

	if (!g.vm)
		return NO_PCPU;
	repeat (i, nr_pcpus()) {
		struct cpu_ctx *c = cpu_at(i);

		if (!c || !strict_owns(&g, c))
			continue;
		has_slot = true;
		if (gang_here(&g, i) || !allowed(p, i))
			continue;
		if (found == NO_PCPU || i == prev)
			found = i;
	}
	return found == NO_PCPU && has_slot ? strict_claim(p, slot, prev) : found;
}

/*
 * A vCPU of `g` began to run on `cpu`. It may have been sent there in a slot that has ended since,
 * because an idle pCPU takes time to start it. The pCPU that opens a slot writes `owner`, then
 * reads which VM runs; this pCPU has written which VM runs, and now reads `owner`: at least one of
 * them sees the other's write.
 */
static inline void strict_began(struct gang *g, struct cpu_ctx *c, s32 cpu)
{
	if (shared_after(c->owner) != g->slot + 1 && !shared(g->conf->fill))
		kick(cpu, KICK_PREEMPT);
}

/*
 * A vCPU of `g` waits where it may not run: wakes the idle pCPUs that its VM owns, so that they
 * look for it.
 */
static inline void strict_call_owned(struct gang *g)
{
	s32 i;

	repeat (i, nr_pcpus()) {
		struct cpu_ctx *c = cpu_at(i);

		if (c && strict_owns(g, c) && shared(c->idle))
			kick(i, KICK_IDLE);
	}
}

#endif
