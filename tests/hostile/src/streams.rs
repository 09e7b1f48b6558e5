//! Properties of stream files.

use qfabric_translate::{Profiles, Stream, explain, resources_by_level};
use qfabric_types::Nanos;

/// A refused text has a place within the text, a message and a next step. An accepted stream needs at its minimum at
/// most as much as at its wanted quality, or a quality of it is refused with a next step.
pub fn stream(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let stream = match Stream::parse(text) {
        Ok(stream) => stream,
        Err(error) => {
            assert!((1..=text.matches('\n').count() + 1).contains(&error.line), "{error}");
            assert!((1..=text.len() + 1).contains(&error.column), "{error}");
            let problem = error.problem();
            return assert!(!problem.message.is_empty() && !problem.next_step.is_empty());
        }
    };
    let profiles: Profiles = stream.profiles().map(|name| (name.to_owned(), Nanos::from_millis(1))).collect();
    match resources_by_level(&stream, &profiles) {
        Ok(hosts) => {
            for (host, minimum, wanted) in hosts {
                let fits = minimum.cpu <= wanted.cpu && minimum.memory <= wanted.memory;
                assert!(fits, "{host}: {minimum:?} is more than {wanted:?}");
            }
            let explanation = explain(&stream, &profiles).expect("both levels were translated");
            assert!(explanation.steps.iter().all(|step| step.value.is_finite()));
        }
        Err(error) => assert!(!error.problem().next_step.is_empty()),
    }
}
