//! What one scrape costs: CPU time of the thread that scrapes a 53 KB page over loopback, socket included.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use epp::board::reading::{CompiledMapping, read_page};
use epp::board::scrape::client::Client;
use epp::board::scrape::target::{Place, Target, path};
use epp_plugin_api::{EngineMapping, Observed, Selector};

const PAGE: &[u8] = include_bytes!("../../tests/data/vllm-0.32.0-loaded.prom");
const SCRAPES: u32 = 5_000;

fn main() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || serve(&listener));

    let family = |name: &str| Some(Selector { family: format!("vllm:{name}"), labels: vec![] });
    let mapping = CompiledMapping::new(&EngineMapping {
        queued: family("num_requests_waiting"),
        running: family("num_requests_running"),
        kv_usage: family("kv_cache_usage_perc"),
        lora: family("lora_requests_info"),
        cache_info: family("cache_config_info"),
        ..EngineMapping::default()
    });
    let place = Place { tls: false, host: "127.0.0.1".into(), port };
    let target = Target::new(place, path("/metrics").expect("a path")).expect("a target");

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
    runtime.block_on(async {
        let (mut client, mut page, mut observed) = (Client::new(None), Vec::new(), Observed::default());
        let (mut cpu, mut wall) = (on_cpu(), Instant::now());
        for i in 0..SCRAPES * 2 {
            if i == SCRAPES {
                (cpu, wall) = (on_cpu(), Instant::now());
            }
            client.fetch(&target, &mut page).await.expect("the engine answers");
            observed = read_page(&page, &mapping, &observed, tokio::time::Instant::now()).observed;
        }
        assert_eq!(observed.running, Some(94.0));
        let each = |d: Duration| d.as_secs_f64() * 1e3 / f64::from(SCRAPES);
        println!(
            "{:.4} ms CPU and {:.4} ms elapsed a scrape of {} bytes",
            each(on_cpu() - cpu),
            each(wall.elapsed()),
            PAGE.len()
        );
    });
}

/// How long this thread has been on a CPU.
fn on_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells");
    let nanos = text.split(' ').next().and_then(|n| n.parse().ok());
    Duration::from_nanos(nanos.expect("the first word is a number of nanoseconds"))
}

fn serve(listener: &TcpListener) {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n", PAGE.len());
    let answer = [head.as_bytes(), PAGE].concat();
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { continue };
        let mut request = [0; 1024];
        while stream.read(&mut request).is_ok_and(|n| n > 0) && stream.write_all(&answer).is_ok() {}
    }
}
