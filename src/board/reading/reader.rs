//! Board, reading pages: what one extractor makes of a page, whatever kind of extractor it is.

use epp_plugin_api::{EndpointMeta, Extraction, Observed};
use memchr::memmem;
use serde::Deserialize;
use tokio::time::Instant;

use super::series::Series;
use super::{Engines, Reading, read_page};
use crate::board::exposition::Families;
use crate::board::exposition::sample::{LabelValue, Sample};

/// One extractor, ready to read pages.
#[derive(Clone, Debug)]
pub enum Reader {
    Engines(Engines),
    Gauges { families: Families, names: Vec<(String, String)> },
    Gpus { families: Families, family: String, key: String },
    Models,
}

/// The list of models that an engine serves.
#[derive(Debug, Deserialize)]
struct Models {
    #[serde(rename = "data")]
    _data: Vec<serde::de::IgnoredAny>,
}

impl Reader {
    /// Makes an extractor ready.
    pub fn new(extraction: &Extraction) -> Self {
        match extraction {
            Extraction::Engines(spec) => Self::Engines(Engines::new(spec)),
            Extraction::Gauges(names) => {
                let families = Families::new(names.iter().map(|(family, _)| family.as_str()));
                Self::Gauges { families, names: names.clone() }
            }
            Extraction::Gpus { family, key } => {
                Self::Gpus { families: Families::new([family.as_str()]), family: family.clone(), key: key.clone() }
            }
            Extraction::Models => Self::Models,
        }
    }

    /// Reads a page of an endpoint that was fetched at `now`.
    pub fn read<'m>(&'m self, page: &[u8], meta: &EndpointMeta, previous: &Observed, now: Instant) -> Reading<'m> {
        match self {
            Self::Engines(engines) => read_page(page, engines.of(meta), previous, now),
            Self::Gauges { families, names } => {
                let mut found: Vec<Series<'_>> = names.iter().map(|_| Series::default()).collect();
                families.walk(page, |at, sample| found[at].push(sample));
                let values = names.iter().zip(found).map(|((family, key), s)| (family.as_str(), key, s.number()));
                kept(values, previous, now)
            }
            Self::Gpus { families, family, key } => {
                let value = if is_no_gauge(page, family) { None } else { busiest(page, families, meta) };
                kept([(family.as_str(), key, value)].into_iter(), previous, now)
            }
            Self::Models => {
                let missing = if serde_json::from_slice::<Models>(page).is_ok() { vec![] } else { vec!["data"] };
                Reading { observed: previous.clone(), missing, found_any: false }
            }
        }
    }
}

/// Keeps the values that were found; of the others what was known before stays.
fn kept<'m, 'k>(
    values: impl Iterator<Item = (&'m str, &'k String, Option<f64>)>,
    previous: &Observed,
    now: Instant,
) -> Reading<'m> {
    let mut custom = previous.custom.to_vec();
    let (mut missing, mut found_any) = (Vec::new(), false);
    for (family, key, value) in values {
        let Some(value) = value else {
            missing.push(family);
            continue;
        };
        found_any = true;
        match custom.iter_mut().find(|(known, _)| known == key) {
            Some((_, known)) => *known = value,
            None => custom.push((key.clone(), value)),
        }
    }
    let at = if found_any { Some(now) } else { previous.at };
    Reading { observed: Observed { custom: custom.into(), at, ..previous.clone() }, missing, found_any }
}

/// The highest share of the endpoint's own GPUs that is in use. One without a pod belongs to everybody.
fn busiest(page: &[u8], families: &Families, meta: &EndpointMeta) -> Option<f64> {
    let pod = &meta.name.name;
    let is_own = |sample: &Sample<'_>| {
        let of = sample.labels.value("pod").map(LabelValue::text).filter(|of| !of.is_empty());
        pod.is_empty() || of.is_none_or(|of| of == pod.as_str())
    };
    let mut most: Option<f64> = None;
    families.walk(page, |_, sample| {
        if sample.value.is_finite() && is_own(&sample) {
            most = Some(most.map_or(sample.value, |most| most.max(sample.value)));
        }
    });
    most.map(|percent| percent / 100.0)
}

/// Whether the page says that the family is of another type.
fn is_no_gauge(page: &[u8], family: &str) -> bool {
    let line = format!("# TYPE {family} ");
    memmem::find(page, line.as_bytes()).is_some_and(|at| {
        let rest = &page[at + line.len()..];
        let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        rest[..end].trim_ascii() != b"gauge"
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use epp_plugin_api::EndpointName;

    use super::*;

    fn read(extraction: &Extraction, page: &str, known: &[(&str, f64)]) -> (Vec<(String, f64)>, usize, bool) {
        let name = EndpointName { namespace: "default".into(), name: "x".into() };
        let meta = EndpointMeta::new(name, "127.0.0.1".into(), 1, Default::default(), 0);
        let custom: Arc<[_]> = known.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect();
        let previous = Observed { custom, ..Observed::default() };
        let reader = Reader::new(extraction);
        let reading = reader.read(page.as_bytes(), &meta, &previous, Instant::now());
        (reading.observed.custom.to_vec(), reading.missing.len(), reading.found_any)
    }

    #[test]
    fn the_busiest_own_gpu_counts() {
        let gpus = Extraction::Gpus { family: "util".into(), key: "k".into() };
        for (page, expected) in [
            ("# TYPE util gauge\nutil{gpu=\"0\"} 20\nutil{gpu=\"1\"} 70\n", Some(0.7)),
            ("util{gpu=\"0\",pod=\"x\"} 20\nutil{gpu=\"1\",pod=\"y\"} 70\n", Some(0.2)),
            ("util{gpu=\"1\",pod=\"y\"} 70\n", None),
            ("# TYPE util counter\nutil 70\n", None),
            ("util NaN\n", None),
            ("", None),
        ] {
            let (custom, missing, found) = read(&gpus, page, &[]);
            assert_eq!(custom.first().map(|(_, value)| *value), expected, "{page}");
            assert_eq!((missing, found), (usize::from(expected.is_none()), expected.is_some()));
        }
    }

    #[test]
    fn gauges_are_kept_under_their_keys() {
        let gauges = Extraction::Gauges(vec![("a".into(), "x/".into()), ("b".into(), "y/".into())]);
        let both = vec![("x/".to_owned(), 1.0), ("y/".to_owned(), 2.0)];
        assert_eq!(read(&gauges, "a 1\nb 2\n", &[]), (both.clone(), 0, true));
        assert_eq!(read(&gauges, "a 3\n", &[("x/", 1.0), ("y/", 2.0)]).0, [("x/".into(), 3.0), ("y/".into(), 2.0)]);
        assert_eq!(read(&gauges, "c 3\n", &[("x/", 1.0), ("y/", 2.0)]), (both, 2, false));
    }

    #[test]
    fn a_list_of_models_is_looked_at() {
        assert_eq!(read(&Extraction::Models, r#"{"object":"list","data":[{"id":"m"}]}"#, &[]).1, 0);
        assert_eq!(read(&Extraction::Models, "vllm:x 1\n", &[]).1, 1);
    }
}
