//! `burst-prefix-cache-producer`: sends equal prompts that come at about the same time to one endpoint, before any
//! endpoint has them in its cache.
//!
//! Requests whose prompts are equal make a group. The first one is kept back. Once a second one has come, the group is
//! placed as soon as nobody has arrived for a hundredth of the window (2 to 6 ms), and at the latest after twice as long;
//! of several groups the longer ones first. All that follow go there at once, at most `maxPerReplica` to an endpoint
//! before the next one is used. A group gets the endpoint with the least load of this window, then with the fewest
//! running requests, then with the first name; groups with `minColocateBlocks` equal leading blocks get one endpoint as
//! long as that has less than its share.
//!
//! Who is alone goes on once nobody has arrived for a twentieth of the window (5 to 50 ms), or when the window is over.
//! Without a group or a family it has no affinity, but who follows while it is in flight goes where it went. Once all of
//! a group are over, who comes alone is alone, and two go where their group went. All of that is forgotten a window after
//! the arrival. If a client says all before it is answered, and so never tells of the end, its request counts as in
//! flight for one window. The column says "all blocks cached" for the endpoint of the group, and "none" for the others.
//!
//! Reads the value `TokenizedPrompt`, writes the column `PrefixCacheMatchInfoDataKey`. Costs one hash of the prompt, a
//! look-up, and the wait, which is told apart from the work: stage `gather`.
//!
//! ```yaml
//! - type: burst-prefix-cache-producer
//!   parameters:
//!     windowDurationMs: 100       # 1 to 10000: the longest wait
//!     maxPerReplica: -1           # members of a group on an endpoint; -1: no limit
//!     blockSizeTokens: 64
//!     maxPrefixTokensToMatch: 0   # 0: 2048 blocks
//!     minColocateBlocks: 0        # 0: only equal prompts go together
//!     maxBatchSize: 1000          # requests in a burst; -1: no limit
//!     balanceBy: requests         # or tokens
//! ```

mod assign;
mod crowd;

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, ColumnKey, Columns, Cycle, EndpointIdx, Gather, Gathered, Held, Instance,
    Kind, NodeError, Picked, PluginType, RequestKey, Stability,
};
use epp_prefix_index::keys::{chain_keys, chain_seed};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use self::assign::{Replica, Rules};
use self::crowd::{Crowd, MemberId, Times};
use super::block_keys::MOST_PROMPTS;
use crate::attributes::{PrefixMatch, TokenizedPrompt};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "burst-prefix-cache-producer",
    kinds: &[Kind::Producer],
    stability: Stability::Alpha,
    replaced_by: None,
    reported: "burst-prefix-cache-producer",
    summary: "Sends equal prompts that come at about the same time to one endpoint.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

/// Blocks of a prompt that count unless `maxPrefixTokensToMatch` says otherwise.
const MOST_BLOCKS: usize = 2048;
/// A burst is quiet after this part of the window without an arrival, within these bounds.
const GAPS_IN_A_WINDOW: u32 = 20;
const LEAST_GAP: Duration = Duration::from_millis(5);
const MOST_GAP: Duration = Duration::from_millis(50);
/// Groups wait for others for this part of a gap, within these bounds.
const TURNS_IN_A_GAP: u32 = 5;
const LEAST_TURN: Duration = Duration::from_millis(2);
const MOST_TURN: Duration = Duration::from_millis(6);
/// What begins another prompt of the same request.
const NEXT_PROMPT: u64 = 0xa076_1d64_78bd_642f;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// The longest time that a request waits for others, and that it counts once it went on, in milliseconds. 1 to
    /// 10000. Default 100.
    #[schemars(range(min = 1, max = 10000))]
    window_duration_ms: i64,
    /// So many requests of a group go to one endpoint, more only when all have as many. 1 or more, or -1 for no limit.
    /// Default -1.
    #[schemars(range(min = -1))]
    max_per_replica: i64,
    /// Tokens of a block. Above 0. Default 64.
    #[schemars(range(min = 1))]
    block_size_tokens: i64,
    /// At most so many tokens of a prompt count, in whole blocks; at least one block. Default 0: 2048 blocks count.
    #[schemars(range(min = 0))]
    max_prefix_tokens_to_match: i64,
    /// Prompts that are equal in so many leading blocks go to one endpoint, too, as long as that carries less than its
    /// share. Default 0: none do.
    #[schemars(range(min = 0))]
    min_colocate_blocks: i64,
    /// At most so many requests are in a burst; more go on without affinity. 1 or more, or -1 for no limit. Default
    /// 1000.
    #[schemars(range(min = -1))]
    max_batch_size: i64,
    /// What is balanced over the endpoints. Default `requests`.
    balance_by: BalanceBy,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum BalanceBy {
    /// Requests.
    #[default]
    #[serde(alias = "")]
    Requests,
    /// Blocks that an endpoint has to compute: those of a group once, without those that another group has there.
    Tokens,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            window_duration_ms: 100,
            max_per_replica: -1,
            block_size_tokens: 64,
            max_prefix_tokens_to_match: 0,
            min_colocate_blocks: 0,
            max_batch_size: 1000,
            balance_by: BalanceBy::Requests,
        }
    }
}

