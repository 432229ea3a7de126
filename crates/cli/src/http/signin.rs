//! Signing in to the page: a one-time code, or a token, becomes a cookie.
//!
//! A browser cannot put a token into a link or a WebSocket's headers, so the page has a session: a
//! secret in a cookie that scripts cannot read and that other sites' pages do not send. Whoever
//! brings a code has read it where this server printed it, on its terminal or in its log: that is
//! the operator. A session that was begun with a token is that token's, with all its limits, and
//! ends with it. Sessions are kept in memory only, as hashes: a server that starts anew knows none.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, header, uri::Authority},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    keyring::{Holder, Keyring, is_equal},
    refusal::{HttpRefusal, answer},
    routes::{Call, Handled},
    tokens::{Token, TokenRole, digest, new_secret, shown_digest},
};
use crate::render::now_ms;

/// The header that a page of another site cannot send: browsers ask first whether they may, and
/// are not answered.
const OWN_HEADER: &str = "x-legwork";

/// How long a code can be used.
const CODE_LIFETIME: Duration = Duration::from_secs(600);

/// Most codes at once; the oldest goes.
const CODES_MAX: usize = 8;

/// How long a session lasts.
const SESSION_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// Most sessions at once; the oldest goes.
const SESSIONS_MAX: usize = 64;

/// What the audit log calls whoever signed in by a code: no token can have this name.
const NAME: &str = "of the page";

/// The codes and the sessions.
pub(super) struct SignIns {
    /// The cookie's name: cookies are not kept apart by port, and there may be several servers.
    cookie: String,
    /// Whether browsers reach us by TLS alone.
    secure: bool,
    known: Mutex<KnownSignIns>,
}

#[derive(Default)]
struct KnownSignIns {
    codes: VecDeque<([u8; 32], Instant)>,
    sessions: VecDeque<([u8; 32], Arc<Holder>)>,
}

impl SignIns {
    pub(super) fn new(port: Option<u16>, secure: bool) -> Self {
        let cookie = port.map_or_else(|| "legwork".into(), |port| format!("legwork_{port}"));
        Self { cookie, secure, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, KnownSignIns> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new code.
    pub(super) fn new_code(&self) -> Result<String, String> {
        let code = new_secret()?;
        let mut known = self.known();
        known.codes.push_back((digest(&code), Instant::now() + CODE_LIFETIME));
        if known.codes.len() > CODES_MAX {
            known.codes.pop_front();
        }
        Ok(code)
    }

    /// Takes a code, which is spent then: whether it was one.
    fn take_code(&self, code: &str) -> bool {
        let (sought, now) = (digest(code), Instant::now());
        let mut known = self.known();
        known.codes.retain(|(_, until)| now < *until);
        let before = known.codes.len();
        known.codes.retain(|(known, _)| !is_equal(known, &sought));
        known.codes.len() < before
    }

    /// Signs in with the code in a body; none if it is wrong.
    pub(super) fn by_code(&self, body: &[u8]) -> Option<Handled> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Brought {
            code: String,
        }
        let brought: Brought = serde_json::from_slice(body).ok()?;
        if !self.take_code(&brought.code) {
            return None;
        }
        let token = Token {
            name: NAME.into(),
            role: TokenRole::Operator,
            trust: TokenRole::Operator.usual_trust(),
            workspace: None,
            tools: None,
            sha256: shown_digest(&brought.code),
            created_at_ms: now_ms(),
            expires_at_ms: None,
        };
        Some(Holder::new(token).ok_or_else(no_secret).and_then(|holder| self.begin(&holder)))
    }

    /// Begins a session of a holder.
    fn begin(&self, of: &Holder) -> Handled {
        let secret = new_secret().map_err(|_| no_secret())?;
        let lifetime_ms = i64::try_from(SESSION_LIFETIME.as_millis()).unwrap_or(i64::MAX);
        let session = Arc::new(of.session(now_ms().saturating_add(lifetime_ms)));
        let mut known = self.known();
        known.sessions.retain(|(_, session)| session.counts());
        while known.sessions.len() >= SESSIONS_MAX {
            if let Some((_, oldest)) = known.sessions.pop_front() {
                oldest.revoked.cancel();
            }
        }
        let mut response = answer(StatusCode::OK, &described(&session));
        known.sessions.push_back((digest(&secret), session));
        drop(known);
        let age = SESSION_LIFETIME.as_secs();
        self.set_cookie(&mut response, &format!("{secret}; Max-Age={age}"));
        Ok(response)
    }

    fn set_cookie(&self, response: &mut Response<Body>, value: &str) {
        let secure = if self.secure { "; Secure" } else { "" };
        let cookie = format!("{}={value}; Path=/; HttpOnly; SameSite=Strict{secure}", self.cookie);
        if let Ok(cookie) = HeaderValue::try_from(cookie) {
            response.headers_mut().insert(header::SET_COOKIE, cookie);
        }
    }

    /// The session of a request's cookie, if it counts.
    pub(super) fn holder(&self, keyring: &Keyring, headers: &HeaderMap) -> Option<Arc<Holder>> {
        let sought = digest(self.secret(headers)?);
        // A token that was revoked just now ends its sessions.
        keyring.refresh();
        let known = self.known();
        let mut found = None;
        for (known, session) in &known.sessions {
            if is_equal(known, &sought) {
                found = Some(session.clone());
            }
        }
        found.filter(|session| session.counts())
    }

    fn secret<'h>(&self, headers: &'h HeaderMap) -> Option<&'h str> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|it| it.to_str().ok());
        let mut pairs = cookies.flat_map(|it| it.split(';')).filter_map(|it| it.split_once('='));
        pairs.find(|(name, _)| name.trim() == self.cookie).map(|(_, value)| value.trim())
    }

    /// Ends the session of a request.
    fn end(&self, holder: &Arc<Holder>) -> bool {
        let mut known = self.known();
        let before = known.sessions.len();
        known.sessions.retain(|(_, session)| !Arc::ptr_eq(session, holder));
        let ended = known.sessions.len() < before;
        if ended {
            holder.revoked.cancel();
        }
        ended
    }
}

