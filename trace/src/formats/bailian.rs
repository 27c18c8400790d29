//! Qwen-Bailian: chats that name the chat they go on from, prompts as ids of blocks of 16 tokens.

use std::collections::HashMap;
use std::time::Duration;

use serde::Deserialize;

use super::{Out, Parser};
use crate::bad::Complaint;
use crate::field::{Raw, block_ids, id, object, time, tokens};
use crate::prompt::{OWN, Prompt, n_blocks, push_run};
use crate::record::{FilledBy, Record, Since, Turn};

const BLOCK_TOKENS: u32 = 16;

#[derive(Default)]
pub struct Bailian {
    chats: HashMap<i64, Chat>,
    n_sessions: u32,
    n_own: u64,
}

/// What a later chat may go on from.
#[derive(Clone, Copy)]
struct Chat {
    session: u32,
    turn: u32,
    record: u32,
    arrival: Duration,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    chat_id: Raw<'a>,
    #[serde(borrow)]
    parent_chat_id: Raw<'a>,
    #[serde(borrow)]
    timestamp: Raw<'a>,
    #[serde(borrow)]
    input_length: Raw<'a>,
    #[serde(borrow)]
    output_length: Raw<'a>,
    #[serde(borrow)]
    hash_ids: Raw<'a>,
}

impl Parser for Bailian {
    fn take(&mut self, text: &str, out: &mut Out) -> Result<(), Complaint> {
        let line: Line = object(text)?;
        let chat = id("chat_id", line.chat_id.map(|raw| raw.get()))?;
        let parent = match line.parent_chat_id {
            None => -1,
            Some(raw) => id("parent_chat_id", Some(raw.get()))?,
        };
        let arrival = time("timestamp", line.timestamp.map(|raw| raw.get()), 1.0)?;
        let input = tokens("input_length", line.input_length.map(|raw| raw.get()))?;
        let output = tokens("output_length", line.output_length.map(|raw| raw.get()))?;
        let prompt = self.prompt(line.hash_ids, input)?;
        let turn = self.turn(chat, parent, arrival, out.next_number());
        out.push(Record { turn: Some(turn), ..Record::new(arrival, prompt, Some(output)) });
        Ok(())
    }
}

impl Bailian {
    /// Blocks that have no id, because only whole ones were hashed, belong to this prompt alone.
    fn prompt(&mut self, hash_ids: Raw, input: u32) -> Result<Prompt, Complaint> {
        let mut runs = block_ids("hash_ids", hash_ids, OWN)?;
        let (most, found) = (u64::from(input.div_ceil(BLOCK_TOKENS)), n_blocks(&runs));
        if found > most {
            let what =
                format!("expected at most {most} blocks of {BLOCK_TOKENS} for input_length {input}, found {found}");
            return Err(Complaint::new("hash_ids", what));
        }
        let n_own = (most - found) as u32;
        push_run(&mut runs, OWN + self.n_own, n_own);
        self.n_own += u64::from(n_own);
        Ok(Prompt::Blocks { runs, block_tokens: BLOCK_TOKENS, tokens: input })
    }

    /// A chat whose parent is not in the trace begins a session.
    fn turn(&mut self, chat: i64, parent: i64, arrival: Duration, record: u32) -> Turn {
        let turn = match self.chats.get(&parent) {
            Some(parent) => Turn {
                session: parent.session,
                number: parent.turn.saturating_add(1),
                after: vec![parent.record],
                gap: arrival.saturating_sub(parent.arrival),
                since: Since::Start,
                filled_by: FilledBy::Unknown,
            },
            None => {
                self.n_sessions += 1;
                Turn::first(self.n_sessions - 1)
            }
        };
        self.chats.insert(chat, Chat { session: turn.session, turn: turn.number, record, arrival });
        turn
    }
}
