//! Reads the release of the running kernel, and the id of this boot.

use crate::files;

/// The kernel's release, such as `7.3.4+deb13-cloud-amd64`. From `uname`, which does not need /proc.
pub(crate) fn text() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Major and minor version; (0, 0), lower than all real versions, if the release has no version.
pub fn version() -> (u32, u32) {
    version_in(&text()).unwrap_or_default()
}

/// The first two numbers of a release.
pub(crate) fn version_in(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Random id that the kernel draws at each boot; empty if it cannot be read.
pub(crate) fn boot_id() -> String {
    files::trimmed("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_the_first_two_numbers_of_a_release() {
        for (release, version) in [
            ("7.3.4+deb13-cloud-amd64", Some((7, 3))),
            ("6.18.44-fc-v509", Some((6, 18))),
            ("6.19", Some((6, 19))),
            ("nonsense", None),
            ("6", None),
            ("", None),
        ] {
            assert_eq!(version_in(release), version, "{release:?}");
        }
        assert!(version_in("4.9.0") < version_in("4.13.0"), "compared as numbers");
    }

    #[test]
    fn this_kernel_has_a_version() {
        assert_eq!(Some(version()), version_in(&text()));
        assert!(version() >= (4, 13), "{}", text());
    }
}
