// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The CPU scheduler: DWCS servers for threads that joined one, fair scheduling for all others, on all CPUs.
 *
 *   state.h     data: options, threads, the scheduler's part of servers
 *   fair.h      best effort: weighted virtual time
 *   cpu.h       one CPU: its machine (include/machine.h) under a lock, its timer
 *   members.h   threads and their servers: counts and queues
 *   dispatch.h  the choice of the next thread
 *   commands.h  commands from user space
 *   this file   the operations, in the order of a thread's life, and their table
 *
 * Only ksoftirqd, and kernel threads of one CPU when they wake, go directly into a CPU's local queue. Every other
 * thread passes a decision of the machine, also after a real-time thread has interrupted it. If something goes wrong,
 * the kernel ends the scheduler, and all threads are under the kernel's own scheduler again.
 */
#include "commands.h"
#include <bpf/bpf_tracing.h>

#define QF_OP(name, args...) SEC("struct_ops/" #name) BPF_PROG(qf_op_##name, ##args)

s32 QF_OP(select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct qf_thread *t = qf_thread(p);
	bool idle = false;

	if (t && qf_valid(t->wanted) && qf_fits(p, qf_slot_of(t->wanted)))
		return (s32)qf_slot(qf_slot_of(t->wanted))->cpu;
	return scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);
}

void QF_OP(runnable, struct task_struct *p, u64 enq_flags)
{
	struct qf_thread *t = qf_thread(p);

	if (t)
		qf_arrive(p, t, enq_flags, bpf_ktime_get_ns());
}

void QF_OP(enqueue, struct task_struct *p, u64 enq_flags)
{
	u32 slot = qf_counted_slot(qf_met(p));
	u64 queue;
	s32 cpu;

	if (qf_is_softirq(p)) {
		scx_bpf_dsq_insert___v2___kernel(p, SCX_DSQ_LOCAL, options.slice_ns, SCX_ENQ_HEAD | SCX_ENQ_PREEMPT);
		return;
	}
	if (qf_is_bound_kernel(p) && enq_flags & SCX_ENQ_WAKEUP) {
		scx_bpf_dsq_insert___v2___kernel(p, SCX_DSQ_LOCAL, options.slice_ns, enq_flags & ~SCX_ENQ_PREEMPT);
		return;
	}
	queue = qf_queue_of(p, slot);
	cpu = queue < QF_SLOTS ? qf_member_enqueue(p, slot, enq_flags) : qf_fair_enqueue(p, queue, enq_flags);
	if (cpu >= 0)
		qf_reconsider(cpu, queue >= QF_SLOTS, !!(enq_flags & SCX_ENQ_WAKEUP));
}

void QF_OP(dispatch, s32 cpu, struct task_struct *prev)
{
	struct qf_cpu *c = qf_cpu(cpu);

	if (prev && !(prev->scx.flags & SCX_TASK_QUEUED))
		prev = NULL;
	if (c)
		qf_dispatch_cpu(c, cpu, prev);
}

void QF_OP(running, struct task_struct *p)
{
	s32 cpu = (s32)bpf_get_smp_processor_id();
	struct qf_cpu *c = qf_cpu(cpu);

	if (c)
		qf_begins(c, cpu, p);
}

/* Replaces a timer that did not fire in time, and a kick that was discarded. Handlers may interrupt the CPU again. */
void QF_OP(tick, struct task_struct *p)
{
	s32 cpu = (s32)bpf_get_smp_processor_id();
	struct qf_cpu *c = qf_cpu(cpu);

	if (!c)
		return;
	raised.kicks[qf_cpu_index(cpu)] = QF_KICKS;
	if (c->armed_ns && c->armed_ns + QF_TIMER_LATE_NS < bpf_ktime_get_ns()) {
		counts[qf_cpu_index(cpu)].late++;
		c->armed_ns = 0;
		qf_kick(cpu);
	} else if (raised.dirty[qf_cpu_index(cpu)] || c->stale) {
		qf_kick(cpu);
	}
}

void QF_OP(stopping, struct task_struct *p, bool runnable)
{
	s32 cpu = (s32)bpf_get_smp_processor_id();
	struct qf_cpu *c = qf_cpu(cpu);

	if (c)
		qf_stops(c, cpu, p, runnable);
}

void QF_OP(quiescent, struct task_struct *p, u64 deq_flags)
{
	struct qf_thread *t = qf_thread(p);

	if (t)
		qf_depart(t, deq_flags, bpf_ktime_get_ns());
}

