//! The body of a reply: bytes that are there, or events as the engine generates them.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::answer::Answer;
use super::live::{Live, Ticket};
use crate::metrics::Visit;

/// Pieces that go into one frame at most.
const PIECES_PER_FRAME: usize = 64;

/// A reply's body. The request counts as answered, and what is unfinished is aborted, when this is dropped.
#[derive(Debug)]
pub(super) struct Reply {
    content: Content,
    _stay: Option<Stay>,
}

#[derive(Debug)]
enum Content {
    Whole(Bytes),
    Events(Box<Events>),
    Spent,
}

#[derive(Debug)]
struct Events {
    answer: Answer,
    ticket: Ticket,
    begun: bool,
}

/// Measures a request until it is dropped, and then counts it.
#[derive(Debug)]
pub(super) struct Stay {
    pub(super) live: Arc<Live>,
    pub(super) since: Instant,
    pub(super) visit: Visit,
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.live.count_visit(&Visit { took: self.since.elapsed(), ..self.visit });
    }
}

impl Reply {
    /// Makes a body of bytes that are there.
    pub(super) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self { content: Content::Whole(bytes.into()), _stay: None }
    }

    /// Makes a body of events that are still to come.
    pub(super) fn events(answer: Answer, ticket: Ticket) -> Self {
        Self { content: Content::Events(Box::new(Events { answer, ticket, begun: false })), _stay: None }
    }

    /// Has the request counted when the body is gone.
    pub(super) fn counted(self, stay: Stay) -> Self {
        Self { _stay: Some(stay), ..self }
    }

    /// How many bytes there will be, if that is known.
    pub(super) fn len(&self) -> Option<u64> {
        match &self.content {
            Content::Whole(bytes) => Some(bytes.len() as u64),
            Content::Events(_) => None,
            Content::Spent => Some(0),
        }
    }
}

impl Events {
    /// Writes the events of the pieces that are there, and says whether more will come.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(Vec<u8>, bool)> {
        let mut out = Vec::new();
        for _ in 0..PIECES_PER_FRAME {
            match self.ticket.pieces.poll_recv(cx) {
                Poll::Pending if out.is_empty() => return Poll::Pending,
                Poll::Pending => break,
                // the engine stopped: the client sees a stream without an end
                Poll::Ready(None) => return Poll::Ready((out, false)),
                Poll::Ready(Some(piece)) => {
                    if !self.begun {
                        self.begun = true;
                        self.answer.stream_head(&mut out);
                    }
                    if let Some(token) = self.answer.take(piece) {
                        self.answer.stream_token(&mut out, token);
                    }
                    if self.answer.is_complete() {
                        self.answer.stream_tail(&mut out);
                        return Poll::Ready((out, false));
                    }
                }
            }
        }
        Poll::Ready((out, true))
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = match &mut self.content {
            Content::Spent => return Poll::Ready(None),
            Content::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                self.content = Content::Spent;
                bytes
            }
            Content::Events(events) => {
                let (out, more) = ready!(events.poll(cx));
                if !more {
                    self.content = Content::Spent;
                }
                Bytes::from(out)
            }
        };
        Poll::Ready((!frame.is_empty()).then(|| Ok(Frame::data(frame))))
    }

    fn is_end_stream(&self) -> bool {
        self.len() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.len().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
