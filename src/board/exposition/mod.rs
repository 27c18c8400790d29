//! Board, reading engines: walks a page of metrics text once and hands over the samples of wanted families.
//!
//! Every line stands for itself: what cannot be read is passed over and never hurts another line. Type lines are not
//! looked at. Lines of other families cost one comparison of eight bytes and the search for their end.

pub mod sample;

use memchr::{memchr, memchr_iter};

use sample::{Sample, is_blank, trim_start};

/// The names of wanted families, made ready to be told from all others at a glance.
#[derive(Clone, Debug, Default)]
pub struct Families {
    names: Vec<Box<[u8]>>,
    /// Eight bytes of each name, the last ones that even the shortest name has: names of one engine start alike.
    probes: Vec<u64>,
    probe_at: usize,
    /// Blanks what of the eight bytes lies beyond a shorter name.
    mask: u64,
}

impl Families {
    /// Makes the set of these names. Empty names are kept but never found; of equal names the first is found.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let names: Vec<Box<[u8]>> = names.into_iter().map(|n| n.as_bytes().into()).collect();
        let shortest = names.iter().map(|n| n.len()).filter(|&n| n > 0).min().unwrap_or(0);
        let probe_at = shortest.saturating_sub(8);
        let mask = if shortest >= 8 { u64::MAX } else { (1 << (8 * shortest)) - 1 };
        let mut probes: Vec<u64> = names
            .iter()
            .filter(|n| !n.is_empty())
            .map(|n| {
                let mut eight = [0; 8];
                let from = &n[probe_at..n.len().min(probe_at + 8)];
                eight[..from.len()].copy_from_slice(from);
                u64::from_le_bytes(eight) & mask
            })
            .collect();
        probes.sort_unstable();
        probes.dedup();
        Self { names, probes, probe_at, mask }
    }

    /// Calls `each` with the place of the family among the names and the sample, in the order of the page.
    pub fn walk<'p>(&self, page: &'p [u8], mut each: impl FnMut(usize, Sample<'p>)) {
        if self.probes.is_empty() {
            return;
        }
        let mut start = 0;
        for end in memchr_iter(b'\n', page) {
            if self.may_start_at(page, start)
                && let Some((family, sample)) = self.read(&page[start..end])
            {
                each(family, sample);
            }
            start = end + 1;
        }
        if let Some((family, sample)) = self.read(&page[start..]) {
            each(family, sample);
        }
    }

    #[inline]
    fn may_start_at(&self, page: &[u8], start: usize) -> bool {
        // Near the end of the page there may be no eight bytes left; the names are compared then.
        let Some(eight) = page.get(start + self.probe_at..).and_then(<[u8]>::first_chunk) else { return true };
        let eight = u64::from_le_bytes(*eight) & self.mask;
        self.probes.iter().fold(false, |is, &probe| is | (probe == eight)) || is_blank(page[start])
    }

    fn read<'p>(&self, line: &'p [u8]) -> Option<(usize, Sample<'p>)> {
        let line = trim_start(line);
        let family = self.names.iter().position(|name| {
            !name.is_empty()
                && line.starts_with(name)
                && line.get(name.len()).is_some_and(|&b| b == b'{' || is_blank(b))
        })?;
        Some((family, Sample::read(&line[self.names[family].len()..])?))
    }
}

/// Whether the page ends where a line does, as every whole page should.
pub fn ends_with_a_line(page: &[u8]) -> bool {
    page.last().is_none_or(|&b| b == b'\n') || page.ends_with(b"# EOF")
}

/// Splits at the first of `byte`; the rest is without it.
fn split_at_byte(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    memchr(byte, text).map(|at| (&text[..at], &text[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(names: &[&str], page: &str) -> Vec<(usize, f64)> {
        let mut seen = Vec::new();
        Families::new(names.iter().copied()).walk(page.as_bytes(), |family, s| seen.push((family, s.value)));
        seen
    }

    #[test]
    fn finds_wanted_families_among_others_in_any_order() {
        let page = "# TYPE b gauge\nb 1\nother{a=\"b\"} 2\na 3\nab 4\naa{} 5\na_x 6\n# a 7\nb 8";
        assert_eq!(values(&["a", "b", "aa"], page), [(1, 1.0), (0, 3.0), (2, 5.0), (1, 8.0)]);
    }

    #[test]
    fn long_names_that_start_alike_are_told_apart() {
        let names = ["vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:lora_requests_info"];
        let page = "vllm:num_requests_waiting_by_reason{r=\"x\"} 1\nvllm:num_requests_running 2\n\
                    vllm:num_requests_waiting 3\nvllm:lora_requests_info 4\nvllm:lora_requests_inf 5\nvllm:lora";
        assert_eq!(values(&names, page), [(1, 2.0), (0, 3.0), (2, 4.0)]);
    }

    #[test]
    fn nothing_wanted_finds_nothing() {
        assert_eq!(values(&[], "a 1\n 2\n"), []);
        assert_eq!(values(&[""], "a 1\n 2\n{} 3\n"), []);
    }

    #[test]
    fn an_odd_line_hurts_no_other() {
        for odd in
            ["%%% not a sample", "x 1 2 3", "x{a=b} 1", "x{a=\"b\" 1", "1x 5", "x abc", "x", "x{", "x{a", "", "\0"]
        {
            assert_eq!(values(&["x", "y"], &format!("y 1\n{odd}\ny 2\n")), [(1, 1.0), (1, 2.0)], "{odd}");
        }
    }

    #[test]
    fn a_line_of_mebibytes_is_passed_over() {
        let giant = format!("other{{text=\"{}\"}} 1\n", "a{b=\\\"c\\\",d}".repeat(250_000));
        assert_eq!(values(&["x"], &format!("{giant}x 7\n")), [(0, 7.0)]);
        assert_eq!(values(&["other"], &format!("{giant}x 7\n")), [(0, 1.0)]);
    }

    #[test]
    fn knows_a_page_that_was_cut() {
        for (page, whole) in [("", true), ("a 1\n", true), ("a 1\n# EOF", true), ("a 1", false), ("a 1\nb", false)] {
            assert_eq!(ends_with_a_line(page.as_bytes()), whole, "{page:?}");
        }
    }
}
