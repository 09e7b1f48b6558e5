//! The files of the page, compiled into the daemon. The page needs nothing from outside this machine.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use miniz_oxide::inflate::decompress_to_vec;

use super::tag;

/// One file of the page.
#[derive(Debug, PartialEq)]
pub(super) struct Asset {
    pub path: &'static str,
    kind: &'static str,
    /// As in the program: [`MODULE`] is compressed.
    bytes: &'static [u8],
}

const JS: &str = "text/javascript; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";

/// The compiler and the simulation of the laboratory, if this build has them: `make laboratory`. Compressed to a third,
/// because the daemon locks its memory and few hosts ever show the laboratory.
#[cfg(laboratory)]
const LABORATORY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/laboratory.wasm.z"));
#[cfg(not(laboratory))]
const LABORATORY: &[u8] = &[];

/// [`LABORATORY`] as it was built, from the first request for it on.
const MODULE: &str = "/laboratory.wasm";
static UNPACKED: LazyLock<Vec<u8>> =
    LazyLock::new(|| decompress_to_vec(LABORATORY).expect("the build of this daemon has compressed it"));

/// The worker of the laboratory, which alone may compile WebAssembly.
const WORKER: &str = "/laboratory-worker.js";
const WORKER_POLICY: &str = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'";

static ASSETS: [Asset; 13] = [
    Asset { path: "/", kind: "text/html; charset=utf-8", bytes: include_bytes!("page/index.html") },
    Asset { path: "/page.css", kind: CSS, bytes: include_bytes!("page/page.css") },
    Asset { path: "/page.js", kind: JS, bytes: include_bytes!("page/page.js") },
    Asset { path: "/charts.js", kind: JS, bytes: include_bytes!("page/charts.js") },
    Asset { path: "/tables.js", kind: JS, bytes: include_bytes!("page/tables.js") },
    Asset { path: "/icon.svg", kind: "image/svg+xml", bytes: include_bytes!("page/icon.svg") },
    Asset { path: "/uplot.js", kind: JS, bytes: include_bytes!("page/uplot/uPlot.iife.min.js") },
    Asset { path: "/uplot.css", kind: CSS, bytes: include_bytes!("page/uplot/uPlot.min.css") },
    Asset { path: "/uplot-license", kind: "text/plain", bytes: include_bytes!("page/uplot/LICENSE") },
    Asset { path: "/laboratory.html", kind: "text/html; charset=utf-8", bytes: include_bytes!("page/laboratory.html") },
    Asset { path: "/laboratory.js", kind: JS, bytes: include_bytes!("page/laboratory.js") },
    Asset { path: WORKER, kind: JS, bytes: include_bytes!("page/laboratory-worker.js") },
    Asset { path: MODULE, kind: "application/wasm", bytes: LABORATORY },
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
    ASSETS.iter().find(|asset| asset.path == path && !asset.bytes.is_empty())
}

/// By path: computed once, because anybody may ask for the files.
static TAGS: LazyLock<BTreeMap<&'static str, HeaderValue>> =
    LazyLock::new(|| ASSETS.iter().map(|asset| (asset.path, tag(asset.bytes))).collect());

impl Asset {
    fn tag(&self) -> HeaderValue {
        TAGS[self.path].clone()
    }

    fn content(&self) -> &'static [u8] {
        if self.path == MODULE { UNPACKED.as_slice() } else { self.bytes }
    }

    /// The file, which a browser keeps and asks about again.
    pub(super) fn response(&self) -> Response {
        let mut response = Body::from(self.content()).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.kind));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(ETAG, self.tag());
        if self.path == WORKER {
            headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(WORKER_POLICY));
        }
        response
    }
}

/// Adds the headers that every answer has, if it does not have its own.
pub(super) fn protect(headers: &mut HeaderMap) {
    for (name, value) in PROTECTION.into_iter().chain([VERSION]) {
        headers.entry(HeaderName::from_static(name)).or_insert(HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Largest sum of the files that the first view loads.
    const FIRST_VIEW: usize = 300 << 10;

    #[test]
    fn the_first_view_is_small() {
        let loaded = ASSETS.iter().filter(|asset| asset.path != "/uplot-license" && !asset.path.contains("laboratory"));
        let (files, bytes) = loaded.fold((0, 0), |(files, bytes), asset| (files + 1, bytes + asset.bytes.len()));
        println!(
            "first view: {bytes} bytes in {files} files; WebAssembly of the laboratory: {} bytes",
            LABORATORY.len()
        );
        assert!(bytes <= FIRST_VIEW, "the page has {bytes} bytes, at most {FIRST_VIEW} are allowed");
    }

    #[test]
    fn the_page_names_no_other_machine_and_inserts_no_markup() {
        for asset in ASSETS.iter().filter(|asset| !asset.path.contains("uplot") && !asset.path.ends_with(".wasm")) {
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
    fn every_file_that_the_pages_name_is_served() {
        for page in ["/", "/laboratory.html"] {
            let html = std::str::from_utf8(find(page).unwrap().bytes).unwrap();
            let named = ["src=\"", "href=\""].map(|key| html.split(key).skip(1));
            let files = named.into_iter().flatten().map(|rest| rest.split('"').next().unwrap());
            // The laboratory's names have no slash before them, so that it also works in a folder of another site.
            let files: Vec<_> = files
                .filter(|file| !file.starts_with('#'))
                .map(|file| format!("/{}", file.trim_start_matches('/')))
                .collect();
            assert!(files.len() >= 5, "{files:?}");
            assert!(files.iter().all(|file| find(file).is_some()), "{files:?}");
        }
    }

    #[test]
    fn only_the_worker_of_the_laboratory_may_compile_and_an_absent_module_is_not_served() {
        let policy = |path: &str| {
            let mut response = find(path).unwrap().response();
            protect(response.headers_mut());
            response.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned()
        };
        let compiling: Vec<_> = ASSETS.iter().map(|asset| asset.path).filter(|path| find(path).is_some()).collect();
        let compiling: Vec<_> = compiling.into_iter().filter(|path| policy(path).contains("wasm")).collect();
        assert_eq!(compiling, [WORKER]);
        assert_eq!(find(MODULE).is_some(), cfg!(laboratory));
    }

    #[test]
    fn the_module_of_the_laboratory_is_stored_compressed_and_served_as_it_was_built() {
        let Some(module) = find(MODULE) else { return };
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../laboratory/built/laboratory.wasm");
        let built = fs::read(file).unwrap();
        assert!(module.content() == built, "another module is served");
        assert!(module.bytes.len() < built.len() / 2, "{} of {} bytes", module.bytes.len(), built.len());
    }
}
