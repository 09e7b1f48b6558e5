/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The only packet of a queue. The kernel asks for it at once, which is what most packets of a link that keeps up meet:
 * so it takes no part in the tournaments and has no place among others. Its period is decided when it comes, and not
 * again if the device takes it later; when a second packet comes before that, it takes its place after all.
 */
#ifndef QF_PACKET_LONE_H
#define QF_PACKET_LONE_H

/*
 * Whether a packet that comes to a stream without others may go at once; decides its period. What follows from the
 * stream alone holds as long as its arrival period lasts: the next packet need but fit. That is counted in ticks, so
 * that it needs no look at the clock: a tick is over k times when more than k - 1 of them have passed.
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

/* Takes the first packet of an empty queue, if what is known of its stream lets it go at once. */
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

/* The same, finding out. Where the packet is not to go at once, nothing but its period is decided. */
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

/* It is the only one no longer. Answers its place among the others. */
__attribute__((noinline)) int seat_lone(u32 len, u64 now, u64 tick)
{
	u32 i = lone.who - 1;
	struct stream *s = stream_at(i);
	u64 arrived = now - (tick - lone.tick) * link.tick_ns;

	lone.who = 0;
	return i == NONE ? append_best(len) : append(i, len, s->arrival_end + s->phase, arrived, now);
}

/* It has gone. */
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
	s->left -= len; /* it fits: its period was made for it */
	if (!s->left)
		serve(i, s->deadline + s->period);
}

#endif
