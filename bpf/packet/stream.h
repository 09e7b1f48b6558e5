/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The state of an interface's queue: streams with their packets, best effort, the link. machine.h has the
 * operations. */
#ifndef QF_PACKET_STREAM_H
#define QF_PACKET_STREAM_H

#include "qf_net.h"

#define NONE QF_NET_STREAMS
#define STREAM_MASK (QF_NET_STREAMS - 1)
#define DEPTH_MASK (QF_NET_DEPTH - 1)
#define BEST_MASK (QF_NET_BEST_DEPTH - 1)
#define BEST_FIRST (QF_NET_STREAMS * QF_NET_DEPTH) /* the first place of best effort */
#define BEST_CREDIT_MAX (1ULL << 34) /* several packets of the largest size */
#define PLACES (BEST_FIRST + QF_NET_BEST_DEPTH)

/* A waiting packet. */
struct packet {
	u64 tag;
	u64 arrived;
	u64 order; /* arrival number */
	u32 len;
	u32 pad;
};

/* The state of a stream. */
struct stream {
	/* The key of Table 1, in its order. */
	u64 deadline;
	u64 rank;
	u64 order;
	/* Its periods. */
	u64 period;
	u64 phase;
	u64 arrival_end; /* end of the latest known arrival period */
	u32 size;
	u32 left;
	u32 x_now;
	u32 y_now;
	u32 x;
	u32 y;
	/* Its queue: numbers of packets put and taken. */
	u32 put;
	u32 taken;
	u32 limit;
	u32 flags;
	u32 incarnation;
	u32 pad;
	u64 settled_until; /* tick until which a packet that fits into `left` may be sent at once if alone */
	u64 start;
	u64 change;
};

/* The result of a step. */
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

/* The only packet of a queue (lone.h), and what must be checked before it may be sent at once, kept together. */
struct lone {
	u64 open_for; /* value of `changes` at which a packet may be accepted without reading the clock */
	u64 tick; /* arrival */
	u64 arrived; /* arrival in ns, on a paced link */
	u32 who; /* 0: no packet; else 1 + the number of its stream, or 1 + NONE */
	u32 pad;
};

struct lone lone;
u64 changes_seen;
u64 link_free; /* time at which the link has sent all it was given */
u32 late_stream; /* while `is_dropping`: the stream whose late packets are being dropped */
bool is_dropping;
bool is_burst;

/* Allows the only packet, unless packets must wait for a time on this link or for others. */
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
