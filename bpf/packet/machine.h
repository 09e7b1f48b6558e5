/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * DWCS for packets, without packets: which of those that wait goes next, which are late, until when there is nothing
 * to do. The queueing discipline (dwcs.bpf.c) puts real packets into the places named here; the trial entries
 * (trial.bpf.c) drive the same code with made-up ones, which is how it is held against the theory.
 *
 * A stream promises C bytes in every period T. What arrives in an arrival period [a + jT, a + (j+1)T) is *tagged*
 * with the end of its packet period, a + Θ + (j+1)T. A stream stands in one period at a time: d is its end, `left`
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
 * All of it runs under the queue's own lock, one call at a time.
 */
#ifndef QF_PACKET_MACHINE_H
#define QF_PACKET_MACHINE_H

#include "qf_net.h"

#define NONE QF_NET_STREAMS
#define STREAM_MASK (QF_NET_STREAMS - 1)
#define DEPTH_MASK (QF_NET_DEPTH - 1)
#define BEST_MASK (QF_NET_BEST_DEPTH - 1)
#define BEST_FIRST (QF_NET_STREAMS * QF_NET_DEPTH) /* the first place of best effort */
#define BEST_CREDIT_MAX (1ULL << 34) /* a few of the largest packets */
#define PLACES (BEST_FIRST + QF_NET_BEST_DEPTH)

/* A packet that waits. */
struct packet {
	u64 tag;
	u64 arrived;
	u64 order; /* counts packets taken: first come */
	u32 len;
	u32 pad;
};

/* A stream as it stands. */
struct stream {
	/* What Table 1 compares, in its order. */
	u64 deadline;
	u64 rank;
	u64 order;
	/* Its period. */
	u64 period;
	u64 phase;
	u64 arrival_end; /* end of the arrival period that was current when last looked at */
	u32 size;
	u32 left;
	u32 x_now;
	u32 y_now;
	u32 x;
	u32 y;
	/* Its queue: counts of packets put and taken. */
	u32 put;
	u32 taken;
	u32 limit;
	u32 flags;
	u32 incarnation;
	u32 pad;
	u64 settled_until; /* tick, until then a packet that fits into `left` may go at once if nothing else waits */
	u64 start;
	u64 change;
};

/* What is to be done next. */
enum verdict {
	SEND = QF_NET_VERDICT_SEND,
	DROP = QF_NET_VERDICT_DROP,
	WAIT = QF_NET_VERDICT_WAIT,
	IDLE = QF_NET_VERDICT_IDLE,
	AGAIN,
};

struct next {
	u32 verdict;
	u32 place; /* SEND, DROP */
	u32 len;
	u32 stream; /* NONE for best effort */
	u64 until; /* WAIT */
};

const volatile struct qf_net_link link SEC(".rodata.link") = {};
struct qf_net_config config SEC(".data.config");
struct qf_net_stats stats SEC(".data.stats");

struct packet packets[QF_NET_STREAMS * QF_NET_DEPTH];
struct stream streams[QF_NET_STREAMS];
u32 best_len[QF_NET_BEST_DEPTH];
u32 best_put;
u32 best_taken;
u64 best_credit; /* 2^-16 bytes owed to best effort */
u64 order;

/*
 * The only packet of a queue, see lone.h; and what is looked at before it may go at once, in one place.
 */
struct lone {
	u64 open_for; /* the `changes` with which it may be taken without a look at the clock */
	u64 tick; /* when it came */
	u64 arrived; /* the same in ns, on a paced link */
	u32 who; /* 0: there is none; else its stream's number, or NONE, and 1 */
	u32 pad;
};

struct lone lone;
u64 changes_seen;
u64 link_free; /* when the link has sent what it was given */
u32 late_stream; /* whose missed period's packets are being dropped, while `is_dropping` */
bool is_dropping;
bool is_burst;

/* Only where no packet waits for a time, on the link or for others. */
QF_INLINE void open_lone(void)
{
	lone.open_for = link.hold || link.byte_time ? U64_MAX : changes_seen;
}

QF_INLINE struct stream *stream_at(u32 i)
{
	return &streams[i & STREAM_MASK];
}

QF_INLINE struct qf_net_counters *counters(u32 i)
{
	return &stats.stream[i & STREAM_MASK];
}

QF_INLINE u32 place_of(u32 i, u32 at)
{
	return (i & STREAM_MASK) * QF_NET_DEPTH + (at & DEPTH_MASK);
}

QF_INLINE struct packet *head_of(u32 i)
{
	return &packets[place_of(i, stream_at(i)->taken)];
}

#include "tournament.h"
#include "window.h"

/* Where a stream with a head belongs: it waits for its period, or for its turn. */
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

/* Something of its period was sent: packets have a byte at least. */
QF_INLINE bool is_begun(const struct stream *s)
{
	return s->left != s->size;
}

/* Its period is served, and the next one begins, or a later one. Verified once, called where periods end. */
__attribute__((noinline)) int serve(u32 i, u64 deadline)
{
	struct stream *s = stream_at(i);

	rule_a(s, i);
	counters(i)->served++;
	begin_period(s, deadline);
	return 0;
}

/* The period in which a head with this tag and length may go: what is left of the current one, or a later one. */
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

/* The stream's next packet has become its head, or it has none. */
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
 * The end of the packet period of what arrives now. Arrival periods of a stream with a start are a grid; of one
 * without, each begins with the first packet after the last is over, so that every frame has all of T.
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

#include "adopt.h"

/* Puts a packet at the end of best effort's queue. */
QF_INLINE u32 append_best(u32 len)
{
	u32 place = BEST_FIRST + (best_put & BEST_MASK);

	best_len[best_put++ & BEST_MASK] = len;
	stats.best_waiting = best_put - best_taken;
	return place;
}

/* Puts a packet at the end of a stream's queue. What comes while its late ones are being dropped, becomes its head
 * when that is over. */
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

/* Takes a packet of `len` bytes into stream `i`, or NONE. Answers its place; -1: there is no room. */
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

/* Its deadline has passed with packets waiting. */
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
	/* Nothing of it may be lost: all periods that are over are violations, told at once. */
	periods = 1 + (now - s->deadline) / s->period;
	c->missed += periods;
	c->violations += periods;
	rule_b(s, i, periods);
	begin_period(s, s->deadline + periods * s->period);
	new_head(i, now);
}

/* Takes one packet of the missed period away, or ends that. */
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

/* Regular service: counts against the period. */
QF_INLINE void charge(u32 i, u32 len)
{
	struct stream *s = stream_at(i);

	s->left -= s->left < len ? s->left : len;
	if (!s->left)
		serve(i, s->deadline + s->period);
}

/* While best effort waits, real time earns it its share. */
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

/* Held packets go in one burst, some time before the first deadline among them. */
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

/* One step of the queue at `now`. AGAIN: something changed, look once more. */
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

/* Nothing waits any more. */
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
