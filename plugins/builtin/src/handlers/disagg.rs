//! `disagg-profile-handler`: gives the stages of one request (encode, prefill, decode) to endpoints of their own.
//!
//! Decode first: the decode profile runs; then, if its decider wants it, encode, and then prefill, near the endpoint that
//! was chosen to decode. Prefill first: prefill runs in any case, then encode if its decider wants it, then decode near
//! the endpoint that prefills. A stage without a profile or without a decider does not run; one whose filters leave nobody
//! is left out, which a counter tells. Without an endpoint to decode there is no decision.
//!
//! The request goes to the endpoint that decodes. The headers `x-prefiller-host-port` and `x-encoder-hosts-ports` tell it
//! the others; they are taken away where there is nobody to name, so that no client can set them. Brings the producers
//! of prefix matches and of tokens, which deciders read.
//!
//! ```yaml
//! - type: disagg-profile-handler
//!   parameters:
//!     stageOrder: decode-first               # or prefill-first
//!     profiles: {decode: decode, prefill: prefill, encode: encode}
//!     deciders: {prefill: prefix-based-pd-decider, encode: always-disagg-multimodal-decider}
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Columns, Cycle, Decider, Decision, EndpointIdx, HandlerError, HeaderEdits, Instance,
    Kind, Next, PluginType, ProfileHandler, ProfileRun, Runs, Stability,
};

use super::decisions::Decisions;
use super::disagg_config::{Order, Settings};
use super::{no_profile, not_run, routing};
use crate::attributes::{PrefixMatch, TokenizedPrompt};
use crate::deciders;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "disagg-profile-handler",
    kinds: &[Kind::ProfileHandler],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "disagg-profile-handler",
    summary: "Gives the stages of a request to endpoints of their own.",
    schema: None,
    build,
};

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let settings = Settings::read(cx)?;
    cx.reads::<PrefixMatch>("");
    cx.reads_request::<TokenizedPrompt>("");
    let prefill = deciders::named_if_any(cx, &settings.prefill_decider);
    let encode = deciders::named_if_any(cx, &settings.encode_decider);
    let (prefill_decider, encode_decider) = match (prefill, encode) {
        (Ok(prefill), Ok(encode)) => (prefill, encode),
        (Err(why), Ok(_)) | (Ok(_), Err(why)) => return Err(why),
        (Err(mut why), Err(more)) => {
            why.0.extend(more.0);
            return Err(why);
        }
    };
    let handler = Disagg {
        order: settings.order,
        decode: settings.decode,
        prefill: Stage { profile: settings.prefill, decider: prefill_decider },
        encode: Stage { profile: settings.encode, decider: encode_decider },
        decisions: Decisions::of_disagg(cx.metrics, cx.name, TYPE.reported),
    };
    Ok(Instance { handler: Some(Arc::new(handler)), ..Instance::default() })
}

struct Disagg {
    order: Order,
    decode: String,
    prefill: Stage,
    encode: Stage,
    decisions: Decisions,
}

/// A stage that may be left out.
struct Stage {
    profile: String,
    decider: Option<Arc<dyn Decider>>,
}

impl Stage {
    /// Where to run it, if it has not run and is wanted; it is skipped if it is not.
    fn wanted(&self, cx: &Cycle<'_>, columns: &Columns, runs: &mut Runs, chosen: Option<EndpointIdx>) -> Option<usize> {
        let at = not_run(runs, &self.profile)?;
        if self.decider.as_ref().is_some_and(|decider| decider.wanted(cx, columns, chosen)) {
            return Some(at);
        }
        runs.runs[at] = ProfileRun::Skipped;
        None
    }
}

impl Disagg {
    fn decode_first(&self, cx: &Cycle<'_>, columns: &Columns, runs: &mut Runs) -> Option<usize> {
        let decode = runs.position(&self.decode)?;
        if runs.runs[decode] == ProfileRun::NotRun {
            return Some(decode);
        }
        let chosen = *runs.runs[decode].targets()?.first()?;
        if let Some(encode) = self.encode.wanted(cx, columns, runs, Some(chosen)) {
            return Some(encode);
        }
        let prefill = self.prefill.wanted(cx, columns, runs, Some(chosen))?;
        runs.peer = Some(chosen);
        Some(prefill)
    }

    fn prefill_first(&self, cx: &Cycle<'_>, columns: &Columns, runs: &mut Runs) -> Option<usize> {
        let decode = runs.position(&self.decode);
        if decode.is_some_and(|at| runs.runs[at] != ProfileRun::NotRun) {
            return None;
        }
        if let Some(prefill) = not_run(runs, &self.prefill.profile) {
            return Some(prefill);
        }
        if let Some(encode) = self.encode.wanted(cx, columns, runs, None) {
            return Some(encode);
        }
        let prefill = runs.position(&self.prefill.profile).and_then(|at| runs.runs[at].targets());
        runs.peer = prefill.and_then(|targets| targets.first()).copied();
        decode
    }
}

impl ProfileHandler for Disagg {
    fn next(&self, cx: &Cycle<'_>, columns: &Columns, runs: &mut Runs) -> Next {
        runs.peer = None;
        let next = match self.order {
            Order::DecodeFirst => self.decode_first(cx, columns, runs),
            Order::PrefillFirst => self.prefill_first(cx, columns, runs),
        };
        next.map_or(Next::Done, Next::Run)
    }

    fn decide(&self, cx: &Cycle<'_>, _columns: &Columns, runs: &Runs) -> Result<Decision, HandlerError> {
        let (prefill, encode) = (&self.prefill.profile, &self.encode.profile);
        let decode = runs.position(&self.decode).filter(|at| runs.runs[*at].targets().is_some());
        let primary = decode.ok_or_else(|| no_decode(runs))?;
        self.decisions.count(&cx.request.target_model, runs, runs.position(prefill), runs.position(encode));
        let mut headers = HeaderEdits::default();
        routing::name_stages(cx, runs, prefill, encode, &mut headers);
        Ok(Decision { primary, headers, port: None })
    }

    fn check(&self, _profiles: &[&str]) -> Result<(), String> {
        Ok(())
    }
}

/// Why there is no decision without an endpoint to decode.
pub fn no_decode(runs: &Runs) -> HandlerError {
    let none_ran = runs.runs.iter().all(|run| *run == ProfileRun::NotRun);
    if none_ran { no_profile() } else { HandlerError("failed to find available decode workers".into()) }
}

#[cfg(test)]
#[path = "disagg_tests.rs"]
mod tests;
