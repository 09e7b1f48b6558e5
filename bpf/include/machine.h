/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One CPU under DWCS: a decision at a moment, then an account of the time that was given.
 *
 *              release                        served: rule a, d += T
 *   waiting ────────────────▶ released ─────────────────────────────▶ waiting
 *      ▲                       │    ▲ d passes: rule b, d += T           │
 *      └─ extra service, where ┘    └────┘                               │ block
 *         work-conserving                           blocked ◀────────────┘ wake: qf_wake()
 *
 * Time comes in as a parameter and is what the caller says it is; no helper, no kfunc and no map look-up is in here,
 * so that all of it runs under the caller's bpf_spin_lock (one for each CPU). What ran is accounted for first, before
 * any other call at the same moment.
 *
 * What a server does at the end of its budget is in reclaim.h.
 *
 * Bounds. Each loop ends by its own progress: a turnover or release moves its server beyond `now` (at most 1,023 of
 * each), a list has at most QF_EVENTS events, rule 4 looks at each server once, idle time at each twice. may_goto only spares the verifier from
 * counting; should it fire, what is left is done at the next decision, and rule 4 refuses the boost.
 *
 * Source: 000 §2.4.1, §3.3.1; twin: crates/sched/src/dwcs/machine.rs (0010); this file: docs/design/0012.
 */
#ifndef QF_MACHINE_H
#define QF_MACHINE_H

#include "dwcs.h"
#include "tree.h"

/* One event that waits. */
struct qf_event {
	__u64 deadline_ns;
	__u64 number;
	__u16 next;
	__u16 padding[3];
};

/* All zeros is a machine without servers. */
struct qf_machine {
	/* The latest moment it was told. */
	__u64 now_ns;
	/* Slots are below 1 << height. */
	__u32 height;
	__u32 cpu;
	/* Special slots, or 0; enum qf_network. */
	__u32 task_server;
	__u32 best_effort;
	__u32 network;
	/* Events that wait; used entries of the pool; its free list. */
	__u32 pending;
	__u16 pool_used;
	__u16 pool_free;
	/* GRUB servers; servers that wait for idle time. */
	__u32 grub;
	__u32 wanting;
	/* Sum of all servers' bandwidths; of the active ones. */
	__u64 booked;
	__u64 active;
	/* Always 0, which the verifier does not know: a loop that counts from a number it knows is followed round by
	 * round, one that counts from here is not. */
	__u32 zero;
	__u32 padding;
	__u64 raised;
	struct qf_cpu_counts counts;
	/* Released, by Table 1; waiting, or blocked and still active, by due_ns; waiting and work-conserving, by Table 1; sinks, by event. */
	struct qf_tree released;
	struct qf_tree waiting;
	struct qf_tree surplus;
	struct qf_tree sinks;
	struct qf_event pool[QF_EVENTS];
};

/* All servers of all CPUs; number 0 is nobody. In a section of its own, to be mapped and read from outside. */
struct qf_server qf_servers[QF_SLOTS] SEC(".bss.servers");

QF_INLINE struct qf_server *qf_server(__u32 slot)
{
	return &qf_servers[QF_SLOT(slot)];
}

/* The slot to begin with, and the next one. */
QF_INLINE __u32 qf_first_slot(const struct qf_machine *m)
{
	return m->zero + 1;
}

QF_INLINE __u32 qf_next_slot(__u32 slot)
{
	slot++;
	qf_opaque(slot);
	return slot;
}

QF_INLINE bool qf_first_by_table(__u32 a, __u32 b)
{
	return qf_before(qf_server(a), qf_server(b));
}

QF_INLINE bool qf_first_by_due(__u32 a, __u32 b)
{
	return qf_server(a)->due_ns <= qf_server(b)->due_ns;
}

/* Earliest deadline, then first come. */
QF_INLINE bool qf_first_by_event(__u32 a, __u32 b)
{
	const struct qf_server *first = qf_server(a), *second = qf_server(b);

	if (first->event_deadline_ns != second->event_deadline_ns)
		return first->event_deadline_ns < second->event_deadline_ns;
	return first->event_number < second->event_number;
}

QF_TREE_SET(qf_set_by_table, qf_first_by_table)
QF_TREE_SET(qf_set_by_due, qf_first_by_due)
QF_TREE_SET(qf_set_by_event, qf_first_by_event)

/* Nobody comes after everybody, in each of the orders. */
QF_INLINE void qf_nobody(void)
{
	struct qf_server *s = &qf_servers[0];

	s->deadline_ns = s->rank = s->came_ns = QF_NEVER;
	s->release_ns = s->due_ns = QF_NEVER;
	s->event_deadline_ns = s->event_number = QF_NEVER;
}

QF_INLINE bool qf_is(const struct qf_server *s, __u32 state)
{
	return s->state & state;
}

QF_INLINE bool qf_asks(const struct qf_server *s, __u32 ask)
{
	return s->config.ask & ask;
}

/* Puts the first event of a sink that could run among those of others. */
QF_INLINE void qf_place_event(struct qf_machine *m, __u32 slot)
{
	const struct qf_server *s = qf_server(slot);
	bool able = qf_is(s, QF_IS_READY) && s->config.arrival_ns <= m->now_ns;

	qf_set_by_event(&m->sinks, m->height, slot, able && s->event_head);
}

#include "reclaim.h"

/* Puts a server where it belongs now. Everything that changes one ends here. */
QF_SUBPROGRAM int qf_place(struct qf_machine *m, __u32 slot)
{
	struct qf_server *s = qf_server(slot);
	bool ready = qf_is(s, QF_IS_READY);
	bool released = ready && s->release_ns <= m->now_ns;
	bool waits = ready && !released;
	bool lags = qf_lags(m, s);
	bool again = waits && qf_asks(s, QF_ASK_WORK_CONSERVING) && s->release_ns > s->config.arrival_ns;

	if (released)
		s->state &= ~(QF_IS_EXHAUSTED | QF_IS_DONE);
	s->rank = qf_rank(s, m->network);
	s->due_ns = waits ? s->release_ns : s->lag_ns;
	qf_count_active(m, s, ready || lags);
	qf_count_wanting(m, s, waits);
	qf_set_by_table(&m->released, m->height, slot, released);
	qf_set_by_due(&m->waiting, m->height, slot, waits || lags);
	qf_set_by_table(&m->surplus, m->height, slot, again && !qf_is(s, QF_IS_WANTING));
	qf_place_event(m, slot);
	return 0;
}

#include "control.h"
#include "account.h"
#include "event.h"
#include "ready.h"
#include "pick.h"
#include "server.h"

#endif
