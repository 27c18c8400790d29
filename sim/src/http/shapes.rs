//! The JSON of answers, field for field as the engines write it. What is not known here is null.

use serde::Serialize;

/// A field that is always null.
pub(super) type Null = Option<()>;

pub(super) const FINGERPRINT: &str = "vllm-0.32.0-0a38c960";
pub(super) const LENGTH: &str = "length";

#[derive(Serialize)]
pub(super) struct Usage {
    pub(super) prompt_tokens: usize,
    pub(super) total_tokens: usize,
    pub(super) completion_tokens: usize,
    pub(super) prompt_tokens_details: PromptDetails,
    pub(super) completion_tokens_details: Null,
}

#[derive(Serialize)]
pub(super) struct PromptDetails {
    pub(super) cached_tokens: usize,
}

#[derive(Serialize)]
pub(super) struct OpenAi<'a, C> {
    pub(super) id: &'a str,
    pub(super) object: &'a str,
    pub(super) created: u64,
    pub(super) model: &'a str,
    pub(super) choices: Vec<C>,
    pub(super) service_tier: Null,
    pub(super) system_fingerprint: &'a str,
    pub(super) usage: Usage,
    pub(super) kv_transfer_params: Null,
    pub(super) ec_transfer_params: Null,
    pub(super) metrics: Null,
}

#[derive(Serialize)]
pub(super) struct TextChoice {
    pub(super) index: usize,
    pub(super) text: String,
    pub(super) logprobs: Null,
    pub(super) finish_reason: &'static str,
    pub(super) stop_reason: Null,
    pub(super) token_ids: Null,
    pub(super) prompt_logprobs: Null,
    pub(super) prompt_token_ids: Null,
    pub(super) routed_experts: Null,
}

#[derive(Serialize)]
pub(super) struct ChatChoice {
    pub(super) index: usize,
    pub(super) message: ChatMessage,
    pub(super) logprobs: Null,
    pub(super) finish_reason: &'static str,
    pub(super) stop_reason: Null,
    pub(super) token_ids: Null,
}

#[derive(Serialize)]
pub(super) struct ChatMessage {
    pub(super) role: &'static str,
    pub(super) content: String,
    pub(super) refusal: Null,
    pub(super) tool_calls: [(); 0],
}

#[derive(Serialize)]
pub(super) struct Chunk<'a, C> {
    pub(super) id: &'a str,
    pub(super) object: &'a str,
    pub(super) created: u64,
    pub(super) model: &'a str,
    pub(super) choices: &'a [C],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) system_fingerprint: Option<&'a str>,
    /// There, as null, in the first chunk of a chat only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_token_ids: Option<Null>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_text: Option<Null>,
}

#[derive(Serialize)]
pub(super) struct TextDelta {
    pub(super) index: usize,
    pub(super) text: String,
    pub(super) logprobs: Null,
    pub(super) finish_reason: Option<&'static str>,
    pub(super) stop_reason: Null,
    pub(super) token_ids: Null,
}

#[derive(Serialize)]
pub(super) struct ChatDelta {
    pub(super) index: usize,
    pub(super) delta: Delta,
    pub(super) logprobs: Null,
    pub(super) finish_reason: Option<&'static str>,
    /// There, as null, with a finish reason only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stop_reason: Option<Null>,
    /// There, as null, from the second chunk on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) token_ids: Option<Null>,
}

#[derive(Serialize)]
pub(super) struct Delta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) role: Option<&'static str>,
    pub(super) content: String,
}

#[derive(Serialize)]
pub(super) struct Generated<'a> {
    pub(super) request_id: &'a str,
    pub(super) model: &'a str,
    pub(super) created: u64,
    pub(super) usage: Usage,
    pub(super) prompt_logprobs: Null,
    pub(super) prompt_token_id_logprobs: Null,
    pub(super) prompt_token_ids: Null,
    pub(super) mm_placeholders: Null,
    pub(super) metrics: Null,
    pub(super) kv_transfer_params: Null,
    pub(super) ec_transfer_params: Null,
    pub(super) output_mode: &'static str,
    pub(super) choices: Vec<TokenChoice<'a>>,
}

#[derive(Serialize)]
pub(super) struct TokenChoice<'a> {
    pub(super) index: usize,
    pub(super) finish_reason: Option<&'static str>,
    pub(super) stop_reason: Null,
    pub(super) token_ids: &'a [u32],
    pub(super) routed_experts: Null,
    pub(super) sampling_mask: Null,
    pub(super) weight_versions: [WeightVersion; 1],
    pub(super) logprobs: Null,
}

#[derive(Serialize)]
pub(super) struct WeightVersion {
    pub(super) version: &'static str,
    pub(super) start: usize,
    pub(super) end: usize,
}

#[derive(Serialize)]
pub(super) struct TokenChunk<'a> {
    pub(super) request_id: &'a str,
    pub(super) model: &'a str,
    pub(super) created: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usage: Option<Usage>,
    pub(super) choices: &'a [TokenChoice<'a>],
}

#[derive(Serialize)]
pub(super) struct Sglang<'a> {
    pub(super) text: String,
    pub(super) output_ids: &'a [u32],
    pub(super) meta_info: MetaInfo<'a>,
}

#[derive(Serialize)]
pub(super) struct MetaInfo<'a> {
    pub(super) id: &'a str,
    pub(super) finish_reason: Option<FinishReason>,
    pub(super) prompt_tokens: usize,
    pub(super) weight_version: &'static str,
    pub(super) completion_tokens: usize,
    pub(super) cached_tokens: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) e2e_latency: Option<f64>,
}

#[derive(Serialize)]
pub(super) struct FinishReason {
    pub(super) r#type: &'static str,
    pub(super) length: usize,
}

#[derive(Serialize)]
pub(super) struct ErrorBody<'a> {
    pub(super) error: ErrorInfo<'a>,
}

#[derive(Serialize)]
pub(super) struct ErrorInfo<'a> {
    pub(super) message: &'a str,
    pub(super) r#type: &'a str,
    pub(super) param: Null,
    pub(super) code: u16,
}

#[derive(Serialize)]
pub(super) struct ModelList<'a> {
    pub(super) object: &'static str,
    pub(super) data: [ModelCard<'a>; 1],
}

#[derive(Serialize)]
pub(super) struct ModelCard<'a> {
    pub(super) id: &'a str,
    pub(super) object: &'static str,
    pub(super) created: u64,
    pub(super) owned_by: &'static str,
    pub(super) root: &'a str,
    pub(super) parent: Null,
    pub(super) max_model_len: usize,
}
