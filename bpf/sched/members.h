/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Threads and their servers: who belongs where, who is counted as runnable where, who waits in which queue. */
#ifndef QF_SCHED_MEMBERS_H
#define QF_SCHED_MEMBERS_H

#include "cpu.h"

QF_INLINE struct qf_slot *qf_slot(u32 slot)
{
	return &slots[QF_SLOT(slot)];
}

/* Whether the word names a server that still exists. */
QF_INLINE bool qf_valid(u64 word)
{
	return qf_slot_of(word) && qf_slot(qf_slot_of(word))->generation == qf_generation_of(word);
}

/* Slots that user space may use: those of best effort come before. */
QF_INLINE bool qf_is_user_slot(u32 slot)
{
	return slot > (u32)nr_cpus && slot < QF_SLOTS;
}

QF_INLINE bool qf_in_use(u32 slot)
{
	return qf_is_user_slot(slot) && qf_slot(slot)->generation & 1;
}

/* A server has one member more or less. */
QF_INLINE void qf_members(u64 word, s32 by)
{
	if (qf_valid(word))
		__sync_fetch_and_add(&qf_slot(qf_slot_of(word))->threads, by);
}

/* A thread that ends is a member no more, whoever sees it first: its end, or who wanted it to join. */
QF_INLINE int qf_quit(struct qf_thread *t)
{
	qf_members(__sync_lock_test_and_set(&t->wanted, 0), -1);
	return -ESRCH;
}

/* Whether a thread can run where its server serves. */
QF_INLINE bool qf_fits(const struct task_struct *p, u32 slot)
{
	u32 cpu = qf_slot(slot)->cpu;

	if (!qf_is_online((s32)cpu))
		return false;
	return bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

/* One more, or one less, of a server's members is runnable. */
QF_GLOBAL int qf_count(u64 word, s32 by, u64 now, u64 flags)
{
	u32 slot = qf_slot_of(word);
	struct qf_slot *s = qf_slot(slot);
	struct qf_cpu *c;
	s32 before;

	if (!qf_valid(word))
		return 0;
	c = qf_cpu((s32)s->cpu);
	if (!c)
		return 0;
	bpf_spin_lock(&c->lock);
	qf_settle(c, now);
	before = s->runnable;
	s->runnable = before + by;
	if (before == 0 && by > 0)
		qf_wake(&c->machine, slot, now);
	if (before == 1 && by < 0)
		qf_block(&c->machine, slot, now, !!(flags & SCX_DEQ_SLEEP));
	if (by > 0 && flags & SCX_ENQ_WAKEUP && s->flags & QF_SLOT_WAKE_EVENTS)
		qf_raise(&c->machine, slot, QF_NEVER);
	bpf_spin_unlock(&c->lock);
	return 0;
}

/* Where it is counted now; 0 for best effort. */
QF_INLINE u32 qf_counted_slot(const struct qf_thread *t)
{
	u64 word = t ? t->counted : 0;

	return qf_valid(qf_server_of(word)) ? qf_slot_of(word) : 0;
}

/* Becomes runnable. */
QF_INLINE void qf_arrive(struct task_struct *p, struct qf_thread *t, u64 flags, u64 now)
{
	u64 to = t->wanted, old;

	if (!qf_valid(to) || !qf_fits(p, qf_slot_of(to)))
		to = 0;
	old = __sync_lock_test_and_set(&t->counted, to | QF_RUNNABLE);
	if (qf_server_of(old))
		qf_count(qf_server_of(old), -1, now, 0);
	if (to)
		qf_count(to, 1, now, flags);
	t->woken_ns = flags & SCX_ENQ_WAKEUP ? now : 0;
}

/* Is runnable no more. */
QF_INLINE void qf_depart(struct qf_thread *t, u64 flags, u64 now)
{
	u64 old = __sync_lock_test_and_set(&t->counted, 0);

	if (qf_server_of(old))
		qf_count(qf_server_of(old), -1, now, flags);
}

/* One who got its record while it was runnable already is counted when the scheduler meets it. */
QF_INLINE struct qf_thread *qf_met(struct task_struct *p)
{
	struct qf_thread *t = qf_thread(p);

	if (t && !(t->counted & QF_RUNNABLE))
		qf_arrive(p, t, 0, bpf_ktime_get_ns());
	return t;
}

/* Whether it waits for a CPU or has one, and is not about to sleep. */
QF_INLINE bool qf_is_active(const struct task_struct *p)
{
	return p->scx.flags & SCX_TASK_QUEUED && !p->__state;
}

/*
 * Its server has changed while it may be runnable: from another CPU, without its queue's lock. One whose record is new
 * is not counted yet. Were it to fall asleep meanwhile, nobody would take the count back: hence the second look.
 */
QF_INLINE void qf_recount(struct task_struct *p, struct qf_thread *t, u64 now)
{
	u64 to = t->wanted, old = t->counted;

	if (!qf_valid(to) || !qf_fits(p, qf_slot_of(to)))
		to = 0;
	if ((!(old & QF_RUNNABLE) && !qf_is_active(p)) || old == (to | QF_RUNNABLE))
		return;
	if (__sync_val_compare_and_swap(&t->counted, old, to | QF_RUNNABLE) != old)
		return; /* it has just become runnable or stopped being so, and went where it belongs */
	if (qf_server_of(old))
		qf_count(qf_server_of(old), -1, now, 0);
	if (to)
		qf_count(to, 1, now, 0);
	if (!(old & QF_RUNNABLE) && !qf_is_active(p))
		qf_depart(t, 0, now);
}

/* Where a thread waits now. */
QF_INLINE u64 qf_queue_of(struct task_struct *p, u32 slot)
{
	s32 cpu = scx_bpf_task_cpu(p);

	if (!slot || !qf_fits(p, slot) || (qf_is_pinned(p) && (u32)cpu != qf_slot(slot)->cpu))
		return qf_fair_queue(p, cpu);
	return slot;
}

/* Waits in its server's queue. Answers the CPU that may decide otherwise now, or -1. */
QF_INLINE s32 qf_member_enqueue(struct task_struct *p, u32 slot, u64 enq_flags)
{
	scx_bpf_dsq_insert___v2___kernel(p, slot, options.slice_ns, enq_flags & ~SCX_ENQ_PREEMPT);
	qf_linger();
	return enq_flags & SCX_ENQ_LAST && (u32)scx_bpf_task_cpu(p) == qf_slot(slot)->cpu ? -1 : (s32)qf_slot(slot)->cpu;
}

/* All who wait in a server's queue go on as best effort in another queue. */
QF_SUBPROGRAM int qf_hand_over(u32 slot, u64 queue)
{
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, slot, 0) {
		scx_bpf_dsq_move_set_vtime(QF_ITER, qf_fair_vtime(p));
		scx_bpf_dsq_move_vtime(QF_ITER, p, queue, 0);
	}
	return 0;
}

