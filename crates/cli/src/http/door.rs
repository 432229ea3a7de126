//! The door: whom a request comes from, and whether it is let in.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes, HttpBody},
    http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header},
    response::IntoResponse,
};
use http_body_util::BodyExt;
use hyper::{body::Incoming, service::Service as _};
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    HttpFace,
    connection::ConnectionPlace,
    health,
    keyring::Holder,
    listen::HttpPeer,
    metrics::HttpLimit,
    page,
    refusal::{HttpRefusal, answer},
    request_id::{self, REQUEST_ID},
    request_log::LoggedRequest,
    signin,
    tokens::PREFIX,
};

/// Most bytes of a request's body.
const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Most bytes of the body of one who signs in with a code: of whom nothing is known.
const SIGN_IN_BYTES_MAX: usize = 1024;

/// Most bytes of all bodies that are here at once.
pub(super) const BODIES_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How long a body may take to arrive.
const BODY_TIME_MAX: Duration = Duration::from_secs(30);

/// Where clients read how they get in (RFC 9728).
const METADATA: &str = "/.well-known/oauth-protected-resource";

/// What browsers are told with every answer: nothing but our own files is run or shown, nobody
/// frames it, and no address of ours is told elsewhere.
const GUARDS: [(header::HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
         font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// What the door leads to.
#[derive(Clone)]
pub(super) struct Door {
    pub face: Arc<HttpFace>,
    pub routes: Router,
}

impl Door {
    /// Answers a request; whoever has no place is told so and nothing else.
    pub(super) async fn answer(
        &self,
        peer: HttpPeer,
        place: Option<ConnectionPlace>,
        mut request: Request<Incoming>,
    ) -> Response<Body> {
        let id = request_id::settle(request.headers_mut());
        let logged = LoggedRequest::of(&request, || self.peer(peer, request.headers()));
        let crowded = place.is_none();
        let answered = if let Some(place) = place {
            request.extensions_mut().insert(place);
            self.enter(peer, request).await
        } else {
            Err(self::crowded())
        };
        let mut response = answered.unwrap_or_else(IntoResponse::into_response);
        self.face.metrics.request(response.status());
        if let Some(logged) = logged {
            logged.answered(&response);
        }
        let headers = response.headers_mut();
        if crowded {
            self.face.metrics.limit(HttpLimit::Connections);
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        headers.insert(REQUEST_ID, id);
        // Nothing of what is served here is for a cache, or for a browser to guess at.
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
        for (name, value) in GUARDS {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }

    async fn enter(
        &self,
        peer: HttpPeer,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, HttpRefusal> {
        let face = &self.face;
        let headers = request.headers();
        face.hosts.check(headers)?;
        refuse_token_in(request.uri())?;
        match request.uri().path() {
            "/healthz" => return Ok(health::alive()),
            "/readyz" => return Ok(health::ready(face.realms.own.engine()).await),
            METADATA => return Ok(self.metadata(headers, "")),
            path if path == format!("{METADATA}/mcp") => return Ok(self.metadata(headers, "/mcp")),
            path => {
                if let Some(file) = page::file(request.method(), path, request.uri().query()) {
                    return Ok(file);
                }
            }
        }
        if signin::brings_code(request.method(), request.uri(), headers) {
            return self.sign_in(peer, request).await;
        }
        let holder = self.holder(peer, (request.method(), request.uri()), headers).await?;
        let place = self.place(&holder.places, "requests of this token are under way")?;
        let (mut parts, body) = request.into_parts();
        let (body, bytes) = self.collected(body, BODY_BYTES_MAX).await?;
        // They are here for as long as the handler has them.
        parts.extensions.insert(Arc::new(bytes));
        parts.extensions.insert(holder.clone());
        let request = Request::from_parts(parts, Body::from(body));
        let Ok(mut response) = TowerToHyperService::new(self.routes.clone()).call(request).await;
        LoggedRequest::note_holder(&mut response, holder.clone());
        if response.body().size_hint().exact().is_some() {
            return Ok(response);
        }
        // What is written bit by bit keeps its places until it ends.
        let stream = self.place(&holder.streams, "streams of this token are open")?;
        Ok(response.map(|body| {
            Body::new(body.map_frame(move |frame| {
                let _held = (&place, &stream);
                frame
            }))
        }))
    }

    /// A place among those that a token has.
    fn place(
        &self,
        places: &Arc<Semaphore>,
        what: &str,
    ) -> Result<OwnedSemaphorePermit, HttpRefusal> {
        places.clone().try_acquire_owned().map_err(|_| {
            self.face.metrics.limit(HttpLimit::Requests);
            let message = format!("too many {what}");
            HttpRefusal::new(StatusCode::TOO_MANY_REQUESTS, "limit_exceeded", message)
                .hint("wait for some of their answers, then try again")
        })
    }

    /// A whole body of at most so many bytes, and its share of all bytes that may be here.
    async fn collected(
        &self,
        body: Incoming,
        most: usize,
    ) -> Result<(Bytes, Option<OwnedSemaphorePermit>), HttpRefusal> {
        let arrived = tokio::time::timeout(BODY_TIME_MAX, arrived(body, most, &self.face.bodies));
        let arrived = arrived.await.unwrap_or_else(|_| {
            let message = "the body did not arrive in time";
            Err(HttpRefusal::new(StatusCode::REQUEST_TIMEOUT, "too_slow", message))
        });
        arrived.inspect_err(|refusal| match refusal.status {
            StatusCode::PAYLOAD_TOO_LARGE | StatusCode::SERVICE_UNAVAILABLE => {
                self.face.metrics.limit(HttpLimit::BodyBytes);
            }
            StatusCode::REQUEST_TIMEOUT => self.face.metrics.limit(HttpLimit::BodyTime),
            _ => {}
        })
    }

    /// Signs somebody in who brings the code of a link.
    async fn sign_in(
        &self,
        peer: HttpPeer,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, HttpRefusal> {
        let (parts, body) = request.into_parts();
        let (body, _bytes) = self.collected(body, SIGN_IN_BYTES_MAX).await?;
        let worthless = match self.face.sign_ins.by_code(&body) {
            Ok(signed_in) => return signed_in,
            Err(worthless) => worthless,
        };
        self.slow_down(peer, &parts.headers).await;
        let message = worthless.of_code();
        let hint = "`legwork serve link` on the machine of the server prints a new link";
        Err(self.unknown(&parts.headers, message, "").hint(hint))
    }

    /// Notes a wrong token or code, and waits as long as that costs.
    async fn slow_down(&self, peer: HttpPeer, headers: &HeaderMap) {
        self.face.metrics.wrong_token();
        let wait = self.face.attempts.note(self.peer(peer, headers));
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = self.face.closing.cancelled() => {}
        }
    }

    /// The holder of the token, the session or the ticket that a request brings.
    async fn holder(
        &self,
        peer: HttpPeer,
        target: (&Method, &Uri),
        headers: &HeaderMap,
    ) -> Result<Arc<Holder>, HttpRefusal> {
        if !headers.contains_key(header::AUTHORIZATION)
            && let Some(found) = self.face.sign_ins.holder(&self.face.keyring, target, headers)
        {
            return found.map_err(|why| self.unknown(headers, why, ""));
        }
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        let secret = match (given.next(), given.next()) {
            (Some(one), None) => one.to_str().ok().and_then(bearer),
            _ => None,
        };
        let Some(secret) = secret else {
            return Err(self.unknown(
                headers,
                "this needs a token: Authorization: Bearer TOKEN",
                "",
            ));
        };
        if let Some(holder) = self.face.keyring.holder(secret) {
            return Ok(holder);
        }
        self.slow_down(peer, headers).await;
        let message = "the token is wrong, revoked or expired";
        Err(self.unknown(headers, message, ", error=\"invalid_token\""))
    }

    /// Where a request comes from: behind a proxy, what that says of it.
    fn peer(&self, peer: HttpPeer, headers: &HeaderMap) -> HttpPeer {
        let told = headers.get_all("x-forwarded-for").iter().next_back();
        let told = told.filter(|_| self.face.behind_proxy).and_then(|told| told.to_str().ok());
        // The proxy adds what it has seen at the end; what stands before it anybody can write.
        let last = told.and_then(|told| told.rsplit(',').next());
        last.and_then(|last| last.trim().parse().ok()).map_or(peer, HttpPeer::Address)
    }

    fn unknown(&self, headers: &HeaderMap, message: &str, error: &str) -> HttpRefusal {
        let url = format!("{}{METADATA}", self.base(headers));
        HttpRefusal::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
            .hint("`legwork token add` makes a token on the machine of the server")
            .challenge(format!("Bearer realm=\"legwork\"{error}, resource_metadata=\"{url}\""))
    }

    /// The address under which the client knows this server.
    fn base(&self, headers: &HeaderMap) -> String {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let by_proxy = self.face.behind_proxy && text("x-forwarded-proto") == Some("https");
        let is_tls = by_proxy || self.face.tls.is_some();
        let scheme = if is_tls { "https" } else { "http" };
        format!("{scheme}://{}", text("host").unwrap_or("localhost"))
    }

    /// What a client has to bring. There is no server that gives out tokens: a person does.
    fn metadata(&self, headers: &HeaderMap, resource: &str) -> Response<Body> {
        let metadata = json!({
            "resource": format!("{}{resource}", self.base(headers)),
            "resource_name": "Legwork",
            "bearer_methods_supported": ["header"],
        });
        answer(StatusCode::OK, &metadata)
    }
}

fn crowded() -> HttpRefusal {
    let message = "too many connections are open";
    HttpRefusal::new(StatusCode::SERVICE_UNAVAILABLE, "limit_exceeded", message)
        .hint("try again later")
}

/// The token of an Authorization header.
fn bearer(header: &str) -> Option<&str> {
    let (scheme, secret) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(secret.trim())
}

/// Addresses end up in logs, histories and Referer headers: a token there is refused, however it is
/// written, so that nobody gets used to it.
pub(super) fn refuse_token_in(uri: &Uri) -> Result<(), HttpRefusal> {
    let (fields, path) = (decoded(uri.query().unwrap_or_default()), decoded(uri.path()));
    let is_named = |(name, _): &(String, String)| {
        ["access_token", "token"].iter().any(|known| name.eq_ignore_ascii_case(known))
    };
    let has_one = |text: &str| text.to_ascii_lowercase().contains(PREFIX);
    let mut all = fields.iter().chain(&path);
    if !fields.iter().any(is_named) && !all.any(|(name, text)| has_one(name) || has_one(text)) {
        return Ok(());
    }
    Err(HttpRefusal::invalid("a token does not belong into an address: it is kept in logs there")
        .hint("send it as Authorization: Bearer TOKEN, and revoke this one if it is in use"))
}

/// The names and values of a part of an address, without percent signs.
fn decoded(part: &str) -> Vec<(String, String)> {
    let uri = format!("/?{part}").parse().unwrap_or_default();
    axum::extract::Query::try_from_uri(&uri).map(|query| query.0).unwrap_or_default()
}

/// A body as it arrives, as long as there is room.
async fn arrived(
    mut body: Incoming,
    most: usize,
    room: &Arc<Semaphore>,
) -> Result<(Bytes, Option<OwnedSemaphorePermit>), HttpRefusal> {
    let (mut bytes, mut share) = (Vec::new(), None::<OwnedSemaphorePermit>);
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|error| HttpRefusal::invalid(format!("the body cannot be read: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > most {
            let message = format!("the body is over the limit of {most} bytes");
            return Err(HttpRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message));
        }
        let wanted = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let Ok(more) = room.clone().try_acquire_many_owned(wanted) else {
            let message = "too many bytes of requests are here at once";
            return Err(HttpRefusal::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "limit_exceeded",
                message,
            )
            .hint("try again later"));
        };
        match &mut share {
            Some(share) => share.merge(more),
            None => share = Some(more),
        }
        bytes.extend_from_slice(&data);
    }
    Ok((bytes.into(), share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_in_an_address_is_seen_however_it_is_written() {
        let allowed = |text: &str| refuse_token_in(&text.parse().unwrap()).is_ok();
        for fine in ["/", "/api/v1/tasks?limit=1", "/api/v1/tasks?ticket=abc", "/?tokens=1"] {
            assert!(allowed(fine), "{fine}");
        }
        for refused in [
            "/?token=x",
            "/?%74oken=x",
            "/?a=1&Access%5FToken=x",
            "/?q=lwt%5fabc",
            "/lwt_abc",
            "/lwt%5Fabc",
            "/a?b&lw%74_x",
            "/?q=LWT_abc",
        ] {
            assert!(!allowed(refused), "{refused}");
        }
    }
}
