//! The QoS tree of four levels with its links, where all of it is on one host.
//!
//! ```text
//!   4 system        divides by weight        ┐
//!   3 stream        divides by importance    │ each knows its children's wants,
//!   2 role          gives all the same       │ none what is below them
//!   1 connection    holds its rate           ┘
//! ```
//! A *link* ties two or more nodes anywhere in the tree: a drop in the quality of one affects the others equally, and
//! when one stops, all do. Source: Q-channels paper §3.3, Figure 2. Where the levels are on several hosts, each holds
//! its [`Group`] and wants and grants travel as events; links are then siblings under [`Division::Linked`].

use std::collections::BTreeMap;

use super::group::{Division, Group, Want};

/// How high a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// One connection: keeps its rate.
    Connection = 1,
    /// All connections of one role: the same quality for each.
    Role = 2,
    /// All roles of one stream.
    Stream = 3,
    /// All streams.
    System = 4,
}

impl Level {
    /// How a node of this level divides what it has.
    pub const fn division(self) -> Division {
        match self {
            Level::System => Division::Weight,
            Level::Stream => Division::Importance,
            Level::Role | Level::Connection => Division::Equal,
        }
    }
}

/// Which node; the root is 0.
pub type NodeId = u64;

/// The system.
pub const ROOT: NodeId = 0;

/// Why a node cannot be where it is to be. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misplaced {
    /// There is no such parent.
    #[error("there is no node {0} in the tree; add the parent first")]
    NoParent(NodeId),
    /// A child stands below its parent.
    #[error("a node of level {child:?} cannot be below one of level {parent:?}; a parent's level has to be higher")]
    NotBelow {
        /// Of the child.
        child: Level,
        /// Of the parent.
        parent: Level,
    },
    /// The number is taken.
    #[error("node {0} is in the tree already; leave first, or take another number")]
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

/// Rounds after which a division stands as it is. Links in chains lower each other a few times; wants that differ by more
/// than numbers can tell apart could go on for ever.
const ROUNDS: usize = 1_000;

/// The quality that a node may have at most; none: it is stopped.
type Caps = BTreeMap<NodeId, Option<f64>>;

/// The tree.
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
    /// Adds a node. What a leaf wants is `own`; a node with children wants what they want, with `own`'s importance and
    /// weight.
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

    /// Takes a node and all below it out.
    pub fn remove(&mut self, node: NodeId) {
        let Some(gone) = self.nodes.remove(&node).filter(|_| node != ROOT) else { return };
        if let Some(parent) = self.nodes.get_mut(&gone.parent) {
            parent.children.retain(|child| *child != node);
        }
        self.links.iter_mut().for_each(|link| link.retain(|member| *member != node));
        self.links.retain(|link| link.len() > 1);
        gone.children.into_iter().for_each(|child| self.remove(child));
    }

    /// A leaf wants something else.
    pub fn want(&mut self, node: NodeId, own: Want) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.own = own;
        }
    }

    /// Ties nodes together.
    pub fn link(&mut self, members: &[NodeId]) {
        self.links.push(members.to_vec());
    }

    /// Divides `amount` from the root down; each node's grant. A link may lower its members' quality, which frees
    /// something for others, so it is divided again until no link is broken; each round lowers a quality for good.
    /// Links that have to stop do so one after the other, the least important first: what it frees may save the next.
    pub fn divide(&self, amount: f64) -> BTreeMap<NodeId, f64> {
        let free = self.wants(&BTreeMap::new());
        let mut caps = BTreeMap::new();
        let mut grants = self.grants(&free, amount);
        for _ in 0..ROUNDS {
            let found = self.broken(&free, &grants, &caps);
            if found.is_empty() {
                break;
            }
            // All members are capped, not only the high ones: what is freed must not lift the lowest above its links.
            for (link, quality) in found {
                caps.extend(link.iter().map(|node| (*node, quality)));
            }
            grants = self.grants(&self.wants(&caps), amount);
        }
        grants
    }

    /// Links that are to be lowered, and to which quality. Where one has to stop, only the least important of those
    /// that stand still is told so: while it counts, it keeps from others what it cannot use itself.
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

/// Of those that want something. A stream that nobody watches yet is neither good nor bad.
fn qualities(link: &[NodeId], free: &Wants, grants: &BTreeMap<NodeId, f64>) -> impl Iterator<Item = Option<f64>> {
    let wanting = link.iter().filter(|node| free[node].ceiling > 0.0);
    wanting.map(|node| free[node].quality(grants[node]))
}

