//! What the metrics port serves: the page of metrics, whether the process lives and is ready, and pages that say why it
//! does what it does.

mod debug;

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use epp_plugin_api::MetricHub;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use crate::telemetry::exposition::{Format, page};

pub use debug::{ConfigState, PluginState};

/// How many pages are written at once; later readers wait for a turn. A page can be tens of megabytes long.
const PAGES_AT_ONCE: usize = 2;

/// Where the pages get what they show. Asked anew for each page, off the threads that serve requests.
#[derive(Clone)]
pub struct Sources {
    pub metrics: Arc<MetricHub>,
    /// Whether requests can be served; false while starting and while draining.
    pub ready: watch::Receiver<bool>,
    /// Every endpoint that is known or was left out, and why.
    pub endpoints: Arc<dyn Fn() -> serde_json::Value + Send + Sync>,
    /// The last decisions, at most so many, newest first.
    pub decisions: Arc<dyn Fn(usize) -> serde_json::Value + Send + Sync>,
    /// Who waits, and why; null while requests do not wait.
    pub flow: Arc<dyn Fn() -> serde_json::Value + Send + Sync>,
    pub config: Arc<dyn Fn() -> ConfigState + Send + Sync>,
    /// Every plugin instance of the current generation.
    pub plugins: Arc<dyn Fn() -> Vec<PluginState> + Send + Sync>,
    /// How it stands with what engines publish of their KV caches, one entry a subscription.
    pub kv: Arc<dyn Fn() -> serde_json::Value + Send + Sync>,
    /// Every plugin instance that wants to hear it.
    pub kv_producers: Arc<dyn Fn() -> Vec<PluginState> + Send + Sync>,
    /// What engines reported as cached, beside what was believed.
    pub truth: Arc<dyn Fn() -> serde_json::Value + Send + Sync>,
    /// Whether `/debug/pprof/` is there.
    pub pprof: bool,
}

/// What the handlers share.
struct Shared {
    sources: Sources,
    turns: Arc<Semaphore>,
}

/// Makes the routes. Any path that is not one of them is not found.
pub fn router(sources: Sources) -> Router {
    let mut router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/debug/endpoints", get(debug::endpoints))
        .route("/debug/decisions", get(debug::decisions))
        .route("/debug/flow", get(debug::flow))
        .route("/debug/config", get(debug::config))
        .route("/debug/kv", get(debug::kv))
        .route("/debug/plugins/state", get(debug::plugins).head(debug::only_get).fallback(debug::only_get));
    if sources.pprof {
        router = router.route("/debug/pprof/", get(debug::pprof));
    }
    let not_found = || async { (StatusCode::NOT_FOUND, "404 page not found\n") };
    router.fallback(not_found).with_state(Arc::new(Shared { sources, turns: Arc::new(Semaphore::new(PAGES_AT_ONCE)) }))
}

/// Serves the routes until `shutdown` ends and the answers that are under way are out.
///
/// # Errors
/// If the listener breaks.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    axum::serve(listener, router).with_graceful_shutdown(shutdown).await
}

/// Runs what may take long where it holds up no request, one of a few at a time.
async fn take_turn<T: Send + 'static>(
    shared: Arc<Shared>,
    work: impl FnOnce(&Sources) -> T + Send + 'static,
) -> Result<T, Response> {
    let failed = |_| (StatusCode::INTERNAL_SERVER_ERROR, "the page could not be written\n").into_response();
    let turn = shared.turns.clone().acquire_owned().await.expect("nobody closes the semaphore");
    let work = move || {
        // The work goes on when the reader leaves, so it keeps its turn to itself.
        let _turn = turn;
        work(&shared.sources)
    };
    tokio::task::spawn_blocking(work).await.map_err(failed)
}

async fn metrics(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Result<Response, Response> {
    let accept = headers.get_all(header::ACCEPT).into_iter().filter_map(|v| v.to_str().ok());
    let format = Format::accepted(accept);
    let text = take_turn(shared, move |sources| page(&sources.metrics, format)).await?;
    Ok(match text {
        Ok(text) => ([(header::CONTENT_TYPE, format.content_type())], text).into_response(),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "a collector could not tell its values\n").into_response(),
    })
}

