//! Token ids out of nothing but a number: equal numbers give equal ids, so that equal beginnings stay equal.

/// Rounds of BLAKE2b, and which word of a block each step of a round takes.
const SIGMA: [[usize; 16]; 12] = [
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
    [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
    [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
    [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
    [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
    [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
    [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
    [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
];

const START: [u64; 8] = [
    0x6a09_e667_f3bc_c908,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1,
    0x9b05_688c_2b3e_6c1f,
    0x1f83_d9ab_fb41_bd6b,
    0x5be0_cd19_137e_2179,
];

/// Which four words each of the eight steps of a round mixes: columns, then diagonals.
const QUARTERS: [[usize; 4]; 8] = [
    [0, 4, 8, 12],
    [1, 5, 9, 13],
    [2, 6, 10, 14],
    [3, 7, 11, 15],
    [0, 5, 10, 15],
    [1, 6, 11, 12],
    [2, 7, 8, 13],
    [3, 4, 9, 14],
];

const BLOCK: usize = 128;

/// An endless row of token ids from 10 to 29,999: a linear congruential generator of 64 bits.
#[derive(Clone, Debug)]
pub struct TokenIds(u64);

impl TokenIds {
    /// Begins the row of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }
}

impl Iterator for TokenIds {
    type Item = u32;

    /// Never ends.
    fn next(&mut self) -> Option<u32> {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Some(10 + ((self.0 >> 33) % 29_990) as u32)
    }
}

/// The seed of a conversation of that name: its BLAKE2b of 8 bytes, read big-endian; never 0.
pub fn seed_of_name(name: &str) -> u64 {
    blake2b_8(name.as_bytes()).max(1)
}

/// The seed of a block of that id, or of any other number; never 0.
pub fn seed_of_number(number: u64) -> u64 {
    mix(number.wrapping_add(0x9e37_79b9_7f4a_7c15)).max(1)
}

/// The hash by which request logs name a prompt: BLAKE2b of 8 bytes over the ids in decimal, with commas between them.
/// Printed as 16 hexadecimal digits.
pub fn prompt_hash(ids: &[u32]) -> u64 {
    let mut text = String::with_capacity(ids.len() * 6);
    for (i, id) in ids.iter().enumerate() {
        if i > 0 {
            text.push(',');
        }
        text.push_str(&id.to_string());
    }
    blake2b_8(text.as_bytes())
}

/// Spreads the bits of a number over all of it.
pub(crate) fn mix(number: u64) -> u64 {
    let x = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// BLAKE2b without a key and with a digest of 8 bytes, read big-endian. It names things here; it protects nothing.
fn blake2b_8(data: &[u8]) -> u64 {
    let mut state = START;
    // Digest of 8 bytes, no key, one leaf.
    state[0] ^= 0x0101_0008;
    let n_whole = data.len().saturating_sub(1) / BLOCK;
    for i in 0..n_whole {
        compress(&mut state, &data[i * BLOCK..(i + 1) * BLOCK], ((i + 1) * BLOCK) as u64, false);
    }
    let mut last = [0; BLOCK];
    let rest = &data[n_whole * BLOCK..];
    last[..rest.len()].copy_from_slice(rest);
    compress(&mut state, &last, data.len() as u64, true);
    state[0].swap_bytes()
}

fn compress(state: &mut [u64; 8], block: &[u8], n_so_far: u64, last: bool) {
    let mut words = [0_u64; 16];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().expect("a chunk has eight bytes"));
    }
    let mut v = [0_u64; 16];
    v[..8].copy_from_slice(state);
    v[8..].copy_from_slice(&START);
    v[12] ^= n_so_far;
    if last {
        v[14] = !v[14];
    }
    for sigma in &SIGMA {
        for (step, [a, b, c, d]) in QUARTERS.into_iter().enumerate() {
            v[a] = v[a].wrapping_add(v[b]).wrapping_add(words[sigma[2 * step]]);
            v[d] = (v[d] ^ v[a]).rotate_right(32);
            v[c] = v[c].wrapping_add(v[d]);
            v[b] = (v[b] ^ v[c]).rotate_right(24);
            v[a] = v[a].wrapping_add(v[b]).wrapping_add(words[sigma[2 * step + 1]]);
            v[d] = (v[d] ^ v[a]).rotate_right(16);
            v[c] = v[c].wrapping_add(v[d]);
            v[b] = (v[b] ^ v[c]).rotate_right(63);
        }
    }
    for (i, word) in state.iter_mut().enumerate() {
        *word ^= v[i] ^ v[i + 8];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begins(name: &str, seed: u64, ids: &[u32]) {
        assert_eq!(seed_of_name(name), seed, "{name}");
        assert_eq!(TokenIds::new(seed).take(ids.len()).collect::<Vec<_>>(), ids, "{name}");
    }

    #[test]
    fn conversations_begin_as_the_trace_player_begins_them() {
        begins("0", 9_523_843_951_405_948_789, &[1736, 17803, 25060, 1277, 23712, 11112, 13580, 11709]);
        begins("conv", 14_137_521_698_830_305_727, &[15793, 21456, 1162, 13203]);
    }

    #[test]
    fn prompts_are_named_as_the_request_log_names_them() {
        let hundred: Vec<u32> = (0..100).collect();
        let cases: [(&[u32], &str); 4] = [
            (&[], "e4a6a0577479b2b4"),
            (&[1], "f6fc42039fba3776"),
            (&[1, 2, 3], "e2353910701f1c2a"),
            (&hundred, "152a8db46ae6e198"),
        ];
        for (ids, name) in cases {
            assert_eq!(format!("{:016x}", prompt_hash(ids)), name);
        }
    }

    #[test]
    fn a_block_of_the_hash_may_be_just_full() {
        // From the reference implementation.
        assert_eq!(format!("{:016x}", blake2b_8(&[b'a'; 128])), "f06643fe9c7e18da");
        assert_eq!(format!("{:016x}", blake2b_8(&[b'a'; 129])), "e462535bb0c5a299");
    }
}
