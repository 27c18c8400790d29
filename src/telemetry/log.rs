//! The log: one line an event on stderr, as JSON for machines or as text for people.

use std::any::Any;
use std::panic::PanicHookInfo;
use std::str::FromStr;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Registry, fmt};

use crate::telemetry::line::{Format, Line};

/// How much is logged; each includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    Nothing,
    /// What a person must act on.
    Errors,
    /// Start, stop, reload, and what was coped with.
    #[default]
    Info,
    /// One line a request.
    Debug,
    /// What happens inside.
    Trace,
    /// Also what the libraries say, down to single HTTP/2 frames.
    Libraries,
}

impl Detail {
    /// Reads a number as `-v` takes it; below 0 counts as not given.
    pub fn from_verbosity(v: i64) -> Self {
        match v {
            ..=3 => Self::Info,
            4 => Self::Debug,
            5 => Self::Trace,
            6.. => Self::Libraries,
        }
    }

    fn filter(self) -> Targets {
        let level = match self {
            Self::Nothing => LevelFilter::OFF,
            Self::Errors => LevelFilter::ERROR,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
            Self::Trace | Self::Libraries => LevelFilter::TRACE,
        };
        // Libraries say at any level what came over the wire, so they are heard only when asked for.
        let others = if self == Self::Libraries { LevelFilter::TRACE } else { LevelFilter::OFF };
        Targets::new().with_default(others).with_target("epp", level)
    }
}

impl FromStr for Detail {
    type Err = String;

    /// Reads a level as `--zap-log-level` takes it.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "debug" => return Ok(Self::Debug),
            "info" => return Ok(Self::Info),
            "error" => return Ok(Self::Errors),
            "panic" => return Ok(Self::Nothing),
            _ => {}
        }
        match text.parse::<i64>() {
            Ok(v @ 1..) => Ok(Self::from_verbosity(v)),
            _ => Err(format!("expected debug, info, error, panic or an integer above 0, found {text:?}")),
        }
    }
}

/// Logs to stderr from now on, panics too. The first call decides; later ones change nothing.
pub fn init(format: Format, detail: Detail) {
    if tracing::subscriber::set_global_default(subscriber(format, detail, std::io::stderr)).is_ok() {
        std::panic::set_hook(Box::new(log_panic));
    }
}

fn subscriber<W>(format: Format, detail: Detail, to: W) -> impl tracing::Subscriber + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    // A line that cannot be written is lost: there is nowhere left to complain.
    let lines = fmt::layer().event_format(Line(format)).with_writer(to).log_internal_errors(false);
    Registry::default().with(detail.filter()).with(lines)
}

/// Says where a panic was. What it says itself may quote a request, unless it is a fixed text.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let fixed = fixed_text(panic.payload()).unwrap_or("a text that is made up at run time");
    tracing::error!(place, reason = fixed, "a task panicked");
    if let Some(made_up) = panic.payload().downcast_ref::<String>() {
        tracing::debug!(place, reason = made_up, "a task panicked");
    }
}

