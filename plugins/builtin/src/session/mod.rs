//! Session affinity: which endpoint a request's session belongs to, what is remembered of a pick, and the parameters that
//! the filter and the scorer share.

mod bindings;
pub mod config;
mod token;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use epp_plugin_api::{
    Attribute, BuildContext, BuildError, Candidates, Columns, Cycle, EndpointIdx, Held, InferenceRequest, Picked,
    Producer, RequestKey,
};

use crate::attributes::SessionId;
use bindings::{Bindings, SessionKey};
use config::{Config, Source, Strategy};
use token::WritesToken;

/// One instance's view of sessions.
pub struct Sessions {
    by: By,
    /// The profile whose pick counts; empty: the primary one.
    profile: String,
}

enum By {
    /// The client carries the endpoint's name in this header.
    Token {
        header: String,
    },
    Id(ById),
}

struct ById {
    sources: Vec<IdSource>,
    bindings: Bindings,
    seen: RequestKey<Seen>,
}

enum IdSource {
    Header(String),
    Attribute(RequestKey<SessionId>),
    /// A value that no plugin gives.
    Nothing,
}

/// Whether the bound endpoint was a candidate when this request was last judged.
#[derive(Debug, Default)]
struct Seen(AtomicU8);

const NOT_BOUND: u8 = 0;
const PRESENT: u8 = 1;
const ABSENT: u8 = 2;

impl Clone for Seen {
    fn clone(&self) -> Self {
        Self(AtomicU8::new(self.0.load(Relaxed)))
    }
}

impl Attribute for Seen {
    const NAME: &'static str = "SessionBindingSeen";
    const DEFAULT_PRODUCER: Option<&'static str> = None;
}

impl Sessions {
    /// Builds it from an instance's parameters.
    ///
    /// # Errors
    /// If they are not what is expected.
    pub fn build(cx: &mut BuildContext<'_>) -> Result<Arc<Self>, BuildError> {
        let cfg: Config = cx.config()?;
        let profile = cfg.profile_name.clone();
        let by = match cfg.strategy {
            Strategy::EncodedEndpointHeader => By::Token { header: cfg.encoded_endpoint_header_config.header() },
            Strategy::SessionId => {
                let ids = cfg.session_id_config.checked()?;
                let sources = ids.sources.into_iter().map(|source| IdSource::new(source, cx)).collect();
                By::Id(ById { sources, bindings: Bindings::new(ids.ttl, ids.sweep), seen: cx.writes_request() })
            }
        };
        Ok(Arc::new(Self { by, profile }))
    }

    /// The candidate that the request's session belongs to.
    pub fn chosen(&self, cx: &Cycle<'_>, columns: &Columns, among: &Candidates) -> Option<EndpointIdx> {
        match &self.by {
            By::Token { header } => {
                let name = token::decode(cx.request.headers.find(header)?)?;
                among.iter().find(|idx| token::names(&name, &cx.snapshot.meta(*idx).name))
            }
            By::Id(ids) => {
                let key = ids.key(cx.request, columns)?;
                let bound = ids.bindings.find(key, cx.now)?;
                let here = cx.snapshot.find(bound.id).filter(|idx| among.contains(*idx));
                let chosen = here.or_else(|| among.iter().find(|idx| cx.snapshot.meta(*idx).name == bound.meta.name));
                if let Some(seen) = columns.read_request(ids.seen) {
                    seen.0.store(if chosen.is_some() { PRESENT } else { ABSENT }, Relaxed);
                }
                chosen
            }
        }
    }

    /// The endpoint whose pick is remembered.
    fn remembered(&self, picked: &Picked<'_>) -> Option<EndpointIdx> {
        match self.profile.as_str() {
            "" => picked.target(),
            profile => picked.firsts().find(|(name, _)| *name == profile).map(|(_, idx)| idx),
        }
    }
}

impl IdSource {
    fn new(source: Source, cx: &mut BuildContext<'_>) -> Self {
        match source {
            Source::Header(header) => {
                cx.reads_header(&header);
                Self::Header(header)
            }
            Source::Attribute { attribute, producer } if attribute == SessionId::NAME && !producer.is_empty() => {
                Self::Attribute(cx.reads_request_if_there(&producer))
            }
            Source::Attribute { .. } => Self::Nothing,
        }
    }
}

impl ById {
    /// What stands for the session of this request.
    fn key(&self, request: &InferenceRequest, columns: &Columns) -> Option<SessionKey> {
        let mut ids = self.sources.iter().filter_map(|source| match source {
            IdSource::Header(header) => request.headers.find(header).map(str::trim),
            IdSource::Attribute(key) => columns.read_request(*key).map(|id| id.0.trim()),
            IdSource::Nothing => None,
        });
        ids.find(|id| !id.is_empty()).map(SessionKey::of)
    }
}

impl Producer for Sessions {
    fn refresh(&self, _cx: &Cycle<'_>, columns: &mut Columns) {
        if let By::Id(ids) = &self.by {
            *columns.write_request(ids.seen).0.get_mut() = NOT_BOUND;
        }
    }

    fn picked(&self, cx: &Cycle<'_>, columns: &Columns, picked: &Picked<'_>) -> Option<Box<dyn Held>> {
        let idx = self.remembered(picked)?;
        match &self.by {
            By::Token { header } => {
                let others = if self.profile.is_empty() { picked.runs.runs[picked.primary].targets() } else { None };
                let targets = others.filter(|targets| targets.len() > 1).unwrap_or_default();
                let meta = |idx: EndpointIdx| cx.snapshot.meta(idx).clone();
                let others = targets.iter().map(|idx| meta(*idx)).collect();
                Some(Box::new(WritesToken { header: header.clone(), target: meta(idx), others }))
            }
            By::Id(ids) => {
                let key = ids.key(cx.request, columns)?;
                let was_absent = columns.read_request(ids.seen).is_some_and(|seen| seen.0.load(Relaxed) == ABSENT);
                ids.bindings.picked(key, cx.snapshot.id(idx), cx.snapshot.meta(idx), was_absent, cx.now);
                None
            }
        }
    }
}
