//! What is in flight on each endpoint: raised at a pick, lowered when the charge is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use parking_lot::RwLock;

use crate::EndpointId;

#[derive(Debug, Default)]
struct Account {
    serial: u32,
    requests: AtomicI64,
    tokens: AtomicI64,
}

/// Counts requests and tokens in flight by endpoint. An endpoint that left and came back starts at zero, and a charge
/// from before it left no longer counts.
#[derive(Debug, Default)]
pub struct Ledger(RwLock<Vec<Arc<Account>>>);

impl Ledger {
    /// Counts one more request of `tokens` tokens on the endpoint until the charge is dropped.
    pub fn charge(&self, id: EndpointId, tokens: i64) -> Charge {
        let account = self.account(id);
        account.requests.fetch_add(1, Relaxed);
        account.tokens.fetch_add(tokens, Relaxed);
        Charge { account, requests: 1, tokens }
    }

    fn account(&self, id: EndpointId) -> Arc<Account> {
        if let Some(known) = self.0.read().get(id.slot()).filter(|a| a.serial == id.serial()) {
            return known.clone();
        }
        let mut accounts = self.0.write();
        if accounts.len() <= id.slot() {
            accounts.resize_with(id.slot() + 1, Arc::default);
        }
        let account = &mut accounts[id.slot()];
        if account.serial != id.serial() {
            *account = Arc::new(Account { serial: id.serial(), ..Account::default() });
        }
        account.clone()
    }

    /// Requests and tokens in flight on the endpoint.
    pub fn of(&self, id: EndpointId) -> (i64, i64) {
        let accounts = self.0.read();
        accounts
            .get(id.slot())
            .filter(|a| a.serial == id.serial())
            .map_or((0, 0), |a| (a.requests.load(Relaxed), a.tokens.load(Relaxed)))
    }

    /// Calls `each` with the place in `ids`, the requests and the tokens in flight of every endpoint of `ids`.
    pub fn of_all(&self, ids: &[EndpointId], mut each: impl FnMut(usize, i64, i64)) {
        let accounts = self.0.read();
        for (i, id) in ids.iter().enumerate() {
            if let Some(a) = accounts.get(id.slot()).filter(|a| a.serial == id.serial()) {
                each(i, a.requests.load(Relaxed), a.tokens.load(Relaxed));
            }
        }
    }
}

/// One request's share of an endpoint's count; given back when dropped, exactly once.
#[derive(Debug)]
pub struct Charge {
    account: Arc<Account>,
    requests: i64,
    tokens: i64,
}

impl Charge {
    /// Gives the tokens back and goes on counting as a request; returns how many there were.
    pub fn release_tokens(&mut self) -> i64 {
        self.account.tokens.fetch_sub(self.tokens, Relaxed);
        std::mem::take(&mut self.tokens)
    }

    /// The tokens that are still counted.
    pub fn tokens(&self) -> i64 {
        self.tokens
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.requests.fetch_sub(self.requests, Relaxed);
        self.account.tokens.fetch_sub(self.tokens, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_charge_is_given_back_once() {
        let (ledger, id) = (Ledger::default(), EndpointId::new(3, 1));
        let mut a = ledger.charge(id, 10);
        let b = ledger.charge(id, 5);
        assert_eq!(ledger.of(id), (2, 15));
        assert_eq!(a.release_tokens(), 10);
        assert_eq!(a.release_tokens(), 0);
        assert_eq!(ledger.of(id), (2, 5));
        drop(a);
        drop(b);
        assert_eq!(ledger.of(id), (0, 0));
    }

    #[test]
    fn an_endpoint_that_came_back_is_not_lowered_by_an_old_request() {
        let ledger = Ledger::default();
        let (old, new) = (EndpointId::new(0, 1), EndpointId::new(0, 2));
        let before = ledger.charge(old, 7);
        assert_eq!(ledger.of(new), (0, 0));
        let after = ledger.charge(new, 1);
        drop(before);
        assert_eq!(ledger.of(new), (1, 1));
        drop(after);
        assert_eq!((ledger.of(new), ledger.of(old)), ((0, 0), (0, 0)));
    }
}
