/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Records of the CPU scheduler's commands and statistics, shared by BPF and user space. Times in nanoseconds of
 * CLOCK_MONOTONIC. Commands are hostile until checked: each is read once and refused with an error number.
 */
#ifndef QF_SCHED_H
#define QF_SCHED_H

#ifdef __bpf__
#include "qf_bpf.h"
#else
#include <linux/types.h>
#endif

/* CPUs that the scheduler knows; those beyond are left to best effort. */
#define QF_CPUS 256

/* How the scheduler is loaded. */
struct qf_sched_options {
	/* A best-effort thread's turn. */
	__u64 slice_ns;
	/* Best effort's own reservation on each CPU: C, T, x/y. */
	__u64 service_ns;
	__u64 period_ns;
	__u8 x;
	__u8 y;
	/* Rounds of waiting between a verdict and the insertion that it orders: for tests, else 0. */
	__u16 linger;
	/* CPUs that may ever be there. */
	__u32 cpus;
};
QF_ASSERT_SIZE(qf_sched_options, 32);

/*
 * Events for servers, raised by whoever may write this memory (E-code handlers). Protocol, in this order: write the
 * deadline (0: none); set the slot's bit by an atomic or; set the CPU's dirty word. The server's CPU takes all of it
 * at its next decision; several events for a server before that are one.
 */
struct qf_raised {
	__u64 dirty[QF_CPUS];
	__u64 bits[QF_CPUS][16];
	__u64 deadline_ns[1024];
};
QF_ASSERT_SIZE(qf_raised, 43008);

/* A new server; the caller chooses a free slot. What becomes of an old one: config alone. */
struct qf_create {
	__u32 slot;
	__u32 cpu;
	/* QF_SLOT_... */
	__u32 flags;
	__u32 zero;
	struct qf_config config;
};
QF_ASSERT_SIZE(qf_create, 64);

/* A server's controller, or none. */
struct qf_steer {
	__u32 slot;
	__u32 zero;
	struct qf_control_config config;
};
QF_ASSERT_SIZE(qf_steer, 56);

/* A thread is put into a server, or out of the one it is in (slot 0). */
struct qf_join {
	__s32 tid;
	__u32 slot;
	/* What the thread starts from now on joins as well. */
	__u32 children;
	__u32 zero;
};
QF_ASSERT_SIZE(qf_join, 16);

/* About one server. */
struct qf_command {
	__u32 slot;
	__u32 cpu;
	/* An event's deadline, or QF_NEVER. */
	__u64 deadline_ns;
};
QF_ASSERT_SIZE(qf_command, 16);

/* What the scheduler knows of a server beside the machine's own record. */
struct qf_slot {
	/* Even: the slot is free. Grows with every use of it, so that old members are recognised. */
	__u32 generation;
	__u32 cpu;
	/* enum qf_mode */
	__u32 mode;
	/* QF_SLOT_... */
	__u32 flags;
	/* Members that are runnable now; members. */
	__s32 runnable;
	__s32 threads;
	/* From wake-up to running: last, longest, all, how many. */
	__u64 delay_ns;
	__u64 delay_max_ns;
	__u64 delay_sum_ns;
	__u64 wakeups;
	/* The budget ran out while a thread wanted more. */
	__u64 throttles;
	/* Picked without a thread that could run here. */
	__u64 lost;
};
QF_ASSERT_SIZE(qf_slot, 72);

enum {
	/* A wake-up raises an event. */
	QF_SLOT_WAKE_EVENTS = 1,
};

/* What a CPU did. */
struct qf_sched_cpu {
	__u64 decisions;
	__u64 best_effort_ns;
	__u64 kicks;
	__u64 timers;
	__u32 online;
	/* Timers that the kernel did not start, or that came so late that the tick helped. */
	__u32 late;
};
QF_ASSERT_SIZE(qf_sched_cpu, 40);

/* Why the scheduler is not in charge any more. */
struct qf_exit {
	__s64 code;
	__s32 kind;
	__u32 zero;
	char reason[64];
	char message[192];
};
QF_ASSERT_SIZE(qf_exit, 272);

#endif
