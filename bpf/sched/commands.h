/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Commands from user space. A command is in force when it returns; a refused command has changed nothing. */
#ifndef QF_SCHED_COMMANDS_H
#define QF_SCHED_COMMANDS_H

#include "dispatch.h"

QF_INLINE void qf_slot_reset(struct qf_slot *s, const struct qf_create *ctx)
{
	u32 generation = s->generation;

	__builtin_memset(s, 0, sizeof(*s));
	s->generation = generation;
	s->cpu = ctx->cpu;
	s->mode = ctx->config.mode;
	s->flags = ctx->flags;
}

SEC("syscall")
int qf_command_create(struct qf_create *ctx)
{
	struct qf_create ask = *ctx;
	struct qf_cpu *c;
	int error;

	if (ask.cpu >= (u32)nr_cpus || ask.flags & ~QF_SLOT_WAKE_EVENTS || ask.zero)
		return -EINVAL;
	if (!qf_is_user_slot(ask.slot) || qf_in_use(ask.slot))
		return -EBUSY;
	if (ask.config.ask & (QF_ASK_READY | QF_ASK_BEST_EFFORT | QF_ASK_TASK_SERVER))
		return -EINVAL;
	c = qf_cpu((s32)ask.cpu);
	if (!c)
		return -ENODEV;
	bpf_spin_lock(&c->lock);
	error = qf_add(&c->machine, ask.slot, &ask.config);
	if (!error) {
		qf_slot_reset(qf_slot(ask.slot), &ask);
		qf_slot(ask.slot)->generation++;
	}
	bpf_spin_unlock(&c->lock);
	return error;
}

SEC("syscall")
int qf_command_change(struct qf_create *ctx)
{
	struct qf_create ask = *ctx;
	u64 now = bpf_ktime_get_ns();
	struct qf_cpu *c;
	int error;

	if (!qf_in_use(ask.slot))
		return -ENOENT;
	if (ask.cpu != qf_slot(ask.slot)->cpu || ask.flags & ~QF_SLOT_WAKE_EVENTS || ask.zero)
		return -EINVAL;
	c = qf_cpu((s32)ask.cpu);
	if (!c)
		return -ENODEV;
	bpf_spin_lock(&c->lock);
	qf_settle(c, now);
	error = qf_change(&c->machine, ask.slot, &ask.config, now);
	if (!error) {
		qf_slot(ask.slot)->mode = ask.config.mode;
		qf_slot(ask.slot)->flags = ask.flags;
	}
	bpf_spin_unlock(&c->lock);
	if (!error)
		qf_kick((s32)ask.cpu);
	return error;
}

/* Turns the server's threads into best-effort threads; threads that wait in its queue are moved. The caller must call
 * it again after all CPUs have passed a quiescent point: a thread that was on its way into the queue is then found. */
SEC("syscall")
int qf_command_destroy(struct qf_command *ctx)
{
	u64 now = bpf_ktime_get_ns();
	u32 slot = ctx->slot;
	struct qf_cpu *c;

	if (!qf_is_user_slot(slot))
		return -ENOENT;
	c = qf_cpu((s32)qf_slot(slot)->cpu);
	if (!c)
		return -ENODEV;
	bpf_spin_lock(&c->lock);
	qf_settle(c, now);
	if (qf_in_use(slot)) {
		qf_remove(&c->machine, slot);
		qf_slot(slot)->generation++;
	}
	bpf_spin_unlock(&c->lock);
	bpf_rcu_read_lock();
	qf_hand_over(slot, QF_DSQ_SHARED);
	bpf_rcu_read_unlock();
	qf_kick((s32)qf_slot(slot)->cpu);
	return 0;
}

SEC("syscall")
int qf_command_control(struct qf_steer *ctx)
{
	struct qf_steer ask = *ctx;
	struct qf_cpu *c;
	int error;

	if (!qf_in_use(ask.slot))
		return -ENOENT;
	c = qf_cpu((s32)qf_slot(ask.slot)->cpu);
	if (!c || ask.zero)
		return -EINVAL;
	bpf_spin_lock(&c->lock);
	error = qf_control_set(ask.slot, &ask.config);
	bpf_spin_unlock(&c->lock);
	return error;
}