/// Whether one of its members has more than another. Who has one rate and no other either runs or is stopped: there is
/// nothing that could be lowered.
fn is_broken(link: &[NodeId], free: &Wants, grants: &BTreeMap<NodeId, f64>) -> bool {
    let stopped = qualities(link, free, grants).filter(Option::is_none).count();
    if stopped > 0 {
        return stopped < qualities(link, free, grants).count();
    }
    let elastic: Vec<NodeId> = link.iter().copied().filter(|node| free[node].ceiling > free[node].floor).collect();
    let ends = || qualities(&elastic, free, grants).flatten();
    ends().fold(0.0, f64::max) > ends().fold(1.0, f64::min) + 1e-6
}

/// Stopped is the lowest.
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
    fn a_drop_in_the_picture_drops_the_sound_alike() {
        let mut tree = lesson();
        tree.link(&[1, 200]);
        let wants = tree.wants(&BTreeMap::new());
        let grants = tree.divide(110.0);
        let (picture, sound) = (wants[&1].quality(grants[&1]).unwrap(), wants[&200].quality(grants[&200]).unwrap());
        assert!((picture - sound).abs() < 1e-3, "{picture} {sound}");
        assert!(grants[&200] < lesson().divide(110.0)[&200]);
    }

    #[test]
    fn when_one_linked_node_stops_all_do() {
        let mut tree = Tree::default();
        tree.add(1, Level::Stream, ROOT, Want::range(10.0, 20.0, 2)).unwrap();
        tree.add(2, Level::Stream, ROOT, Want::range(10.0, 20.0, 1)).unwrap();
        tree.add(3, Level::Stream, ROOT, Want::range(1.0, 50.0, 3)).unwrap();
        tree.link(&[1, 2]);
        let grants = tree.divide(15.0);
        assert_eq!((grants[&1], grants[&2], grants[&3]), (0.0, 0.0, 15.0));
    }

    /// A film's connections with their sounds, where the film's minima alone would take all there is.
    #[test]
    fn the_least_important_pair_stops_so_that_the_others_can_go_on() {
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

    /// Found by the fuzzer: it never came to an end.
    #[test]
    fn a_link_with_a_stream_that_nobody_watches_yet_holds_nobody_down() {
        let mut tree = Tree::default();
        tree.add(1, Level::Stream, ROOT, Want::range(10.0, 20.0, 0)).unwrap();
        tree.add(2, Level::Stream, ROOT, NONE).unwrap();
        tree.link(&[1, 2]);
        assert_eq!([15.0, 5.0, 30.0].map(|amount| tree.divide(amount)[&1]), [15.0, 0.0, 20.0]);
    }

    /// Found with it: the film is at the half, and its sound has one rate only.
    #[test]
    fn who_has_one_rate_runs_or_is_stopped_with_its_link_and_lowers_nobody() {
        let mut tree = Tree::default();
        tree.add(1, Level::Stream, ROOT, Want::range(10.0, 20.0, 1)).unwrap();
        tree.add(2, Level::Stream, ROOT, Want::range(4.0, 4.0, 2)).unwrap();
        tree.link(&[1, 2]);
        let both = |amount| (tree.divide(amount)[&1], tree.divide(amount)[&2]);
        assert_eq!((both(19.0), both(12.0), both(40.0)), ((15.0, 4.0), (0.0, 0.0), (20.0, 4.0)));
    }

    #[test]
    fn a_level_stands_below_its_parents() {
        let mut tree = lesson();
        assert!(matches!(tree.add(9, Level::Stream, 11, NONE), Err(Misplaced::NotBelow { .. })));
        assert_eq!(tree.add(9, Level::Role, 77, NONE), Err(Misplaced::NoParent(77)));
        assert_eq!(tree.add(11, Level::Role, 1, NONE), Err(Misplaced::Taken(11)));
    }

    #[test]
    fn who_leaves_leaves_its_part_to_the_others() {
        let mut tree = lesson();
        let before = tree.divide(100.0)[&120];
        tree.remove(13);
        let grants = tree.divide(100.0);
        assert!(grants[&120] > before && !grants.contains_key(&130));
    }

    proptest! {
        #[test]
        fn a_tree_hands_out_what_it_has_and_keeps_every_link(
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
