//! What a producer of encoder matches shows of itself: media that were asked for, and which endpoints had them.

use std::sync::Arc;

use epp_plugin_api::{EndpointId, MetricFamilies, MetricHub, MetricRegistry};
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::ratios::Ratios;

/// What kind of medium an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Modality {
    Image,
    Video,
    Audio,
    /// Known by its hash alone.
    Unknown,
}

impl Modality {
    /// Every modality.
    pub const ALL: [Self; 4] = [Self::Image, Self::Video, Self::Audio, Self::Unknown];

    fn label(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Video => "video",
            Self::Audio => "audio",
            Self::Unknown => "unknown",
        }
    }
}

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct PluginLabels {
    plugin_type: &'static str,
    plugin_name: String,
}

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct QueryLabels {
    plugin_type: &'static str,
    plugin_name: String,
    modality: &'static str,
}

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct HitLabels {
    plugin_type: &'static str,
    plugin_name: String,
    modality: &'static str,
    pod: String,
}

#[derive(Default)]
struct Families {
    queries: Family<QueryLabels, Counter>,
    hits: Family<HitLabels, Counter>,
    hit_ratio: Family<PluginLabels, Ratios>,
}

impl MetricFamilies for Families {
    fn register(&self, registry: &mut MetricRegistry) {
        let name = |what| format!("llm_d_epp_encoder_cache_{what}");
        registry.register(name("queries"), "Images, videos and sounds of requests", self.queries.clone());
        registry.register(
            name("hits"),
            "Images, videos and sounds of requests that an endpoint was believed to have encoded before",
            self.hits.clone(),
        );
        registry.register(
            name("hit_ratio"),
            "Share of a request's images, videos and sounds that an endpoint was believed to have encoded before",
            self.hit_ratio.clone(),
        );
    }
}

/// The metrics of one instance.
pub struct EncoderMetrics {
    families: Arc<Families>,
    plugin: PluginLabels,
    queries: [Counter; Modality::ALL.len()],
    hit_ratio: Ratios,
    /// By slot: the endpoint there that has series.
    pods: Mutex<Vec<Option<Pod>>>,
}

/// The series of one endpoint.
struct Pod {
    id: EndpointId,
    name: String,
    /// By modality; `None` until there is a hit.
    hits: [Option<Counter>; Modality::ALL.len()],
}

/// What an endpoint is believed to have of a request.
#[derive(Clone, Copy, Debug)]
pub struct Hits<'a> {
    pub id: EndpointId,
    pub pod: &'a str,
    /// Items by modality.
    pub items: [u32; Modality::ALL.len()],
    /// Which share of all the request's items these are.
    pub share: f64,
}

impl EncoderMetrics {
    /// Finds the instance's own series.
    pub fn new(hub: &MetricHub, name: &str, plugin_type: &'static str) -> Self {
        let families = hub.families::<Families>();
        let plugin = PluginLabels { plugin_type, plugin_name: name.to_owned() };
        let queries = Modality::ALL.map(|modality| {
            let labels = QueryLabels { plugin_type, plugin_name: name.to_owned(), modality: modality.label() };
            families.queries.get_or_create_owned(&labels)
        });
        let hit_ratio = families.hit_ratio.get_or_create_owned(&plugin);
        Self { families, plugin, queries, hit_ratio, pods: Mutex::default() }
    }

    /// A request has an item of this modality.
    pub fn asked(&self, modality: Modality) {
        self.queries[modality as usize].inc();
    }

    /// Of so many endpoints these have something of one request.
    pub fn known<'a>(&self, n_endpoints: usize, hits: impl Iterator<Item = Hits<'a>>) {
        let (mut pods, mut n_hits) = (self.pods.lock(), 0);
        // Neighbours mostly have the same share.
        let (mut share, mut times) = (0.0, 0);
        for hit in hits {
            n_hits += 1;
            if hit.share != share {
                self.hit_ratio.observe(share, std::mem::take(&mut times));
                share = hit.share;
            }
            times += 1;
            self.count(&mut pods, &hit);
        }
        self.hit_ratio.observe(share, times);
        self.hit_ratio.observe(0.0, n_endpoints.saturating_sub(n_hits) as u64);
    }

    fn count(&self, pods: &mut Vec<Option<Pod>>, Hits { id, pod, items, .. }: &Hits<'_>) {
        if pods.len() <= id.slot() {
            pods.resize_with(id.slot() + 1, || None);
        }
        if pods[id.slot()].as_ref().is_some_and(|known| known.id != *id) {
            self.clear(pods, id.slot());
        }
        let new = || Pod { id: *id, name: (*pod).to_owned(), hits: Default::default() };
        let known = pods[id.slot()].get_or_insert_with(new);
        for modality in Modality::ALL.into_iter().filter(|m| items[*m as usize] > 0) {
            let create = || self.families.hits.get_or_create_owned(&self.hit_labels(modality, pod));
            known.hits[modality as usize].get_or_insert_with(create).inc_by(items[modality as usize].into());
        }
    }

    fn hit_labels(&self, modality: Modality, pod: &str) -> HitLabels {
        let PluginLabels { plugin_type, plugin_name } = self.plugin.clone();
        HitLabels { plugin_type, plugin_name, modality: modality.label(), pod: pod.to_owned() }
    }

    /// The endpoint is gone for good: its series go, too.
    pub fn forget(&self, id: EndpointId) {
        let mut pods = self.pods.lock();
        if pods.get(id.slot()).and_then(Option::as_ref).is_some_and(|known| known.id == id) {
            self.clear(&mut pods, id.slot());
        }
    }

    fn clear(&self, pods: &mut [Option<Pod>], slot: usize) {
        let Some(gone) = pods[slot].take() else { return };
        for modality in Modality::ALL {
            self.families.hits.remove(&self.hit_labels(modality, &gone.name));
        }
        // Another one of the same name has its series made anew.
        for pod in pods {
            pod.take_if(|pod| pod.name == gone.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rig;

    #[test]
    fn hits_of_who_took_over_a_name_count() {
        let rig = Rig::default();
        let metrics = EncoderMetrics::new(&rig.metrics, "m", "t");
        let (old, new) = (EndpointId::new(0, 1), EndpointId::new(1, 2));
        let hit = |id| metrics.known(1, [Hits { id, pod: "e0", items: [1, 0, 0, 0], share: 1.0 }].into_iter());
        let series = r#"hits_total{plugin_type="t",plugin_name="m",modality="image",pod="e0"}"#;
        hit(old);
        hit(new);
        assert!(rig.page().contains(&format!("{series} 2\n")), "{}", rig.page());
        metrics.forget(old);
        hit(new);
        assert!(rig.page().contains(&format!("{series} 1\n")), "{}", rig.page());
    }
}
