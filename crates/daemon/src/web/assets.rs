//! The files of the page, compiled into the daemon. The page needs nothing from outside this machine.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderName};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};

use super::tag;

/// One file of the page.
#[derive(Debug, PartialEq)]
pub(super) struct Asset {
    pub path: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

const JS: &str = "text/javascript; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";

static ASSETS: [Asset; 9] = [
    Asset { path: "/", kind: "text/html; charset=utf-8", bytes: include_bytes!("page/index.html") },
    Asset { path: "/page.css", kind: CSS, bytes: include_bytes!("page/page.css") },
    Asset { path: "/page.js", kind: JS, bytes: include_bytes!("page/page.js") },
    Asset { path: "/charts.js", kind: JS, bytes: include_bytes!("page/charts.js") },
    Asset { path: "/tables.js", kind: JS, bytes: include_bytes!("page/tables.js") },
    Asset { path: "/icon.svg", kind: "image/svg+xml", bytes: include_bytes!("page/icon.svg") },
    Asset { path: "/uplot.js", kind: JS, bytes: include_bytes!("page/uplot/uPlot.iife.min.js") },
    Asset { path: "/uplot.css", kind: CSS, bytes: include_bytes!("page/uplot/uPlot.min.css") },
    Asset { path: "/uplot-license", kind: "text/plain", bytes: include_bytes!("page/uplot/LICENSE") },
];

/// Sent with every answer. No script, style or connection but this daemon's own; no other page may embed this one.
const PROTECTION: [(&str, &str); 5] = [
    ("content-security-policy", "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
];

/// The version of the daemon, in every answer. A page of another version says so and loads the new one.
const VERSION: (&str, &str) = ("qfabric-version", env!("CARGO_PKG_VERSION"));

pub(super) fn find(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

/// By path: computed once, because anybody may ask for the files.
static TAGS: LazyLock<BTreeMap<&'static str, HeaderValue>> =
    LazyLock::new(|| ASSETS.iter().map(|asset| (asset.path, tag(asset.bytes))).collect());

impl Asset {
    fn tag(&self) -> HeaderValue {
        TAGS[self.path].clone()
    }

    /// The file, which a browser keeps and asks about again.
    pub(super) fn response(&self) -> Response {
        let mut response = Body::from(self.bytes).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.kind));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(ETAG, self.tag());
        response
    }
}

/// Adds the headers that every answer has.
pub(super) fn protect(headers: &mut HeaderMap) {
    for (name, value) in PROTECTION.into_iter().chain([VERSION]) {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Largest sum of the files that the first view loads.
    const FIRST_VIEW: usize = 300 << 10;

    #[test]
    fn the_first_view_is_small() {
        let loaded = ASSETS.iter().filter(|asset| asset.path != "/uplot-license");
        let bytes: usize = loaded.map(|asset| asset.bytes.len()).sum();
        println!("first view: {bytes} bytes in {} files", ASSETS.len() - 1);
        assert!(bytes <= FIRST_VIEW, "the page has {bytes} bytes, at most {FIRST_VIEW} are allowed");
    }

    #[test]
    fn the_page_names_no_other_machine_and_inserts_no_markup() {
        for asset in ASSETS.iter().filter(|asset| !asset.path.contains("uplot")) {
            let text = std::str::from_utf8(asset.bytes).unwrap();
            let text = text.replace("http://www.w3.org/2000/svg", "");
            for part in
                ["http://", "https://", "\"//", "innerHTML", "outerHTML", "insertAdjacentHTML", "eval(", "style="]
            {
                assert!(!text.contains(part), "{} has {part}", asset.path);
            }
        }
    }

    #[test]
    fn every_file_that_the_page_names_is_served() {
        let html = std::str::from_utf8(find("/").unwrap().bytes).unwrap();
        let named = |key: &str| html.split(key).skip(1).map(|rest| rest.split('"').next().unwrap()).collect::<Vec<_>>();
        let files: Vec<_> =
            named("src=\"").into_iter().chain(named("href=\"")).filter(|f| !f.starts_with('#')).collect();
        assert!(files.len() >= 5, "{files:?}");
        assert!(files.iter().all(|file| find(file).is_some()), "{files:?}");
    }
}
