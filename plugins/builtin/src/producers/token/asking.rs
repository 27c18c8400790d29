//! The backends that must be asked: what was answered before is remembered, the rest is asked before the pick.

use std::sync::Arc;

use epp_plugin_api::{
    Answers, Attribute, BuildContext, BuildError, Candidates, Columns, Cycle, InferenceRequest, Piece, Producer,
    Question, Remote, RequestKey,
};

use super::cache::{Key, Prompts};
use super::config::{Engine, Local};
use super::engine::Asked;
#[cfg(feature = "tokenizers")]
use super::local::Model;
use super::rendered::Rendered;
use super::{has_prompt, pack};
use crate::attributes::TokenizedPrompt;

/// Gets tokens from whom it asks.
pub struct Asking {
    whom: Whom,
    known: Arc<Prompts>,
    prompt: RequestKey<TokenizedPrompt>,
    pending: RequestKey<Pending>,
}

enum Whom {
    Engine(Engine),
    #[cfg(feature = "tokenizers")]
    Local(Model),
}

/// What is asked for the request, from before the answer to after it.
#[derive(Clone, Debug, Default)]
struct Pending(Option<(Key, Asked)>);

impl Attribute for Pending {
    const NAME: &'static str = "PendingPrompt";
    const DEFAULT_PRODUCER: Option<&'static str> = None;
}

impl Asking {
    /// Asks an engine.
    pub fn engine(engine: Engine, cx: &mut BuildContext<'_>) -> Self {
        let known = Arc::new(Prompts::new(engine.cache));
        Self::new(Whom::Engine(engine), known, cx)
    }

    /// Asks a tokenizer in this process.
    ///
    /// # Errors
    /// If it cannot be read.
    #[cfg(feature = "tokenizers")]
    pub fn local(local: &Local, cx: &mut BuildContext<'_>) -> Result<Self, BuildError> {
        let known = Arc::new(Prompts::new(local.cache));
        Ok(Self::new(Whom::Local(Model::load(local, known.clone())?), known, cx))
    }

    /// Says how to get a build that has tokenizers.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(feature = "tokenizers"))]
    pub fn local(_: &Local, _: &mut BuildContext<'_>) -> Result<Self, BuildError> {
        let message =
            "this build has no tokenizers; one that has is made by `cargo build --release --features tokenizers`";
        Err(BuildError::at("local", message))
    }

    fn new(whom: Whom, known: Arc<Prompts>, cx: &mut BuildContext<'_>) -> Self {
        // Nobody else reads what is pending, so it is not declared.
        let pending = cx.slots.request(cx.name);
        Self { whom, known, prompt: cx.writes_request(), pending }
    }

    fn asked(&self, request: &InferenceRequest) -> Result<Asked, String> {
        match &self.whom {
            Whom::Engine(engine) => engine.asked(request),
            #[cfg(feature = "tokenizers")]
            Whom::Local(_) => Model::asked(request),
        }
    }

    fn read(&self, asked: &Asked, answer: &[u8]) -> Result<Rendered, String> {
        match &self.whom {
            Whom::Engine(_) => asked.read(answer),
            #[cfg(feature = "tokenizers")]
            Whom::Local(_) => Rendered::of_frame(answer),
        }
    }
}

impl Producer for Asking {
    fn produce(&self, cx: &Cycle<'_>, columns: &mut Columns) -> Result<(), String> {
        let parsed = &cx.request.parsed;
        if !has_prompt(parsed) {
            return Ok(());
        }
        if parsed.pieces.iter().all(|piece| matches!(piece, Piece::Ids { .. } | Piece::NextPrompt)) {
            let prompt = columns.write_request(self.prompt);
            prompt.clear();
            pack::pack_ids(cx.request, prompt);
            return Ok(());
        }
        let asked = self.asked(cx.request)?;
        let key = asked.key();
        match self.known.find(key) {
            Some(known) => known.fill(columns.write_request(self.prompt)),
            None => columns.write_request(self.pending).0 = Some((key, asked)),
        }
        Ok(())
    }
}

impl Remote for Asking {
    fn ask(&self, cx: &Cycle<'_>, columns: &Columns, _among: &Candidates) -> Vec<Question> {
        let pending = columns.read_request(self.pending).and_then(|pending| pending.0.as_ref());
        let Some((_key, asked)) = pending else { return Vec::new() };
        vec![match &self.whom {
            Whom::Engine(engine) => Question::Call(engine.call(asked, &cx.request.headers)),
            #[cfg(feature = "tokenizers")]
            Whom::Local(model) => Question::Job(model.job(*_key, asked)),
        }]
    }

    fn answered(
        &self,
        _cx: &Cycle<'_>,
        columns: &mut Columns,
        _among: &Candidates,
        answers: Answers<'_>,
    ) -> Result<(), String> {
        let Some((key, asked)) = columns.write_request(self.pending).0.take() else { return Ok(()) };
        let [answer] = answers.bodies else { return Err("expected one answer, found another number".into()) };
        let answer = answer.clone()?;
        // Of requests that waited for the same answer, the first has read it.
        let rendered = match self.known.find(key) {
            Some(known) => known,
            None => Arc::new(self.read(&asked, answer)?),
        };
        if !rendered.is_empty() {
            rendered.fill(columns.write_request(self.prompt));
            self.known.insert(key, rendered);
        }
        Ok(())
    }
}
