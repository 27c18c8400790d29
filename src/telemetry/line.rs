//! How one event becomes one line. Nothing in an event can end its line early or move a terminal's cursor.

use std::error::Error;
use std::fmt::{self, Arguments, Debug, Write};
use std::str::FromStr;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::telemetry::utc::Utc;

/// How a line is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Json,
    Text,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "json" => Ok(Self::Json),
            "text" => Ok(Self::Text),
            _ => Err(format!("expected json or text, found {text:?}")),
        }
    }
}

/// Writes events in one of the formats.
pub(super) struct Line(pub Format);

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let now = Utc::now();
        match self.0 {
            Format::Json => json(&mut to, now, event),
            Format::Text => text(&mut to, now, event),
        }
    }
}

fn json(to: &mut Writer<'_>, now: Utc, event: &Event<'_>) -> fmt::Result {
    let meta = event.metadata();
    let level = match *meta.level() {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    };
    write!(to, r#"{{"level":"{level}","ts":{}.{:06},"logger":""#, now.0.as_secs(), now.0.subsec_micros())?;
    Escaped::quoted(to).write_str(meta.target())?;
    to.write_str(r#"","caller":""#)?;
    caller(&mut Escaped::quoted(to), meta)?;
    to.write_str(r#"","msg":""#)?;
    message(&mut Escaped::quoted(to), event)?;
    to.write_char('"')?;
    fields(to, Format::Json, event)?;
    to.write_str("}\n")
}

fn text(to: &mut Writer<'_>, now: Utc, event: &Event<'_>) -> fmt::Result {
    let meta = event.metadata();
    write!(to, "{:.3} {:>5} {}: ", now, meta.level(), meta.target())?;
    message(&mut Escaped { to, quotes: false }, event)?;
    fields(to, Format::Text, event)?;
    to.write_char('\n')
}

fn caller(to: &mut impl Write, meta: &Metadata<'_>) -> fmt::Result {
    to.write_str(meta.file().unwrap_or_default())?;
    meta.line().map_or(Ok(()), |line| write!(to, ":{line}"))
}

fn message(to: &mut impl Write, event: &Event<'_>) -> fmt::Result {
    let mut message = Message { to, result: Ok(()) };
    event.record(&mut message);
    message.result
}

fn fields(to: &mut Writer<'_>, format: Format, event: &Event<'_>) -> fmt::Result {
    let mut fields = Fields { to, format, result: Ok(()) };
    event.record(&mut fields);
    fields.result
}

/// Writes text so that it stays on its line: control characters become escapes.
struct Escaped<'a, 'w> {
    to: &'a mut Writer<'w>,
    /// Whether quotes and backslashes become escapes, too, as inside a JSON string.
    quotes: bool,
}

impl<'a, 'w> Escaped<'a, 'w> {
    fn quoted(to: &'a mut Writer<'w>) -> Self {
        Self { to, quotes: true }
    }
}

impl Write for Escaped<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(|c: char| c.is_control() || self.quotes && matches!(c, '"' | '\\')) {
            let (clean, from) = rest.split_at(at);
            self.to.write_str(clean)?;
            let mut chars = from.chars();
            match chars.next() {
                Some('\n') => self.to.write_str("\\n")?,
                Some('\r') => self.to.write_str("\\r")?,
                Some('\t') => self.to.write_str("\\t")?,
                Some(c @ ('"' | '\\')) => write!(self.to, "\\{c}")?,
                Some(c) => write!(self.to, "\\u{:04x}", u32::from(c))?,
                None => {}
            }
            rest = chars.as_str();
        }
        self.to.write_str(rest)
    }
}

/// The field that holds an event's message.
const MESSAGE: &str = "message";

/// Writes the message and leaves every other field out.
struct Message<'a, W> {
    to: &'a mut W,
    result: fmt::Result,
}

impl<W: Write> Visit for Message<'_, W> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == MESSAGE {
            self.result = write!(self.to, "{value:?}");
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == MESSAGE {
            self.result = self.to.write_str(value);
        }
    }
}

/// Writes every field but the message. After a failure it writes no more.
struct Fields<'a, 'w> {
    to: &'a mut Writer<'w>,
    format: Format,
    result: fmt::Result,
}

impl Fields<'_, '_> {
    fn write(&mut self, field: &Field, value: impl FnOnce(&mut Self) -> fmt::Result) {
        if field.name() != MESSAGE && self.result.is_ok() {
            self.result = self.key(field.name()).and_then(|()| value(self));
        }
    }

    fn key(&mut self, name: &str) -> fmt::Result {
        match self.format {
            Format::Json => {
                self.to.write_str(",\"")?;
                Escaped::quoted(self.to).write_str(name)?;
                // Two keys of one name would leave it to the reader which one counts.
                let taken = matches!(name, "level" | "ts" | "logger" | "caller" | "msg");
                self.to.write_str(if taken { "_\":" } else { "\":" })
            }
            Format::Text => {
                self.to.write_char(' ')?;
                Escaped { to: self.to, quotes: false }.write_str(name)?;
                self.to.write_char('=')
            }
        }
    }

    fn string(&mut self, value: Arguments<'_>) -> fmt::Result {
        if self.format == Format::Text {
            let value = value.to_string();
            let bare = |c: char| !(c.is_whitespace() || c.is_control() || matches!(c, '"' | '\\' | '='));
            if !value.is_empty() && value.chars().all(bare) {
                return self.to.write_str(&value);
            }
        }
        self.to.write_char('"')?;
        Escaped::quoted(self.to).write_fmt(value)?;
        self.to.write_char('"')
    }
}

impl Visit for Fields<'_, '_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.write(field, |s| s.string(format_args!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.write(field, |s| s.string(format_args!("{value}")));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.write(field, |s| write!(s.to, "{value}"));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.write(field, |s| write!(s.to, "{value}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.write(field, |s| write!(s.to, "{value}"));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.write(field, |s| match value.is_finite() {
            true => write!(s.to, "{value}"),
            false => s.string(format_args!("{value}")),
        });
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.write(field, |s| s.string(format_args!("{}", WithCauses(value))));
    }
}

/// An error, then what caused it, then what caused that.
struct WithCauses<'a>(&'a (dyn Error + 'static));

impl fmt::Display for WithCauses<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
