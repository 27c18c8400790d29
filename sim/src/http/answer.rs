//! Gathers what an engine generates for a client and writes it as one reply or as a stream of events.

use serde::Serialize;

use super::ask::{Ask, Dialect};
use super::live::Piece;
use super::shapes::{
    ChatChoice, ChatDelta, ChatMessage, Chunk, Delta, FINGERPRINT, FinishReason, Generated, LENGTH, MetaInfo, OpenAi,
    PromptDetails, Sglang, TextChoice, TextDelta, TokenChoice, TokenChunk, Usage, WeightVersion,
};
use super::words::spell;

/// An answer on its way.
#[derive(Debug)]
pub(super) struct Answer {
    dialect: Dialect,
    id: String,
    model: String,
    /// Seconds since the epoch.
    created: u64,
    choices_per_prompt: usize,
    stream_usage: bool,
    choices: Vec<Choice>,
    n_done: usize,
}

#[derive(Debug)]
struct Choice {
    prompt_tokens: usize,
    cached_tokens: usize,
    tokens: Vec<u32>,
    seconds: Option<f64>,
}

impl Answer {
    /// Begins the answer to `ask`; `unique` is the part of its id that no other answer has.
    pub(super) fn new(dialect: Dialect, ask: &Ask, model: String, unique: &str, created: u64) -> Self {
        let prefix = match dialect {
            Dialect::Completions => "cmpl-",
            Dialect::Chat => "chatcmpl-",
            Dialect::VllmGenerate => "generate-tokens-",
            Dialect::SglangGenerate => "",
        };
        let choices = ask.requests.iter().map(|request| Choice {
            prompt_tokens: request.prompt.tokens(),
            cached_tokens: 0,
            tokens: Vec::new(),
            seconds: None,
        });
        Self {
            dialect,
            id: format!("{prefix}{unique}"),
            model,
            created,
            choices_per_prompt: ask.choices_per_prompt,
            stream_usage: ask.stream_usage,
            choices: choices.collect(),
            n_done: 0,
        }
    }

    /// Adds a piece; returns the choice and whether it was the choice's last token, if it was a token.
    pub(super) fn take(&mut self, piece: Piece) -> Option<(usize, bool)> {
        match piece {
            Piece::Token { choice, token, cached_tokens, last } => {
                let at = self.choices.get_mut(choice)?;
                at.cached_tokens = cached_tokens;
                at.tokens.push(token);
                Some((choice, last))
            }
            Piece::Done { choice, report } => {
                let at = self.choices.get_mut(choice)?;
                at.seconds = Some(report.total().as_secs_f64());
                self.n_done += 1;
                None
            }
        }
    }

    /// Whether every choice has all its tokens.
    pub(super) fn is_complete(&self) -> bool {
        self.n_done == self.choices.len()
    }

    /// Writes the whole answer as one JSON object.
    pub(super) fn whole(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self.dialect {
            Dialect::Completions => json(&mut out, &self.openai("text_completion", Choice::as_text)),
            Dialect::Chat => json(&mut out, &self.openai("chat.completion", Choice::as_chat)),
            Dialect::VllmGenerate => json(&mut out, &self.generated()),
            Dialect::SglangGenerate => json(&mut out, &self.sglang(0, true)),
        }
        out
    }

    /// Writes what a stream begins with.
    pub(super) fn stream_head(&self, out: &mut Vec<u8>) {
        if self.dialect == Dialect::Chat {
            for index in 0..self.choices.len() {
                let delta = Delta { role: Some("assistant"), content: String::new() };
                let (stop_reason, token_ids) = (None, None);
                let choice = ChatDelta { index, delta, logprobs: None, finish_reason: None, stop_reason, token_ids };
                let (prompt_token_ids, prompt_text) = (Some(None), Some(None));
                event(out, &Chunk { prompt_token_ids, prompt_text, ..self.chunk(&[choice]) });
            }
        }
    }

    /// Writes the event of a token that has just been taken.
    pub(super) fn stream_token(&self, out: &mut Vec<u8>, (index, last): (usize, bool)) {
        let Some(choice) = self.choices.get(index) else { return };
        let newest = choice.tokens.len().saturating_sub(1);
        let text = words(&choice.tokens[newest..]);
        let finish_reason = last.then_some(LENGTH);
        match self.dialect {
            Dialect::Completions => {
                let choice =
                    TextDelta { index, text, logprobs: None, finish_reason, stop_reason: None, token_ids: None };
                event(out, &self.chunk(&[choice]));
            }
            Dialect::Chat => {
                let delta = Delta { role: None, content: text };
                let (stop_reason, token_ids) = (last.then_some(None), Some(None));
                let choice = ChatDelta { index, delta, logprobs: None, finish_reason, stop_reason, token_ids };
                event(out, &self.chunk(&[choice]));
            }
            Dialect::VllmGenerate => {
                let mut token = choice.as_tokens(index, newest);
                token.finish_reason = finish_reason;
                self.token_chunk(out, &[token], None);
            }
            // the whole text so far, as the engine does unless told otherwise
            Dialect::SglangGenerate => event(out, &self.sglang(index, last)),
        }
    }

