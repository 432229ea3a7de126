//! Signing in to the page: a one-time code, or a token, becomes the secret of a session.
//!
//! A browser sends a cookie to every port of a host, so to every development server on it. The
//! secret of a session therefore is no cookie: the page has it from the answer to its sign-in,
//! keeps it where pages of another origin (scheme, host and port) cannot read, and brings it with
//! each request: in the header X-Legwork, or as a subprotocol of a WebSocket, which can have no
//! such header. A download, which the browser begins, brings a ticket for one use.
//!
//! A code is read where this server printed it: who has it is the operator. A session that was
//! begun with a token is that token's, with all its limits, and ends with it. Sessions are kept in
//! memory only, as hashes: a server that starts anew knows none.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    keyring::{Holder, Keyring, is_equal},
    refusal::{HttpRefusal, answer},
    routes::{Call, Handled},
    tokens::{PREFIX, Token, TokenRole, digest, new_secret, shown_digest},
};
use crate::render::now_ms;

/// The header that has a session's secret.
const SESSION_HEADER: &str = "x-legwork";

/// Where a session begins.
const SESSION_PATH: &str = "/api/v1/session";

/// What a WebSocket of the page speaks; the session's secret stands beside it.
pub(super) const SUBPROTOCOL: &str = "legwork";

/// How long a code can be used.
const CODE_LIFETIME: Duration = Duration::from_secs(600);

/// Most codes at once; the oldest goes.
const CODES_MAX: usize = 64;

/// How long a ticket can be used: the page does so at once.
const TICKET_LIFETIME: Duration = Duration::from_secs(60);

/// Most tickets at once; the oldest goes.
const TICKETS_MAX: usize = 64;

/// How long a session lasts.
const SESSION_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// Most sessions at once; the oldest goes.
const SESSIONS_MAX: usize = 64;

/// What the audit log calls whoever signed in by a code: no token can have this name.
const NAME: &str = "of the page";

/// The codes, the sessions and the tickets.
pub(super) struct SignIns(Mutex<KnownSignIns>);

struct KnownSignIns {
    codes: OneUse<()>,
    tickets: OneUse<Ticket>,
    sessions: VecDeque<([u8; 32], Arc<Holder>)>,
}

/// What a ticket lets its bearer read: an address, known by its hash, as this holder.
struct Ticket {
    path: [u8; 32],
    holder: Arc<Holder>,
}

/// Secrets that can be used once, and for a while; those that were, or are too old, are remembered
/// as long again.
struct OneUse<T> {
    kept: VecDeque<([u8; 32], Instant, Option<T>)>,
    most: usize,
    lifetime: Duration,
}

impl<T> OneUse<T> {
    fn new(most: usize, lifetime: Duration) -> Self {
        Self { kept: VecDeque::new(), most, lifetime }
    }

    fn put(&mut self, secret: &str, what: T) {
        self.kept.push_back((digest(secret), Instant::now() + self.lifetime, Some(what)));
        if self.kept.len() > self.most {
            self.kept.pop_front();
        }
    }

    /// Takes what a secret stands for; the secret is spent then.
    fn take(&mut self, secret: &str) -> Result<T, Worthless> {
        let (sought, now) = (digest(secret), Instant::now());
        self.kept.retain(|(_, until, _)| now < *until + self.lifetime);
        let mut found = None;
        for entry in &mut self.kept {
            if is_equal(&entry.0, &sought) {
                found = Some(entry);
            }
        }
        let (_, until, what) = found.ok_or(Worthless::Wrong)?;
        let what = what.take().ok_or(Worthless::Used)?;
        if now < *until { Ok(what) } else { Err(Worthless::Expired) }
    }
}

/// Why a code or a ticket does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Worthless {
    Wrong,
    Used,
    Expired,
}

impl Worthless {
    /// The reason that a person is told who brought a code.
    pub(super) fn of_code(self) -> &'static str {
        match self {
            Self::Wrong => "the code is wrong, or from before the server was started",
            Self::Used => "the code was used already: a link signs in once",
            Self::Expired => "the code has expired: a link counts for ten minutes",
        }
    }
}

impl SignIns {
    pub(super) fn new() -> Self {
        Self(Mutex::new(KnownSignIns {
            codes: OneUse::new(CODES_MAX, CODE_LIFETIME),
            tickets: OneUse::new(TICKETS_MAX, TICKET_LIFETIME),
            sessions: VecDeque::new(),
        }))
    }

    fn known(&self) -> MutexGuard<'_, KnownSignIns> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new code.
    pub(super) fn new_code(&self) -> Result<String, String> {
        let code = new_secret()?;
        self.known().codes.put(&code, ());
        Ok(code)
    }

