//! What becomes of what engines say, and what their places hold together.

/// What became of a store of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredBlocks {
    /// They are in.
    Stored {
        /// How many of them the place did not hold before.
        new_blocks: usize,
    },
    /// Nobody holds anything under the hash of the block before; nothing was noted.
    UnknownParent,
    /// The owner is too late, or beyond the limits; nothing was noted.
    Refused,
}

/// What became of a removal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovedBlocks {
    /// Hashes that are gone now or were never known.
    pub forwarded: usize,
    /// Hashes that were stored more often than they were removed so far.
    pub suppressed: usize,
    /// Blocks that left the place.
    pub blocks: usize,
}

/// What the places of one endpoint hold together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Combined {
    /// Leading blocks that at least one of the places holds.
    pub blocks: u32,
    /// Sum over those blocks of the largest weight among the places that hold the block.
    pub weight: f64,
}
