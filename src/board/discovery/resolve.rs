//! Board, discovery: turns host names into addresses, again and again, for Envoy takes addresses only.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::tasks::Tasks;

/// How often a name that has an address is looked up again.
const REFRESH: Duration = Duration::from_secs(30);

/// How soon a name that has none is looked up again.
const RETRY: Duration = Duration::from_secs(5);

/// How long one look-up may take.
const DEADLINE: Duration = Duration::from_secs(3);

/// As many look-ups run at once.
const AT_ONCE: usize = 64;

/// Asks for the addresses of a host name.
pub type Lookup = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync>;

/// What is known of host names: the address, or why there is none.
pub type Addresses = HashMap<String, Result<IpAddr, String>>;

/// Asks the system.
pub fn system() -> Lookup {
    Arc::new(|name| {
        Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.map(|address| address.ip()).collect()) })
    })
}

/// Looks the names up. One that has an address keeps it if that is still among the answers, or if there is no answer.
pub async fn resolve(names: BTreeSet<String>, known: &Addresses, lookup: &Lookup) -> Addresses {
    futures_util::stream::iter(names)
        .map(|name| async move {
            let before = known.get(&name).and_then(|known| known.as_ref().ok().copied());
            let found = match timeout(DEADLINE, lookup(name.clone())).await {
                Ok(Ok(found)) => choose(&found, before).ok_or_else(|| "it has no address".to_owned()),
                Ok(Err(e)) => Err(e.to_string()),
                Err(_) => Err("no answer in time".to_owned()),
            };
            let found = match (found, before) {
                (Err(error), Some(before)) => {
                    tracing::debug!(host = name, error, "host name cannot be looked up, its address stays");
                    Ok(before)
                }
                (found, _) => found,
            };
            (name, found)
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await
}

fn choose(found: &[IpAddr], before: Option<IpAddr>) -> Option<IpAddr> {
    before
        .filter(|address| found.contains(address))
        .or_else(|| found.iter().copied().find(IpAddr::is_ipv4))
        .or_else(|| found.first().copied())
}

/// Keeps the addresses of the wanted names up to date, beginning with those of `known`. Ends with the senders of
/// `wanted`.
pub fn follow(
    wanted: watch::Receiver<BTreeSet<String>>,
    known: Addresses,
    lookup: Lookup,
    tasks: &Tasks,
) -> watch::Receiver<Addresses> {
    let (tx, rx) = watch::channel(known);
    tasks.spawn("resolve", keep(wanted, tx, lookup));
    rx
}

async fn keep(mut wanted: watch::Receiver<BTreeSet<String>>, tx: watch::Sender<Addresses>, lookup: Lookup) {
    let mut refresh_at = Instant::now() + REFRESH;
    let mut retry_at = Instant::now() + RETRY;
    loop {
        let names = wanted.borrow_and_update().clone();
        let known = tx.borrow().clone();
        let now = Instant::now();
        let due = |name: &String| match known.get(name) {
            None => true,
            Some(Ok(_)) => now >= refresh_at,
            Some(Err(_)) => now >= retry_at,
        };
        let asked: BTreeSet<String> = names.iter().filter(|name| due(name)).cloned().collect();
        let mut next: Addresses =
            names.iter().filter_map(|name| Some((name.clone(), known.get(name)?.clone()))).collect();
        next.extend(resolve(asked, &known, &lookup).await);
        if next != known {
            tx.send_replace(next);
        }
        if now >= refresh_at {
            refresh_at = Instant::now() + REFRESH;
        }
        if now >= retry_at {
            retry_at = Instant::now() + RETRY;
        }
        tokio::select! {
            changed = wanted.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = sleep_until(refresh_at.min(retry_at)) => {}
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use parking_lot::Mutex;

    /// A name service whose answers a test sets; a name that it lacks cannot be looked up.
    #[derive(Clone, Default)]
    pub(crate) struct Names(Arc<Mutex<HashMap<String, Vec<IpAddr>>>>);

    impl Names {
        pub(crate) fn set(&self, name: &str, addresses: &[&str]) {
            let addresses = addresses.iter().map(|a| a.parse().unwrap()).collect();
            self.0.lock().insert(name.to_owned(), addresses);
        }

        pub(crate) fn forget(&self, name: &str) {
            self.0.lock().remove(name);
        }

        pub(crate) fn lookup(&self) -> Lookup {
            let names = self.0.clone();
            Arc::new(move |name| {
                let found = names.lock().get(&name).cloned().ok_or_else(|| io::Error::other("unknown name"));
                Box::pin(async move { found })
            })
        }
    }

    fn wanted(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|n| (*n).to_owned()).collect()
    }

    async fn one(names: &Names, known: &Addresses) -> Result<IpAddr, String> {
        resolve(wanted(&["h"]), known, &names.lookup()).await.remove("h").unwrap()
    }

    #[tokio::test]
    async fn prefers_the_known_address_then_ipv4_then_the_first() {
        let names = Names::default();
        let mut known = Addresses::new();
        for (answer, expected) in [
            (vec!["::1", "10.0.0.1", "10.0.0.2"], "10.0.0.1"),
            (vec!["::1", "10.0.0.2", "10.0.0.1"], "10.0.0.1"),
            (vec!["10.0.0.3"], "10.0.0.3"),
            (vec!["::2", "::1"], "::2"),
            (vec![], "::2"),
        ] {
            names.set("h", &answer);
            let address = one(&names, &known).await;
            assert_eq!(address, Ok(expected.parse().unwrap()), "{answer:?}");
            known.insert("h".into(), address);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_without_an_answer_has_no_address() {
        let never: Lookup = Arc::new(|_| Box::pin(std::future::pending()));
        let found = resolve(wanted(&["h"]), &Addresses::new(), &never).await;
        assert_eq!(found["h"], Err("no answer in time".to_owned()));
        assert!(one(&Names::default(), &Addresses::new()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn names_are_looked_up_when_wanted_and_again_later() {
        let names = Names::default();
        names.set("a", &["10.0.0.1"]);
        let (tx, rx) = watch::channel(wanted(&["a", "b"]));
        let tasks = Tasks::default();
        let mut addresses = follow(rx, Addresses::new(), names.lookup(), &tasks);
        addresses.changed().await.unwrap();
        let now = addresses.borrow_and_update().clone();
        assert_eq!((&now["a"], now["b"].is_err()), (&Ok("10.0.0.1".parse().unwrap()), true));
        names.set("b", &["10.0.0.2"]);
        names.forget("a");
        addresses.changed().await.unwrap();
        assert_eq!(addresses.borrow_and_update()["b"], Ok("10.0.0.2".parse().unwrap()));
        names.set("a", &["10.0.0.9"]);
        addresses.changed().await.unwrap();
        assert_eq!(addresses.borrow_and_update()["a"], Ok("10.0.0.9".parse().unwrap()));
        names.set("c", &["10.0.0.3"]);
        tx.send_replace(wanted(&["c"]));
        addresses.changed().await.unwrap();
        let now = addresses.borrow_and_update().clone();
        assert_eq!(now, Addresses::from([("c".to_owned(), Ok("10.0.0.3".parse().unwrap()))]));
        drop(tx);
        assert!(addresses.changed().await.is_err());
    }
}
