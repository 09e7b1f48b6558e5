//! Writes the list of services as files in `<run dir>/services/NAME`, as the paper has it under `/proc`. The files
//! are for people and scripts; the daemon never reads them.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(crate) struct ServiceFiles {
    folder: PathBuf,
}

impl ServiceFiles {
    /// Empties the folder, because a former daemon may have left files in it.
    pub(super) fn new(directory: &Path) -> ServiceFiles {
        let files = ServiceFiles { folder: directory.join("services") };
        files.clear();
        files
    }

    /// Writes the file of a service. A failure is only logged, because nothing depends on the file.
    pub(super) fn show(&self, name: &str, text: &str) {
        let made = DirBuilder::new().recursive(true).mode(0o755).create(&self.folder);
        if let Err(error) = made.and_then(|()| fs::write(self.folder.join(name), text)) {
            tracing::debug!(%error, name, "cannot write the file of the service");
        }
    }

    /// Removes the file of a service.
    pub(super) fn hide(&self, name: &str) {
        // Fails if the file does not exist, which is fine.
        let _ = fs::remove_file(self.folder.join(name));
    }

    /// Removes all files.
    pub(super) fn clear(&self) {
        // Fails if the folder does not exist, which is fine.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_files_are_written_and_removed_and_a_start_clears_old_ones() {
        let dir = tempfile::tempdir().unwrap();
        let files = ServiceFiles::new(dir.path());
        files.show("a.b", "text");
        files.show("c.d", "text");
        files.hide("c.d");
        let list = || fs::read_dir(dir.path().join("services")).map(|entries| entries.count()).unwrap_or(0);
        assert_eq!((list(), fs::read_to_string(dir.path().join("services/a.b")).unwrap().as_str()), (1, "text"));
        ServiceFiles::new(dir.path());
        assert_eq!(list(), 0);
    }
}
