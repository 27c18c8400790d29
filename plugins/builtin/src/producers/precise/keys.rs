//! Keys of a prompt's full blocks: each stands for the tokens of its block, what the block stands for beside them, and all
//! before it.
//!
//! Three algorithms chain them. The default is the index's own and by far the fastest; the other two are known elsewhere
//! and give the same keys as there.

use std::hash::Hasher;

use epp_prefix_index::keys::{chain_keys, chain_seed, mix};
use xxhash_rust::xxh64::{Xxh64, xxh64};

/// Bytes of one token id in a token buffer.
const TOKEN: usize = 4;

/// How keys are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// The index's own.
    Fast,
    /// FNV-1a of canonical CBOR.
    CborFnv,
    /// XXH64 of packed integers.
    Xxh64,
}

/// Makes keys by one algorithm and one seed.
#[derive(Clone, Debug)]
pub struct Chain {
    algorithm: Algorithm,
    block_tokens: usize,
    seed: String,
    /// What the seed comes to.
    init: u64,
}

/// What blocks stand for beside their tokens: pairs of a block and one such thing, in the order of the blocks.
pub type Extras<'a, T> = &'a [(u32, T)];

impl Chain {
    /// `block_tokens` is at least 1.
    pub fn new(algorithm: Algorithm, seed: &str, block_tokens: usize) -> Self {
        let init = match algorithm {
            Algorithm::Fast => 0,
            Algorithm::CborFnv => Fnv::of(seed.as_bytes()),
            Algorithm::Xxh64 => xxh64(seed.as_bytes(), 0),
        };
        Self { algorithm, block_tokens, seed: seed.to_owned(), init }
    }

    /// Tokens of a block.
    pub fn block_tokens(&self) -> usize {
        self.block_tokens
    }

    /// How many full blocks there are in so many bytes of tokens.
    pub fn full_blocks(&self, bytes: usize) -> usize {
        bytes / (self.block_tokens * TOKEN)
    }

    /// What stands before the first block of a model's prompts.
    pub fn root(&self, model: &str) -> u64 {
        match self.algorithm {
            Algorithm::Fast => chain_seed(model, &self.seed),
            Algorithm::CborFnv => {
                let mut hash = Fnv::default();
                hash.head(ARRAY, 3);
                hash.head(UNSIGNED, self.init);
                hash.put(NULL);
                hash.text(model);
                hash.0
            }
            Algorithm::Xxh64 => {
                let mut hash = Xxh64::new(0);
                hash.update(&self.init.to_le_bytes());
                hash.update(&(model.len() as u64).to_le_bytes());
                hash.update(model.as_bytes());
                hash.finish()
            }
        }
    }

    /// Appends the keys of at most `most` full blocks that follow the block of the key `parent`, or a root. `tokens`
    /// holds four bytes a token, little endian; `text` says what an extra is.
    pub fn extend<'a, T: Copy>(
        &self,
        parent: u64,
        tokens: &[u8],
        extras: Extras<'_, T>,
        text: impl Fn(T) -> &'a str,
        most: usize,
        keys: &mut Vec<u64>,
    ) {
        let block = self.block_tokens * TOKEN;
        let n = self.full_blocks(tokens.len()).min(most);
        let tokens = &tokens[..n * block];
        if self.algorithm == Algorithm::Fast && extras.is_empty() {
            chain_keys(parent, tokens, self.block_tokens, n, keys);
            return;
        }
        let (mut key, mut extras) = (parent, extras);
        keys.reserve(n);
        for (at, tokens) in tokens.chunks_exact(block).enumerate() {
            let of_block = extras.partition_point(|(block, _)| *block as usize <= at);
            let (of_block, rest) = extras.split_at(of_block);
            extras = rest;
            key = self.next(key, tokens, of_block.iter().map(|(_, extra)| text(*extra)), keys);
        }
    }

    /// Appends the key of one block.
    fn next<'a>(
        &self,
        parent: u64,
        tokens: &[u8],
        extras: impl ExactSizeIterator<Item = &'a str>,
        keys: &mut Vec<u64>,
    ) -> u64 {
        let key = match self.algorithm {
            Algorithm::Fast => {
                chain_keys(parent, tokens, self.block_tokens, 1, keys);
                let key = keys.pop().unwrap_or(parent);
                extras.fold(key, |key, text| mix(key, text.as_bytes()))
            }
            Algorithm::CborFnv => cbor_fnv(parent, tokens, extras),
            Algorithm::Xxh64 => {
                let mut hash = Xxh64::new(0);
                hash.update(&parent.to_le_bytes());
                hash.update(tokens);
                for text in extras {
                    hash.update(&(text.len() as u64).to_le_bytes());
                    hash.update(text.as_bytes());
                }
                hash.finish()
            }
        };
        keys.push(key);
        key
    }
}

