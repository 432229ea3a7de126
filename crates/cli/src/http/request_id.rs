//! The id of a request: the client's own, if it is a sane one, or one of ours. It is in the answer,
//! and in every line of the log that the request leads to.

use std::{
    fmt::Write as _,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use axum::http::{HeaderMap, HeaderName, HeaderValue};

use super::tokens::PREFIX;

/// The header that has it.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Most characters of a client's own.
const CHARS_MAX: usize = 128;

/// Sets our ids apart from those of other servers, and of this one before it was started again.
static SERVER: LazyLock<String> = LazyLock::new(|| {
    let mut bits = [0; 6];
    // Without random bits they are only ours.
    let _ = getrandom::fill(&mut bits);
    bits.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
});

static MADE: AtomicU64 = AtomicU64::new(0);

/// The id of a request with these headers, which have it from now on.
pub(super) fn settle(headers: &mut HeaderMap) -> HeaderValue {
    let given = headers.get(REQUEST_ID).filter(|given| is_sane(given)).cloned();
    let id = given.unwrap_or_else(|| {
        let number = MADE.fetch_add(1, Relaxed);
        let made = HeaderValue::from_str(&format!("{}-{number}", *SERVER));
        made.unwrap_or(HeaderValue::from_static("unknown"))
    });
    headers.insert(REQUEST_ID, id.clone());
    id
}

/// The id that was settled on.
pub(crate) fn of(headers: &HeaderMap) -> &str {
    headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).unwrap_or_default()
}

/// Whether it is short and plain, and no token by mistake.
fn is_sane(id: &HeaderValue) -> bool {
    let fits = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.' | ':');
    id.to_str().is_ok_and(|id| {
        (1..=CHARS_MAX).contains(&id.len()) && id.chars().all(fits) && !id.contains(PREFIX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sane_id_is_kept_and_any_other_replaced() {
        let settled = |given: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(given) = given {
                headers.insert(REQUEST_ID, given.parse().unwrap());
            }
            let id = settle(&mut headers);
            assert_eq!(of(&headers), id.to_str().unwrap());
            id.to_str().unwrap().to_owned()
        };
        for sane in ["7", "a-b_c.d:e", "0f8fad5b-d9cb-469f-a165-70867728950e"] {
            assert_eq!(settled(Some(sane)), sane);
        }
        let long = "x".repeat(CHARS_MAX + 1);
        for other in ["", "a b", "a\"b", "lwt_abc", &long] {
            assert_ne!(settled(Some(other)), other);
        }
        assert_ne!(settled(None), settled(None));
    }
}
