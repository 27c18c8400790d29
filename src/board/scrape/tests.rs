//! Tests of scraping against engines on the loopback interface.

mod fetch;
mod over_tls;
mod watch;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

const GOOD: &str = "vllm:num_requests_waiting 6\nvllm:num_requests_running 3\nvllm:kv_cache_usage_perc 0.5\n\
                    vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"1000\"} 1\n";

/// What an engine sends, and whether it keeps the connection after that.
#[derive(Clone)]
struct Answer(Vec<u8>, bool);

type Answers = Box<dyn Fn(&str) -> Answer + Send>;

/// An engine that answers with spelt-out bytes.
struct Engine {
    address: SocketAddr,
    /// Every request head, in the order in which they came.
    asked: mpsc::UnboundedReceiver<String>,
    connections: Arc<AtomicUsize>,
    answers: Arc<Mutex<Answers>>,
}

impl Engine {
    async fn start(answers: impl Fn(&str) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
        let address = listener.local_addr().expect("it is bound");
        let (tx, asked) = mpsc::unbounded_channel();
        let answers: Arc<Mutex<Answers>> = Arc::new(Mutex::new(Box::new(answers)));
        let connections = Arc::new(AtomicUsize::new(0));
        let (count, how) = (connections.clone(), answers.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Relaxed);
                tokio::spawn(serve(stream, tx.clone(), how.clone()));
            }
        });
        Self { address, asked, connections, answers }
    }

    fn now(&self, answers: impl Fn(&str) -> Answer + Send + 'static) {
        *self.answers.lock() = Box::new(answers);
    }

    /// Waits until it was asked `n` times more; gives the last request head.
    async fn asked(&mut self, n: usize) -> String {
        let mut last = String::new();
        for _ in 0..n {
            last = self.asked.recv().await.expect("the engine lives");
        }
        last
    }

    /// Waits until everything it has answered so far has been read, given that one scrape is in flight at a time.
    async fn settled(&mut self) {
        while self.asked.try_recv().is_ok() {}
        self.asked(2).await;
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    asked: mpsc::UnboundedSender<String>,
    answers: Arc<Mutex<Answers>>,
) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            match stream.read_line(&mut head).await {
                Ok(n) if n > 0 => {}
                _ => return,
            }
        }
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let Answer(bytes, keep) = (answers.lock())(&path);
        if asked.send(head).is_err() || stream.write_all(&bytes).await.is_err() || stream.flush().await.is_err() {
            return;
        }
        if !keep {
            let _ = stream.shutdown().await;
            return;
        }
    }
}

fn reply(status: &str, headers: &str, body: &str) -> Answer {
    let length = body.len();
    Answer(format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{headers}\r\n{body}").into_bytes(), true)
}

fn page(body: &str) -> Answer {
    reply("200 OK", "", body)
}

fn raw(text: &str) -> Answer {
    Answer(text.as_bytes().to_vec(), false)
}
