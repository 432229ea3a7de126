//! Resumption of MCP streams, for clients of the older era: whoever lost the connection during a
//! call asks for what came after the last event that it has seen (Last-Event-ID), and is told that
//! and all that follows.
//!
//! rmcp forgets a call's stream together with its answer, also when nobody was there to receive it,
//! so the events are kept here. In the newer era nothing is resumed: whoever leaves has cancelled,
//! which is why rmcp is not told of this store (`SessionManager::event_store`).

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures_util::{Stream, stream};
use rmcp::{
    model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage},
    transport::streamable_http_server::session::{
        EventStore, EventStoreError, EventStream, RestoreOutcome, ServerSseMessage, SessionId,
        SessionManager,
        local::{LocalSessionManager, LocalSessionManagerError, SessionConfig, SessionError},
    },
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Most events of a call that are kept: notifications make room.
const EVENTS_MAX: usize = 16;

/// Most answered calls of a token that are kept, and for how long at least while there are fewer.
const ANSWERED_MAX: usize = 256;
const ANSWERED_KEPT: Duration = Duration::from_secs(60);

/// Most calls of a token that are kept, the ones under way included.
const CALLS_MAX: usize = 4096;

/// The id of events that belong to no call. These are not kept: nothing that anybody waits for is
/// among them.
const NO_CALL: &str = "0";

/// The sessions of a token, of which each call's stream can be resumed.
pub(super) struct ResumableSessions {
    pub local: LocalSessionManager,
    events: CallEvents,
    /// Of sessions that have resumed a stream: cancelled when they end.
    ends: Mutex<HashMap<SessionId, CancellationToken>>,
}

impl ResumableSessions {
    pub(super) fn new(config: SessionConfig) -> Self {
        let events = CallEvents::default();
        let mut local = LocalSessionManager::default().with_event_store(Arc::new(events.clone()));
        local.session_config = config;
        Self { local, events, ends: Mutex::default() }
    }

    fn ends(&self) -> MutexGuard<'_, HashMap<SessionId, CancellationToken>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionManager for ResumableSessions {
    type Error = LocalSessionManagerError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        self.local.create_session().await
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        self.local.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        self.local.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        let closed = self.local.close_session(id).await;
        if let Some(end) = self.ends().remove(id) {
            end.cancel();
        }
        closed
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.local.create_stream(id, message).await
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), Self::Error> {
        self.local.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.local.create_standalone_stream(id).await
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        if last_event_id == NO_CALL {
            let stream: EventStream = Box::pin(self.local.create_standalone_stream(id).await?);
            return Ok(stream);
        }
        let end = self.ends().entry(id.clone()).or_default().clone();
        // It may have ended before its end was to be told.
        if !self.local.has_session(id).await? {
            self.ends().remove(id);
            return Err(LocalSessionManagerError::SessionNotFound(id.clone()));
        }
        let stream = self.events.after(&last_event_id, end);
        stream.ok_or_else(|| SessionError::InvalidEventId.into())
    }

    async fn restore_session(
        &self,
        id: SessionId,
    ) -> Result<RestoreOutcome<Self::Transport>, Self::Error> {
        self.local.restore_session(id).await
    }
}

/// The newest events of the calls of a token. Their ids are `<number>/<name of the stream>`, and
/// the name is random: whoever has one has seen the stream.
#[derive(Clone, Default)]
struct CallEvents(Arc<Mutex<Calls>>);

#[derive(Default)]
struct Calls {
    streams: HashMap<String, CallStream>,
    /// Those that have their answer, oldest first.
    answered: VecDeque<(Instant, String)>,
}

/// The stream of one call.
struct CallStream {
    events: VecDeque<(u64, ServerSseMessage)>,
    next: u64,
    is_answered: bool,
    touched_at: Instant,
    /// Tells those who read along.
    grown: watch::Sender<()>,
}

#[async_trait::async_trait]
impl EventStore for CallEvents {
    async fn store_event(
        &self,
        stream: &str,
        event: &ServerSseMessage,
    ) -> Result<String, EventStoreError> {
        // rmcp names the stream of a session that belongs to no call so.
        if stream.ends_with(":common") {
            return Ok(NO_CALL.to_owned());
        }
        Ok(self.lock().keep(stream, event.clone(), Instant::now()))
    }

    async fn replay_events_after(&self, last: &str) -> Result<EventStream, EventStoreError> {
        Ok(self.after(last, CancellationToken::new()).ok_or("this event is not known here")?)
    }
}

impl CallEvents {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What came after an event in its stream, and what will until the end; none if the stream is
    /// not known.
    fn after(&self, event_id: &str, end: CancellationToken) -> Option<EventStream> {
        let (number, name) = event_id.split_once('/')?;
        let (number, name) = (number.parse().ok()?, name.to_owned());
        let grown = self.lock().streams.get(&name)?.grown.subscribe();
        let reader = CallReader { events: self.clone(), name, last: number, grown, end };
        Some(Box::pin(stream::unfold(reader, CallReader::next)))
    }
}

/// Reads the stream of a call, to its answer.
struct CallReader {
    events: CallEvents,
    name: String,
    /// The number of the last event that was read.
    last: u64,
    grown: watch::Receiver<()>,
    /// Cancelled with the session.
    end: CancellationToken,
}

impl CallReader {
    async fn next(mut self) -> Option<(ServerSseMessage, Self)> {
        loop {
            let found = {
                let calls = self.events.lock();
                let stream = calls.streams.get(&self.name)?;
                let mut events = stream.events.iter();
                let found = events.find(|(number, _)| *number > self.last).cloned();
                if found.is_none() && stream.is_answered {
                    return None;
                }
                found
            };
            if let Some((number, event)) = found {
                self.last = number;
                return Some((event, self));
            }
            tokio::select! {
                grown = self.grown.changed() => grown.ok()?,
                () = self.end.cancelled() => return None,
            }
        }
    }
}

