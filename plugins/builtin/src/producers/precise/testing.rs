//! What the tests of the precise producer have in common: a writer of MessagePack, and messages of a real engine.

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
