/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Periods of a stream: the period of its head, the stream's place in the tournaments, and the end of a period. */
#ifndef QF_PACKET_PERIOD_H
#define QF_PACKET_PERIOD_H

#include "stream.h"
#include "tournament.h"
#include "window.h"

/* Places a stream in the tournaments: its head waits for its period or is ready. */
QF_INLINE void order_stream(u32 i, u64 now)
{
	struct stream *s = stream_at(i);
	bool has_head = s->put != s->taken;
	bool is_ready = has_head && s->deadline - s->period <= now;
	bool is_waiting = has_head && !is_ready;
	u32 before;

	if (tree_place(&ready, i, is_ready, &before))
		play_ready(i, before);
	if (!is_waiting && !tree_has(&waiting, i))
		return;
	if (tree_place(&waiting, i, is_waiting, &before))
		play_waiting(i, before);
	if (tree_place(&extra, i, is_waiting && s->flags & QF_NET_WORK_CONSERVING, &before))
		play_extra(i, before);
}

QF_INLINE void begin_period(struct stream *s, u64 deadline)
{
	s->deadline = deadline;
	s->left = s->size;
	s->settled_until = 0;
}

/* Whether something of the period was sent. Every packet has at least one byte. */
QF_INLINE bool is_begun(const struct stream *s)
{
	return s->left != s->size;
}

/* Ends the stream's period as served and begins the next or a later one. Not inlined: verified once and called from
 * several places. */
__attribute__((noinline)) int serve(u32 i, u64 deadline)
{
	struct stream *s = stream_at(i);

	rule_a(s, i);
	counters(i)->served++;
	begin_period(s, deadline);
	return 0;
}

/* Enters the period in which a head with this tag and length may be sent: the rest of the current one, or a later
 * one. */
QF_INLINE void enter_period(u32 i, u64 tag, u32 len)
{
	struct stream *s = stream_at(i);

	if (tag <= s->deadline && (len <= s->left || !is_begun(s)))
		return;
	if (tag <= s->deadline)
		tag = s->deadline + s->period;
	if (is_begun(s))
		serve(i, tag);
	else
		begin_period(s, tag);
}

/* Handles a new head of the stream, or its absence. */
QF_INLINE void new_head(u32 i, u64 now)
{
	struct stream *s = stream_at(i);
	struct packet *head = head_of(i);

	if (s->put != s->taken) {
		enter_period(i, head->tag, head->len);
		s->order = head->order;
	}
	order_stream(i, now);
}

QF_INLINE u32 take(u32 i)
{
	struct stream *s = stream_at(i);
	u32 place = place_of(i, s->taken);

	s->taken++;
	counters(i)->waiting = s->put - s->taken;
	return place;
}

/*
 * The tag of a packet that arrives now: the end of its packet period. The arrival periods of a stream with a start form
 * a grid. Without a start, each begins with the first packet after the end of the last one, so that every frame has all
 * of T.
 */
QF_INLINE u64 tag_of(struct stream *s, u64 now)
{
	if (now >= s->arrival_end) {
		if (s->start)
			s->arrival_end += s->period * (1 + (now - s->arrival_end) / s->period);
		else
			s->arrival_end = now + s->period;
	}
	return s->arrival_end + s->phase;
}

#endif
