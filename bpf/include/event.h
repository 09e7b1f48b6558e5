/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Part of machine.h: events and rules 1 to 5 (000 §3.3.1). Let i be the server that DWCS chose and j the sink of the
 * first event (earliest deadline, then first raised; sinks that are blocked or have not arrived are passed over). j
 * runs instead of i
 *
 *   1 if i = j;
 *   2 if i is best effort outside its reservation, or no server;
 *   3 if i runs outside its periods;
 *   4 if both are released with the same deadline, and all that precedes j before that deadline fits together with j
 *     (stricter than printed: 0010);
 *   5 if i is the task server.
 *
 * Time given by 2, 3 and 5 is extra service: later decisions of DWCS are the same as without events (0010). The event
 * has then been delivered and leaves the queue. Each sink keeps its events in a list, in their order; a tree holds the
 * sinks by their first event.
 */
#ifndef QF_EVENT_H
#define QF_EVENT_H

#define QF_EVENT(m, index) (&(m)->pool[(index) & (QF_EVENTS - 1)])

/* Copies the key of the first event to the server, for the tree. */
QF_INLINE void qf_head_changed(struct qf_machine *m, __u32 slot)
{
	struct qf_server *s = qf_server(slot);
	const struct qf_event *first = QF_EVENT(m, s->event_head);

	s->event_deadline_ns = first->deadline_ns;
	s->event_number = first->number;
	qf_place_event(m, slot);
}

/* A free entry of the pool. 0: none. */
QF_INLINE __u16 qf_event_new(struct qf_machine *m)
{
	__u16 index = m->pool_free;

	if (index)
		m->pool_free = QF_EVENT(m, index)->next;
	else if (m->pool_used < QF_EVENTS - 1)
		index = ++m->pool_used;
	return index;
}

/* The entry after which an event of that deadline is inserted: the last one that is not later. 0: at the head. */
QF_INLINE __u16 qf_event_before(struct qf_machine *m, const struct qf_server *s, __u64 deadline)
{
	__u16 last = 0, at = s->event_head;

	if (s->event_tail && QF_EVENT(m, s->event_tail)->deadline_ns <= deadline)
		return s->event_tail;
	while (at && QF_EVENT(m, at)->deadline_ns <= deadline) {
		qf_may_goto_break;
		last = at;
		at = QF_EVENT(m, at)->next;
	}
	return last;
}

QF_INLINE void qf_event_link(struct qf_machine *m, struct qf_server *s, __u16 index, __u16 before)
{
	__u16 next = before ? QF_EVENT(m, before)->next : s->event_head;

	QF_EVENT(m, index)->next = next;
	if (before)
		QF_EVENT(m, before)->next = index;
	else
		s->event_head = index;
	if (!next)
		s->event_tail = index;
}

/* Removes the first event of a sink. */
QF_SUBPROGRAM int qf_event_pop(struct qf_machine *m, __u32 slot)
{
	struct qf_server *s = qf_server(slot);
	__u16 index = s->event_head;

	if (!index)
		return 0;
	s->event_head = QF_EVENT(m, index)->next;
	if (!s->event_head)
		s->event_tail = 0;
	QF_EVENT(m, index)->next = m->pool_free;
	m->pool_free = index;
	m->pending--;
	qf_head_changed(m, slot);
	return 0;
}

/* Raises an event for a server, to be delivered before `deadline`. -ENOSPC if QF_EVENTS - 1 events wait on this CPU. */
QF_SUBPROGRAM int qf_raise(struct qf_machine *m, __u32 slot, __u64 deadline)
{
	struct qf_server *s = qf_server(slot);
	__u16 index;

	if (!qf_is(s, QF_IS_ACTIVE) || s->cpu != m->cpu)
		return -ENOENT;
	index = qf_event_new(m);
	if (!index) {
		s->events_refused++;
		m->counts.events_refused++;
		return -ENOSPC;
	}
	QF_EVENT(m, index)->deadline_ns = deadline;
	QF_EVENT(m, index)->number = m->raised++;
	qf_event_link(m, s, index, qf_event_before(m, s, deadline));
	m->pending++;
	qf_head_changed(m, slot);
	return 0;
}

