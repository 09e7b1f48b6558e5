/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Part of machine.h: who runs, and until when that holds. */
#ifndef QF_PICK_H
#define QF_PICK_H

/* Everybody without a server is a server's thread for the time reserved for them: its demand is whether any waits. */
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

/* Nobody with a deadline. */
QF_INLINE void qf_leave_over(struct qf_decision *d, __u32 best_effort_waits)
{
	d->slot = 0;
	d->kind = best_effort_waits ? QF_KIND_BEST_EFFORT : QF_KIND_IDLE;
}

/* What DWCS chooses: the first of the released; else the first of the served that are work-conserving; else best
 * effort. The task server never runs itself. */
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

/* Until a regular service's budget or period ends. */
QF_INLINE __u64 qf_service_ends(const struct qf_machine *m, __u32 slot)
{
	const struct qf_server *s = qf_server(slot);
	__u64 end = m->now_ns + qf_lasts(m, s);

	return end < s->deadline_ns ? end : s->deadline_ns;
}

/* How long the decision holds when nothing happens from outside. An event buys one service time of its sink. Where best
 * effort has just stopped waiting and left nobody released, who waits for idle time is brought forward next. */
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

/* The decision at `now`. `best_effort_waits`: somebody without a server wants to run. */
QF_SUBPROGRAM int qf_pick(struct qf_machine *m, __u64 now, __u32 best_effort_waits, struct qf_decision *d)
{
	m->counts.decisions++;
	qf_decide(m, now, best_effort_waits, d, 1);
	return 0;
}

/* What qf_pick() would decide; only time passes. */
QF_SUBPROGRAM int qf_peek(struct qf_machine *m, __u64 now, __u32 best_effort_waits, struct qf_decision *d)
{
	qf_decide(m, now, best_effort_waits, d, 0);
	return 0;
}

#endif
