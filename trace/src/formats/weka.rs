//! Weka's agentic sessions: one JSON object a file, with sub-agents inside of sessions and ids of blocks of 64 tokens.
//!
//! Ids are local to their session. What sessions have in common all the same, the definitions of tools and the system
//! prompt at their beginning, gets common ids here: tools as far as both have them, the system prompt where the tools
//! before it have the same length. Sub-agents have tools of their own, and share those with other sub-agents.

use std::collections::HashMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Out, Parser, Unit};
use crate::bad::Complaint;
use crate::field::{Raw, block_ids, given, json, object, text, time, tokens, whole};
use crate::prompt::{OWN, Prompt, Run, n_blocks, push_id, push_run};
use crate::record::{FilledBy, Record, Turn, Who};

/// Ids are local to a scope, which is the upper half of an id.
const SCOPE: u64 = 1 << 32;
/// The scope of ids that are the same for all sessions.
const GLOBAL: u64 = 0;
const MOST_BLOCK_TOKENS: u32 = 65_536;
/// How deep sub-agents may be inside of each other.
const DEEPEST: usize = 8;

#[derive(Default)]
pub struct Weka {
    n_agents: u32,
    n_own: u64,
    /// Scopes of what is common: tools of sessions and of sub-agents, and system prompts by where they begin.
    common: HashMap<Common, u64>,
    n_scopes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Common {
    Tools { of_sub_agents: bool },
    System { of_sub_agents: bool, after_blocks: u32 },
}

#[derive(Deserialize)]
struct Session<'a> {
    #[serde(borrow)]
    block_size: Raw<'a>,
    #[serde(borrow)]
    hash_id_scope: Raw<'a>,
    #[serde(borrow)]
    tool_tokens: Raw<'a>,
    #[serde(borrow)]
    system_tokens: Raw<'a>,
    #[serde(borrow)]
    requests: Raw<'a>,
}

/// A request, or a sub-agent with requests of its own.
#[derive(Deserialize)]
struct Entry<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    /// Seconds since the agent began; of a sub-agent it is when it ended.
    #[serde(borrow)]
    t: Raw<'a>,
    #[serde(borrow)]
    model: Raw<'a>,
    #[serde(borrow, rename = "in")]
    input: Raw<'a>,
    #[serde(borrow, rename = "out")]
    output: Raw<'a>,
    #[serde(borrow)]
    hash_ids: Raw<'a>,
    #[serde(borrow)]
    input_types: Raw<'a>,
    #[serde(borrow)]
    api_time: Raw<'a>,
    #[serde(borrow)]
    think_time: Raw<'a>,
    #[serde(borrow)]
    duration_ms: Raw<'a>,
    #[serde(borrow)]
    tool_tokens: Raw<'a>,
    #[serde(borrow)]
    system_tokens: Raw<'a>,
    #[serde(borrow)]
    requests: Raw<'a>,
}

/// What ids mean in one file.
struct Scope {
    block_tokens: u32,
    /// Added to an id.
    local: u64,
    /// Ids of what the session shares with others.
    common: HashMap<u64, u64>,
}

/// Someone who sends one request after the other: the session itself, or a sub-agent.
struct Agent<'a> {
    tool_tokens: Raw<'a>,
    system_tokens: Raw<'a>,
    requests: Raw<'a>,
    /// Since the session began.
    begin: Duration,
    depth: usize,
}

/// How far an agent has come.
struct Progress {
    session: u32,
    n_turns: u32,
    /// The agent's last request, or what its first one waits for.
    last: Vec<Done>,
    /// Last requests of sub-agents since then.
    joined: Vec<Done>,
}

/// A request that others may wait for.
#[derive(Clone, Copy)]
struct Done {
    record: u32,
    begin: Duration,
    end: Option<Duration>,
}

impl Parser for Weka {
    fn unit(&self) -> Unit {
        Unit::File
    }