fn no_secret() -> HttpRefusal {
    let message = "this machine gives no random numbers";
    HttpRefusal::new(StatusCode::SERVICE_UNAVAILABLE, "state_unavailable", message)
}

/// Refuses what a page of another origin could have a browser send along with the cookie.
///
/// Browsers keep the cookie to this *site*, which is every port of this host: another port is told
/// by its Origin. A change needs the header of our own, too, and a WebSocket, which can have no
/// such header, an Origin.
pub(super) fn check_own_page(
    method: &Method,
    headers: &HeaderMap,
    behind_proxy: bool,
) -> Result<(), HttpRefusal> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let mut ours = vec![text("host")];
    if behind_proxy {
        ours.push(text("x-forwarded-host"));
    }
    let authority =
        |text: &str| text.parse::<Authority>().ok().map(|it| it.as_str().to_lowercase());
    let is_own = text("origin").map(|origin| {
        let (_, named) = origin.split_once("://").unwrap_or_default();
        ours.iter()
            .flatten()
            .any(|own| authority(own).is_some_and(|own| Some(own) == authority(named)))
    });
    let is_elsewhere = !matches!(text("sec-fetch-site"), None | Some("same-origin" | "none"));
    if is_own == Some(false) || is_elsewhere {
        let message = "the request comes from a page that is not this server's";
        return Err(HttpRefusal::new(StatusCode::FORBIDDEN, "wrong_origin", message));
    }
    let is_websocket = headers.contains_key(header::UPGRADE);
    if is_websocket && is_own.is_none() {
        let message = "a WebSocket of the page has an Origin header";
        return Err(HttpRefusal::new(StatusCode::FORBIDDEN, "wrong_origin", message));
    }
    let changes = !matches!(*method, Method::GET | Method::HEAD);
    if changes && !headers.contains_key(OWN_HEADER) {
        let message = "a change with a cookie needs the header X-Legwork: 1";
        return Err(HttpRefusal::new(StatusCode::FORBIDDEN, "forbidden", message));
    }
    Ok(())
}

/// Whether a request would sign in with a code: it brings nothing else.
pub(super) fn brings_code(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    *method == Method::POST
        && uri.path() == "/api/v1/session"
        && !headers.contains_key(header::AUTHORIZATION)
        && headers.contains_key(OWN_HEADER)
}

