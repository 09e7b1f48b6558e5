use super::*;
use crate::Nanos;

fn read(text: &str) -> Policy {
    serde_json::from_str(text).unwrap()
}

fn names<'a>(names: impl IntoIterator<Item = &'a Name>) -> Vec<&'a str> {
    names.into_iter().map(Name::as_str).collect()
}

#[test]
fn a_policy_is_written_by_its_kind_and_named_after_its_channel() {
    let policy = read(r#"{"kind": "roles", "channel": "video"}"#);
    assert_eq!((policy.name().unwrap().as_str(), policy.as_kind().decides().len()), ("roles.video", 1));
    let Policy::Roles(RolesPolicy { event_bits: 8_000, fade: false, .. }) = policy else { panic!("{policy:?}") };
    let hold = read(r#"{"kind": "hold", "name": "calm", "channel": "video", "rate": 24.5}"#);
    assert_eq!((hold.name().unwrap().as_str(), hold.kind()), ("calm", "hold"));
    assert_eq!(read(&serde_json::to_string(&hold).unwrap()), hold);
}

#[test]
fn every_listed_kind_is_parsed_by_its_name() {
    for kind in Policy::KINDS {
        let refusal = serde_json::from_str::<Policy>(&format!(r#"{{"kind": "{kind}"}}"#)).unwrap_err().to_string();
        assert!(refusal.contains("missing field"), "{kind}: {refusal}");
    }
}

#[test]
fn unknown_kinds_and_options_are_refused_by_name() {
    let refusal = |text| serde_json::from_str::<Policy>(text).unwrap_err().to_string();
    assert!(refusal(r#"{"kind": "magic", "channel": "video"}"#).contains("magic"));
    assert!(refusal(r#"{"kind": "roles", "channel": "video", "event_bit": 8}"#).contains("event_bit"));
    assert!(refusal(r#"{"kind": "hold", "channel": "video"}"#).contains("rate"));
}

#[test]
fn missing_options_have_the_documented_defaults() {
    let policy = read(r#"{"kind": "balance", "channel": "web"}"#);
    assert_eq!(policy.name().unwrap().as_str(), "balance.web");
    let Policy::Balance(BalancePolicy { copies: 1, cancel: false, patience_ns, event_type, .. }) = policy else {
        panic!("the policy is of another kind")
    };
    assert_eq!((patience_ns, event_type.as_str()), (Nanos::from_millis(2_500), "request"));
    let media = read(r#"{"kind": "media", "group": "lips", "leader": "sound", "follower": "picture"}"#);
    assert_eq!((media.name().unwrap().as_str(), media.channel().unwrap().as_str()), ("media.lips", "lips"));
}

#[test]
fn a_tree_decides_the_rates_of_all_its_streams() {
    let tree = read(
        r#"{"kind": "tree", "name": "class", "capacity": 1000000,
            "streams": [{"channel": "film", "event_bits": 9040}, {"channel": "sound", "event_bits": 2000}],
            "links": [{"channels": ["film", "sound"], "at_each_sink": true}]}"#,
    );
    assert_eq!(names(tree.as_kind().channels()), ["film", "sound"]);
    let rates = |channel: &str| Resource::Rates(channel.parse().unwrap());
    assert_eq!(tree.as_kind().decides(), [rates("film"), rates("sound")]);
    assert_eq!(tree.to_string(), "1000000 bit/s for film, sound; linked at each sink: film, sound");
    assert_eq!(read(&serde_json::to_string(&tree).unwrap()), tree);
}

#[test]
fn two_policies_conflict_if_they_decide_one_resource_of_one_channel() {
    let sync = |channel: &str| read(&format!(r#"{{"kind": "sync", "channel": "{channel}"}}"#));
    let both = |one: &Policy, two: &Policy| {
        let (one, two) = (one.as_kind().decides(), two.as_kind().decides());
        one.into_iter().find(|resource| two.contains(resource)).map(|resource| resource.to_string())
    };
    assert_eq!(both(&sync("film"), &sync("film")).unwrap(), "when events of `film` are shown");
    assert_eq!(both(&sync("film"), &sync("sound")), None);
    let hold = read(r#"{"kind": "hold", "channel": "film", "rate": 25}"#);
    assert_eq!(both(&sync("film"), &hold), None, "the display time and the rate are different resources");
    let roles = read(r#"{"kind": "roles", "channel": "film"}"#);
    assert_eq!(both(&roles, &hold).unwrap(), "at what rates `film` goes to its sinks");
}

#[test]
fn a_ladder_states_levels_alone_or_each_with_its_utility() {
    let parsed = |text: &str| text.parse::<LadderDimension>();
    let plain = parsed("quality=80,60,40").unwrap();
    let worthy = parsed("quality=80:100,60:95,40:60").unwrap();
    assert_eq!((plain.worth.len(), &worthy.levels, &worthy.worth[..]), (0, &plain.levels, &[100, 95, 60][..]));
    assert_eq!([plain.to_string(), worthy.to_string()], ["quality=80,60,40", "quality=80:100,60:95,40:60"]);
    let refused = |text: &str| parsed(text).unwrap_err();
    assert!(refused("quality=80:100,60").contains("state one for each"));
    assert!(refused("quality=80:10,60:95").contains("grows from 10 to 95"));
    assert!(refused("quality=80:-1").contains("-1") && refused("quality=80:9999999999").contains("1000000000"));
    assert!(refused("quality=80:").contains("utility \"\""));
}
