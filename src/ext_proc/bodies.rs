//! Room 2: the bodies of requests as they come: how large one may be, all that are half here together, and how long one
//! may take.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::flow::refusal::Refusal;

/// What bodies may take.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimits {
    /// The largest one, in bytes.
    pub each: usize,
    /// All that have begun and not ended, in bytes.
    pub together: usize,
    /// From the headers to the end of the body; `None`: for ever.
    pub patience: Option<Duration>,
}

/// The bodies of all streams that have begun and not ended.
#[derive(Debug)]
pub struct Bodies {
    limits: BodyLimits,
    held: AtomicUsize,
}

impl Bodies {
    /// None yet.
    pub fn new(limits: BodyLimits) -> Self {
        Self { limits, held: AtomicUsize::new(0) }
    }
}

/// The chunks of a body as they come, never copied to be sent on.
#[derive(Debug, Default)]
pub struct BodyChunks {
    chunks: Vec<Bytes>,
    size: usize,
    share: Option<Share>,
    late: Option<Pin<Box<Sleep>>>,
}

/// What one body takes of what all may take; given back when it is dropped.
#[derive(Debug)]
struct Share {
    of: Arc<Bodies>,
    bytes: usize,
}

impl BodyChunks {
    /// Takes the next chunk. A body that is complete with it is read at once, and counts only by itself.
    ///
    /// # Errors
    /// If the body grows too large, or all of them together do.
    pub fn push(&mut self, chunk: Bytes, is_last: bool, bodies: &Arc<Bodies>) -> Result<(), Refusal> {
        let limits = &bodies.limits;
        self.size += chunk.len();
        if self.size > limits.each {
            return Err(Refusal::BodyTooLarge { limit: limits.each });
        }
        if chunk.is_empty() {
            return Ok(());
        }
        if !is_last {
            let share = self.share.get_or_insert_with(|| Share { of: bodies.clone(), bytes: 0 });
            share.bytes += chunk.len();
            if bodies.held.fetch_add(chunk.len(), Relaxed) + chunk.len() > limits.together {
                return Err(Refusal::BodiesTooLarge { limit: limits.together });
            }
        }
        self.chunks.push(chunk);
        Ok(())
    }

    /// Whether a body whose headers came then takes too long; otherwise wakes the task when it does.
    pub fn poll_late(&mut self, since: Instant, bodies: &Bodies, cx: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = bodies.limits.patience.and_then(|patience| since.checked_add(patience)) else {
            return Poll::Pending;
        };
        self.late.get_or_insert_with(|| Box::pin(sleep_until(deadline))).as_mut().poll(cx)
    }

    /// The whole body; copied only if it came in pieces.
    pub fn join(self) -> Bytes {
        match <[Bytes; 1]>::try_from(self.chunks) {
            Ok([one]) => one,
            Err(chunks) => {
                let mut whole = BytesMut::with_capacity(self.size);
                chunks.iter().for_each(|c| whole.extend_from_slice(c));
                whole.freeze()
            }
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.held.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(each: usize, together: usize) -> Arc<Bodies> {
        Arc::new(Bodies::new(BodyLimits { each, together, patience: None }))
    }

    #[test]
    fn a_body_over_the_limit_is_refused_as_soon_as_it_is_seen() {
        let (mut body, bodies) = (BodyChunks::default(), bodies(8, 100));
        assert_eq!(body.push(Bytes::from_static(b"12345"), false, &bodies), Ok(()));
        assert_eq!(body.push(Bytes::from_static(b"6789"), true, &bodies), Err(Refusal::BodyTooLarge { limit: 8 }));
    }

    #[test]
    fn bodies_that_are_half_here_have_one_limit_together() {
        let (mut first, mut second, bodies) = (BodyChunks::default(), BodyChunks::default(), bodies(8, 10));
        let chunk = Bytes::from_static(b"123456");
        assert_eq!(first.push(chunk.clone(), false, &bodies), Ok(()));
        assert_eq!(second.push(chunk.clone(), false, &bodies), Err(Refusal::BodiesTooLarge { limit: 10 }));
        drop(second);
        let mut whole = BodyChunks::default();
        assert_eq!(whole.push(chunk.clone(), true, &bodies), Ok(()), "one that is complete waits for nothing");
        drop(first);
        assert_eq!(bodies.held.load(Relaxed), 0);
        assert_eq!(BodyChunks::default().push(chunk, false, &bodies), Ok(()));
    }

    #[test]
    fn a_body_in_one_chunk_is_not_copied() {
        let (chunk, bodies) = (Bytes::from(vec![7; 100]), bodies(100, 100));
        let mut body = BodyChunks::default();
        body.push(chunk.clone(), false, &bodies).unwrap();
        body.push(Bytes::new(), true, &bodies).unwrap();
        assert_eq!(body.join().as_ptr(), chunk.as_ptr());
    }
}
