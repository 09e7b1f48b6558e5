/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Part of machine.h: creation, wake-up, blocking, end of jobs, change and removal of servers. */
#ifndef QF_SERVER_H
#define QF_SERVER_H

/* Checks a requested configuration. Every input from outside is checked here, even if a caller has checked it
 * before. */
QF_INLINE int qf_config_check(const struct qf_config *c)
{
	if (c->ask & ~QF_ASK_ALL || c->mode > QF_MODE_IRIS || c->reserved || c->reserved2)
		return -EINVAL;
	if (c->period_ns == 0 || c->period_ns > QF_PERIOD_MAX || c->arrival_ns > QF_ARRIVAL_MAX)
		return -ERANGE;
	if (c->service_ns == 0 || c->service_ns > c->period_ns)
		return -ERANGE;
	if (c->ask & QF_ASK_TASK_SERVER) {
		if (c->rest_num == 0 || c->rest_num > c->rest_den)
			return -EDOM;
		return c->x == 0 && c->y >= 1 && c->y <= QF_WINDOW_MAX + 1 ? 0 : -EDOM;
	}
	return c->x < c->y && c->y <= QF_WINDOW_MAX ? 0 : -EDOM;
}

/* Stores a configuration. The task server is last among equals. */
QF_INLINE void qf_config_take(struct qf_server *s, const struct qf_config *c)
{
	s->config = *c;
	s->came_ns = c->ask & QF_ASK_TASK_SERVER ? QF_NEVER : c->arrival_ns;
}

/* Initialises a server that belongs to no CPU yet. */
QF_INLINE void qf_server_init(struct qf_server *s, const struct qf_config *c)
{
	__builtin_memset(s, 0, sizeof(*s));
	qf_config_take(s, c);
	qf_window_restart(s);
	s->release_ns = c->arrival_ns;
	s->deadline_ns = c->arrival_ns + c->period_ns;
	s->left_ns = c->service_ns;
	s->state = QF_IS_ACTIVE | (c->ask & QF_ASK_READY ? QF_IS_READY : 0);
}

/* Places all servers of this CPU again after their key has changed. O(n). */
QF_SUBPROGRAM int qf_place_all(struct qf_machine *m)
{
	__u32 slot = qf_first_slot(m);

	while (slot < 1U << (m->height & 15)) {
		qf_may_goto_break;
		if (qf_is(qf_server(slot), QF_IS_ACTIVE) && qf_server(slot)->cpu == m->cpu)
			qf_place(m, slot);
		slot = qf_next_slot(slot);
	}
	return 0;
}

/* Counts GRUB servers of this CPU. With the first one, blocked servers must be placed: it matters now which are
 * active. */
QF_INLINE void qf_count_grub(struct qf_machine *m, bool is, bool was)
{
	m->grub += is - was;
	if (is && !was && m->grub == 1)
		qf_place_all(m);
}

/* Adds a server to this CPU. */
QF_SUBPROGRAM int qf_enter(struct qf_machine *m, __u32 slot)
{
	struct qf_server *s = qf_server(slot);

	for (__u32 level = 0; level < QF_LEVELS; level++) {
		if (QF_SLOT(slot) >> (m->height & 15) == 0)
			break;
		qf_tree_grow(&m->released, m->height);
		qf_tree_grow(&m->waiting, m->height);
		qf_tree_grow(&m->surplus, m->height);
		qf_tree_grow(&m->sinks, m->height);
		m->height++;
	}
	qf_nobody();
	s->cpu = m->cpu;
	qf_book(m, s, true);
	qf_count_grub(m, s->config.mode == QF_MODE_GRUB, false);
	if (qf_asks(s, QF_ASK_TASK_SERVER)) {
		m->task_server = QF_SLOT(slot);
		qf_retune(m, m->task_server);
		s->deadline_ns = s->release_ns + s->config.period_ns;
		s->left_ns = s->config.service_ns;
	}
	if (qf_asks(s, QF_ASK_BEST_EFFORT))
		m->best_effort = QF_SLOT(slot);
	return qf_place(m, slot);
}

