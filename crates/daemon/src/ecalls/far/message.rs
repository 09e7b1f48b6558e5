//! Messages between the ECalls of two hosts: JSON, because the bodies are those of the API.

use qfabric_host::manager::far::MAX_TAIL;
use qfabric_types::api::Problem;
use qfabric_types::api::ecalls::{State, SubscriptionInfo, SubscriptionRequest};
use qfabric_types::format::Format;
use qfabric_types::text::is_plain;
use serde::{Deserialize, Serialize};

/// Longest text of another host that is shown to users, in characters.
const SHOWN: usize = 1_000;

/// A message about one deployment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Message {
    /// The number of the deployment, which the installing host chose at random.
    pub number: u64,
    pub body: Body,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Body {
    /// A user of the sending host asks for this subscription.
    Install {
        uid: u32,
        request: Box<SubscriptionRequest>,
    },
    /// The subscription is still wanted.
    Renew,
    /// The subscription is not wanted any more.
    Remove,
    /// It exists, with its present state: the answer to `Install` and `Renew`.
    Installed(Box<SubscriptionInfo>),
    Refused(Problem),
    /// It exists no more.
    Ended {
        why: String,
    },
}

impl Message {
    /// `None`: the message is too long. The format of the events and printed lines are left out if they do not fit.
    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        let fits = |bytes: &Vec<u8>| bytes.len() <= MAX_TAIL;
        let whole = serde_json::to_vec(self).ok().filter(fits);
        whole.or_else(|| {
            let Body::Installed(info) = &self.body else { return None };
            let info = SubscriptionInfo { format: no_format(), printed: Vec::new(), ..(**info).clone() };
            serde_json::to_vec(&Message { number: self.number, body: Body::Installed(info.into()) }).ok().filter(fits)
        })
    }

    /// `None`: the bytes are not a message.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Message> {
        let bytes = Some(bytes).filter(|bytes| bytes.len() <= MAX_TAIL)?;
        let mut message: Message = serde_json::from_slice(bytes).ok()?;
        match &mut message.body {
            Body::Installed(info) => clean(info),
            Body::Refused(problem) => {
                let Problem { code, message, next_step, .. } = problem;
                *problem = Problem::new(&shown(code), shown(message), shown(next_step));
            }
            Body::Ended { why } => *why = shown(why),
            Body::Install { .. } | Body::Renew | Body::Remove => {}
        }
        Some(message)
    }
}

/// The state of a subscription, as far as it can be shown.
fn clean(info: &mut SubscriptionInfo) {
    if let State::TakenOut { why } = &mut info.state {
        *why = shown(why);
    }
    info.attributes.iter_mut().for_each(|(name, _)| *name = shown(name));
    info.printed.iter_mut().for_each(|line| *line = shown(line));
    if info.format.validate().is_err() {
        info.format = no_format();
    }
}

fn no_format() -> Format {
    Format { name: String::new(), size: 0, align: 1, fields: Vec::new() }
}

/// A text of another host without characters that change the terminal.
fn shown(text: &str) -> String {
    text.chars().map(|c| if is_plain(c) || c == '\n' { c } else { '?' }).take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use qfabric_types::RandomNumbers;

    use super::*;

    #[test]
    fn a_message_comes_back_and_its_texts_change_no_terminal() {
        let request = SubscriptionRequest { service: "timer".into(), ..Default::default() };
        let message = Message { number: u64::MAX, body: Body::Install { uid: 7, request: request.into() } };
        assert_eq!(Message::decode(&message.encode().unwrap()), Some(message));
        let why = "\x1b[2Jgone".to_owned();
        let bytes = Message { number: 1, body: Body::Ended { why } }.encode().unwrap();
        let Some(Message { body: Body::Ended { why }, .. }) = Message::decode(&bytes) else { panic!("it ended") };
        assert_eq!(why, "?[2Jgone");
    }

    #[test]
    fn arbitrary_changes_of_a_message_never_panic() {
        let request =
            SubscriptionRequest { service: "timer".into(), k_code: Some("return 1;".into()), ..Default::default() };
        let good = Message { number: 7, body: Body::Install { uid: 7, request: request.into() } }.encode().unwrap();
        let mut random = RandomNumbers::new(42);
        let read = (0..20_000).filter(|_| {
            let mut bytes = good.clone();
            for _ in 0..random.draw() % 4 {
                let at = (random.draw() % bytes.len() as u64) as usize;
                bytes[at] = random.draw() as u8;
            }
            Message::decode(&bytes).is_some()
        });
        let read = read.count();
        assert!((1..20_000).contains(&read), "{read} of the messages with seed 42 can be read");
    }

    #[test]
    fn what_is_too_long_or_unknown_is_no_message() {
        let request = SubscriptionRequest { k_code: Some("x".repeat(MAX_TAIL)), ..Default::default() };
        let long = Message { number: 1, body: Body::Install { uid: 7, request: request.into() } };
        assert_eq!(long.encode(), None);
        for bytes in [&b""[..], b"{}", b"{\"number\":1,\"body\":\"renew\",\"more\":1}", b"[1]", &[b' '; MAX_TAIL + 1]] {
            assert_eq!(Message::decode(bytes), None);
        }
    }
}
