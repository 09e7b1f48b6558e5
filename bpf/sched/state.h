/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Data: options, threads, servers, CPUs. */
#ifndef QF_SCHED_STATE_H
#define QF_SCHED_STATE_H

#include "kernel.h"
#include "qf_abi.h"

const volatile struct qf_sched_options options SEC(".rodata.options");

/* Queues: 1 to 1023 for servers, one per CPU for threads bound to it, and one that all CPUs share. */
#define QF_DSQ_CPU(cpu) (0x10000ULL + (cpu))
#define QF_DSQ_SHARED 0x20000ULL

/*
 * A thread's record. Both words name a server as generation << 32 | slot; 0: none. `wanted` is the server of which it
 * is a member. `counted` is the server in which it is counted as runnable, with QF_RUNNABLE while it is runnable at
 * all. `counted` changes only by atomic exchange, so that each count goes up and down exactly once, regardless of the
 * order.
 */
struct qf_thread {
	u64 wanted;
	u64 counted;
	u64 woken_ns;
	u32 children;
	/* The server that the last command made it leave, until the command was repeated. 0: none. */
	u32 left;
};
#define QF_RUNNABLE 0x80000000ULL
#define qf_slot_of(word) ((u32)(word) & (QF_SLOTS - 1))
#define qf_generation_of(word) ((u32)((word) >> 32))
#define qf_server_of(word) ((word) & ~QF_RUNNABLE)

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct qf_thread);
} threads SEC(".maps");

struct qf_slot slots[QF_SLOTS] SEC(".bss.slots");
struct qf_sched_cpu counts[QF_CPUS] SEC(".bss.counts");
struct qf_exit exited SEC(".bss.exited");
/* The clock that all reservations need, in parts of 1/1024 of the highest one. 0: the scheduler asks for none. Written
 * by user space (crates/linux/src/ext/clock.rs). */
u64 clock_part SEC(".bss.clock");

/* The virtual time that best effort has reached, in ns of a thread of weight 100. A lost update is harmless. */
u64 vtime_now;
s32 nr_cpus;
/* How often a CPU went offline (qf_gather()). */
u32 departures;

/* The best-effort thread that runs on a CPU. Written by that CPU, read by CPUs that may preempt it. */
struct qf_turn {
	u64 since_ns;
	u64 vtime;
	u64 weight;
	/* Whether the running thread has no server. */
	u32 best_effort;
	/* Whether a thread without a server was waiting when the decision in force was last checked. */
	u32 waits;
	/* The value of `departures` after which this CPU last gathered. */
	u32 departure;
	/* The clock that this CPU last asked for, in parts of 1/1024 of the highest one. */
	u32 clock;
};
struct qf_turn turns[QF_CPUS] SEC(".bss.turns");

/* An index that the verifier knows to be within bounds. CPUs beyond QF_CPUS are refused at load time. */
QF_INLINE u32 qf_cpu_index(s32 cpu)
{
	u32 index = (u32)cpu;

	qf_opaque(index);
	return index & (QF_CPUS - 1);
}

QF_INLINE struct qf_turn *qf_turn(s32 cpu)
{
	return &turns[qf_cpu_index(cpu)];
}

/* Whether a CPU is online: from its first decision until the kernel announces that it goes offline. */
QF_INLINE bool qf_is_online(s32 cpu)
{
	return *(volatile u32 *)&counts[qf_cpu_index(cpu)].online;
}

/*
 * Interrupts a CPU. The kernel uses an interrupt of the calling CPU for that (irq_work). Does nothing on a CPU that is
 * going offline: a request made in its last moments, when it wakes threads that wait for its end, would stay in its
 * list, and the kernel raises the interrupt only for the first entry of the list. Online again, the CPU could interrupt
 * no other CPU, and none of its timers would start, until it goes offline the next time. Threads woken in this time are
 * seen at the next decision.
 */
QF_INLINE void qf_interrupt(s32 cpu, u64 flags)
{
	if (qf_is_online((s32)bpf_get_smp_processor_id()))
		scx_bpf_kick_cpu(cpu, flags);
}

QF_INLINE struct qf_thread *qf_thread(struct task_struct *p)
{
	return bpf_task_storage_get(&threads, p, NULL, 0);
}

#endif