/* Whether the slot exists. Works on a copy: a compiler that knows that the slot is in range drops the mask that the
 * verifier of Linux 6.19 needs. */
QF_INLINE bool qf_is_slot(__u32 slot)
{
	qf_opaque(slot);
	return slot && slot < QF_SLOTS;
}

/* Removes a server from this CPU, without its events. qf_enter() adds it to another CPU. */
QF_SUBPROGRAM int qf_leave(struct qf_machine *m, __u32 slot)
{
	struct qf_server *s = qf_server(slot);

	while (s->event_head) {
		qf_may_goto_break;
		s->events_late++;
		m->counts.events_late++;
		qf_event_pop(m, slot);
	}
	if (m->task_server == QF_SLOT(slot))
		m->task_server = 0;
	if (m->best_effort == QF_SLOT(slot))
		m->best_effort = 0;
	s->state &= ~QF_IS_READY;
	s->lag_ns = 0;
	qf_count_grub(m, false, s->config.mode == QF_MODE_GRUB);
	qf_place(m, slot);
	qf_book(m, s, false);
	return 0;
}

/* Creates a server on this CPU. -EBUSY: the slot is in use, or the CPU already has a server of this special kind;
 * -ENOENT: no such slot; otherwise as qf_config_check(). */
QF_SUBPROGRAM int qf_add(struct qf_machine *m, __u32 slot, const struct qf_config *c)
{
	int error = qf_config_check(c);

	if (error)
		return error;
	if (!qf_is_slot(slot))
		return -ENOENT;
	if (qf_is(qf_server(slot), QF_IS_ACTIVE))
		return -EBUSY;
	if ((c->ask & QF_ASK_TASK_SERVER && m->task_server) || (c->ask & QF_ASK_BEST_EFFORT && m->best_effort))
		return -EBUSY;
	qf_server_init(qf_server(slot), c);
	return qf_enter(m, slot);
}

/* Whether the server belongs to this CPU. */
QF_INLINE bool qf_has(const struct qf_machine *m, __u32 slot)
{
	return qf_is_slot(slot) && qf_is(qf_server(slot), QF_IS_ACTIVE) && qf_server(slot)->cpu == m->cpu;
}

QF_SUBPROGRAM int qf_remove(struct qf_machine *m, __u32 slot)
{
	if (!qf_has(m, slot))
		return -ENOENT;
	qf_leave(m, slot);
	qf_server(slot)->state = 0;
	qf_control(slot)->config.on = 0;
	return 0;
}

/* The server wants service again (see qf_get_ready()). */
QF_SUBPROGRAM int qf_wake(struct qf_machine *m, __u32 slot, __u64 now)
{
	struct qf_server *s = qf_server(slot);

	qf_bring_to(m, now);
	if (qf_is(s, QF_IS_READY) || !qf_is(s, QF_IS_ACTIVE))
		return 0;
	qf_get_ready(m, s);
	qf_job_begins(slot, m->now_ns);
	return qf_place(m, slot);
}

/* Whether the budget ran out in a period that has not ended yet. */
QF_INLINE bool qf_throttled(const struct qf_machine *m, const struct qf_server *s)
{
	return qf_is(s, QF_IS_EXHAUSTED) && s->release_ns > m->now_ns;
}

/* Adjusts the budget of the running period to a new C at once. A throttled server continues, in a period that already
 * counts as served; a server that used more than its new budget is served. */
QF_INLINE void qf_budget(struct qf_machine *m, __u32 slot, __u64 service)
{
	struct qf_server *s = qf_server(slot);
	__u64 old = s->config.service_ns;

	s->config.service_ns = service;
	qf_book(m, s, true);
	if (qf_throttled(m, s) && s->config.mode != QF_MODE_SOFT) {
		if (service <= old)
			return;
		s->deadline_ns = s->release_ns;
		s->release_ns = s->deadline_ns - s->config.period_ns;
		s->left_ns = service - old;
		s->state |= QF_IS_COUNTED;
	} else if (s->left_ns + service > old) {
		s->left_ns += service - old;
	} else {
		s->left_ns = 0;
	}
}

