// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The kernel path: a datagram with changes of parameters is checked and applied where it enters the host, and ends
 * there. No thread runs for it.
 *
 *	datagram ─ to our address and port? ─ key of the peer ─ tag ─ channel ─┬ newer? ─ rate ─ store ┬─> counted
 *	    └─ no: passes                                                     └── the peer's lock ────┘
 */
#include "qf_bpf.h"
#include "qf_path.h"
#include "ip.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "changes are read as they are on the wire");

/* The first members of a packet as classifiers see it (include/uapi/linux/bpf.h). */
struct __sk_buff {
	u32 len;
};

#define FROM_IP_HEADER 1 /* BPF_HDR_START_NET */
#define TCX_NEXT (-1)
#define TCX_DROP 2

const volatile struct qf_path_options options SEC(".rodata.options") = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, u32);
	__type(value, struct qf_path_key);
	__uint(max_entries, 2 * QF_PATH_PEERS);
} keys SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, u32);
	__type(value, struct qf_path_peer);
	__uint(max_entries, QF_PATH_PEERS);
} peers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct qf_path_word);
	__uint(max_entries, QF_PATH_CHANNELS * QF_PATH_PARAMETERS);
} words SEC(".maps");

/* One entry for each CPU; the loader sets their number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct qf_path_counts);
	__uint(max_entries, 1);
} counts SEC(".maps");

struct udp_header {
	u16 source;
	u16 destination;
	u16 length;
	u16 checksum;
};

QF_INLINE u64 rotated(u64 word, u32 by)
{
	return word << by | word >> (64 - by);
}

struct sip {
	u64 a, b, c, d;
};

QF_INLINE void sip_rounds(struct sip *s, u32 rounds)
{
	for (u32 i = 0; i < rounds; i++) {
		s->a += s->b;
		s->b = rotated(s->b, 13) ^ s->a;
		s->a = rotated(s->a, 32);
		s->c += s->d;
		s->d = rotated(s->d, 16) ^ s->c;
		s->a += s->d;
		s->d = rotated(s->d, 21) ^ s->a;
		s->c += s->b;
		s->b = rotated(s->b, 17) ^ s->c;
		s->c = rotated(s->c, 32);
	}
}

QF_INLINE void sip_word(struct sip *s, u64 word)
{
	s->d ^= word;
	sip_rounds(s, 2);
	s->a ^= word;
}

/* Whether the tag is the SipHash-2-4 (128 bits) of the change under the key. The time does not depend on the tag. */
QF_INLINE bool authentic(const struct qf_path_change *change, const u64 key[2])
{
	const u64 *words = (const u64 *)change;
	u64 differs;
	struct sip s = {
		.a = key[0] ^ 0x736f6d6570736575ULL,
		.b = key[1] ^ 0x646f72616e646f6dULL ^ 0xee,
		.c = key[0] ^ 0x6c7967656e657261ULL,
		.d = key[1] ^ 0x7465646279746573ULL,
	};

	for (u32 i = 0; i < 4; i++)
		sip_word(&s, words[i]);
	sip_word(&s, 32ULL << 56); /* the length, after no rest */
	s.c ^= 0xee;
	sip_rounds(&s, 4);
	differs = (s.a ^ s.b ^ s.c ^ s.d) ^ change->tag[0];
	s.b ^= 0xdd;
	sip_rounds(&s, 4);
	differs |= (s.a ^ s.b ^ s.c ^ s.d) ^ change->tag[1];
	return !differs;
}

/* Copies the key of a change. User space may replace it meanwhile, so the copy is made under its lock. */
QF_INLINE bool read_key(const struct qf_path_change *change, u64 key[2], u64 *channels)
{
	u32 number = 2 * change->peer + (change->epoch & 1);
	struct qf_path_key *found;
	u32 epoch;

	if (change->peer >= QF_PATH_PEERS)
		return false;
	found = bpf_map_lookup_elem(&keys, &number);
	if (!found)
		return false;
	bpf_spin_lock(&found->lock);
	epoch = found->epoch;
	key[0] = found->key[0];
	key[1] = found->key[1];
	*channels = found->channels;
	bpf_spin_unlock(&found->lock);
	return epoch && epoch == change->epoch;
}

/* Takes a change out of the peer's bucket, or returns false. The bucket is a time at which it is full. */
QF_INLINE bool take(struct qf_path_peer *peer, u64 now)
{
	u64 full_at = peer->full_at > now ? peer->full_at : now;

	if (full_at + peer->cost_ns - now > peer->depth_ns)
		return false;
	peer->full_at = full_at + peer->cost_ns;
	return true;
}

/* A full barrier, because the former value is used. */
QF_INLINE void step(u64 *version)
{
	u64 former = __sync_fetch_and_add(version, 1);

	qf_opaque(former);
}

