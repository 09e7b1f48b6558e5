//! Checks the options of a request before anything is created.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use qfabric_types::memory::Moment;

use super::answers;
use super::services::Spec;

/// Options of one request. [`Options::new`] has checked all values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options<'a> {
    given: &'a BTreeMap<String, String>,
}

/// The address of a listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listen {
    /// In network byte order, 4 or 16 bytes; `None`: any address.
    pub address: Option<Vec<u8>>,
    pub port: u16,
}

/// Name of a wrong option, and what is wrong.
pub(super) type BadOption = (String, String);

const SHORTEST_PERIOD: Duration = Duration::from_micros(100);
const LONGEST_PERIOD: Duration = Duration::from_secs(3600);

impl<'a> Options<'a> {
    /// Refuses unknown options, missing required options and invalid values.
    pub(super) fn new(spec: &Spec, given: &'a BTreeMap<String, String>) -> Result<Options<'a>, BadOption> {
        let known = |name: &str| spec.options.iter().any(|option| option.name == name);
        if let Some(name) = given.keys().find(|name| !known(name)) {
            return Err((name.clone(), format!("there is no such option; {}", list(spec))));
        }
        let options = Options { given };
        for option in spec.options {
            match given.get(option.name) {
                Some(value) => check(option.name, value).map_err(|why| (option.name.into(), why))?,
                None if option.required => return Err((option.name.into(), format!("is required: {}", option.about))),
                None => {}
            }
        }
        Ok(options)
    }

    /// No options.
    pub(super) fn none(empty: &'a BTreeMap<String, String>) -> Options<'a> {
        Options { given: empty }
    }

    pub(super) fn is(self, name: &str, value: &str) -> bool {
        self.given.get(name).is_some_and(|given| given == value)
    }

    pub(super) fn listen(self) -> Option<Listen> {
        self.given.get("listen").and_then(|text| parse_listen(text).ok())
    }

    /// Names in the option `interface`; `None` if the option was left out.
    pub(super) fn interfaces(self) -> Option<Vec<&'a str>> {
        self.given.get("interface").map(|names| names.split(',').map(str::trim).collect())
    }

    /// Time between two events of a timer.
    pub(super) fn period(self) -> Duration {
        let text = self.given.get("period").or_else(|| self.given.get("delay"));
        text.and_then(|text| parse_duration(text).ok()).unwrap_or(Duration::from_millis(10))
    }

    /// The texts of the option `answers`.
    pub(super) fn answers(self) -> Vec<&'a str> {
        self.given.get("answers").and_then(|text| parse_answers(text).ok()).unwrap_or_default()
    }

    /// The real-time signal of a call.
    pub(super) fn signal(self) -> Option<i32> {
        self.given.get("signal").and_then(|text| signal(text).ok())
    }

    pub(super) fn cpu(self) -> u32 {
        self.given.get("cpu").and_then(|text| text.parse().ok()).unwrap_or(0)
    }
}

fn list(spec: &Spec) -> String {
    match spec.options.iter().map(|option| option.name).collect::<Vec<_>>().join(", ") {
        names if names.is_empty() => format!("{} has no options", spec.name),
        names => format!("{} has the options {names}", spec.name),
    }
}

fn check(name: &str, value: &str) -> Result<(), String> {
    match name {
        "listen" => parse_listen(value).map(drop),
        "answers" => parse_answers(value).map(drop),
        "period" | "delay" => parse_duration(value).map(drop),
        "signal" => signal(value).map(drop),
        "cpu" => value.parse::<u32>().map(drop).map_err(|_| format!("{value:?} is not a CPU number, such as 0")),
        "drop" | "latest" | "redirect" => one_of(value, &["yes", "no"]),
        "when" => one_of(value, &Moment::ALL.map(Moment::name)),
        _ if value.trim().is_empty() => Err("is empty".into()),
        _ => Ok(()),
    }
}

fn signal(text: &str) -> Result<i32, String> {
    let number = text.parse().ok().filter(|number| (34..=64).contains(number));
    number.ok_or_else(|| format!("{text:?} is not the number of a real-time signal, 34 to 64"))
}

fn one_of(value: &str, allowed: &[&str]) -> Result<(), String> {
    if allowed.contains(&value) { Ok(()) } else { Err(format!("{value:?} is not one of {}", allowed.join(", "))) }
}

