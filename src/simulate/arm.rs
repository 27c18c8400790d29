//! The ways of choosing endpoints that a simulation compares.

use std::fmt;

use crate::config::own;

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// What it is called in the report.
    pub name: String,
    pub way: Way,
}

/// How an arm chooses.
#[derive(Clone, Debug, PartialEq)]
pub enum Way {
    /// By a rule of its own, without the pipeline.
    Rule(Rule),
    /// By the pipeline, built of the text of a config.
    Config(String),
}

/// Rules to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Any endpoint, each as likely as the next.
    Random,
    /// One after the other.
    RoundRobin,
    /// The endpoint of the session's last request; else the fewest requests in flight, the first of equals. As verl does.
    LeastInFlightSticky,
    /// A ring with 100 points an endpoint; by session, or else by the first 1,024 tokens.
    ConsistentHash,
    /// The one with fewer requests in flight of two that are drawn.
    PowerOfTwo,
    /// Knows the engines as they are and how long the answer will be, and takes what costs least.
    Oracle,
    /// The oracle that knows all that is still to come, too.
    Foresight,
}

/// An arm that is there without a config of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltIn {
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    way: Given,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    Rule(Rule),
    Config(&'static str),
}

/// What llm-d's picker does by default.
const GO_DEFAULT: &str = "\
plugins:
- {type: queue-scorer}
- {type: kv-cache-utilization-scorer}
- {type: prefix-cache-scorer}
- {type: max-score-picker}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: kv-cache-utilization-scorer, weight: 2}
  - {pluginRef: prefix-cache-scorer, weight: 3}
  - {pluginRef: max-score-picker}
";

/// The burst profile of llm-d's RL integration.
const GO_BURST: &str = "\
plugins:
- type: burst-prefix-cache-producer
  parameters: {windowDurationMs: 1000, maxPerReplica: -1, blockSizeTokens: 64, minColocateBlocks: 1, \
maxBatchSize: 10000, balanceBy: tokens}
- {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: burst-prefix-cache-producer}}
- {type: load-aware-scorer}
- {type: max-score-picker}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: prefix-cache-scorer, weight: 2}
  - {pluginRef: load-aware-scorer, weight: 1}
  - {pluginRef: max-score-picker}
";

/// The sample config that goes by what engines tell of their caches.
const PRECISE: &str = include_str!("../../config/precise-prefix.yaml");

/// Every built-in arm.
pub const BUILT_IN: [BuiltIn; 11] = [
    BuiltIn {
        name: "default",
        about: "what this picker does unless told: cached prefixes, requests and tokens in flight, load of late",
        way: Given::Config(own::TEXT),
    },
    BuiltIn {
        name: "go-default",
        about: "the default config of llm-d's picker, run by this one",
        way: Given::Config(GO_DEFAULT),
    },
    BuiltIn {
        name: "go-burst",
        about: "the burst profile of llm-d's RL integration, run by this one",
        way: Given::Config(GO_BURST),
    },
    BuiltIn {
        name: "precise",
        about: "config/precise-prefix.yaml: the same, cached prefixes as the engines tell of them",
        way: Given::Config(PRECISE),
    },
    BuiltIn { name: "random", about: "any endpoint", way: Given::Rule(Rule::Random) },
    BuiltIn { name: "round-robin", about: "one after the other", way: Given::Rule(Rule::RoundRobin) },
    BuiltIn {
        name: "least-inflight-sticky",
        about: "the session's endpoint, else the fewest requests in flight; verl's own",
        way: Given::Rule(Rule::LeastInFlightSticky),
    },
    BuiltIn {
        name: "consistent-hash",
        about: "a hash ring by session, else by the first 1,024 tokens",
        way: Given::Rule(Rule::ConsistentHash),
    },
    BuiltIn { name: "power-of-two", about: "the less busy of two that are drawn", way: Given::Rule(Rule::PowerOfTwo) },
    BuiltIn {
        name: "oracle",
        about: "knows the engines as they are and the length of answers: the least cost by waiting and computing",
        way: Given::Rule(Rule::Oracle),
    },
    BuiltIn {
        name: "foresight",
        about: "the oracle that also knows all that is still to come, and what is pushed out before it is wanted",
        way: Given::Rule(Rule::Foresight),
    },
];

impl Arm {
    /// The built-in arm of this name.
    pub fn built_in(name: &str) -> Option<Self> {
        let found = BUILT_IN.iter().find(|arm| arm.name == name)?;
        let way = match found.way {
            Given::Rule(rule) => Way::Rule(rule),
            Given::Config(text) => Way::Config(text.to_owned()),
        };
        Some(Self { name: name.to_owned(), way })
    }

    /// An arm that chooses by a config.
    pub fn of_config(name: &str, text: String) -> Self {
        Self { name: name.to_owned(), way: Way::Config(text) }
    }

    /// The names of all built-in arms, for messages.
    pub fn names() -> String {
        BUILT_IN.map(|arm| arm.name).join(", ")
    }
}

impl fmt::Display for BuiltIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.about)
    }
}
