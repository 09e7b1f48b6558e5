/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * DWCS for packets, without the packets: which waiting packet is next, which are late, and until when there is nothing
 * to do. The queueing discipline (dwcs.bpf.c) stores real packets at the places assigned here. The trial entries
 * (trial.bpf.c) drive the same code with simulated packets, to compare it with the theory.
 *
 * A stream promises C bytes in every period T. A packet that arrives in an arrival period [a + jT, a + (j+1)T) is
 * *tagged* with the end of its packet period, a + Θ + (j+1)T. A stream is in one period at a time: d is its end, `left`
 * the bytes of it not yet sent.
 *
 *              new head, tag > d: (served if begun) d = tag
 *   empty ----------------------------------------------------> waiting (now < d - T)
 *     ^        else, head does not fit: served, d += T            |  release: now >= d - T
 *     |                                                           v
 *     +---- last packet sent -------------------------------- ready --- d <= now: missed ---> rule b, d += T
 *                  left = 0: served, rule a, d += T                     x' > 0: its packets are dropped
 *                                                                       x' = 0: violation, they are sent late
 *
 * Everything runs under the lock of the queue, one call at a time.
 */
#ifndef QF_PACKET_MACHINE_H
#define QF_PACKET_MACHINE_H

#include "adopt.h"
#include "period.h"
#include "stream.h"
#include "tournament.h"

/* Appends a packet to best effort's queue. Returns its place. */
QF_INLINE u32 append_best(u32 len)
{
	u32 place = BEST_FIRST + (best_put & BEST_MASK);

	best_len[best_put++ & BEST_MASK] = len;
	stats.best_waiting = best_put - best_taken;
	return place;
}

/* Appends a packet to a stream's queue. If its late packets are just being dropped, the packet becomes the head after
 * the last of them. Returns its place. */
QF_INLINE u32 append(u32 i, u32 len, u64 tag, u64 arrived, u64 now)
{
	struct stream *s = stream_at(i);
	u32 place = place_of(i, s->put);
	struct packet *packet = &packets[place & (QF_NET_STREAMS * QF_NET_DEPTH - 1)];

	packet->tag = tag;
	packet->arrived = arrived;
	packet->order = order++;
	packet->len = len;
	if (s->put++ == s->taken && !(is_dropping && late_stream == i))
		new_head(i, now);
	counters(i)->waiting = s->put - s->taken;
	return place;
}

/* Accepts a packet of `len` bytes for stream `i`, or for best effort (NONE). Returns its place. -1: the queue is
 * full. */
__attribute__((noinline)) int put(u32 i, u32 len, u64 now)
{
	struct stream *s = stream_at(i);

	if (config.changes != changes_seen)
		adopt(now);
	if (i != NONE && len > s->size) {
		counters(i)->oversize++;
		i = NONE;
	}
	if (i == NONE) {
		if (best_put - best_taken < link.best_limit)
			return append_best(len);
		stats.best_overflow++;
		return -1;
	}
	if (s->put - s->taken < s->limit)
		return append(i, len, tag_of(s, now), now, now);
	counters(i)->overflow++;
	return -1;
}

/* The deadline of a stream has passed while its packets wait. */
QF_INLINE void miss(u32 i, u64 now)
{
	struct stream *s = stream_at(i);
	struct qf_net_counters *c = counters(i);
	u64 periods;

	if (s->x_now) {
		c->missed++;
		rule_b(s, i, 1);
		late_stream = i;
		is_dropping = true;
		s->settled_until = 0;
		return;
	}
	/* The window permits no loss: all periods that are over are violations, counted at once. */
	periods = 1 + (now - s->deadline) / s->period;
	c->missed += periods;
	c->violations += periods;
	rule_b(s, i, periods);
	begin_period(s, s->deadline + periods * s->period);
	new_head(i, now);
}

/* Drops one packet of the missed period. Returns false if there is none left, which ends the period. */
QF_INLINE bool drop_late(struct next *next, u64 now)
{
	u32 i = late_stream;
	struct stream *s = stream_at(i);
	struct packet *head = head_of(i);

	if (s->put == s->taken || head->tag > s->deadline || head->len > s->left) {
		is_dropping = false;
		begin_period(s, s->deadline + s->period);
		new_head(i, now);
		return false;
	}
	next->len = head->len;
	next->stream = i;
	s->left -= head->len;
	next->place = take(i);
	counters(i)->late++;
	stats.drops_late++;
	return true;
}

QF_INLINE void occupy_link(u32 len, u64 now)
{
	u64 from;

	if (!link.byte_time)
		return;
	from = now - link.catch_up;
	link_free = (link_free > from ? link_free : from) + (len * link.byte_time >> 16);
}

