//! Board, scraping: what is known of one endpoint, from every source that is asked, and while those change.

use std::sync::Arc;

use epp_plugin_api::Observed;

use super::{ScrapeHealth, Source};

/// What is known of one endpoint.
#[derive(Debug, Default)]
pub struct State {
    slots: Vec<Slots>,
    before: Option<Before>,
    /// Of every value the newest.
    pub observed: Observed,
    pub health: ScrapeHealth,
}

/// What each extractor of a source last read.
#[derive(Debug)]
struct Slots {
    source: Arc<Source>,
    read: Vec<Observed>,
}

/// What was known when other sources took the place of some.
#[derive(Debug)]
struct Before {
    observed: Observed,
    /// Those of the new sources that have read nothing yet.
    unread: Vec<Arc<Source>>,
}

impl State {
    /// Takes up the sources that are asked from now on. What others have read counts until each new one has read
    /// something; with no new one it is gone.
    pub fn renew(&mut self, sources: &[Arc<Source>]) {
        let mut before = std::mem::take(&mut self.slots);
        let mut unread = Vec::new();
        for source in sources {
            let kept = before.iter().position(|slots| Arc::ptr_eq(&slots.source, source));
            self.slots.push(kept.map(|at| before.swap_remove(at)).unwrap_or_else(|| {
                unread.push(source.clone());
                Slots { source: source.clone(), read: vec![Observed::default(); source.extractors.len()] }
            }));
        }
        unread.retain(|source| !source.extractors.is_empty());
        let observed = std::mem::take(&mut self.observed);
        self.before = (!unread.is_empty()).then_some(Before { observed, unread });
        self.put_together();
    }

    /// What an extractor of a source last read.
    pub fn read(&self, source: &Arc<Source>, extractor: usize) -> Observed {
        let slots = self.slots.iter().find(|slots| Arc::ptr_eq(&slots.source, source));
        slots.map(|slots| slots.read[extractor].clone()).unwrap_or_default()
    }

    /// Takes what extractors of a source have read from a page. What comes of a source that is asked no more changes
    /// nothing.
    pub fn put(&mut self, source: &Arc<Source>, news: impl IntoIterator<Item = (usize, Observed)>) {
        let Some(slots) = self.slots.iter_mut().find(|slots| Arc::ptr_eq(&slots.source, source)) else { return };
        news.into_iter().for_each(|(extractor, observed)| slots.read[extractor] = observed);
        if let Some(before) = &mut self.before {
            before.unread.retain(|unread| !Arc::ptr_eq(unread, source));
        }
        self.before.take_if(|before| before.unread.is_empty());
        self.put_together();
    }

    fn put_together(&mut self) {
        let before = self.before.as_ref().map(|before| &before.observed);
        let read = self.slots.iter().flat_map(|slots| &slots.read);
        let known: Vec<&Observed> = before.into_iter().chain(read).collect();
        self.observed = if let [only] = known[..] { only.clone() } else { overlay(known) };
    }
}

/// Of every value the newest.
fn overlay(mut by_age: Vec<&Observed>) -> Observed {
    by_age.sort_by_key(|o| o.at);
    let mut all = Observed::default();
    let mut custom: Vec<(String, f64)> = Vec::new();
    for o in by_age {
        all.waiting = o.waiting.or(all.waiting);
        all.running = o.running.or(all.running);
        all.kv_usage = o.kv_usage.or(all.kv_usage);
        all.block_tokens = o.block_tokens.or(all.block_tokens);
        all.blocks = o.blocks.or(all.blocks);
        all.adapters = o.adapters.clone().or(all.adapters);
        all.at = o.at.or(all.at);
        for (key, value) in o.custom.iter() {
            match custom.iter_mut().find(|(k, _)| k == key) {
                Some((_, known)) => *known = *value,
                None => custom.push((key.clone(), *value)),
            }
        }
    }
    all.custom = custom.into();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn of_several_extractors_the_newest_value_counts() {
        let start = tokio::time::Instant::now();
        let at = |s| Some(start + Duration::from_secs(s));
        let custom = |list: &[(&str, f64)]| list.iter().map(|&(k, v)| (k.to_owned(), v)).collect();
        let old = Observed {
            waiting: Some(1.0),
            running: Some(2.0),
            custom: custom(&[("a", 1.0), ("b", 2.0)]),
            at: at(1),
            ..Default::default()
        };
        let new = Observed { waiting: Some(3.0), custom: custom(&[("b", 3.0)]), at: at(2), ..Default::default() };
        let expected = Observed {
            waiting: Some(3.0),
            running: Some(2.0),
            custom: custom(&[("a", 1.0), ("b", 3.0)]),
            at: at(2),
            ..Default::default()
        };
        assert_eq!(overlay(vec![&new, &Observed::default(), &old]), expected);
    }
}
