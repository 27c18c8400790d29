//! An engine that serves whatever page it is told to, or none.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What an engine says to a scrape.
#[derive(Clone, Debug)]
pub enum Page {
    Text(String),
    Status(u16),
}

/// A fake engine on a port of its own; stops when dropped.
pub struct Engine {
    pub port: u16,
    page: Arc<Mutex<Page>>,
    scrapes: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Engine {
    /// Starts an idle vLLM.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let port = listener.local_addr().expect("the listener is bound").port();
        let page = Arc::new(Mutex::new(Page::Text(vllm(0, 0, 0.0))));
        let scrapes = Arc::new(AtomicUsize::new(0));
        let shared = (page.clone(), scrapes.clone());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, shared.0.clone(), shared.1.clone()));
            }
        });
        Self { port, page, scrapes, task }
    }

    /// Starts several.
    pub async fn fleet(n: usize) -> Vec<Self> {
        let mut engines = Vec::new();
        for _ in 0..n {
            engines.push(Self::start().await);
        }
        engines
    }

    /// Changes what it says from the next scrape on.
    pub fn says(&self, page: Page) {
        *self.page.lock() = page;
    }

    /// How often it was asked.
    pub fn scrapes(&self) -> usize {
        self.scrapes.load(Relaxed)
    }

    /// Where it is, as a pick names it.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The page of a vLLM without adapters.
pub fn vllm(waiting: u32, running: u32, kv: f64) -> String {
    format!(
        "vllm:num_requests_waiting{{model_name=\"m\"}} {waiting}\nvllm:num_requests_running{{model_name=\"m\"}} {running}\n\
         vllm:kv_cache_usage_perc{{model_name=\"m\"}} {kv}\n\
         vllm:cache_config_info{{block_size=\"16\",num_gpu_blocks=\"1000\"}} 1\n"
    )
}

/// The page of an SGLang.
pub fn sglang(waiting: u32) -> String {
    format!("sglang:num_queue_reqs {waiting}\nsglang:num_running_reqs 0\nsglang:token_usage 0.0\n")
}

async fn serve(stream: TcpStream, page: Arc<Mutex<Page>>, scrapes: Arc<AtomicUsize>) {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    loop {
        // The head of a request ends with an empty line; a scrape has no body.
        loop {
            line.clear();
            match stream.read_line(&mut line).await {
                Ok(0) | Err(_) => return,
                Ok(_) if line.trim().is_empty() => break,
                Ok(_) => {}
            }
        }
        scrapes.fetch_add(1, Relaxed);
        let (status, text) = match page.lock().clone() {
            Page::Text(text) => (200, text),
            Page::Status(status) => (status, String::new()),
        };
        let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n\r\n{text}", text.len());
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}
