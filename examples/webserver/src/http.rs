//! Parses requests and writes responses of HTTP/1.x, as far as a server of two pages needs them.
//!
//! A request is accepted only when its head is complete. If a head is too long, is not text or announces a body,
//! the answer is the matching error status, and the connection ends. Source: RFC 9112.

/// Largest size of a request's head in bytes. A longer head is answered with status 431.
pub const MAX_HEAD: usize = 8 << 10;

/// The result of parsing the received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// The head is not complete.
    Partial,
    /// A request and its length in bytes.
    Request(Request<'a>, usize),
    /// The bytes are not an acceptable request. The server answers with this status and closes the connection.
    Refused(Status),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The path, without the query.
    pub path: &'a str,
    /// The method is `HEAD`: the answer has no body.
    pub head_only: bool,
    /// Whether the client expects the connection to stay open.
    pub keep_alive: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Ok,
    BadRequest,
    NotFound,
    MethodNotAllowed,
    ContentTooLarge,
    HeadTooLarge,
    VersionNotSupported,
}

impl Status {
    /// Code and reason as on the status line.
    pub const fn line(self) -> &'static str {
        match self {
            Status::Ok => "200 OK",
            Status::BadRequest => "400 Bad Request",
            Status::NotFound => "404 Not Found",
            Status::MethodNotAllowed => "405 Method Not Allowed",
            Status::ContentTooLarge => "413 Content Too Large",
            Status::HeadTooLarge => "431 Request Header Fields Too Large",
            Status::VersionNotSupported => "505 HTTP Version Not Supported",
        }
    }
}

/// Parses the request at the beginning of `bytes`.
pub fn parse(bytes: &[u8]) -> Parsed<'_> {
    // Empty lines before a request are allowed: some clients send one after a body (RFC 9112, 2.2).
    let blank = bytes.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
    let Some(length) = head_length(&bytes[blank..]) else {
        let too_long = bytes.len() >= MAX_HEAD;
        return if too_long { Parsed::Refused(Status::HeadTooLarge) } else { Parsed::Partial };
    };
    if blank + length > MAX_HEAD {
        return Parsed::Refused(Status::HeadTooLarge);
    }
    let Ok(head) = std::str::from_utf8(&bytes[blank..blank + length]) else {
        return Parsed::Refused(Status::BadRequest);
    };
    match request(head) {
        Ok(request) => Parsed::Request(request, blank + length),
        Err(status) => Parsed::Refused(status),
    }
}

/// Number of bytes up to and including the empty line.
fn head_length(bytes: &[u8]) -> Option<usize> {
    let mut ends = bytes.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1);
    ends.find_map(|at| match bytes.get(at..)? {
        [b'\n', ..] => Some(at + 1),
        [b'\r', b'\n', ..] => Some(at + 2),
        _ => None,
    })
}

fn request(head: &str) -> Result<Request<'_>, Status> {
    let mut lines = head.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Status::BadRequest);
    };
    let keep_alive = match version {
        "HTTP/1.1" => true,
        "HTTP/1.0" => false,
        version if version.starts_with("HTTP/") => return Err(Status::VersionNotSupported),
        _ => return Err(Status::BadRequest),
    };
    let head_only = match method {
        "GET" => false,
        "HEAD" => true,
        _ => return Err(Status::MethodNotAllowed),
    };
    let path = target.split('?').next().unwrap_or_default();
    if !path.starts_with('/') {
        return Err(Status::BadRequest);
    }
    let keep_alive = fields(lines, keep_alive)?;
    Ok(Request { path, head_only, keep_alive })
}

/// Checks the header fields. Returns whether the connection stays open.
fn fields<'a>(lines: impl Iterator<Item = &'a str>, mut keep_alive: bool) -> Result<bool, Status> {
    for line in lines.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or(Status::BadRequest)?;
        let value = value.trim();
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(Status::BadRequest);
        }
        if name.eq_ignore_ascii_case("connection") {
            let mut words = value.split(',').map(str::trim);
            keep_alive = !words.clone().any(|word| word.eq_ignore_ascii_case("close"))
                && (keep_alive || words.any(|word| word.eq_ignore_ascii_case("keep-alive")));
        }
        // The server reads no bodies; it would parse a body as the next request.
        if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(Status::ContentTooLarge);
        }
        if name.eq_ignore_ascii_case("content-length") && value != "0" {
            return Err(Status::ContentTooLarge);
        }
    }
    Ok(keep_alive)
}

