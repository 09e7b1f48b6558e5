/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * DWCS arithmetic: rules a and b, and Table 1 as comparable numbers.
 *
 * Source: 000 §2.4.1 (rules, Table 1), §7.1.2 (Table 5). The twin without kernel code is
 * crates/sched/src/dwcs/window.rs; the test core_machine compares both, tick by tick. Departure: k lost periods are
 * accounted for at once (qf_rule_b), so that a CPU that stood still for a long time costs no more than one that was
 * late once.
 */
#ifndef QF_DWCS_H
#define QF_DWCS_H

#include "qf_abi.h"

#define QF_URGENCY_BITS 34

/* Table 1 below the deadline as one number, lower first: the ratio x'/y'; if it is zero, the higher y' first, else the
 * lower x' first. Two different ratios of numbers up to 255 differ by more than 2^-17, so 17 bits distinguish them. y'
 * exceeds 255 only while x' is zero. */
QF_INLINE __u64 qf_urgency(__u16 x, __u16 y)
{
	if (x == 0)
		return QF_WINDOW_NOW_MAX - y;
	return (__u64)(((__u32)x << 17) / y) << 16 | x;
}

/* The rank within equal deadlines: Table 5, then Table 1. */
QF_INLINE __u64 qf_rank(const struct qf_server *s, __u32 network)
{
	__u64 activity = 0;

	if (network == QF_NETWORK_IDLE)
		activity = s->config.network;
	else if (network == QF_NETWORK_BUSY)
		activity = 255 - s->config.network;
	return activity << QF_URGENCY_BITS | qf_urgency(s->x_now, s->y_now);
}

/* Whether a precedes b by Table 1 (5). Equality counts as before; callers pass the lower slot first. */
QF_INLINE bool qf_before(const struct qf_server *a, const struct qf_server *b)
{
	if (a->deadline_ns != b->deadline_ns)
		return a->deadline_ns < b->deadline_ns;
	if (a->rank != b->rank)
		return a->rank < b->rank;
	return a->came_ns <= b->came_ns;
}

QF_INLINE void qf_window_restart(struct qf_server *s)
{
	s->x_now = s->config.x;
	s->y_now = s->config.y;
}

/* Rule a: a period was served. */
QF_INLINE void qf_rule_a(struct qf_server *s)
{
	if (s->y_now <= s->x_now)
		s->x_now--;
	s->y_now--;
	if (s->x_now == 0 && s->y_now == 0)
		qf_window_restart(s);
}

/* Applies rule b to up to `periods` lost periods within the window. Returns how many of them the window allowed. */
QF_INLINE __u64 qf_rule_b_within(struct qf_server *s, __u64 periods)
{
	__u64 allowed = s->x_now < periods ? s->x_now : periods;

	s->x_now -= allowed;
	s->y_now -= allowed;
	if (s->x_now == 0 && s->y_now == 0)
		qf_window_restart(s);
	return allowed;
}

/*
 * Applies rule b `periods` times. A restarted window has x < y, so it restarts at most once: after that x' reaches zero
 * before y', and every further period is a violation. Therefore no loop is needed.
 */
QF_INLINE void qf_rule_b(struct qf_server *s, __u64 periods)
{
	__u64 beyond = periods;

	beyond -= qf_rule_b_within(s, beyond);
	beyond -= qf_rule_b_within(s, beyond);
	s->missed += periods;
	s->violations += beyond;
	s->y_now = beyond > QF_WINDOW_NOW_MAX - s->y_now ? QF_WINDOW_NOW_MAX : s->y_now + beyond;
}

#endif
