//! Board, reading engines: from a page of metrics text to what the engine says of itself, by the names of its kind.

#[cfg(test)]
mod oracle;
pub mod reader;
mod series;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use epp_plugin_api::{Adapters, EndpointMeta, EngineMapping, ExtractorSpec, Observed, Selector};
use tokio::time::Instant;

use self::series::Series;
use super::exposition::Families;
use super::exposition::sample::{LabelValue, Labels};

/// More adapters than any engine shows; the rest is left out.
const MOST_ADAPTERS: usize = 4096;

/// Every kind of engine of one extractor, ready to read pages.
#[derive(Clone, Debug)]
pub struct Engines {
    label: String,
    known: Vec<CompiledMapping>,
    default: CompiledMapping,
}

impl Engines {
    /// Makes the mappings ready. A default engine that is not among them reads nothing.
    pub fn new(spec: &ExtractorSpec) -> Self {
        let known: Vec<_> = spec.engines.iter().map(CompiledMapping::new).collect();
        let default = known.iter().find(|m| m.name == spec.default_engine).cloned().unwrap_or_default();
        Self { label: spec.engine_label.clone(), known, default }
    }

    /// The mapping for an endpoint: the one that its engine label names, else the default.
    pub fn of(&self, endpoint: &EndpointMeta) -> &CompiledMapping {
        let named = |label: &str| endpoint.label(label).filter(|v| !v.is_empty());
        let engine = named(&self.label).or_else(|| named(ExtractorSpec::LEGACY_ENGINE_LABEL));
        engine.and_then(|name| self.known.iter().find(|m| m.name == name)).unwrap_or(&self.default)
    }
}

/// The names of one kind of engine, ready to read pages.
#[derive(Clone, Debug, Default)]
pub struct CompiledMapping {
    name: String,
    families: Families,
    /// By family: the places in `wants` that read it.
    readers: Vec<Vec<usize>>,
    wants: Vec<Want>,
    block_size_label: String,
    num_blocks_label: String,
}

#[derive(Clone, Debug)]
struct Want {
    field: Field,
    selector: Selector,
}

#[derive(Clone, Debug)]
enum Field {
    Waiting,
    Running,
    KvUsage,
    KvUsageFallback,
    Adapters,
    CacheInfo,
    BlockTokens,
    Blocks,
    Custom(String),
}

impl CompiledMapping {
    /// Makes a mapping ready.
    pub fn new(mapping: &EngineMapping) -> Self {
        let builtin = [
            (Field::Waiting, &mapping.queued),
            (Field::Running, &mapping.running),
            // Read first, so that the right name has the last word.
            (Field::KvUsageFallback, &mapping.kv_usage_fallback),
            (Field::KvUsage, &mapping.kv_usage),
            (Field::Adapters, &mapping.lora),
            (Field::CacheInfo, &mapping.cache_info),
            (Field::BlockTokens, &mapping.cache_block_size),
            (Field::Blocks, &mapping.cache_num_blocks),
        ];
        let builtin = builtin.into_iter().filter_map(|(field, s)| Some(Want { field, selector: s.clone()? }));
        let custom = mapping.custom.iter().map(|c| (Field::Custom(c.attribute_key.clone()), c.metric.clone()));
        let wants: Vec<Want> = builtin.chain(custom.map(|(field, selector)| Want { field, selector })).collect();

        let (mut names, mut readers) = (Vec::<&str>::new(), Vec::<Vec<usize>>::new());
        for (i, want) in wants.iter().enumerate() {
            match names.iter().position(|n| *n == want.selector.family) {
                Some(at) => readers[at].push(i),
                None => {
                    names.push(&want.selector.family);
                    readers.push(vec![i]);
                }
            }
        }
        Self {
            name: mapping.name.clone(),
            families: Families::new(names),
            readers,
            wants,
            block_size_label: mapping.cache_block_size_label.clone(),
            num_blocks_label: mapping.cache_num_blocks_label.clone(),
        }
    }
}

