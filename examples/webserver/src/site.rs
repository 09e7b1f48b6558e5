//! The pages: `/` is a static page, `/work` the same page after some work.

use std::hint::black_box;

use crate::http::{self, Request, Status};
use crate::work::Work;

/// Text of the built-in page, repeated to one kilobyte.
const PAGE: &str = "The quick brown fox jumps over the lazy dog, and nobody waits for it.\n";

#[derive(Clone, Debug)]
pub struct Site {
    /// Body of `/` and `/work`.
    pub page: Vec<u8>,
    /// Work that a request for `/work` costs.
    pub work: Work,
}

impl Site {
    /// Creates a site with the built-in page.
    pub fn new(work: Work) -> Site {
        Site { page: PAGE.bytes().cycle().take(1 << 10).collect(), work }
    }

    pub fn answer(&self, request: &Request, output: &mut Vec<u8>) {
        let (status, body) = match request.path {
            "/" => (Status::Ok, self.page.as_slice()),
            "/work" => {
                black_box(self.work.run());
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
    fn the_answer_for_a_missing_page_names_the_pages_that_exist() {
        let mut output = Vec::new();
        let request = Request { path: "/x", head_only: false, keep_alive: true };
        Site::new(Work { rounds: 1 }).answer(&request, &mut output);
        let text = String::from_utf8(output).unwrap();
        assert!(text.starts_with("HTTP/1.1 404 ") && text.contains("/work"), "{text}");
    }
}
