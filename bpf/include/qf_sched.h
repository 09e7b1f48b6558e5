/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Records of the CPU scheduler's commands and statistics, shared by BPF and user space. Times are nanoseconds of
 * CLOCK_MONOTONIC. Commands are untrusted: each is read once, checked, and refused with an error number.
 */
#ifndef QF_SCHED_H
#define QF_SCHED_H

#ifdef __bpf__
#include "qf_bpf.h"
#else
#include <linux/types.h>
#endif

/* CPUs that the scheduler manages. CPUs beyond this number run only best effort. */
#define QF_CPUS 256

/* Options with which the scheduler is loaded. */
struct qf_sched_options {
	/* Time slice of a best-effort thread. */
	__u64 slice_ns;
	/* The reservation of best effort on each CPU: C, T, x/y. */
	__u64 service_ns;
	__u64 period_ns;
	__u8 x;
	__u8 y;
	/* For tests: rounds of delay between a verdict and the insertion that it orders. Else 0. */
	__u16 linger;
	/* CPUs that may ever exist. */
	__u32 cpus;
};
QF_ASSERT_SIZE(qf_sched_options, 32);

/* Events of one server that writers may raise between two decisions of its CPU; a power of two. */
#define QF_RAISED_EACH 8
/* Interruptions of a CPU that writers may request between two of its ticks. A hook that fires all the time could
 * otherwise keep the CPU from its threads. */
#define QF_KICKS 16

/* Events of one server that its CPU has not taken yet. */
struct qf_raised_sink {
	/* Events raised so far. The next event takes the place with this number modulo QF_RAISED_EACH. */
	__u64 next;
	/* Events that were replaced before the CPU took them, since it last counted them as refused. */
	__u64 replaced;
	/* The deadline of each event; QF_NEVER: it has none; 0: the place is free. */
	__u64 deadline_ns[QF_RAISED_EACH];
};
QF_ASSERT_SIZE(qf_raised_sink, 80);

/*
 * Events for servers, raised by any writer of this memory (E-code handlers). Protocol, in this order: add 1 to the
 * sink's `next`; exchange the deadline at that place, and add 1 to `replaced` if the place was not free; set the slot's
 * bit by an atomic or; exchange the CPU's dirty word with 1. If it was 0, the writer may interrupt the CPU: if the CPU
 * on which the writer runs is online, and if the CPU's `kicks`, of which it takes 1, was above 0. The server's CPU
 * processes all events at its next decision, each with its own deadline.
 */
struct qf_raised {
	__u64 dirty[QF_CPUS];
	/* Whether writers on this CPU may interrupt a CPU (qf_interrupt() explains why not always). */
	__u64 online[QF_CPUS];
	/* Signed: interruptions of this CPU that writers may still request. */
	__u64 kicks[QF_CPUS];
	__u64 bits[QF_CPUS][16];
	struct qf_raised_sink sinks[1024];
};
QF_ASSERT_SIZE(qf_raised, 120832);

/* Creates a server in a free slot that the caller chooses. To change an existing server, only `config` is used. */
struct qf_create {
	__u32 slot;
	__u32 cpu;
	/* QF_SLOT_... */
	__u32 flags;
	__u32 zero;
	struct qf_config config;
};
QF_ASSERT_SIZE(qf_create, 64);

/* Gives a server a controller, or removes it. */
struct qf_steer {
	__u32 slot;
	__u32 zero;
	struct qf_control_config config;
};
QF_ASSERT_SIZE(qf_steer, 56);

/* Puts a thread into a server, or removes it from its server (slot 0). */
struct qf_join {
	__s32 tid;
	__u32 slot;
	/* Whether children that the thread starts from now on join as well. */
	__u32 children;
	__u32 zero;
};
QF_ASSERT_SIZE(qf_join, 16);

/* A command for one server. */
struct qf_command {
	__u32 slot;
	__u32 cpu;
	/* Deadline of an event, or QF_NEVER. */
	__u64 deadline_ns;
};
QF_ASSERT_SIZE(qf_command, 16);

/* State of a server that the scheduler keeps in addition to the machine's record. */
struct qf_slot {
	/* Even: the slot is free. Increases with every use, so that former members are recognised. */
	__u32 generation;
	__u32 cpu;
	/* enum qf_mode */
	__u32 mode;
	/* QF_SLOT_... */
	__u32 flags;
	/* Members that are runnable now; all members. */
	__s32 runnable;
	__s32 threads;
	/* Delay from wake-up to running: the last one, the longest, their sum; number of wake-ups. */
	__u64 delay_ns;
	__u64 delay_max_ns;
	__u64 delay_sum_ns;
	__u64 wakeups;
	/* How often the budget ran out while a thread wanted more. */
	__u64 throttles;
	/* How often it was chosen without a thread that could run on the CPU. */
	__u64 lost;
};
QF_ASSERT_SIZE(qf_slot, 72);

enum {
	/* A wake-up raises an event for the server. */
	QF_SLOT_WAKE_EVENTS = 1,
};

/* Counters of a CPU. */
struct qf_sched_cpu {
	__u64 decisions;
	__u64 best_effort_ns;
	__u64 kicks;
	__u64 timers;
	__u32 online;
	/* Timers that the kernel did not start, or that fired so late that the tick was earlier. */
	__u32 late;
};
QF_ASSERT_SIZE(qf_sched_cpu, 40);

/* Why the scheduler ended. */
struct qf_exit {
	__s64 code;
	__s32 kind;
	__u32 zero;
	char reason[64];
	char message[192];
};
QF_ASSERT_SIZE(qf_exit, 272);

#endif