fn fixed_text(payload: &dyn Any) -> Option<&'static str> {
    payload.downcast_ref::<&'static str>().copied()
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing::subscriber::with_default;

    use super::*;

    /// Keeps what is logged.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: Format, detail: Detail, events: impl FnOnce()) -> String {
        let kept = Kept::default();
        let to = kept.clone();
        with_default(subscriber(format, detail, move || to.clone()), events);
        let bytes = kept.0.lock().clone();
        String::from_utf8(bytes).expect("lines are made of strings")
    }

    fn json(events: impl FnOnce()) -> serde_json::Value {
        let line = logged(Format::Json, Detail::Trace, events);
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        serde_json::from_str(&line).expect("a line is a JSON object")
    }

    #[test]
    fn a_line_starts_with_level_and_time_and_keeps_the_types_of_fields() {
        let line = logged(
            Format::Json,
            Detail::Info,
            || tracing::info!(port = 9002, ratio = 0.5, ok = true, name = "a", shown = ?Some(1), "listening"),
        );
        assert!(line.starts_with(r#"{"level":"info","ts":"#), "{line}");
        assert!(
            line.ends_with(
                "\"msg\":\"listening\",\"port\":9002,\"ratio\":0.5,\"ok\":true,\"name\":\"a\",\"shown\":\"Some(1)\"}\n"
            ),
            "{line}"
        );
        let value: serde_json::Value = serde_json::from_str(&line).expect("a line is a JSON object");
        assert!(value["ts"].as_f64().is_some_and(|ts| ts > 1.7e9), "{line}");
        assert_eq!(value["logger"], "epp::telemetry::log::tests");
        assert!(value["caller"].as_str().is_some_and(|c| c.starts_with("src/telemetry/log.rs:")), "{line}");
    }

    #[test]
    fn each_level_has_its_name() {
        let lines = logged(Format::Json, Detail::Trace, || {
            tracing::error!("e");
            tracing::warn!("w");
            tracing::info!("i");
            tracing::debug!("d");
            tracing::trace!("t");
        });
        let levels: Vec<_> = lines.lines().map(|l| &l[..l.find(",\"ts\"").unwrap_or(0)]).collect();
        assert_eq!(
            levels,
            [
                "{\"level\":\"error\"",
                "{\"level\":\"warn\"",
                "{\"level\":\"info\"",
                "{\"level\":\"debug\"",
                "{\"level\":\"trace\""
            ]
        );
    }

    #[test]
    fn control_characters_cannot_break_a_line() {
        let evil = "a\n{\"level\":\"info\"}\r\u{1b}[31m\u{9b}\u{7f}\"\\\t\0é";
        assert_eq!(json(|| tracing::info!(evil, "x\ny"))["evil"], evil);
        assert_eq!(json(|| tracing::info!("x\ny"))["msg"], "x\ny");
        for format in [Format::Json, Format::Text] {
            let line = logged(format, Detail::Info, || tracing::info!(evil, "{evil}"));
            assert_eq!(line.chars().filter(|c| c.is_control()).collect::<String>(), "\n", "{line:?}");
            assert!(line.contains('é'), "{line:?}");
        }
    }

    #[test]
    fn numbers_that_json_has_not_are_words() {
        let line = json(|| tracing::info!(a = f64::NAN, b = f64::INFINITY, c = u64::MAX, d = i64::MIN, "m"));
        assert_eq!((line["a"].as_str(), line["b"].as_str()), (Some("NaN"), Some("inf")));
        assert_eq!((line["c"].as_u64(), line["d"].as_i64()), (Some(u64::MAX), Some(i64::MIN)));
    }

    #[test]
    fn a_field_cannot_take_the_place_of_a_fixed_key() {
        let line = json(|| tracing::info!(level = "x", msg = "y", "m"));
        assert_eq!((&line["level"], &line["msg"]), (&"info".into(), &"m".into()));
        assert_eq!((&line["level_"], &line["msg_"]), (&"x".into(), &"y".into()));
    }

    #[test]
    fn an_error_is_written_with_its_causes() {
        let inner = io::Error::other("disk gone");
        let outer = Outer(inner);
        let line = json(|| tracing::warn!(error = &outer as &dyn std::error::Error, "m"));
        assert_eq!(line["error"], "cannot read: disk gone");
    }

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read")]
    struct Outer(#[source] io::Error);

    #[test]
    fn text_is_one_readable_line() {
        let line = logged(Format::Text, Detail::Info, || tracing::info!(port = 1, name = "a b", "listening on"));
        let (time, rest) = line.split_once(' ').expect("time and the rest");
        assert!(time.ends_with('Z') && time.contains('T'), "{line}");
        assert_eq!(rest, " INFO epp::telemetry::log::tests: listening on port=1 name=\"a b\"\n");
    }

    #[test]
    fn detail_decides_which_lines_there_are() {
        let all = || {
            tracing::error!("e");
            tracing::info!("i");
            tracing::debug!("d");
            tracing::trace!("t");
            tracing::error!(target: "h2::codec", "library");
            tracing::trace!(target: "hyper", "library");
        };
        for (detail, lines) in [
            (Detail::Nothing, 0),
            (Detail::Errors, 1),
            (Detail::Info, 2),
            (Detail::Debug, 3),
            (Detail::Trace, 4),
            (Detail::Libraries, 6),
        ] {
            assert_eq!(logged(Format::Json, detail, all).lines().count(), lines, "{detail:?}");
        }
    }

    #[test]
    fn other_crates_of_this_project_are_heard() {
        let events = || tracing::info!(target: "epp_plugins::scorers", "m");
        assert_eq!(logged(Format::Json, Detail::Info, events).lines().count(), 1);
    }

    #[test]
    fn verbosity_and_level_names_are_read() {
        for (v, detail) in [
            (-1, Detail::Info),
            (0, Detail::Info),
            (3, Detail::Info),
            (4, Detail::Debug),
            (5, Detail::Trace),
            (6, Detail::Libraries),
            (1000, Detail::Libraries),
        ] {
            assert_eq!(Detail::from_verbosity(v), detail, "{v}");
        }
        for (text, detail) in [
            ("debug", Some(Detail::Debug)),
            ("INFO", Some(Detail::Info)),
            ("error", Some(Detail::Errors)),
            ("panic", Some(Detail::Nothing)),
            ("1", Some(Detail::Info)),
            ("5", Some(Detail::Trace)),
            ("0", None),
            ("-1", None),
            ("wibble", None),
            ("", None),
        ] {
            assert_eq!(text.parse::<Detail>().ok(), detail, "{text:?}");
        }
    }

    /// Takes nothing, as a closed pipe does.
    struct Broken;

    impl io::Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_that_cannot_be_written_is_lost_and_nothing_else() {
        let mut went_on = false;
        with_default(subscriber(Format::Json, Detail::Info, || Broken), || {
            tracing::error!("m");
            went_on = true;
        });
        assert!(went_on);
    }

    #[test]
    fn a_panic_quotes_only_fixed_texts() {
        assert_eq!(fixed_text(&"a fixed text"), Some("a fixed text"));
        assert_eq!(fixed_text(&String::from("quotes a prompt")), None);
    }
}
