/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Records of the packet scheduler, shared by BPF and user space. Times are nanoseconds of CLOCK_MONOTONIC, lengths are
 * bytes. Only user space writes the configuration; only BPF writes everything else.
 */
#ifndef QF_NET_H
#define QF_NET_H

#ifdef __bpf__
#include "qf_bpf.h"
#else
#include <linux/types.h>
#endif

#define QF_NET_STREAMS 64     /* per interface */
#define QF_NET_DEPTH 128      /* packets that may wait per stream; a power of two */
#define QF_NET_BEST_DEPTH 1024 /* best-effort packets that may wait; a power of two */
#define QF_NET_WINDOW_MAX 255 /* largest y */

/* What selects a packet's stream, in order of precedence. */
enum qf_net_kind { QF_NET_FLOW = 1, QF_NET_MARK = 2, QF_NET_CGROUP = 4 };

/* A five-tuple. Addresses and ports are in network byte order, an IPv4 address is in the first word. */
struct qf_net_flow {
	__u32 source[4];
	__u32 destination[4];
	__u16 source_port;
	__u16 destination_port;
	__u8 protocol;
	__u8 version; /* 4 or 6 */
	__u16 zero;
};

/* Marks and their streams in an open-addressing table: a mark is at its hash, or after it before the first empty
 * place. */
#define QF_NET_MARKS 256
#define QF_NET_MARK_FACTOR 0x9e3779b1u
#define QF_NET_MARK_SHIFT 24

struct qf_net_mark {
	__u32 mark; /* 0: empty */
	__u32 stream; /* QF_NET_STREAMS in an empty entry */
};

struct qf_net_marks {
	__u64 active; /* its lowest bit selects the half of the table in use */
	struct qf_net_mark table[2 * QF_NET_MARKS];
};

#define QF_NET_IN_USE 1
#define QF_NET_WORK_CONSERVING 2

/* The requested configuration of a stream. It has only words, so that each is written at once. `change` is odd while
 * they are being written, and differs afterwards. */
struct qf_net_stream_config {
	__u64 change;
	__u64 flags;
	__u64 start;  /* a: start of the first period of a grid; 0: each period begins with a packet */
	__u64 period; /* T */
	__u64 phase;  /* Θ */
	__u64 size;   /* C: bytes per period */
	__u64 window; /* x << 32 | y */
	__u64 limit;  /* packets that may wait, at most QF_NET_DEPTH */
};

/* Constants of a link, set when the queue is loaded. The verifier removes code for unused ones, so that it costs
 * nothing. */
struct qf_net_link {
	__u64 byte_time; /* time that a byte occupies the link, 2^-16 ns; 0: not paced */
	__u64 catch_up;  /* lost sending time that may be made up for, ns */
	__u64 share;     /* best-effort bytes owed per real-time byte while best effort waits, 2^-16 */
	__u64 hold;      /* 0: packets are sent as soon as allowed; n: in bursts, n - 1 ns before the first deadline */
	__u64 best_limit; /* best-effort packets that may wait, at most QF_NET_BEST_DEPTH */
	__u64 tick_ns;   /* length of a kernel tick */
};

struct qf_net_config {
	__u64 changes;   /* counts changes of streams; compared first */
	__u64 leaves;    /* smallest power of two that covers all streams in use */
	struct qf_net_stream_config stream[QF_NET_STREAMS];
};

/* Counters of a stream's packets and periods. Arrivals are not counted: they are the sum of the other counts and
 * `waiting`. */
struct qf_net_counters {
	__u64 emptied;    /* dropped with the whole queue, when the interface went down */
	__u64 sent;
	__u64 sent_bytes;
	__u64 sent_late;  /* of `sent`: after the end of their own period */
	__u64 sent_extra; /* of `sent`: ahead of their period because nothing else was ready */
	__u64 late;       /* dropped, as the window allows */
	__u64 overflow;   /* dropped because the queue was full */
	__u64 oversize;   /* larger than C: sent as best effort */
	__u64 served;     /* periods */
	__u64 missed;     /* periods */
	__u64 violations; /* missed periods that the window did not allow */
	__u64 delay_sum;  /* time in the queue of all packets sent, ns */
	__u64 delay_max;
	__u64 waiting;    /* packets in the queue now */
	__u64 window_now; /* x' << 32 | y' */
	__u64 change;     /* `change` of the configuration in force */
};

struct qf_net_stats {
	__u64 best_emptied;
	__u64 best_sent;
	__u64 best_sent_bytes;
	__u64 best_overflow;
	__u64 best_owed;     /* of `best_sent`: before ready real-time packets, by the share */
	__u64 best_waiting;
	__u64 bursts;        /* bursts of held packets sent */
	__u64 watchdogs;     /* timers that the queue set */
	__u64 ifindex;       /* the interface it is attached to; 0: none */
	__u64 drops_late;    /* sum of `late` over all streams */
	struct qf_net_counters stream[QF_NET_STREAMS];
};

/* Operations and results of the trial entry: the queue without packets, one call at a time. */
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
	__u32 stream;  /* PUT: the stream to put into; NEXT: the packet's stream. QF_NET_STREAMS: best effort */
	__u32 len;
	__u32 verdict; /* result of NEXT */
	__s32 place;   /* result of PUT; negative: the queue was full */
	__u32 zero;
};

/* For measurements: the packets that a packet with the trigger's mark causes. */
struct qf_net_burst {
	__u32 above;   /* the interface with the queue */
	__u32 trigger;
	__u32 packets; /* with marks 1 to `streams` in turn */
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
