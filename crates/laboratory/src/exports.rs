//! The functions that the page calls. All values are numbers: addresses and lengths in the module's memory, which the
//! page reads and writes as an array of bytes.
#![allow(unsafe_code)] // the names are the page's; no function has a block of `unsafe`
#![allow(unreachable_pub)] // the page calls these functions

use std::cell::RefCell;

use crate::{MOST_REQUEST, check, simulate};

thread_local! {
    static REQUEST: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static ANSWER: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Makes room for a request of this length; returns the address to which the page writes it, or 0 if it is too long.
#[unsafe(no_mangle)]
pub extern "C" fn request(length: usize) -> *const u8 {
    if length > MOST_REQUEST {
        return std::ptr::null();
    }
    REQUEST.with_borrow_mut(|request| {
        *request = vec![0; length];
        request.as_mut_ptr().cast_const()
    })
}

/// Checks the policy in the request; returns the length of the answer.
#[unsafe(no_mangle)]
pub extern "C" fn run_check() -> usize {
    run(check)
}

/// Simulates the request; returns the length of the answer.
#[unsafe(no_mangle)]
pub extern "C" fn run_simulate() -> usize {
    run(simulate)
}

/// The address of the last answer. It is valid until the next call of any function.
#[unsafe(no_mangle)]
pub extern "C" fn answer_at() -> *const u8 {
    ANSWER.with_borrow(|answer| answer.as_ptr())
}

fn run(act: fn(&str) -> String) -> usize {
    let answer = REQUEST.with_borrow(|request| act(&String::from_utf8_lossy(request)));
    let length = answer.len();
    ANSWER.set(answer);
    length
}