/* Drops events whose deadline has passed, of sinks that could run. */
QF_INLINE void qf_drop_late(struct qf_machine *m)
{
	__u32 slot;

	while ((slot = qf_tree_first(&m->sinks, m->height))) {
		qf_may_goto_break;
		if (qf_server(slot)->event_deadline_ns >= m->now_ns)
			break;
		qf_server(slot)->events_late++;
		m->counts.events_late++;
		qf_event_pop(m, slot);
	}
}

/* The service that a server may demand in `time`. If it begins a period when it wakes, that may be any part of C. */
QF_INLINE __u64 qf_demand_in(const struct qf_server *s, __u64 time)
{
	__u64 period = s->config.period_ns ?: 1, service = s->config.service_ns;
	__u64 whole = time / period;
	__u64 part = qf_is(s, QF_IS_READY) ? 0 : (time - whole * period) * service / period;

	return whole * service + part;
}

/* The service that a server may demand before `until`, even if it wakes or begins new periods in between. */
QF_INLINE __u64 qf_demand(const struct qf_server *s, __u64 now, __u64 until)
{
	if (s->deadline_ns <= now)
		return qf_demand_in(s, until - now);
	if (s->deadline_ns > until)
		return 0;
	return s->left_ns + qf_demand_in(s, until - s->deadline_ns);
}

QF_INLINE bool qf_precedes(const struct qf_machine *m, __u32 k, __u32 j)
{
	const struct qf_server *s = qf_server(k);

	if (k == j || !qf_is(s, QF_IS_ACTIVE) || s->cpu != m->cpu)
		return false;
	return k < j ? qf_before(s, qf_server(j)) : !qf_before(qf_server(j), s);
}

/* Rule 4: whether serving j now leaves enough time before the common deadline to all that precede j. O(n), and only if
 * an event waits for a released server with the same deadline as the chosen one. */
QF_SUBPROGRAM int qf_may_go_first(struct qf_machine *m, __u32 j, __u32 chosen)
{
	const struct qf_server *s = qf_server(j);
	__u64 until = s->deadline_ns, now = m->now_ns, demand = s->left_ns;
	__u32 slot = qf_first_slot(m), slots = 1U << (m->height & 15);

	if (s->release_ns > now || until != qf_server(chosen)->deadline_ns)
		return 0;
	while (slot < slots) {
		qf_may_goto(refused);
		if (qf_precedes(m, slot, j))
			demand += qf_demand(qf_server(slot), now, until);
		if (demand >= until - now)
			return 0;
		slot = qf_next_slot(slot);
	}
	return demand < until - now;
refused:
	return 0;
}

/* The rule by which sink j runs instead of the choice. 0: none. */
QF_INLINE __u32 qf_rule(struct qf_machine *m, const struct qf_decision *d, __u32 j)
{
	if (d->task_server)
		return 5;
	if (!d->slot)
		return 2;
	if (d->slot == j)
		return 1;
	if (d->kind == QF_KIND_EXTRA)
		return 3;
	return qf_may_go_first(m, j, d->slot) ? 4 : 0;
}

/* Replaces the choice of DWCS if an event requires it. `deliver`: the event is removed from the queue and counted. */
QF_SUBPROGRAM int qf_revise(struct qf_machine *m, struct qf_decision *d, __u32 deliver)
{
	struct qf_server *s;
	__u32 j, rule;

	if (!m->pending)
		return 0;
	qf_drop_late(m);
	j = qf_tree_first(&m->sinks, m->height);
	rule = j ? qf_rule(m, d, j) : 0;
	if (!rule || rule > 5)
		return 0;
	s = qf_server(j);
	d->slot = j;
	d->rule = rule;
	d->event_number = s->event_number;
	d->kind = rule != 5 && s->release_ns <= m->now_ns ? QF_KIND_REGULAR : QF_KIND_EXTRA;
	if (deliver) {
		s->events[rule - 1]++;
		m->counts.events[rule - 1]++;
		qf_event_pop(m, j);
	}
	return 0;
}

#endif
