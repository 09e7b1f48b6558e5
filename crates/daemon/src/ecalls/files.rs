//! `<run dir>/services/NAME`: the list of services as files, as the paper has it under `/proc`. For people and
//! scripts; nobody reads them back.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The folder of services.
#[derive(Debug)]
pub(crate) struct ServiceFiles {
    folder: PathBuf,
}

impl ServiceFiles {
    /// Empties the folder: what is there is left over.
    pub fn new(directory: &Path) -> ServiceFiles {
        let files = ServiceFiles { folder: directory.join("services") };
        files.clear();
        files
    }

    /// Shows a service. A list that cannot be written is told in the log: nothing depends on it.
    pub fn show(&self, name: &str, text: &str) {
        let made = DirBuilder::new().recursive(true).mode(0o755).create(&self.folder);
        if let Err(error) = made.and_then(|()| fs::write(self.folder.join(name), text)) {
            tracing::debug!(%error, name, "the service is not shown as a file");
        }
    }

    /// The service is gone.
    pub fn hide(&self, name: &str) {
        // Not shown: that was the aim.
        let _ = fs::remove_file(self.folder.join(name));
    }

    /// No service is there any more.
    pub fn clear(&self) {
        // Not there: that was the aim.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_appear_and_disappear_and_what_was_left_over_goes() {
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
