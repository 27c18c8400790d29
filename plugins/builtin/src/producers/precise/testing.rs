//! What the tests of the precise producer have in common: a writer of MessagePack, messages of a real engine, and a
//! producer with a board of three endpoints.

use std::sync::Arc;
use std::time::Duration;

use epp_plugin_api::{
    Columns, Cycle, EndpointId, EndpointIdx, Instance, KvSink, Parsed, Picked, Piece, Producer, ProfileRun, Runs,
    Snapshot,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::TYPE;
use crate::attributes::PrefixMatch;
use crate::producers::token;
use crate::testing::{Rig, Row, cycle, request, snapshot};

/// A value to be packed.
#[derive(Clone, Debug)]
pub enum Pack {
    Null,
    Int(i128),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    List(Vec<Pack>),
    Map(Vec<(Pack, Pack)>),
}

impl From<&str> for Pack {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<i128> for Pack {
    fn from(n: i128) -> Self {
        Self::Int(n)
    }
}

impl Pack {
    pub fn ints(values: &[i128]) -> Self {
        Self::List(values.iter().map(|&n| Self::Int(n)).collect())
    }

    pub fn hashes(values: &[u64]) -> Self {
        Self::List(values.iter().map(|&n| Self::Int(n.into())).collect())
    }

    pub fn map(members: &[(&str, Pack)]) -> Self {
        Self::Map(members.iter().map(|(key, value)| (Self::from(*key), value.clone())).collect())
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut Vec<u8>) {
        let long = |out: &mut Vec<u8>, mark: u8, n: usize| {
            out.push(mark);
            out.extend((n as u32).to_be_bytes());
        };
        match self {
            Self::Null => out.push(0xc0),
            Self::Int(n) => write_int(*n, out),
            Self::Float(x) => {
                out.push(0xcb);
                out.extend(x.to_be_bytes());
            }
            Self::Text(text) => {
                long(out, 0xdb, text.len());
                out.extend(text.as_bytes());
            }
            Self::Bytes(bytes) => {
                long(out, 0xc6, bytes.len());
                out.extend(bytes);
            }
            Self::List(values) => {
                long(out, 0xdd, values.len());
                values.iter().for_each(|value| value.write(out));
            }
            Self::Map(members) => {
                long(out, 0xdf, members.len());
                for (key, value) in members {
                    key.write(out);
                    value.write(out);
                }
            }
        }
    }
}

/// As short as it can be.
fn write_int(n: i128, out: &mut Vec<u8>) {
    match n {
        0..=0x7f => out.push(n as u8),
        -32..=-1 => out.push(n as i8 as u8),
        0x80..=0xff => out.extend([0xcc, n as u8]),
        0x100..=0xffff => {
            out.push(0xcd);
            out.extend((n as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(0xce);
            out.extend((n as u32).to_be_bytes());
        }
        n if n < 0 => {
            out.push(0xd3);
            out.extend((n as i64).to_be_bytes());
        }
        n => {
            out.push(0xcf);
            out.extend((n as u64).to_be_bytes());
        }
    }
}

/// A message with these events.
pub fn batch(events: Vec<Pack>) -> Vec<u8> {
    Pack::List(vec![Pack::Float(1.0), Pack::List(events), Pack::Null]).bytes()
}

/// A message as it came.
pub struct Frame {
    pub topic: Vec<u8>,
    pub payload: Vec<u8>,
}

/// What a real engine sent.
pub fn frames() -> Vec<Frame> {
    let lines = include_str!("vllm-0.32.0-events.txt").lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let mut parts = line.split(' ').map(unhex);
            let (topic, _, payload) = (parts.next(), parts.next(), parts.next());
            Frame { topic: topic.unwrap(), payload: payload.unwrap() }
        })
        .collect()
}

fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// A stored event of the default tier, with blocks of 16 tokens.
pub fn stored(hashes: &[u64], tokens: &[u32]) -> Stored {
    let tokens = tokens.to_vec();
    Stored { hashes: hashes.to_vec(), tokens, parent: None, size: 16, tier: "GPU", more: Vec::new() }
}

/// A stored event, to be changed.
#[derive(Clone, Debug)]
pub struct Stored {
    hashes: Vec<u64>,
    tokens: Vec<u32>,
    pub parent: Option<u64>,
    pub size: i128,
    pub tier: &'static str,
    pub more: Vec<(&'static str, Pack)>,
}

impl Stored {
    pub fn after(self, parent: u64) -> Self {
        Self { parent: Some(parent), ..self }
    }

    pub fn sized(self, size: i128) -> Self {
        Self { size, ..self }
    }

    pub fn on(self, tier: &'static str) -> Self {
        Self { tier, ..self }
    }

    pub fn group(self, group: i128, kind: &str) -> Self {
        let kind = if kind.is_empty() { Pack::Null } else { Pack::from(kind) };
        self.with("group_idx", group.into()).with("kv_cache_spec_kind", kind)
    }

    pub fn extras(self, blocks: &[&[&str]]) -> Self {
        let texts = |block: &&[&str]| Pack::List(block.iter().map(|&text| text.into()).collect());
        self.with("extra_keys", Pack::List(blocks.iter().map(texts).collect()))
    }

    pub fn with(mut self, member: &'static str, value: Pack) -> Self {
        self.more.push((member, value));
        self
    }
}

impl From<Stored> for Pack {
    fn from(it: Stored) -> Self {
        let tokens: Vec<i128> = it.tokens.iter().map(|&token| token.into()).collect();
        let mut members = vec![
            ("type", Self::from("BlockStored")),
            ("block_hashes", Self::hashes(&it.hashes)),
            ("parent_block_hash", it.parent.map_or(Self::Null, |hash| Self::Int(hash.into()))),
            ("token_ids", Self::ints(&tokens)),
            ("block_size", it.size.into()),
            ("medium", it.tier.into()),
        ];
        members.extend(it.more);
        Self::map(&members)
    }
}

/// A removed event.
pub fn removed(hashes: &[u64], tier: &str) -> Pack {
    Pack::map(&[("type", "BlockRemoved".into()), ("block_hashes", Pack::hashes(hashes)), ("medium", tier.into())])
}

/// A removed event of a group.
pub fn removed_of(hashes: &[u64], group: i128) -> Pack {
    let hashes = Pack::hashes(hashes);
    Pack::map(&[("type", "BlockRemoved".into()), ("block_hashes", hashes), ("group_idx", group.into())])
}

/// A cleared event.
pub fn cleared() -> Pack {
    Pack::map(&[("type", "AllBlocksCleared".into())])
}

/// So many tokens, the first of which is `start`.
pub fn ids(start: u32, n: u32) -> Vec<u32> {
    (start..start + n).collect()
}

/// A producer, the tokenizer before it, and three endpoints that it hears.
pub struct Bench {
    pub rig: Rig,
    pub board: Snapshot,
    pub instance: Instance,
    pub model: &'static str,
    pub parsed: Parsed,
    pub now: Instant,
    tokens: Arc<dyn Producer>,
}

impl Bench {
    pub fn new(parameters: Value) -> Self {
        let rig = Rig::default();
        let tokens = rig.build(&token::TYPE, json!(null)).producer.unwrap();
        let instance = rig.build(&TYPE, parameters);
        let board = snapshot(1, vec![Row::default(); 3]);
        Self { rig, board, instance, model: "m", parsed: Parsed::default(), now: Instant::now(), tokens }
    }

    pub fn blocks_of(tokens: u32) -> Self {
        Self::new(json!({"tokenProcessorConfig": {"blockSizeTokens": tokens}}))
    }

    pub fn id(&self, row: u32) -> EndpointId {
        self.board.id(EndpointIdx(row))
    }

    pub fn producer(&self) -> &dyn Producer {
        &**self.instance.producer.as_ref().unwrap()
    }

    pub fn sink(&self) -> &dyn KvSink {
        &*self.instance.kv.as_ref().unwrap().sink
    }

    /// The endpoint of a row publishes these events in one message.
    pub fn tell(&self, row: u32, events: impl IntoIterator<Item = Pack>) {
        self.tell_of("m", row, events);
    }

    pub fn tell_of(&self, model: &str, row: u32, events: impl IntoIterator<Item = Pack>) {
        let payload = batch(events.into_iter().collect());
        self.sink().message(self.id(row), format!("kv@pod@{model}").as_bytes(), &payload);
    }

    /// What is known by row of a request of these prompts, which then goes where `runs` says.
    pub fn send(&self, prompts: &[&[u32]], runs: &[(&str, u32)]) -> Option<Vec<PrefixMatch>> {
        let mut parsed = self.parsed.clone();
        for prompt in prompts {
            let start = parsed.ids.len() / 4;
            parsed.ids.extend(prompt.iter().flat_map(|id| id.to_le_bytes()));
            parsed.pieces.push(Piece::NextPrompt);
            parsed.pieces.push(Piece::Ids { at: start..start + prompt.len() });
        }
        let mut request = request(b"", parsed);
        request.target_model = self.model.into();
        let cx = Cycle { now: self.now, ..cycle(&self.board, &request) };
        let mut columns = Columns::default();
        columns.reset(self.board.rows());
        self.tokens.produce(&cx, &mut columns).unwrap();
        self.producer().produce(&cx, &mut columns).unwrap();
        let key = self.rig.slots.column::<PrefixMatch>(TYPE.name);
        let got = columns.read(key).map(<[PrefixMatch]>::to_vec);
        if !runs.is_empty() {
            let runs = Runs {
                names: runs.iter().map(|(name, _)| name.to_string()).collect(),
                runs: runs.iter().map(|(_, row)| ProfileRun::Chose(vec![EndpointIdx(*row)])).collect(),
                peer: None,
            };
            self.producer().learn(&cx, &columns, &Picked { runs: &runs, primary: 0 });
        }
        got
    }

    /// Matched blocks by row.
    pub fn ask(&self, prompt: &[u32]) -> [u32; 3] {
        let matches = self.send(&[prompt], &[]).unwrap();
        [0, 1, 2].map(|row: usize| matches[row].match_blocks)
    }

    /// Blocks that are there on any tier, by row.
    pub fn cached(&self, prompt: &[u32]) -> [u32; 3] {
        let matches = self.send(&[prompt], &[]).unwrap();
        [0, 1, 2].map(|row: usize| matches[row].cached_blocks)
    }

    pub fn wait(&mut self, time: Duration) {
        self.now += time;
    }

    pub fn state(&self) -> Value {
        serde_json::from_str(&self.instance.state.as_ref().unwrap()()).unwrap()
    }

    /// The value of a line of the metrics page.
    pub fn metric(&self, line: &str) -> Option<u64> {
        let page = self.rig.page();
        let value = page.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(' '))?;
        value.parse().ok()
    }
}