fn parse_listen(text: &str) -> Result<Listen, String> {
    let wrong = || format!("{text:?} is not [address]:port, such as :8080, 10.0.0.1:80 or [::1]:80");
    let (address, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().ok().filter(|&port| port != 0).ok_or_else(wrong)?;
    let address = address.trim_start_matches('[').trim_end_matches(']');
    if address.is_empty() {
        return Ok(Listen { address: None, port });
    }
    let address = match address.parse::<IpAddr>().map_err(|_| wrong())? {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let any = address.iter().all(|&byte| byte == 0);
    Ok(Listen { address: (!any).then_some(address), port })
}

/// Texts in the form `LENGTH:TEXT,` each, with the number of bytes.
fn parse_answers(text: &str) -> Result<Vec<&str>, String> {
    let (mut rest, mut found) = (text, Vec::new());
    while !rest.is_empty() {
        let number = found.len() + 1;
        let wrong = || format!("answer {number} is not LENGTH:TEXT, with the number of bytes and a comma at the end");
        let (answer, after) = netstring(rest).ok_or_else(wrong)?;
        if !(1..=answers::LONGEST).contains(&answer.len()) {
            return Err(format!("answer {number} has {} bytes, not 1 to {}", answer.len(), answers::LONGEST));
        }
        found.push(answer);
        rest = after;
    }
    let longest = found.iter().map(|answer| answer.len()).max().unwrap_or(0);
    match (found.len(), found.len() * longest) {
        (1..=answers::MOST, ..=answers::MOST_BYTES) => Ok(found),
        (number @ 1..=answers::MOST, bytes) => {
            let most = answers::MOST_BYTES;
            Err(format!("{number} answers, each with the room of the longest, take {bytes} bytes; the limit is {most}"))
        }
        (number, _) => Err(format!("{number} answers, not 1 to {}", answers::MOST)),
    }
}

/// The first text, and the rest after its comma.
fn netstring(text: &str) -> Option<(&str, &str)> {
    let (length, rest) = text.split_once(':')?;
    let length: usize = length.parse().ok()?;
    let answer = rest.get(..length)?;
    Some((answer, rest[length..].strip_prefix(',')?))
}

/// A whole number with the unit `us`, `ms` or `s`.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: Option<u64> = text[..digits].parse().ok().filter(|&number| number < 1 << 32);
    let period = match (number, text[digits..].trim()) {
        (Some(n), "us") => Duration::from_micros(n),
        (Some(n), "ms") => Duration::from_millis(n),
        (Some(n), "s") => Duration::from_secs(n),
        _ => return Err(format!("{text:?} is not a duration, such as 500us, 10ms or 1s")),
    };
    if (SHORTEST_PERIOD..=LONGEST_PERIOD).contains(&period) {
        Ok(period)
    } else {
        Err(format!("{text} is outside the range from {SHORTEST_PERIOD:?} to {LONGEST_PERIOD:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ecalls::services::ALL;

    fn refusal(service: &str, options: &[(&str, &str)]) -> String {
        let spec = ALL.iter().find(|spec| spec.name == service).unwrap();
        let given = options.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let (option, why) = Options::new(spec, &given).unwrap_err();
        format!("{option}: {why}")
    }

    #[test]
    fn a_wrong_option_is_refused_with_the_valid_values() {
        assert_eq!(
            refusal("sched.wakeup", &[("speed", "9")]),
            "speed: there is no such option; sched.wakeup has no options"
        );
        assert!(refusal("tcp.accept", &[]).contains("listen: is required"));
        assert!(refusal("net.rx", &[("interface", "lo"), ("drop", "maybe")]).contains("not one of yes, no"));
        assert!(refusal("tcp.accept", &[("interface", "lo"), ("listen", "80")]).contains("such as :8080"));
        assert!(refusal("timer", &[("period", "1us")]).contains("from 100µs"));
        assert!(refusal("timer", &[("period", "fast")]).contains("such as 500us"));
        assert!(refusal("app.deferred", &[("when", "later")]).contains("not one of syscall, schedule, delay, before"));
        for signal in ["33", "65", "USR1", ""] {
            assert!(refusal("app.call", &[("signal", signal)]).contains("34 to 64"), "{signal}");
        }
    }

    #[test]
    fn answers_state_their_lengths() {
        assert_eq!(parse_answers("2:ok,5:a:b,\n,"), Ok(vec!["ok", "a:b,\n"]));
        for wrong in ["", "ok", "3:ok,", "2:ok", "0:,", "-1:a,", "1:é,", "2:ok,x"] {
            assert!(parse_answers(wrong).is_err(), "{wrong:?}");
        }
        let of = |bytes: usize| format!("{bytes}:{},", "x".repeat(bytes));
        assert!(parse_answers(&of(answers::LONGEST)).is_ok() && parse_answers(&of(answers::LONGEST + 1)).is_err());
        assert!(parse_answers(&of(1).repeat(answers::MOST)).is_ok());
        let one_long = of(answers::LONGEST) + &of(1).repeat(answers::MOST - 1);
        assert!(parse_answers(&one_long).unwrap_err().contains("the limit is 4194304"));
        assert!(parse_answers(&of(1).repeat(answers::MOST + 1)).is_err());
    }

    #[test]
    fn a_listening_address_may_be_left_out() {
        assert_eq!(parse_listen(":80"), Ok(Listen { address: None, port: 80 }));
        assert_eq!(parse_listen("0.0.0.0:80"), Ok(Listen { address: None, port: 80 }));
        assert_eq!(parse_listen("10.0.0.1:80"), Ok(Listen { address: Some(vec![10, 0, 0, 1]), port: 80 }));
        assert_eq!(parse_listen("[::1]:80").unwrap().address.unwrap().len(), 16);
        assert!(parse_listen(":0").is_err() && parse_listen(":99999").is_err() && parse_listen("host:80").is_err());
    }
}
