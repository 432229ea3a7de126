//! The page: its files, embedded. They need no token, since they know nothing; what they show comes
//! from the API.
//!
//! The sources are in `crates/cli/web`, and the files in its `dist` are built from them by
//! `npm run build`. They lie inside this crate, and are committed, so that Cargo alone builds the
//! program, also from a package; a test builds them again and compares.

use axum::{
    body::Body,
    http::{HeaderName, Method, Response, header},
    response::IntoResponse,
};

/// A file of the page.
struct PageFile {
    path: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
    /// Whether other files name it with the hash of what is in it: then a browser can keep it.
    is_named_by_hash: bool,
}

macro_rules! built {
    ($name:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/web/dist/", $name))
    };
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

const FILES: [PageFile; 5] = [
    PageFile {
        path: "/",
        kind: "text/html; charset=utf-8",
        bytes: built!("index.html"),
        is_named_by_hash: false,
    },
    PageFile { path: "/page.js", kind: SCRIPT, bytes: built!("page.js"), is_named_by_hash: true },
    PageFile {
        path: "/page.css",
        kind: "text/css; charset=utf-8",
        bytes: built!("page.css"),
        is_named_by_hash: true,
    },
    PageFile {
        path: "/terminal.js",
        kind: SCRIPT,
        bytes: built!("terminal.js"),
        is_named_by_hash: true,
    },
    PageFile {
        path: "/icon.svg",
        kind: "image/svg+xml",
        bytes: built!("icon.svg"),
        is_named_by_hash: true,
    },
];

/// How long a browser keeps a file whose address changes with what is in it.
const KEPT: &str = "public, max-age=31536000, immutable";

/// The file at a path, if there is one and it is asked for.
pub(super) fn file(method: &Method, path: &str, query: Option<&str>) -> Option<Response<Body>> {
    let file = FILES.iter().find(|file| file.path == path)?;
    if !matches!(*method, Method::GET | Method::HEAD) {
        return None;
    }
    let is_kept = file.is_named_by_hash && query.is_some_and(|query| query.starts_with("v="));
    let cache: (HeaderName, &str) =
        (header::CACHE_CONTROL, if is_kept { KEPT } else { "no-store" });
    Some(([(header::CONTENT_TYPE, file.kind), cache], file.bytes).into_response())
}
