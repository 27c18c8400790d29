//! Figures that criterion cannot give: percentiles beside a writer, bytes by the allocator, cost against size. With
//! `--write` they go to `docs/`, too. `--repeat CASE N` does one thing N times, for whoever counts instructions.

mod plain;
mod plot;
mod repeat;

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use allocation_counter::measure;
use epp_prefix_index::keys::{chain_keys, chain_seed};
use epp_prefix_index::matches::Matches;
use epp_prefix_index::{Limits, Owner, PrefixIndex};

use crate::plain::Plain;

const ENGINES: u32 = 1000;
const BLOCKS: usize = 6_250;
/// Blocks of one event: what an engine computes in one step.
const CHUNK: usize = 128;

fn place(slot: u32) -> Owner {
    Owner { slot, serial: 1 }
}

fn limits() -> Limits {
    Limits { bytes: 16 << 30, ..Limits::default() }
}

fn tokens(seed: u64, n: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..n).flat_map(|_| rng.u32(..150_000).to_le_bytes()).collect()
}

fn prompt(seed: u64, blocks: usize) -> Vec<u64> {
    let mut keys = Vec::new();
    chain_keys(chain_seed("model", ""), &tokens(seed, blocks * 16), 16, usize::MAX, &mut keys);
    keys
}

/// The engine's own name for a block; engines with like seeds use the same.
fn hash(seed: u64, key: u64) -> u64 {
    (key ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Stores a prompt event by event.
fn store(index: &PrefixIndex, at: Owner, seed: u64, keys: &[u64]) {
    let mut parent = None;
    for chunk in keys.chunks(CHUNK) {
        let hashes: Vec<u64> = chunk.iter().map(|&key| hash(seed, key)).collect();
        index.store_blocks(at, &[], parent, &hashes, chunk);
        parent = hashes.last().copied();
    }
}

/// Engines that went through the same prompt side by side.
fn shared(engines: u32, keys: &[u64]) -> PrefixIndex {
    let index = PrefixIndex::new(limits());
    for (n, chunk) in keys.chunks(CHUNK).enumerate() {
        for slot in 0..engines {
            let seed = u64::from(slot) << 8;
            let parent = (n > 0).then(|| hash(seed, keys[n * CHUNK - 1]));
            let hashes: Vec<u64> = chunk.iter().map(|&key| hash(seed, key)).collect();
            index.store_blocks(place(slot), &[], parent, &hashes, chunk);
        }
    }
    index
}

/// The median and the 99th of a hundred, in microseconds.
fn percentiles(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
    (at(0.5), at(0.99))
}

fn time(n: usize, mut what: impl FnMut()) -> (f64, f64) {
    (0..n / 10 + 1).for_each(|_| what());
    let one = || {
        let start = Instant::now();
        what();
        start.elapsed()
    };
    percentiles(std::iter::repeat_with(one).take(n).collect())
}

struct Report(String);

impl Report {
    fn line(&mut self, what: &str, ours: String, plain: String) {
        println!("{what:<78} {ours:>22} {plain:>22}");
        writeln!(self.0, "| {what} | {ours} | {plain} |").expect("a string takes all");
    }
}

fn lookups(report: &mut Report) {
    let keys = prompt(1, BLOCKS);
    let (index, plain) = (shared(ENGINES, &keys), Plain::new(ENGINES));
    (0..ENGINES).for_each(|slot| plain.store(slot, &keys));
    let (mut matches, mut counts) = (Matches::default(), Vec::new());
    let ours = time(20_000, || index.matches(&keys, &mut matches));
    let theirs = time(2_000, || plain.matches(&keys, &mut counts));
    let pair = |(median, high): (f64, f64)| format!("{median:.1} / {high:.1} µs");
    report.line("look up 6,250 blocks that 1,000 engines hold, p50 / p99", pair(ours), pair(theirs));
    let text = tokens(1, BLOCKS * 16);
    let mut buffer = Vec::new();
    let mut hashed = |what: &mut dyn FnMut(&[u64])| {
        buffer.clear();
        chain_keys(chain_seed("model", ""), &text, 16, usize::MAX, &mut buffer);
        what(&buffer);
    };
    let ours = time(5_000, || hashed(&mut |keys| index.matches(keys, &mut matches)));
    let theirs = time(1_000, || hashed(&mut |keys| plain.matches(keys, &mut counts)));
    report.line("hash 100,000 token ids and look up, p50 / p99", pair(ours), pair(theirs));
    let places: Vec<(Owner, f64)> = [(place(3), 1.0), (place(4), 0.8)].to_vec();
    let ours = time(20_000, || {
        std::hint::black_box(index.combined(&keys, &places));
    });
    report.line("what two places of one engine hold together, p50 / p99", pair(ours), "–".into());
}

/// What engines at work say: each goes through prompts that others have, too, and drops the oldest.
struct Traffic {
    prompts: Vec<Vec<u64>>,
    rng: fastrand::Rng,
    /// By engine: the prompts it holds, and how far it is with the last one.
    engines: Vec<(Vec<usize>, usize)>,
}

impl Traffic {
    fn new() -> Self {
        let system = prompt(7, 256);
        // Every prompt starts like all others and then goes on for itself.
        let one = |n: usize| [system.clone(), prompt(1000 + n as u64, 1024)].concat();
        let engines = vec![(vec![0], 0); ENGINES as usize];
        Self { prompts: (0..400).map(one).collect(), rng: fastrand::Rng::with_seed(3), engines }
    }

    /// The next event: (engine, keys, where they start in the prompt, prompt to drop).
    fn next(&mut self) -> (u32, usize, usize, Option<usize>) {
        let slot = self.rng.u32(..ENGINES);
        let (held, at) = &mut self.engines[slot as usize];
        let mut dropped = None;
        let last = *held.last().expect("an engine holds something");
        if *at >= self.prompts[last].len() {
            if held.len() > 6 {
                dropped = Some(held.remove(0));
            }
            let next = self.rng.usize(..self.prompts.len());
            if held.contains(&next) {
                return (slot, last, *at, dropped);
            }
            held.push(next);
            *at = 0;
        }
        let start = *at;
        *at += CHUNK;
        (slot, *held.last().expect("one was just pushed"), start, dropped)
    }
}

/// How long the thread ran so far; on a shared machine that is less than what went by.
fn on_core() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(stat.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0))
}

