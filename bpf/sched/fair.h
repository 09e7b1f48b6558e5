/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Best effort: weighted fair scheduling by virtual time. All CPUs share one queue, so that time which servers leave
 * unused is used on every CPU. A thread that may not run everywhere waits in the queue of its CPU. A CPU takes the
 * thread with the least virtual time from both queues.
 */
#ifndef QF_SCHED_FAIR_H
#define QF_SCHED_FAIR_H

#include "state.h"

/* A woken thread interrupts the running one only if its virtual time is smaller by at least this much. */
#define QF_WAKE_GRAIN_NS 1000000ULL

QF_INLINE bool qf_earlier(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

QF_INLINE u64 qf_weighted(u64 ns, u64 weight)
{
	return ns * 100 / (weight ? weight : 1);
}

/* Whether a thread cannot leave its CPU now. On some kernels a program runs with migration disabled for the current
 * thread: if that is the thread in question, one level of it is the program's own. */
QF_INLINE bool qf_is_pinned(const struct task_struct *p)
{
	if (p->migration_disabled == 1)
		return bpf_get_current_task_btf() != p;
	return p->migration_disabled;
}

/* ksoftirqd/N, which continues the work of interrupts, including the timers of this scheduler. If it had to wait for
 * its turn, no budget would end in time. */
QF_INLINE bool qf_is_softirq(const struct task_struct *p)
{
	return p->flags & PF_KTHREAD && p->nr_cpus_allowed == 1 && p->comm[0] == 'k' && p->comm[1] == 's' &&
	       p->comm[2] == 'o' && p->comm[3] == 'f';
}

/* A kernel thread of one CPU. When that CPU goes offline, the kernel waits for such threads before it calls
 * cpu_offline. */
QF_INLINE bool qf_is_bound_kernel(const struct task_struct *p)
{
	return p->flags & PF_KTHREAD && p->nr_cpus_allowed == 1;
}

/* Whether the thread's affinity contains every online CPU. A cpuset leaves out CPUs that are only possible. */
QF_INLINE bool qf_covers_online(const struct task_struct *p)
{
	const struct cpumask *online;
	bool covers;

	if (p->nr_cpus_allowed >= nr_cpus || p->nr_cpus_allowed == 1)
		return p->nr_cpus_allowed >= nr_cpus;
	online = scx_bpf_get_online_cpumask();
	covers = bpf_cpumask_subset(online, p->cpus_ptr);
	scx_bpf_put_cpumask(online);
	return covers;
}

/* Whether the thread may wait in the shared queue. */
QF_INLINE bool qf_goes_anywhere(const struct task_struct *p)
{
	return qf_covers_online(p) && !qf_is_pinned(p);
}

QF_INLINE u64 qf_fair_queue(const struct task_struct *p, s32 cpu)
{
	return qf_goes_anywhere(p) ? QF_DSQ_SHARED : QF_DSQ_CPU(cpu);
}

/* The virtual time that the running thread has reached in its turn. */
QF_INLINE u64 qf_turn_vtime(const struct qf_turn *turn, u64 now)
{
	u64 since = turn->since_ns;

	return turn->vtime + (since && since < now ? qf_weighted(now - since, turn->weight) : 0);
}

/* A thread that slept keeps at most one turn of unused time. */
QF_INLINE u64 qf_fair_vtime(const struct task_struct *p)
{
	u64 oldest = vtime_now - options.slice_ns;

	return qf_earlier(p->scx.dsq_vtime, oldest) ? oldest : p->scx.dsq_vtime;
}

/* For tests: extends the time between a verdict and the insertion that it orders. */
QF_INLINE void qf_linger(void)
{
	s32 i;

	bpf_for(i, 0, options.linger)
		bpf_ktime_get_ns();
}

/* Gives a verdict. The kernel inserts the thread after the operation has returned. */
QF_INLINE void qf_fair_insert(struct task_struct *p, u64 queue, u64 enq_flags)
{
	struct scx_bpf_dsq_insert_vtime_args args = {
		.dsq_id = queue,
		.slice = options.slice_ns,
		.vtime = qf_fair_vtime(p),
		.enq_flags = enq_flags & ~SCX_ENQ_PREEMPT,
	};

	__scx_bpf_dsq_insert_vtime(p, &args);
	qf_linger();
}

/* Whether the thread that runs on a CPU is just ending. It wakes threads that wait for its end, and an interruption
 * would make them wait for what it still holds. */
QF_INLINE bool qf_is_leaving(s32 cpu)
{
	return cpu == (s32)bpf_get_smp_processor_id() && bpf_get_current_task_btf()->flags & PF_EXITING;
}

/* Whether a CPU is idle. The caller holds the lock of its run queue. */
QF_INLINE bool qf_is_idle(s32 cpu)
{
	struct task_struct *current = scx_bpf_cpu_curr(cpu);

	return current && current->pid == 0;
}

/* Wakes an idle CPU to fetch the thread: its own CPU, else another one on which it may run. */
QF_INLINE bool qf_fair_wakes(struct task_struct *p, s32 cpu, u64 enq_flags)
{
	s32 idle;

	if (qf_is_idle(cpu)) {
		/* After a wake-up the kernel itself makes an idle CPU choose a thread. */
		if (scx_bpf_test_and_clear_cpu_idle(cpu) || !(enq_flags & SCX_ENQ_WAKEUP))
			qf_interrupt(cpu, SCX_KICK_IDLE);
		return true;
	}
	if (qf_is_pinned(p))
		return false;
	idle = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (idle >= 0)
		qf_interrupt(idle, SCX_KICK_IDLE);
	return idle >= 0;
}

/* A thread that has just woken interrupts the thread that runs on its CPU if that one's virtual time is clearly
 * larger. */
QF_INLINE void qf_fair_preempt(struct task_struct *p, s32 cpu)
{
	if (qf_is_leaving(cpu))
		return;
	if (qf_earlier(qf_fair_vtime(p) + QF_WAKE_GRAIN_NS, qf_turn_vtime(qf_turn(cpu), bpf_ktime_get_ns())))
		qf_interrupt(cpu, SCX_KICK_PREEMPT);
}

/* Whether a best-effort thread waits for this CPU. A thread on its way into a queue is not visible: the code that
 * inserts it informs the CPU. */
QF_INLINE bool qf_fair_waits(s32 cpu)
{
	return scx_bpf_dsq_nr_queued(QF_DSQ_SHARED) > 0 || scx_bpf_dsq_nr_queued(QF_DSQ_CPU(cpu)) > 0;
}

/* Queues a best-effort thread. Returns the CPU that may now decide differently, or -1. That is a CPU that serves a
 * server and decided so while no best-effort thread waited. Everything runs under the lock of that CPU's run queue,
 * which the CPU also holds when it decides; an interruption follows after the insertion. */
QF_INLINE s32 qf_fair_enqueue(struct task_struct *p, u64 queue, u64 enq_flags)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct qf_turn *turn = qf_turn(cpu);

	qf_fair_insert(p, queue, enq_flags);
	if (qf_fair_wakes(p, cpu, enq_flags))
		return -1;
	if (turn->best_effort && enq_flags & SCX_ENQ_WAKEUP)
		qf_fair_preempt(p, cpu);
	return turn->best_effort || turn->waits ? -1 : cpu;
}

