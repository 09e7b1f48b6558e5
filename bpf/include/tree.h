/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Finds the first of up to 1,023 servers, of which one changes at a time: a winner tree.
 *
 *   node[1024 + slot]   the slot itself if it takes part, else 0 (no server)
 *   node[i]             the winner of node[2i] and node[2i + 1]
 *
 * Slots are assigned from 1 on, so the first 2^height leaves hold all of them: their root is node[1024 >> height]. A
 * change costs at most `height` comparisons, and one if it changes no winner. An rbtree of the kernel would need an
 * allocation and a helper call per change; a heap cannot change an inner element without knowing its position.
 *
 * Bounds: QF_LEVELS steps for any node contents, because each halves `at`. All zeros: an empty tree.
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

/* The root of a tree. The compiler knows that a shifted 1,024 is in range and would drop the mask that the verifier
 * needs to see. */
QF_INLINE __u32 qf_tree_root(__u32 height)
{
	__u32 root = QF_SLOTS >> (height & 15);

	qf_opaque(root);
	return QF_NODE(root);
}

/* The first slot in the order. 0: the tree is empty. */
QF_INLINE __u32 qf_tree_first(const struct qf_tree *tree, __u32 height)
{
	return tree->node[qf_tree_root(height)];
}

/* The leaf of a slot. node[0] stays 0, but the verifier does not know it: from a start known to be in [1024, 2047] it
 * would follow the climb through [512, 1023] and so on, ten rounds one by one; from an unknown start each round looks
 * the same as the one before. This makes verification five times shorter. */
QF_INLINE __u32 qf_tree_leaf(const struct qf_tree *tree, __u32 slot)
{
	return QF_NODE(QF_SLOTS + QF_SLOT(slot) + tree->node[0]);
}

/* Doubles a tree (all trees of a machine grow together): the old root becomes the left child of the new one, the right
 * child is empty. */
QF_INLINE void qf_tree_grow(struct qf_tree *tree, __u32 height)
{
	__u32 root = qf_tree_root(height);

	tree->node[root >> 1] = tree->node[root];
}

/*
 * Defines `name(tree, height, slot, takes_part)`: sets the leaf and climbs. `first(a, b)`: whether slot a comes before
 * b or is equal to it, for a < b. Slot 0 must come last, and the order of all slots other than the one that is set must
 * not change. A climb ends where the winner stays the same and is not the changed slot: nothing above changes.
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
