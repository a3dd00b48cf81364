/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Finding a pCPU among many without looking at all of them.
 *
 * A placement wants the least loaded pCPU; a pCPU without work wants the most loaded one that has
 * waiting tasks. On a host with 512 pCPUs a look at each of them for every wake-up would be most of
 * what a simulation does. So the untapped native build keeps the loads in trees of minima: a node
 * holds the least of eight keys, and the next level the least of eight nodes, just as a pCPU mask
 * is made of bytes and words; pCPUs outside a mask are skipped by bytes and words, too. Updating a
 * tree and searching it take O(log pCPUs). The result is the one that a look at all pCPUs would
 * find: the least key, of equals the lowest number. The kernel build does without, and so does a
 * replay, in which each look must pass the tap.
 */
#ifndef CORUN_INDEX_H
#define CORUN_INDEX_H

/* A key per pCPU. */
struct min_tree {
	s64 of1[MAX_PCPUS];
	s64 of8[MAX_PCPUS / 8];
	s64 of64[MAX_PCPUS / 64];
};

/* All zero means that there is no task anywhere. */
struct pcpu_index {
	struct min_tree light;	 /* crowding() */
	struct min_tree crowded; /* minus the load where tasks wait, else 0 */
	u64 waiting[MASK_WORDS]; /* pCPUs with tasks in their queue */
	u64 fixed[MASK_WORDS];	 /* those among them whose waiting tasks cannot be pulled; cleared
				    by a change of the queue, or of what policies want */
	u64 llc[MAX_LLCS][MASK_WORDS]; /* the pCPUs of each last-level cache */
	u64 llcs_known;		       /* `llc` is filled */
};

/* The best pCPU so far. `rank` decides among equal keys: its number, or -1 if it wins them all. */
struct candidate {
	s64 key;
	s32 cpu;
	s32 rank;
};

static inline s64 least_of_8(const s64 *keys)
{
	s64 least = keys[0];

	for (u32 i = 1; i < 8; i++)
		least = keys[i] < least ? keys[i] : least;
	return least;
}

/*
 * A node that was `*least` has a child that was `old` and is `key` now: has the node changed, so
 * that its parent must be updated? Usually it has not, and its children need not be looked at.
 */
static inline bool node_set(s64 *least, s64 old, s64 key, const s64 *children)
{
	s64 was = *least;

	if (key <= was)
		*least = key;
	else if (old == was)
		*least = least_of_8(children);
	return *least != was;
}

/* Gives `cpu` another key. */
static inline void tree_set(struct min_tree *tree, u32 cpu, s64 key)
{
	s64 old = tree->of1[cpu];
	s64 of8 = tree->of8[cpu / 8];

	tree->of1[cpu] = key;
	if (node_set(&tree->of8[cpu / 8], old, key, &tree->of1[cpu / 8 * 8]))
		node_set(&tree->of64[cpu / 64], of8, tree->of8[cpu / 8], &tree->of8[cpu / 64 * 8]);
}

/* Takes the first of the least keys out of the set `*open` of eight. */
static inline u32 take_least(const s64 *keys, u32 *open)
{
	u32 least = (u32)__builtin_ctz(*open);

	for (u32 rest = *open & (*open - 1); rest; rest &= rest - 1) {
		u32 next = (u32)__builtin_ctz(rest);

		least = keys[next] < keys[least] ? next : least;
	}
	*open &= ~(1u << least);
	return least;
}

/* Could a pCPU from number `first` on, with `key` or a higher one, be better than `best`? */
static inline bool beats(s64 key, s32 first, const struct candidate *best)
{
	return key < best->key || (key == best->key && first < best->rank);
}

/* The bytes of `word` that are not 0, a bit each. */
static inline u32 bytes_in(u64 word)
{
	u32 bytes = 0;

	for (u32 i = 0; i < 8; i++)
		bytes |= (u32)((word >> (8 * i) & 0xff) != 0) << i;
	return bytes;
}

/*
 * tree_search(tree, mask, best, cpu, admits): improves `best` by the pCPUs in `mask` for which the
 * expression `admits`, of `cpu`, is true. Branches are tried in order of their least keys; the
 * first that holds nothing better ends the search at that level, because none of those after it
 * does.
 */
#define tree_search(tree, mask, best, cpu, admits)                                                 \
	do {                                                                                       \
		u32 words = 0;                                                                     \
		for (u32 i = 0; i < words_in_use(); i++)                                           \
			words |= (u32)((mask)[i] != 0) << i;                                       \
		while (words) {                                                                    \
			u32 word = take_least((tree)->of64, &words);                               \
			u32 bytes;                                                                 \
			if (!beats((tree)->of64[word], (s32)word * 64, (best)))                    \
				break;                                                             \
			bytes = bytes_in((mask)[word]);                                            \
			while (bytes) {                                                            \
				u32 byte = word * 8 + take_least((tree)->of8 + word * 8, &bytes);  \
				u32 bits;                                                          \
				if (!beats((tree)->of8[byte], (s32)byte * 8, (best)))              \
					break;                                                     \
				bits = (u32)((mask)[word] >> (byte % 8 * 8)) & 0xff;               \
				while (bits) {                                                     \
					(cpu) = (s32)(byte * 8 +                                   \
						      take_least((tree)->of1 + byte * 8, &bits));  \
					if (!beats((tree)->of1[cpu], (cpu), (best)))               \
						break;                                             \
					if (!(admits))                                             \
						continue;                                          \
					*(best) =                                                  \
					    (struct candidate){(tree)->of1[cpu], (cpu), (cpu)};    \
					break;                                                     \
				}                                                                  \
			}                                                                          \
		}                                                                                  \
	} while (0)

#endif
