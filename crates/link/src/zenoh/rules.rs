//! Zenoh's access control, made from the access list. Messages that are not listed are denied, and a host may publish
//! only to keys that end in its own name. As seen by this host: what others may send to it (ingress) and receive from
//! it (egress).

use qfabric_types::channel::{Name, Plane};
use serde_json::{Value, json};

use super::keys::Keys;
use qfabric_realm::{Access, Right};

/// The messages of a host besides frames.
const ASKING: [&str; 3] = ["declare_subscriber", "declare_liveliness_subscriber", "liveliness_query"];

/// The setting `access_control` of the host `me`.
pub(crate) fn access_control(realm: &Name, me: &Name, access: &Access) -> Value {
    let keys = Keys { realm: realm.clone() };
    let others: Vec<&Name> = access.hosts.union(&access.routers).filter(|host| *host != me).collect();
    let mut rules = Vec::new();
    let mut policies = Vec::new();
    for host in &others {
        let of_host = rules_for(&keys, host, access);
        let ids: Vec<&Value> = of_host.iter().map(|rule| &rule["id"]).collect();
        policies.push(json!({"rules": ids, "subjects": [host]}));
        rules.extend(of_host);
    }
    let subjects: Vec<Value> = others.iter().map(|host| json!({"id": host, "cert_common_names": [host]})).collect();
    json!({
        "enabled": true,
        "default_permission": "deny",
        "rules": rules,
        "subjects": subjects,
        "policies": policies,
    })
}

fn rules_for(keys: &Keys, host: &Name, access: &Access) -> [Value; 4] {
    let relays = access.routers.contains(host);
    let (says, gets) = if relays { (relayed(keys), relayed(keys)) } else { of_host(keys, host, access) };
    let life = keys.life(if relays { "*" } else { host.as_str() }, "*");
    let asks = with(gets.clone(), keys.life("*", "*"));
    let asking = ["liveliness_token"].iter().chain(&ASKING).copied().collect::<Vec<_>>();
    let rule = |what: &str, flow: &str, messages: &[&str], keys: Vec<String>| {
        let id = format!("{host} {what}");
        json!({"id": id, "permission": "allow", "flows": [flow], "messages": messages, "key_exprs": keys})
    };
    [
        rule("says", "ingress", &["put", "liveliness_token"], with(says, life)),
        rule("asks", "ingress", &ASKING, asks),
        rule("gets", "egress", &["put"], gets),
        rule("is asked", "egress", &asking, vec![format!("qf/{}/**", keys.realm)]),
    ]
}

fn with(mut keys: Vec<String>, one: String) -> Vec<String> {
    keys.push(one);
    keys
}

/// The keys that pass through a router: frames of any host.
fn relayed(keys: &Keys) -> Vec<String> {
    let channels = [Plane::Data, Plane::Quality].map(|plane| keys.channel(plane, "*", "*"));
    [keys.everyone("*"), keys.host("*", "*")].into_iter().chain(channels).collect()
}

/// The keys to which a host may publish, and those that it may receive.
fn of_host(keys: &Keys, host: &Name, access: &Access) -> (Vec<String>, Vec<String>) {
    let host = host.clone();
    let mut says = vec![keys.everyone(host.as_str()), keys.host("*", host.as_str())];
    let mut gets = vec![keys.everyone("*"), keys.host(host.as_str(), "*")];
    for pattern in access.channels(&host, |right| right == Right::Send) {
        says.push(keys.channel(Plane::Data, &expression(pattern), host.as_str()));
    }
    for pattern in access.channels(&host, |right| right == Right::Join) {
        gets.push(keys.channel(Plane::Data, &expression(pattern), "*"));
    }
    for pattern in access.channels(&host, Right::is_of_members) {
        says.push(keys.channel(Plane::Quality, &expression(pattern), host.as_str()));
        gets.push(keys.channel(Plane::Quality, &expression(pattern), "*"));
    }
    (says, gets)
}

/// A name, or the beginning of names, as a key expression of Zenoh.
fn expression(pattern: &str) -> String {
    match pattern.strip_suffix('*') {
        Some("") | None => pattern.to_owned(),
        Some(beginning) => format!("{beginning}$*"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access() -> Access {
        toml::from_str(
            "hosts = ['a', 'b']\nrouters = ['edge']\n\
             [[rule]]\nchannels = ['cam-*']\nhosts = ['a']\nrights = ['send']\n\
             [[rule]]\nchannels = ['cam-*']\nhosts = ['b']\nrights = ['join']\n",
        )
        .unwrap()
    }

    fn keys_of(rules: &Value, id: &str) -> String {
        let rule = rules["rules"].as_array().unwrap().iter().find(|rule| rule["id"] == id).unwrap();
        rule["key_exprs"].to_string()
    }

    #[test]
    fn a_host_may_say_only_what_ends_in_its_name() {
        let rules = access_control(&"r".parse().unwrap(), &"b".parse().unwrap(), &access());
        let says = keys_of(&rules, "a says");
        assert_eq!(says, r#"["qf/r/a/a","qf/r/h/*/a","qf/r/d/cam-$*/a","qf/r/q/cam-$*/a","qf/r/live/a/*"]"#);
        assert!(!keys_of(&rules, "a gets").contains("/d/"), "a may not join");
        assert_eq!(rules["default_permission"], "deny");
    }

    #[test]
    fn a_router_is_believed_about_others() {
        let rules = access_control(&"r".parse().unwrap(), &"b".parse().unwrap(), &access());
        assert!(keys_of(&rules, "edge says").contains("qf/r/d/*/*"));
        assert!(!rules["rules"].to_string().contains("\"b says\""), "no rules for oneself");
    }
}
