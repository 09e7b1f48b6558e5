/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Part of machine.h: what wanting service, and wanting none, does to a period. */
#ifndef QF_READY_H
#define QF_READY_H

/* The CBS test: what is left may be had until d without taking more than C/T of the time. */
QF_INLINE bool qf_keeps_its_period(const struct qf_server *s, __u64 now)
{
	__u64 time = s->deadline_ns - now;

	if (s->deadline_ns <= now)
		return false;
	return time >= s->config.period_ns || s->left_ns * s->config.period_ns <= time * s->config.service_ns;
}

/* A period that ended blocked, or is given up, counts as served: it asked for no more. */
QF_INLINE void qf_close(struct qf_server *s)
{
	if (qf_is(s, QF_IS_OWED))
		qf_count_served(s);
	s->state &= ~(QF_IS_OWED | QF_IS_COUNTED);
}

/* On the grid of its periods, with the part of C that the rest of the period pays for. */
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

/* It wants service again. It keeps its period where the rest of it pays for what is left of C; else a new one begins,
 * now or on its grid, and the old one counts as served. */
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

/* It wants nothing from now on. */
QF_INLINE void qf_get_unready(struct qf_machine *m, struct qf_server *s)
{
	if (s->release_ns <= m->now_ns)
		s->state |= QF_IS_OWED;
	s->state &= ~QF_IS_READY;
	qf_begin_lag(s);
}

#endif
