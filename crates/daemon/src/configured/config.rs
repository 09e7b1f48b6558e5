//! The tables `[[contract]]` of the configuration: contracts for what units and control groups run.

use std::collections::BTreeSet;

use qfabric_linux::targets::Place;
use qfabric_types::{Bytes, Contract, ContractOptions};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::config::{InvalidConfig, out_of_range};

/// Largest number of tables.
const MOST: usize = 64;

/// A contract for what a unit or a control group runs, whenever it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct ContractConfig {
    /// The unit or control group.
    pub place: Place,
    /// The contract of each of its processes that is no child of another. Its name is different from all others.
    pub contract: Contract,
}

impl<'de> Deserialize<'de> for ContractConfig {
    /// The keys `unit` or `cgroup`, and the options of `qfabric attach`.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut table = toml::Table::deserialize(deserializer)?;
        let mut take = |key: &str| -> Result<Option<String>, D::Error> {
            match table.remove(key) {
                None => Ok(None),
                Some(toml::Value::String(text)) => Ok(Some(text)),
                Some(other) => Err(D::Error::custom(format!("{key} is {other}; use a text such as \"mpd.service\""))),
            }
        };
        let place = match (take("unit")?, take("cgroup")?) {
            (Some(unit), None) => Place::unit(&unit),
            (None, Some(group)) => Place::group(&group),
            _ => return Err(D::Error::custom("a contract needs one of the keys unit and cgroup, and not both")),
        };
        let place = place.map_err(D::Error::custom)?;
        let options: ContractOptions = table.try_into().map_err(|error: toml::de::Error| {
            D::Error::custom(format!("{}; other keys: unit, cgroup", error.message()))
        })?;
        let contract = options.contract(&name_of(&place)).map_err(D::Error::custom)?;
        if contract.memory != Bytes::ZERO {
            let next = "set MemoryMin= of the unit, or memory.min of the control group";
            return Err(D::Error::custom(format!("memory would move the program out of its control group; {next}")));
        }
        Ok(ContractConfig { place, contract })
    }
}

/// The last part of the place, as a name for the contract.
fn name_of(place: &Place) -> String {
    let text = place.to_string();
    let last = text.rsplit('/').find(|part| !part.is_empty()).unwrap_or_default();
    last.chars().take(64).collect()
}

/// Refuses too many tables, and two with one name: status and log tell contracts apart by their names.
pub(crate) fn check(all: &[ContractConfig]) -> Result<(), InvalidConfig> {
    if all.len() > MOST {
        return Err(out_of_range("contract", format!("{} tables", all.len()), "at most 64 tables"));
    }
    let mut names = BTreeSet::new();
    match all.iter().map(|one| &one.contract.name).find(|name| !names.insert(*name)) {
        Some(twice) => Err(out_of_range("contract.name", format!("{twice:?} twice"), "another name for one of them")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use qfabric_types::{JobSource, Nanos, Share};

    use super::*;
    use crate::config::Config;

    fn read(text: &str) -> Result<Vec<ContractConfig>, String> {
        let config = Config::parse(text, std::path::Path::new("daemon.toml")).map_err(|error| error.to_string())?;
        Ok(config.contract)
    }

    #[test]
    fn a_table_has_a_unit_or_a_control_group_and_the_options_of_attach() {
        let text = "[[contract]]\nunit = 'mpd'\nfps = 25\nmax_bandwidth = 0.3\n\
                    [[contract]]\nname = 'web'\ncgroup = '/machine.slice/web'\nfixed = 0.5\n";
        let all = read(text).unwrap();
        let [mpd, web] = &all[..] else { panic!("{all:?}") };
        assert_eq!((mpd.place.clone(), mpd.contract.name.as_str()), (Place::Unit("mpd.service".into()), "mpd.service"));
        assert_eq!((mpd.contract.period, mpd.contract.jobs), (Nanos::from_millis(40), JobSource::Activations));
        assert_eq!((web.place.clone(), web.contract.name.as_str()), (Place::Group("/machine.slice/web".into()), "web"));
        assert_eq!(web.contract.fixed, Some(Share::from_ppm(500_000)));
    }

    #[test]
    fn a_table_that_makes_no_sense_is_refused_with_its_line_and_the_remedy() {
        for (table, said) in [
            ("fps = 25", "one of the keys unit and cgroup"),
            ("unit = 'a'\ncgroup = 'b'", "and not both"),
            ("unit = 7", "unit is 7"),
            ("unit = '-x'", "mpd.service"),
            ("cgroup = '../x'", "without `..`"),
            ("unit = 'a'\nfpz = 25", "unknown field `fpz`"),
            ("unit = 'a'\nfps = 25\nperiod = '40ms'", "period and fps"),
            ("unit = 'a'\nmemory = '64M'", "MemoryMin="),
            ("unit = 'a'\nweight = 0", "weight is 0"),
        ] {
            let refusal = read(&format!("[log]\nformat = 'text'\n[[contract]]\n{table}\n")).unwrap_err();
            assert!(refusal.contains(said) && refusal.contains("line 3"), "{table}: {refusal}");
        }
        let twice = read("[[contract]]\nunit = 'a'\n[[contract]]\nname = 'a.service'\nunit = 'b'\n").unwrap_err();
        assert!(twice.contains("contract.name is \"a.service\" twice"), "{twice}");
        let many: String = (0..65).map(|i| format!("[[contract]]\nunit = 'a{i}'\n")).collect();
        assert!(read(&many).unwrap_err().contains("at most 64"));
    }
}
