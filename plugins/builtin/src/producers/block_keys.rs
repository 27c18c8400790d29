//! The keys of a request's blocks, prompt by prompt, in memory that is used again.

/// So many prompts of one request count, so that a body of nothing but tiny prompts does not take long.
pub const MOST_PROMPTS: usize = 1024;

/// Keys of all prompts, one after the other.
#[derive(Clone, Debug, Default)]
pub struct BlockKeys {
    pub keys: Vec<u64>,
    /// Where in `keys` each prompt ends.
    ends: Vec<usize>,
}

impl BlockKeys {
    /// Forgets the last request's; keeps the memory.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.ends.clear();
    }

    /// What was added to `keys` since the last prompt is one prompt.
    pub fn end_prompt(&mut self) {
        self.ends.push(self.keys.len());
    }

    /// The keys of each prompt.
    pub fn prompts(&self) -> impl Iterator<Item = &[u64]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.keys[start..end])
    }
}