SEC("syscall")
int qf_command_raise(struct qf_command *ctx)
{
	u32 slot = ctx->slot;
	u64 deadline = ctx->deadline_ns, now = bpf_ktime_get_ns();
	struct qf_cpu *c;
	int error;

	if (!qf_in_use(slot))
		return -ENOENT;
	c = qf_cpu((s32)qf_slot(slot)->cpu);
	if (!c)
		return -ENODEV;
	bpf_spin_lock(&c->lock);
	qf_settle(c, now);
	error = qf_raise_one(&c->machine, slot, deadline);
	bpf_spin_unlock(&c->lock);
	qf_reconsider((s32)qf_slot(slot)->cpu, 0, 0);
	return error;
}

/* Moves a thread from the queue where it waits to the queue where it belongs now. */
QF_INLINE bool qf_requeue(struct task_struct *p, u64 from, u64 to)
{
	struct task_struct *each;
	bool moved = false;

	bpf_for_each(scx_dsq, each, from, 0) {
		if (each->pid != p->pid)
			continue;
		if (to < QF_SLOTS) {
			moved = scx_bpf_dsq_move(QF_ITER, each, to, 0);
		} else {
			scx_bpf_dsq_move_set_vtime(QF_ITER, qf_fair_vtime(each));
			moved = scx_bpf_dsq_move_vtime(QF_ITER, each, to, 0);
		}
		break;
	}
	return moved;
}

QF_INLINE void qf_relocate(struct task_struct *p, struct qf_thread *t)
{
	u64 to = qf_queue_of(p, qf_counted_slot(t));
	s32 cpu = scx_bpf_task_cpu(p);
	u64 from[3] = { QF_DSQ_SHARED, QF_DSQ_CPU(cpu), t->left };
	u32 home = (u32)to;
	s32 i;

	bpf_for(i, 0, 3) {
		u64 queue = i == 0 ? from[0] : i == 1 ? from[1] : from[2];

		if (queue && queue != to && qf_requeue(p, queue, to))
			break;
	}
	qf_kick(cpu);
	qf_opaque(home);
	if (to < QF_SLOTS && qf_slot(home)->cpu != (u32)cpu)
		qf_kick((s32)qf_slot(home)->cpu);
	if (!qf_is_online(cpu) || (to < QF_SLOTS && !qf_is_online((s32)qf_slot(home)->cpu)))
		qf_departed();
}

QF_INLINE int qf_join_thread(struct task_struct *p, const struct qf_join *ask)
{
	u64 now = bpf_ktime_get_ns(), word = 0, old;
	struct qf_thread *t;

	t = bpf_task_storage_get(&threads, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t)
		return -ENOMEM;
	if (ask->slot) {
		if (!qf_fits(p, ask->slot))
			return -EXDEV;
		word = (u64)qf_slot(ask->slot)->generation << 32 | ask->slot;
	}
	old = __sync_lock_test_and_set(&t->wanted, word);
	t->children = ask->children;
	if (old != word) {
		t->left = qf_valid(old) ? qf_slot_of(old) : 0;
		qf_members(old, -1);
		qf_members(word, 1);
	}
	if (p->flags & PF_EXITING)
		return qf_quit(t);
	qf_recount(p, t, now);
	/* The repeated command looks into the former server's queue, too: the thread may have been on its way into it. No
	 * other code would take it out before that server runs again. */
	qf_relocate(p, t);
	if (old == word)
		t->left = 0;
	return 0;
}

/* -ESRCH: the thread does not exist or is ending; -ENOENT: the server does not exist; -EXDEV: the thread may not run on
 * the server's CPU. */
SEC("syscall")
int qf_command_join(struct qf_join *ctx)
{
	struct qf_join ask = *ctx;
	struct task_struct *p;
	int error;

	if (ask.slot && !qf_in_use(ask.slot))
		return -ENOENT;
	p = bpf_task_from_pid(ask.tid);
	if (!p)
		return -ESRCH;
	bpf_rcu_read_lock();
	error = p->flags & PF_KTHREAD ? -EPERM : qf_join_thread(p, &ask);
	bpf_rcu_read_unlock();
	bpf_task_release(p);
	return error;
}

#endif
