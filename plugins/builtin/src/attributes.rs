//! The data that producers of this crate write and others read.

use std::io::Write as _;
use std::ops::Range;

use epp_plugin_api::recorded::{Recorded, numbers, push_number, push_numbers};
use epp_plugin_api::{Attribute, InferenceRequest};

/// How much of the request's prompt an endpoint is believed to have in its KV cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixMatch {
    /// Leading blocks of the prompts that count as cached.
    pub match_blocks: u32,
    /// Blocks of the prompts, up to the producer's cap.
    pub total_blocks: u32,
    /// Tokens that a block holds; 0 if nothing is known.
    pub block_tokens: u32,
    /// Leading blocks that are cached on any tier, unweighted.
    pub cached_blocks: u32,
    /// Leading blocks in host memory; `None` if the producer knows nothing of tiers.
    pub host_blocks: Option<u32>,
}

impl PrefixMatch {
    /// Tokens of the prompt that need not be computed.
    pub fn cached_tokens(&self) -> u64 {
        u64::from(self.cached_blocks) * u64::from(self.block_tokens)
    }
}

impl Attribute for PrefixMatch {
    const NAME: &'static str = "PrefixCacheMatchInfoDataKey";
    const DEFAULT_PRODUCER: Option<&'static str> = Some("approx-prefix-cache-producer");
    const RECORDED: Option<Recorded<Self>> = Some(Recorded {
        write: |m, out| {
            let host = m.host_blocks.map_or(-1, i64::from);
            let [matched, total, size, cached] =
                [m.match_blocks, m.total_blocks, m.block_tokens, m.cached_blocks].map(i64::from);
            push_numbers([matched, total, size, cached, host], out);
        },
        read: |word| {
            let [matched, total, size, cached, host] = numbers::<5>(word)?.map(|number| u32::try_from(number).ok());
            Some(Self {
                match_blocks: matched?,
                total_blocks: total?,
                block_tokens: size?,
                cached_blocks: cached?,
                host_blocks: host,
            })
        },
        same: PartialEq::eq,
    });
}

/// What is in flight on an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    pub requests: i64,
    pub tokens: i64,
}

impl Attribute for InFlight {
    const NAME: &'static str = "InFlightLoadDataKey";
    const DEFAULT_PRODUCER: Option<&'static str> = Some("inflight-load-producer");
    const RECORDED: Option<Recorded<Self>> = Some(Recorded {
        write: |load, out| push_numbers([load.requests, load.tokens], out),
        read: |word| numbers(word).map(|[requests, tokens]| Self { requests, tokens }),
        same: PartialEq::eq,
    });
}

/// How many requests an endpoint had in flight in the mean, of late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecentLoad {
    /// In thousandths of a request.
    pub milli_requests: u32,
}

impl Attribute for RecentLoad {
    const NAME: &'static str = "RecentLoadDataKey";
    const DEFAULT_PRODUCER: Option<&'static str> = Some("recent-load-producer");
    const RECORDED: Option<Recorded<Self>> = Some(Recorded {
        write: |load, out| push_numbers([load.milli_requests.into()], out),
        read: |word| numbers(word).and_then(|[n]| Some(Self { milli_requests: u32::try_from(n).ok()? })),
        same: PartialEq::eq,
    });
}

/// How many tokens of the request's prompt an endpoint would have to compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UncachedTokens(pub i64);

impl Attribute for UncachedTokens {
    const NAME: &'static str = "UncachedRequestTokensDataKey";
    const DEFAULT_PRODUCER: Option<&'static str> = None;
    const RECORDED: Option<Recorded<Self>> = Some(Recorded {
        write: |tokens, out| push_numbers([tokens.0], out),
        read: |word| numbers(word).map(|[tokens]| Self(tokens)),
        same: PartialEq::eq,
    });
}

