//! The control files of a temporary tree stand for those of the kernel: they appear and vanish with their folder.

use super::record::restore_with;
use super::*;

const MIB: u64 = 1 << 20;

/// Makes a folder with the files that a group of version 2 has.
fn make(at: &Path) -> io::Result<()> {
    fs::create_dir(at)?;
    for (name, text) in [(CONTROLLERS, ""), (PROCESSES, ""), (PROTECTION, "0"), (SWAP, "max")] {
        fs::write(at.join(name), text)?;
    }
    Ok(())
}

fn remove(at: &Path) -> io::Result<()> {
    fs::remove_dir_all(at)
}

const EMULATED: Folders = Folders { make, remove };

/// A root without `memory.min`, a group `slice` with 1 MiB of its own, and the folder of the record.
struct Tree {
    top: tempfile::TempDir,
}

impl Tree {
    fn new() -> Tree {
        let tree = Tree { top: tempfile::tempdir().unwrap() };
        fs::create_dir(tree.top.path().join("root")).unwrap();
        fs::write(tree.root().join(CONTROLLERS), "cpu").unwrap();
        fs::write(tree.root().join(PROCESSES), "").unwrap();
        make(&tree.root().join("slice")).unwrap();
        fs::write(tree.root().join("slice/memory.min"), MIB.to_string()).unwrap();
        tree
    }

    fn root(&self) -> PathBuf {
        self.top.path().join("root")
    }

    fn base(&self) -> PathBuf {
        self.root().join("slice/qfabric")
    }

    fn groups(&self) -> MemoryGroups {
        self.groups_in(EMULATED)
    }

    fn groups_in(&self, folders: Folders) -> MemoryGroups {
        let mounts = Mounts { v2: Some(self.root()), v1: Vec::new() };
        let mut groups = MemoryGroups::in_tree(mounts, self.root(), self.base(), self.top.path(), folders);
        groups.prepare().unwrap();
        groups
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.root().join(file)).unwrap_or_else(|_| "gone".into())
    }
}

/// Protects a process as [`MemoryGroups::protect`] does, with a former group in the tree.
fn protect(groups: &mut MemoryGroups, tree: &Tree, reserve: u64, bytes: u64) {
    let (path, former) = (groups.group(reserve), tree.root().join("slice"));
    groups.record.groups.insert(reserve, Group { path: path.clone(), former });
    groups.record.write().unwrap();
    groups.fill(&path, reserve, std::process::id() as i32, Bytes::new(bytes)).unwrap();
}

#[test]
fn a_group_and_all_its_ancestors_are_protected() {
    let tree = Tree::new();
    let mut groups = tree.groups();
    protect(&mut groups, &tree, 1, 64 * MIB);
    protect(&mut groups, &tree, 2, 16 * MIB);
    assert_eq!(tree.read("slice/qfabric/reserve-1/memory.min"), (64 * MIB).to_string());
    assert_eq!(tree.read("slice/qfabric/reserve-1/memory.swap.max"), "0");
    assert_eq!(tree.read("slice/qfabric/memory.min"), (80 * MIB).to_string());
    assert_eq!(tree.read("slice/memory.min"), (81 * MIB).to_string());
    assert!(!tree.root().join(PROTECTION).exists());
    let moved: i32 = tree.read("slice/qfabric/reserve-1/cgroup.procs").parse().unwrap();
    assert!(moved == std::process::id() as i32 || descendants(std::process::id() as i32).contains(&moved));
    assert_eq!(tree.read("slice/qfabric/cgroup.subtree_control"), "+memory");
}

#[test]
fn a_promise_grows_and_shrinks_and_everything_is_put_back() {
    let tree = Tree::new();
    let mut groups = tree.groups();
    protect(&mut groups, &tree, 1, 64 * MIB);
    for mib in [128, 32] {
        groups.resize(1, Bytes::from_mib(mib)).unwrap();
        assert_eq!(tree.read("slice/qfabric/reserve-1/memory.min"), (mib * MIB).to_string());
        assert_eq!(tree.read("slice/memory.min"), ((mib + 1) * MIB).to_string());
    }
    groups.release(1).unwrap();
    assert_eq!(tree.read("slice/memory.min"), MIB.to_string());
    assert!(!tree.base().exists() && !tree.top.path().join("memory.json").exists());
    assert_eq!(tree.read(CONTROLLERS), "-memory");
    assert_ne!(tree.read("slice/cgroup.procs"), "");
}

