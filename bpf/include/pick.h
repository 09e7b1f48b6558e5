/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Part of machine.h: the choice of what runs, and until when the choice holds. */
#ifndef QF_PICK_H
#define QF_PICK_H

/* All threads without a server together are the thread of one server for the time reserved for them: it is ready while
 * any of them waits. */
QF_INLINE void qf_best_effort_waits(struct qf_machine *m, __u32 waits)
{
	struct qf_server *s = qf_server(m->best_effort);

	if (!m->best_effort || qf_is(s, QF_IS_READY) == !!waits)
		return;
	if (waits)
		qf_get_ready(m, s);
	else
		qf_get_unready(m, s);
	qf_place(m, m->best_effort);
}

/* The choice when no server with a deadline is to run. */
QF_INLINE void qf_leave_over(struct qf_decision *d, __u32 best_effort_waits)
{
	d->slot = 0;
	d->kind = best_effort_waits ? QF_KIND_BEST_EFFORT : QF_KIND_IDLE;
}

/* The choice of DWCS: the first released server; else the first served server that is work-conserving; else best
 * effort. The task server itself never runs. */
QF_INLINE void qf_choose(struct qf_machine *m, __u32 best_effort_waits, struct qf_decision *d)
{
	d->slot = qf_tree_first(&m->released, m->height);
	d->kind = QF_KIND_REGULAR;
	d->task_server = 0;
	if (d->slot && d->slot == m->task_server) {
		d->task_server = d->slot;
		qf_leave_over(d, best_effort_waits);
	} else if (!d->slot) {
		d->slot = qf_tree_first(&m->surplus, m->height);
		d->kind = QF_KIND_EXTRA;
		if (!d->slot)
			qf_leave_over(d, best_effort_waits);
	}
}

/* The end of a regular service: the end of its budget or of its period, whichever comes first. */
QF_INLINE __u64 qf_service_ends(const struct qf_machine *m, __u32 slot)
{
	const struct qf_server *s = qf_server(slot);
	__u64 end = m->now_ns + qf_lasts(m, s);

	return end < s->deadline_ns ? end : s->deadline_ns;
}

/* How long the decision holds if nothing happens from outside. An event buys one service time of its sink. If best
 * effort has just stopped waiting and left no server released, servers that wait for idle time are brought forward
 * next. */
QF_INLINE __u64 qf_until(struct qf_machine *m, const struct qf_decision *d)
{
	__u32 next = qf_tree_first(&m->waiting, m->height);
	__u64 now = m->now_ns, until = next ? qf_server(next)->due_ns : QF_NEVER, end = QF_NEVER;

	if (d->slot && d->kind == QF_KIND_EXTRA && d->rule)
		end = now + qf_server(d->slot)->config.service_ns;
	else if (d->slot && d->kind != QF_KIND_EXTRA)
		end = qf_service_ends(m, d->slot);
	if (end < until)
		until = end;
	if (!d->slot && m->wanting)
		until = now;
	if (d->task_server && qf_service_ends(m, d->task_server) < until)
		until = qf_service_ends(m, d->task_server);
	return until > now ? until : now + 1;
}

QF_INLINE void qf_decide(struct qf_machine *m, __u64 now, __u32 best_effort_waits, struct qf_decision *d, __u32 deliver)
{
	d->rule = 0;
	d->event_number = 0;
	qf_bring_to(m, now);
	qf_best_effort_waits(m, best_effort_waits);
	qf_choose(m, best_effort_waits, d);
	qf_revise(m, d, deliver);
	d->until_ns = qf_until(m, d);
	if (d->slot && d->slot == m->best_effort)
		d->kind = QF_KIND_BEST_EFFORT;
}

/* Decides at `now`. `best_effort_waits`: a thread without a server wants to run. */
QF_SUBPROGRAM int qf_pick(struct qf_machine *m, __u64 now, __u32 best_effort_waits, struct qf_decision *d)
{
	m->counts.decisions++;
	qf_decide(m, now, best_effort_waits, d, 1);
	return 0;
}

/* Returns what qf_pick() would decide. Nothing changes except the time. */
QF_SUBPROGRAM int qf_peek(struct qf_machine *m, __u64 now, __u32 best_effort_waits, struct qf_decision *d)
{
	qf_decide(m, now, best_effort_waits, d, 0);
	return 0;
}

#endif
