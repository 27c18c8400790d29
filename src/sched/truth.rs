//! Room 8: what engines say that they had in their caches, held against what was believed at the pick. So an index that
//! has gone stale, or that counts other blocks than the engine, is seen.
//!
//! Known only where response bodies are seen and the engine reports cached tokens. An engine that has reported some once
//! leaves them out when there are none, as vLLM does. A request that two endpoints work on is not looked at: its engine
//! reports blocks that it was sent as cached.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use epp_plugin_api::{EndpointId, EndpointMeta, MetricFamilies, MetricHub, MetricRegistry, Usage};
use parking_lot::{Mutex, RwLock};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::histogram::Histogram;
use serde::Serialize;

use crate::sched::record::{DecisionRecord, Served};
use crate::telemetry::families::{Histograms, histograms};

static TOKENS: &[f64] = &[0.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0];

/// So many requests make up a judgement of an index.
const MOST_RECENT: usize = 64;
/// So many of them are told.
const MOST_TOLD: usize = 16;
/// A warning is given when so large a part of the prompts was believed to be cached and was not, on average.
const WORTH_A_WARNING: f64 = 0.5;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    producer_name: Arc<str>,
    endpoint_name: String,
    namespace: String,
}

/// Every endpoint's account with every producer. One for the process: ask the hub for it.
#[derive(Debug)]
pub struct Truth {
    over: Histograms<Labels>,
    under: Histograms<Labels>,
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    accounts: HashMap<EndpointId, Vec<Arc<Account>>, foldhash::fast::RandomState>,
    /// By slot: the serial of the last endpoint that is gone.
    gone: Vec<u32>,
}

impl Default for Truth {
    fn default() -> Self {
        Self { over: histograms(TOKENS), under: histograms(TOKENS), known: RwLock::default() }
    }
}

impl MetricFamilies for Truth {
    fn register(&self, registry: &mut MetricRegistry) {
        registry.register(
            "epp_prefix_overestimate_tokens",
            "[ALPHA] Prompt tokens that the endpoint was believed to have cached and that it did not report as cached",
            self.over.clone(),
        );
        registry.register(
            "epp_prefix_underestimate_tokens",
            "[ALPHA] Prompt tokens that the endpoint reported as cached and that it was not believed to have",
            self.under.clone(),
        );
    }
}

/// One endpoint's requests as one producer saw them.
#[derive(Debug)]
struct Account {
    producer: Arc<str>,
    endpoint: Arc<EndpointMeta>,
    over: Histogram,
    under: Histogram,
    /// Whether the engine has reported cached tokens before.
    reports: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    count: u64,
    predicted: u64,
    reported: u64,
    /// Oldest first.
    recent: VecDeque<Compared>,
    warned: bool,
}

/// Tokens of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Compared {
    prompt_tokens: u64,
    cached_tokens: u64,
    predicted_cached_tokens: u64,
}

impl State {
    fn take(&mut self, compared: Compared) {
        self.count += 1;
        self.predicted += compared.predicted_cached_tokens;
        self.reported += compared.cached_tokens;
        if self.recent.len() == MOST_RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(compared);
    }

    /// Which part of the last prompts was believed to be cached and was not, on average; `None` until there are enough.
    fn bias(&self) -> Option<f64> {
        let parts = self
            .recent
            .iter()
            .map(|c| (c.predicted_cached_tokens as f64 - c.cached_tokens as f64) / c.prompt_tokens.max(1) as f64);
        (self.recent.len() == MOST_RECENT).then(|| parts.sum::<f64>() / MOST_RECENT as f64)
    }
}

impl Account {
    fn compare(&self, predicted: u64, usage: &Usage) -> Option<Served> {
        let cached_tokens = match usage.cached {
            Some(cached) => {
                self.reports.store(true, Relaxed);
                cached
            }
            None if self.reports.load(Relaxed) => 0,
            None => return None,
        };
        // Some APIs count only what is not cached as the prompt.
        let prompt_tokens = usage.prompt?.max(cached_tokens);
        let compared = Compared { prompt_tokens, cached_tokens, predicted_cached_tokens: predicted.min(prompt_tokens) };
        self.over.observe(compared.predicted_cached_tokens.saturating_sub(cached_tokens) as f64);
        self.under.observe(cached_tokens.saturating_sub(compared.predicted_cached_tokens) as f64);
        let mut state = self.state.lock();
        state.take(compared);
        if !state.warned && state.bias().is_some_and(|bias| bias > WORTH_A_WARNING) {
            state.warned = true;
            tracing::warn!(
                producer = &*self.producer,
                endpoint = self.endpoint.host_port,
                "the engine has far less of its prompts cached than is believed: compare block size, model name, \
                 tokenizer, chat template and hash seed, and whether lost KV events are replayed"
            );
        }
        let predicted_cached_tokens = Some(compared.predicted_cached_tokens);
        Some(Served { prompt_tokens, cached_tokens, predicted_cached_tokens })
    }
}

