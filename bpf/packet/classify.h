/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Finds the stream of a packet: by its five-tuple first, then its mark, then the cgroup of its socket. A file that
 * includes this one first defines how bytes of a packet are read, with offsets from its IP header:
 *
 *	struct reader; bool read_bytes(void *to, u32 bytes, struct reader *from, u32 offset)
 */
#ifndef QF_PACKET_CLASSIFY_H
#define QF_PACKET_CLASSIFY_H

#include "ip.h"

#define NO_MARK 0

/* Kinds of selectors in use: enum qf_net_kind. Written by user space. */
volatile u64 kinds SEC(".data.kinds");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct qf_net_flow);
	__type(value, u32);
	__uint(max_entries, QF_NET_STREAMS);
} flows SEC(".maps");

/*
 * Most packets are classified by marks: an open-addressing table instead of a hash map halves the cost of an enqueue.
 * User space writes the half that is not in use, then switches. At most a quarter of the table is full.
 */
struct qf_net_marks selector_marks SEC(".data.marks");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, u64);
	__type(value, u32);
	__uint(max_entries, QF_NET_STREAMS);
} cgroups SEC(".maps");

/* Reads the ports of protocols that have them. A fragment has no ports. */
QF_INLINE bool read_ports(struct qf_net_flow *flow, struct reader *from, u32 offset)
{
	u16 ports[2];

	if (flow->protocol != PROTOCOL_TCP && flow->protocol != PROTOCOL_UDP)
		return true;
	if (!read_bytes(ports, sizeof(ports), from, offset))
		return false;
	flow->source_port = ports[0];
	flow->destination_port = ports[1];
	return true;
}

QF_INLINE bool read_flow4(struct qf_net_flow *flow, struct reader *from)
{
	struct header4 header;

	if (!read_bytes(&header, sizeof(header), from, 0) || header.fragment & 0xff3f)
		return false;
	flow->version = 4;
	flow->protocol = header.protocol;
	flow->source[0] = header.source;
	flow->destination[0] = header.destination;
	return read_ports(flow, from, 4 * (header.version_length & 15));
}

QF_INLINE bool read_flow6(struct qf_net_flow *flow, struct reader *from)
{
	struct header6 header;

	if (!read_bytes(&header, sizeof(header), from, 0))
		return false;
	flow->version = 6;
	flow->protocol = header.next_header;
	__builtin_memcpy(flow->source, header.source, sizeof(flow->source));
	__builtin_memcpy(flow->destination, header.destination, sizeof(flow->destination));
	return read_ports(flow, from, sizeof(header));
}

/* The stream of a packet's flow, or NULL. */
QF_SUBPROGRAM u32 *stream_of_flow(struct reader *from)
{
	struct qf_net_flow flow = {};
	u8 version;

	if (!read_bytes(&version, sizeof(version), from, 0))
		return NULL;
	if (version >> 4 == 4 ? !read_flow4(&flow, from) : !read_flow6(&flow, from))
		return NULL;
	return bpf_map_lookup_elem(&flows, &flow);
}

/* The first place at which a mark may be. */
QF_INLINE struct qf_net_mark *place_of_mark(u32 mark)
{
	u32 first = (selector_marks.active & 1) * QF_NET_MARKS;

	return &selector_marks.table[first | mark * QF_NET_MARK_FACTOR >> QF_NET_MARK_SHIFT];
}

/* The stream of a mark, or QF_NET_STREAMS. Empty places contain QF_NET_STREAMS, so it is also the result for mark 0. */
QF_INLINE u32 stream_of_mark(u32 mark)
{
	u32 first = (selector_marks.active & 1) * QF_NET_MARKS, at = mark * QF_NET_MARK_FACTOR >> QF_NET_MARK_SHIFT;

	for (u32 probe = 0; probe < QF_NET_STREAMS; probe++) {
		struct qf_net_mark *found = &selector_marks.table[first | ((at + probe) & (QF_NET_MARKS - 1))];

		if (found->mark == mark)
			return found->stream;
		if (found->mark == NO_MARK)
			break;
	}
	return QF_NET_STREAMS;
}

/* Converts the result of a map look-up to a stream number. */
QF_INLINE u32 known(const u32 *stream)
{
	return stream ? *stream : QF_NET_STREAMS;
}

/* The number of the packet's stream, or QF_NET_STREAMS. `in_use`: the kinds of selectors in use. */
QF_INLINE u32 stream_of(u64 in_use, u32 mark, u64 cgroup, struct reader *from)
{
	u32 stream = QF_NET_STREAMS;

	if (in_use & QF_NET_FLOW)
		stream = known(stream_of_flow(from));
	if (stream == QF_NET_STREAMS && in_use & QF_NET_MARK)
		stream = stream_of_mark(mark);
	if (stream == QF_NET_STREAMS && in_use & QF_NET_CGROUP && cgroup)
		stream = known(bpf_map_lookup_elem(&cgroups, &cgroup));
	return stream;
}

#endif
