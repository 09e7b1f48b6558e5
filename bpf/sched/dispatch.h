/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The next thread of a CPU: the machine decides on a server, and a queue provides the thread. */
#ifndef QF_SCHED_DISPATCH_H
#define QF_SCHED_DISPATCH_H

#include "members.h"

/* The thread that ran last continues, under the decision in force. */
QF_INLINE void qf_keep(struct task_struct *prev, struct qf_cpu *c, s32 cpu, u64 now)
{
	scx_bpf_task_set_slice(prev, options.slice_ns);
	c->since_ns = now;
	if (c->decision.kind == QF_KIND_BEST_EFFORT || c->decision.kind == QF_KIND_IDLE)
		qf_fair_running(prev, cpu, now);
}

/* Runs a best-effort thread, if there is any. */
QF_INLINE void qf_dispatch_fair(struct qf_cpu *c, s32 cpu, struct task_struct *prev, const struct qf_line *line, u64 now)
{
	if (qf_fair_next(cpu, prev, line))
		return;
	if (prev)
		qf_keep(prev, c, cpu, now);
}

/* Runs a thread of the server. Returns false if none can run. */
QF_INLINE bool qf_dispatch_server(struct qf_cpu *c, s32 cpu, struct task_struct *prev, u32 slot, u64 now)
{
	if (prev && scx_bpf_dsq_nr_queued(slot) == 0) {
		qf_keep(prev, c, cpu, now);
		return true;
	}
	if (scx_bpf_dsq_move_to_local(slot))
		return true;
	if (prev)
		qf_keep(prev, c, cpu, now);
	return prev;
}

/* The chosen server has no thread that can run here now (it is on its way): best effort gets the time. */
QF_INLINE void qf_decision_lost(struct qf_cpu *c, u32 slot)
{
	qf_slot(slot)->lost++;
	bpf_spin_lock(&c->lock);
	c->decision.slot = 0;
	c->decision.kind = QF_KIND_BEST_EFFORT;
	c->decision.task_server = 0;
	bpf_spin_unlock(&c->lock);
}

/* Whether a thread belongs to best effort on this CPU: it has no server, or it cannot leave the CPU. */
QF_INLINE bool qf_is_fair_here(struct task_struct *p, u32 slot, s32 cpu)
{
	return !slot || qf_queue_of(p, slot) >= QF_SLOTS;
}

/* Counts a throttling if the previous decision used up the server's budget. */
QF_INLINE void qf_budget_over(const struct qf_decision *was, u32 mine)
{
	u32 slot = QF_SLOT(was->slot);

	if (!slot || was->kind != QF_KIND_REGULAR || !qf_is(qf_server(slot), QF_IS_EXHAUSTED))
		return;
	if (slot == mine || scx_bpf_dsq_nr_queued(slot) > 0)
		qf_slot(slot)->throttles++;
}

/* The server that the decision in force names. 0: best effort or idle. */
QF_INLINE u32 qf_chosen(const struct qf_cpu *c)
{
	u32 kind = c->decision.kind, slot = c->decision.slot;

	qf_opaque(slot);
	return kind == QF_KIND_REGULAR || kind == QF_KIND_EXTRA ? QF_SLOT(slot) : 0;
}

QF_INLINE void qf_dispatch_cpu(struct qf_cpu *c, s32 cpu, struct task_struct *prev)
{
	u64 now = bpf_ktime_get_ns();
	u32 mine = prev ? qf_counted_slot(qf_thread(prev)) : 0;
	struct qf_decision was = c->decision;
	struct qf_line line;
	bool fair;
	u32 slot;

	if (!counts[qf_cpu_index(cpu)].online)
		qf_resume(cpu);
	qf_gather(cpu);
	if (c->since_ns)
		qf_pause(cpu, now);
	fair = prev && qf_is_fair_here(prev, mine, cpu);
	if (prev)
		qf_fair_stopping(prev, cpu, now);
	if (raised.dirty[qf_cpu_index(cpu)])
		qf_drain(cpu);
	line = qf_fair_line(cpu);
	qf_decide_now(cpu, now, fair || line.shared.any || line.own.any);
	qf_budget_over(&was, mine);
	slot = qf_chosen(c);
	if (!slot || !qf_dispatch_server(c, cpu, slot == mine ? prev : NULL, slot, now)) {
		if (slot)
			qf_decision_lost(c, slot);
		qf_dispatch_fair(c, cpu, fair ? prev : NULL, &line, now);
	}
	qf_arm(c, c->decision.until_ns);
}

