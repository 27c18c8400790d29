//! Reads a recording, the older of its two files first.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use epp_plugin_api::Snapshot;
use epp_plugin_api::recorded::Words;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::time::Instant;

use super::board::Board;
use super::file::before;
use super::line::{ConfigLine, CycleLine, EndpointsLine, RunLine};

/// So much of what is wrong with a line is told.
const MOST_SAID: usize = 400;
/// A longer line is refused.
const LONGEST: u64 = 64 << 20;

/// A cycle with what it is about; every row in it is one of the endpoints, and there are as many scores as there should be.
#[derive(Clone, Debug)]
pub struct Cycle {
    pub config: Arc<ConfigLine>,
    pub endpoints: Arc<EndpointsLine>,
    pub line: CycleLine,
    /// As in the line.
    pub runs: Vec<Run>,
    /// The board; without what engines say, if that is not recorded.
    pub snapshot: Arc<Snapshot>,
    /// The moment of the snapshot.
    pub now: Instant,
    /// What producers filled, in the order of the config's `values`. `None`: what plugins looked at is not recorded.
    pub values: Option<Vec<Value>>,
}

/// What one producer filled.
#[derive(Clone, Debug)]
pub enum Value {
    Nothing,
    /// A column, or one text of a request: what is meant depends on what is filled.
    Of {
        text: String,
        words: Arc<Words>,
    },
}

/// A run of a profile.
#[derive(Clone, Debug)]
pub struct Run {
    pub profile: usize,
    pub seed: u64,
    pub peer: Option<u32>,
    pub kept: Vec<u32>,
    /// Who got past the filters; `None`: everyone.
    left: Option<Vec<u32>>,
    /// Of each scorer that ran.
    scores: Vec<Arc<Words>>,
    pub picked: Vec<u32>,
}

impl Run {
    /// Who got past the filters, of so many endpoints.
    pub fn left(&self, rows: usize) -> impl Iterator<Item = u32> {
        let all = if self.left.is_none() { rows as u32 } else { 0 };
        self.left.iter().flatten().copied().chain(0..all)
    }

    /// How many scorers ran.
    pub fn n_scorers(&self) -> usize {
        self.scores.len()
    }

    /// What a scorer gave each of so many endpoints; what it gave those who were not left means nothing.
    pub fn scores(&self, scorer: usize, rows: usize) -> Vec<f64> {
        let words = &self.scores[scorer];
        // Each word was found to be a number, and each who is left to have one.
        (0..rows).map(|row| words.of(row).and_then(|word| word.parse().ok()).unwrap_or_default()).collect()
    }
}

/// Gives the cycles of a recording in their order. Ends after an error.
pub struct Reader {
    files: VecDeque<PathBuf>,
    input: Option<(PathBuf, Box<dyn BufRead>)>,
    n_lines: usize,
    /// Lines so far that someone was cut short in, as a picker that is killed is. They are left out.
    pub n_cut: usize,
    /// How much has been read so far.
    pub n_bytes: u64,
    config: Option<Arc<ConfigLine>>,
    endpoints: Arc<EndpointsLine>,
    board: Board,
    /// Of each of the config's values.
    words: Vec<Arc<Words>>,
    /// Of each scorer, by the places of its profile and its own.
    scores: HashMap<(usize, usize), Arc<Words>>,
}