/* All who wait for a CPU that has gone. Those that are on it are put on it, and the kernel sends them wherever they may
 * run then; the others are best effort elsewhere. Left in a queue that nobody serves they would stall the machine. */
QF_SUBPROGRAM int qf_let_go(u64 queue, s32 cpu)
{
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, queue, 0) {
		if (scx_bpf_task_cpu(p) == cpu) {
			scx_bpf_dsq_move(QF_ITER, p, SCX_DSQ_LOCAL_ON | (u32)cpu, 0);
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
			continue;
		}
		scx_bpf_dsq_move_set_vtime(QF_ITER, qf_fair_vtime(p));
		scx_bpf_dsq_move_vtime(QF_ITER, p, QF_DSQ_SHARED, 0);
	}
	return 0;
}

/* Lets go of all queues of CPUs that have gone. */
QF_GLOBAL int qf_empty(s32 cpu)
{
	s32 slot;

	if (qf_is_online(cpu))
		return 0;
	bpf_for(slot, nr_cpus + 1, QF_SLOTS) {
		if (qf_in_use((u32)slot) && qf_slot((u32)slot)->cpu == (u32)cpu && scx_bpf_dsq_nr_queued((u32)slot) > 0)
			qf_let_go((u32)slot, cpu);
	}
	return scx_bpf_dsq_nr_queued(QF_DSQ_CPU(cpu)) > 0 ? qf_let_go(QF_DSQ_CPU(cpu), cpu) : 0;
}

/*
 * A thread may have been on its way into such a queue: its verdict was given while the CPU was still there. Verdict and
 * insertion are made under the lock of one run queue, whose CPU holds it as well when it decides. So each CPU gathers
 * once with its first decision after a departure: what was on its way under its lock is found then, and what comes
 * later knows of the departure.
 */
QF_INLINE void qf_gather(s32 cpu)
{
	u32 now = *(volatile u32 *)&departures;
	s32 gone;

	if (qf_turn(cpu)->departure == now)
		return;
	qf_turn(cpu)->departure = now;
	bpf_for(gone, 0, nr_cpus)
		qf_empty(gone);
}

/* All CPUs are to gather. */
QF_INLINE void qf_departed(void)
{
	s32 cpu;

	__sync_fetch_and_add(&departures, 1);
	bpf_for(cpu, 0, nr_cpus)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/* A CPU goes, or is there again: no decision is in force, and the kernel has taken its timer. */
QF_INLINE void qf_begin_anew(struct qf_cpu *c, u32 online, u64 now)
{
	bpf_spin_lock(&c->lock);
	qf_settle(c, now);
	__builtin_memset(&c->decision, 0, sizeof(c->decision));
	c->since_ns = 0;
	c->armed_ns = 0;
	bpf_spin_unlock(&c->lock);
	counts[qf_cpu_index((s32)c->cpu)].online = online;
}

/* Servers of a CPU that is gone want nothing; their threads are best effort elsewhere (qf_fits()). */
QF_GLOBAL int qf_suspend(s32 cpu)
{
	struct qf_cpu *c = qf_cpu(cpu);
	u64 now = bpf_ktime_get_ns();
	s32 slot;

	if (!c)
		return 0;
	qf_begin_anew(c, 0, now);
	bpf_for(slot, nr_cpus + 1, QF_SLOTS) {
		if (!qf_in_use((u32)slot) || qf_slot((u32)slot)->cpu != (u32)cpu)
			continue;
		bpf_spin_lock(&c->lock);
		qf_block(&c->machine, (u32)slot, now, 0);
		bpf_spin_unlock(&c->lock);
	}
	qf_empty(cpu);
	qf_departed();
	return 0;
}

/* They serve again those who still count as theirs. */
QF_GLOBAL int qf_resume(s32 cpu)
{
	struct qf_cpu *c = qf_cpu(cpu);
	u64 now = bpf_ktime_get_ns();
	s32 slot;

	if (!c)
		return 0;
	qf_begin_anew(c, 1, now);
	bpf_for(slot, nr_cpus + 1, QF_SLOTS) {
		if (!qf_in_use((u32)slot) || qf_slot((u32)slot)->cpu != (u32)cpu)
			continue;
		bpf_spin_lock(&c->lock);
		if (qf_slot((u32)slot)->runnable > 0)
			qf_wake(&c->machine, (u32)slot, now);
		bpf_spin_unlock(&c->lock);
	}
	return 0;
}

#endif
