/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The first of up to 1,023 servers, of which one changes at a time: a tree of winners.
 *
 *   node[1024 + slot]   the slot itself where it takes part, else 0 (nobody)
 *   node[i]             the winner of node[2i] and node[2i + 1]
 *
 * Slots are given from 1 on, so the first 2^height leaves hold all: their root is node[1024 >> height], and a change
 * costs at most `height` comparisons, one where it moves no winner. A rbtree of the kernel's would need an allocation
 * and a helper for each change; a heap cannot change in its middle without knowing where its elements are.
 *
 * Bounds: QF_LEVELS steps, whatever is in the nodes: each halves `at`. All zeros is an empty tree.
 */
#ifndef QF_TREE_H
#define QF_TREE_H

#include "qf_abi.h"

#define QF_LEVELS 10
_Static_assert(QF_SLOTS == 1 << QF_LEVELS, "a leaf for each slot");

struct qf_tree {
	__u16 node[2 * QF_SLOTS];
};

#define QF_NODE(index) ((index) & (2 * QF_SLOTS - 1))
#define QF_SLOT(index) ((index) & (QF_SLOTS - 1))

/* The root of a tree. The compiler knows that a shifted 1,024 is in range and would drop the mask that shows it to the
 * verifier. */
QF_INLINE __u32 qf_tree_root(__u32 height)
{
	__u32 root = QF_SLOTS >> (height & 15);

	qf_opaque(root);
	return QF_NODE(root);
}

/* The first of all; 0 where there is none. */
QF_INLINE __u32 qf_tree_first(const struct qf_tree *tree, __u32 height)
{
	return tree->node[qf_tree_root(height)];
}

/* The leaf of a slot. node[0] is nobody's and stays 0, which the verifier does not know: a climb that begins at a number
 * known to be in [1024, 2047] goes on in [512, 1023] and so on, ten rounds to be verified one by one; one that may begin
 * anywhere looks the same after a round as before. It makes verification five times shorter. */
QF_INLINE __u32 qf_tree_leaf(const struct qf_tree *tree, __u32 slot)
{
	return QF_NODE(QF_SLOTS + QF_SLOT(slot) + tree->node[0]);
}

/* The trees of a machine grow together: what was the root is the left child of the new one, whose right is empty. */
QF_INLINE void qf_tree_grow(struct qf_tree *tree, __u32 height)
{
	__u32 root = qf_tree_root(height);

	tree->node[root >> 1] = tree->node[root];
}

/*
 * Defines `name(tree, height, slot, takes_part)`: sets the leaf and climbs. `first(a, b)` says whether slot a, the lower
 * one, comes before b or with it; nobody, slot 0, must come after everybody, and the order be constant apart from the
 * slot that is set. A climb ends where a winner stays the same and is not the changed slot: above nothing changes.
 */
#define QF_TREE_SET(name, first)                                                                                       \
	QF_SUBPROGRAM int name(struct qf_tree *tree, __u32 height, __u32 slot, __u32 takes_part)                       \
	{                                                                                                              \
		__u32 at = qf_tree_leaf(tree, slot), root = qf_tree_root(height);                                      \
		__u32 leaf = takes_part ? QF_SLOT(slot) : 0;                                                           \
                                                                                                                       \
		if (!leaf && !tree->node[QF_NODE(at)])                                                                 \
			return 0;                                                                                      \
		tree->node[QF_NODE(at)] = leaf;                                                                        \
		while (at > root) {                                                                                    \
			__u32 left, right, winner;                                                                     \
                                                                                                                       \
			qf_may_goto_break;                                                                             \
			left = tree->node[QF_NODE(at & ~1U)];                                                          \
			right = tree->node[QF_NODE(at | 1)];                                                           \
			winner = first(QF_SLOT(left), QF_SLOT(right)) ? left : right;                                  \
			at >>= 1;                                                                                      \
			if (tree->node[QF_NODE(at)] == winner && winner != QF_SLOT(slot))                              \
				break;                                                                                 \
			tree->node[QF_NODE(at)] = winner;                                                              \
		}                                                                                                      \
		return 0;                                                                                              \
	}

#endif