QF_INLINE void store(struct qf_path_word *word, const struct qf_path_change *change, u64 now)
{
	step(&word->version);
	word->value = change->value;
	word->sequence = change->sequence;
	word->time = now;
	word->peer = change->peer;
	word->epoch = change->epoch;
	step(&word->version);
}

/* Check of order, rate and store are one critical section: of two CPUs, only one accepts a sequence number, and the
 * older value is not stored last. User space grants a channel to one peer only, so the lock also protects the word. */
QF_INLINE u32 set(struct qf_path_peer *peer, struct qf_path_word *word, const struct qf_path_change *change, u64 now)
{
	u32 outcome = QF_PATH_REPLAYED;

	bpf_spin_lock(&peer->lock);
	if (change->epoch < peer->epoch || (change->epoch == peer->epoch && change->sequence <= peer->sequence))
		goto out;
	outcome = QF_PATH_TOO_MANY;
	if (!take(peer, now))
		goto out;
	outcome = QF_PATH_ACCEPTED;
	peer->epoch = change->epoch;
	peer->sequence = change->sequence;
	store(word, change, now);
out:
	bpf_spin_unlock(&peer->lock);
	return outcome;
}

QF_SUBPROGRAM u32 apply(const struct qf_path_change *change)
{
	u32 number = change->channel * QF_PATH_PARAMETERS + change->parameter;
	struct qf_path_peer *peer;
	struct qf_path_word *word;
	u64 key[2], channels;

	if (change->magic != QF_PATH_MAGIC)
		return QF_PATH_MALFORMED;
	if (!read_key(change, key, &channels))
		return QF_PATH_UNKNOWN;
	if (!authentic(change, key))
		return QF_PATH_FORGED;
	if (change->channel >= QF_PATH_CHANNELS || change->parameter >= QF_PATH_PARAMETERS ||
	    !(channels >> change->channel & 1))
		return QF_PATH_DENIED;
	peer = bpf_map_lookup_elem(&peers, &change->peer);
	word = bpf_map_lookup_elem(&words, &number);
	return peer && word ? set(peer, word, change, bpf_ktime_get_ns()) : QF_PATH_DENIED;
}

/* Only one packet at a time is received on a CPU. */
QF_INLINE void count(u32 outcome)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct qf_path_counts *here = bpf_map_lookup_elem(&counts, &cpu);

	if (here)
		here->of[outcome & 7]++;
}

/* Reads bytes of a packet, which are counted from its IP header. They must be in one piece with the headers, which those
 * of an aggregate are not, so the packet is then put into one piece. */
QF_INLINE bool read_bytes(struct __sk_buff *skb, void *to, u32 bytes, u32 offset)
{
	if (!bpf_skb_load_bytes_relative(skb, offset, to, bytes, FROM_IP_HEADER))
		return true;
	return !bpf_skb_pull_data(skb, skb->len) &&
	       !bpf_skb_load_bytes_relative(skb, offset, to, bytes, FROM_IP_HEADER);
}

/* The offset of the UDP header of a packet to our address, or 0. Fragments, and headers with options, pass. */
QF_INLINE u32 find_udp4(struct __sk_buff *skb)
{
	struct header4 header;

	if (!read_bytes(skb, &header, sizeof(header), 0) || header.version_length != 0x45)
		return 0;
	if (header.protocol != PROTOCOL_UDP || header.fragment & 0xff3f || header.destination != options.address[0])
		return 0;
	return sizeof(header);
}

QF_INLINE u32 find_udp6(struct __sk_buff *skb)
{
	struct header6 header;

	if (!read_bytes(skb, &header, sizeof(header), 0) || header.version_class >> 4 != 6)
		return 0;
	if (header.next_header != PROTOCOL_UDP)
		return 0;
	for (u32 i = 0; i < 4; i++)
		if (header.destination[i] != options.address[i])
			return 0;
	return sizeof(header);
}

/* Applies the changes of a payload. An aggregate of datagrams (GRO) is one packet here. */
QF_INLINE void apply_all(struct __sk_buff *skb, u32 offset, u32 bytes)
{
	struct qf_path_change change;
	u32 i, changes = bytes / sizeof(change);

	if (!changes || changes > QF_PATH_BATCH || bytes % sizeof(change)) {
		count(QF_PATH_MALFORMED);
		return;
	}
	bpf_for(i, 0, changes) {
		if (read_bytes(skb, &change, sizeof(change), offset + i * sizeof(change)))
			count(apply(&change));
		else
			count(QF_PATH_MALFORMED);
	}
}

SEC("tcx/ingress")
int qf_apply(struct __sk_buff *skb)
{
	u32 offset = options.version == 4 ? find_udp4(skb) : find_udp6(skb);
	struct udp_header udp;

	if (!offset || !read_bytes(skb, &udp, sizeof(udp), offset) || udp.destination != options.port)
		return TCX_NEXT;
	apply_all(skb, offset + sizeof(udp), __builtin_bswap16(udp.length) - sizeof(udp));
	return TCX_DROP;
}

QF_LICENSE;
