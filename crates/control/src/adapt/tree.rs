//! The QoS tree of four levels with its links, for a tree that is entirely on one host.
//!
//! ```text
//!   4 system        divides by weight         ┐
//!   3 stream        divides by importance     │ each sees its children's wants,
//!   2 role          same quality for all      │ but no nodes below them
//!   1 connection    keeps its rate            ┘
//! ```
//!
//! A *link* ties two or more nodes anywhere in the tree: a drop in the quality of one degrades the others equally,
//! and if one stops, all stop. Source: Q-channels paper §3.3, Figure 2. If the levels are on several hosts, each
//! host has its [`Group`], and wants and grants travel as events; links are then siblings under
//! [`Division::Linked`].

use std::collections::BTreeMap;

use super::group::{Division, Group, Want};

/// The level of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// One connection, which keeps its rate.
    Connection = 1,
    /// All connections of one role: same quality for each.
    Role = 2,
    /// All roles of one stream.
    Stream = 3,
    /// All streams.
    System = 4,
}

impl Level {
    /// The rule by which a node of this level divides its grant.
    pub const fn division(self) -> Division {
        match self {
            Level::System => Division::Weight,
            Level::Stream => Division::Importance,
            Level::Role | Level::Connection => Division::Equal,
        }
    }
}

/// The number of a node; the root is 0.
pub type NodeId = u64;

/// The node of the whole system.
pub const ROOT: NodeId = 0;

/// A node cannot be added at this place. The tree is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misplaced {
    #[error("there is no node {0} in the tree; add the parent first")]
    NoParent(NodeId),
    #[error(
        "a node of level {child:?} cannot be a child of a node of level {parent:?}; choose a parent of a higher level"
    )]
    NotBelow { child: Level, parent: Level },
    #[error("node {0} is already in the tree; remove it first, or choose another number")]
    Taken(NodeId),
}

#[derive(Clone, Debug)]
struct Node {
    level: Level,
    parent: NodeId,
    own: Want,
    children: Vec<NodeId>,
}

type Wants = BTreeMap<NodeId, Want>;

/// Limit of the rounds of one division. Links in chains lower each other a few times; wants that differ by less
/// than floating-point precision could go on for ever.
const ROUNDS: usize = 1_000;

/// The largest quality allowed for each node; `None` means stopped.
type Caps = BTreeMap<NodeId, Option<f64>>;

/// A QoS tree on one host.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: BTreeMap<NodeId, Node>,
    links: Vec<Vec<NodeId>>,
}

impl Default for Tree {
    fn default() -> Self {
        let root = Node { level: Level::System, parent: ROOT, own: Want::NOTHING, children: Vec::new() };
        Tree { nodes: BTreeMap::from([(ROOT, root)]), links: Vec::new() }
    }
}

impl Tree {
    /// Adds a node. `own` is the want of a leaf. A node with children has the sum of their wants, with the
    /// importance and weight of `own`.
    pub fn add(&mut self, node: NodeId, level: Level, parent: NodeId, own: Want) -> Result<(), Misplaced> {
        if self.nodes.contains_key(&node) {
            return Err(Misplaced::Taken(node));
        }
        let above = self.nodes.get_mut(&parent).ok_or(Misplaced::NoParent(parent))?;
        if level >= above.level {
            return Err(Misplaced::NotBelow { child: level, parent: above.level });
        }
        above.children.push(node);
        self.nodes.insert(node, Node { level, parent, own, children: Vec::new() });
        Ok(())
    }

    /// Removes a node and all nodes below it.
    pub fn remove(&mut self, node: NodeId) {
        let Some(gone) = self.nodes.remove(&node).filter(|_| node != ROOT) else { return };
        if let Some(parent) = self.nodes.get_mut(&gone.parent) {
            parent.children.retain(|child| *child != node);
        }
        self.links.iter_mut().for_each(|link| link.retain(|member| *member != node));
        self.links.retain(|link| link.len() > 1);
        gone.children.into_iter().for_each(|child| self.remove(child));
    }