/// What a request is predicted to take on an endpoint. The default stands for no prediction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LatencyPrediction {
    /// Whether the time to the first token keeps its objective.
    pub ttft_valid: bool,
    /// Whether the time per output token keeps its objective.
    pub tpot_valid: bool,
    /// The objective of the time to the first token less the prediction, in milliseconds.
    pub ttft_headroom: f64,
    /// The objective of the time per output token less the prediction, in milliseconds.
    pub tpot_headroom: f64,
    /// The predicted time to the first token, in milliseconds.
    pub ttft: f64,
    /// The predicted time per output token, in milliseconds.
    pub tpot: f64,
    /// Requests that this picker has sent to the endpoint and that are not complete.
    pub dispatched: u64,
}

impl Attribute for LatencyPrediction {
    const NAME: &'static str = "LatencyPredictionInfoDataKey";
    const DEFAULT_PRODUCER: Option<&'static str> = Some("predicted-latency-producer");
    const RECORDED: Option<Recorded<Self>> = Some(Recorded {
        write: |p, out| {
            let valid = u8::from(p.ttft_valid) + 2 * u8::from(p.tpot_valid);
            let Self { ttft_headroom, tpot_headroom, ttft, tpot, dispatched, .. } = p;
            // A buffer takes whatever comes.
            let _ = write!(out, "{valid}/{ttft_headroom}/{tpot_headroom}/{ttft}/{tpot}/{dispatched}");
        },
        read: |word| {
            let mut words = word.split('/');
            let valid: u8 = words.next()?.parse().ok().filter(|valid| *valid < 4)?;
            let mut times = [0.0; 4];
            for time in &mut times {
                *time = words.next()?.parse().ok()?;
            }
            let [ttft_headroom, tpot_headroom, ttft, tpot] = times;
            let dispatched = words.next()?.parse().ok()?;
            let (ttft_valid, tpot_valid) = (valid & 1 != 0, valid & 2 != 0);
            let read = Self { ttft_valid, tpot_valid, ttft_headroom, tpot_headroom, ttft, tpot, dispatched };
            words.next().is_none().then_some(read)
        },
        same: PartialEq::eq,
    });
}

impl LatencyPrediction {
    /// Whether anything is predicted.
    pub fn is_there(&self) -> bool {
        *self != Self::default()
    }

    /// Whether it keeps both objectives.
    pub fn has_headroom(&self) -> bool {
        self.ttft_headroom >= 0.0 && self.tpot_headroom >= 0.0
    }
}

/// Which of the request's images, videos and sounds an endpoint is believed to have encoded before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncoderMatch {
    /// The size of those that it has, in items.
    pub matched: u32,
    /// The size of all of them, in items.
    pub requested: u32,
}

impl Attribute for EncoderMatch {
    const NAME: &'static str = "MultiModalEncoderCacheMatchInfoKey";
    const DEFAULT_PRODUCER: Option<&'static str> = Some("mm-embeddings-cache-producer");
    const RECORDED: Option<Recorded<Self>> = Some(Recorded {
        write: |m, out| push_numbers([m.matched.into(), m.requested.into()], out),
        read: |word| {
            let [matched, requested] = numbers::<2>(word)?.map(|number| u32::try_from(number).ok());
            Some(Self { matched: matched?, requested: requested? })
        },
        same: PartialEq::eq,
    });
}

/// Where an endpoint stands. Equal numbers of one level stand for equal names within a cycle; 0: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    pub host: u32,
    pub rack: u32,
    pub zone: u32,
    pub region: u32,
}

impl Attribute for Topology {
    const NAME: &'static str = "Topology";
    const DEFAULT_PRODUCER: Option<&'static str> = None;
    const RECORDED: Option<Recorded<Self>> = Some(Recorded {
        write: |t, out| push_numbers([t.host, t.rack, t.zone, t.region].map(i64::from), out),
        read: |word| {
            let [host, rack, zone, region] = numbers::<4>(word)?.map(|number| u32::try_from(number).ok());
            Some(Self { host: host?, rack: rack?, zone: zone?, region: region? })
        },
        same: PartialEq::eq,
    });
}

/// The session that the request belongs to. One value a request; empty or not written if there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionId(pub String);

