//! Names the keys that differ between two texts of the configuration, so that the log can say exactly what needs a
//! restart.

use toml::{Table, Value};

use crate::config::Source;

/// Every key that has a default, with this value.
const SHIPPED: &str = include_str!("../../../../packaging/daemon.toml");
/// Keys of `[ecalls]` that need a restart; all others are applied at once.
const ECALLS: [&str; 4] =
    ["ecalls.queue", "ecalls.queue_per_subscription", "ecalls.handler_threads", "ecalls.max_subscriptions"];
/// Keys that are applied at once, of sections with others that are not.
const APPLIED: [&str; 15] = [
    "api.group",
    "api.mode",
    "channels.lend_hold",
    "channels.max_filter_instructions",
    "channels.max_filter_instructions_per_second",
    "channels.max_leases",
    "channels.max_leases_per_user",
    "channels.max_members_per_user",
    "channels.policy_budget",
    "channels.rule",
    "channels.slack",
    "control.jobs_per_look",
    "control.lease_grace",
    "log.filter",
    "web.enabled",
];

/// The keys of `section` that differ and need a restart, by their dotted names; the section itself if none is known.
pub(super) fn to_restart(section: &str, running: &Source, new: &Source) -> Vec<String> {
    let shipped: Table = toml::from_str(SHIPPED).unwrap_or_default();
    let of = |source: &Source| {
        let mut all = find(&shipped, section).cloned();
        match (&mut all, find(&source.0, section)) {
            (Some(Value::Table(all)), Some(Value::Table(own))) => overlay(all, own),
            (_, Some(own)) => all = Some(own.clone()),
            _ => {}
        }
        all
    };
    let mut found = Vec::new();
    differing(section, of(running).as_ref(), of(new).as_ref(), &mut found);
    if found.is_empty() {
        return vec![section.to_owned()];
    }
    // The others are in force, or the log has said why not.
    found.retain(|key| needs_restart(key));
    found
}

fn needs_restart(key: &str) -> bool {
    match key.starts_with("ecalls.") {
        true => ECALLS.contains(&key),
        false => !APPLIED.contains(&key),
    }
}

/// The value of a dotted name.
fn find<'a>(table: &'a Table, name: &str) -> Option<&'a Value> {
    let (first, rest) = name.split_once('.').map_or((name, None), |(first, rest)| (first, Some(rest)));
    match (table.get(first)?, rest) {
        (value, None) => Some(value),
        (Value::Table(below), Some(rest)) => find(below, rest),
        _ => None,
    }
}

fn overlay(all: &mut Table, own: &Table) {
    for (key, value) in own {
        match (all.get_mut(key), value) {
            (Some(Value::Table(all)), Value::Table(own)) => overlay(all, own),
            _ => drop(all.insert(key.clone(), value.clone())),
        }
    }
}

fn differing(name: &str, one: Option<&Value>, other: Option<&Value>, found: &mut Vec<String>) {
    match (one, other) {
        (one, other) if one == other => {}
        (Some(Value::Table(one)), Some(Value::Table(other))) => {
            let mut keys: Vec<&String> = one.keys().chain(other.keys()).collect();
            keys.sort_unstable();
            keys.dedup();
            for key in keys {
                differing(&format!("{name}.{key}"), one.get(key), other.get(key), found);
            }
        }
        _ => found.push(name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(section: &str, one: &str, other: &str) -> Vec<String> {
        let read = |text: &str| Source(toml::from_str(text).unwrap());
        to_restart(section, &read(one), &read(other))
    }

    #[test]
    fn keys_that_differ_are_named_and_a_default_that_is_written_out_is_no_difference() {
        let (one, other) = ("[api]\nmode = '0666'\n", "[api]\ntimeout = '9s'\ndirectory = '/run/other'\n");
        assert_eq!(keys("api", one, other), ["api.directory", "api.timeout"]);
        assert_eq!(keys("channels", "", "[[channels.policy]]\nkind = 'roles'\n"), ["channels.policy"]);
        assert_eq!(keys("net.answer", "", "[net]\nanswer = 7\n"), ["net.answer"]);
    }

    #[test]
    fn keys_that_are_applied_at_once_are_not_named() {
        let text = "[api]\nmode = '0600'\ntimeout = '9s'\n[control]\njobs_per_look = 9\nlock_memory = false\n[ecalls]\nqueue = 7\nmax_services = 9\n";
        assert_eq!(keys("api", "", text), ["api.timeout"]);
        assert_eq!(keys("control", "", text), ["control.lock_memory"]);
        assert_eq!(keys("ecalls", "", text), ["ecalls.queue"]);
        assert!(keys("api", "", "[api]\nmode = '0600'\n").is_empty());
    }

    #[test]
    fn the_guide_says_of_every_key_of_channels_and_of_every_applied_key_what_sighup_does() {
        let page = include_str!("../../../../docs/guide/src/daemon.md");
        let (_, section) = page.split_once("## Reload with SIGHUP\n").unwrap();
        let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
        let shipped: Table = toml::from_str(SHIPPED).unwrap();
        let channels = find(&shipped, "channels").and_then(Value::as_table).unwrap();
        let channels = channels.keys().map(|key| format!("channels.{key}"));
        let all = channels.chain(APPLIED.iter().chain(&ECALLS).map(|key| (*key).to_owned()));
        let is_named = |key: &String| {
            let short = key.rsplit('.').next().unwrap_or(key);
            [format!("`{key}`"), format!("`{short}`"), format!("`[[{key}]]`")].iter().any(|name| section.contains(name))
        };
        let missing: Vec<String> = all.filter(|key| !is_named(key)).collect();
        assert_eq!(missing, [""; 0]);
    }

    #[test]
    fn without_a_text_the_section_is_named() {
        assert_eq!(keys("mechanism", "", ""), ["mechanism"]);
    }
}
