//! What the server serves: `/` is a static page, `/work` the same after some work.

use std::hint::black_box;

use crate::http::{self, Request, Status};
use crate::work::Work;

/// The page where none is given: one kilobyte.
const PAGE: &str = "The quick brown fox jumps over the lazy dog, and nobody waits for it.\n";

/// The pages.
#[derive(Clone, Debug)]
pub struct Site {
    /// Body of `/`, and of `/work` once its work is done.
    pub page: Vec<u8>,
    /// What `/work` costs.
    pub work: Work,
}

impl Site {
    /// The built-in page, and that much work.
    pub fn new(work: Work) -> Site {
        Site { page: PAGE.bytes().cycle().take(1 << 10).collect(), work }
    }

    /// Appends the answer to `output`.
    pub fn answer(&self, request: &Request, output: &mut Vec<u8>) {
        let (status, body) = match request.path {
            "/" => (Status::Ok, self.page.as_slice()),
            "/work" => {
                black_box(self.work.burn());
                (Status::Ok, self.page.as_slice())
            }
            _ => (Status::NotFound, b"There are / and /work.\n".as_slice()),
        };
        http::answer(output, status, body, request.head_only, request.keep_alive);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_said_with_what_is() {
        let mut output = Vec::new();
        let request = Request { path: "/x", head_only: false, keep_alive: true };
        Site::new(Work { rounds: 1 }).answer(&request, &mut output);
        let text = String::from_utf8(output).unwrap();
        assert!(text.starts_with("HTTP/1.1 404 ") && text.contains("/work"), "{text}");
    }
}
