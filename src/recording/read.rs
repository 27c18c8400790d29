//! Reads a recording, the older of its two files first.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use serde::de::{DeserializeOwned, IgnoredAny};

use super::file::before;
use super::line::{ConfigLine, CycleLine, EndpointsLine, RunLine};

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
}

/// A run of a profile.
#[derive(Clone, Debug)]
pub struct Run {
    pub profile: usize,
    pub seed: u64,
    pub kept: Vec<u32>,
    /// Who got past the filters; `None`: everyone.
    left: Option<Vec<u32>>,
    /// Of each scorer a score for each who is left, or one for all of them.
    scores: Vec<Vec<f64>>,
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

    /// Writes what a scorer gave into a list with a place for every endpoint, which is all 0 on entry.
    pub fn write_scores(&self, scorer: usize, into: &mut [f64]) {
        let told = &self.scores[scorer];
        for (i, row) in self.left(into.len()).enumerate() {
            into[row as usize] = *told.get(i).unwrap_or(&told[0]);
        }
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
        let nobody = EndpointsLine { endpoints: Vec::new(), names: Vec::new() };
        Self {
            files: VecDeque::new(),
            input: Some((PathBuf::from("-"), from)),
            n_lines: 0,
            n_cut: 0,
            n_bytes: 0,
            config: None,
            endpoints: nobody.into(),
        }
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
            } else if line.starts_with(br#"{"endpoints""#) {
                self.endpoints = Arc::new(json(&line)?);
            } else if line.starts_with(br#"{"cycle""#) {
                return self.checked(json(&line)?).map(Some);
            } else {
                bail!("expected a line of a recording, found {}", shown(&line));
            }
        }
    }

    fn checked(&self, mut line: CycleLine) -> anyhow::Result<Cycle> {
        let config = self.config.clone().context("expected a config before the first cycle, found none")?;
        let rows = self.endpoints.endpoints.len();
        let runs = std::mem::take(&mut line.runs);
        let runs = runs.into_iter().map(|run| checked_run(run, rows)).collect::<Result<_, _>>()?;
        Ok(Cycle { config, endpoints: self.endpoints.clone(), line, runs })
    }
}

impl Iterator for Reader {
    type Item = anyhow::Result<Cycle>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read().with_context(|| {
            let name = self.input.as_ref().map(|(path, _)| path.display().to_string()).unwrap_or_default();
            format!("{name} line {}", self.n_lines)
        });
        if read.is_err() {
            (self.input, self.files) = (None, VecDeque::new());
        }
        read.transpose()
    }
}

fn json<T: DeserializeOwned>(line: &[u8]) -> anyhow::Result<T> {
    Ok(serde_json::from_slice(line)?)
}

fn shown(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(80)]);
    format!("{:?}", text.chars().take(40).collect::<String>())
}

fn checked_run(run: RunLine, rows: usize) -> anyhow::Result<Run> {
    let RunLine { profile, seed, kept, left, scores, picked } = run;
    for row in left.iter().flatten().chain(&picked) {
        if *row as usize >= rows {
            bail!("expected rows below {rows}, found {row}");
        }
    }
    if left.as_ref().is_some_and(|left| !left.is_sorted_by(|a, b| a < b)) {
        bail!("expected the rows that are left in their order, each once");
    }
    let n_left = left.as_ref().map_or(rows, Vec::len);
    let scores = scores.iter().map(|text| numbers(text, n_left)).collect::<Result<_, _>>()?;
    Ok(Run { profile, seed, kept, left, scores, picked })
}

fn numbers(text: &str, n_left: usize) -> anyhow::Result<Vec<f64>> {
    let number = |word: &str| word.parse().map_err(|_| anyhow!("expected a score, found {}", shown(word.as_bytes())));
    let told: Vec<f64> = text.split_ascii_whitespace().map(number).collect::<Result<_, _>>()?;
    if told.len() != n_left && told.len() != 1 {
        bail!("expected a score for each of {n_left} endpoints, found {}", told.len());
    }
    Ok(told)
}
