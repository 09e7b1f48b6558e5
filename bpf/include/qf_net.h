/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Records of the packet scheduler, shared by BPF and user space. Times in nanoseconds of CLOCK_MONOTONIC, lengths
 * in bytes. Configuration is written by user space alone, everything else by BPF alone.
 */
#ifndef QF_NET_H
#define QF_NET_H

#ifdef __bpf__
#include "qf_bpf.h"
#else
#include <linux/types.h>
#endif

#define QF_NET_STREAMS 64     /* of one interface */
#define QF_NET_DEPTH 128      /* packets that may wait in a stream; a power of two */
#define QF_NET_BEST_DEPTH 1024 /* best-effort packets that may wait; a power of two */
#define QF_NET_WINDOW_MAX 255 /* largest y */

/* What decides whose packet it is; in the order of their precedence. */
enum qf_net_kind { QF_NET_FLOW = 1, QF_NET_MARK = 2, QF_NET_CGROUP = 4 };

/* A five-tuple; addresses and ports in network order, an IPv4 address in the first word. */
struct qf_net_flow {
	__u32 source[4];
	__u32 destination[4];
	__u16 source_port;
	__u16 destination_port;
	__u8 protocol;
	__u8 version; /* 4 or 6 */
	__u16 zero;
};

/* Marks and their streams, an open table: a mark is at its hash, or in the next places up to the first empty one. */
#define QF_NET_MARKS 256
#define QF_NET_MARK_FACTOR 0x9e3779b1u
#define QF_NET_MARK_SHIFT 24

struct qf_net_mark {
	__u32 mark; /* 0: empty */
	__u32 stream; /* QF_NET_STREAMS where it is empty */
};

struct qf_net_marks {
	__u64 active; /* which half of the table is in use: its lowest bit */
	struct qf_net_mark table[2 * QF_NET_MARKS];
};

#define QF_NET_IN_USE 1
#define QF_NET_WORK_CONSERVING 2

/* A stream as it is wanted. Words only, so that each is written at once; `change` is odd while they are written,
 * and differs when they were. */
struct qf_net_stream_config {
	__u64 change;
	__u64 flags;
	__u64 start;  /* a: when its first period began, of a grid; 0: each begins with a packet */
	__u64 period; /* T */
	__u64 phase;  /* Θ */
	__u64 size;   /* C: bytes of one period */
	__u64 window; /* x << 32 | y */
	__u64 limit;  /* packets that may wait, at most QF_NET_DEPTH */
};

/* What is said of a link when the queue is loaded, and holds: what is not used of it costs nothing. */
struct qf_net_link {
	__u64 byte_time; /* 2^-16 ns that a byte occupies the link; 0: not paced here */
	__u64 catch_up;  /* ns of lost sending time that may be made up for */
	__u64 share;     /* 2^-16 bytes of best effort owed for each byte of real time while best effort waits */
	__u64 hold;      /* 0: packets go as soon as they may; n: in bursts, n - 1 ns before the first deadline */
	__u64 best_limit; /* best-effort packets that may wait, at most QF_NET_BEST_DEPTH */
	__u64 tick_ns;   /* of the ticks that the kernel counts */
};

struct qf_net_config {
	__u64 changes;   /* counts changes of streams: what is compared first */
	__u64 leaves;    /* the power of two that holds all streams in use */
	struct qf_net_stream_config stream[QF_NET_STREAMS];
};

/* What became of a stream's packets and periods. What came is what went and what waits: not counted twice. */
struct qf_net_counters {
	__u64 emptied;    /* dropped with the whole queue: the interface went down */
	__u64 sent;
	__u64 sent_bytes;
	__u64 sent_late;  /* of those sent, after the end of their own period */
	__u64 sent_extra; /* of those sent, ahead of their period because nothing else was ready */
	__u64 late;       /* dropped, as the window allows */
	__u64 overflow;   /* dropped, its queue was full */
	__u64 oversize;   /* larger than C: sent as best effort */
	__u64 served;     /* periods */
	__u64 missed;     /* periods */
	__u64 violations; /* missed periods that the window did not allow */
	__u64 delay_sum;  /* ns in the queue of packets sent */
	__u64 delay_max;
	__u64 waiting;    /* packets in the queue now */
	__u64 window_now; /* x' << 32 | y' */
	__u64 change;     /* the configuration in force: its `change` */
};

struct qf_net_stats {
	__u64 best_emptied;
	__u64 best_sent;
	__u64 best_sent_bytes;
	__u64 best_overflow;
	__u64 best_owed;     /* of those sent, before ready real-time packets: the share */
	__u64 best_waiting;
	__u64 bursts;        /* times held packets were let go */
	__u64 watchdogs;     /* times the queue waited for a moment to come */
	__u64 ifindex;       /* the interface it is attached to; 0: none */
	__u64 drops_late;    /* sum of the streams' `late` */
	struct qf_net_counters stream[QF_NET_STREAMS];
};

/* What the trial entry does, and what came of it: the queue without packets, one call at a time. */
#define QF_NET_TRIAL_PUT 0
#define QF_NET_TRIAL_NEXT 1
#define QF_NET_VERDICT_SEND 0
#define QF_NET_VERDICT_DROP 1
#define QF_NET_VERDICT_WAIT 2
#define QF_NET_VERDICT_IDLE 3

struct qf_net_trial {
	__u64 now;
	__u64 until;   /* WAIT */
	__u32 act;
	__u32 stream;  /* to put into; which it was of. QF_NET_STREAMS: best effort */
	__u32 len;
	__u32 verdict; /* of NEXT */
	__s32 place;   /* of PUT; negative: there was no room */
	__u32 zero;
};

/* Measurements: what a packet with the trigger's mark brings along. */
struct qf_net_burst {
	__u32 above;   /* the interface with the queue */
	__u32 trigger;
	__u32 packets; /* with marks 1 to `streams`, in turn */
	__u32 streams;
};

_Static_assert(sizeof(struct qf_net_marks) == 8 + 16 * QF_NET_MARKS, "words only");
_Static_assert(sizeof(struct qf_net_trial) == 40, "no holes");
_Static_assert(sizeof(struct qf_net_flow) == 40, "keys have no holes");
_Static_assert(sizeof(struct qf_net_stream_config) == 64, "one cache line");
_Static_assert(sizeof(struct qf_net_config) == 16 + 64 * QF_NET_STREAMS, "words only");
_Static_assert(sizeof(struct qf_net_counters) == 128, "words only");
_Static_assert(sizeof(struct qf_net_stats) == 80 + 128 * QF_NET_STREAMS, "words only");

#endif
