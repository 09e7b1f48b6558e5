/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Part of machine.h: jobs, and the controller that a server may have (aquosa.h). A job begins when its server wakes;
 * after sched_yield it begins with the next period, and after a late job at that job's deadline. Its deadline is L P
 * later.
 */
#ifndef QF_CONTROL_H
#define QF_CONTROL_H

#include "aquosa.h"

/* Stored by slot, apart from the servers: most servers have no controller, and every decision reads the servers. */
struct qf_control qf_controls[QF_SLOTS] SEC(".bss.controls");

QF_INLINE struct qf_control *qf_control(__u32 slot)
{
	return &qf_controls[QF_SLOT(slot)];
}

/* Gives a server a controller, or removes it (`on` = 0). Errors as qf_control_check(). The server's C stays until a job
 * ends. */
QF_SUBPROGRAM int qf_control_set(__u32 slot, const struct qf_control_config *config)
{
	struct qf_control *c = qf_control(slot);
	int error = config->on ? qf_control_check(config) : 0;

	if (error)
		return error;
	if (!slot || !qf_is(qf_server(slot), QF_IS_ACTIVE))
		return -ENOENT;
	if (config->on && config->max_budget_ns > qf_server(slot)->config.period_ns)
		return -ERANGE;
	__builtin_memset(c, 0, sizeof(*c));
	c->config = *config;
	return 0;
}

/* Begins a job of the server, unless one is running. */
QF_INLINE void qf_job_begins(__u32 slot, __u64 at)
{
	const struct qf_server *s = qf_server(slot);
	struct qf_control *c = qf_control(slot);
	__u64 from = c->deadline_ns > at ? c->deadline_ns : at;

	if (!c->config.on || c->begun)
		return;
	c->begun = 1;
	c->deadline_ns = from + c->config.periods_per_job * s->config.period_ns;
}

/* The number of server periods by which the job ends after its deadline. If it is late, the next job begins at that
 * deadline. */
QF_INLINE __u64 qf_job_late(struct qf_control *c, __u64 period, __u64 now)
{
	__u64 late = c->begun && now > c->deadline_ns ? now - c->deadline_ns : 0;

	c->late_periods = qf_ceil_div(late, period);
	if (late)
		c->deadline_ns += c->config.periods_per_job * period;
	else
		c->begun = 0;
	return c->late_periods;
}

/* Ends the job. Returns the budget of the next one, or 0 if the server has no controller. */
QF_SUBPROGRAM __u64 qf_job_over(struct qf_machine *m, __u32 slot)
{
	struct qf_server *s = qf_server(slot);
	struct qf_control *c = qf_control(slot);
	__u64 late;

	s->jobs++;
	s->last_job_ns = s->job_used_ns;
	s->job_used_ns = 0;
	if (!c->config.on)
		return 0;
	late = qf_job_late(c, s->config.period_ns, m->now_ns);
	return qf_control_job(c, s->last_job_ns, late, s->config.period_ns);
}

#endif