#[test]
fn after_a_crash_the_record_puts_everything_back() {
    let tree = Tree::new();
    let mut groups = tree.groups();
    protect(&mut groups, &tree, 1, 64 * MIB);
    std::mem::forget(groups); // a crash: nothing was put back
    let restored = restore_with(tree.top.path(), EMULATED);
    assert_eq!(restored, MemoryRestored { settings: 2, failed: Vec::new() });
    assert_eq!((tree.read("slice/memory.min"), tree.base().exists()), (MIB.to_string(), false));
    assert_eq!(restore_with(tree.top.path(), EMULATED), MemoryRestored::default());
}

#[test]
fn a_group_that_stays_keeps_its_promise_no_longer_and_no_other_group() {
    let stays = |at: &Path| match at.ends_with("reserve-1") {
        true => Err(io::ErrorKind::ResourceBusy.into()),
        false => remove(at),
    };
    let folders = Folders { make, remove: stays };
    let tree = Tree::new();
    let mut groups = tree.groups_in(folders);
    protect(&mut groups, &tree, 1, 64 * MIB);
    protect(&mut groups, &tree, 2, 16 * MIB);
    assert!(groups.record.put_back(folders).is_err());
    assert_eq!(tree.read("slice/qfabric/reserve-1/memory.min"), "0");
    assert_eq!(tree.read("slice/qfabric/reserve-2/memory.min"), "gone");
    assert_eq!(groups.record.groups.keys().copied().collect::<Vec<_>>(), [1]);
}

/// In a control group namespace of its own a daemon sees `/../slice` for a group outside, and `/` for its own group.
#[test]
fn a_group_that_does_not_have_the_process_is_refused_with_the_option_of_the_container() {
    let tree = Tree::new();
    let slice = tree.root().join("slice");
    assert!(having(7, slice.clone()).is_err(), "another root is mounted");
    fs::write(slice.join(PROCESSES), "5\n7\n").unwrap();
    assert_eq!(having(7, slice.clone()).unwrap(), slice);
    let outside = having(7, tree.root().join("slice/../slice")).unwrap_err().problem();
    assert!(outside.message.contains("process 7") && outside.next_step.contains("--cgroupns host"), "{outside:?}");
    assert!(having(7, tree.root().join("none")).is_err(), "no such group");
}

#[test]
fn a_process_outside_the_tree_stays_where_it_is() {
    let tree = Tree::new();
    let mut groups = tree.groups();
    let pid = std::process::id() as i32;
    // The tree of the test is not the one that the kernel names; without version 2 there is no name at all.
    let refused = groups.protect(1, pid, Bytes::from_mib(1)).unwrap_err();
    assert!(matches!(refused, GroupError::Elsewhere { .. } | GroupError::NoGroup { .. }), "{refused}");
    assert!(groups.record.groups.is_empty() && !groups.reserve_group(1).0.exists());
}

#[test]
fn a_record_with_foreign_paths_is_refused() {
    let tree = Tree::new();
    let mut groups = tree.groups();
    groups.record.raised.insert("/etc/passwd".into(), "x".into());
    groups.record.write().unwrap();
    groups.record.raised.clear();
    let failed = restore_with(tree.top.path(), EMULATED).failed;
    assert!(failed[0].contains("outside the control groups") && failed[0].contains("inspect"), "{failed:?}");
}

#[test]
fn descendants_are_found() {
    let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
    let is_found = descendants(std::process::id() as i32).contains(&(child.id() as i32));
    let has_children_file = Path::new("/proc/self/task").join(std::process::id().to_string()).join("children").exists();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(is_found, has_children_file);
}
