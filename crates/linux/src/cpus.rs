//! Parses and prints sets of CPUs in the kernel's format, such as `0-3,8`.

use std::fmt;
use std::path::Path;

use crate::files;

/// Number of CPUs that the kernel may ever use, of which each has a place in tables with a value for each CPU.
pub(crate) fn possible() -> u32 {
    let list = files::text("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = list.trim().rsplit(['-', ',']).next().and_then(|last| last.parse::<u32>().ok());
    last.map_or(1024, |last| last + 1)
}

/// A sorted set of CPU numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct CpuList(Vec<u32>);

impl CpuList {
    /// Larger CPU numbers in a file are refused.
    pub const LIMIT: u32 = 8_192;

    /// Parses `0-3,8`; `None` for any other format. An empty text is the empty set.
    pub fn parse(text: &str) -> Option<CpuList> {
        let mut cpus = Vec::new();
        for part in text.trim().split(',').filter(|p| !p.is_empty()) {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            let (low, high) = (low.trim().parse::<u32>().ok()?, high.trim().parse::<u32>().ok()?);
            if low > high || high >= CpuList::LIMIT {
                return None;
            }
            cpus.extend(low..=high);
        }
        cpus.sort_unstable();
        cpus.dedup();
        Some(CpuList(cpus))
    }

    /// Reads a list from a file of the kernel; `None` if it cannot be read.
    pub fn read(path: impl AsRef<Path>) -> Option<CpuList> {
        CpuList::parse(&files::text(path).ok()?)
    }

    /// CPUs that are online; at least one.
    pub fn online() -> CpuList {
        CpuList::read("/sys/devices/system/cpu/online").filter(|c| !c.is_empty()).unwrap_or(CpuList(vec![0]))
    }

    /// CPUs on which a thread may run; `None` if the thread has ended.
    pub fn allowed(tid: i32) -> Option<CpuList> {
        let status = files::text(format!("/proc/{tid}/status")).ok()?;
        CpuList::parse(status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"))?)
    }

    pub fn contains(&self, cpu: u32) -> bool {
        self.0.binary_search(&cpu).is_ok()
    }
    pub fn contains_all(&self, other: &CpuList) -> bool {
        other.0.iter().all(|cpu| self.0.binary_search(cpu).is_ok())
    }
    pub fn without(&self, other: &CpuList) -> CpuList {
        CpuList(self.0.iter().copied().filter(|cpu| other.0.binary_search(cpu).is_err()).collect())
    }
    /// The CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }
    pub fn len(&self) -> usize {
        self.0.len()
    }
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for cpu in self.iter() {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => runs.push((cpu, cpu)),
            }
        }
        let parts: Vec<_> =
            runs.iter().map(|&(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") }).collect();
        f.pad(&parts.join(","))
    }
}

impl FromIterator<u32> for CpuList {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> CpuList {
        let mut cpus: Vec<u32> = cpus.into_iter().collect();
        cpus.sort_unstable();
        cpus.dedup();
        CpuList(cpus)
    }
}

impl TryFrom<String> for CpuList {
    type Error = String;

    fn try_from(text: String) -> Result<CpuList, String> {
        CpuList::parse(&text).ok_or_else(|| format!("{text:?} is not a list of CPUs, such as 0-3,8"))
    }
}

impl From<CpuList> for String {
    fn from(list: CpuList) -> String {
        list.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_list_is_parsed_to_the_same_list() {
        for text in ["0", "0-3", "0-3,8,10-11", ""] {
            assert_eq!(CpuList::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(CpuList::parse("3,1-2,2\n").unwrap().to_string(), "1-3");
    }

    #[test]
    fn invalid_text_and_huge_ranges_are_refused() {
        for text in ["x", "3-1", "0-4294967295", "-1", "1-"] {
            assert_eq!(CpuList::parse(text), None, "{text}");
        }
    }

    #[test]
    fn containment_and_difference_work_on_sets() {
        let (all, some) = (CpuList::parse("0-3").unwrap(), CpuList::parse("1,3").unwrap());
        assert!(all.contains_all(&some) && !some.contains_all(&all));
        assert_eq!(all.without(&some).to_string(), "0,2");
    }

    #[test]
    fn this_thread_may_run_on_a_cpu_that_is_online() {
        assert!(CpuList::online().contains_all(&CpuList::allowed(std::process::id() as i32).unwrap()));
    }
}
