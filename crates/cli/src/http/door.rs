//! The door: whom a request comes from, and whether it is let in.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header},
    response::IntoResponse,
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::{body::Incoming, service::Service as _};
use hyper_util::service::TowerToHyperService;
use serde_json::json;

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
        let holder = self.holder(peer, request.method(), headers).await?;
        let Ok(_place) = holder.places.clone().try_acquire_owned() else {
            face.metrics.limit(HttpLimit::Requests);
            let message = "too many requests of this token are under way";
            return Err(HttpRefusal::new(StatusCode::TOO_MANY_REQUESTS, "limit_exceeded", message)
                .hint("wait for some of their answers, then try again"));
        };
        let (mut parts, body) = request.into_parts();
        let body = collected(body).await.inspect_err(|refusal| match refusal.status {
            StatusCode::PAYLOAD_TOO_LARGE => face.metrics.limit(HttpLimit::BodyBytes),
            StatusCode::REQUEST_TIMEOUT => face.metrics.limit(HttpLimit::BodyTime),
            _ => {}
        })?;
        parts.extensions.insert(holder.clone());
        let request = Request::from_parts(parts, Body::from(body));
        let Ok(mut response) = TowerToHyperService::new(self.routes.clone()).call(request).await;
        LoggedRequest::note_holder(&mut response, holder);
        Ok(response)
    }

    /// Signs somebody in who brings the code of a link.
    async fn sign_in(
        &self,
        peer: HttpPeer,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, HttpRefusal> {
        let (parts, body) = request.into_parts();
        signin::check_own_page(&parts.method, &parts.headers, self.face.behind_proxy)?;
        let body = collected(body).await?;
        if let Some(signed_in) = self.face.sign_ins.by_code(&body) {
            return signed_in;
        }
        self.slow_down(peer, &parts.headers).await;
        let message = "the code is wrong, used or expired";
        let hint = "send the server the signal USR1, and it prints a new link";
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

    /// The holder of the token, or of the session, that a request brings.
    async fn holder(
        &self,
        peer: HttpPeer,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<Arc<Holder>, HttpRefusal> {
        if !headers.contains_key(header::AUTHORIZATION)
            && let Some(holder) = self.face.sign_ins.holder(&self.face.keyring, headers)
        {
            signin::check_own_page(method, headers, self.face.behind_proxy)?;
            return Ok(holder);
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

/// Addresses end up in logs, histories and Referer headers: a token there is refused, so that
/// nobody gets used to it.
fn refuse_token_in(uri: &Uri) -> Result<(), HttpRefusal> {
    let fields = uri.query().unwrap_or_default().split('&');
    let is_named = |field: &str| {
        let name = field.split('=').next().unwrap_or_default();
        name.eq_ignore_ascii_case("access_token") || name.eq_ignore_ascii_case("token")
    };
    let mut fields = fields.filter(|field| is_named(field));
    if fields.next().is_none() && !uri.to_string().contains(PREFIX) {
        return Ok(());
    }
    Err(HttpRefusal::invalid("a token does not belong into an address: it is kept in logs there")
        .hint("send it as Authorization: Bearer TOKEN, and revoke this one if it is in use"))
}

/// A whole body, within limits.
async fn collected(body: Incoming) -> Result<Bytes, HttpRefusal> {
    let body = Limited::new(body, BODY_BYTES_MAX).collect();
    match tokio::time::timeout(BODY_TIME_MAX, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let message = format!("the body is over the limit of {BODY_BYTES_MAX} bytes");
            Err(HttpRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message))
        }
        Ok(Err(error)) => Err(HttpRefusal::invalid(format!("the body cannot be read: {error}"))),
        Err(_) => {
            let message = "the body did not arrive in time";
            Err(HttpRefusal::new(StatusCode::REQUEST_TIMEOUT, "too_slow", message))
        }
    }
}