impl Calls {
    /// Keeps an event, and returns its id.
    fn keep(&mut self, name: &str, mut event: ServerSseMessage, now: Instant) -> String {
        if !self.streams.contains_key(name) {
            self.make_room(now);
        }
        let stream = self.streams.entry(name.to_owned()).or_insert_with(|| CallStream::new(now));
        let (number, id) = (stream.next, format!("{}/{name}", stream.next));
        (stream.next, stream.touched_at) = (number + 1, now);
        event.event_id = Some(id.clone());
        if is_answer(&event) && !stream.is_answered {
            stream.is_answered = true;
            self.answered.push_back((now, name.to_owned()));
        }
        if stream.events.len() >= EVENTS_MAX {
            // A question must not be lost to what is told while it waits.
            let told = stream.events.iter().position(|(_, event)| is_notification(event));
            stream.events.remove(told.unwrap_or(0));
        }
        stream.events.push_back((number, event));
        stream.grown.send_replace(());
        id
    }

    /// Forgets old answers, and for want of room calls that will have none: their session ended.
    fn make_room(&mut self, now: Instant) {
        while let Some((at, _)) = self.answered.front()
            && (self.answered.len() > ANSWERED_MAX
                || now.saturating_duration_since(*at) > ANSWERED_KEPT)
            && let Some((_, name)) = self.answered.pop_front()
        {
            self.streams.remove(&name);
        }
        if self.streams.len() >= CALLS_MAX {
            let quiet = self.streams.iter().min_by_key(|(_, stream)| stream.touched_at);
            if let Some(name) = quiet.map(|(name, _)| name.clone()) {
                self.streams.remove(&name);
            }
        }
    }
}

impl CallStream {
    fn new(now: Instant) -> Self {
        Self {
            events: VecDeque::new(),
            next: 0,
            is_answered: false,
            touched_at: now,
            grown: watch::Sender::new(()),
        }
    }
}

fn is_answer(event: &ServerSseMessage) -> bool {
    let message = event.message.as_deref();
    matches!(message, Some(JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)))
}

fn is_notification(event: &ServerSseMessage) -> bool {
    matches!(event.message.as_deref(), Some(JsonRpcMessage::Notification(_)))
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use serde_json::{Value, json};

    use super::*;

    fn event(message: Value) -> ServerSseMessage {
        ServerSseMessage::from_message(serde_json::from_value(message).unwrap())
    }

    fn told(number: u32) -> ServerSseMessage {
        let params = json!({ "progressToken": 1, "progress": number });
        event(json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }))
    }

    fn question() -> ServerSseMessage {
        event(json!({ "jsonrpc": "2.0", "id": 7, "method": "ping" }))
    }

    fn answer() -> ServerSseMessage {
        event(json!({ "jsonrpc": "2.0", "id": 1, "result": {} }))
    }

    fn after(events: &CallEvents, id: &str) -> Option<EventStream> {
        events.after(id, CancellationToken::new())
    }

    fn ids(events: &[ServerSseMessage]) -> Vec<&str> {
        events.iter().filter_map(|event| event.event_id.as_deref()).collect()
    }

    #[tokio::test]
    async fn what_came_after_an_event_is_told_once_and_up_to_the_answer() {
        let events = CallEvents::default();
        let now = Instant::now();
        assert_eq!(events.lock().keep("call", told(1), now), "0/call");
        events.lock().keep("other", told(1), now);
        let following = after(&events, "0/call").unwrap();
        let late = after(&events, "0/call").unwrap();
        let keep = async {
            events.lock().keep("call", told(2), now);
            tokio::task::yield_now().await;
            events.lock().keep("call", answer(), now);
        };
        let (followed, ()) = tokio::join!(following.collect::<Vec<_>>(), keep);
        assert_eq!(ids(&followed), ["1/call", "2/call"]);
        assert_eq!(ids(&late.collect::<Vec<_>>().await), ["1/call", "2/call"]);
        let answered: Vec<_> = after(&events, "1/call").unwrap().collect().await;
        assert_eq!(ids(&answered), ["2/call"]);
        assert!(after(&events, "0/nothing").is_none());
        assert!(after(&events, "call").is_none());
    }

    #[tokio::test]
    async fn a_question_is_not_lost_to_notifications() {
        let events = CallEvents::default();
        let now = Instant::now();
        events.lock().keep("call", told(0), now);
        events.lock().keep("call", question(), now);
        for number in 0..100 {
            events.lock().keep("call", told(number), now);
        }
        events.lock().keep("call", answer(), now);
        let all: Vec<_> = after(&events, "0/call").unwrap().collect().await;
        assert_eq!(all.len(), EVENTS_MAX);
        assert_eq!(ids(&all).first(), Some(&"1/call"));
        assert_eq!(ids(&all).last(), Some(&"102/call"));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut calls = Calls::default();
        let now = Instant::now();
        for number in 0..2 * ANSWERED_MAX {
            calls.keep(&format!("answered-{number}"), answer(), now);
        }
        assert!(calls.streams.len() <= ANSWERED_MAX + 1, "{}", calls.streams.len());
        calls.keep("later", told(0), now + 2 * ANSWERED_KEPT);
        assert_eq!(calls.streams.len(), 1);
        for number in 0..2 * CALLS_MAX {
            calls.keep(&format!("left-{number}"), told(0), now + 3 * ANSWERED_KEPT);
        }
        assert_eq!(calls.streams.len(), CALLS_MAX);
        assert!(!calls.streams.contains_key("later"), "the one that was quiet for longest");
    }
}