/* A job has ended: C becomes what the controller says. A waiting server keeps at least one unit of budget, so that it
 * can wake up. */
QF_INLINE void qf_next_job(struct qf_machine *m, __u32 slot)
{
	__u64 service = qf_job_over(m, slot);

	if (service)
		qf_budget(m, slot, service);
	qf_server(slot)->left_ns = qf_server(slot)->left_ns ?: 1;
}

/* The server wants no service from now on. `job_ends`: this also ends a job. */
QF_SUBPROGRAM int qf_block(struct qf_machine *m, __u32 slot, __u64 now, __u32 job_ends)
{
	struct qf_server *s = qf_server(slot);

	qf_bring_to(m, now);
	if (!qf_is(s, QF_IS_READY))
		return 0;
	if (job_ends)
		qf_next_job(m, slot);
	qf_get_unready(m, s);
	return qf_place(m, slot);
}

/* The job has ended and its thread waits for the next period (sched_yield): the rest of the budget lapses. Outside its
 * periods only the job ends. */
QF_SUBPROGRAM int qf_job_end(struct qf_machine *m, __u32 slot, __u64 now)
{
	struct qf_server *s = qf_server(slot);

	qf_bring_to(m, now);
	if (!qf_is(s, QF_IS_READY))
		return 0;
	s->state &= ~QF_IS_EXHAUSTED;
	qf_next_job(m, slot);
	s->state |= QF_IS_DONE;
	if (s->release_ns <= m->now_ns)
		qf_served(m, slot);
	else
		qf_place(m, slot);
	qf_job_begins(slot, s->release_ns);
	return 0;
}

/* Changes a server's parameters: C at once, T from the current deadline on, the window from its beginning. The arrival
 * and the special kind cannot change. */
QF_SUBPROGRAM int qf_change(struct qf_machine *m, __u32 slot, const struct qf_config *c, __u64 now)
{
	const __u32 kept = QF_ASK_READY | QF_ASK_BEST_EFFORT | QF_ASK_TASK_SERVER;
	struct qf_server *s = qf_server(slot);
	bool was = s->config.mode == QF_MODE_GRUB;
	int error = qf_config_check(c);

	if (error)
		return error;
	if (!qf_has(m, slot))
		return -ENOENT;
	if ((c->ask ^ s->config.ask) & (kept & ~QF_ASK_READY) || c->arrival_ns != s->config.arrival_ns)
		return -EINVAL;
	qf_bring_to(m, now);
	qf_budget(m, slot, c->service_ns);
	if (c->x != s->config.x || c->y != s->config.y) {
		s->config.x = c->x;
		s->config.y = c->y;
		qf_window_restart(s);
	}
	qf_config_take(s, c);
	qf_book(m, s, true);
	qf_count_grub(m, c->mode == QF_MODE_GRUB, was);
	if (s->release_ns > m->now_ns && !qf_reclaims(m, s, QF_MODE_SOFT))
		s->deadline_ns = s->release_ns + c->period_ns;
	if (s->left_ns == 0 && s->release_ns <= m->now_ns) {
		s->state &= ~QF_IS_OWED;
		return qf_served(m, slot);
	}
	s->left_ns = s->left_ns ?: 1;
	return qf_place(m, slot);
}

/* Sets what Table 5 knows about the network device. O(n) if it changed. */
QF_SUBPROGRAM int qf_set_network(struct qf_machine *m, __u32 network)
{
	if (network > QF_NETWORK_BUSY)
		return -EINVAL;
	if (network == m->network)
		return 0;
	m->network = network;
	return qf_place_all(m);
}

#endif
