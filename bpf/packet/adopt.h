/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Applies changes of streams to the queue. User space writes the words of a stream between two increments of its
 * `change` and then increments `changes`. The queue compares `changes` at each packet and adopts what is complete;
 * words that are just being written are adopted at the next packet.
 *
 * The reads are in this order, also on processors that reorder reads (aarch64): `changes`, then `change`, then the
 * words, then `change` again. tests/models has a model of both sides.
 */
#ifndef QF_PACKET_ADOPT_H
#define QF_PACKET_ADOPT_H

#include "period.h"

/* Target of the exchange in fence(). Its value has no meaning. */
u64 fenced;

/*
 * Read barrier: reads after it are not older than reads before it. BPF has no instruction for that alone, but the
 * kernel makes an exchange that returns a value a full barrier (Documentation/atomic_t.txt,
 * bpf/standardization/instruction-set.rst).
 */
QF_INLINE void fence(void)
{
	u64 before = __sync_lock_test_and_set(&fenced, 0);

	qf_opaque(before);
	barrier();
}

/* Reads a word that user space writes, exactly once. */
#define READ(word) (*(volatile u64 *)&(word))

/* The part of the flags that numbers the streams which have used the slot. */
#define INCARNATION(flags) ((flags) >> 32)

/* Resets a slot for a new stream. Nothing of the former stream remains, except packets that still wait. */
QF_INLINE void forget(u32 i)
{
	struct stream *s = stream_at(i);
	u32 put = s->put, taken = s->taken;

	__builtin_memset(s, 0, sizeof(*s));
	s->put = put;
	s->taken = taken;
	__builtin_memset(counters(i), 0, sizeof(struct qf_net_counters));
}

/* Changes the periods. The current period continues, but ends no later than a new one would. */
QF_INLINE void set_periods(struct stream *s, const struct qf_net_stream_config *c, u64 now)
{
	u64 latest = now + c->phase + c->period;

	if (s->period == c->period && s->phase == c->phase && s->start == c->start)
		return;
	s->arrival_end = c->start ? c->start + c->period : 0;
	s->start = c->start;
	s->period = c->period;
	s->phase = c->phase;
	if (s->deadline > latest)
		s->deadline = latest;
}

/* Changes C. What is left of the current period changes by the difference. */
QF_INLINE void set_size(struct stream *s, u32 size)
{
	u32 used = s->size - s->left;

	s->left = size > used ? size - used : 0;
	s->size = size;
}

QF_INLINE void adopt_stream(u32 i, u64 now)
{
	struct qf_net_stream_config *from = &config.stream[i & STREAM_MASK];
	struct stream *s = stream_at(i);
	u64 change = READ(from->change);
	struct qf_net_stream_config c;

	if (change == s->change || change & 1)
		return;
	fence();
	c = *from;
	fence();
	if (change != READ(from->change))
		return;
	if (INCARNATION(c.flags) != s->incarnation) {
		forget(i);
		s->incarnation = INCARNATION(c.flags);
	}
	s->settled_until = 0;
	s->flags = c.flags;
	s->limit = c.limit < QF_NET_DEPTH ? c.limit : QF_NET_DEPTH;
	set_periods(s, &c, now);
	set_size(s, c.size);
	if (s->x != c.window >> 32 || s->y != (u32)c.window) {
		s->x = c.window >> 32;
		s->y = c.window;
		set_window(s, i, s->x, s->y);
	}
	s->change = change;
	counters(i)->change = change;
	new_head(i, now);
}

/* Enlarges the tournaments to what the streams in use need. Tournaments never shrink. */
QF_INLINE void grow(u64 now)
{
	u32 wanted = config.leaves & (2 * QF_NET_STREAMS - 1);
	u32 i;

	if (wanted <= leaves)
		return;
	leaves = wanted;
	__builtin_memset(&ready, 0, sizeof(ready));
	__builtin_memset(&waiting, 0, sizeof(waiting));
	__builtin_memset(&extra, 0, sizeof(extra));
	bpf_for(i, 0, QF_NET_STREAMS)
		order_stream(i, now);
}

__attribute__((noinline)) int adopt(u64 now)
{
	u32 i;

	changes_seen = READ(config.changes);
	fence();
	open_lone();
	grow(now);
	bpf_for(i, 0, QF_NET_STREAMS)
		adopt_stream(i, now);
	return 0;
}

#endif