/// What [`beside`] found: blocks a second of the core, waiting times of lookups, and how long one event took.
struct Beside {
    rate: f64,
    waits: (f64, f64),
    holds: (f64, f64),
}

/// Applies events for a while, at most `most` blocks a second, while another thread looks up and rests for 50 µs.
fn beside(most: f64, looking: impl FnMut() + Send, mut apply: impl FnMut() -> usize) -> Beside {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (stop, mut looking) = (&stop, looking);
        let reader = scope.spawn(move || {
            let mut times = Vec::with_capacity(1 << 20);
            while !stop.load(Ordering::Relaxed) && times.len() < 1 << 20 {
                let start = Instant::now();
                looking();
                times.push(start.elapsed());
                std::thread::park_timeout(Duration::from_micros(50));
            }
            times
        });
        let (start, busy, mut blocks, mut holds) = (Instant::now(), on_core(), 0, Vec::with_capacity(1 << 20));
        while start.elapsed() < Duration::from_secs(4) {
            let before = Instant::now();
            let n = apply();
            holds.push(before.elapsed());
            blocks += n;
            // What was late stays late: a thread that lost its core does not make up for it.
            while (n as f64) > before.elapsed().as_secs_f64() * most {
                std::hint::spin_loop();
            }
        }
        let rate = blocks as f64 / (on_core() - busy).as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        let waits = percentiles(reader.join().expect("the reader does not panic"));
        Beside { rate, waits, holds: percentiles(holds) }
    })
}

fn events(report: &mut Report) {
    let mut traffic = Traffic::new();
    let index = PrefixIndex::new(limits());
    let keys = traffic.prompts[5].clone();
    let mut hashes = Vec::new();
    let mut ours = |traffic: &mut Traffic| {
        let (slot, prompt, start, dropped) = traffic.next();
        let seed = u64::from(slot) << 8;
        let mut name = |keys: &[u64]| {
            hashes.clear();
            hashes.extend(keys.iter().map(|&key| hash(seed, key)));
            hashes.clone()
        };
        let keys = &traffic.prompts[prompt];
        let chunk = &keys[start.min(keys.len())..(start + CHUNK).min(keys.len())];
        let parent = start.checked_sub(1).map(|at| hash(seed, keys[at]));
        index.store_blocks(place(slot), &[], parent, &name(chunk), chunk);
        let gone = dropped.map_or(0, |old| index.remove_blocks(place(slot), &name(&traffic.prompts[old])).forwarded);
        chunk.len() + gone
    };
    (0..60_000).for_each(|_| {
        ours(&mut traffic);
    });
    let mut matches = Matches::default();
    let mut run = |most| beside(most, || index.matches(&keys, &mut matches), || ours(&mut traffic));
    let (flat, paced) = (run(f64::INFINITY), run(1e6));

    let (mut traffic, plain) = (Traffic::new(), Plain::new(ENGINES));
    let theirs = |traffic: &mut Traffic| {
        let (slot, prompt, start, dropped) = traffic.next();
        let keys = &traffic.prompts[prompt];
        let chunk = &keys[start.min(keys.len())..(start + CHUNK).min(keys.len())];
        plain.store(slot, chunk);
        let gone = dropped.map_or(0, |old| plain.remove(slot, &traffic.prompts[old]));
        chunk.len() + gone
    };
    (0..60_000).for_each(|_| {
        theirs(&mut traffic);
    });
    let mut counts = Vec::new();
    let mut run = |most| beside(most, || plain.matches(&keys, &mut counts), || theirs(&mut traffic));
    let (plain_flat, plain_paced) = (run(f64::INFINITY), run(1e6));
    let millions = |rate: f64| format!("{:.1} M", rate / 1e6);
    let pair = |(median, high): (f64, f64)| format!("{median:.1} / {high:.1} µs");
    let blocks = "block events that one thread applies in a second of its core, without a pause";
    report.line(blocks, millions(flat.rate), millions(plain_flat.rate));
    report.line("one event of 128 blocks, p50 / p99", pair(flat.holds), pair(plain_flat.holds));
    let lookups = "look up 1,280 blocks while 1 M block events a second are applied, p50 / p99";
    report.line(lookups, pair(paced.waits), pair(plain_paced.waits));
}

