/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The records that BPF programs, Rust and C share: defined here and nowhere else (Rust's `abi` is made from this
 * file). Each says its size, which all of them check. Times in nanoseconds of CLOCK_MONOTONIC in the kernel, in ticks
 * in the tests of theory. All padding is named and zero.
 */
#ifndef QF_ABI_H
#define QF_ABI_H

#ifdef __bpf__
#include "qf_bpf.h"
#else
#include <linux/types.h>
#endif

#define QF_ASSERT_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type " has " #bytes " bytes")

/* Servers; number 0 is nobody. */
#define QF_SLOTS 1024
/* Windows: 0 <= x < y <= 255. */
#define QF_WINDOW_MAX 255
/* Where rule b stops to raise y'. */
#define QF_WINDOW_NOW_MAX 65535
/* No deadline. */
#define QF_NEVER 0xffffffffffffffffULL

/* What a server may have beyond its budget. */
enum qf_mode {
	/* Nothing: it waits for its next period. */
	QF_MODE_HARD = 0,
	/* It goes on as best-effort work. */
	QF_MODE_SOFT = 1,
	/* Time that nobody has reserved or uses, before best effort gets it: DWCS's work-conserving. */
	QF_MODE_RECLAIM = 2,
};

/* One server: what it was promised, where it stands, what it has got. */
struct qf_server {
	/* What Table 1 compares, in its order: deadline d; rank of x'/y' (qf_rank()); arrival. */
	__u64 deadline_ns;
	__u64 rank;
	__u64 arrival_ns;
	/* Service left in this period. */
	__u64 remaining_ns;
	/* T and C. */
	__u64 period_ns;
	__u64 service_ns;
	/* x' and y', x and y. */
	__u16 x_now;
	__u16 y_now;
	__u8 x;
	__u8 y;
	/* enum qf_mode */
	__u8 mode;
	/* Table 5: probability of network activity, 0 to 255. */
	__u8 network;
	/* QF_SERVER_... */
	__u32 flags;
	__u32 cpu;
	/* Counted from the server's beginning: periods served, missed, missed against the window. */
	__u64 served;
	__u64 missed;
	__u64 violations;
	/* Time given within the budget, and beyond it. */
	__u64 used_ns;
	__u64 extra_ns;
};
QF_ASSERT_SIZE(qf_server, 104);

#endif