QF_INLINE void count_best_sent(u32 len)
{
	stats.best_sent++;
	stats.best_sent_bytes += len;
}

QF_INLINE u32 send_best(struct next *next, u64 now)
{
	u32 len = best_len[best_taken & BEST_MASK];
	u64 owed = (u64)len << 16;

	next->place = BEST_FIRST + (best_taken++ & BEST_MASK);
	next->len = len;
	next->stream = NONE;
	best_credit -= best_credit < owed ? best_credit : owed;
	if (best_put == best_taken)
		best_credit = 0;
	stats.best_waiting = best_put - best_taken;
	count_best_sent(len);
	occupy_link(len, now);
	return SEND;
}

QF_INLINE void count_sent(u32 i, struct packet *packet, u64 now)
{
	struct qf_net_counters *c = counters(i);
	u64 delay = now - packet->arrived;

	c->sent++;
	c->sent_bytes += packet->len;
	c->sent_late += packet->tag <= now;
	c->delay_sum += delay;
	if (delay > c->delay_max)
		c->delay_max = delay;
}

/* Charges regular service to the period. */
QF_INLINE void charge(u32 i, u32 len)
{
	struct stream *s = stream_at(i);

	s->left -= s->left < len ? s->left : len;
	if (!s->left)
		serve(i, s->deadline + s->period);
}

/* Real-time packets earn best effort its share while it waits. */
QF_INLINE void earn(u32 len)
{
	if (best_put != best_taken && best_credit < BEST_CREDIT_MAX)
		best_credit += len * link.share;
}

QF_INLINE u32 send_head(struct next *next, u32 i, bool is_extra, u64 now)
{
	struct packet *head = head_of(i);

	next->len = head->len;
	next->stream = i;
	count_sent(i, head, now);
	next->place = take(i);
	if (is_extra) {
		counters(i)->sent_extra++;
	} else {
		charge(i, next->len);
		earn(next->len);
	}
	new_head(i, now);
	occupy_link(next->len, now);
	return SEND;
}

/* Held packets are sent in one burst, before the first deadline among them. */
QF_INLINE bool is_held(struct next *next, u32 first, u64 now)
{
	u64 burst_at = stream_at(first)->deadline - (link.hold - 1);

	if (is_burst || now >= burst_at) {
		stats.bursts += !is_burst;
		is_burst = true;
		return false;
	}
	next->until = burst_at;
	return true;
}

QF_INLINE u32 choose(struct next *next, u64 now)
{
	u32 i = tree_first(&ready);
	bool is_best = best_put != best_taken;

	if (i != NONE) {
		if (link.hold && is_held(next, i, now))
			return WAIT;
		if (is_best && best_credit >> 16 >= best_len[best_taken & BEST_MASK]) {
			stats.best_owed++;
			return send_best(next, now);
		}
		return send_head(next, i, false, now);
	}
	if (extra.members)
		return send_head(next, tree_first(&extra), true, now);
	if (is_best)
		return send_best(next, now);
	is_burst = false;
	i = tree_first(&waiting);
	if (i == NONE)
		return IDLE;
	next->until = stream_at(i)->deadline - stream_at(i)->period;
	return WAIT;
}

/* One step of the queue at `now`. AGAIN: something changed, so the caller must call again. */
QF_INLINE u32 step(struct next *next, u64 now)
{
	u32 i;

	if (config.changes != changes_seen)
		adopt(now);
	if (is_dropping)
		return drop_late(next, now) ? DROP : AGAIN;
	if (link.byte_time && now < link_free) {
		next->until = link_free;
		return WAIT;
	}
	i = tree_first(&waiting);
	if (i != NONE && stream_at(i)->deadline - stream_at(i)->period <= now) {
		order_stream(i, now);
		return AGAIN;
	}
	i = tree_first(&ready);
	if (i != NONE && stream_at(i)->deadline <= now) {
		miss(i, now);
		return AGAIN;
	}
	return choose(next, now);
}

#include "lone.h"

/* Removes all packets. */
QF_INLINE void empty(u64 now)
{
	u32 i;

	stats.best_emptied += best_put - best_taken + (lone.who == NONE + 1);
	stats.best_waiting = 0;
	best_taken = best_put;
	best_credit = 0;
	is_dropping = is_burst = false;
	bpf_for(i, 0, QF_NET_STREAMS) {
		counters(i)->emptied += stream_at(i)->put - stream_at(i)->taken + (lone.who == i + 1);
		counters(i)->waiting = 0;
		stream_at(i)->taken = stream_at(i)->put;
		order_stream(i, now);
	}
	lone.who = 0;
}

#endif
