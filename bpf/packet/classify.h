/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Whose packet it is: its five-tuple says so first, then its mark, then its socket's cgroup. */
#ifndef QF_PACKET_CLASSIFY_H
#define QF_PACKET_CLASSIFY_H

#define NO_MARK 0

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct qf_net_flow);
	__type(value, u32);
	__uint(max_entries, QF_NET_STREAMS);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, u32);
	__type(value, u32);
	__uint(max_entries, QF_NET_STREAMS);
} marks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, u64);
	__type(value, u32);
	__uint(max_entries, QF_NET_STREAMS);
} cgroups SEC(".maps");

#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17

/* The first bytes of a packet's IP header, as far as flows are told apart by them. */
struct header4 {
	u8 version_length;
	u8 unused[5];
	u16 fragment;
	u8 ttl;
	u8 protocol;
	u16 checksum;
	u32 source;
	u32 destination;
};

struct header6 {
	u8 version_class;
	u8 unused[5];
	u8 next_header;
	u8 hop_limit;
	u32 source[4];
	u32 destination[4];
};

QF_INLINE bool read_bytes(void *to, u32 bytes, const unsigned char *from)
{
	return !bpf_probe_read_kernel(to, bytes, from);
}

/* Ports, of protocols that have them; a fragment has none. */
QF_INLINE bool read_ports(struct qf_net_flow *flow, const unsigned char *from)
{
	u16 ports[2];

	if (flow->protocol != PROTOCOL_TCP && flow->protocol != PROTOCOL_UDP)
		return true;
	if (!read_bytes(ports, sizeof(ports), from))
		return false;
	flow->source_port = ports[0];
	flow->destination_port = ports[1];
	return true;
}

QF_INLINE bool read_flow4(struct qf_net_flow *flow, const unsigned char *ip)
{
	struct header4 header;

	if (!read_bytes(&header, sizeof(header), ip) || header.fragment & 0xff3f)
		return false;
	flow->version = 4;
	flow->protocol = header.protocol;
	flow->source[0] = header.source;
	flow->destination[0] = header.destination;
	return read_ports(flow, ip + 4 * (header.version_length & 15));
}

QF_INLINE bool read_flow6(struct qf_net_flow *flow, const unsigned char *ip)
{
	struct header6 header;

	if (!read_bytes(&header, sizeof(header), ip))
		return false;
	flow->version = 6;
	flow->protocol = header.next_header;
	__builtin_memcpy(flow->source, header.source, sizeof(flow->source));
	__builtin_memcpy(flow->destination, header.destination, sizeof(flow->destination));
	return read_ports(flow, ip + sizeof(header));
}

/* The stream of a packet's flow; NULL where it has none. */
__attribute__((noinline)) static u32 *stream_of_flow(const unsigned char *ip)
{
	struct qf_net_flow flow = {};
	u8 version;

	if (!read_bytes(&version, sizeof(version), ip))
		return NULL;
	if (version >> 4 == 4 ? !read_flow4(&flow, ip) : !read_flow6(&flow, ip))
		return NULL;
	return bpf_map_lookup_elem(&flows, &flow);
}

QF_INLINE u32 stream_of(u32 mark, u64 cgroup, const unsigned char *ip)
{
	u32 *found = NULL;

	if (config.kinds & QF_NET_FLOW)
		found = stream_of_flow(ip);
	if (!found && config.kinds & QF_NET_MARK && mark != NO_MARK)
		found = bpf_map_lookup_elem(&marks, &mark);
	if (!found && config.kinds & QF_NET_CGROUP && cgroup)
		found = bpf_map_lookup_elem(&cgroups, &cgroup);
	return found && *found < QF_NET_STREAMS ? *found : NONE;
}

#endif
