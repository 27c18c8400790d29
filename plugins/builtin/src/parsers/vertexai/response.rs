//! The usage that Vertex AI's prediction service reports: each message wraps a document or a part of the events that
//! OpenAI would answer with.

use epp_plugin_api::{ResponseKind, ResponseParser, Usage};

use super::super::grpc::Frames;
use super::super::openai::usage;
use super::http_body;

/// Goes through the messages of a response.
#[derive(Default)]
pub struct Bodies {
    frames: Frames,
    inner: Inner,
}

/// What the messages wrap.
#[derive(Default)]
struct Inner {
    /// Set as soon as a message says that it is of events.
    events: Option<Box<dyn ResponseParser>>,
    /// The last report of a document.
    usage: Option<Usage>,
}

impl Inner {
    fn message(&mut self, message: &[u8]) {
        let Ok(body) = http_body(message, 0..message.len()) else { return };
        let data = &message[body.data.unwrap_or_default()];
        let content_type = String::from_utf8_lossy(&message[body.content_type]).to_ascii_lowercase();
        if self.events.is_none() && content_type.contains("text/event-stream") {
            self.events = Some(usage::reader(ResponseKind::Events));
        }
        let reported = match &mut self.events {
            Some(events) => events.feed(data),
            None => {
                let mut document = usage::reader(ResponseKind::Whole);
                document.feed(data).or_else(|| document.finish())
            }
        };
        self.usage = reported.or(self.usage);
    }
}

impl ResponseParser for Bodies {
    fn feed(&mut self, chunk: &[u8]) -> Option<Usage> {
        self.frames.feed(chunk, |message| self.inner.message(message));
        None
    }

    fn finish(&mut self) -> Option<Usage> {
        let open = self.inner.events.as_mut().and_then(|events| events.finish());
        open.or(self.inner.usage.take())
    }
}
