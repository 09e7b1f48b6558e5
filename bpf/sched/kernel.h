/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the scheduler uses of the kernel: members of its structures, constants of sched_ext, functions. They are
 * declared here by hand; libbpf finds members and functions in the running kernel. Written for Linux 6.19 to 7.3.
 */
#ifndef QF_SCHED_KERNEL_H
#define QF_SCHED_KERNEL_H

#include "qf_bpf.h"

struct cpumask {
	unsigned long bits[1];
} QF_KERNEL;

struct bpf_iter_scx_dsq {
	u64 __opaque[6];
} __attribute__((aligned(8)));

struct sched_ext_entity {
	u32 flags;
	u32 weight;
	u64 slice;
	u64 dsq_vtime;
} QF_KERNEL;

struct task_struct {
	struct sched_ext_entity scx;
	const struct cpumask *cpus_ptr;
	int nr_cpus_allowed;
	unsigned short migration_disabled;
	int pid;
	int tgid;
	unsigned int flags;
	unsigned int __state;
	char comm[16];
} QF_KERNEL;

struct scx_init_task_args {
	bool fork;
} QF_KERNEL;

struct scx_exit_task_args {
	bool cancelled;
} QF_KERNEL;

enum scx_exit_kind {
	SCX_EXIT_NONE = 0,
};

struct scx_exit_info {
	enum scx_exit_kind kind;
	s64 exit_code;
	const char *reason;
	char *msg;
} QF_KERNEL;

struct scx_bpf_dsq_insert_vtime_args {
	u64 dsq_id;
	u64 slice;
	u64 vtime;
	u64 enq_flags;
};

struct scx_bpf_select_cpu_and_args {
	s32 prev_cpu;
	u64 wake_flags;
	u64 flags;
};

/* The table of operations. libbpf matches members by name and drops members that a kernel lacks, if they are empty. */
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dequeue)(struct task_struct *p, u64 deq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	void (*tick)(struct task_struct *p);
	void (*runnable)(struct task_struct *p, u64 enq_flags);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	void (*quiescent)(struct task_struct *p, u64 deq_flags);
	bool (*yield)(struct task_struct *from, struct task_struct *to);
	void (*set_weight)(struct task_struct *p, u32 weight);
	void (*set_cpumask)(struct task_struct *p, const struct cpumask *cpumask);
	s32 (*init_task)(struct task_struct *p, struct scx_init_task_args *args);
	void (*exit_task)(struct task_struct *p, struct scx_exit_task_args *args);
	void (*enable)(struct task_struct *p);
	void (*cpu_online)(s32 cpu);
	void (*cpu_offline)(s32 cpu);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	u32 dispatch_max_batch;
	u64 flags;
	u32 timeout_ms;
	u32 exit_dump_len;
	char name[128];
};

#define SCX_ENQ_WAKEUP 0x1ULL
#define SCX_ENQ_HEAD 0x10000ULL
#define SCX_ENQ_CPU_SELECTED 0x100000ULL
#define SCX_ENQ_PREEMPT 0x100000000ULL
#define SCX_ENQ_LAST 0x20000000000ULL
#define SCX_DEQ_SLEEP 0x1ULL
#define SCX_TASK_QUEUED 0x1U
#define SCX_KICK_IDLE 0x1ULL
#define SCX_KICK_PREEMPT 0x2ULL
#define SCX_DSQ_LOCAL 0x8000000000000002ULL
#define SCX_DSQ_LOCAL_ON 0xc000000000000000ULL
#define SCX_OPS_KEEP_BUILTIN_IDLE 0x1ULL
#define SCX_OPS_ENQ_LAST 0x2ULL
#define SCX_OPS_ENQ_EXITING 0x4ULL
#define SCX_OPS_ENQ_MIGRATION_DISABLED 0x10ULL
#define SCX_CPUPERF_ONE 1024
#define SCX_SLICE_INF 0xffffffffffffffffULL
#define SCX_WAKE_SYNC 0x10ULL
#define ENODEV 19
#define EXDEV 18
#define PF_EXITING 0x00000004U
#define PF_KTHREAD 0x00200000U

/* libbpf ignores what follows ___ in the name of a kernel function. */
extern u64 scx_bpf_now(void) __ksym;
extern s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __ksym;
extern s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __ksym;
extern bool scx_bpf_dsq_insert___v2___kernel(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym;
extern bool __scx_bpf_dsq_insert_vtime(struct task_struct *p, struct scx_bpf_dsq_insert_vtime_args *args) __ksym;
extern bool scx_bpf_dsq_move_to_local(u64 dsq_id) __ksym;
extern struct task_struct *scx_bpf_dsq_peek(u64 dsq_id) __ksym;
extern int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags) __ksym;
extern struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) __ksym;
extern void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) __ksym;
extern bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id, u64 enq_flags) __ksym;
extern bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id, u64 flags) __ksym;
extern void scx_bpf_dsq_move_set_vtime(struct bpf_iter_scx_dsq *it, u64 vtime) __ksym;
extern bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice) __ksym;
extern void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;
extern s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
extern s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev_cpu, u64 wake_flags, bool *is_idle) __ksym;
extern s32 scx_bpf_pick_idle_cpu(const struct cpumask *cpus_allowed, u64 flags) __ksym;
extern bool scx_bpf_test_and_clear_cpu_idle(s32 cpu) __ksym;
extern struct task_struct *scx_bpf_cpu_curr(s32 cpu) __ksym;
extern const struct cpumask *scx_bpf_get_online_cpumask(void) __ksym;
extern void scx_bpf_put_cpumask(const struct cpumask *cpumask) __ksym;
extern void scx_bpf_error_bstr(char *fmt, unsigned long long *data, u32 data_len) __ksym;
extern void scx_bpf_cpuperf_set(s32 cpu, u32 perf) __ksym __weak;
extern bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *cpumask) __ksym;
extern bool bpf_cpumask_subset(const struct cpumask *inner, const struct cpumask *outer) __ksym;
extern void bpf_rcu_read_lock(void) __ksym;
extern void bpf_rcu_read_unlock(void) __ksym;
extern struct task_struct *bpf_task_from_pid(s32 pid) __ksym;
extern void bpf_task_release(struct task_struct *p) __ksym;

/* A function that the verifier checks only once, regardless of its callers; it takes only numbers. Functions that call
 * the machine are global: otherwise the verifier would combine every path of the caller with every path of the
 * machine. */
#define QF_GLOBAL __attribute__((noinline))

/* The iterator of bpf_for_each(), for functions that act on its current element. */
#define QF_ITER (&___it)

#endif
