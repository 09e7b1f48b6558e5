/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The beginning of every BPF program of Q-Fabric: the kernel's basic types, libbpf's helpers, and names for common
 * operations. It uses neither vmlinux.h nor the system headers: a program declares the kernel structures that it uses
 * itself, under preserve_access_index, and libbpf finds the members in the running kernel.
 */
#ifndef QF_BPF_H
#define QF_BPF_H

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;

typedef __u8 u8;
typedef __s8 s8;
typedef __u16 u16;
typedef __s16 s16;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;
typedef __s64 s64;
typedef _Bool bool;

#define true 1
#define false 0
#define NULL ((void *)0)
/* Error numbers of the kernel. */
#define EPERM 1
#define ENOENT 2
#define ESRCH 3
#define EAGAIN 11
#define ENOMEM 12
#define EBUSY 16
#define EEXIST 17
#define EINVAL 22
#define ENOSPC 28
#define EDOM 33
#define ERANGE 34

#define U64_MAX 0xffffffffffffffffULL

/* The map types in use, with the kernel's numbers (include/uapi/linux/bpf.h). */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_CGRP_STORAGE = 32,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_STRUCT_OPS = 26,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

/* Flags of maps and map operations. */
enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_EXIST = 2,
	BPF_F_LOCK = 4,
	BPF_F_NO_PREALLOC = 1U << 0,
	BPF_F_MMAPABLE = 1U << 10,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1U << 0,
	BPF_RB_NO_WAKEUP = 1U << 0,
};

/* Types that the kernel recognises by name inside map values. */
struct bpf_spin_lock {
	__u32 val;
};

struct bpf_timer {
	__u64 __opaque[2];
} __attribute__((aligned(8)));

struct bpf_rb_root {
	__u64 __opaque[2];
} __attribute__((aligned(8)));

struct bpf_rb_node {
	__u64 __opaque[4];
} __attribute__((aligned(8)));

struct bpf_list_head {
	__u64 __opaque[2];
} __attribute__((aligned(8)));

struct bpf_list_node {
	__u64 __opaque[3];
} __attribute__((aligned(8)));

/* The state of bpf_for(). */
struct bpf_iter_num {
	__u64 __opaque[1];
} __attribute__((aligned(8)));

#include <bpf/bpf_helpers.h>

/* For kernel structures that are declared in part. */
#define QF_KERNEL __attribute__((preserve_access_index))

/* Whether the running kernel has the member of a structure. */
#define qf_member_exists(member) __builtin_preserve_field_info(member, 2)

/* Small functions that must not become calls. */
#define QF_INLINE static __always_inline __attribute__((unused))
/* Larger functions that are in the program once and are verified for each caller. */
#define QF_SUBPROGRAM static __attribute__((noinline, unused))

/* Hides a value from the compiler, which would otherwise move the check that the verifier needs to see. */
#define qf_opaque(value) asm volatile("" : "+r"(value))

/* Jumps to a label when the kernel says that the program has run long enough (millions of rounds). The verifier then
 * accepts loops whose bound it cannot follow. Written in bytes, because clang knows the name only from version 18.
 * Linux 6.9. */
#define qf_may_goto(label)                                                                                             \
	asm volatile goto("1:.byte 0xe5; .byte 0; .long ((%l[" #label "] - 1b - 8) / 8) & 0xffff; .short 0" ::        \
				  : : label)

/* The same, but leaves the enclosing loop. */
#define qf_may_goto_break                                                                                              \
	({                                                                                                             \
		__label__ l_break, l_continue;                                                                         \
		qf_may_goto(l_break);                                                                                  \
		goto l_continue;                                                                                       \
	l_break:                                                                                                       \
		break;                                                                                                 \
	l_continue:;                                                                                                   \
	})

/* The licence of libbpf, which lets programs call functions that the kernel reserves to compatible licences. */
#define QF_LICENSE char _license[] SEC("license") = "Dual BSD/GPL"

#endif
