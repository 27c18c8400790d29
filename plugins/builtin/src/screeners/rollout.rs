//! `disaggregatedset-rollout-screener`: keeps the stages of a request within one revision while a set is rolled out.
//!
//! With gating, only revisions that have an endpoint of every required role are served, and each request is given to
//! one of them by its share of the endpoints: of all required roles (`sum`), or of the role that has the most
//! (`max-role`). A header of a `strict` selector takes the place of that draw: only endpoints whose label equals it are
//! kept. The answer carries, under the header of every selector, the label of the endpoint that served. Endpoints count
//! that the scope's selector matches and that have both labels. Reads no column. Costs one pass over the rows; labels
//! are counted when the membership changes.
//!
//! ```yaml
//! - type: disaggregatedset-rollout-screener
//!   parameters:
//!     scope: {labelSelector: app=x}
//!     headerSelectors:
//!     - {name: revision, headerName: x-revision, labelKey: disaggregatedset.x-k8s.io/revision, mode: strict}   # or prefer
//!     revisionGating:
//!       mode: max-role                                           # sum or disabled
//!       requireRoles: {values: [prefill, decode]}
//!       revisionLabelKey: disaggregatedset.x-k8s.io/revision
//!       roleLabelKey: disaggregatedset.x-k8s.io/role
//! ```

mod config;
mod series;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, Columns, Cycle, EndpointIdx, EndpointMeta, HeaderEdits, Held, Hooks,
    Instance, Kind, Picked, PluginType, Screener, Served, Snapshot, Stability,
};
use parking_lot::RwLock;

use self::config::{Gate, HeaderSelector};
use self::series::Series;
use super::shares::{self, Counts};
use crate::filters::label_selector::Term;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "disaggregatedset-rollout-screener",
    kinds: &[Kind::Screener],
    stability: Stability::Alpha,
    replaced_by: None,
    reported: "disaggregatedset-rollout-screener",
    summary: "Keeps the stages of a request within one revision while a set is rolled out.",
    schema: Some(crate::schema::of::<config::Config>),
    build,
};

/// Steps of this size fill the range from 0 to 1 evenly, however many are taken.
const GOLDEN: f64 = 0.618_033_988_749_894_9;

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let (scope, selectors, gate) = config::read(cx)?;
    let series = Series::new(cx.metrics, cx.name, &selectors);
    let rollout = Rollout { scope, selectors, gate, known: RwLock::default(), draws: AtomicU64::new(0), series };
    let rollout = Arc::new(rollout);
    Ok(Instance { screener: Some(rollout.clone()), hooks: Some(rollout), ..Instance::default() })
}

struct Rollout {
    scope: Vec<Term>,
    selectors: Vec<HeaderSelector>,
    /// `None`: every revision is served.
    gate: Option<Gate>,
    /// What follows from one membership.
    known: RwLock<Option<(u64, Arc<Revisions>)>>,
    draws: AtomicU64,
    series: Series,
}

/// The revisions of one membership.
struct Revisions {
    /// Of each, sorted by name.
    shares: Vec<f64>,
    /// By row: the place of the endpoint's revision in `shares`.
    of_rows: Vec<Option<usize>>,
}

impl Rollout {
    fn revisions(&self, snapshot: &Snapshot, gate: &Gate) -> Arc<Revisions> {
        if let Some((_, known)) = self.known.read().as_ref().filter(|(of, _)| *of == snapshot.membership()) {
            return known.clone();
        }
        let mut counts = Counts::new();
        for idx in snapshot.indices() {
            let meta = snapshot.meta(idx);
            let label = |key: &str| meta.label(key).filter(|value| !value.is_empty());
            let (Some(revision), Some(role)) = (label(&gate.revision_label), label(&gate.role_label)) else { continue };
            if self.scope.iter().all(|term| term.holds(meta)) {
                *counts.entry((revision, role)).or_default() += 1;
            }
        }
        let shares = shares::of(&counts, &gate.roles, gate.mode);
        self.series.set(gate.mode, &shares);
        let place = |name: &str| shares.keys().position(|revision| revision == name);
        let of_row = |idx| snapshot.meta(idx).label(&gate.revision_label).and_then(place);
        let of_rows = snapshot.indices().map(of_row).collect();
        let revisions = Arc::new(Revisions { of_rows, shares: shares.into_values().collect() });
        *self.known.write() = Some((snapshot.membership(), revisions.clone()));
        revisions
    }

