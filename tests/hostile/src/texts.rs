//! Texts that people write: configuration, access list, options.

use std::fmt::{Debug, Display};
use std::path::Path;
use std::str::FromStr;

use qfabric_channel::{Action, Key, Policy};
use qfabric_daemon::Config;
use qfabric_link::security::Access;
use qfabric_types::api::Claim;
use qfabric_types::api::ecalls::Step;
use qfabric_types::api::net::Flow;
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::Threshold;
use qfabric_types::{Choice, Class, ControlPlace, Nanos, PredictorSpec, Share, Window};

/// A configuration that is accepted is in bounds; a refused one says why.
pub fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Config::parse(text, Path::new("fuzz.toml")) {
        Ok(config) => assert!(config.control_reservation().is_ok() && config.api.max_connections > 0),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// An access list that is accepted names only hosts that take part, can be written again, and denies everybody else.
pub fn access(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Access::parse(text, Path::new("access.toml")) {
        Ok(access) => {
            let stranger: Name = "a-host-that-no-list-names".parse().expect("a name");
            let channels = access.rules.iter().flat_map(|rule| &rule.channels);
            for channel in channels.filter_map(|name| name.trim_end_matches('*').parse::<Name>().ok()) {
                let channel = ChannelId::data(channel);
                let all = [Action::Create, Action::Join, Action::Send, Action::Install];
                let may = all.map(|action| access.allows(&stranger, action, &channel));
                assert!(may == [false; 4] || access.hosts.contains(&stranger));
            }
            let said = serde_json::to_string(&access).expect("it can be written");
            let read = serde_json::from_str::<Access>(&said).expect("it can be read");
            assert_eq!(Access { path: access.path.clone(), ..read }, access, "but for the file that it came from");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A word of the command line or the interface that is understood means the same when it is written out.
pub fn words(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    said_again::<Name>(text);
    said_again::<ChannelId>(text);
    said_again::<Key>(text);
    said_again::<Claim>(text);
    said_again::<Threshold>(text);
    said_again::<Window>(text);
    said_again::<Class>(text);
    said_again::<Choice>(text);
    said_again::<ControlPlace>(text);
    said_again::<PredictorSpec>(text);
    said_again::<Flow>(text);
    let _a_step_or_why_not = text.parse::<Step>();
    // These are shown rounded, for people: what is shown is understood.
    if let Ok(time) = text.parse::<Nanos>() {
        time.to_string().parse::<Nanos>().expect("what is shown is understood");
    }
    if let Ok(share) = text.parse::<Share>() {
        share.to_string().parse::<Share>().expect("what is shown is understood");
    }
    if let Ok(address) = text.parse::<qfabric_link::Address>() {
        assert_eq!(String::from(address.clone()).parse::<qfabric_link::Address>().expect("it can be read"), address);
    }
}

fn said_again<T: FromStr<Err: Display> + Display + Debug + PartialEq>(text: &str) {
    match text.parse::<T>() {
        Ok(value) => {
            let said = value.to_string();
            assert_eq!(said.parse::<T>().ok().as_ref(), Some(&value), "{said:?}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