impl Attribute for SessionId {
    const NAME: &'static str = "SessionIDDataKey";
    const DEFAULT_PRODUCER: Option<&'static str> = Some("session-id-producer");
    const RECORDED: Option<Recorded<Self>> = Some(Recorded {
        write: |session, out| out.extend_from_slice(session.0.as_bytes()),
        read: |text| Some(Self(text.to_owned())),
        same: PartialEq::eq,
    });
}

/// The tokens of the request's prompts, four bytes each, little endian. One value a request; not written if the request
/// has no prompt.
#[derive(Clone, Debug, Default)]
pub struct TokenizedPrompt {
    packed: Vec<u8>,
    prompts: Vec<Prompt>,
    /// What an engine said of the media: hash, offset and length in tokens, by offset.
    features: Vec<(String, usize, usize)>,
}

/// Where the tokens of one prompt are.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Prompt {
    /// Bytes of the request's own token ids.
    Given(Range<usize>),
    /// Bytes of `packed`.
    Packed(Range<usize>),
}

impl Attribute for TokenizedPrompt {
    const NAME: &'static str = "TokenizedPrompt";
    const DEFAULT_PRODUCER: Option<&'static str> = Some("token-producer");
    // Of a prompt only its length is recorded.
    const RECORDED: Option<Recorded<Self>> = Some(Recorded {
        write: |prompt, out| push_number(prompt.tokens() as u64, out),
        read: |text| {
            let bytes = text.parse::<usize>().ok()?.checked_mul(4)?;
            let mut prompt = Self::default();
            prompt.push_given(0..bytes);
            Some(prompt)
        },
        same: |a, b| a.tokens() == b.tokens(),
    });
}

impl TokenizedPrompt {
    /// What is kept for the next request once the memory of a larger one is given back.
    const KEPT_BYTES: usize = 1 << 20;

    /// Forgets the last request's tokens; keeps memory for ordinary ones.
    pub fn clear(&mut self) {
        self.packed.clear();
        self.packed.shrink_to(Self::KEPT_BYTES);
        self.prompts.clear();
        self.features.clear();
    }

    /// Sets what an engine said of the media: hash, offset and length in tokens, by offset.
    pub fn set_features(&mut self, features: &[(String, usize, usize)]) {
        self.features.clear();
        self.features.extend_from_slice(features);
    }

    /// The media among the tokens, by offset, if an engine told of them or they came with the request's token ids.
    pub fn features<'a>(&'a self, request: &'a InferenceRequest) -> &'a [(String, usize, usize)] {
        if self.features.is_empty() { &request.parsed.features } else { &self.features }
    }

    /// Adds a prompt whose tokens are these bytes of the request's token ids.
    pub fn push_given(&mut self, bytes: Range<usize>) {
        self.prompts.push(Prompt::Given(bytes));
    }

    /// Adds a prompt whose tokens `pack` appends; what is left of the last token is padded with zeros.
    pub fn push_packed(&mut self, pack: impl FnOnce(&mut Vec<u8>)) {
        let start = self.packed.len();
        pack(&mut self.packed);
        self.packed.resize(self.packed.len().next_multiple_of(4), 0);
        self.prompts.push(Prompt::Packed(start..self.packed.len()));
    }

    /// The tokens of each prompt of the request that this was made of.
    pub fn prompts<'a>(&'a self, request: &'a InferenceRequest) -> impl Iterator<Item = &'a [u8]> {
        self.prompts.iter().map(|prompt| match prompt {
            Prompt::Given(at) => request.parsed.ids.get(at.clone()).unwrap_or_default(),
            Prompt::Packed(at) => &self.packed[at.clone()],
        })
    }

    /// How many tokens the prompts have together.
    pub fn tokens(&self) -> usize {
        let bytes = |prompt: &Prompt| match prompt {
            Prompt::Given(at) | Prompt::Packed(at) => at.len(),
        };
        self.prompts.iter().map(bytes).sum::<usize>() / 4
    }
}