/// What came of a page.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading<'m> {
    /// What the engine now says; if it said nothing, what it said before.
    pub observed: Observed,
    /// Families that should be on the page and say nothing there.
    pub missing: Vec<&'m str>,
    /// Whether the page said anything.
    pub found_any: bool,
}

/// Reads a page that was fetched at `now`. A value that the page does not show becomes unknown, but a page that shows
/// nothing at all leaves `previous` as it is. Adapters may be missing; every other family of the mapping should be
/// there, with a number that makes sense.
pub fn read_page<'m>(page: &[u8], mapping: &'m CompiledMapping, previous: &Observed, now: Instant) -> Reading<'m> {
    let mut found: Vec<Series<'_>> = mapping.wants.iter().map(|_| Series::default()).collect();
    mapping.families.walk(page, |family, sample| {
        for &i in &mapping.readers[family] {
            if sample.labels.have(&mapping.wants[i].selector.labels) {
                found[i].push(sample);
            }
        }
    });

    let (mut observed, mut custom) = (Observed::default(), Vec::new());
    let (mut missing, mut found_any) = (Vec::new(), false);
    for (want, series) in mapping.wants.iter().zip(found) {
        let says = match &want.field {
            Field::Waiting => set(&mut observed.waiting, series.count()),
            Field::Running => set(&mut observed.running, series.count()),
            Field::KvUsageFallback => set(&mut observed.kv_usage, series.ratio()),
            Field::KvUsage => set(&mut observed.kv_usage, series.ratio()) || observed.kv_usage.is_some(),
            Field::Adapters => set(&mut observed.adapters, series.largest().map(|l| adapters(l, previous))),
            Field::BlockTokens => set(&mut observed.block_tokens, series.number().and_then(size)),
            Field::Blocks => set(&mut observed.blocks, series.number().and_then(size)),
            Field::CacheInfo => match series.newest() {
                Some(labels) => {
                    // A text such as `None` stands for a size that the engine does not know yet; that is no fault.
                    let size = |label: &str| labels.value(label).and_then(whole).filter(|&n| n > 0);
                    let tokens = set(&mut observed.block_tokens, size(&mapping.block_size_label));
                    found_any |= tokens | set(&mut observed.blocks, size(&mapping.num_blocks_label));
                    continue;
                }
                None => false,
            },
            Field::Custom(key) => {
                let value = series.number();
                custom.extend(value.map(|v| (key.clone(), v)));
                value.is_some()
            }
        };
        found_any |= says;
        if !says && !matches!(want.field, Field::Adapters | Field::KvUsageFallback) {
            missing.push(want.selector.family.as_str());
        }
    }
    if !found_any {
        return Reading { observed: previous.clone(), missing, found_any };
    }
    observed.custom = if *custom == *previous.custom { previous.custom.clone() } else { custom.into() };
    observed.at = Some(now);
    Reading { observed, missing, found_any }
}

/// Takes the value up unless there is none; whether there was one.
fn set<T>(to: &mut Option<T>, value: Option<T>) -> bool {
    let says = value.is_some();
    if says {
        *to = value;
    }
    says
}

fn size(number: f64) -> Option<u32> {
    (1.0..=f64::from(u32::MAX)).contains(&number).then_some(number as u32)
}

fn whole(value: LabelValue<'_>) -> Option<u32> {
    value.text().trim().parse().ok()
}

fn adapters(labels: Labels<'_>, previous: &Observed) -> Arc<Adapters> {
    let names = |label: &str| {
        let list = labels.value(label).map(LabelValue::text).unwrap_or_default();
        let names = list.split(',').map(str::trim).filter(|n| !n.is_empty());
        names.take(MOST_ADAPTERS).map(str::to_owned).collect()
    };
    let most = labels.value("max_lora").and_then(whole).unwrap_or(0);
    let now = Adapters { running: names("running_lora_adapters"), waiting: names("waiting_lora_adapters"), most };
    match &previous.adapters {
        Some(before) if **before == now => before.clone(),
        _ => Arc::new(now),
    }
}
