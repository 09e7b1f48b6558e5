//! The first exchange on a connection, on a stream of its own that ends before media flows: which service, which
//! session, and what each side may send. Length (u16, little endian) and JSON, bounded. Unknown fields are refused,
//! except those of a refusal, which only has to be shown.

use qfabric_types::api::Problem;
use qfabric_types::channel::Name;
use rustls::crypto::ring::default_provider;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::options::Engine;

/// The version of the exchange, and the name of the protocol in the handshake (ALPN).
pub(crate) const ALPN: &[u8] = b"metp/1";
/// The largest text.
pub(crate) const MOST_BYTES: usize = 8_192;

/// The number of a session, made by the side that is connected to. Only the host that opened the session may attach
/// carriers to it, so the number is no secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct SessionKey(String);

impl SessionKey {
    pub(crate) fn random() -> SessionKey {
        let mut bytes = [0; 16];
        // Fails only if the system has no random numbers; TLS would not have begun either.
        let _ = default_provider().secure_random.fill(&mut bytes);
        SessionKey(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// METP's tag of the session.
    pub(crate) fn tag(&self) -> u16 {
        self.0.get(..4).and_then(|text| u16::from_str_radix(text, 16).ok()).unwrap_or_default()
    }
}

/// What the connecting side wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Hello {
    /// A new session with a service.
    Open { service: Name, engine: Engine },
    /// This connection becomes another carrier of a session.
    Attach { session: SessionKey },
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Answer {
    Opened { session: SessionKey },
    Attached,
    Refused(Box<Problem>),
}

pub(crate) fn encode(value: &impl Serialize) -> Vec<u8> {
    let text = serde_json::to_vec(value).expect("plain data");
    let text = &text[..text.len().min(MOST_BYTES)];
    [&(text.len() as u16).to_le_bytes(), text].concat()
}

/// Why a text is refused.
pub(crate) fn decode<T: DeserializeOwned>(text: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(text).map_err(|error| {
        Problem::new(
            "bad_hello",
            format!("cannot read the other side's first message: {error}"),
            "use the same version of qfabric on both hosts",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exchange_reads_back_as_it_was_written_and_another_one_is_refused() {
        let hello = Hello::Open { service: "film".parse().unwrap(), engine: Engine::Metp };
        let bytes = encode(&hello);
        assert_eq!(usize::from(u16::from_le_bytes([bytes[0], bytes[1]])), bytes.len() - 2);
        assert_eq!(decode::<Hello>(&bytes[2..]).unwrap(), hello);
        for text in ["", "{}", "{\"open\":{}}", "{\"steal\":{\"session\":\"00\"}}"] {
            assert!(decode::<Hello>(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn unknown_fields_are_refused_except_those_of_a_refusal() {
        for text in
            [r#"{"open":{"service":"film","engine":"metp","more":1}}"#, r#"{"attach":{"session":"00","more":1}}"#]
        {
            assert!(decode::<Hello>(text.as_bytes()).is_err(), "{text}");
        }
        assert!(decode::<Answer>(br#"{"opened":{"session":"00","more":1}}"#).is_err());
        let refusal = br#"{"refused":{"code":"full","message":"full","next_step":"wait","more":1}}"#;
        assert!(matches!(decode::<Answer>(refusal), Ok(Answer::Refused(problem)) if problem.code == "full"));
    }

    #[test]
    fn session_numbers_differ() {
        assert_ne!(SessionKey::random(), SessionKey::random());
    }
}