#[cfg(test)]
mod tests {
    use epp_plugin_api::Slots;
    use epp_plugin_api::recorded::{Told, Words};
    use epp_plugin_api::{Columns, DataKey};
    use proptest::prelude::*;

    use super::*;

    /// Records columns one after the other, reads each back, and says whether all are what they were.
    fn keeps<T: Attribute + PartialEq>(lists: &[Vec<T>]) -> bool {
        let slots = Slots::default();
        let key = slots.column::<T>("p");
        let recorded =
            slots.recorded(&DataKey { data: T::NAME, producer: "p".into(), default_producer: None }).unwrap();
        let (mut columns, mut told, mut words) = (Columns::default(), Told::default(), Words::default());
        lists.iter().all(|list| {
            columns.reset(list.len());
            columns.write(key).clone_from_slice(list);
            let mut text = Vec::new();
            assert!(recorded.write(&columns, &mut told, &mut text));
            words.take(std::str::from_utf8(&text).unwrap(), list.len()).unwrap();
            columns.reset(list.len());
            recorded.read(&mut columns, "", &words) && columns.read(key) == Some(list)
        })
    }

    fn columns<T: std::fmt::Debug>(of: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<Vec<T>>> {
        prop::collection::vec(prop::collection::vec(of, 3..4), 1..5)
    }

    proptest! {
        #[test]
        fn what_is_recorded_is_read_as_it_was(
            matches in columns(any::<([u32; 4], Option<u32>)>()),
            loads in columns(any::<(i64, i64)>()),
            times in columns((any::<(bool, bool, u64)>(), prop::array::uniform4(prop::num::f64::NORMAL))),
            places in columns(any::<[u32; 4]>()),
        ) {
            let matches: Vec<Vec<_>> = matches.into_iter().map(|list| list.into_iter().map(|([m, total, size, cached], host)| PrefixMatch {
                match_blocks: m, total_blocks: total, block_tokens: size, cached_blocks: cached, host_blocks: host,
            }).collect()).collect();
            prop_assert!(keeps(&matches));
            let in_flight = |(requests, tokens)| InFlight { requests, tokens };
            prop_assert!(keeps(&loads.iter().map(|list| list.iter().copied().map(in_flight).collect()).collect::<Vec<_>>()));
            let uncached = |(tokens, _)| UncachedTokens(tokens);
            prop_assert!(keeps(&loads.iter().map(|list| list.iter().copied().map(uncached).collect()).collect::<Vec<_>>()));
            let time = |((ttft_valid, tpot_valid, dispatched), [ttft_headroom, tpot_headroom, ttft, tpot]): ((bool, bool, u64), [f64; 4])| LatencyPrediction {
                ttft_valid, tpot_valid, ttft_headroom, tpot_headroom, ttft, tpot, dispatched,
            };
            prop_assert!(keeps(&times.iter().map(|list| list.iter().copied().map(time).collect()).collect::<Vec<_>>()));
            let place = |[host, rack, zone, region]: [u32; 4]| Topology { host, rack, zone, region };
            prop_assert!(keeps(&places.iter().map(|list| list.iter().copied().map(place).collect()).collect::<Vec<_>>()));
            let media = |[matched, requested, ..]: [u32; 4]| EncoderMatch { matched, requested };
            prop_assert!(keeps(&places.iter().map(|list| list.iter().copied().map(media).collect()).collect::<Vec<_>>()));
        }
    }

    #[test]
    fn of_a_prompt_its_length_is_recorded() {
        let recorded = TokenizedPrompt::RECORDED.unwrap();
        let mut prompt = TokenizedPrompt::default();
        prompt.push_given(0..40);
        prompt.push_packed(|out| out.extend_from_slice(&[7; 8]));
        let mut text = Vec::new();
        (recorded.write)(&prompt, &mut text);
        assert_eq!((&text[..], (recorded.read)("12").map(|prompt| prompt.tokens())), (&b"12"[..], Some(12)));
        for text in ["-1", "x", "", "18446744073709551615"] {
            assert!((recorded.read)(text).is_none(), "{text}");
        }
    }
}
