//! Where profiles of trial executions are kept: `$XDG_DATA_HOME/qfabric/profiles/NAME.json`.

use std::fs;
use std::path::{Path, PathBuf};

use qfabric_types::Profile;

use crate::exit::Failure;
use crate::output;

/// The file for `name`; a name with a `/` or ending in `.json` is the file itself.
pub fn file(name: &str) -> Result<PathBuf, Failure> {
    if name.contains('/') || name.ends_with(".json") {
        return Ok(PathBuf::from(name));
    }
    Ok(folder()?.join(format!("{name}.json")))
}

/// Stores `profile`, making the folder where it is missing.
pub fn store(file: &Path, profile: &Profile) -> Result<(), Failure> {
    if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder)
            .map_err(|error| Failure::fault(format!("cannot make {}: {error}", folder.display())))?;
    }
    output::write_json(file, profile)
}

/// Reads the profile called `name`.
pub fn load(name: &str) -> Result<Profile, Failure> {
    let file = file(name)?;
    let shown = file.display();
    let text = fs::read_to_string(&file).map_err(|error| {
        Failure::usage(format!("cannot read the profile {shown}: {error}; make one with qfabric probe"))
    })?;
    serde_json::from_str(&text).map_err(|error| Failure::usage(format!("{shown} is no profile: {error}")))
}

fn folder() -> Result<PathBuf, Failure> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_DATA_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/share")))
        .map(|data| data.join("qfabric/profiles"))
        .ok_or_else(|| Failure::usage("neither $XDG_DATA_HOME nor $HOME says where profiles live; set one"))
}

#[cfg(test)]
mod tests {
    use qfabric_types::Nanos;

    use super::*;

    #[test]
    fn what_is_stored_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("deep/er/p.json");
        let profile = Profile { costs: vec![Nanos::from_millis(3)], hints: vec![2.0] };
        store(&name, &profile).unwrap();
        assert_eq!(load(name.to_str().unwrap()).unwrap(), profile);
    }

    #[test]
    fn a_missing_profile_says_how_to_make_one() {
        assert!(format!("{:?}", load("/nowhere/x.json").unwrap_err()).contains("qfabric probe"));
    }
}
