/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Tournaments over the streams of an interface: the first stream in an order is at the root. A stream whose key changed
 * plays again from its leaf upwards, in log2(streams) steps. A node holds its winner's number + 1; 0: no player.
 *
 * A single member is first without playing, which is the usual case while a link keeps up. Therefore nodes may name
 * streams that have left: they count as empty, and the former single member plays first when a second one joins.
 */
#ifndef QF_PACKET_TOURNAMENT_H
#define QF_PACKET_TOURNAMENT_H

#include "stream.h"

#define TREE_STEPS 6 /* log2(QF_NET_STREAMS) */
#define NODE_MASK (2 * QF_NET_STREAMS - 1)

struct tree {
	u64 members;
	u8 node[2 * QF_NET_STREAMS];
};

struct tree ready;   /* heads that may be sent, by Table 1 */
struct tree waiting; /* heads before their period, by its beginning */
struct tree extra;   /* of these, work-conserving ones, by Table 1 */

u32 leaves = 1; /* smallest power of two that covers all streams in use */

/* Table 1. Equal streams are ordered by number. */
QF_INLINE bool precedes(u32 a, u32 b)
{
	struct stream *s = stream_at(a), *t = stream_at(b);

	if (s->deadline != t->deadline)
		return s->deadline < t->deadline;
	if (s->rank != t->rank)
		return s->rank < t->rank;
	if (s->order != t->order)
		return s->order < t->order;
	return a < b;
}

QF_INLINE bool begins_before(u32 a, u32 b)
{
	struct stream *s = stream_at(a), *t = stream_at(b);

	return s->deadline - s->period < t->deadline - t->period;
}

QF_INLINE u32 if_member(const struct tree *tree, u32 node)
{
	return node && tree->members >> ((node - 1) & STREAM_MASK) & 1 ? node : 0;
}

QF_INLINE u32 winner(const struct tree *tree, u32 a, u32 b, bool by_begin)
{
	a = if_member(tree, a);
	b = if_member(tree, b);
	if (!a || !b)
		return a | b;
	return (by_begin ? begins_before(b - 1, a - 1) : precedes(b - 1, a - 1)) ? b : a;
}

QF_INLINE void play(struct tree *tree, u32 i, bool by_begin)
{
	u32 node = leaves + (i & STREAM_MASK);

	for (int step = 0; step < TREE_STEPS && node > 1; step++) {
		u32 left = tree->node[node & NODE_MASK & ~1], right = tree->node[(node | 1) & NODE_MASK];

		node = (node >> 1) & NODE_MASK;
		tree->node[node] = winner(tree, left, right, by_begin);
	}
}

/* Not inlined: each is verified once and called from many places. `before`: the former single member, or NONE. */
__attribute__((noinline)) int play_ready(u32 i, u32 before)
{
	if (before != NONE)
		play(&ready, before, false);
	play(&ready, i, false);
	return 0;
}

__attribute__((noinline)) int play_waiting(u32 i, u32 before)
{
	if (before != NONE)
		play(&waiting, before, true);
	play(&waiting, i, true);
	return 0;
}

__attribute__((noinline)) int play_extra(u32 i, u32 before)
{
	if (before != NONE)
		play(&extra, before, false);
	play(&extra, i, false);
	return 0;
}

QF_INLINE bool tree_has(const struct tree *tree, u32 i)
{
	return tree->members >> (i & STREAM_MASK) & 1;
}

/* Sets whether a stream is a member. Returns whether it must play, and the former single member in `before`. */
QF_INLINE bool tree_place(struct tree *tree, u32 i, bool is_member, u32 *before)
{
	u64 bit = 1ULL << (i & STREAM_MASK), others = tree->members & ~bit;
	bool was_member = tree->members & bit;

	if (!is_member && !was_member)
		return false;
	tree->members = is_member ? others | bit : others;
	tree->node[(leaves + (i & STREAM_MASK)) & NODE_MASK] = is_member ? i + 1 : 0;
	if (!others) {
		tree->node[1] = is_member ? i + 1 : 0;
		return false;
	}
	*before = !was_member && !(others & (others - 1)) ? (u32)tree->node[1] - 1 : NONE;
	return true;
}

QF_INLINE u32 tree_first(struct tree *tree)
{
	return tree->members ? (u32)tree->node[1] - 1 : NONE;
}

#endif