async fn ready(State(shared): State<Arc<Shared>>) -> (StatusCode, &'static str) {
    if *shared.sources.ready.borrow() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::sync::oneshot;

    use super::*;
    use crate::telemetry::process;

    fn sources(ready: bool, pprof: bool) -> Sources {
        let metrics = Arc::new(MetricHub::default());
        process::register(&metrics);
        // The receiver keeps the last value when the sender is gone.
        let (_, ready) = watch::channel(ready);
        let told = || Some(Arc::new(|| r#"{"n":1}"#.to_owned()) as Arc<dyn Fn() -> String + Send + Sync>);
        let broken = || Some(Arc::new(|| "{\"x\":NaN}".to_owned()) as Arc<dyn Fn() -> String + Send + Sync>);
        let empty = || Some(Arc::new(String::new) as Arc<dyn Fn() -> String + Send + Sync>);
        let long =
            || Some(Arc::new(|| format!("\"{}\"", "x".repeat(2 << 20))) as Arc<dyn Fn() -> String + Send + Sync>);
        Sources {
            metrics,
            ready,
            endpoints: Arc::new(|| serde_json::json!([{"name": "e1"}])),
            decisions: Arc::new(|n| serde_json::json!([n])),
            flow: Arc::new(|| serde_json::json!({"requests": 2})),
            config: Arc::new(|| ConfigState {
                effective: "plugins: []\n".into(),
                generation: 3,
                last_error: Some("line 1:\nno such plugin".into()),
            }),
            plugins: Arc::new(move || {
                [("told", told()), ("silent", None), ("broken", broken()), ("empty", empty()), ("long", long())]
                    .map(|(name, state)| PluginState { name: name.into(), plugin_type: "some-type", state })
                    .into()
            }),
            kv: Arc::new(|| serde_json::json!([{"plugin": "told"}])),
            kv_producers: Arc::new(|| {
                let state = Arc::new(|| r#"{"blocks":2}"#.to_owned()) as Arc<dyn Fn() -> String + Send + Sync>;
                vec![PluginState { name: "told".into(), plugin_type: "some-type", state: Some(state) }]
            }),
            truth: Arc::new(|| serde_json::json!([{"endpoint": "e1"}])),
            pprof,
        }
    }

    struct Answer {
        status: u16,
        head: String,
        body: String,
    }

    /// Serves one request over loopback and stops.
    async fn ask(sources: Sources, method: &str, path: &str, headers: &str) -> Answer {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let (stop, stopped) = oneshot::channel::<()>();
        let served = tokio::spawn(serve(listener, router(sources), async {
            let _ = stopped.await;
        }));
        let mut stream = TcpStream::connect(address).await.expect("the listener is bound");
        let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.expect("the server reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("answers are text");
        stop.send(()).expect("the server still runs");
        served.await.expect("the server does not panic").expect("the listener does not break");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("an answer has a status");
        Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    async fn get(path: &str) -> Answer {
        ask(sources(true, true), "GET", path, "").await
    }

    #[tokio::test]
    async fn metrics_come_in_the_format_that_is_asked_for() {
        for (headers, content_type, open) in [
            ("", "content-type: text/plain; version=0.0.4; charset=utf-8", false),
            (
                "Accept: application/openmetrics-text; version=1.0.0\r\n",
                "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8",
                true,
            ),
        ] {
            let answer = ask(sources(true, true), "GET", "/metrics", headers).await;
            assert_eq!(answer.status, 200);
            assert!(answer.head.contains(content_type), "{}", answer.head);
            assert!(answer.body.contains("\nllm_d_epp_info{"), "{}", answer.body);
            assert_eq!(answer.body.ends_with("# EOF\n"), open);
        }
    }

    #[tokio::test]
    async fn readiness_can_change_and_liveness_does_not() {
        for (ready, status) in [(true, 200), (false, 503)] {
            assert_eq!(ask(sources(ready, true), "GET", "/readyz", "").await.status, status);
            assert_eq!(ask(sources(ready, true), "GET", "/healthz", "").await.status, 200);
        }
    }

    #[tokio::test]
    async fn unknown_paths_are_not_found() {
        for path in ["/wibble", "/", "/metrics/", "/debug", "/debug/pprof/heap"] {
            assert_eq!(get(path).await.status, 404, "{path}");
        }
    }

    #[tokio::test]
    async fn profiling_is_there_only_if_asked_for() {
        assert_eq!(ask(sources(true, false), "GET", "/debug/pprof/", "").await.status, 404);
        assert_eq!(get("/debug/pprof/").await.status, 200);
    }

    #[tokio::test]
    async fn endpoints_are_shown_as_json() {
        let answer = get("/debug/endpoints").await;
        assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
        assert_eq!(answer.body, r#"[{"name":"e1"}]"#);
    }

    #[tokio::test]
    async fn the_page_of_kv_events_shows_subscriptions_and_what_came_of_them() {
        let answer = get("/debug/kv").await;
        assert_eq!(
            answer.body,
            r#"{"subscribers":[{"plugin":"told"}],"producers":{"told":{"blocks":2}},"truth":[{"endpoint":"e1"}]}"#
        );
    }

    #[tokio::test]
    async fn the_config_page_is_yaml_with_generation_and_last_error_as_comments() {
        let answer = get("/debug/config").await;
        assert_eq!(
            answer.body,
            "# generation: 3\n# last reload failed:\n#   line 1:\n#   no such plugin\nplugins: []\n"
        );
    }

    #[tokio::test]
    async fn plugin_state_says_what_each_plugin_tells() {
        let answer = get("/debug/plugins/state").await;
        let page: serde_json::Value = serde_json::from_str(&answer.body).expect("the page is JSON");
        let time = page["timestamp"].as_str().expect("there is a time");
        assert!(time.len() == "2026-01-01T00:00:00.000000000Z".len() && time.ends_with('Z'), "{time}");
        let of = |name: &str, key: &str, value: serde_json::Value| serde_json::json!({"name": name, "type": "some-type", key: value});
        for (name, key, value) in [
            ("told", "state", serde_json::json!({"n": 1})),
            ("silent", "message", "plugin does not support state collection".into()),
            ("broken", "message", "plugin returned invalid JSON state".into()),
            ("empty", "state", serde_json::Value::Null),
            ("long", "message", "plugin state is 2097154 bytes long, more than the 1048576 that are shown".into()),
        ] {
            assert_eq!(page["plugins"][name], of(name, key, value), "{name}");
        }
    }

    #[tokio::test]
    async fn plugin_state_is_for_reading_only() {
        for method in ["POST", "PUT", "DELETE", "HEAD"] {
            let answer = ask(sources(true, true), method, "/debug/plugins/state", "").await;
            assert_eq!(answer.status, 405, "{method}");
            assert!(answer.head.lines().any(|l| l == "allow: get"), "{}", answer.head);
        }
    }

    #[tokio::test]
    async fn a_source_that_panics_costs_only_its_page() {
        let mut sources = sources(true, true);
        sources.endpoints = Arc::new(|| panic!("no endpoints today"));
        assert_eq!(ask(sources, "GET", "/debug/endpoints", "").await.status, 500);
    }
}