fn memory(report: &mut Report) {
    let prompts: Vec<Vec<u64>> = (0..16).map(|n| prompt(50 + n, BLOCKS)).collect();
    let blocks = (16 * BLOCKS) as f64;
    let net = |engines: u32| {
        let mut index = None;
        let info = measure(|| {
            let made = PrefixIndex::new(limits());
            (0..engines).for_each(|slot| prompts.iter().for_each(|keys| store(&made, place(slot), slot.into(), keys)));
            index = Some(made);
        });
        (info.bytes_current as f64, index.expect("it was just made"))
    };
    let plain = |engines: u32| {
        let mut index = None;
        let info = measure(|| {
            let made = Plain::new(ENGINES);
            (0..engines).for_each(|slot| prompts.iter().for_each(|keys| made.store(slot, keys)));
            index = Some(made);
        });
        drop(index);
        info.bytes_current as f64
    };
    let (empty, one, (many, index)) = (net(0).0, net(1).0, net(21));
    let (plain_empty, plain_one) = (plain(0), plain(1));
    let held = (many - one) / (20.0 * blocks);
    let bare = (one - empty) / blocks - held;
    report.line(
        "bytes a block and engine that holds it (in it: what the engine calls it)",
        format!("{held:.1}"),
        "bit set".into(),
    );
    report.line("bytes a block besides", format!("{bare:.1}"), format!("{:.0}", (plain_one - plain_empty) / blocks));
    let cleared = measure(|| (0..20).for_each(|slot| index.clear(place(slot))));
    let rest = many + cleared.bytes_current as f64;
    report.line(
        "bytes after 20 of 21 engines cleared, against one that was alone",
        format!("{:+.1} %", (rest / one - 1.0) * 100.0),
        "–".into(),
    );
    let cleared = measure(|| index.forget(place(20)));
    let rest = rest + cleared.bytes_current as f64;
    report.line(
        "bytes left after the last one, of all there were",
        format!("{:.2} %", (rest - empty) / many * 100.0),
        "–".into(),
    );
}

/// Cost of a lookup by number of engines and length of the prompt: (engines, tokens, ours, plain), medians.
fn growth() -> Vec<(u32, usize, f64, f64)> {
    let mut rows = Vec::new();
    for engines in [10, 100, 1000] {
        for tokens in [1_000, 10_000, 100_000, 1_000_000] {
            let keys = prompt(2, tokens / 16);
            let (index, plain) = (PrefixIndex::new(limits()), Plain::new(engines));
            // A hash for 16 blocks: the names do not matter here, and take much memory.
            let hashes: Vec<u64> = keys.iter().step_by(16).map(|&key| hash(0, key)).collect();
            for slot in 0..engines {
                index.store_blocks(place(slot), &[], None, &hashes, &keys);
                plain.store(slot, &keys);
            }
            let (mut matches, mut counts) = (Matches::default(), Vec::new());
            let ours = time(2_000, || index.matches(&keys, &mut matches)).0;
            let theirs = time(50, || plain.matches(&keys, &mut counts)).0;
            println!("{engines:>5} engines, {tokens:>8} tokens {ours:>12.2} µs {theirs:>12.2} µs");
            rows.push((engines, tokens, ours, theirs));
        }
    }
    rows
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let Some(at) = args.iter().position(|arg| arg == "--repeat") {
        return repeat::repeat(&args[at + 1..]);
    }
    let mut report = Report(String::new());
    println!("{:<78} {:>22} {:>22}", "", "prefix index", "a map of blocks");
    events(&mut report);
    if std::env::args().any(|arg| arg == "--events") {
        return;
    }
    lookups(&mut report);
    memory(&mut report);
    let rows = growth();
    if std::env::args().any(|arg| arg == "--write") {
        let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
        std::fs::write(format!("{docs}/prefix-index.svg"), plot::svg(&rows)).expect("docs/ can be written");
        std::fs::write(format!("{docs}/prefix-index.md"), plot::page(&report.0, &rows)).expect("docs/ can be written");
    }
}
