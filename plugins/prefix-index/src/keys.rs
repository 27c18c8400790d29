//! Block keys: a prompt's tokens are cut into blocks, and each block gets a key that stands for it and all before it.

use xxhash_rust::xxh3::xxh3_64;

/// Bytes of one token id in a token buffer.
const TOKEN: usize = 4;
/// Bytes of the 16-token blocks that engines have by default: their hash is compiled for this length.
const USUAL: usize = 16 * TOKEN;
/// Odd, and its ones and zeros follow no pattern: the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// Where a chain starts before model and salt are mixed in.
const START: u64 = 0x2d35_8dcc_aa6c_78a5;

/// Makes the start of a chain: prompts of different models or cache salts share no key.
pub fn chain_seed(model: &str, salt: &str) -> u64 {
    link(link(START, xxh3_64(model.as_bytes())), xxh3_64(salt.as_bytes()))
}

/// Appends the chained keys of a prompt's blocks, first block first.
///
/// `tokens` holds token ids of 4 bytes each, little endian, packed. A trailing short block has a key, too; there are at
/// most `max_blocks` keys, and none for an empty prompt. A `block_tokens` of 0 counts as 1. Each block's bytes are
/// hashed by themselves and only the chaining, one multiplication a block, waits for the block before.
pub fn chain_keys(seed: u64, tokens: &[u8], block_tokens: usize, max_blocks: usize, keys: &mut Vec<u64>) {
    let block = block_tokens.max(1).saturating_mul(TOKEN);
    keys.reserve(tokens.len().div_ceil(block).min(max_blocks));
    let mut key = seed;
    let mut push = |hash: u64| {
        key = link(key, hash);
        keys.push(key);
    };
    let mut left = tokens;
    if block == USUAL {
        let (blocks, rest) = tokens.as_chunks::<USUAL>();
        blocks.iter().take(max_blocks).for_each(|bytes| push(xxh3_64(bytes)));
        left = if blocks.len() < max_blocks { rest } else { &[] };
    }
    left.chunks(block).take(max_blocks).for_each(|bytes| push(xxh3_64(bytes)));
}

/// Makes of a block's key that of a block with the same tokens that stands for something else, too.
pub fn mix(key: u64, bytes: &[u8]) -> u64 {
    link(key, xxh3_64(bytes))
}

/// Chains the hash of one block to the key before it: the halves of a 128-bit product, folded.
fn link(before: u64, block: u64) -> u64 {
    let product = u128::from(before ^ block) * u128::from(FACTOR);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys_of(tokens: &[u32], block: usize, max: usize) -> Vec<u64> {
        let bytes: Vec<u8> = tokens.iter().flat_map(|t| t.to_le_bytes()).collect();
        let mut keys = Vec::new();
        chain_keys(chain_seed("m", ""), &bytes, block, max, &mut keys);
        keys
    }

    #[test]
    fn every_started_block_has_a_key_up_to_the_most() {
        let tokens: Vec<u32> = (0..130).collect();
        for (block, max, expected) in [
            (64, 9, 3),
            (65, 9, 2),
            (130, 9, 1),
            (131, 9, 1),
            (64, 2, 2),
            (64, 0, 0),
            (0, 500, 130),
            (usize::MAX, 9, 1),
        ] {
            assert_eq!(keys_of(&tokens, block, max).len(), expected, "blocks of {block}, at most {max}");
        }
        assert!(keys_of(&[], 16, 9).is_empty());
    }

    /// Hashing all that stands before each block again would take minutes here.
    #[test]
    fn a_prompt_of_a_million_tokens_is_hashed_once() {
        let tokens: Vec<u32> = (0..1_000_000).collect();
        let keys = keys_of(&tokens, 16, usize::MAX);
        assert_eq!(keys.len(), 62_500);
        assert_eq!(keys[..6_250], keys_of(&tokens[..100_000], 16, usize::MAX));
    }

    #[test]
    fn every_block_size_chains_alike() {
        let bytes: Vec<u8> = (0..=255).cycle().take(700).collect();
        for block in [1, 15, 16, 17, 64] {
            for (len, max) in [(0, 9), (3, 9), (64, 9), (64, 1), (130, 2), (192, 2), (200, 9), (700, 99)] {
                let mut keys = vec![7];
                chain_keys(5, &bytes[..len], block, max, &mut keys);
                let mut expected = vec![7];
                let mut key = 5;
                for part in bytes[..len].chunks(block * 4).take(max) {
                    key = link(key, xxh3_64(part));
                    expected.push(key);
                }
                assert_eq!(keys, expected, "{len} bytes in blocks of {block}, at most {max}");
            }
        }
    }

    #[test]
    fn keys_agree_as_far_as_the_tokens_do() {
        let a: Vec<u32> = (0..100).collect();
        for differs in 0..100 {
            let mut b = a.clone();
            b[differs] ^= 1;
            let (ka, kb) = (keys_of(&a, 8, 99), keys_of(&b, 8, 99));
            let same = ka.iter().zip(&kb).map(|(x, y)| x == y).collect::<Vec<_>>();
            assert_eq!(same, (0..13).map(|i| i < differs / 8).collect::<Vec<_>>(), "token {differs} differs");
        }
    }

    #[test]
    fn a_short_last_block_is_not_the_full_one() {
        let short = keys_of(&[1, 2, 3, 0, 0], 4, 9);
        let full = keys_of(&[1, 2, 3, 0, 0, 0], 4, 9);
        assert_eq!(short[0], full[0]);
        assert_ne!(short[1], full[1]);
    }

    #[test]
    fn blocks_count_only_at_their_place() {
        let (ab, ba) = (keys_of(&[1, 2], 1, 9), keys_of(&[2, 1], 1, 9));
        assert_ne!(ab[0], ba[1]);
        assert_ne!(ab[1], ba[0]);
        assert_ne!(ab[1], ba[1]);
        let same = keys_of(&[7; 50], 1, 99);
        let mut distinct = same.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), same.len());
    }

    #[test]
    fn what_is_mixed_into_a_key_counts_in_its_order() {
        let mixed = [
            mix(7, b"a"),
            mix(7, b"b"),
            mix(8, b"a"),
            mix(7, b""),
            mix(mix(7, b"a"), b"b"),
            mix(mix(7, b"b"), b"a"),
            mix(7, b"ab"),
        ];
        for (i, a) in mixed.iter().enumerate() {
            assert!(*a != 7 && mixed[i + 1..].iter().all(|b| a != b), "key {i} is there twice");
        }
    }

    #[test]
    fn model_and_salt_separate_chains() {
        let seeds = [("m", ""), ("", "m"), ("", ""), ("mn", ""), ("m", "n"), ("n", "m")]
            .map(|(m, s)| chain_seed(m, s))
            .to_vec();
        for (i, a) in seeds.iter().enumerate() {
            assert!(seeds[i + 1..].iter().all(|b| a != b), "seed {i} is there twice");
        }
    }
}