    fn take(&mut self, file: &str, out: &mut Out) -> Result<(), Complaint> {
        let session: Session = object(file)?;
        let block_tokens = whole("block_size", session.block_size.map(RawValue::get), MOST_BLOCK_TOKENS)?;
        if block_tokens == 0 {
            return Err(Complaint::new("block_size", "expected at least 1, found 0"));
        }
        let local = match text("hash_id_scope", session.hash_id_scope)?.as_deref() {
            None | Some("local") => self.new_scope(),
            Some("global") => GLOBAL,
            Some(_) => return Err(Complaint::new("hash_id_scope", "expected local or global, found another word")),
        };
        let mut scope = Scope { block_tokens, local, common: HashMap::new() };
        let Session { tool_tokens, system_tokens, requests, .. } = session;
        let agent = Agent { tool_tokens, system_tokens, requests, begin: Duration::ZERO, depth: 0 };
        self.run(&agent, Vec::new(), &mut scope, "", out)?;
        Ok(())
    }
}

impl Weka {
    fn new_scope(&mut self) -> u64 {
        self.n_scopes += 1;
        self.n_scopes * SCOPE
    }

    /// Gives the requests of an agent; returns those that are the last ones of it and of its sub-agents. A bad request is
    /// told of, and the next one waits for the one before it.
    fn run(
        &mut self,
        agent: &Agent,
        after: Vec<Done>,
        scope: &mut Scope,
        path: &str,
        out: &mut Out,
    ) -> Result<Vec<Done>, Complaint> {
        if agent.depth > DEEPEST {
            return Err(Complaint::new("", format!("expected at most {DEEPEST} sub-agents in each other, found more")));
        }
        let requests = agent.requests.map(RawValue::get);
        let requests = requests.ok_or_else(|| Complaint::new("requests", "expected a list, found nothing"))?;
        let requests: Vec<&RawValue> = json(requests, "a list of JSON objects").map_err(|c| c.inside("requests"))?;
        let mut progress = Progress { session: self.n_agents, n_turns: 0, last: after, joined: Vec::new() };
        self.n_agents += 1;
        for (i, entry) in requests.into_iter().enumerate() {
            let path = format!("{path}requests[{i}]");
            if let Err(complaint) = self.entry(agent, entry, &mut progress, scope, &path, out) {
                out.complain(complaint.inside(&path));
            }
        }
        let own = if progress.n_turns > 0 { progress.last } else { Vec::new() };
        Ok([own, progress.joined].concat())
    }

    fn entry(
        &mut self,
        agent: &Agent,
        entry: &RawValue,
        progress: &mut Progress,
        scope: &mut Scope,
        path: &str,
        out: &mut Out,
    ) -> Result<(), Complaint> {
        let entry: Entry = object(entry.get())?;
        let t = agent.begin.saturating_add(time("t", entry.t.map(RawValue::get), 1.0)?);
        if text("type", entry.kind)?.as_deref() == Some("subagent") {
            // It stands where it ended.
            let took = given(entry.duration_ms).map(|text| time("duration_ms", Some(text), 1000.0)).transpose()?;
            let Entry { tool_tokens, system_tokens, requests, .. } = entry;
            let begin = t.saturating_sub(took.unwrap_or_default()).max(agent.begin);
            let sub_agent = Agent { tool_tokens, system_tokens, requests, begin, depth: agent.depth + 1 };
            let ends = self.run(&sub_agent, progress.last.clone(), scope, &format!("{path}."), out)?;
            progress.joined.extend(ends);
            return Ok(());
        }
        let input = tokens("in", entry.input.map(RawValue::get))?;
        let output = tokens("out", entry.output.map(RawValue::get))?;
        let took = given(entry.api_time).map(|text| time("api_time", Some(text), 1.0)).transpose()?;
        let thought = given(entry.think_time).map(|text| time("think_time", Some(text), 1.0)).transpose()?;
        let tools = entry.input_types.is_some_and(|types| types.get().contains("\"tool_result\""));
        let ids = block_ids("hash_ids", entry.hash_ids, SCOPE)?;
        let most = input.div_ceil(scope.block_tokens);
        if n_blocks(&ids) > most.into() {
            let (size, found) = (scope.block_tokens, n_blocks(&ids));
            let what = format!("expected at most {most} blocks of {size} for in {input}, found {found}");
            return Err(Complaint::new("hash_ids", what));
        }
        if progress.n_turns == 0 {
            self.learn(agent, &ids, scope)?;
        }
        let who = Who { model: text("model", entry.model)?, ..Who::default() };
        let prompt =
            Prompt::Blocks { runs: self.runs(&ids, most, scope), block_tokens: scope.block_tokens, tokens: input };
        let done = Done { record: out.next_number(), begin: t, end: took.map(|took| t.saturating_add(took)) };
        let filled_by = if tools { FilledBy::Tools } else { FilledBy::Person };
        let turn = Turn { filled_by, ..progress.turn(done, thought) };
        out.push(Record { turn: Some(turn), who, ..Record::new(t, prompt, Some(output)) });
        Ok(())
    }

