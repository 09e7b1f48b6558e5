/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The data of one CPU's machine, the servers of all CPUs, and the orders in which they are kept. machine.h describes
 * the operations on them.
 */
#ifndef QF_SLOTS_H
#define QF_SLOTS_H

#include "dwcs.h"
#include "tree.h"

/* A waiting event. */
struct qf_event {
	__u64 deadline_ns;
	__u64 number;
	__u16 next;
	__u16 padding[3];
};

/* All zeros: a machine without servers. */
struct qf_machine {
	/* The latest time that was passed in. */
	__u64 now_ns;
	/* All slots are below 1 << height. */
	__u32 height;
	__u32 cpu;
	/* Special slots, or 0; enum qf_network. */
	__u32 task_server;
	__u32 best_effort;
	__u32 network;
	/* Waiting events; used entries of the pool; free list of the pool. */
	__u32 pending;
	__u16 pool_used;
	__u16 pool_free;
	/* GRUB servers; servers that wait for idle time. */
	__u32 grub;
	__u32 wanting;
	/* Sum of the bandwidths of all servers; of the active servers. */
	__u64 booked;
	__u64 active;
	/* Always 0, but the verifier does not know it: it follows a loop that starts at a known number round by round,
	 * but not a loop that starts at this field. */
	__u32 zero;
	__u32 padding;
	__u64 raised;
	struct qf_cpu_counts counts;
	/* Released servers, by Table 1; servers that wait or are blocked and still active, by due_ns; waiting
	 * work-conserving servers, by Table 1; sinks, by event. */
	struct qf_tree released;
	struct qf_tree waiting;
	struct qf_tree surplus;
	struct qf_tree sinks;
	struct qf_event pool[QF_EVENTS];
};

/* The servers of all CPUs. Number 0 is no server. In its own section, so that user space can map and read it. */
struct qf_server qf_servers[QF_SLOTS] SEC(".bss.servers");

QF_INLINE struct qf_server *qf_server(__u32 slot)
{
	return &qf_servers[QF_SLOT(slot)];
}

/* The first slot of a loop over all slots, and the slot after another one. */
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

/* Earliest deadline, then first raised. */
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

/* Gives slot 0 (no server) the largest key in each order, so that it comes last. */
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

/* Places a sink that could run by its first event. */
QF_INLINE void qf_place_event(struct qf_machine *m, __u32 slot)
{
	const struct qf_server *s = qf_server(slot);
	bool able = qf_is(s, QF_IS_READY) && s->config.arrival_ns <= m->now_ns;

	qf_set_by_event(&m->sinks, m->height, slot, able && s->event_head);
}

#endif
