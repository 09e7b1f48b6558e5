/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Threads and their servers: membership, counts of runnable members, and queues. */
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

/* Slots that user space may use. The slots of best effort are before them. */
QF_INLINE bool qf_is_user_slot(u32 slot)
{
	return slot > (u32)nr_cpus && slot < QF_SLOTS;
}

QF_INLINE bool qf_in_use(u32 slot)
{
	return qf_is_user_slot(slot) && qf_slot(slot)->generation & 1;
}

/* Changes the number of a server's members by one. */
QF_INLINE void qf_members(u64 word, s32 by)
{
	if (qf_valid(word))
		__sync_fetch_and_add(&qf_slot(qf_slot_of(word))->threads, by);
}

/* Removes an ending thread from its server. Called when the thread ends or when it is to join, whichever comes
 * first. */
QF_INLINE int qf_quit(struct qf_thread *t)
{
	qf_members(__sync_lock_test_and_set(&t->wanted, 0), -1);
	return -ESRCH;
}

/* Whether a thread may run on the CPU of a server. */
QF_INLINE bool qf_fits(const struct task_struct *p, u32 slot)
{
	u32 cpu = qf_slot(slot)->cpu;

	if (!qf_is_online((s32)cpu))
		return false;
	return bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

/* Changes the number of a server's runnable members by one. */
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
		qf_raise_one(&c->machine, slot, QF_NEVER);
	bpf_spin_unlock(&c->lock);
	return 0;
}

/* The slot in which the thread is counted as runnable now. 0: best effort. */
QF_INLINE u32 qf_counted_slot(const struct qf_thread *t)
{
	u64 word = t ? t->counted : 0;

	return qf_valid(qf_server_of(word)) ? qf_slot_of(word) : 0;
}

/* The thread becomes runnable. */
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

/* The thread is no longer runnable. */
QF_INLINE void qf_depart(struct qf_thread *t, u64 flags, u64 now)
{
	u64 old = __sync_lock_test_and_set(&t->counted, 0);

	if (qf_server_of(old))
		qf_count(qf_server_of(old), -1, now, flags);
}

/* A thread that got its record while it was already runnable is counted when the scheduler next handles it. */
QF_INLINE struct qf_thread *qf_met(struct task_struct *p)
{
	struct qf_thread *t = qf_thread(p);

	if (t && !(t->counted & QF_RUNNABLE))
		qf_arrive(p, t, 0, bpf_ktime_get_ns());
	return t;
}

/* Whether the thread waits for a CPU or has one, and is not about to sleep. */
QF_INLINE bool qf_is_active(const struct task_struct *p)
{
	return p->scx.flags & SCX_TASK_QUEUED && !p->__state;
}

/*
 * Recounts a thread whose server has changed while it may be runnable. This runs on any CPU, without the lock of the
 * thread's run queue. A thread with a new record is not counted yet. If it falls asleep meanwhile, nothing else would
 * take the count back, so its state is checked a second time.
 */
QF_INLINE void qf_recount(struct task_struct *p, struct qf_thread *t, u64 now)
{
	u64 to = t->wanted, old = t->counted;

	if (!qf_valid(to) || !qf_fits(p, qf_slot_of(to)))
		to = 0;
	if ((!(old & QF_RUNNABLE) && !qf_is_active(p)) || old == (to | QF_RUNNABLE))
		return;
	if (__sync_val_compare_and_swap(&t->counted, old, to | QF_RUNNABLE) != old)
		return; /* it has just become runnable or not runnable, which counted it correctly */
	if (qf_server_of(old))
		qf_count(qf_server_of(old), -1, now, 0);
	if (to)
		qf_count(to, 1, now, 0);
	if (!(old & QF_RUNNABLE) && !qf_is_active(p))
		qf_depart(t, 0, now);
}

/* The queue in which a thread waits now. */
QF_INLINE u64 qf_queue_of(struct task_struct *p, u32 slot)
{
	s32 cpu = scx_bpf_task_cpu(p);

	if (!slot || !qf_fits(p, slot) || (qf_is_pinned(p) && (u32)cpu != qf_slot(slot)->cpu))
		return qf_fair_queue(p, cpu);
	return slot;
}

/* Queues a thread in its server's queue. Returns the CPU that may now decide differently, or -1. */
QF_INLINE s32 qf_member_enqueue(struct task_struct *p, u32 slot, u64 enq_flags)
{
	scx_bpf_dsq_insert___v2___kernel(p, slot, options.slice_ns, enq_flags & ~SCX_ENQ_PREEMPT);
	qf_linger();
	return enq_flags & SCX_ENQ_LAST && (u32)scx_bpf_task_cpu(p) == qf_slot(slot)->cpu ? -1 : (s32)qf_slot(slot)->cpu;
}

/* Moves all threads that wait in a server's queue to another queue, as best effort. */
QF_SUBPROGRAM int qf_hand_over(u32 slot, u64 queue)
{
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, slot, 0) {
		scx_bpf_dsq_move_set_vtime(QF_ITER, qf_fair_vtime(p));
		scx_bpf_dsq_move_vtime(QF_ITER, p, queue, 0);
	}
	return 0;
}

/* Moves all threads that wait for an offline CPU. Threads that belong to that CPU go into its local queue, and the
 * kernel then moves them to wherever they may run; the others become best effort. In a queue without a CPU they would
 * stall the machine. */
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

/* Empties all queues of an offline CPU. */
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
 * Empties queues of offline CPUs, at a CPU's first decision after another CPU went offline. A thread may be on its way
 * into such a queue, by a verdict given while that CPU was still online. Verdict and insertion are made under the lock
 * of one run queue, and its CPU also holds that lock when it decides. So each CPU finds threads that were on their way
 * under its lock; later verdicts take the departure into account.
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

/* Makes all CPUs empty the queues of offline CPUs at their next decision. */
QF_INLINE void qf_departed(void)
{
	s32 cpu;

	__sync_fetch_and_add(&departures, 1);
	bpf_for(cpu, 0, nr_cpus)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/* A CPU goes offline or online: no decision is in force, and the kernel has cancelled its timer. */
QF_INLINE void qf_begin_anew(struct qf_cpu *c, u32 online, u64 now)
{
	bpf_spin_lock(&c->lock);
	qf_settle(c, now);
	__builtin_memset(&c->decision, 0, sizeof(c->decision));
	c->since_ns = 0;
	c->armed_ns = 0;
	bpf_spin_unlock(&c->lock);
	counts[qf_cpu_index((s32)c->cpu)].online = online;
	raised.online[qf_cpu_index((s32)c->cpu)] = online;
}

/* The servers of an offline CPU want no service; their threads are best effort on other CPUs (qf_fits()). */
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

/* The servers of a CPU that is online again serve the threads that are still counted in them. */
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