    /// Changes the want of a leaf.
    pub fn want(&mut self, node: NodeId, own: Want) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.own = own;
        }
    }

    /// Links nodes with each other.
    pub fn link(&mut self, members: &[NodeId]) {
        self.links.push(members.to_vec());
    }

    /// Divides `amount` from the root down and returns the grant of each node. A link may lower the quality of its
    /// members, which frees resources for others, so the division is repeated until no link is broken; each round
    /// lowers a quality for good. Links that must stop do so one after the other, the least important first: the
    /// freed resources may save the next one.
    pub fn divide(&self, amount: f64) -> BTreeMap<NodeId, f64> {
        let free = self.wants(&BTreeMap::new());
        let mut caps = BTreeMap::new();
        let mut grants = self.grants(&free, amount);
        for _ in 0..ROUNDS {
            let found = self.broken(&free, &grants, &caps);
            if found.is_empty() {
                break;
            }
            // Caps all members, not only the high ones: freed resources must not lift the lowest member above its
            // links.
            for (link, quality) in found {
                caps.extend(link.iter().map(|node| (*node, quality)));
            }
            grants = self.grants(&self.wants(&caps), amount);
        }
        grants
    }

    /// The links to lower, with their new qualities. Of the links that must stop, only the least important one is
    /// returned: while a link counts, it withholds resources from others that it cannot use itself.
    fn broken(&self, free: &Wants, grants: &BTreeMap<NodeId, f64>, caps: &Caps) -> Vec<(&[NodeId], Option<f64>)> {
        let links = self.links.iter().map(Vec::as_slice);
        let lowest = |link: &[NodeId]| qualities(link, free, grants).min_by(compare).flatten();
        let broken: Vec<_> =
            links.clone().filter(|link| is_broken(link, free, grants)).map(|link| (link, lowest(link))).collect();
        if broken.iter().all(|(_, lowest)| lowest.is_some()) {
            return broken;
        }
        let told = |link: &[NodeId]| link.iter().all(|node| caps.get(node) == Some(&None));
        let still = links.rev().filter(|link| lowest(link).is_none() && !told(link));
        let least = still.min_by_key(|link| link.iter().map(|node| free[node].importance).max());
        least.map(|link| (link, None)).into_iter().collect()
    }

    fn wants(&self, caps: &BTreeMap<NodeId, Option<f64>>) -> BTreeMap<NodeId, Want> {
        let mut wants = BTreeMap::new();
        self.want_of(ROOT, caps, &mut wants);
        wants
    }

    fn want_of(&self, id: NodeId, caps: &BTreeMap<NodeId, Option<f64>>, wants: &mut BTreeMap<NodeId, Want>) -> Want {
        let node = &self.nodes[&id];
        let mut group = Group::new(node.level.division());
        node.children.iter().for_each(|child| group.want(*child, self.want_of(*child, caps, wants)));
        let want = if group.is_empty() { node.own } else { group.total(node.own) };
        let want = caps.get(&id).map_or(want, |cap| want.at_most(*cap));
        wants.insert(id, want);
        want
    }

    fn grants(&self, wants: &BTreeMap<NodeId, Want>, amount: f64) -> BTreeMap<NodeId, f64> {
        let mut grants = BTreeMap::from([(ROOT, amount.min(wants[&ROOT].ceiling).max(0.0))]);
        let mut open = vec![ROOT];
        while let Some(id) = open.pop() {
            let node = &self.nodes[&id];
            let mut group = Group::new(node.level.division());
            node.children.iter().for_each(|child| group.want(*child, wants[child]));
            grants.extend(group.divide(grants[&id]));
            open.extend(&node.children);
        }
        grants
    }
}

/// The qualities of the members that want something. A stream without sinks yet has no quality.
fn qualities(link: &[NodeId], free: &Wants, grants: &BTreeMap<NodeId, f64>) -> impl Iterator<Item = Option<f64>> {
    let wanting = link.iter().filter(|node| free[node].ceiling > 0.0);
    wanting.map(|node| free[node].quality(grants[node]))
}