/// What one producer believes of the endpoint that a request goes to.
#[derive(Clone, Debug)]
pub struct Prediction {
    account: Arc<Account>,
    tokens: u64,
}

/// What is to be held against the response of one request.
#[derive(Clone, Debug, Default)]
pub struct Expected(pub Vec<Prediction>);

impl Expected {
    /// The response is complete: compares, and tells the record.
    pub fn ended(&self, usage: &Usage, record: &DecisionRecord) {
        let mut served = None;
        for prediction in &self.0 {
            let compared = prediction.account.compare(prediction.tokens, usage);
            served = served.or(compared);
        }
        let reported = usage.prompt.zip(usage.cached);
        let plain = reported.map(|(prompt_tokens, cached_tokens)| Served {
            prompt_tokens,
            cached_tokens,
            predicted_cached_tokens: None,
        });
        if let Some(served) = served.or(plain) {
            record.served(served);
        }
    }
}

impl Truth {
    /// Puts the families on the page of the hub.
    pub fn of(hub: &MetricHub) -> Arc<Self> {
        hub.families()
    }

    /// The producer believes that the endpoint has so many tokens of a prompt.
    pub fn predict(&self, producer: &Arc<str>, id: EndpointId, meta: &Arc<EndpointMeta>, tokens: u64) -> Prediction {
        let find = |known: &Known| known.accounts.get(&id)?.iter().find(|a| a.producer == *producer).cloned();
        if let Some(account) = find(&self.known.read()) {
            return Prediction { account, tokens };
        }
        let mut known = self.known.write();
        if let Some(account) = find(&known) {
            return Prediction { account, tokens };
        }
        // An endpoint that is gone gets no series any more.
        let is_gone = known.gone.get(id.slot()).is_some_and(|&gone| id.serial() <= gone);
        let labels = labels(producer, meta);
        let (over, under) = if is_gone {
            (Histogram::new(TOKENS.iter().copied()), Histogram::new(TOKENS.iter().copied()))
        } else {
            (self.over.get_or_create_owned(&labels), self.under.get_or_create_owned(&labels))
        };
        let account = Arc::new(Account {
            producer: producer.clone(),
            endpoint: meta.clone(),
            over,
            under,
            reports: AtomicBool::new(false),
            state: Mutex::default(),
        });
        if !is_gone {
            known.accounts.entry(id).or_default().push(account.clone());
        }
        Prediction { account, tokens }
    }

    /// Forgets an endpoint that is gone for good, and takes its series off the page unless another one has its name.
    pub fn forget(&self, id: EndpointId) {
        let mut known = self.known.write();
        if known.gone.len() <= id.slot() {
            known.gone.resize(id.slot() + 1, 0);
        }
        known.gone[id.slot()] = known.gone[id.slot()].max(id.serial());
        for account in known.accounts.remove(&id).unwrap_or_default() {
            let labels = labels(&account.producer, &account.endpoint);
            let twin = |a: &Arc<Account>| a.producer == account.producer && a.endpoint.name == account.endpoint.name;
            if !known.accounts.values().flatten().any(twin) {
                self.over.remove(&labels);
                self.under.remove(&labels);
            }
        }
    }

    /// Every account with what it came to, for a page.
    pub fn report(&self) -> Vec<AccountReport> {
        let known = self.known.read();
        let told = known.accounts.values().flatten().filter_map(|account| account.report());
        let mut told: Vec<_> = told.collect();
        told.sort_by(|a, b| (&a.endpoint, &a.producer).cmp(&(&b.endpoint, &b.producer)));
        told
    }
}

/// What is told of one endpoint and one producer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AccountReport {
    endpoint: String,
    producer: Arc<str>,
    /// Requests that were compared.
    count: u64,
    mean_predicted_tokens: f64,
    mean_reported_tokens: f64,
    /// Above 0: less was cached than was believed.
    mean_difference_tokens: f64,
    /// The last requests, newest first.
    last: Vec<Compared>,
}

