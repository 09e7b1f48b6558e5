/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The only packet of a queue. The kernel dequeues it at once, which is the usual case while a link keeps up. Therefore
 * it takes no part in the tournaments and has no place among others. Its period is decided when it arrives, and not
 * again if the device takes it later. If a second packet arrives before that, the first one gets a place after all.
 */
#ifndef QF_PACKET_LONE_H
#define QF_PACKET_LONE_H

/*
 * Decides the period of a packet that arrives at a stream without others. Returns whether it may be sent at once. What
 * depends on the stream alone holds until its arrival period ends: until then the next packet only has to fit. That
 * time is counted in ticks, which need no read of the clock: k ticks are surely over when more than k - 1 of them have
 * passed.
 */
__attribute__((noinline)) int settle(u32 i, u32 len, u64 now, u64 tick)
{
	struct stream *s = stream_at(i);

	if (len > s->size || is_dropping)
		return false;
	enter_period(i, tag_of(s, now), len);
	if (s->deadline - s->period > now)
		return false;
	s->settled_until = tick + (s->arrival_end - now) / (link.tick_ns ? link.tick_ns : 1);
	return true;
}

/* Accepts the first packet of an empty queue if the known state of its stream lets it be sent at once. */
QF_INLINE bool put_lone(u32 i, u32 len, u64 tick)
{
	struct stream *s = stream_at(i);

	if (config.changes != lone.open_for)
		return false;
	if (i != NONE && (tick >= s->settled_until || len > s->left))
		return false;
	lone.tick = tick;
	lone.who = i + 1;
	return true;
}

/* The same, but computes the state. If the packet may not be sent at once, only its period is decided. */
QF_INLINE bool settle_lone(u32 i, u32 len, u64 now, u64 tick)
{
	if (config.changes != changes_seen || link.hold || now < link_free)
		return false;
	if (i != NONE && !settle(i, len, now, tick))
		return false;
	lone.arrived = now;
	lone.tick = tick;
	lone.who = i + 1;
	return true;
}

/* Gives the packet a place, because it is no longer the only one. Returns the place. */
__attribute__((noinline)) int seat_lone(u32 len, u64 now, u64 tick)
{
	u32 i = lone.who - 1;
	struct stream *s = stream_at(i);
	u64 arrived = now - (tick - lone.tick) * link.tick_ns;

	lone.who = 0;
	return i == NONE ? append_best(len) : append(i, len, s->arrival_end + s->phase, arrived, now);
}

/* Accounts for the only packet after it was sent. */
QF_INLINE void send_lone(u32 len)
{
	u32 i = lone.who - 1;
	struct stream *s = stream_at(i);

	lone.who = 0;
	occupy_link(len, lone.arrived);
	if (i == NONE) {
		count_best_sent(len);
		return;
	}
	counters(i)->sent++;
	counters(i)->sent_bytes += len;
	s->left -= len; /* it fits: settle() chose its period for it */
	if (!s->left)
		serve(i, s->deadline + s->period);
}

#endif
