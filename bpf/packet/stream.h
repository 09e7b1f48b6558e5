/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the queue of an interface holds: streams with their packets, best effort, the link. machine.h says what it does. */
#ifndef QF_PACKET_STREAM_H
#define QF_PACKET_STREAM_H

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

#endif
