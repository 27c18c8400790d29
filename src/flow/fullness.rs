//! How full the pool is, by stage: the endpoints that prefill and those that decode.

use epp_plugin_api::{Candidates, Departing, Role, Saturation, Snapshot};
use tokio::time::Instant;

/// Saturations of one moment; 1 or more is full.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fullness {
    /// `None`: no endpoint does it.
    pub prefill: Option<f64>,
    /// `None`: no endpoint does it.
    pub decode: Option<f64>,
    /// That of the fuller stage, or of the pool if it has neither.
    pub effective: f64,
}

/// Which endpoints do what. Made anew when the endpoints change.
#[derive(Debug, Default)]
pub struct Stages {
    membership: Option<u64>,
    prefill: Candidates,
    decode: Candidates,
}

impl Stages {
    /// Asks the detector about each stage.
    pub fn measure(
        &mut self,
        detector: &dyn Saturation,
        snapshot: &Snapshot,
        departing: Departing,
        now: Instant,
    ) -> Fullness {
        self.divide(snapshot);
        let of = |stage: &Candidates| {
            (!stage.is_empty()).then(|| sound(detector.saturation_with(snapshot, stage, departing, now)))
        };
        let (prefill, decode) = (of(&self.prefill), of(&self.decode));
        let effective = match (prefill, decode) {
            (Some(a), Some(b)) => a.max(b),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => {
                let all = Candidates::all(snapshot.rows());
                sound(detector.saturation_with(snapshot, &all, departing, now))
            }
        };
        Fullness { prefill, decode, effective }
    }

    fn divide(&mut self, snapshot: &Snapshot) {
        let known = self.membership == Some(snapshot.membership()) && self.decode.rows() == snapshot.rows();
        if known {
            return;
        }
        self.membership = Some(snapshot.membership());
        self.prefill.fill(snapshot.rows());
        self.decode.fill(snapshot.rows());
        self.prefill.retain(|idx| snapshot.meta(idx).role.prefill);
        // An empty label says as little as none.
        self.decode.retain(|idx| snapshot.meta(idx).role.decode || snapshot.meta(idx).label(Role::LABEL) == Some(""));
    }
}

/// A saturation that is no number halts nothing.
fn sound(saturation: f64) -> f64 {
    if saturation.is_nan() { 0.0 } else { saturation.max(0.0) }
}
