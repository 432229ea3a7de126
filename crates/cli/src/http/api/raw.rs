//! The raw bytes of a task's streams, as they were printed, secrets and all: for an operator.
//!
//! A byte is at the offset at which it was printed. Where some were dropped there are zeros, and a
//! header says where. What a running task prints later is another answer, with another `ETag`.

use std::io;

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, HeaderValue, Response, StatusCode, header},
    response::IntoResponse,
};
use http_body_util::channel::{Channel, Sender};
use legwork::{
    Stream,
    output::{Artifact, TaskOutput},
};

use super::super::{
    keyring::Holder,
    refusal::{HttpRefusal, failed},
    routes::{Call, Handled},
};

/// Bytes that are read at a time.
const PIECE_BYTES: u64 = 64 * 1024;

/// Pieces that wait for a client.
const PIECES_MAX: usize = 2;

/// The header that tells which bytes were dropped.
const MISSING: &str = "legwork-missing";

pub(in crate::http) async fn stdout(call: Call) -> Handled {
    raw(call, Stream::Stdout).await
}

pub(in crate::http) async fn stderr(call: Call) -> Handled {
    raw(call, Stream::Stderr).await
}

fn artifact(output: &TaskOutput, stream: Stream) -> &Artifact {
    match stream {
        Stream::Stdout => &output.stdout,
        Stream::Stderr => &output.stderr,
    }
}

async fn raw(call: Call, stream: Stream) -> Handled {
    let engine = call.standing.engine();
    let looked = async {
        let mut observer = engine.observe(engine.task_here(&call.id).await?).await?;
        observer.output().await
    };
    let output = match looked.await {
        Ok(output) => output,
        Err(error) => return Ok(failed(&error)),
    };
    let found = artifact(&output, stream);
    let (bytes, dropped) = (found.bytes(), found.dropped_bytes());
    let name = stream.file_name();
    let tag = format!("\"{}-{name}-{bytes}-{dropped}\"", call.id);
    let Ok(wanted) = wanted(&call.headers, &tag, bytes) else {
        let message = format!("the stream has {bytes} bytes");
        let refusal = HttpRefusal::new(StatusCode::RANGE_NOT_SATISFIABLE, "no_such_range", message);
        let range = [("content-range", format!("bytes */{bytes}"))];
        return Ok(with_headers(refusal.into_response(), &range));
    };
    let (from, to) = wanted.unwrap_or((0, bytes));
    let mut headers = vec![
        ("content-type", "application/octet-stream".to_owned()),
        ("content-disposition", format!("attachment; filename=\"{}.{name}\"", call.id)),
        ("content-length", (to - from).to_string()),
        ("accept-ranges", "bytes".to_owned()),
        ("etag", tag),
    ];
    if wanted.is_some() {
        headers.push(("content-range", format!("bytes {from}-{}/{bytes}", to - 1)));
    }
    if let Some(gap) = found.gap() {
        headers.push((MISSING, format!("bytes {}-{}", gap.from, gap.to.saturating_sub(1))));
    }
    let (sender, body) = Channel::<Bytes, io::Error>::new(PIECES_MAX);
    tokio::spawn(send_all(sender, output, stream, (from, to), call.holder));
    let mut response = Response::new(Body::new(body));
    if wanted.is_some() {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(with_headers(response, &headers))
}

fn with_headers(
    mut response: Response<Body>,
    headers: &[(&'static str, String)],
) -> Response<Body> {
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().insert(*name, value);
        }
    }
    response
}

/// Sends a stretch, piece by piece and as the client takes it. What cannot be read any more ends
/// the connection: the length was said already.
async fn send_all(
    mut sender: Sender<Bytes, io::Error>,
    mut output: TaskOutput,
    stream: Stream,
    (mut at, to): (u64, u64),
    holder: std::sync::Arc<Holder>,
) {
    let ended = holder.ended();
    tokio::pin!(ended);
    while at < to {
        let read = tokio::task::spawn_blocking(move || {
            let piece = piece(artifact(&output, stream), at, to);
            (output, piece)
        });
        let Ok((read_from, Ok(piece))) = read.await else { return };
        output = read_from;
        if piece.is_empty() {
            return;
        }
        at += piece.len() as u64;
        tokio::select! {
            sent = sender.send_data(piece.into()) => if sent.is_err() {
                return;
            },
            () = &mut ended => return,
        }
    }
}

/// The next piece of a stretch; zeros where bytes were dropped.
fn piece(artifact: &Artifact, at: u64, to: u64) -> io::Result<Vec<u8>> {
    let most = PIECE_BYTES.min(to - at);
    let kept = artifact.skip(at);
    if kept > at {
        let zeros = usize::try_from(most.min(kept - at)).map_err(io::Error::other)?;
        return Ok(vec![0; zeros]);
    }
    artifact.read(at, most)
}

/// No byte of what is wanted is there.
#[derive(Debug, PartialEq, Eq)]
struct Unsatisfiable;

/// The stretch that is wanted, from a byte to before another; none if it is all of it. Several
/// ranges at once, and what is no range, count as none, as RFC 9110 lets us.
fn wanted(headers: &HeaderMap, tag: &str, bytes: u64) -> Result<Option<(u64, u64)>, Unsatisfiable> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    // A part of another state would not fit to what the client has.
    if text(header::IF_RANGE).is_some_and(|known| known != tag) {
        return Ok(None);
    }
    let range = text(header::RANGE).and_then(|range| range.strip_prefix("bytes="));
    let Some((first, last)) = range.and_then(|range| range.trim().split_once('-')) else {
        return Ok(None);
    };
    let stretch = match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last => (first, last.saturating_add(1).min(bytes)),
        (Ok(first), Err(_)) if last.is_empty() => (first, bytes),
        (Err(_), Ok(count)) if first.is_empty() => (bytes.saturating_sub(count), bytes),
        _ => return Ok(None),
    };
    if stretch.0 < stretch.1 { Ok(Some(stretch)) } else { Err(Unsatisfiable) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_as_rfc_9110_has_them() {
        let asked = |range: &'static str, known: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RANGE, HeaderValue::from_static(range));
            if let Some(known) = known {
                headers.insert(header::IF_RANGE, HeaderValue::from_static(known));
            }
            wanted(&headers, "\"tag\"", 10)
        };
        for (range, stretch) in [
            ("bytes=0-0", Ok(Some((0, 1)))),
            ("bytes=2-5", Ok(Some((2, 6)))),
            ("bytes=2-", Ok(Some((2, 10)))),
            ("bytes=2-99", Ok(Some((2, 10)))),
            ("bytes=9-18446744073709551615", Ok(Some((9, 10)))),
            ("bytes=-3", Ok(Some((7, 10)))),
            ("bytes=-99", Ok(Some((0, 10)))),
            ("bytes=10-", Err(Unsatisfiable)),
            ("bytes=-0", Err(Unsatisfiable)),
            ("bytes=5-2", Ok(None)),
            ("bytes=0-1,4-5", Ok(None)),
            ("bytes=-", Ok(None)),
            ("bytes=x-1", Ok(None)),
            ("lines=0-1", Ok(None)),
        ] {
            assert_eq!(asked(range, None), stretch, "{range}");
        }
        assert_eq!(asked("bytes=2-5", Some("\"tag\"")), Ok(Some((2, 6))));
        assert_eq!(asked("bytes=2-5", Some("\"old\"")), Ok(None));
    }
}
