/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a server does at the end of its budget, and which servers get the time that reservations leave unused.
 *
 *   hard   waits for d, then has C again
 *   soft   d += T and C again, at once; if its deadline is too far ahead (QF_AHEAD_MAX) it waits for idle time
 *   GRUB   like hard; while it runs its budget drains at the bandwidth of the active servers (at least its own)
 *   IRIS   like hard; if no server is released, all that wait are brought forward by the time the first has to wait
 *
 * A server is active while it is ready, and from when it blocks until its 0-lag time d - left T/C. On a CPU whose
 * bandwidths add up to more than 1 (which windows permit) nothing is reclaimed: all servers are hard there.
 *
 * Source: 002 §2.2; Abeni & Buttazzo 1998 (soft), Lipari & Baruah 2000 (GRUB), Marzario et al. 2004 (IRIS). Twin:
 * crates/sched/src/{server,machine}.rs; docs/design/0023.
 */
#ifndef QF_RECLAIM_H
#define QF_RECLAIM_H

#include "slots.h"

/* Whether the server currently reclaims in this mode. Each bandwidth is rounded up by less than 2^-24. */
QF_INLINE bool qf_reclaims(const struct qf_machine *m, const struct qf_server *s, __u32 mode)
{
	return s->config.mode == mode && m->booked <= QF_WHOLE_CPU + QF_SLOTS;
}

/* Whether the server waits for idle time at the end of its budget. */
QF_INLINE bool qf_takes_idle_time(const struct qf_machine *m, const struct qf_server *s)
{
	return qf_reclaims(m, s, QF_MODE_IRIS) || qf_reclaims(m, s, QF_MODE_SOFT);
}

/* Updates the booked bandwidth after C or T changed, or after the server was added or removed (`there`). */
QF_INLINE void qf_book(struct qf_machine *m, struct qf_server *s, bool there)
{
	__u64 period = s->config.period_ns ?: 1;
	__u64 share = ((s->config.service_ns << 24) + period - 1) / period;
	__u32 bandwidth = there ? (__u32)share : 0;

	m->booked += (__u64)bandwidth - s->bandwidth;
	s->bandwidth = bandwidth;
}

/* Whether the server is blocked before its 0-lag time. Only matters if the CPU has GRUB servers. */
QF_INLINE bool qf_lags(const struct qf_machine *m, const struct qf_server *s)
{
	return m->grub && !(s->state & QF_IS_READY) && s->lag_ns > m->now_ns;
}

QF_INLINE void qf_count_active(struct qf_machine *m, struct qf_server *s, bool active)
{
	__u32 counts = active ? s->bandwidth : 0;

	m->active += (__u64)counts - s->active;
	s->active = counts;
}

/* `waits`: the server is ready and its release is still to come. */
QF_INLINE void qf_count_wanting(struct qf_machine *m, struct qf_server *s, bool waits)
{
	bool was = s->state & QF_IS_WANTING;
	bool used = s->release_ns > s->config.arrival_ns && !(s->state & QF_IS_DONE);
	bool is = waits && used && qf_takes_idle_time(m, s);

	m->wanting += is - was;
	s->state = is ? s->state | QF_IS_WANTING : s->state & ~QF_IS_WANTING;
}

/* The server blocks: its bandwidth counts as used until left T/C before d. */
QF_INLINE void qf_begin_lag(struct qf_server *s)
{
	__u64 back = s->left_ns * s->config.period_ns / (s->config.service_ns ?: 1);

	s->lag_ns = back < s->deadline_ns ? s->deadline_ns - back : 0;
}

/* Budget spent per unit of time that a server runs, in 2^-24. */
QF_INLINE __u64 qf_rate(const struct qf_machine *m, const struct qf_server *s)
{
	__u64 rate = m->active > s->bandwidth ? m->active : s->bandwidth;

	return qf_reclaims(m, s, QF_MODE_GRUB) && rate && rate < QF_WHOLE_CPU ? rate : QF_WHOLE_CPU;
}

/* The budget that `used` time costs, rounded up. Times above QF_PERIOD_MAX count as that. */
QF_INLINE __u64 qf_spent(const struct qf_machine *m, const struct qf_server *s, __u64 used)
{
	__u64 time = used < QF_PERIOD_MAX ? used : QF_PERIOD_MAX;

	return (time * qf_rate(m, s) + QF_WHOLE_CPU - 1) >> 24;
}

/* The time that the budget lasts, rounded up. */
QF_INLINE __u64 qf_lasts(const struct qf_machine *m, const struct qf_server *s)
{
	__u64 rate = qf_rate(m, s) ?: 1;

	return ((s->left_ns << 24) + rate - 1) / rate;
}

/* Whether a soft server continues at once. It does unless its deadline is too far ahead. */
QF_INLINE bool qf_postpones(const struct qf_machine *m, const struct qf_server *s)
{
	return qf_reclaims(m, s, QF_MODE_SOFT) && s->deadline_ns <= m->now_ns + QF_AHEAD_MAX;
}

/* The time until which the first server that waits for idle time would have to wait. */
QF_INLINE __u64 qf_first_wanting(struct qf_machine *m)
{
	__u32 slot = qf_first_slot(m);
	__u64 first = QF_NEVER;

	while (slot < 1U << (m->height & 15)) {
		const struct qf_server *s = qf_server(slot);

		qf_may_goto_break;
		if (s->cpu == m->cpu && s->state & QF_IS_WANTING && s->deadline_ns - s->config.period_ns < first)
			first = s->deadline_ns - s->config.period_ns;
		slot = qf_next_slot(slot);
	}
	return first;
}

/* Changes the server's times as if `time` had already passed for its period. */
QF_INLINE void qf_bring_forward(const struct qf_machine *m, struct qf_server *s, __u64 time)
{
	s->state &= ~QF_IS_EXHAUSTED;
	s->deadline_ns -= time;
	s->release_ns = s->deadline_ns - s->config.period_ns <= m->now_ns || s->release_ns < time ? m->now_ns
												 : s->release_ns - time;
}

#endif
