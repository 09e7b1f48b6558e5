//! The policy laboratory: checks a policy in E-code, and runs policies on a simulated network. The web page loads it as
//! WebAssembly, so that it also works without a daemon.
//!
//! ```text
//! page ──JSON──> worker ──bytes──> exports ──> check, simulate ──> E-code, manager, nodes, simulated network
//! ```
//! Both functions take and return JSON. They read no clock, and their work has a bound.

mod check;
#[cfg(target_family = "wasm")]
mod exports;
mod simulate;

use serde::Serialize;

pub use check::check;
pub use simulate::simulate;

/// Largest length of a request, in bytes. A text of 64 KiB, escaped as JSON, has less.
pub const MOST_REQUEST: usize = 1 << 20;

/// The answer to a request that cannot be carried out.
#[derive(Serialize)]
struct Refusal {
    error: String,
}

/// Answers a request with what `act` returns, or with `{"error": …}`.
fn answer<T: Serialize>(request: &str, act: impl FnOnce(&str) -> Result<T, String>) -> String {
    let answer = match request.len() {
        length if length > MOST_REQUEST => {
            Err(format!("the request has {length} bytes, at most {MOST_REQUEST} are read"))
        }
        _ => act(request),
    };
    let text = match answer {
        Ok(answer) => serde_json::to_string(&answer),
        Err(error) => serde_json::to_string(&Refusal { error }),
    };
    text.expect("the answers have no map whose keys are not texts")
}