impl Config {
    fn mistakes(&self) -> Vec<NodeError> {
        let (block, cap) = (self.block_size_tokens, self.max_prefix_tokens_to_match);
        let limit = |n: i64| n == -1 || n >= 1;
        let (one_or_none, above_0, not_below_0) = ("1 or more, or -1 for no limit", "a number above 0", "0 or more");
        [
            (
                "windowDurationMs",
                (1..=10_000).contains(&self.window_duration_ms),
                "1 to 10000",
                self.window_duration_ms,
            ),
            ("maxPerReplica", limit(self.max_per_replica), one_or_none, self.max_per_replica),
            ("blockSizeTokens", block > 0, above_0, block),
            ("maxPrefixTokensToMatch", cap == 0 || cap >= block.max(1), "0, or at least blockSizeTokens", cap),
            ("minColocateBlocks", self.min_colocate_blocks >= 0, not_below_0, self.min_colocate_blocks),
            ("maxBatchSize", limit(self.max_batch_size), one_or_none, self.max_batch_size),
        ]
        .into_iter()
        .filter(|(_, good, ..)| !good)
        .map(|(path, _, expected, found)| NodeError {
            place: None,
            path: path.into(),
            message: format!("expected {expected}, found {found}"),
        })
        .collect()
    }

    fn crowd(&self) -> Crowd {
        let limit = |n: i64| usize::try_from(n).unwrap_or(usize::MAX);
        let window = Duration::from_millis(self.window_duration_ms.unsigned_abs());
        let gap = (window / GAPS_IN_A_WINDOW).clamp(LEAST_GAP, MOST_GAP);
        let times = Times { window, gap, turn: (gap / TURNS_IN_A_GAP).clamp(LEAST_TURN, MOST_TURN) };
        let rules = Rules {
            most_per_replica: limit(self.max_per_replica),
            least_shared: limit(self.min_colocate_blocks),
            by_tokens: self.balance_by == BalanceBy::Tokens,
        };
        Crowd::new(rules, times, limit(self.max_batch_size))
    }
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let mistakes = cfg.mistakes();
    if !mistakes.is_empty() {
        return Err(BuildError(mistakes));
    }
    let block_tokens = usize::try_from(cfg.block_size_tokens).unwrap_or(usize::MAX);
    let cap = usize::try_from(cfg.max_prefix_tokens_to_match).unwrap_or(0) / block_tokens;
    let shared = Arc::new(Shared {
        block_tokens,
        most_blocks: if cap == 0 { MOST_BLOCKS } else { cap },
        prompt: cx.reads_request(""),
        matches: cx.writes(),
        crowd: Mutex::new(cfg.crowd()),
    });
    let told = shared.clone();
    Ok(Instance {
        gather: Some(Arc::new(Burst(shared))),
        state: Some(Arc::new(move || {
            let (members, waiting, groups) = told.crowd.lock().counts();
            serde_json::json!({"members": members, "waiting": waiting, "groups": groups}).to_string()
        })),
        ..Instance::default()
    })
}

struct Shared {
    block_tokens: usize,
    most_blocks: usize,
    prompt: RequestKey<TokenizedPrompt>,
    matches: ColumnKey<PrefixMatch>,
    crowd: Mutex<Crowd>,
}