/// Of the array of the parent, the tokens, and null or the extras as maps of one entry.
fn cbor_fnv<'a>(parent: u64, tokens: &[u8], extras: impl ExactSizeIterator<Item = &'a str>) -> u64 {
    let mut hash = Fnv::default();
    hash.head(ARRAY, 3);
    hash.head(UNSIGNED, parent);
    let (tokens, _) = tokens.as_chunks::<TOKEN>();
    hash.head(ARRAY, tokens.len() as u64);
    tokens.iter().for_each(|token| hash.head(UNSIGNED, u32::from_le_bytes(*token).into()));
    if extras.len() == 0 {
        hash.put(NULL);
    } else {
        hash.head(ARRAY, extras.len() as u64);
        for text in extras {
            hash.head(MAP, 1);
            hash.text("Hash");
            hash.text(text);
        }
    }
    hash.0
}

/// Major types of CBOR, where they stand in the first byte.
const UNSIGNED: u8 = 0x00;
const TEXT: u8 = 0x60;
const ARRAY: u8 = 0x80;
const MAP: u8 = 0xa0;
const NULL: u8 = 0xf6;

/// FNV-1a of 64 bits, over CBOR that is written into it.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn of(bytes: &[u8]) -> u64 {
        let mut hash = Self::default();
        hash.puts(bytes);
        hash.0
    }

    fn put(&mut self, byte: u8) {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }

    fn puts(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.put(byte));
    }

    /// A major type and its number, in the shortest form.
    fn head(&mut self, major: u8, n: u64) {
        match n {
            0..=23 => self.put(major | n as u8),
            24..=0xff => {
                self.put(major | 24);
                self.put(n as u8);
            }
            0x100..=0xffff => {
                self.put(major | 25);
                self.puts(&(n as u16).to_be_bytes());
            }
            0x1_0000..=0xffff_ffff => {
                self.put(major | 26);
                self.puts(&(n as u32).to_be_bytes());
            }
            _ => {
                self.put(major | 27);
                self.puts(&n.to_be_bytes());
            }
        }
    }

    fn text(&mut self, text: &str) {
        self.head(TEXT, text.len() as u64);
        self.puts(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys_of(chain: &Chain, model: &str, tokens: &[u32], extras: Extras<'_, &'static str>) -> Vec<u64> {
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        let mut keys = Vec::new();
        chain.extend(chain.root(model), &bytes, extras, |text| text, usize::MAX, &mut keys);
        keys
    }

    fn check(algorithm: Algorithm, seed: &str, root: u64, tokens: &[u32], block: usize, image: bool, expected: &[u64]) {
        let chain = Chain::new(algorithm, seed, block);
        if root != 0 {
            assert_eq!(chain.root("test-model"), root);
        }
        let extras: Extras<'_, &str> = if image { &[(0, "img0")] } else { &[] };
        assert_eq!(keys_of(&chain, "test-model", tokens, extras), expected, "{algorithm:?} {seed:?} {block} {image}");
    }

    fn ids(n: u32) -> Vec<u32> {
        (1..=n).collect()
    }

    #[test]
    fn cbor_fnv_gives_the_keys_that_are_known_elsewhere() {
        assert_eq!(Chain::new(Algorithm::CborFnv, "test", 1).init, 0xf9e6_e6ef_197c_2b25);
        let of = |seed, root, tokens: &[u32], block, image, keys: &[u64]| {
            check(Algorithm::CborFnv, seed, root, tokens, block, image, keys);
        };
        let plain = [0x8464_eee8_f2cf_3412, 0xead3_c96a_ea60_7c7e, 0x12a1_2992_3fc9_f0d5, 0xc804_9318_66dc_d644];
        of("", 0xf313_0963_5ef2_add0, &ids(64), 16, false, &plain);
        let seeded = [0x768d_b86b_31d5_d0c0, 0x1d3a_d3d7_00f0_4475, 0xe332_e135_c104_c3cb, 0x45b7_4823_8bca_543d];
        of("test", 0x7efa_b4c3_5581_3c0a, &ids(64), 16, false, &seeded);
        of("", 0, &ids(8), 4, false, &[0xb33e_a88f_a99c_8f52, 0xe171_fe1c_78a7_1471]);
        of("", 0, &ids(8), 4, true, &[0x6ea7_c8f2_736a_3243, 0x59b4_aa54_a34e_20de]);
        let wide = [1, 2, 3, 4, 300, 70_000, 5, 4_294_967_295];
        of("", 0, &wide, 4, false, &[0xb33e_a88f_a99c_8f52, 0x3191_d25b_3825_cfaa]);
    }

    #[test]
    fn xxh64_gives_the_keys_that_are_known_elsewhere() {
        assert_eq!(Chain::new(Algorithm::Xxh64, "", 1).init, 0xef46_db37_51d8_e999);
        assert_eq!(Chain::new(Algorithm::Xxh64, "test", 1).init, 0x4fdc_ca5d_db67_8139);
        let of = |seed, root, tokens: &[u32], block, image, keys: &[u64]| {
            check(Algorithm::Xxh64, seed, root, tokens, block, image, keys);
        };
        let plain = [0xbc17_9097_a38e_1274, 0x8939_32c0_5ff0_64ac, 0x5320_623f_4e93_c45f, 0xa263_cf45_6b71_6d31];
        of("", 0x0924_7acf_12a7_2898, &ids(64), 16, false, &plain);
        let seeded = [0xc401_cc26_00f1_14b3, 0x54be_8678_5219_22ad, 0xe0e4_a048_0cc8_a834, 0xdc58_b60e_fc87_e73f];
        of("test", 0x5627_5945_db8d_bd48, &ids(64), 16, false, &seeded);
        of("", 0, &ids(8), 4, false, &[0x7509_2a4f_02f0_e929, 0xb9eb_1b71_7e0c_f826]);
        of("", 0, &ids(8), 4, true, &[0xfeea_5aba_00db_f6e4, 0x59b4_35a3_16b6_2db5]);
    }

    /// What is hashed for a root, and for a block with an image, written out.
    #[test]
    fn cbor_is_canonical() {
        let root = b"\x83\x1b\xcb\xf2\x9c\xe4\x84\x22\x23\x25\xf6\x6a\x74\x65\x73\x74\x2d\x6d\x6f\x64\x65\x6c";
        assert_eq!(Chain::new(Algorithm::CborFnv, "", 16).root("test-model"), Fnv::of(root));
        let block = b"\x83\x01\x84\x01\x02\x03\x04\x81\xa1\x64\x48\x61\x73\x68\x64\x69\x6d\x67\x30";
        let tokens: Vec<u8> = ids(4).iter().flat_map(|token| token.to_le_bytes()).collect();
        assert_eq!(cbor_fnv(1, &tokens, ["img0"].into_iter()), Fnv::of(block));
    }

    const ALL: [Algorithm; 3] = [Algorithm::Fast, Algorithm::CborFnv, Algorithm::Xxh64];

    #[test]
    fn only_full_blocks_have_keys() {
        for algorithm in ALL {
            let chain = Chain::new(algorithm, "", 4);
            for (tokens, blocks) in [(0, 0), (3, 0), (4, 1), (7, 1), (8, 2)] {
                assert_eq!(keys_of(&chain, "m", &ids(tokens), &[]).len(), blocks, "{algorithm:?} {tokens}");
            }
            let mut keys = Vec::new();
            chain.extend(1, &[0; 64], &[], |text: &str| text, 2, &mut keys);
            assert_eq!(keys.len(), 2);
        }
    }

    #[test]
    fn models_seeds_and_extras_share_no_keys() {
        for algorithm in ALL {
            let (plain, seeded) = (Chain::new(algorithm, "", 4), Chain::new(algorithm, "x", 4));
            let tokens = ids(8);
            let all = [
                keys_of(&plain, "m", &tokens, &[]),
                keys_of(&plain, "n", &tokens, &[]),
                keys_of(&seeded, "m", &tokens, &[]),
                keys_of(&plain, "m", &tokens, &[(0, "a")]),
                keys_of(&plain, "m", &tokens, &[(0, "a"), (0, "b")]),
                keys_of(&plain, "m", &tokens, &[(0, "b"), (0, "a")]),
            ];
            for (i, a) in all.iter().enumerate() {
                assert!(all[i + 1..].iter().all(|b| a[0] != b[0] && a[1] != b[1]), "{algorithm:?} {i}");
            }
            let late = keys_of(&plain, "m", &tokens, &[(1, "a")]);
            assert!(late[0] == all[0][0] && late[1] != all[0][1], "{algorithm:?}");
        }
    }

    /// An engine tells of a prompt piece by piece; a request comes whole.
    #[test]
    fn a_chain_goes_on_from_any_of_its_keys() {
        for algorithm in ALL {
            let chain = Chain::new(algorithm, "s", 2);
            let extras = [(0, "a"), (2, "b")];
            let whole = keys_of(&chain, "m", &ids(8), &extras);
            let bytes: Vec<u8> = ids(8).iter().flat_map(|token| token.to_le_bytes()).collect();
            let mut keys = vec![];
            chain.extend(chain.root("m"), &bytes[..16], &extras[..1], |text| text, 9, &mut keys);
            chain.extend(keys[1], &bytes[16..], &[(0, "b")], |text| text, 9, &mut keys);
            assert_eq!(keys, whole, "{algorithm:?}");
        }
    }
}
