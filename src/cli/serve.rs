//! `epp` with flags only: serves. The flags are those of the picker that llm-d ships, and a few of our own.

use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{ArgAction, Parser};

use crate::config::duration::parse_duration;
use crate::telemetry::line::Format;

const DEPRECATED: &str = "Refused: configure metrics through engineConfigs";

/// What stands below the flags in the help.
const BESIDE_SERVING: &str = "\
Beside serving:
  epp check CONFIG  checks a config and prints it as it would run
  epp pick          asks a running picker, as a direct client does
  epp engine        plays engines, for trying things out without a GPU
  epp trace FILE    says what is in recorded traffic

Each has a --help of its own. A duration is written as in 50ms or 1m30s, a size as in 64Mi.";

/// Flags that are taken so that a command line from elsewhere still works.
const NO_EFFECT: &str = "Accepted, without effect here";

/// Picks an endpoint for every LLM request that Envoy, or a direct gRPC client, asks about.
#[derive(Clone, Debug, Parser)]
#[command(name = "epp", args_override_self = true, disable_version_flag = true, max_term_width = 110)]
#[command(after_help = BESIDE_SERVING)]
pub struct Args {
    /// Port of the ext_proc service.
    #[arg(long, value_name = "PORT", default_value_t = 9002)]
    pub grpc_port: i64,
    /// Port of the gRPC health service, in the clear.
    #[arg(long, value_name = "PORT", default_value_t = 9003)]
    pub grpc_health_port: i64,
    /// Port of metrics, health and debug pages over HTTP.
    #[arg(long, value_name = "PORT", default_value_t = 9090)]
    pub metrics_port: i64,
    /// Name of the pool, the label `name` of its metrics; `epp` if empty.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub pool_name: String,
    /// Namespace of the pool; else the variable NAMESPACE, else `default`. A label only.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub pool_namespace: String,
    /// API group of the pool; it matters only with Kubernetes.
    #[arg(long, value_name = "GROUP", help_heading = NO_EFFECT, default_value = "inference.networking.k8s.io")]
    pub pool_group: String,
    /// Kubernetes label selector; checked. Endpoints come from the file that the config names.
    #[arg(long, value_name = "SELECTOR", help_heading = NO_EFFECT, default_value = "", hide_default_value = true)]
    pub endpoint_selector: String,
    /// Ports that go with the selector, 1 to 8 of them; repeated or separated by commas. Checked.
    #[arg(long, help_heading = NO_EFFECT, value_name = "PORTS", value_parser = parse_ports, action = ArgAction::Append)]
    pub endpoint_target_ports: Vec<Ports>,
    /// Ignore the subset hint that Envoy sends.
    #[arg(long, value_name = "BOOL", value_parser = parse_bool, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    pub disable_endpoint_subset_filter: bool,
    /// Tell the scores of all candidates in the dynamic metadata of the answer.
    #[arg(long, value_name = "BOOL", value_parser = parse_bool, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    pub emit_endpoint_scores: bool,
    /// Answer a request with `x-llm-d-explain: 1` with the record of its decision, in metadata and a response header.
    #[arg(long, value_name = "BOOL", value_parser = parse_bool, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    pub explain_header: bool,
    /// Record what each request was decided on in this file, for `epp replay`; when it is full, it becomes FILE.1.
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    pub record: String,
    /// Most bytes of each of the two files of --record, as 64Mi or 1G.
    #[arg(long, value_name = "SIZE", default_value = "256Mi")]
    pub record_size: String,
    /// Path of the EndpointPickerConfig, YAML or JSON.
    #[arg(long, value_name = "PATH", default_value = "", hide_default_value = true)]
    pub config_file: String,
    /// The EndpointPickerConfig itself; not together with --config-file.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub config_text: String,
    /// The endpoints file of a picker without a config, which then chooses as config/default.yaml does; not together with
    /// --config-file or --config-text.
    #[arg(long, value_name = "PATH", default_value = "", hide_default_value = true)]
    pub endpoints_file: String,
    /// Allow plugins of stability Alpha.
    #[arg(long, value_name = "BOOL", value_parser = parse_bool, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    pub allow_experimental_plugins: bool,
    /// How often engines are asked for their metrics; at least 50ms.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "50ms")]
    pub refresh_metrics_interval: Duration,
    /// How often the gauges of the pool are computed.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    pub refresh_prometheus_metrics_interval: Duration,
    /// Age after which what an engine said no longer counts.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "2s")]
    pub metrics_staleness_threshold: Duration,
    /// TLS on the ext_proc port.
    #[arg(long, value_name = "BOOL", value_parser = parse_bool, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true")]
    pub secure_serving: bool,
    /// Directory of tls.crt and tls.key; if empty, a self-signed certificate is made.
    #[arg(long, value_name = "DIR", default_value = "", hide_default_value = true)]
    pub cert_path: String,
    /// Take up changes of the certificate while running.
    #[arg(long, value_name = "BOOL", value_parser = parse_bool, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    pub enable_cert_reload: bool,
    /// Least TLS version: VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13. Below 1.2 means 1.2.
    #[arg(long, value_name = "VERSION", default_value = "", hide_default_value = true)]
    pub tls_min_version: String,
    /// Cipher suites for TLS 1.2 by their IANA names, separated by commas.
    #[arg(long, value_name = "NAMES", default_value = "", hide_default_value = true, action = ArgAction::Append)]
    pub tls_cipher_suites: Vec<String>,
    /// Answer health checks on the ext_proc port, too.
    #[arg(long, value_name = "BOOL", value_parser = parse_bool, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    pub health_checking: bool,
    /// Largest gRPC message that is received, such as 10Mi; 64Mi if empty or 0.
    #[arg(long, value_name = "SIZE", default_value = "", hide_default_value = true)]
    pub grpc_max_recv_msg_size: String,
    /// Largest gRPC message that is sent, such as 10Mi; no limit if empty or 0.
    #[arg(long, value_name = "SIZE", default_value = "", hide_default_value = true)]
    pub grpc_max_send_msg_size: String,
    /// Largest request body, such as 64Mi; a longer one is answered with 413.
    #[arg(long, value_name = "SIZE", default_value = "64Mi")]
    pub max_request_body: String,
    /// What request bodies that have begun and not ended may take together; the next piece of one is answered with 429.
    #[arg(long, value_name = "SIZE", default_value = "1Gi")]
    pub max_request_bodies: String,
    /// How long a request body may take to be complete; then it is answered with 408. 0 means for ever.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5m")]
    pub request_body_timeout: Duration,
    /// Metrics about ext_proc streams.
    #[arg(long, value_name = "BOOL", value_parser = parse_bool, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    pub enable_grpc_stream_metrics: bool,
    /// The page /debug/pprof/ on the metrics port.
    #[arg(long, value_name = "BOOL", value_parser = parse_bool, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true")]
    pub enable_pprof: bool,
    /// Spans; none are exported.
    #[arg(long, help_heading = NO_EFFECT, value_name = "BOOL", value_parser = parse_bool, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true")]
    pub tracing: bool,
    /// Verbosity: up to 3 info, 4 debug, 5 and more trace.
    #[arg(short = 'v', long = "v", value_name = "N", default_value_t = 2, allow_negative_numbers = true)]
    pub verbosity: i32,
    /// Overrides -v: debug, info, error, panic, or a positive number.
    #[arg(long, value_name = "LEVEL", value_parser = zap_level)]
    pub zap_log_level: Option<String>,
    /// See --log-format.
    #[arg(long, help_heading = NO_EFFECT, value_name = "BOOL", value_parser = parse_bool, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true")]
    pub zap_devel: bool,
    /// See --log-format.
    #[arg(long, help_heading = NO_EFFECT, value_parser = PossibleValuesParser::new(["json", "console"]))]
    pub zap_encoder: Option<String>,
    /// There are no stack traces.
    #[arg(long, help_heading = NO_EFFECT, value_parser = PossibleValuesParser::new(["info", "error", "panic"]))]
    pub zap_stacktrace_level: Option<String>,
    /// Times are seconds since 1970 in JSON, and UTC in text.
    #[arg(long, help_heading = NO_EFFECT, value_parser = PossibleValuesParser::new(["epoch", "millis", "nano", "iso8601", "rfc3339", "rfc3339nano"]))]
    pub zap_time_encoding: Option<String>,
    /// How log lines look on stderr.
    #[arg(long, value_name = "json|text", default_value = "json")]
    pub log_format: Format,
    /// Metrics are open to anyone who reaches the port.
    #[arg(long, help_heading = NO_EFFECT, value_name = "BOOL", value_parser = parse_bool, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true")]
    pub metrics_endpoint_auth: bool,
    /// Directory of tls.crt and tls.key for metrics; checked. Metrics are served in the clear.
    #[arg(long, help_heading = NO_EFFECT, value_name = "DIR", default_value = "", hide_default_value = true)]
    pub metrics_cert_dir: String,
    /// CA for client certificates of metrics; checked.
    #[arg(long, help_heading = NO_EFFECT, value_name = "PATH", default_value = "", hide_default_value = true)]
    pub metrics_client_ca_file: String,
    /// There is no leader without Kubernetes.
    #[arg(long, help_heading = NO_EFFECT, value_name = "BOOL", value_parser = parse_bool, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    pub ha_enable_leader_election: bool,
    /// How long streams are served after SIGTERM; then what is still open is cut.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "30s")]
    pub drain_timeout: Duration,