/* Whether a thread runs in accordance with the decision in force. */
QF_INLINE bool qf_as_decided(const struct qf_cpu *c, struct task_struct *p, u32 slot, s32 cpu)
{
	if (c->decision.kind == QF_KIND_REGULAR || c->decision.kind == QF_KIND_EXTRA)
		return c->decision.slot == slot;
	return qf_is_fair_here(p, slot, cpu);
}

QF_INLINE void qf_delay(struct qf_thread *t, u32 slot, u64 now)
{
	struct qf_slot *s = qf_slot(slot);
	u64 delay = now - t->woken_ns;

	t->woken_ns = 0;
	s->delay_ns = delay;
	s->delay_sum_ns += delay;
	s->wakeups++;
	if (delay > s->delay_max_ns)
		s->delay_max_ns = delay;
}

/*
 * A scheduler checkpoint (000 §6.4.2.1): the CPU asks for the clock that all reservations need; or, if the service
 * that is left to the server does not fit at this clock into the time until its deadline, for the clock at which it
 * fits, with 5 % to spare. The governor schedutil follows, other governors do not.
 */
QF_GLOBAL int qf_checkpoint(s32 cpu, u32 slot, u64 now)
{
	const struct qf_server *s = qf_server(slot);
	u64 part = clock_part, want = part;
	u64 left = slot ? s->left_ns : 0;
	u64 time = s->deadline_ns > now ? s->deadline_ns - now : 1;

	if (!part || !bpf_ksym_exists(scx_bpf_cpuperf_set))
		return 0;
	if (left > time)
		want = left < time << 10 ? part * left / time * 20 / 19 : SCX_CPUPERF_ONE;
	if (want > SCX_CPUPERF_ONE)
		want = SCX_CPUPERF_ONE;
	if (qf_turn(cpu)->clock != want) {
		qf_turn(cpu)->clock = (u32)want;
		scx_bpf_cpuperf_set(cpu, (u32)want);
	}
	return 0;
}

/*
 * A thread begins to run. A thread that runs against the decision (it got here without this scheduler) is sent back at
 * once; until then it counts as best effort.
 *
 * After idle time that the timer ended, the CPU is kicked once more. Linux 7.1 and later do not update the clock of the
 * run queue at the next choice of a thread if the thread before was put into the local queue of an idle CPU without a
 * wake-up (rq_owned_post_enq() calls wakeup_preempt(), which calls rq_clock_skip_update()). The kernel's own account of
 * that thread, and so every clock of its CPU time, would lose the time from the last tick on: up to all of a short
 * service.
 */
QF_INLINE void qf_begins(struct qf_cpu *c, s32 cpu, struct task_struct *p)
{
	struct qf_thread *t = qf_met(p);
	u64 now = bpf_ktime_get_ns();
	u32 slot = qf_counted_slot(t);

	if (t && slot && t->woken_ns)
		qf_delay(t, slot, now);
	if (c->stale || c->resumed || qf_rings(cpu))
		qf_kick(cpu);
	c->resumed = 0;
	if (qf_is_bound_kernel(p)) {
		qf_fair_running(p, cpu, now);
		return;
	}
	if (!qf_as_decided(c, p, slot, cpu)) {
		qf_fair_running(p, cpu, now);
		qf_kick(cpu);
		return;
	}
	c->since_ns = now;
	if (c->decision.kind == QF_KIND_BEST_EFFORT || c->decision.kind == QF_KIND_IDLE)
		qf_fair_running(p, cpu, now);
	/* The kernel ends a scheduler that names another CPU than the one whose run queue is locked. */
	qf_checkpoint(scx_bpf_task_cpu(p), slot, now);
}

/* A thread stops. The rest of its slice is cleared, so that it runs again only after a decision. */
QF_INLINE void qf_stops(struct qf_cpu *c, s32 cpu, struct task_struct *p, bool runnable)
{
	u64 now = bpf_ktime_get_ns();

	if (c->since_ns)
		qf_pause(cpu, now);
	qf_fair_stopping(p, cpu, now);
	if (runnable && p->scx.slice)
		scx_bpf_task_set_slice(p, 0);
	/* An idle CPU would hold up the clock of its neighbours. Not between two threads: schedutil follows the first of two
	 * requests within its rate limit. */
	if (!runnable && qf_turn(cpu)->clock > clock_part)
		qf_checkpoint(scx_bpf_task_cpu(p), 0, now);
}

#endif
