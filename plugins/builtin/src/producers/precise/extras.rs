//! What blocks stand for beside their tokens: media whose placeholders touch a block, and the cache salt.

use epp_plugin_api::Parsed;

/// So many bytes of extras count, over all blocks of a prompt or an event, so that one long text for very many blocks
/// does not take long. What comes after is left out.
const MOST_BYTES: usize = 4 << 20;
/// What an extra counts beside its text.
const BYTES_PER_EXTRA: usize = 16;

/// One extra of a request, in the order in which those of one block count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extra {
    /// The hash of the medium at this place of the request's features.
    Medium(u32),
    Salt,
}

impl Extra {
    /// The text of the extra.
    pub fn text(self, parsed: &Parsed) -> &str {
        match self {
            Self::Medium(at) => parsed.features.get(at as usize).map_or("", |(hash, ..)| hash),
            Self::Salt => &parsed.cache_salt,
        }
    }
}

/// Adds the extras of a prompt's first `blocks` blocks, block by block: media in the order of their places, which is that
/// of the features, and after them the salt, in the first block. `media`: whether the request's media belong to this
/// prompt.
pub fn of_request(parsed: &Parsed, media: bool, block_tokens: usize, blocks: usize, extras: &mut Vec<(u32, Extra)>) {
    extras.clear();
    if blocks == 0 {
        return;
    }
    let mut budget = Budget::default();
    if media {
        for (at, (hash, offset, length)) in parsed.features.iter().enumerate() {
            let end = offset.saturating_add(*length).div_ceil(block_tokens).min(blocks);
            if hash.is_empty() || *length == 0 {
                continue;
            }
            for block in offset / block_tokens..end {
                if !budget.take(hash) {
                    break;
                }
                extras.push((block as u32, Extra::Medium(at as u32)));
            }
        }
        extras.sort_unstable();
    }
    if !parsed.cache_salt.is_empty() && budget.take(&parsed.cache_salt) {
        let at = extras.partition_point(|(block, _)| *block == 0);
        extras.insert(at, (0, Extra::Salt));
    }
}

/// Fits the extras of an engine's blocks to as many blocks of ours as there are: of fewer blocks each counts for several
/// of ours, of more several come together in one. `text` says what an extra is.
pub fn fitted<'t, 'b, T: Copy + 'b>(
    engine: impl ExactSizeIterator<Item = &'b [T]>,
    blocks: usize,
    text: impl Fn(T) -> &'t str,
    extras: &mut Vec<(u32, T)>,
) {
    extras.clear();
    let (theirs, mut budget) = (engine.len(), Budget::default());
    for (at, items) in engine.enumerate() {
        let ours = if theirs >= blocks {
            let block = at * blocks / theirs;
            block..(block + 1).min(blocks)
        } else {
            (at * blocks).div_ceil(theirs)..((at + 1) * blocks).div_ceil(theirs)
        };
        for block in ours {
            for &item in items {
                if !budget.take(text(item)) {
                    return;
                }
                extras.push((block as u32, item));
            }
        }
    }
}

struct Budget(usize);

impl Default for Budget {
    fn default() -> Self {
        Self(MOST_BYTES)
    }
}

impl Budget {
    fn take(&mut self, text: &str) -> bool {
        match self.0.checked_sub(text.len() + BYTES_PER_EXTRA) {
            Some(rest) => self.0 = rest,
            None => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(features: &[(&str, usize, usize)], salt: &str, blocks: usize) -> Vec<(u32, String)> {
        let features = features.iter().map(|&(hash, offset, length)| (hash.to_owned(), offset, length)).collect();
        let parsed = Parsed { features, cache_salt: salt.into(), ..Parsed::default() };
        let mut extras = Vec::new();
        of_request(&parsed, true, 16, blocks, &mut extras);
        extras.iter().map(|(block, extra)| (*block, extra.text(&parsed).to_owned())).collect()
    }

    fn text(pairs: &[(u32, &str)]) -> Vec<(u32, String)> {
        pairs.iter().map(|(block, text)| (*block, text.to_string())).collect()
    }

    #[test]
    fn media_count_in_the_blocks_they_touch_and_the_salt_last_in_the_first() {
        for (features, salt, expected) in [
            (&[("a", 20, 20)][..], "", &[(1, "a"), (2, "a")][..]),
            (&[("a", 16, 16)], "", &[(1, "a")]),
            (&[("a", 0, 17), ("b", 15, 1)], "s", &[(0, "a"), (0, "b"), (0, "s"), (1, "a")]),
            (&[("a", 16, 1)], "s", &[(0, "s"), (1, "a")]),
            (&[("", 0, 64), ("a", 3, 0), ("b", 64, 16), ("c", usize::MAX, 9)], "", &[]),
            (&[("a", 50, usize::MAX)], "", &[(3, "a")]),
        ] {
            assert_eq!(request(features, salt, 4), text(expected), "{features:?}");
        }
        assert_eq!(request(&[("a", 0, 64)], "s", 0), []);
    }

    #[test]
    fn a_prompt_without_the_media_has_the_salt_only() {
        let features = vec![("a".to_owned(), 0, 16)];
        let parsed = Parsed { features, cache_salt: "s".into(), ..Parsed::default() };
        let mut extras = Vec::new();
        of_request(&parsed, false, 16, 2, &mut extras);
        assert_eq!(extras, [(0, Extra::Salt)]);
    }

    #[test]
    fn very_many_bytes_of_extras_do_not_count() {
        let hash = "x".repeat(1 << 20);
        assert_eq!(request(&[(&hash, 0, 16_000)], "salt", 1000).len(), 4);
    }

    fn fit(engine: &[&[&'static str]], blocks: usize) -> Vec<(u32, &'static str)> {
        let mut extras = Vec::new();
        fitted(engine.iter().copied(), blocks, |text| text, &mut extras);
        extras
    }

    #[test]
    fn extras_of_other_blocks_are_fitted_to_ours() {
        assert_eq!(fit(&[&["a"], &[]], 2), [(0, "a")]);
        assert_eq!(fit(&[&["a"], &[]], 4), [(0, "a"), (1, "a")]);
        assert_eq!(fit(&[&["a"], &["b"], &[], &["c"]], 2), [(0, "a"), (0, "b"), (1, "c")]);
        assert_eq!(fit(&[&[], &["a"], &["b"]], 4), [(2, "a"), (3, "b")]);
        assert_eq!(fit(&[&["a"]], 0), []);
        assert_eq!(fit(&[], 3), []);
    }
}
