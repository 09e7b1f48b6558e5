/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Part of machine.h: the effect of readiness and unreadiness on a period. */
#ifndef QF_READY_H
#define QF_READY_H

/* The CBS test: whether the rest of the budget can be used before d without exceeding the bandwidth C/T. */
QF_INLINE bool qf_keeps_its_period(const struct qf_server *s, __u64 now)
{
	__u64 time = s->deadline_ns - now;

	if (s->deadline_ns <= now)
		return false;
	return time >= s->config.period_ns || s->left_ns * s->config.period_ns <= time * s->config.service_ns;
}

/* Closes a period that ended while its server was blocked, or that is given up. It counts as served: no more was
 * demanded. */
QF_INLINE void qf_close(struct qf_server *s)
{
	if (qf_is(s, QF_IS_OWED))
		qf_count_served(s);
	s->state &= ~(QF_IS_OWED | QF_IS_COUNTED);
}

/* Wakes on the grid of the periods, with the part of C that the rest of the period covers. */
QF_INLINE void qf_wake_aligned(struct qf_server *s, __u64 now)
{
	__u64 period = s->config.period_ns ?: 1, pays;

	if (s->deadline_ns <= now) {
		qf_close(s);
		s->deadline_ns += ((now - s->deadline_ns) / period + 1) * period;
		s->release_ns = s->deadline_ns - period;
		qf_refill(s);
	}
	pays = s->deadline_ns - now >= period ? s->config.service_ns
					      : (s->deadline_ns - now) * s->config.service_ns / period;
	if (pays < s->left_ns)
		s->left_ns = pays;
	if (s->left_ns == 0) {
		qf_close(s);
		qf_next_period(s);
	}
}

/* The server wants service again. It keeps its period if the rest of that period covers what is left of C. Otherwise a
 * new period begins, now or on the grid, and the old one counts as served. */
QF_INLINE void qf_get_ready(struct qf_machine *m, struct qf_server *s)
{
	__u64 now = m->now_ns;

	if (!qf_keeps_its_period(s, now)) {
		if (qf_asks(s, QF_ASK_ALIGNED)) {
			qf_wake_aligned(s, now);
		} else {
			qf_close(s);
			s->release_ns = now;
			s->deadline_ns = now + s->config.period_ns;
			qf_refill(s);
		}
	}
	s->state = (s->state & ~(QF_IS_OWED | QF_IS_EXHAUSTED | QF_IS_DONE)) | QF_IS_READY;
}

/* The server wants no service from now on. */
QF_INLINE void qf_get_unready(struct qf_machine *m, struct qf_server *s)
{
	if (s->release_ns <= m->now_ns)
		s->state |= QF_IS_OWED;
	s->state &= ~QF_IS_READY;
	qf_begin_lag(s);
}

#endif
