//! A clock that is set by hand, and wakes who waits for a time.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use epp_plugin_api::{Call, Job};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::sched::calls::{Answer, Calls, NoCalls};

/// Time since the simulation began. Asks no service on behalf of plugins.
pub struct Clock {
    zero: Instant,
    nanos: AtomicU64,
    /// By the time that they wait for, and a number of their own.
    sleepers: Mutex<Sleepers>,
}

#[derive(Default)]
struct Sleepers {
    wakers: BTreeMap<(Duration, u64), Waker>,
    n_ever: u64,
}

impl Default for Clock {
    fn default() -> Self {
        Self { zero: Instant::now(), nanos: AtomicU64::new(0), sleepers: Mutex::default() }
    }
}

impl Clock {
    /// The moment so long after the beginning, as plugins are told it.
    pub fn instant(&self, at: Duration) -> Instant {
        self.zero + at
    }

    /// How long after the beginning a moment is.
    pub fn since_zero(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.zero)
    }

    /// Time since the beginning.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Relaxed))
    }

    /// What the earliest sleeper waits for.
    pub fn next(&self) -> Option<Duration> {
        self.sleepers.lock().wakers.first_key_value().map(|((at, _), _)| *at)
    }

    /// Sets the clock, and wakes whose time has come.
    pub fn set(&self, to: Duration) {
        self.nanos.store(u64::try_from(to.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        let mut sleepers = self.sleepers.lock();
        while let Some(first) = sleepers.wakers.first_entry().filter(|first| first.key().0 <= to) {
            first.remove().wake();
        }
    }
}

impl Calls for Clock {
    fn call(&self, call: Call) -> Answer<'_> {
        NoCalls.call(call)
    }

    fn compute(&self, job: Job) -> Answer<'_> {
        NoCalls.compute(job)
    }

    fn send(&self, _call: Call) {}

    fn until(&self, then: Instant) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(Sleep { clock: self, until: then.saturating_duration_since(self.zero), number: None })
    }

    fn now(&self) -> Instant {
        self.instant(self.elapsed())
    }
}

struct Sleep<'a> {
    clock: &'a Clock,
    until: Duration,
    number: Option<u64>,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.clock.elapsed() >= self.until {
            return Poll::Ready(());
        }
        let mut sleepers = self.clock.sleepers.lock();
        let number = self.number.unwrap_or(sleepers.n_ever);
        sleepers.n_ever = sleepers.n_ever.max(number + 1);
        sleepers.wakers.insert((self.until, number), cx.waker().clone());
        drop(sleepers);
        self.number = Some(number);
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.clock.sleepers.lock().wakers.remove(&(self.until, number));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn sleepers_wake_at_their_time_and_not_before() {
        let clock = Clock::default();
        let mut sleep = clock.until(clock.instant(Duration::from_secs(2)));
        assert_eq!((&mut sleep).now_or_never(), None);
        assert_eq!(clock.next(), Some(Duration::from_secs(2)));
        clock.set(Duration::from_secs(1));
        assert_eq!((&mut sleep).now_or_never(), None);
        clock.set(Duration::from_secs(2));
        assert_eq!((&mut sleep).now_or_never(), Some(()));
        drop(sleep);
        assert_eq!(clock.next(), None);
    }
}
