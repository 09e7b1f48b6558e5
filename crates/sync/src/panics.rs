//! Panics, contained.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `body`. Where it panics, the error is what the panic said, and the caller decides what ends with it: whatever
/// `body` was changing may be half changed.
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
    fn a_panic_is_an_error_with_its_words() {
        assert_eq!(contain(|| 7), Ok(7));
        assert_eq!(contain::<()>(|| panic!("plain")), Err("plain".to_owned()));
        assert_eq!(contain::<()>(|| panic!("the {}th", 5)), Err("the 5th".to_owned()));
        assert_eq!(contain::<()>(|| std::panic::panic_any(5)), Err("no message".to_owned()));
    }
}
