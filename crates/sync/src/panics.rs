//! Containment of panics: a panic becomes an error.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `body`. If `body` panics, returns the message of the panic. Data that `body` was changing may be half
/// changed, so the caller decides which parts of the process cannot continue.
pub fn contain<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|panic| message(&*panic))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_with_its_message() {
        assert_eq!(contain(|| 7), Ok(7));
        assert_eq!(contain::<()>(|| panic!("plain")), Err("plain".to_owned()));
        assert_eq!(contain::<()>(|| panic!("the {}th", 5)), Err("the 5th".to_owned()));
        assert_eq!(contain::<()>(|| std::panic::panic_any(5)), Err("no message".to_owned()));
    }
}