    /// Signs in with the code in a body.
    pub(super) fn by_code(&self, body: &[u8]) -> Result<Handled, Worthless> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Brought {
            code: String,
        }
        let brought: Brought = serde_json::from_slice(body).map_err(|_| Worthless::Wrong)?;
        self.known().codes.take(&brought.code)?;
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
        Ok(Holder::new(token).ok_or_else(no_secret).and_then(|holder| self.begin(&holder)))
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
        let mut begun = described(&session);
        if let Some(begun) = begun.as_object_mut() {
            begun.insert("secret".to_owned(), json!(secret));
        }
        known.sessions.push_back((digest(&secret), session));
        Ok(answer(StatusCode::OK, &begun))
    }

    /// The holder of the session, or of the ticket, that a request brings; none if it brings
    /// neither.
    pub(super) fn holder(
        &self,
        keyring: &Keyring,
        (method, uri): (&Method, &Uri),
        headers: &HeaderMap,
    ) -> Option<Result<Arc<Holder>, &'static str>> {
        let found = if let Some(secret) = session_secret(headers) {
            self.session(secret).ok_or("the session has ended: sign in again")
        } else {
            let ticket = ticket_of(uri).filter(|_| *method == Method::GET)?;
            let ticket =
                self.known().tickets.take(ticket).ok().filter(|it| it.path == digest(uri.path()));
            ticket.map(|it| it.holder).ok_or("the ticket is wrong, used or expired")
        };
        // A token that was revoked just now ends its sessions.
        keyring.refresh();
        Some(found.and_then(|holder| match holder.counts() {
            true => Ok(holder),
            false if holder.revoked.is_cancelled() => {
                Err("the token that you signed in with was revoked")
            }
            false => Err("the session has expired: sign in again"),
        }))
    }

    /// The session of a secret; it may have ended.
    fn session(&self, secret: &str) -> Option<Arc<Holder>> {
        let sought = digest(secret);
        let mut found = None;
        for (known, session) in &self.known().sessions {
            if is_equal(known, &sought) {
                found = Some(session.clone());
            }
        }
        found
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

/// The secret of a session that a request brings.
fn session_secret(headers: &HeaderMap) -> Option<&str> {
    let own = headers.get(SESSION_HEADER).map(|own| own.to_str().unwrap_or_default());
    own.or_else(|| {
        let offered = headers.get(header::SEC_WEBSOCKET_PROTOCOL)?.to_str().ok()?;
        offered.split(',').map(str::trim).find(|it| it.starts_with(PREFIX))
    })
}

/// The ticket in an address.
fn ticket_of(uri: &Uri) -> Option<&str> {
    uri.query()?.split('&').find_map(|field| field.strip_prefix("ticket="))
}

/// Whether a request would sign in with a code: it brings nothing else.
pub(super) fn brings_code(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    *method == Method::POST
        && uri.path() == SESSION_PATH
        && !headers.contains_key(header::AUTHORIZATION)
        && session_secret(headers).is_none()
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
    Ok(answer(StatusCode::OK, &json!({ "signed_out": true })))
}

pub(super) fn ticket_schema() -> Value {
    json!({
        "type": "object",
        "required": ["path"],
        "additionalProperties": false,
        "properties": {
            "path": {
                "type": "string",
                "description": "What is to be read, such as /api/v1/tasks/ID/raw/stdout",
            },
        },
    })
}

/// A ticket for what a browser reads by itself: it stands in the address, where no secret may, and
/// is spent when it arrives there.
pub(super) async fn ticket(call: Call) -> Handled {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Wanted {
        path: String,
    }
    let Wanted { path } = call.body()?;
    let secret = new_secret().map_err(|_| no_secret())?;
    let secret = secret.trim_start_matches(PREFIX);
    let ticket = Ticket { path: digest(&path), holder: call.holder.clone() };
    call.face.sign_ins.known().tickets.put(secret, ticket);
    Ok(answer(StatusCode::OK, &json!({ "ticket": secret })))
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

    #[test]
    fn a_secret_comes_in_a_header_or_as_a_subprotocol_and_never_in_a_cookie() {
        let brought = |name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            session_secret(&headers).map(str::to_owned)
        };
        assert_eq!(brought("x-legwork", "lwt_a").as_deref(), Some("lwt_a"));
        assert_eq!(brought("sec-websocket-protocol", "legwork, lwt_a").as_deref(), Some("lwt_a"));
        assert_eq!(brought("sec-websocket-protocol", "legwork"), None);
        assert_eq!(brought("cookie", "legwork=lwt_a; legwork_7117=lwt_a"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_for_one_use_is_spent_by_that_and_by_time() {
        let mut codes = OneUse::new(CODES_MAX, CODE_LIFETIME);
        codes.put("one", 1);
        assert_eq!((codes.take("another"), codes.take("one")), (Err(Worthless::Wrong), Ok(1)));
        assert_eq!(codes.take("one"), Err(Worthless::Used));
        codes.put("late", 2);
        tokio::time::advance(CODE_LIFETIME).await;
        assert_eq!(codes.take("late"), Err(Worthless::Expired));
        tokio::time::advance(CODE_LIFETIME).await;
        assert_eq!(codes.take("late"), Err(Worthless::Wrong), "it is forgotten");
        for number in 0..=CODES_MAX {
            codes.put(&number.to_string(), number);
        }
        assert_eq!(codes.take("0"), Err(Worthless::Wrong), "the oldest went");
        assert_eq!(codes.take(&CODES_MAX.to_string()), Ok(CODES_MAX));
    }

    #[tokio::test]
    async fn sessions_are_bounded_and_the_oldest_ends() {
        let sign_ins = SignIns::new();
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