    #[arg(long, hide = true, help = DEPRECATED)]
    pub total_queued_requests_metric: Option<String>,
    #[arg(long, hide = true, help = DEPRECATED)]
    pub total_running_requests_metric: Option<String>,
    #[arg(long, hide = true, help = DEPRECATED)]
    pub kv_cache_usage_percentage_metric: Option<String>,
    #[arg(long, hide = true, help = DEPRECATED)]
    pub lora_info_metric: Option<String>,
    #[arg(long, hide = true, help = DEPRECATED)]
    pub cache_info_metric: Option<String>,
    /// Ignored, as the picker that is replaced ignores them.
    #[arg(hide = true)]
    pub ignored: Vec<String>,
}

/// The ports of one occurrence of the flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports(pub Vec<i64>);

fn parse_ports(text: &str) -> Result<Ports, String> {
    let port = |part: &str| part.trim().parse().map_err(|_| format!("expected a whole number, found {part:?}"));
    text.split(',').map(port).collect::<Result<_, _>>().map(Ports)
}

fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("expected true or false".into()),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|e| e.to_string())
}

fn zap_level(text: &str) -> Result<String, String> {
    let known = matches!(text, "debug" | "info" | "error" | "panic") || text.parse::<u32>().is_ok_and(|n| n > 0);
    if known { Ok(text.to_owned()) } else { Err("expected debug, info, error, panic or a positive number".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from([&["epp"], flags].concat())
    }

    #[test]
    fn a_bare_boolean_is_true_and_takes_no_following_word() {
        let args = parse(&["--secure-serving=false", "--health-checking", "false"]).unwrap();
        assert_eq!((args.secure_serving, args.health_checking), (false, true));
        assert_eq!(args.ignored, ["false"]);
    }

    #[test]
    fn the_last_of_a_repeated_flag_wins_but_ports_add_up() {
        let args =
            parse(&["--grpc-port", "1", "--grpc-port=2", "--endpoint-target-ports=1,2", "--endpoint-target-ports=3"]);
        let args = args.unwrap();
        assert_eq!(args.grpc_port, 2);
        assert_eq!(args.endpoint_target_ports, [Ports(vec![1, 2]), Ports(vec![3])]);
    }

    #[test]
    fn the_shorthand_of_verbosity_takes_an_equals_sign() {
        assert_eq!(parse(&["-v=5"]).unwrap().verbosity, 5);
        assert_eq!(parse(&["--v", "1"]).unwrap().verbosity, 1);
    }

    #[test]
    fn malformed_values_are_refused_by_the_name_of_their_flag() {
        for flag in [
            "--grpc-port=many",
            "--drain-timeout=10",
            "--secure-serving=perhaps",
            "--endpoint-target-ports=1,x",
            "-v=much",
            "--zap-encoder=wibble",
            "--zap-log-level=0",
            "--wibble",
        ] {
            let text = parse(&[flag]).unwrap_err().to_string();
            assert!(text.contains(flag.split('=').next().unwrap()), "{flag}: {text}");
        }
    }
}
