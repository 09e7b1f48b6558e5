/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Part of machine.h: the end of a period, served or missed. */
#ifndef QF_ACCOUNT_H
#define QF_ACCOUNT_H

/* Refills the budget. Time used beyond C (debt) is paid back first, but at least one unit of budget remains. */
QF_INLINE void qf_refill(struct qf_server *s)
{
	__u64 left = s->config.service_ns, debt = s->debt_ns;
	__u64 paid = debt < left ? debt : left - 1;

	s->left_ns = left - paid;
	s->debt_ns = debt - paid;
}

QF_INLINE void qf_next_period(struct qf_server *s)
{
	s->release_ns = s->config.mode == QF_MODE_SOFT ? s->release_ns + s->config.period_ns : s->deadline_ns;
	s->deadline_ns += s->config.period_ns;
	qf_refill(s);
}

/* Rule 5: sets C and T of the task server's next period for the first waiting event. */
QF_INLINE void qf_retune(struct qf_machine *m, __u32 slot)
{
	struct qf_config *config = &qf_server(slot)->config;
	__u32 sink;
	__u64 period;

	if (!m->task_server || slot != m->task_server)
		return;
	sink = qf_tree_first(&m->sinks, m->height);
	config->service_ns = sink ? qf_server(sink)->config.service_ns : 1;
	period = (config->service_ns * config->rest_den + config->rest_num - 1) / config->rest_num;
	config->period_ns = period > config->service_ns ? period : config->service_ns;
	qf_book(m, qf_server(slot), true);
}

/* Applies rule a, once per period. */
QF_INLINE void qf_count_served(struct qf_server *s)
{
	if (!qf_is(s, QF_IS_COUNTED)) {
		s->served++;
		qf_rule_a(s);
	}
	s->state &= ~QF_IS_COUNTED;
}

/* Ends a period that was served. */
QF_SUBPROGRAM int qf_served(struct qf_machine *m, __u32 slot)
{
	struct qf_server *s = qf_server(slot);

	qf_retune(m, slot);
	qf_count_served(s);
	qf_next_period(s);
	qf_place(m, slot);
	return 0;
}

/* Ends all periods that are over and were not served. A period that was opened again had been served before. */
QF_INLINE void qf_lost(struct qf_machine *m, __u32 slot)
{
	struct qf_server *s = qf_server(slot);
	__u64 late, periods = 1;

	qf_retune(m, slot);
	late = m->now_ns - s->deadline_ns;
	if (late >= s->config.period_ns)
		periods += late / s->config.period_ns;
	s->release_ns = s->deadline_ns + (periods - 1) * s->config.period_ns;
	s->deadline_ns = s->release_ns + s->config.period_ns;
	m->counts.turnovers += periods;
	qf_rule_b(s, qf_is(s, QF_IS_COUNTED) ? periods - 1 : periods);
	s->state &= ~QF_IS_COUNTED;
	qf_refill(s);
}

/* The slot to place again at `now`: the first server due for release, else (after all releases) one whose deadline has
 * passed without its service. 0: none. */
QF_INLINE __u32 qf_due(struct qf_machine *m)
{
	__u32 slot = qf_tree_first(&m->waiting, m->height);

	if (qf_server(slot)->due_ns <= m->now_ns) {
		m->counts.releases += qf_is(qf_server(slot), QF_IS_READY);
		return slot;
	}
	slot = qf_tree_first(&m->released, m->height);
	if (qf_server(slot)->deadline_ns > m->now_ns)
		return 0;
	qf_lost(m, slot);
	return slot;
}

/* Brings all servers that wait for idle time forward by the time the first of them has to wait. O(n), and only on CPUs
 * with such servers. */
QF_SUBPROGRAM int qf_use_idle_time(struct qf_machine *m)
{
	__u64 first = qf_first_wanting(m), time = first > m->now_ns ? first - m->now_ns : 0;
	__u32 slot = qf_first_slot(m);

	while (slot < 1U << (m->height & 15)) {
		qf_may_goto_break;
		if (qf_server(slot)->cpu == m->cpu && qf_is(qf_server(slot), QF_IS_WANTING)) {
			qf_bring_forward(m, qf_server(slot), time);
			qf_place(m, slot);
		}
		slot = qf_next_slot(slot);
	}
	return 0;
}

/* Performs releases, then turnovers, up to `now`. If no server is released then, the CPU would be idle, and waiting
 * servers are brought forward. Time never runs backwards: clocks of CPUs may differ slightly. */
QF_SUBPROGRAM int qf_bring_to(struct qf_machine *m, __u64 now)
{
	__u32 slot;

	if (now > m->now_ns)
		m->now_ns = now;
	while ((slot = qf_due(m))) {
		qf_may_goto_break;
		qf_place(m, slot);
	}
	if (m->wanting && !qf_tree_first(&m->released, m->height))
		qf_use_idle_time(m);
	return 0;
}

/* A soft server has used its budget: it gets another one and a later deadline. */
QF_INLINE void qf_postpone(struct qf_machine *m, __u32 slot)
{
	struct qf_server *s = qf_server(slot);

	qf_count_served(s);
	s->deadline_ns += s->config.period_ns;
	qf_refill(s);
	qf_place(m, slot);
}

/* Makes a soft server wait until its deadline is near enough. The caller then adds T. */
QF_INLINE void qf_far_ahead(const struct qf_machine *m, struct qf_server *s)
{
	if (s->config.mode == QF_MODE_SOFT)
		s->release_ns = s->deadline_ns - s->config.period_ns - (qf_reclaims(m, s, QF_MODE_SOFT) ? QF_AHEAD_MAX : 0);
}

/* Charges regular service. Time beyond the budget becomes debt, at most C. */
QF_SUBPROGRAM int qf_serve(struct qf_machine *m, __u32 slot, __u64 used)
{
	struct qf_server *s = qf_server(slot);
	__u64 spent = qf_spent(m, s, used), beyond;

	s->used_ns += used;
	if (spent < s->left_ns) {
		s->left_ns -= spent;
		return 0;
	}
	beyond = s->debt_ns + (spent - s->left_ns);
	s->debt_ns = beyond < s->config.service_ns ? beyond : s->config.service_ns;
	s->exhausted++;
	if (qf_postpones(m, s)) {
		qf_postpone(m, slot);
		return 0;
	}
	qf_far_ahead(m, s);
	s->state |= QF_IS_EXHAUSTED;
	return qf_served(m, slot);
}

/* Charges `used` time, which was given by decision `d`, and advances the machine to `now`. */
QF_SUBPROGRAM int qf_account(struct qf_machine *m, const struct qf_decision *d, __u64 used, __u64 now)
{
	if (now > m->now_ns)
		m->now_ns = now;
	if (d->slot) {
		struct qf_server *s = qf_server(d->slot);

		s->job_used_ns += used;
		if (d->kind == QF_KIND_EXTRA)
			s->extra_ns += used;
		else
			qf_serve(m, d->slot, used);
	}
	if (d->task_server)
		qf_serve(m, d->task_server, used);
	return 0;
}

#endif