/// Appends a response to `output`.
pub fn answer(output: &mut Vec<u8>, status: Status, body: &[u8], head_only: bool, keep_alive: bool) {
    let connection = if keep_alive { "keep-alive" } else { "close" };
    let allow = if status == Status::MethodNotAllowed { "Allow: GET, HEAD\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n{allow}Connection: {connection}\r\n\r\n",
        status.line(),
        body.len()
    );
    output.extend_from_slice(head.as_bytes());
    if !head_only {
        output.extend_from_slice(body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(bytes: &[u8]) -> (&str, bool, usize) {
        match parse(bytes) {
            Parsed::Request(request, length) => (request.path, request.keep_alive, length),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_request_is_taken_only_when_its_head_is_complete() {
        let whole = b"GET /work?x=1 HTTP/1.1\r\nHost: a\r\n\r\n";
        for cut in 0..whole.len() {
            assert_eq!(parse(&whole[..cut]), Parsed::Partial, "{cut}");
        }
        assert_eq!(path(whole), ("/work", true, whole.len()));
    }

    #[test]
    fn the_next_request_stays_in_the_buffer() {
        let two = b"\r\nGET / HTTP/1.1\n\nGET /b HTTP/1.1\r\n\r\n";
        let (first, _, length) = path(two);
        assert_eq!((first, path(&two[length..]).0), ("/", "/b"));
    }

    #[test]
    fn the_version_and_the_connection_field_decide_whether_the_connection_stays() {
        for (head, keeps) in [
            ("GET / HTTP/1.1\r\n\r\n", true),
            ("GET / HTTP/1.0\r\n\r\n", false),
            ("GET / HTTP/1.1\r\nConnection: Close\r\n\r\n", false),
            ("GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n", true),
            ("GET / HTTP/1.1\r\nConnection: keep-alive, close\r\n\r\n", false),
        ] {
            assert_eq!(path(head.as_bytes()).1, keeps, "{head:?}");
        }
    }

    #[test]
    fn a_malformed_request_is_refused_with_the_matching_status() {
        for (head, status) in [
            ("GET\r\n\r\n", Status::BadRequest),
            ("GET / HTTP/1.1 x\r\n\r\n", Status::BadRequest),
            ("GET page HTTP/1.1\r\n\r\n", Status::BadRequest),
            ("GET / HTTP/1.1\r\nno colon\r\n\r\n", Status::BadRequest),
            ("GET / HTTP/1.1\r\n Folded: x\r\n\r\n", Status::BadRequest),
            ("GET / FTP/1.1\r\n\r\n", Status::BadRequest),
            ("GET / HTTP/2.0\r\n\r\n", Status::VersionNotSupported),
            ("POST / HTTP/1.1\r\n\r\n", Status::MethodNotAllowed),
            ("GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n", Status::ContentTooLarge),
            ("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", Status::ContentTooLarge),
        ] {
            assert_eq!(parse(head.as_bytes()), Parsed::Refused(status), "{head:?}");
        }
        assert_eq!(parse(b"GET /\xff HTTP/1.1\r\n\r\n"), Parsed::Refused(Status::BadRequest));
    }

    #[test]
    fn a_head_without_an_end_is_refused_at_the_limit() {
        let mut head = b"GET / HTTP/1.1\r\nX: ".to_vec();
        head.resize(MAX_HEAD - 1, b'x');
        assert_eq!(parse(&head), Parsed::Partial);
        head.push(b'x');
        assert_eq!(parse(&head), Parsed::Refused(Status::HeadTooLarge));
        head.extend_from_slice(b"\r\n\r\n");
        assert_eq!(parse(&head), Parsed::Refused(Status::HeadTooLarge));
    }

    #[test]
    fn the_answer_to_head_has_the_length_but_not_the_body() {
        let mut output = Vec::new();
        answer(&mut output, Status::Ok, b"abc", true, false);
        let text = String::from_utf8(output).unwrap();
        assert!(text.contains("Content-Length: 3\r\n") && text.ends_with("Connection: close\r\n\r\n"), "{text}");
    }
}