/// Whether some members have a higher quality than others. A node with a single rate either runs or is stopped, so
/// its quality cannot be lowered.
fn is_broken(link: &[NodeId], free: &Wants, grants: &BTreeMap<NodeId, f64>) -> bool {
    let stopped = qualities(link, free, grants).filter(Option::is_none).count();
    if stopped > 0 {
        return stopped < qualities(link, free, grants).count();
    }
    let elastic: Vec<NodeId> = link.iter().copied().filter(|node| free[node].ceiling > free[node].floor).collect();
    let ends = || qualities(&elastic, free, grants).flatten();
    ends().fold(0.0, f64::max) > ends().fold(1.0, f64::min) + 1e-6
}

/// Orders qualities; stopped is the lowest.
fn compare(a: &Option<f64>, b: &Option<f64>) -> std::cmp::Ordering {
    let number = |quality: &Option<f64>| quality.unwrap_or(-1.0);
    number(a).total_cmp(&number(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NONE: Want = Want::NOTHING;

    /// A lesson: a film in three roles with two pupils each, and its sound.
    fn lesson() -> Tree {
        let mut tree = Tree::default();
        tree.add(1, Level::Stream, ROOT, NONE).unwrap();
        for (role, floor) in [(11, 10.0), (12, 15.0), (13, 20.0)] {
            tree.add(role, Level::Role, 1, Want { importance: role as u32, ..NONE }).unwrap();
            for pupil in 0..2 {
                tree.add(role * 10 + pupil, Level::Connection, role, Want::range(floor, floor + 5.0, 0)).unwrap();
            }
        }
        tree.add(2, Level::Stream, ROOT, NONE).unwrap();
        tree.add(200, Level::Connection, 2, Want::range(2.0, 10.0, 0)).unwrap();
        tree
    }

    #[test]
    fn connections_of_a_role_have_the_same_quality_and_roles_keep_their_order() {
        let grants = lesson().divide(2.0 * 57.0 + 10.0);
        assert_eq!((grants[&130], grants[&131]), (25.0, 25.0));
        assert!(grants[&110] == grants[&111] && grants[&110] < 15.0);
    }

    #[test]
    fn a_drop_in_picture_quality_lowers_the_sound_equally() {
        let mut tree = lesson();
        tree.link(&[1, 200]);
        let wants = tree.wants(&BTreeMap::new());
        let grants = tree.divide(110.0);
        let (picture, sound) = (wants[&1].quality(grants[&1]).unwrap(), wants[&200].quality(grants[&200]).unwrap());
        assert!((picture - sound).abs() < 1e-3, "{picture} {sound}");
        assert!(grants[&200] < lesson().divide(110.0)[&200]);
    }

    #[test]
    fn if_one_linked_node_stops_all_stop() {
        let mut tree = Tree::default();
        tree.add(1, Level::Stream, ROOT, Want::range(10.0, 20.0, 2)).unwrap();
        tree.add(2, Level::Stream, ROOT, Want::range(10.0, 20.0, 1)).unwrap();
        tree.add(3, Level::Stream, ROOT, Want::range(1.0, 50.0, 3)).unwrap();
        tree.link(&[1, 2]);
        let grants = tree.divide(15.0);
        assert_eq!((grants[&1], grants[&2], grants[&3]), (0.0, 0.0, 15.0));
    }

    /// Connections of a film, each linked with its sound; the minima of the film alone would use the whole amount.
    #[test]
    fn the_least_important_pair_stops_so_that_the_others_continue() {
        let mut tree = Tree::default();
        for stream in 1..=2 {
            tree.add(stream, Level::Stream, ROOT, NONE).unwrap();
            for (pupil, floor) in [(0, 90.0), (1, 135.0), (2, 180.0)] {
                let floor = if stream == 1 { floor } else { 50.0 };
                let want = Want::range(floor, floor * 1.5, pupil);
                tree.add(u64::from(10 * stream as u32 + pupil), Level::Connection, stream, want).unwrap();
            }
        }
        (0..3).for_each(|pupil| tree.link(&[10 + pupil, 20 + pupil]));
        let grants = tree.divide(300.0);
        assert!(grants[&12] >= 180.0 && grants[&22] >= 50.0, "{grants:?}");
        assert_eq!([grants[&10], grants[&20], grants[&11], grants[&21]], [0.0; 4], "{grants:?}");
    }

    /// Found by the fuzzer: the division never ended.
    #[test]
    fn a_link_with_a_stream_without_sinks_limits_no_other_node() {
        let mut tree = Tree::default();
        tree.add(1, Level::Stream, ROOT, Want::range(10.0, 20.0, 0)).unwrap();
        tree.add(2, Level::Stream, ROOT, NONE).unwrap();
        tree.link(&[1, 2]);
        assert_eq!([15.0, 5.0, 30.0].map(|amount| tree.divide(amount)[&1]), [15.0, 0.0, 20.0]);
    }

    /// Found with the previous case: the film is at half quality, and its sound has a single rate.
    #[test]
    fn a_node_with_a_single_rate_stops_with_its_link_and_lowers_no_other() {
        let mut tree = Tree::default();
        tree.add(1, Level::Stream, ROOT, Want::range(10.0, 20.0, 1)).unwrap();
        tree.add(2, Level::Stream, ROOT, Want::range(4.0, 4.0, 2)).unwrap();
        tree.link(&[1, 2]);
        let both = |amount| (tree.divide(amount)[&1], tree.divide(amount)[&2]);
        assert_eq!((both(19.0), both(12.0), both(40.0)), ((15.0, 4.0), (0.0, 0.0), (20.0, 4.0)));
    }

    #[test]
    fn a_child_has_a_lower_level_than_its_parent() {
        let mut tree = lesson();
        assert!(matches!(tree.add(9, Level::Stream, 11, NONE), Err(Misplaced::NotBelow { .. })));
        assert_eq!(tree.add(9, Level::Role, 77, NONE), Err(Misplaced::NoParent(77)));
        assert_eq!(tree.add(11, Level::Role, 1, NONE), Err(Misplaced::Taken(11)));
    }

    #[test]
    fn the_part_of_a_removed_node_goes_to_the_others() {
        let mut tree = lesson();
        let before = tree.divide(100.0)[&120];
        tree.remove(13);
        let grants = tree.divide(100.0);
        assert!(grants[&120] > before && !grants.contains_key(&130));
    }

    proptest! {
        #[test]
        fn a_tree_divides_its_amount_and_keeps_every_link(
            wants in proptest::collection::vec((0.0f64..10.0, 0.0f64..10.0, 0u32..3), 8), amount in 0.0f64..200.0
        ) {
            let mut tree = Tree::default();
            for stream in 1..=2 {
                tree.add(stream, Level::Stream, ROOT, NONE).unwrap();
            }
            for (i, (floor, room, importance)) in wants.iter().enumerate() {
                let parent = 1 + i as u64 % 2;
                tree.add(10 + i as u64, Level::Connection, parent, Want::range(*floor, floor + room, *importance)).unwrap();
            }
            tree.link(&[10, 11]);
            tree.link(&[11, 14]);
            let free = tree.wants(&BTreeMap::new());
            let grants = tree.divide(amount);
            let leaves: f64 = (10..18).map(|leaf| grants[&leaf]).sum();
            prop_assert!(leaves <= amount + 1e-6);
            for (a, b) in [(10, 11), (11, 14)] {
                let (a, b) = (free[&a].quality(grants[&a]), free[&b].quality(grants[&b]));
                prop_assert!(a.is_some() == b.is_some(), "{a:?} {b:?}");
                prop_assert!((a.unwrap_or(0.0) - b.unwrap_or(0.0)).abs() < 1e-3, "{a:?} {b:?}");
            }
        }
    }
}
