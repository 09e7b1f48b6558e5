/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Kernel structures with only the members that are used here. libbpf finds them by name in the running kernel. */
#ifndef QF_PACKET_KERNEL_H
#define QF_PACKET_KERNEL_H

#include "qf_bpf.h"
#include <bpf/bpf_tracing.h>

#define NET_XMIT_SUCCESS 0
#define NET_XMIT_DROP 1
#define EBUSY 16

struct nlattr;
struct netlink_ext_ack;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

struct sock_common {
	volatile unsigned char skc_state;
};

struct sock {
	struct sock_common __sk_common;
	struct sock_cgroup_data sk_cgrp_data;
};

struct sk_buff {
	struct sock *sk;
	char cb[48];
	__u32 mark;
	__u16 protocol;
	__u16 network_header;
	unsigned char *head;
};

struct bpf_sk_buff_ptr {
	struct sk_buff *skb;
};

/* At the start of sk_buff.cb while a packet is in a qdisc. */
struct qdisc_skb_cb {
	unsigned int pkt_len;
};

struct net_device {
	int ifindex;
};

struct netdev_queue {
	struct net_device *dev;
};

struct qdisc_skb_head {
	__u32 qlen;
};

struct gnet_stats_queue {
	__u32 backlog;
	__u32 drops;
	__u32 overlimits;
};

struct Qdisc {
	__u32 limit;
	struct netdev_queue *dev_queue;
	struct qdisc_skb_head q;
	struct gnet_stats_queue qstats;
};

#pragma clang attribute pop

struct Qdisc_ops {
	char id[16];
	int (*enqueue)(struct sk_buff *skb, struct Qdisc *sch, struct bpf_sk_buff_ptr *to_free);
	struct sk_buff *(*dequeue)(struct Qdisc *sch);
	int (*init)(struct Qdisc *sch, struct nlattr *arg, struct netlink_ext_ack *extack);
	void (*reset)(struct Qdisc *sch);
	void (*destroy)(struct Qdisc *sch);
};

extern void bpf_kfree_skb(struct sk_buff *skb) __ksym;
extern void bpf_qdisc_skb_drop(struct sk_buff *skb, struct bpf_sk_buff_ptr *to_free) __ksym;
extern void bpf_qdisc_watchdog_schedule(struct Qdisc *sch, __u64 expire, __u64 delta_ns) __ksym;
extern void bpf_qdisc_bstats_update(struct Qdisc *sch, const struct sk_buff *skb) __ksym;

static __always_inline __u32 packet_len(const struct sk_buff *skb)
{
	return ((struct qdisc_skb_cb *)skb->cb)->pkt_len;
}

#endif