impl Reader {
    /// Reads a file, and before it the one of its name with `.1` behind it, if there is one.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        let files = [before(path), path.to_owned()].into_iter().filter(|path| path.exists());
        Ok(Self { files: files.collect(), ..Self::new(Box::new(std::io::empty())) })
    }

    /// Reads what this gives.
    pub fn new(from: Box<dyn BufRead>) -> Self {
        Self {
            files: VecDeque::new(),
            input: Some((PathBuf::from("-"), from)),
            n_lines: 0,
            n_cut: 0,
            n_bytes: 0,
            config: None,
            endpoints: Arc::default(),
            board: Board::new(),
            words: Vec::new(),
            scores: HashMap::new(),
        }
    }

    /// The file and the line that were read last, for messages.
    pub fn place(&self) -> String {
        let name = self.input.as_ref().map(|(path, _)| path.display().to_string()).unwrap_or_default();
        format!("{name} line {}", self.n_lines)
    }

    /// The next line; empty at the end of all files.
    fn line(&mut self) -> anyhow::Result<Vec<u8>> {
        while let Some((_, from)) = &mut self.input {
            let mut line = Vec::new();
            from.take(LONGEST + 1).read_until(b'\n', &mut line)?;
            if line.len() as u64 > LONGEST {
                bail!("expected a line of at most {} MiB, found a longer one", LONGEST >> 20);
            }
            if !line.is_empty() {
                self.n_lines += 1;
                self.n_bytes += line.len() as u64;
                return Ok(line);
            }
            self.input = None;
            if let Some(path) = self.files.pop_front() {
                self.n_lines = 0;
                self.input = Some((path.clone(), Box::new(BufReader::new(File::open(path)?))));
            }
        }
        Ok(Vec::new())
    }

    fn read(&mut self) -> anyhow::Result<Option<Cycle>> {
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(None);
            }
            let text = line.trim_ascii_end();
            if text.is_empty() {
                continue;
            }
            // Whoever goes on after that says anew what the lines are about.
            if serde_json::from_slice::<IgnoredAny>(text).is_err_and(|why| why.is_eof()) {
                self.n_cut += 1;
                continue;
            }
            if line.starts_with(br#"{"config""#) {
                self.config = Some(Arc::new(json(&line)?));
                self.forget();
            } else if line.starts_with(br#"{"endpoints""#) {
                self.endpoints = Arc::new(json(&line)?);
                self.board.become_these(&self.endpoints)?;
                self.forget();
            } else if line.starts_with(br#"{"observed""#) {
                self.board.hear(json(&line)?)?;
            } else if line.starts_with(br#"{"cycle""#) {
                return self.checked(json(&line)?).map(Some);
            } else {
                bail!("expected a line of a recording, found {}", shown(&line));
            }
        }
    }

    /// Texts of columns and scores begin anew.
    fn forget(&mut self) {
        self.words.clear();
        self.scores.clear();
    }

    fn checked(&mut self, mut line: CycleLine) -> anyhow::Result<Cycle> {
        let config = self.config.clone().context("expected a config before the first cycle, found none")?;
        let rows = self.endpoints.endpoints.len();
        check_rows(line.among.as_deref(), rows).context("among")?;
        let values = config.values.as_ref().map(|names| self.values(&mut line, names.len())).transpose()?;
        let runs = std::mem::take(&mut line.runs);
        let runs = runs.into_iter().map(|run| self.run(run, line.seed, rows)).collect::<Result<_, _>>()?;
        let (snapshot, now) = (self.board.snapshot(), self.board.now());
        Ok(Cycle { config, endpoints: self.endpoints.clone(), line, runs, snapshot, now, values })
    }

    /// What producers filled. A cycle that was refused early has no texts.
    fn values(&mut self, line: &mut CycleLine, n: usize) -> anyhow::Result<Vec<Value>> {
        let (texts, rows) = (std::mem::take(&mut line.values), self.endpoints.endpoints.len());
        if texts.len() != n && !(texts.is_empty() && line.runs.is_empty()) {
            bail!("expected {n} values, found {}", texts.len());
        }
        self.words.resize_with(texts.len().max(self.words.len()), Arc::default);
        let mut values = Vec::with_capacity(texts.len());
        for (text, words) in texts.into_iter().zip(&mut self.words) {
            values.push(match text {
                None => Value::Nothing,
                Some(text) => {
                    // A text of a request may look like anything, and is no column then.
                    if !text.is_empty() && Arc::make_mut(words).take(&text, rows).is_err() {
                        *words = Arc::default();
                    }
                    Value::Of { text, words: words.clone() }
                }
            });
        }
        Ok(values)
    }

    fn run(&mut self, run: RunLine, seed: u64, rows: usize) -> anyhow::Result<Run> {
        let RunLine { profile, seed: own_seed, peer, kept, left, scores, picked } = run;
        check_rows(left.as_deref(), rows)?;
        for row in picked.iter().chain(&peer) {
            if *row as usize >= rows {
                bail!("expected rows below {rows}, found {row}");
            }
        }
        let mut told = Vec::with_capacity(scores.len());
        for (scorer, text) in scores.iter().enumerate() {
            let words = self.scores.entry((profile, scorer)).or_default();
            take_scores(Arc::make_mut(words), text, left.as_deref(), rows)?;
            told.push(words.clone());
        }
        Ok(Run { profile, seed: own_seed.unwrap_or(seed), peer, kept, left, scores: told, picked })
    }
}

impl Iterator for Reader {
    type Item = anyhow::Result<Cycle>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read();
        let read = read.with_context(|| self.place());
        if read.is_err() {
            (self.input, self.files) = (None, VecDeque::new());
        }
        read.transpose()
    }
}

fn json<T: DeserializeOwned>(line: &[u8]) -> anyhow::Result<T> {
    serde_json::from_slice(line).map_err(|why| {
        // Names that nobody knows are told as they stand there, however long they are and whatever is in them.
        let said = why.to_string().replace(" at line 1 column ", " at column ");
        anyhow!("{}", said.chars().take(MOST_SAID).map(|c| if c.is_control() { ' ' } else { c }).collect::<String>())
    })
}

fn shown(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(80)]);
    format!("{:?}", text.chars().take(40).collect::<String>())
}

fn check_rows(listed: Option<&[u32]>, rows: usize) -> anyhow::Result<()> {
    let listed = listed.unwrap_or_default();
    if let Some(row) = listed.iter().find(|row| **row as usize >= rows) {
        bail!("expected rows below {rows}, found {row}");
    }
    if !listed.is_sorted_by(|a, b| a < b) {
        bail!("expected the rows that are left in their order, each once");
    }
    Ok(())
}

/// Takes what a recording says of one scorer. In older ones there is a number for each who is left.
fn take_scores(words: &mut Words, text: &str, left: Option<&[u32]>, rows: usize) -> anyhow::Result<()> {
    let numbers = || text.split_ascii_whitespace().map(|word| word.split_once('=').map_or(word, |(_, number)| number));
    if let Some(word) = numbers().find(|word| word.parse::<f64>().is_err()) {
        bail!("expected a score, found {}", shown(word.as_bytes()));
    }
    let (n_left, n) = (left.map_or(rows, <[u32]>::len), numbers().count());
    if n > 1 && !text.contains('=') {
        if n != n_left {
            bail!("expected a score for each of {n_left} endpoints, found {n}");
        }
        *words = Words::default();
        let row = |i: usize| left.map_or(i, |left| left[i] as usize);
        let text: Vec<String> = numbers().enumerate().map(|(i, word)| format!("{}={word}", row(i))).collect();
        words.take(&text.join(" "), rows).map_err(|why| anyhow!(why))?;
    } else {
        words.take(text, rows).map_err(|why| anyhow!(why))?;
    }
    let is_told = |row: usize| words.of(row).is_some();
    if n == 0 && n_left > 0 && !(0..rows).any(is_told) {
        bail!("expected a score for each of {n_left} endpoints, found none before either");
    }
    Ok(())
}
