//! What the debug page shows of the index and of those who speak to it.

use epp_plugin_api::EndpointId;
use serde_json::{Value, json};

use super::Precise;
use super::told::Told;

/// So many endpoints are shown, those of the lowest slots.
const MOST_SHOWN: usize = 100;

impl Precise {
    /// The state as JSON.
    pub(super) fn state(&self) -> String {
        let mut all: Vec<_> = self.told.read().iter().map(|(id, told)| (*id, told.clone())).collect();
        all.sort_unstable_by_key(|(id, _)| *id);
        let shown: Vec<Value> = all.iter().take(MOST_SHOWN).map(|(id, told)| self.shown(*id, &told.lock())).collect();
        json!({
            "blocks": self.index.blocks(),
            "bytes": self.index.bytes(),
            "blockTokens": self.chain.block_tokens(),
            "nEndpoints": all.len(),
            "endpoints": shown,
        })
        .to_string()
    }

    fn shown(&self, id: EndpointId, told: &Told) -> Value {
        let places: Vec<Value> = told
            .places()
            .iter()
            .map(|place| json!({"tier": place.tier, "group": place.group, "blocks": self.index.blocks_of(place.owner)}))
            .collect();
        let (name, speculative) = {
            let places = self.places.read();
            (places.name(id), places.speculative(id))
        };
        let counts = told.counts;
        let mismatches: Vec<Value> =
            told.mismatches.all().map(|(cause, detail)| json!({"cause": cause.label(), "detail": detail})).collect();
        json!({
            "endpoint": name,
            "places": places,
            "speculativeBlocks": speculative.map(|owner| self.index.blocks_of(owner)),
            "messages": counts.messages,
            "events": {"stored": counts.stored, "removed": counts.removed, "cleared": counts.cleared},
            "unknownParents": counts.unknown_parents,
            "lost": counts.lost,
            "discarded": counts.discarded,
            "lastDiscarded": told.last_discarded,
            "models": told.models(),
            "mismatches": mismatches,
        })
    }
}