impl Account {
    fn report(&self) -> Option<AccountReport> {
        let state = self.state.lock();
        let mean = |sum: u64| sum as f64 / state.count as f64;
        let (predicted, reported) = (mean(state.predicted), mean(state.reported));
        (state.count > 0).then(|| AccountReport {
            endpoint: self.endpoint.host_port.clone(),
            producer: self.producer.clone(),
            count: state.count,
            mean_predicted_tokens: predicted,
            mean_reported_tokens: reported,
            mean_difference_tokens: predicted - reported,
            last: state.recent.iter().rev().take(MOST_TOLD).copied().collect(),
        })
    }
}

fn labels(producer: &Arc<str>, meta: &EndpointMeta) -> Labels {
    let name = meta.name.clone();
    Labels { producer_name: producer.clone(), endpoint_name: name.name, namespace: name.namespace }
}

#[cfg(test)]
mod tests {
    use epp_plugin_api::EndpointName;

    use super::*;
    use crate::telemetry::exposition::{Format, page};

    fn endpoint(name: &str) -> Arc<EndpointMeta> {
        let name = EndpointName { namespace: "default".into(), name: name.into() };
        Arc::new(EndpointMeta::new(name, "10.0.0.1".into(), 8000, Default::default(), 0))
    }

    fn usage(prompt: u64, cached: Option<u64>) -> Usage {
        Usage { prompt: Some(prompt), cached, ..Usage::default() }
    }

    const ID: fn(u32) -> EndpointId = |serial| EndpointId::new(0, serial);

    #[test]
    fn what_is_reported_is_held_against_what_was_believed() {
        let (hub, producer) = (MetricHub::default(), Arc::from("p"));
        let truth = Truth::of(&hub);
        let predict = |tokens| truth.predict(&producer, ID(1), &endpoint("a"), tokens).account;
        for (predicted, prompt, cached, expected) in [
            (640, 1000, None, None),
            (640, 1000, Some(600), Some((600, 640))),
            (64, 50, Some(0), Some((0, 50))),
            (0, 1000, Some(100), Some((100, 0))),
            // An engine that has told once leaves out a zero.
            (100, 1000, None, Some((0, 100))),
            // The prompt is told without its cached part.
            (0, 10, Some(900), Some((900, 0))),
        ] {
            let got = predict(predicted).compare(predicted, &usage(prompt, cached));
            assert_eq!(got.map(|s| (s.cached_tokens, s.predicted_cached_tokens.unwrap())), expected);
        }
        let report = truth.report();
        assert_eq!((report.len(), report[0].count, report[0].last.len()), (1, 5, 5));
        assert_eq!((report[0].mean_predicted_tokens, report[0].mean_reported_tokens), (158.0, 320.0));
        let page = page(&hub, Format::Text).expect("no collector");
        let labels = "{producer_name=\"p\",endpoint_name=\"a\",namespace=\"default\"}";
        assert!(page.contains(&format!("epp_prefix_overestimate_tokens_sum{labels} 190.0\n")), "{page}");
        assert!(page.contains(&format!("epp_prefix_underestimate_tokens_sum{labels} 1000.0\n")), "{page}");
    }

    #[test]
    fn a_sustained_bias_is_found_once_there_are_enough_requests() {
        let mut state = State::default();
        let wrong = Compared { prompt_tokens: 100, cached_tokens: 10, predicted_cached_tokens: 90 };
        let right = Compared { cached_tokens: 90, ..wrong };
        (0..MOST_RECENT - 1).for_each(|_| state.take(wrong));
        assert_eq!(state.bias(), None);
        state.take(wrong);
        assert!(state.bias().is_some_and(|bias| (bias - 0.8).abs() < 1e-9));
        (0..MOST_RECENT / 2).for_each(|_| state.take(right));
        assert!(state.bias().is_some_and(|bias| bias < WORTH_A_WARNING), "a bias that is over is forgotten");
        assert_eq!(state.recent.len(), MOST_RECENT);
    }

    #[test]
    fn series_of_an_endpoint_that_is_gone_vanish_and_do_not_come_back() {
        let (hub, producer) = (MetricHub::default(), Arc::from("p"));
        let truth = Truth::of(&hub);
        let compare = |serial| {
            let prediction = truth.predict(&producer, ID(serial), &endpoint("a"), 1);
            prediction.account.compare(1, &usage(10, Some(1)));
        };
        let n_series = || page(&hub, Format::Text).expect("no collector").matches("overestimate_tokens_count").count();
        compare(1);
        compare(2);
        truth.forget(ID(1));
        assert_eq!(n_series(), 1, "its successor has the same name");
        truth.forget(ID(2));
        compare(1);
        compare(2);
        assert_eq!((n_series(), truth.report().len()), (0, 0));
    }
}
