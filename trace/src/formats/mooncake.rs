//! Mooncake: one JSON object a line, prompts as ids of blocks of 512 tokens.

use serde::Deserialize;

use super::{Out, Parser};
use crate::bad::Complaint;
use crate::field::{Raw, block_ids, object, time, tokens};
use crate::prompt::{OWN, Prompt, n_blocks};
use crate::record::Record;

const BLOCK_TOKENS: u32 = 512;

pub struct Mooncake;

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    timestamp: Raw<'a>,
    #[serde(borrow)]
    input_length: Raw<'a>,
    #[serde(borrow)]
    output_length: Raw<'a>,
    #[serde(borrow)]
    hash_ids: Raw<'a>,
}

impl Parser for Mooncake {
    fn take(&mut self, text: &str, out: &mut Out) -> Result<(), Complaint> {
        let line: Line = object(text)?;
        let arrival = time("timestamp", line.timestamp.map(|raw| raw.get()), 1000.0)?;
        let input = tokens("input_length", line.input_length.map(|raw| raw.get()))?;
        let output = tokens("output_length", line.output_length.map(|raw| raw.get()))?;
        let runs = block_ids("hash_ids", line.hash_ids, OWN)?;
        let (want, found) = (u64::from(input.div_ceil(BLOCK_TOKENS)), n_blocks(&runs));
        if want != found {
            let what = format!("expected {want} blocks of {BLOCK_TOKENS} for input_length {input}, found {found}");
            return Err(Complaint::new("hash_ids", what));
        }
        let prompt = Prompt::Blocks { runs, block_tokens: BLOCK_TOKENS, tokens: input };
        out.push(Record::new(arrival, prompt, Some(output)));
        Ok(())
    }
}