struct qf_head {
	u64 vtime;
	u64 any;
};

/* `any` is opaque to the compiler, which would otherwise combine the pointers by arithmetic that the verifier
 * refuses. */
QF_INLINE struct qf_head qf_fair_head(u64 queue)
{
	struct qf_head head = {};
	struct task_struct *p;

	p = scx_bpf_dsq_peek(queue);
	if (p) {
		head.any = 1;
		head.vtime = p->scx.dsq_vtime;
	}
	qf_opaque(head.any);
	return head;
}

/* The first threads in the two queues from which a CPU takes best-effort threads. */
struct qf_line {
	struct qf_head shared, own;
};

QF_INLINE struct qf_line qf_fair_line(s32 cpu)
{
	struct qf_line line = { .shared = qf_fair_head(QF_DSQ_SHARED), .own = qf_fair_head(QF_DSQ_CPU(cpu)) };

	return line;
}

QF_INLINE bool qf_own_first(const struct qf_line *line)
{
	return line->own.any && (!line->shared.any || qf_earlier(line->own.vtime, line->shared.vtime));
}

/* Fetches the next best-effort thread for a CPU. Returns false if `prev`, which has run and would continue, is still
 * the first, or if no other thread waits. Before a CPU becomes idle it takes threads from the queues of other CPUs. */
QF_INLINE bool qf_fair_next(s32 cpu, struct task_struct *prev, const struct qf_line *line)
{
	bool own_first = qf_own_first(line), any = line->shared.any || line->own.any;
	u64 first = own_first ? line->own.vtime : line->shared.vtime;
	s32 i;

	if (prev && (!any || qf_earlier(prev->scx.dsq_vtime, first)))
		return false;
	if (own_first && scx_bpf_dsq_move_to_local(QF_DSQ_CPU(cpu)))
		return true;
	if (scx_bpf_dsq_move_to_local(QF_DSQ_SHARED) || scx_bpf_dsq_move_to_local(QF_DSQ_CPU(cpu)))
		return true;
	if (prev)
		return false;
	bpf_for(i, 0, nr_cpus) {
		if (i != cpu && scx_bpf_dsq_nr_queued(QF_DSQ_CPU(i)) && scx_bpf_dsq_move_to_local(QF_DSQ_CPU(i)))
			return true;
	}
	return false;
}

QF_INLINE void qf_fair_running(struct task_struct *p, s32 cpu, u64 now)
{
	struct qf_turn *turn = qf_turn(cpu);

	turn->since_ns = now;
	turn->vtime = p->scx.dsq_vtime;
	turn->weight = p->scx.weight;
	turn->best_effort = 1;
	if (qf_earlier(vtime_now, p->scx.dsq_vtime))
		vtime_now = p->scx.dsq_vtime;
}

QF_INLINE void qf_fair_stopping(struct task_struct *p, s32 cpu, u64 now)
{
	struct qf_turn *turn = qf_turn(cpu);

	if (!turn->best_effort)
		return;
	p->scx.dsq_vtime = qf_turn_vtime(turn, now);
	if (turn->since_ns && turn->since_ns < now)
		counts[qf_cpu_index(cpu)].best_effort_ns += now - turn->since_ns;
	turn->since_ns = 0;
	turn->best_effort = 0;
}

#endif
