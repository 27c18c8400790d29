//! Names the blocks of a sequence: the hash of a block covers every token from the start of the sequence to its end.

/// How many tokens the engine's vocabulary has; every generated token is below it.
pub const VOCABULARY: u32 = 26 * 26 * 26;

/// The tokens of one sequence, remembered as the hashes of its full blocks and the state between two blocks.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    block_size: usize,
    tokens: usize,
    state: u64,
    blocks: Vec<u64>,
}

impl Chain {
    /// Starts an empty sequence; sequences with different salts share no block.
    pub(super) fn new(block_size: usize, salt: u64) -> Self {
        Self { block_size, tokens: 0, state: mix(0x5EED, salt), blocks: Vec::new() }
    }

    /// Appends a token.
    pub(super) fn push(&mut self, token: u64) {
        self.state = mix(self.state, token);
        self.tokens += 1;
        if self.tokens.is_multiple_of(self.block_size) {
            self.blocks.push(self.state);
        }
    }

    /// Appends the token that the engine generates after what is there, and returns it. Equal sequences go on equally if
    /// they are samples of one number.
    pub(super) fn generate(&mut self, sample: u64) -> u32 {
        let spread = mix(self.state ^ sample, 0x70C3) >> 32;
        let token = u32::try_from(spread % u64::from(VOCABULARY)).expect("a remainder of a u32 is a u32");
        self.push(u64::from(token));
        token
    }

    /// How many tokens the sequence has.
    pub(super) fn tokens(&self) -> usize {
        self.tokens
    }

    /// The hashes of the full blocks, first to last.
    pub(super) fn blocks(&self) -> &[u64] {
        &self.blocks
    }
}

/// Folds a value into a hash. One to one in each argument, and spreads every bit.
pub(super) fn mix(state: u64, value: u64) -> u64 {
    let mut z = (state.rotate_left(5) ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(salt: u64, tokens: &[u64]) -> Chain {
        let mut chain = Chain::new(4, salt);
        tokens.iter().for_each(|&t| chain.push(t));
        chain
    }

    #[test]
    fn only_full_blocks_have_a_hash() {
        for (tokens, blocks) in [(0, 0), (3, 0), (4, 1), (7, 1), (8, 2)] {
            assert_eq!(chain(0, &vec![9; tokens]).blocks().len(), blocks, "{tokens} tokens");
        }
    }

    #[test]
    fn a_block_is_named_by_all_tokens_before_it_and_the_salt() {
        let first = chain(0, &[1, 2, 3, 4, 5, 6, 7, 8]);
        let other_start = chain(0, &[0, 2, 3, 4, 5, 6, 7, 8]);
        let other_end = chain(0, &[1, 2, 3, 4, 5, 6, 7, 9]);
        assert_ne!(first.blocks()[1], other_start.blocks()[1]);
        assert_eq!(first.blocks()[0], other_end.blocks()[0]);
        assert_ne!(first.blocks()[1], other_end.blocks()[1]);
        assert_ne!(first.blocks()[0], chain(1, &[1, 2, 3, 4]).blocks()[0]);
    }

    #[test]
    fn equal_sequences_go_on_equally() {
        let (mut a, mut b) = (chain(0, &[1, 2]), chain(0, &[1, 2]));
        let said: Vec<u32> = (0..20).map(|_| a.generate(0)).collect();
        assert_eq!(said, (0..20).map(|_| b.generate(0)).collect::<Vec<_>>());
        assert!(said.iter().all(|&t| t < VOCABULARY));
        assert_eq!(a.tokens(), 22);
    }
}
