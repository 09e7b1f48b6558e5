/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the machine of one CPU holds, the servers of all CPUs, and the orders in which they stand. machine.h says what
 * happens to them.
 */
#ifndef QF_SLOTS_H
#define QF_SLOTS_H

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

#endif