    /// Writes what a stream ends with.
    pub(super) fn stream_tail(&self, out: &mut Vec<u8>) {
        if self.stream_usage {
            let usage = Some(self.usage());
            match self.dialect {
                Dialect::Completions | Dialect::Chat => {
                    let system_fingerprint = Some(FINGERPRINT);
                    event(out, &Chunk { usage, system_fingerprint, ..self.chunk::<()>(&[]) });
                }
                Dialect::VllmGenerate => self.token_chunk(out, &[], usage),
                Dialect::SglangGenerate => {}
            }
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    fn usage(&self) -> Usage {
        let firsts = || self.choices.iter().step_by(self.choices_per_prompt.max(1));
        let prompt_tokens = firsts().map(|c| c.prompt_tokens).sum();
        let completion_tokens = self.choices.iter().map(|c| c.tokens.len()).sum();
        Usage {
            prompt_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            completion_tokens,
            prompt_tokens_details: PromptDetails { cached_tokens: firsts().map(|c| c.cached_tokens).sum() },
            completion_tokens_details: None,
        }
    }

    fn openai<C>(&self, object: &'static str, choice: fn(&Choice, usize) -> C) -> OpenAi<'_, C> {
        OpenAi {
            id: &self.id,
            object,
            created: self.created,
            model: &self.model,
            choices: self.choices.iter().enumerate().map(|(index, c)| choice(c, index)).collect(),
            service_tier: None,
            system_fingerprint: FINGERPRINT,
            usage: self.usage(),
            kv_transfer_params: None,
            ec_transfer_params: None,
            metrics: None,
        }
    }

    fn generated(&self) -> Generated<'_> {
        Generated {
            request_id: &self.id,
            model: &self.model,
            created: self.created,
            usage: self.usage(),
            prompt_logprobs: None,
            prompt_token_id_logprobs: None,
            prompt_token_ids: None,
            mm_placeholders: None,
            metrics: None,
            kv_transfer_params: None,
            ec_transfer_params: None,
            output_mode: "tokens",
            choices: self.choices.iter().enumerate().map(|(index, c)| c.as_tokens(index, 0)).collect(),
        }
    }

    fn sglang(&self, index: usize, finished: bool) -> Sglang<'_> {
        let choice = &self.choices[index];
        let length = choice.tokens.len();
        Sglang {
            text: words(&choice.tokens),
            output_ids: &choice.tokens,
            meta_info: MetaInfo {
                id: &self.id,
                finish_reason: finished.then_some(FinishReason { r#type: LENGTH, length }),
                prompt_tokens: choice.prompt_tokens,
                weight_version: "default",
                completion_tokens: length,
                cached_tokens: choice.cached_tokens,
                e2e_latency: choice.seconds,
            },
        }
    }

    fn chunk<'a, C>(&'a self, choices: &'a [C]) -> Chunk<'a, C> {
        let object = match self.dialect {
            Dialect::Chat => "chat.completion.chunk",
            Dialect::Completions | Dialect::VllmGenerate | Dialect::SglangGenerate => "text_completion",
        };
        Chunk {
            id: &self.id,
            object,
            created: self.created,
            model: &self.model,
            choices,
            usage: None,
            system_fingerprint: None,
            prompt_token_ids: None,
            prompt_text: None,
        }
    }

    fn token_chunk(&self, out: &mut Vec<u8>, choices: &[TokenChoice<'_>], usage: Option<Usage>) {
        let (request_id, created, model) = (self.id.as_str(), self.created, self.model.as_str());
        event(out, &TokenChunk { request_id, model, created, usage, choices });
    }
}

impl Choice {
    fn as_text(&self, index: usize) -> TextChoice {
        TextChoice {
            index,
            text: words(&self.tokens),
            logprobs: None,
            finish_reason: LENGTH,
            stop_reason: None,
            token_ids: None,
            prompt_logprobs: None,
            prompt_token_ids: None,
            routed_experts: None,
        }
    }

    fn as_chat(&self, index: usize) -> ChatChoice {
        ChatChoice {
            index,
            message: ChatMessage { role: "assistant", content: words(&self.tokens), refusal: None, tool_calls: [] },
            logprobs: None,
            finish_reason: LENGTH,
            stop_reason: None,
            token_ids: None,
        }
    }

    fn as_tokens(&self, index: usize, from: usize) -> TokenChoice<'_> {
        TokenChoice {
            index,
            finish_reason: Some(LENGTH),
            stop_reason: None,
            token_ids: &self.tokens[from..],
            routed_experts: None,
            sampling_mask: None,
            weight_versions: [WeightVersion { version: "default", start: from, end: self.tokens.len() }],
            logprobs: None,
        }
    }
}

fn words(tokens: &[u32]) -> String {
    let mut text = String::with_capacity(tokens.len() * 4);
    tokens.iter().for_each(|&token| spell(token, &mut text));
    text
}

fn json(out: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(out, value).expect("plain structs become JSON, and a vector takes every write");
}

fn event(out: &mut Vec<u8>, value: &impl Serialize) {
    out.extend_from_slice(b"data: ");
    json(out, value);
    out.extend_from_slice(b"\n\n");
}