pub(super) fn schema() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "code": {
                "type": "string",
                "description": "The code of the sign-in link, where there is no token",
            },
        },
    })
}

/// A session with the token that the request brings; one with a code does not come here.
pub(super) async fn sign_in(call: Call) -> Handled {
    call.face.sign_ins.begin(&call.holder)
}

pub(super) async fn show(call: Call) -> Handled {
    Ok(answer(StatusCode::OK, &described(&call.holder)))
}

pub(super) async fn sign_out(call: Call) -> Handled {
    if !call.face.sign_ins.end(&call.holder) {
        return Err(HttpRefusal::invalid("this request has a token, and no session"));
    }
    let mut response = answer(StatusCode::OK, &json!({ "signed_out": true }));
    call.face.sign_ins.set_cookie(&mut response, "; Max-Age=0");
    Ok(response)
}

/// Who somebody is here.
fn described(holder: &Holder) -> Value {
    let Token { name, role, trust, workspace, tools, expires_at_ms, .. } = &holder.token;
    json!({
        "name": name,
        "role": role,
        "trust": trust,
        "workspace": workspace,
        "tools": tools,
        "expires_at_ms": expires_at_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(method: &Method, headers: &[(&'static str, &'static str)]) -> bool {
        let mut map = HeaderMap::new();
        map.insert(header::HOST, HeaderValue::from_static("localhost:7117"));
        for (name, value) in headers {
            map.insert(*name, HeaderValue::from_static(value));
        }
        check_own_page(method, &map, false).is_ok()
    }

    #[test]
    fn a_cookie_counts_for_our_own_page_alone() {
        let (own, other) =
            (("origin", "http://localhost:7117"), ("origin", "http://localhost:3000"));
        let (header, upgrade) = (("x-legwork", "1"), ("upgrade", "websocket"));
        assert!(allowed(&Method::GET, &[]));
        assert!(allowed(&Method::GET, &[own]));
        assert!(!allowed(&Method::GET, &[other]), "another port is another origin");
        assert!(!allowed(&Method::GET, &[("sec-fetch-site", "same-site")]));
        assert!(allowed(&Method::GET, &[("sec-fetch-site", "same-origin")]));
        assert!(!allowed(&Method::POST, &[own]));
        assert!(allowed(&Method::POST, &[own, header]));
        assert!(!allowed(&Method::DELETE, &[other, header]));
        assert!(!allowed(&Method::GET, &[upgrade]));
        assert!(!allowed(&Method::GET, &[upgrade, other]));
        assert!(allowed(&Method::GET, &[upgrade, own]));
        assert!(!allowed(&Method::GET, &[upgrade, ("origin", "null")]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_code_is_spent_by_its_first_use_and_by_time() {
        let sign_ins = SignIns::new(None, false);
        let code = sign_ins.new_code().unwrap();
        assert!(!sign_ins.take_code("another"));
        assert!(sign_ins.take_code(&code));
        assert!(!sign_ins.take_code(&code));
        let late = sign_ins.new_code().unwrap();
        tokio::time::advance(CODE_LIFETIME).await;
        assert!(!sign_ins.take_code(&late));
        let codes: Vec<_> = (0..=CODES_MAX).map(|_| sign_ins.new_code().unwrap()).collect();
        assert!(!sign_ins.take_code(&codes[0]), "the oldest went");
        assert!(sign_ins.take_code(&codes[CODES_MAX]));
    }

    #[tokio::test]
    async fn sessions_are_bounded_and_the_oldest_ends() {
        let sign_ins = SignIns::new(None, false);
        let first = {
            let code = sign_ins.new_code().unwrap();
            let body = json!({ "code": code }).to_string();
            sign_ins.by_code(body.as_bytes()).unwrap().unwrap();
            sign_ins.known().sessions[0].1.clone()
        };
        for _ in 0..SESSIONS_MAX {
            sign_ins.begin(&first).unwrap();
        }
        assert_eq!(sign_ins.known().sessions.len(), SESSIONS_MAX);
        assert!(first.revoked.is_cancelled());
    }
}
