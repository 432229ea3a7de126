//! The page: its files, embedded. They need no token, since they know nothing; what they show comes
//! from the API.

use axum::{
    body::Body,
    http::{Method, Response, header},
    response::IntoResponse,
};

/// The files, by path, with their types.
const FILES: [(&str, &str, &str); 3] = [
    ("/", "text/html; charset=utf-8", include_str!("index.html")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("page.js")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page.css")),
];

/// The file at a path, if there is one and it is asked for.
pub(super) fn file(method: &Method, path: &str) -> Option<Response<Body>> {
    let (_, kind, text) = FILES.iter().find(|(known, ..)| *known == path)?;
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    is_read.then(|| ([(header::CONTENT_TYPE, *kind)], *text).into_response())
}