    fn gate(&self, cx: &Cycle<'_>, gate: &Gate, keep: &mut Candidates) {
        let revisions = self.revisions(cx.snapshot, gate);
        let of = |idx: EndpointIdx| revisions.of_rows[idx.row()];
        let is_present = |(at, share): &(usize, f64)| *share > 0.0 && keep.iter().any(|idx| of(idx) == Some(*at));
        let present: Vec<(usize, f64)> = revisions.shares.iter().copied().enumerate().filter(is_present).collect();
        let is_named = self.selectors.iter().any(|s| s.strict && s.asked(cx).is_some());
        let drawn = if is_named { None } else { shares::draw(&present, self.draw()) };
        keep.retain(|idx| {
            of(idx).is_some_and(|revision| match drawn {
                Some(drawn) => revision == drawn,
                None => present.iter().any(|(allowed, _)| *allowed == revision),
            })
        });
    }

    /// The next of a row of numbers from 0 to 1 that are spread evenly.
    fn draw(&self) -> f64 {
        (self.draws.fetch_add(1, Relaxed) as f64 * GOLDEN).fract()
    }
}

impl HeaderSelector {
    /// What the request's header asks for.
    fn asked<'r>(&self, cx: &Cycle<'r>) -> Option<&'r str> {
        cx.request.headers.find(&self.header).filter(|value| !value.is_empty())
    }
}

impl Screener for Rollout {
    fn screen(&self, cx: &Cycle<'_>, keep: &mut Candidates) {
        if let Some(gate) = &self.gate {
            self.gate(cx, gate, keep);
        }
        for (at, selector) in self.selectors.iter().enumerate().filter(|(_, s)| s.strict) {
            let Some(asked) = selector.asked(cx) else { continue };
            keep.retain(|idx| cx.snapshot.meta(idx).label(&selector.label) == Some(asked));
            if keep.is_empty() {
                self.series.no_match(at);
                return;
            }
        }
    }
}

impl Hooks for Rollout {
    fn picked(
        &self,
        cx: &Cycle<'_>,
        _columns: &Columns,
        picked: &Picked<'_>,
        _headers: &mut HeaderEdits,
    ) -> Option<Box<dyn Held>> {
        let stamp = |meta: &EndpointMeta| {
            let value = |s: &HeaderSelector| {
                let value = meta.label(&s.label).filter(|value| !value.is_empty())?;
                Some((s.header.clone(), value.to_owned()))
            };
            (meta.host_port.clone(), self.selectors.iter().filter_map(value).collect())
        };
        let targets = picked.runs.runs[picked.primary].targets().unwrap_or_default();
        let stamps = targets.iter().map(|idx| stamp(cx.snapshot.meta(*idx))).collect();
        (!self.selectors.is_empty()).then(|| Box::new(Stamps(stamps)) as Box<dyn Held>)
    }
}

/// The headers for each endpoint that may have served, best first.
struct Stamps(Vec<(String, Vec<(String, String)>)>);

impl Held for Stamps {
    fn response_headers(&mut self, served: &Served, set: &mut Vec<(String, String)>) {
        let served_by = match served {
            Served::By(endpoint) => self.0.iter().find(|(host_port, _)| host_port == endpoint),
            Served::NoMetadata | Served::NotSaid => None,
        };
        if let Some((_, headers)) = served_by.or(self.0.first()) {
            set.extend(headers.iter().cloned());
        }
    }
}
