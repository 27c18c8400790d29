//! Fills in chat templates as the engines do, which have them from Hugging Face: Jinja with some methods of Python.

use std::collections::BTreeMap;
use std::time::SystemTime;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, Value, context};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::chat::{Chat, Contents, shown};
use super::python;

/// So many steps a template may take, so that one that runs in circles comes to an end.
const MOST_STEPS: u64 = 20_000_000;
/// The template for chats that no other is for.
pub const DEFAULT: &str = "default";
/// The template for chats with tools, if there is one of this name.
const WITH_TOOLS: &str = "tool_use";

/// The chat templates of a model.
pub struct Template {
    environment: Environment<'static>,
    /// The names of the templates, and how each takes contents.
    contents: BTreeMap<String, Contents>,
    /// What templates know beside the chat: special tokens.
    special: BTreeMap<String, Value>,
}

impl Template {
    /// Makes ready to fill in one of these, by name.
    ///
    /// # Errors
    /// If the grammar of one is broken, with its line.
    pub fn new(sources: BTreeMap<String, String>, special: BTreeMap<String, Value>) -> Result<Self, String> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|e| e.to_string())?);
        environment.set_fuel(Some(MOST_STEPS));
        environment.set_unknown_method_callback(unknown_method_callback);
        environment.add_function("raise_exception", |why: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, why))
        });
        environment.add_filter("tojson", python::to_json);
        let contents = sources.iter().map(|(name, source)| (name.clone(), Contents::of(source))).collect();
        for (name, source) in sources {
            environment.add_template_owned(name, source).map_err(|e| format!("expected a chat template, found {e}"))?;
        }
        Ok(Self { environment, contents, special })
    }

    /// The prompt of a chat.
    ///
    /// # Errors
    /// If the template fails or takes too long. Says nothing of the chat.
    pub fn render(&self, chat: Chat, now: SystemTime) -> Result<String, String> {
        if chat.continue_final_message {
            return Err("expected a chat that begins a message, found one that goes on with its last".into());
        }
        let has_tools = chat.tools.as_ref().is_some_and(|tools| tools.len().unwrap_or(0) > 0);
        let name = if has_tools && self.contents.contains_key(WITH_TOOLS) { WITH_TOOLS } else { DEFAULT };
        let contents = *self.contents.get(name).ok_or("expected a chat template named default, found others")?;
        let messages = chat.messages.into_iter().map(|message| shown(message, contents));
        let messages = messages.collect::<Result<Vec<Value>, String>>()?;
        let strftime_now = Value::from_function(move |format: &str| python::strftime(now, format));
        let own = context! {
            messages,
            tools => chat.tools.filter(|_| has_tools).unwrap_or(Value::from(())),
            documents => chat.documents.unwrap_or(Value::from(())),
            add_generation_prompt => chat.add_generation_prompt,
            strftime_now,
        };
        let given = Value::from(chat.chat_template_kwargs.unwrap_or_default());
        let all = context! { ..given, ..own, ..Value::from(self.special.clone()) };
        let failed = |e: Error| format!("the chat template fails at line {}: {}", e.line().unwrap_or(0), e.kind());
        self.environment.get_template(name).and_then(|template| template.render(all)).map_err(failed)
    }
}

#[cfg(test)]
#[path = "template_tests.rs"]
mod tests;