    /// Notes the ids of what the agent's first prompt has in common with those of others.
    fn learn(&mut self, agent: &Agent, first: &[Run], scope: &mut Scope) -> Result<(), Complaint> {
        if scope.local == GLOBAL {
            return Ok(());
        }
        let of_sub_agents = agent.depth > 0;
        let length = |name, raw| given(raw).map(|text| tokens(name, Some(text))).transpose();
        let tools = length("tool_tokens", agent.tool_tokens)?.unwrap_or(0);
        let system = length("system_tokens", agent.system_tokens)?.unwrap_or(0);
        let n_tools = tools / scope.block_tokens;
        let n_all = tools.saturating_add(system) / scope.block_tokens;
        let [tools, system] =
            [Common::Tools { of_sub_agents }, Common::System { of_sub_agents, after_blocks: n_tools }]
                .map(|common| self.scope_of(common));
        let ids = first.iter().flat_map(|run| (0..u64::from(run.len)).map(|i| run.first + i));
        for (i, id) in (0..n_all).zip(ids) {
            let common = if i < n_tools { tools } else { system };
            scope.common.entry(id).or_insert(common + u64::from(i));
        }
        Ok(())
    }

    fn scope_of(&mut self, common: Common) -> u64 {
        if let Some(scope) = self.common.get(&common) {
            return *scope;
        }
        let scope = self.new_scope();
        self.common.insert(common, scope);
        scope
    }

    /// The ids of a prompt as they are in the whole trace. Only whole blocks have ids; the rest is the prompt's own.
    fn runs(&mut self, ids: &[Run], n_all: u32, scope: &Scope) -> Vec<Run> {
        let mut runs = Vec::with_capacity(ids.len() + 1);
        for run in ids {
            for id in (0..u64::from(run.len)).map(|i| run.first + i) {
                push_id(&mut runs, scope.common.get(&id).copied().unwrap_or(scope.local + id));
            }
        }
        let n_own = n_all - n_blocks(ids).min(n_all.into()) as u32;
        push_run(&mut runs, OWN + self.n_own, n_own);
        self.n_own += u64::from(n_own);
        runs
    }
}

impl Progress {
    /// Takes the next request of the agent, and says what it waits for.
    fn turn(&mut self, done: Done, thought: Option<Duration>) -> Turn {
        let mut earlier = std::mem::replace(&mut self.last, vec![done]);
        earlier.append(&mut self.joined);
        let ends: Option<Vec<Duration>> = earlier.iter().map(|done| done.end).collect();
        let gap = match (ends, thought) {
            (Some(ends), _) => done.begin.saturating_sub(ends.into_iter().max().unwrap_or(done.begin)),
            (None, Some(thought)) if earlier.len() == 1 => thought,
            (None, _) => {
                let latest = earlier.iter().map(|done| done.end.unwrap_or(done.begin)).max();
                done.begin.saturating_sub(latest.unwrap_or(done.begin))
            }
        };
        let number = self.n_turns;
        self.n_turns += 1;
        let after = earlier.iter().map(|done| done.record).collect();
        Turn { after, gap, number, ..Turn::first(self.session) }
    }
}