impl Shared {
    /// The keys of all prompts, one after the other. Each goes on from the one before, so that equal keys stand for
    /// equal prompts up to there.
    fn keys(&self, cx: &Cycle<'_>, columns: &Columns) -> Vec<u64> {
        let mut keys = Vec::new();
        let Some(prompt) = columns.read_request(self.prompt) else { return keys };
        let mut seed = chain_seed(&cx.request.target_model, &cx.request.parsed.cache_salt);
        for tokens in prompt.prompts(cx.request).take(MOST_PROMPTS) {
            chain_keys(seed, tokens, self.block_tokens, self.most_blocks, &mut keys);
            seed = keys.last().map_or(seed, |last| last ^ NEXT_PROMPT);
        }
        keys
    }
}

/// The endpoints that a request may go to.
fn replicas<'a>(cx: &Cycle<'a>, among: &Candidates) -> Vec<Replica<'a>> {
    let replica = |idx: EndpointIdx| Replica {
        id: cx.snapshot.id(idx),
        running: cx.load.running[idx.row()],
        name: &cx.snapshot.meta(idx).name,
    };
    among.iter().map(replica).collect()
}

struct Burst(Arc<Shared>);

impl Gather for Burst {
    fn join(
        &self,
        cx: &Cycle<'_>,
        columns: &Columns,
        among: &Candidates,
        waker: Waker,
    ) -> Result<Box<dyn Gathered>, String> {
        let keys = self.0.keys(cx, columns);
        if keys.is_empty() {
            return Ok(Box::new(WithoutPrompt(self.0.clone())));
        }
        let id = self.0.crowd.lock().join(&keys, cx.now, waker, &replicas(cx, among))?;
        Ok(Box::new(Member { id, blocks: keys.len() as u32, picked: false, shared: self.0.clone() }))
    }
}

/// A request that nobody can be like.
struct WithoutPrompt(Arc<Shared>);

impl Gathered for WithoutPrompt {
    fn wait(&mut self, _: &Cycle<'_>, _: &Candidates) -> Option<Instant> {
        None
    }

    fn produce(&self, _: &Cycle<'_>, columns: &mut Columns) {
        fill(&self.0, columns, 0);
    }

    fn picked(self: Box<Self>, _: &Cycle<'_>, _: &Picked<'_>) -> Option<Box<dyn Held>> {
        None
    }
}

/// Says of every row that nothing is cached; returns the column.
fn fill<'a>(shared: &Shared, columns: &'a mut Columns, blocks: u32) -> &'a mut [PrefixMatch] {
    let nothing =
        PrefixMatch { total_blocks: blocks, block_tokens: shared.block_tokens as u32, ..PrefixMatch::default() };
    let column = columns.write(shared.matches);
    column.fill(nothing);
    column
}

/// A request in the burst; it leaves when this is dropped.
struct Member {
    id: MemberId,
    blocks: u32,
    picked: bool,
    shared: Arc<Shared>,
}

impl Gathered for Member {
    fn wait(&mut self, cx: &Cycle<'_>, among: &Candidates) -> Option<Instant> {
        self.shared.crowd.lock().wait(self.id, cx.now, &replicas(cx, among))
    }

    fn produce(&self, cx: &Cycle<'_>, columns: &mut Columns) {
        let column = fill(&self.shared, columns, self.blocks);
        let place = self.shared.crowd.lock().place_of(self.id);
        if let Some(idx) = place.and_then(|id| cx.snapshot.find(id)) {
            column[idx.row()].match_blocks = self.blocks;
            column[idx.row()].cached_blocks = self.blocks;
        }
    }

    fn picked(mut self: Box<Self>, cx: &Cycle<'_>, picked: &Picked<'_>) -> Option<Box<dyn Held>> {
        let target = cx.snapshot.id(picked.target()?);
        let all = Candidates::all(cx.snapshot.rows());
        self.shared.crowd.lock().picked(self.id, target, &replicas(cx, &all));
        self.picked = true;
        Some(self)
    }
}

impl Held for Member {
    fn end_unknown(&mut self) {
        self.shared.crowd.lock().end_unknown(self.id);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut crowd = self.shared.crowd.lock();
        if self.picked { crowd.over(self.id) } else { crowd.cut_short(self.id) }
    }
}

#[cfg(test)]
mod tests;
