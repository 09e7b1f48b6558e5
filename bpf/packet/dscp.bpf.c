// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Rewrites the code point (DSCP, RFC 2474) of the packets of streams before they are queued, so that the sending programs
 * need not set it. The bits of congestion notification stay. Attached only while a stream has a code point.
 */
#include "qf_bpf.h"
#include "qf_net.h"
#include "skb.h"
#include "classify.h"

#define TCX_NEXT (-1)
#define NETWORK_ORDER(word) ((u16)__builtin_bswap16(word))
#define PROTOCOL_IP4 NETWORK_ORDER(0x0800)
#define PROTOCOL_IP6 NETWORK_ORDER(0x86dd)

struct sk_buff {
	unsigned char *head;
	unsigned char *data;
	u16 network_header;
} QF_KERNEL;

extern void *bpf_cast_to_kern_ctx(void *context) __ksym;

/* By stream: 0 if its packets keep their code point, otherwise 1 + the new one. Written by user space. */
volatile u64 code_points[QF_NET_STREAMS] SEC(".data.points");

/* Writes the first two bytes of the IP header. */
QF_INLINE void rewrite(struct __sk_buff *skb, u16 point)
{
	struct sk_buff *packet = bpf_cast_to_kern_ctx(skb);
	u32 ip = packet->network_header - (u32)(packet->data - packet->head);
	bool is_4 = skb->protocol == PROTOCOL_IP4;
	u16 stored, before, after;

	if ((!is_4 && skb->protocol != PROTOCOL_IP6) || bpf_skb_load_bytes(skb, ip, &stored, sizeof(stored)))
		return;
	before = NETWORK_ORDER(stored);
	/* Version, length, field. Or version, field, and the begin of the flow label. */
	after = is_4 ? (before & ~0x00fc) | point << 2 : (before & ~0x0fc0) | point << 6;
	if (after == before)
		return;
	after = NETWORK_ORDER(after);
	if (is_4)
		bpf_l3_csum_replace(skb, ip + __builtin_offsetof(struct header4, checksum), stored, after, sizeof(after));
	bpf_skb_store_bytes(skb, ip, &after, sizeof(after), 0);
}

SEC("tcx/egress")
int qf_dscp(struct __sk_buff *skb)
{
	struct reader reader = { .skb = skb };
	u64 in_use = kinds, point;
	u32 stream;

	if (!in_use)
		return TCX_NEXT;
	stream = stream_of(in_use, skb->mark, in_use & QF_NET_CGROUP ? bpf_skb_cgroup_id(skb) : 0, &reader);
	if (stream >= QF_NET_STREAMS)
		return TCX_NEXT;
	point = code_points[stream & (QF_NET_STREAMS - 1)];
	if (point)
		rewrite(skb, point - 1);
	return TCX_NEXT;
}

QF_LICENSE;
