/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * AQuoSA's controller at the end of a job, in whole nanoseconds: predict the next cost and choose a budget from Theorem
 * 2's family
 *
 *   Q in [ H/(L + E' - s), min{ h/(L - 1 - e' - s), Qmax } [        s = S(eps)/P, all lengths in server periods  (7)
 *
 * The error is a multiple of P and the target interval lies on the same lattice, so every denominator is a whole
 * number. Divisions are the only rounding: up for what a job needs, down below the open right end.
 *
 * Source: AQuoSA 2009, §4.3.1, §4.3.2. The twin crates/control/src/fixed.rs computes the same numbers bit for bit; the
 * difference of both from the real-valued law is in docs/design/0012. Bounds: costs above 2^32 - 1 ns count as that
 * value; loops run over at most QF_CONTROL_SAMPLES samples and 32 bits.
 */
#ifndef QF_AQUOSA_H
#define QF_AQUOSA_H

#include "qf_abi.h"

#define QF_COST_MAX 0xffffffffULL
/* Deviations of 2^QF_FINE_BITS or more lose 3 bits before they are squared, so that 64 squares fit into 64 bits. */
#define QF_FINE_BITS 29
#define QF_COARSE_SHIFT 3

QF_INLINE __u64 qf_ceil_div(__u64 value, __u64 by)
{
	return by ? value / by + (value % by != 0) : 0;
}

/* 1 if a < b, else 0. Has no branch. */
QF_INLINE __u64 qf_is_less(__u64 a, __u64 b)
{
	return ((~a & b) | ((~a | b) & (a - b))) >> 63;
}

/* The smallest number whose square is not less than `value`. Has no branches, and `zero` is 0 but the verifier must not
 * know: otherwise it would follow every possible root. */
QF_INLINE __u64 qf_sqrt_up(__u64 value, __u64 zero)
{
	__u64 root = zero;

	for (int bit = 31; bit >= 0; bit--) {
		__u64 tried = root | 1ULL << bit, too_much = qf_is_less(value, tried * tried);

		qf_opaque(too_much);
		root |= (1ULL << bit) & (too_much - 1);
	}
	return root + qf_is_less(root * root, value);
}

/* Checks a requested configuration. */
QF_INLINE int qf_control_check(const struct qf_control_config *c)
{
	if (c->on > 1 || c->choice > QF_CHOICE_COST || c->rho_milli > 10000)
		return -EINVAL;
	if (c->samples == 0 || c->samples > QF_CONTROL_SAMPLES || c->lanes == 0 || c->lanes > QF_CONTROL_SAMPLES)
		return -EDOM;
	if (c->samples * c->lanes > QF_CONTROL_SAMPLES)
		return -EDOM;
	if (c->periods_per_job == 0 || c->periods_per_job > 65535 || c->early > 65535 || c->late > 65535)
		return -ERANGE;
	return c->min_budget_ns && c->min_budget_ns <= c->max_budget_ns && c->max_budget_ns <= QF_PERIOD_MAX ? 0 : -ERANGE;
}

/* Sample number `index` of the next job's lane. */
QF_INLINE __u64 qf_sample(const struct qf_control *c, __u32 index)
{
	__u32 at = c->jobs % (c->config.lanes ?: 1) + index * c->config.lanes;

	qf_opaque(at);
	return c->cost[at & (QF_CONTROL_SAMPLES - 1)];
}

/* The sum of the lane's samples, and the sum of the squared distances from `mean` after a shift to the right. */
QF_INLINE __u64 qf_sum(const struct qf_control *c)
{
	__u64 sum = 0;

	for (__u32 index = 0; index < QF_CONTROL_SAMPLES; index++) {
		if (index >= c->config.samples)
			break;
		sum += qf_sample(c, index);
	}
	return sum;
}

QF_INLINE __u64 qf_distance(__u64 a, __u64 b)
{
	return a > b ? a - b : b - a;
}

QF_SUBPROGRAM __u64 qf_squares(const struct qf_control *c, __u64 mean, __u32 shift)
{
	__u64 sum = 0;

	for (__u32 index = 0; index < QF_CONTROL_SAMPLES; index++) {
		__u64 distance;

		if (index >= c->config.samples)
			break;
		distance = qf_distance(qf_sample(c, index), mean) >> (shift & 7);
		sum += distance * distance;
	}
	return sum;
}

/* The largest distance of a sample from `mean`. */
QF_SUBPROGRAM __u64 qf_farthest(const struct qf_control *c, __u64 mean)
{
	__u64 farthest = 0;

	for (__u32 index = 0; index < QF_CONTROL_SAMPLES; index++) {
		__u64 distance;

		if (index >= c->config.samples)
			break;
		distance = qf_distance(qf_sample(c, index), mean);
		if (distance > farthest)
			farthest = distance;
	}
	return farthest;
}

/* Predicts mu - rho sigma and mu + rho sigma for the next job's lane, rounded away from mu. Both stay 0 until the lane
 * is full. */
QF_SUBPROGRAM int qf_predict(struct qf_control *c)
{
	__u64 samples = c->config.samples ?: 1, sum, mean, half;
	__u32 shift;

	c->low_ns = c->high_ns = 0;
	if (c->jobs < samples * c->config.lanes)
		return 0;
	sum = qf_sum(c);
	mean = sum / samples;
	shift = qf_farthest(c, mean) >> QF_FINE_BITS ? QF_COARSE_SHIFT : 0;
	half = qf_sqrt_up(qf_ceil_div(qf_squares(c, mean, shift), samples), c->zero) << shift;
	half = qf_ceil_div(half * c->config.rho_milli, 1000);
	c->low_ns = mean > half ? mean - half : 0;
	c->high_ns = qf_ceil_div(sum, samples) + half;
	return 0;
}

/* Records a job's cost as a sample, and updates the shortest recent cost, which doubles in 35 jobs without a shorter
 * one. */
QF_INLINE void qf_observe(struct qf_control *c, __u64 cost)
{
	__u32 ring = c->config.samples * c->config.lanes ?: 1, at = c->jobs % ring;
	__u64 shortest = c->shortest_ns + qf_ceil_div(c->shortest_ns, 50);

	qf_opaque(at);
	c->cost[at & (QF_CONTROL_SAMPLES - 1)] = cost;
	c->shortest_ns = c->jobs == 0 || cost < shortest ? cost : shortest;
	c->jobs++;
}

/* The budget with the least (H - h)/(Q L) + Q/P in (7): one period of uncertainty weighs as much as one CPU. */
QF_INLINE __u64 qf_cheapest(const struct qf_control *c, __u64 period)
{
	__u64 width = c->high_ns - c->low_ns;

	if (width > QF_COST_MAX)
		width = QF_COST_MAX;
	return qf_sqrt_up(qf_ceil_div(width * period, c->config.periods_per_job), c->zero);
}

/* Fact 1: the least budget with which the centre of the prediction ends with error zero. 0: none exists. */
QF_INLINE __u64 qf_zero_error(const struct qf_control *c, __u64 late)
{
	if (c->config.periods_per_job <= late)
		return 0;
	return (c->low_ns + c->high_ns) / 2 / (c->config.periods_per_job - late) + 1;
}

/* The chosen point between both ends. Requires left < right. */
QF_INLINE __u64 qf_point(const struct qf_control *c, __u64 left, __u64 right, __u64 late, __u64 period)
{
	__u64 point = left;

	if (c->config.choice == QF_CHOICE_MIDDLE)
		return left + (right - left + 1) / 2;
	if (c->config.choice == QF_CHOICE_RIGHT)
		return right;
	if (c->config.choice == QF_CHOICE_COST)
		point = qf_cheapest(c, period);
	else if (c->config.choice == QF_CHOICE_ZERO)
		point = qf_zero_error(c, late) < right ? qf_zero_error(c, late) : left;
	if (point < left)
		return left;
	return point < right ? point : right;
}

/* The budget by (7) for the prediction. Outside the family it is the left end, or all of Qmax if that does not exist
 * either. */
QF_SUBPROGRAM __u64 qf_law(const struct qf_control *c, __u64 late, __u64 period)
{
	const struct qf_control_config *config = &c->config;
	__u64 until_late = (__u64)config->periods_per_job + config->late;
	__u64 early = 1 + (__u64)config->early + late, left, right, most = config->max_budget_ns;

	if (c->high_ns == 0 || until_late <= late)
		return most;
	left = qf_ceil_div(c->high_ns, until_late - late);
	if (left > most)
		left = most;
	if (config->periods_per_job <= early)
		return left;
	/* The right end is open: take the largest whole budget below it. */
	right = (c->low_ns - (c->low_ns != 0)) / (config->periods_per_job - early);
	if (right > most - 1)
		right = most - 1;
	return right > left ? qf_point(c, left, right, late, period) : left;
}

/*
 * The budget for the next job, after a job of `cost` ended `late` server periods of length `period` after its deadline
 * (0: in time). The budget never falls below half of the shortest recent cost, in case a prediction is far off.
 */
QF_SUBPROGRAM __u64 qf_control_job(struct qf_control *c, __u64 cost, __u64 late, __u64 period)
{
	__u64 most = c->config.max_budget_ns, budget = most, least;

	qf_observe(c, cost < QF_COST_MAX ? cost : QF_COST_MAX);
	qf_predict(c);
	if (c->high_ns)
		budget = qf_law(c, late, period);
	least = qf_ceil_div(c->shortest_ns, 2 * ((__u64)c->config.periods_per_job + c->config.late));
	if (least < c->config.min_budget_ns)
		least = c->config.min_budget_ns;
	if (budget < least)
		budget = least;
	return budget < most ? budget : most;
}

#endif
