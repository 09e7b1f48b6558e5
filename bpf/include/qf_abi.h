/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The records that BPF programs, Rust and C share, defined only here (bindgen generates Rust's `abi` from this file).
 * Each states its size, and every user checks it. Times are nanoseconds of CLOCK_MONOTONIC in the kernel, and ticks in
 * the tests of the theory. All padding is named and zero.
 */
#ifndef QF_ABI_H
#define QF_ABI_H

#ifdef __bpf__
#include "qf_bpf.h"
#else
#include <linux/types.h>
#endif

#define QF_ASSERT_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type " has " #bytes " bytes")

/* The number of servers. Number 0 is no server. */
#define QF_SLOTS 1024
/* Windows: 0 <= x < y <= 255. */
#define QF_WINDOW_MAX 255
/* Rule b does not raise y' beyond this value. */
#define QF_WINDOW_NOW_MAX 65535
/* No deadline. */
#define QF_NEVER 0xffffffffffffffffULL

/* Periods and arrivals: T < 2^32 and a < 2^61, so that no product of two periods and no sum of times overflows. */
#define QF_PERIOD_MAX 0xffffffffULL
#define QF_ARRIVAL_MAX (1ULL << 61)
/* Events that may wait on one CPU; a further one is refused and counted. Number 0 is no event. */
#define QF_EVENTS 256

/* What a server does at the end of its budget (reclaim.h). */
enum qf_mode {
	/* Waits for its next period. */
	QF_MODE_HARD = 0,
	/* Continues with another budget and a deadline T later. */
	QF_MODE_SOFT = 1,
	/* Like hard, but the budget drains at the bandwidth of the active servers. */
	QF_MODE_GRUB = 2,
	/* Like hard, but its next period begins early when the CPU would be idle. */
	QF_MODE_IRIS = 3,
};

/* Bandwidths C/T are counted in 2^-24 of a CPU, rounded up. */
#define QF_WHOLE_CPU (1U << 24)
/* How far a soft server's deadline may be ahead when its budget ends; beyond that it waits. */
#define QF_AHEAD_MAX 0xffffffffULL

/* Table 5: what the CPU scheduler knows about the network device. */
enum qf_network {
	/* Nothing: only Table 1 counts. */
	QF_NETWORK_UNKNOWN = 0,
	/* No packet waits for the device: servers with the lowest probability of network activity come first. */
	QF_NETWORK_IDLE = 1,
	/* Packets wait: servers with the highest probability come first, so that more packets join the burst. */
	QF_NETWORK_BUSY = 2,
};

/* Requested properties of a server. */
#define QF_ASK_WORK_CONSERVING 0x1
/* If a deadline passes while the server wants no service, its periods stay on their grid. Otherwise they begin anew. */
#define QF_ASK_ALIGNED 0x2
/* The server wants service from the beginning. Otherwise from its first wake-up. */
#define QF_ASK_READY 0x4
/* Its time belongs to all threads without a server (qf_pick says when). One per CPU. */
#define QF_ASK_BEST_EFFORT 0x8
/* The pseudo task of rule 5: C and T follow from the waiting events and from rest_num/rest_den. One per CPU. */
#define QF_ASK_TASK_SERVER 0x10
#define QF_ASK_ALL 0x1f

struct qf_config {
	/* T and C; the start of the first period. */
	__u64 period_ns;
	__u64 service_ns;
	__u64 arrival_ns;
	/* x and y. */
	__u16 x;
	__u16 y;
	/* enum qf_mode */
	__u8 mode;
	/* Table 5: probability of network activity, 0 to 255. */
	__u8 network;
	__u16 reserved;
	/* QF_ASK_... */
	__u32 ask;
	/* U_r of the task server as a fraction, 0 < num <= den. */
	__u32 rest_num;
	__u32 rest_den;
	__u32 reserved2;
};
QF_ASSERT_SIZE(qf_config, 48);

/* State bits of a server. */
#define QF_IS_ACTIVE 0x1
/* Wants service. */
#define QF_IS_READY 0x2
/* Blocked within a period in which it has not had all of C. */
#define QF_IS_OWED 0x4
/* Its period is already counted as served, and a larger budget opened it again. */
#define QF_IS_COUNTED 0x8
/* Its budget ran out in the period that ends at its release. */
#define QF_IS_EXHAUSTED 0x10
/* Waits with its budget used, for time in which the CPU would be idle. */
#define QF_IS_WANTING 0x20
/* Its job is over: it waits for its next period by its own choice. */
#define QF_IS_DONE 0x40

/* One server: its position, its promises, its counters. The trees of its CPU compare the first fields. */
struct qf_server {
	/* The key of Tables 1 and 5, in this order: d; probability of network activity and x'/y' (qf_rank()); arrival
	 * (equals are ordered by slot). */
	__u64 deadline_ns;
	__u64 rank;
	__u64 came_ns;
	/* When it must be placed again: its release while it waits, its 0-lag time while it is blocked. */
	__u64 due_ns;
	/* Its first waiting event: the deadline, and the number of events raised before it. */
	__u64 event_deadline_ns;
	__u64 event_number;
	/* Service left in the period that ends at d; the start of that period. */
	__u64 left_ns;
	__u64 release_ns;
	/* Time used beyond C, to be paid back. */
	__u64 debt_ns;
	/* While it is blocked: the time until which its bandwidth counts as used (GRUB). */
	__u64 lag_ns;
	/* C/T; the part of it that its CPU currently counts as active. */
	__u32 bandwidth;
	__u32 active;

	/* x' and y'. */
	__u16 x_now;
	__u16 y_now;
	/* QF_IS_... */
	__u32 state;
	/* List of its events: indices into the pool of the CPU. */
	__u16 event_head;
	__u16 event_tail;
	__u32 cpu;
	/* The requested configuration. Change it only with qf_change(). */
	struct qf_config config;

	/* Counted from the server's creation: periods served, missed, and missed in violation of the window. */
	__u64 served;
	__u64 missed;
	__u64 violations;
	/* Time used within the budget, and beyond it. */
	__u64 used_ns;
	__u64 extra_ns;
	/* Events delivered, by rule 1 to 5; dropped after their deadline; refused because too many waited. */
	__u64 events[5];
	__u64 events_late;
	__u64 events_refused;
	/* How often its budget ran out; jobs that ended. */
	__u64 exhausted;
	__u64 jobs;
	/* CPU time of the running job, within its budget or not; of the last job. */
	__u64 job_used_ns;
	__u64 last_job_ns;
	/* For the scheduler around the machine. */
	__u64 own[5];
};
QF_ASSERT_SIZE(qf_server, 320);

/* What runs. */
enum qf_kind {
	/* Nothing: no thread is ready. */
	QF_KIND_IDLE = 0,
	/* Threads without a server; if `slot` names the server with QF_ASK_BEST_EFFORT, in its time. */
	QF_KIND_BEST_EFFORT = 1,
	/* A server, in a period in which it has not been served yet. */
	QF_KIND_REGULAR = 2,
	/* A server, outside its periods: neither its window nor its deadline moves. */
	QF_KIND_EXTRA = 3,
};

struct qf_decision {
	/* The latest end of the decision, unless something happens from outside. */
	__u64 until_ns;
	/* Number of the delivered event, if `rule` is not 0. */
	__u64 event_number;
	__u32 slot;
	/* The task server, if DWCS chose it: charged in addition to `slot`. */
	__u32 task_server;
	/* enum qf_kind; the rule (1 to 5) by which `slot` got an event, or 0. */
	__u32 kind;
	__u32 rule;
};
QF_ASSERT_SIZE(qf_decision, 32);

/* Counters of a CPU's machine. */
struct qf_cpu_counts {
	__u64 decisions;
	/* Periods lost, releases. */
	__u64 turnovers;
	__u64 releases;
	/* Events delivered, by rule 1 to 5; dropped late; refused. */
	__u64 events[5];
	__u64 events_late;
	__u64 events_refused;
};
QF_ASSERT_SIZE(qf_cpu_counts, 80);

/* Capacity of a predictor in the kernel, in samples: n of `MA[n]`, n times S of `MMA[n,S]`. */
#define QF_CONTROL_SAMPLES 64

/* The point chosen from Theorem 2's family (7). */
enum qf_choice {
	QF_CHOICE_LEFT = 0,
	QF_CHOICE_MIDDLE = 1,
	QF_CHOICE_RIGHT = 2,
	QF_CHOICE_ZERO = 3,
	QF_CHOICE_COST = 4,
};

/* Configuration of the controller of a server's budget (aquosa.h). Lengths are in server periods P; P is the server's
 * T. */
struct qf_control_config {
	/* n and S: at least 1 each, together at most QF_CONTROL_SAMPLES. */
	__u32 samples;
	__u32 lanes;
	/* rho in thousandths, at most 10,000. */
	__u32 rho_milli;
	/* L, 1 to 65,535; e and E, at most 65,535. */
	__u32 periods_per_job;
	__u32 early;
	__u32 late;
	/* enum qf_choice */
	__u32 choice;
	/* 0: no controller, the budget stays as it is. */
	__u32 on;
	/* Limits of the budget: 1 <= min <= max <= P. */
	__u64 min_budget_ns;
	__u64 max_budget_ns;
};
QF_ASSERT_SIZE(qf_control_config, 48);

struct qf_control {
	struct qf_control_config config;
	/* Jobs observed; the last prediction, 0 during warm-up; the shortest recent cost. */
	__u64 jobs;
	__u64 low_ns;
	__u64 high_ns;
	__u64 shortest_ns;
	/* Deadline of the running job; lateness of the last job, in server periods. */
	__u64 deadline_ns;
	__u32 late_periods;
	/* Whether a job has begun. */
	__u32 begun;
	/* Always 0. The verifier must not know that (qf_sqrt_up()). */
	__u64 zero;
	/* Costs in ns: that of job k is at index k modulo n times S. */
	__u32 cost[QF_CONTROL_SAMPLES];
};
QF_ASSERT_SIZE(qf_control, 360);

/* Operations by which tests drive a machine (bpf/test/machine.bpf.c). */
enum qf_test_op {
	QF_TEST_ADD = 1,
	QF_TEST_REMOVE,
	QF_TEST_CHANGE,
	QF_TEST_WAKE,
	QF_TEST_BLOCK,
	QF_TEST_JOB_END,
	QF_TEST_RAISE,
	QF_TEST_NETWORK,
	QF_TEST_LEAVE,
	QF_TEST_ENTER,
	QF_TEST_CPU,
};

struct qf_test_call {
	__u32 op;
	__u32 cpu;
	__u64 now_ns;
	/* QF_TEST_BLOCK: whether a job ends; QF_TEST_RAISE: the deadline; the operations after it: the value. */
	__u64 argument;
	__u32 slot;
	__u32 padding;
	struct qf_config config;
};
QF_ASSERT_SIZE(qf_test_call, 80);

struct qf_test_decide {
	__u64 now_ns;
	/* Time that ran since the last decision, charged to what that decision chose. */
	__u64 used_ns;
	__u32 cpu;
	__u32 best_effort;
	__u32 peek;
	/* Only charges the time; the last decision stays in force. */
	__u32 account_only;
	__u32 pending;
	__u32 padding;
	struct qf_decision decision;
	struct qf_cpu_counts counts;
};
QF_ASSERT_SIZE(qf_test_decide, 152);

#define QF_TEST_TICKS 65536

struct qf_test_tick {
	__u16 slot;
	__u8 kind;
	__u8 rule;
	__u32 task_server;
};
QF_ASSERT_SIZE(qf_test_tick, 8);

struct qf_test_run {
	__u64 now_ns;
	__u64 step_ns;
	__u32 ticks;
	__u32 best_effort;
	/* Whether the timeline is recorded. For the linear scan: the number of servers. */
	__u32 record;
	__u32 done;
	__u64 took_ns;
};
QF_ASSERT_SIZE(qf_test_run, 40);

/* One step of a controller without a server. With a slot: gives that server a controller. */
struct qf_test_control {
	__u64 cost_ns;
	__u64 period_ns;
	__u64 budget_ns;
	__u64 low_ns;
	__u64 high_ns;
	__u32 late_periods;
	/* Resets the controller to `config`. */
	__u32 reset;
	__u32 slot;
	__u32 padding;
	struct qf_control_config config;
};
QF_ASSERT_SIZE(qf_test_control, 104);

#include "qf_net.h"
#include "qf_path.h"
#include "qf_sched.h"

#endif