/* Ends the job of a member. A best-effort thread goes behind all others. */
bool QF_OP(yield, struct task_struct *from, struct task_struct *to)
{
	s32 cpu = (s32)bpf_get_smp_processor_id();
	u32 slot = qf_counted_slot(qf_thread(from));
	struct qf_cpu *c = qf_cpu(cpu);
	u64 now = bpf_ktime_get_ns();

	if (to)
		return false;
	if (slot && c && c->decision.slot == slot) {
		bpf_spin_lock(&c->lock);
		qf_settle(c, now);
		qf_job_end(&c->machine, slot, now);
		bpf_spin_unlock(&c->lock);
	} else if (!slot && qf_earlier(from->scx.dsq_vtime, vtime_now)) {
		from->scx.dsq_vtime = vtime_now;
	}
	scx_bpf_task_set_slice(from, 0);
	return false;
}

/* A thread is created, or existed before the scheduler. It joins its parent's server if that was requested. Threads
 * without a server have no record. */
SEC("struct_ops.s/init_task")
s32 BPF_PROG(qf_op_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct qf_thread *parent, *t;
	u64 word;

	parent = args->fork ? bpf_task_storage_get(&threads, bpf_get_current_task_btf(), NULL, 0) : NULL;
	if (!parent || !parent->children)
		return 0;
	word = parent->wanted;
	if (!qf_valid(word))
		return 0;
	t = bpf_task_storage_get(&threads, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t)
		return -ENOMEM;
	t->wanted = word;
	t->children = 1;
	qf_members(word, 1);
	return 0;
}

void QF_OP(exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct qf_thread *t = qf_thread(p);

	if (t)
		qf_quit(t);
}

void QF_OP(enable, struct task_struct *p)
{
	p->scx.dsq_vtime = vtime_now;
}

/* Empty: the servers of the CPU resume with its first decision (qf_resume()), because the kernel discards what it is
 * told before that. The decision comes when the thread that brought the CPU online sleeps. (Without this operation the
 * kernel would end the scheduler.) */
void QF_OP(cpu_online, s32 cpu)
{
}

void QF_OP(cpu_offline, s32 cpu)
{
	qf_suspend(cpu);
}

SEC("struct_ops.s/init")
s32 BPF_PROG(qf_op_init)
{
	s32 i, error;

	nr_cpus = (s32)options.cpus;
	error = scx_bpf_create_dsq(QF_DSQ_SHARED, -1);
	bpf_for(i, 0, nr_cpus) {
		error = error ?: scx_bpf_create_dsq(QF_DSQ_CPU(i), -1);
		error = error ?: qf_cpu_init(i);
	}
	bpf_for(i, 1, QF_SLOTS) {
		error = error ?: scx_bpf_create_dsq((u64)i, -1);
	}
	return error;
}

/* The kind is written last: user space reads the reason as soon as the kind is not 0. */
void QF_OP(exit, struct scx_exit_info *info)
{
	exited.code = info->exit_code;
	bpf_probe_read_kernel_str(exited.reason, sizeof(exited.reason), info->reason);
	bpf_probe_read_kernel_str(exited.message, sizeof(exited.message), info->msg);
	__sync_fetch_and_add(&exited.kind, (s32)info->kind);
}

SEC(".struct_ops.link")
struct sched_ext_ops qfabric = {
	.select_cpu = (void *)qf_op_select_cpu,
	.enqueue = (void *)qf_op_enqueue,
	.dispatch = (void *)qf_op_dispatch,
	.tick = (void *)qf_op_tick,
	.runnable = (void *)qf_op_runnable,
	.running = (void *)qf_op_running,
	.stopping = (void *)qf_op_stopping,
	.quiescent = (void *)qf_op_quiescent,
	.yield = (void *)qf_op_yield,
	.init_task = (void *)qf_op_init_task,
	.exit_task = (void *)qf_op_exit_task,
	.enable = (void *)qf_op_enable,
	.cpu_online = (void *)qf_op_cpu_online,
	.cpu_offline = (void *)qf_op_cpu_offline,
	.init = (void *)qf_op_init,
	.exit = (void *)qf_op_exit,
	.flags = SCX_OPS_ENQ_LAST | SCX_OPS_ENQ_EXITING | SCX_OPS_ENQ_MIGRATION_DISABLED,
	.timeout_ms = 30000,
	.name = "qfabric",
};

QF_LICENSE;
