//! What the RL trace player plays: one conversation a line, each turn with its lengths and the gap before it.

use std::collections::HashMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Out, Parser};
use crate::bad::Complaint;
use crate::field::{Raw, found, json, object, text, time, tokens};
use crate::ids::seed_of_name;
use crate::prompt::{Prompt, Rows};
use crate::record::{FilledBy, Record, Since, Turn};

#[derive(Default)]
pub struct Rollout {
    n_conversations: u32,
    /// Those of one name are samples of one prompt.
    groups: HashMap<u64, u32>,
}

#[derive(Default, Deserialize)]
struct Conversation<'a> {
    #[serde(borrow)]
    conv_id: Raw<'a>,
    #[serde(borrow)]
    turns: Raw<'a>,
    /// A row of the table that the set comes in.
    #[serde(borrow)]
    extra_info: Raw<'a>,
}

#[derive(Deserialize)]
struct Extra<'a> {
    #[serde(borrow)]
    conv_id: Raw<'a>,
    /// Turns, or the text of turns.
    #[serde(borrow)]
    trace_turns: Raw<'a>,
}

#[derive(Deserialize)]
struct Step<'a> {
    #[serde(borrow)]
    input_tokens: Raw<'a>,
    #[serde(borrow)]
    output_tokens: Raw<'a>,
    #[serde(borrow)]
    pre_gap_s: Raw<'a>,
}

impl Parser for Rollout {
    fn take(&mut self, line: &str, out: &mut Out) -> Result<(), Complaint> {
        let line: &RawValue = json(line, "JSON")?;
        if line.get().starts_with('[') {
            return self.play(None, line.get(), out);
        }
        let mut conversation: Conversation = json(line.get(), "a JSON object or a list of turns")?;
        let mut unpacked = None;
        if let Some(extra) = conversation.extra_info {
            let extra: Extra = object(extra.get()).map_err(|c| c.inside("extra_info"))?;
            conversation.conv_id = conversation.conv_id.or(extra.conv_id);
            let turns = extra.trace_turns.filter(|raw| raw.get().starts_with('"'));
            unpacked = turns.map(|turns| text("extra_info.trace_turns", Some(turns))).transpose()?.flatten();
            conversation.turns = conversation.turns.or(extra.trace_turns);
        }
        let name = name(conversation.conv_id)?;
        match (unpacked.as_deref(), conversation.turns) {
            (Some(turns), _) => self.play_packed(name, turns, out),
            (None, Some(turns)) => self.play(name, turns.get(), out),
            (None, None) => Err(Complaint::new("turns", "expected a list of turns, found nothing")),
        }
    }
}

impl Rollout {
    /// Turns that were packed into a text may be a whole conversation.
    fn play_packed(&mut self, name: Option<String>, turns: &str, out: &mut Out) -> Result<(), Complaint> {
        if !turns.trim_start().starts_with('{') {
            return self.play(name, turns, out);
        }
        let inner: Conversation = object(turns).map_err(|c| c.inside("extra_info.trace_turns"))?;
        let turns = inner.turns.map(RawValue::get);
        let turns = turns.ok_or_else(|| Complaint::new("turns", "expected a list of turns, found nothing"))?;
        let inner_name = self::name(inner.conv_id)?;
        self.play(inner_name.or(name), turns, out)
    }

    /// A conversation without a name is called by its place, from 0 on. All of it is sent, or nothing.
    fn play(&mut self, name: Option<String>, turns: &str, out: &mut Out) -> Result<(), Complaint> {
        let session = self.n_conversations;
        self.n_conversations += 1;
        let seed = seed_of_name(&name.unwrap_or_else(|| session.to_string()));
        let turns: Vec<&RawValue> = json(turns, "a list of turns").map_err(|c| c.inside("turns"))?;
        if turns.is_empty() {
            return Err(Complaint::new("turns", "expected at least one turn, found none"));
        }
        let n_groups = self.groups.len() as u32;
        let mut records = Vec::with_capacity(turns.len());
        let mut arrival = Duration::ZERO;
        for (i, turn) in turns.iter().enumerate() {
            let (input, output, gap) = step(turn).map_err(|c| c.inside(&format!("turns[{i}]")))?;
            arrival = arrival.saturating_add(gap);
            let prompt = Prompt::Rows(Rows { seed, shared: input, own: seed, tokens: input });
            let number = i as u32;
            let after = if i == 0 { Vec::new() } else { vec![out.next_number() + number - 1] };
            let turn = Turn { session, number, after, gap, since: Since::End, filled_by: FilledBy::Tools };
            records.push(Record { turn: Some(turn), ..Record::new(arrival, prompt, Some(output)) });
        }
        let group = *self.groups.entry(seed).or_insert(n_groups);
        records.iter_mut().for_each(|record: &mut Record| record.group = Some(group));
        records.into_iter().for_each(|record| out.push(record));
        Ok(())
    }
}

fn step(turn: &RawValue) -> Result<(u32, u32, Duration), Complaint> {
    let step: Step = object(turn.get())?;
    let gap = match step.pre_gap_s.map(|raw| raw.get()) {
        None | Some("null") => Duration::ZERO,
        text => time("pre_gap_s", text, 1.0)?,
    };
    let input = tokens("input_tokens", step.input_tokens.map(|raw| raw.get()))?;
    let output = tokens("output_tokens", step.output_tokens.map(|raw| raw.get()))?;
    Ok((input, output, gap))
}

/// A name may be a text or a number.
fn name(raw: Raw) -> Result<Option<String>, Complaint> {
    match raw.map(RawValue::get) {
        None | Some("null") => Ok(None),
        Some(json) if json.starts_with('"') => Ok(text("conv_id", raw)?.map(|name| name.to_string())),
        Some(json) if json.starts_with(|c: char| c.is_ascii_digit()) => Ok(Some(json.to_owned())),
        json => Err(Complaint::new("conv_id", format!("expected a text or a number, found {}", found(json)))),
    }
}
