//! Properties of texts that people write: configuration, access list, and options.

use std::fmt::{Debug, Display};
use std::path::Path;
use std::str::FromStr;

use qfabric_channel::Key;
use qfabric_daemon::Config;
use qfabric_realm::{Access, Right};
use qfabric_types::api::Claim;
use qfabric_types::api::contracts::JointId;
use qfabric_types::api::ecalls::Step;
use qfabric_types::api::net::Flow;
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::monitor::Threshold;
use qfabric_types::{Choice, Class, ControlPlace, Nanos, PredictorSpec, Resource, Share, Window};

/// An accepted configuration is within its bounds; a refused one has an error message.
pub fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Config::parse(text, Path::new("fuzz.toml")) {
        Ok(config) => assert!(config.control_reservation().is_ok() && config.api.max_connections > 0),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// An accepted access list gives rights only to hosts that take part, can be written and parsed again, and denies
/// all rights to other hosts.
pub fn access(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Access::parse(text, Path::new("access.toml")) {
        Ok(access) => {
            let stranger: Name = "a-host-that-no-list-names".parse().expect("a name");
            let channels = access.rules.iter().flat_map(|rule| &rule.channels);
            for channel in channels.filter_map(|name| name.trim_end_matches('*').parse::<Name>().ok()) {
                let channel = ChannelId::data(channel);
                let all = [Right::Create, Right::Join, Right::Send, Right::Install, Right::Connect];
                let may = all.map(|right| access.gives(&stranger, right, &channel));
                assert!(may == [false; 5] || access.hosts.contains(&stranger));
            }
            let printed = serde_json::to_string(&access).expect("the list can be written");
            let read = serde_json::from_str::<Access>(&printed).expect("the list can be parsed");
            assert_eq!(Access { path: access.path.clone(), ..read }, access, "the list changed when it was written");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A word of the command line or the local interface that is accepted has the same meaning after it is printed and
/// parsed.
pub fn words(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    round_trip::<Name>(text);
    round_trip::<ChannelId>(text);
    round_trip::<Key>(text);
    round_trip::<Claim>(text);
    round_trip::<JointId>(text);
    round_trip::<Resource>(text);
    round_trip::<Threshold>(text);
    round_trip::<Window>(text);
    round_trip::<Class>(text);
    round_trip::<Choice>(text);
    round_trip::<ControlPlace>(text);
    round_trip::<PredictorSpec>(text);
    round_trip::<Flow>(text);
    let _may_fail = text.parse::<Step>();
    // These values are rounded when printed. The test only checks that the printed text can be parsed.
    if let Ok(time) = text.parse::<Nanos>() {
        time.to_string().parse::<Nanos>().expect("a printed time can be parsed");
    }
    if let Ok(share) = text.parse::<Share>() {
        share.to_string().parse::<Share>().expect("a printed share can be parsed");
    }
    if let Ok(address) = text.parse::<qfabric_link::Address>() {
        assert_eq!(
            String::from(address.clone()).parse::<qfabric_link::Address>().expect("a printed address can be parsed"),
            address
        );
    }
}

fn round_trip<T: FromStr<Err: Display> + Display + Debug + PartialEq>(text: &str) {
    match text.parse::<T>() {
        Ok(value) => {
            let printed = value.to_string();
            assert_eq!(printed.parse::<T>().ok().as_ref(), Some(&value), "{printed:?}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
