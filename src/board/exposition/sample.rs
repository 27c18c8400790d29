//! Board, reading engines: one line of metrics text behind the name: labels, value, timestamp.

use std::borrow::Cow;

use memchr::{memchr, memchr2};

use super::split_at_byte;

/// What one line says.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'p> {
    pub labels: Labels<'p>,
    /// May be infinite or no number at all.
    pub value: f64,
    /// The timestamp of the line; 0 if there is none.
    pub at: f64,
}

impl<'p> Sample<'p> {
    /// Reads what stands behind a name. `None`: it is no sample.
    pub fn read(text: &'p [u8]) -> Option<Self> {
        let text = trim_start(text);
        let (labels, text) = match text.split_first() {
            Some((b'{', text)) => Labels::read(text)?,
            _ => (Labels::default(), text),
        };
        let (value, text) = word(text);
        let (at, text) = match trim_start(text).first() {
            None | Some(b'#') => (0.0, text),
            Some(_) => {
                let (at, text) = word(text);
                (number(at).filter(|at| at.is_finite())?, text)
            }
        };
        // Behind a hash stands an exemplar.
        let over = trim_start(text).first().is_none_or(|&b| b == b'#');
        Some(Self { labels, value: number(value)?, at }).filter(|_| over)
    }
}

/// The labels of a line, in its order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Labels<'p>(&'p [u8]);

impl<'p> Labels<'p> {
    /// Reads up to the closing brace; the text begins behind the opening one. Gives what stands behind, too.
    fn read(text: &'p [u8]) -> Option<(Self, &'p [u8])> {
        let mut rest = text;
        loop {
            match Step::read(rest)? {
                Step::Label(_, after) => rest = after,
                Step::End(after) => return Some((Self(&text[..text.len() - after.len()]), after)),
            }
        }
    }

    /// The value of a label.
    pub fn value(self, name: &str) -> Option<LabelValue<'p>> {
        self.into_iter().find(|l| l.name == name.as_bytes()).map(|l| l.value)
    }

    /// Whether every one of `wanted` is there with its value.
    pub fn have(self, wanted: &[(String, String)]) -> bool {
        wanted.iter().all(|(name, text)| self.value(name).is_some_and(|v| v.is(text)))
    }
}

impl<'p> IntoIterator for Labels<'p> {
    type Item = Label<'p>;
    type IntoIter = LabelsIter<'p>;

    fn into_iter(self) -> LabelsIter<'p> {
        LabelsIter(self.0)
    }
}

/// Walks the labels of a line.
#[derive(Clone, Debug)]
pub struct LabelsIter<'p>(&'p [u8]);

impl<'p> Iterator for LabelsIter<'p> {
    type Item = Label<'p>;

    fn next(&mut self) -> Option<Label<'p>> {
        match Step::read(self.0) {
            Some(Step::Label(label, rest)) => {
                self.0 = rest;
                Some(label)
            }
            Some(Step::End(_)) | None => None,
        }
    }
}

/// A label's name and value.
#[derive(Clone, Copy, Debug)]
pub struct Label<'p> {
    pub name: &'p [u8],
    pub value: LabelValue<'p>,
}

/// A label's value as it stands between its quotes, with its escapes.
#[derive(Clone, Copy, Debug)]
pub struct LabelValue<'p>(&'p [u8]);

impl<'p> LabelValue<'p> {
    /// As it stands on the page.
    pub fn raw(self) -> &'p [u8] {
        self.0
    }

    /// Without its escapes. What is no UTF-8 becomes the replacement character.
    pub fn text(self) -> Cow<'p, str> {
        if memchr(b'\\', self.0).is_none() {
            return String::from_utf8_lossy(self.0);
        }
        let mut plain = Vec::with_capacity(self.0.len());
        let mut rest = self.0;
        while let Some((before, after)) = split_at_byte(rest, b'\\') {
            plain.extend_from_slice(before);
            rest = match after.split_first() {
                Some((b'n', after)) => {
                    plain.push(b'\n');
                    after
                }
                Some((&b @ (b'\\' | b'"'), after)) => {
                    plain.push(b);
                    after
                }
                _ => {
                    plain.push(b'\\');
                    after
                }
            };
        }
        plain.extend_from_slice(rest);
        Cow::Owned(String::from_utf8_lossy(&plain).into_owned())
    }

    fn is(self, text: &str) -> bool {
        self.0 == text.as_bytes() && memchr(b'\\', self.0).is_none() || self.text() == text
    }
}

enum Step<'p> {
    Label(Label<'p>, &'p [u8]),
    End(&'p [u8]),
}

impl<'p> Step<'p> {
    /// Reads one label and the comma behind it, or the closing brace.
    fn read(text: &'p [u8]) -> Option<Self> {
        let text = trim_start(text);
        if let Some((b'}', rest)) = text.split_first() {
            return Some(Self::End(rest));
        }
        let name_ends = text.iter().position(|&b| matches!(b, b'=' | b'"' | b',' | b'{' | b'}') || is_blank(b))?;
        let (name, text) = text.split_at(name_ends);
        let text = trim_start(trim_start(text).strip_prefix(b"=")?).strip_prefix(b"\"")?;
        let value_ends = closing_quote(text)?;
        let (value, text) = (LabelValue(&text[..value_ends]), trim_start(&text[value_ends + 1..]));
        let rest = match text.first()? {
            b',' => &text[1..],
            b'}' => text,
            _ => return None,
        };
        (!name.is_empty()).then_some(Self::Label(Label { name, value }, rest))
    }
}

/// Whether the byte is white space within a line.
pub(super) fn is_blank(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\r')
}

/// The text without the white space before it.
pub(super) fn trim_start(text: &[u8]) -> &[u8] {
    let blanks = text.iter().take_while(|&&b| is_blank(b)).count();
    &text[blanks..]
}

fn closing_quote(text: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + memchr2(b'"', b'\\', text.get(from..)?)?;
        if text[at] == b'"' {
            return Some(at);
        }
        from = at + 2;
    }
}

fn word(text: &[u8]) -> (&[u8], &[u8]) {
    let text = trim_start(text);
    text.split_at(text.iter().position(|&b| is_blank(b)).unwrap_or(text.len()))
}

fn number(word: &[u8]) -> Option<f64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    type Texts = Vec<(String, String)>;

    /// Value, timestamp and labels.
    fn read(text: &str) -> Option<(f64, f64, Texts)> {
        let s = Sample::read(text.as_bytes())?;
        let labels = s.labels.into_iter();
        let text = |l: Label<'_>| (String::from_utf8_lossy(l.name).into_owned(), l.value.text().into_owned());
        Some((s.value, s.at, labels.map(text).collect()))
    }

    #[test]
    fn reads_a_number_however_it_is_written() {
        for text in [
            " 7",
            " 7.0",
            " 7e0",
            " +7",
            " 0.7e+01",
            "\t7",
            "{} 7",
            "{ } 7",
            " 7\r",
            " 7 \t",
            "{}7",
            " 7 # {trace_id=\"t\"} 0.5",
            " 7 0 # {} 1 2",
            "{,}7",
        ] {
            let expected = if text == "{,}7" { None } else { Some((7.0, 0.0, vec![])) };
            assert_eq!(read(text), expected, "{text:?}");
        }
    }

    #[test]
    fn reads_labels_however_they_are_written() {
        for (text, labels) in [
            ("{a=\"b\"}7", &[("a", "b")][..]),
            ("{a=\"b\",} 7", &[("a", "b")]),
            (" \t{ a = \"b\" , c=\"d\" }\t 7", &[("a", "b"), ("c", "d")]),
            ("{a=\"\\\"}, {\\\\ \\n\"} 7", &[("a", "\"}, {\\ \n")]),
            ("{a=\"ü,}{=\"} 7", &[("a", "ü,}{=")]),
            ("{a=\"\",b=\"\\x\\\\\"} 7", &[("a", ""), ("b", "\\x\\")]),
        ] {
            let labels = labels.iter().map(|&(n, v)| (n.to_owned(), v.to_owned())).collect();
            assert_eq!(read(text), Some((7.0, 0.0, labels)), "{text:?}");
        }
    }

    #[test]
    fn reads_a_timestamp() {
        for (text, at) in [(" 7 1700000000000", 1.7e12), (" 7 -5", -5.0), ("{} 7 1.5 # x", 1.5), (" 7 0", 0.0)] {
            assert_eq!(read(text), Some((7.0, at, vec![])), "{text:?}");
        }
    }

    #[test]
    fn refuses_what_is_no_sample() {
        for text in [
            "",
            " ",
            "{",
            "{a",
            "{a=",
            "{a=\"",
            "{a=\"b",
            "{a=\"b\\\"} 1",
            "{a=\"b\" 1",
            "{a=b} 1",
            "{=\"b\"} 1",
            "{a=\"b\"}",
            " x",
            " 1 2 3",
            " 1 x",
            " 1 NaN",
            " 1,5",
            "{a=\"b\" c=\"d\"} 1",
            "{a b=\"c\"} 1",
            " # 7",
            "{a=\"b\"}} 1",
        ] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }

    #[test]
    fn compares_labels_without_their_escapes() {
        let s = Sample::read(br#"{a="x\\y",b="plain"} 1"#).expect("a sample");
        let want = |name: &str, value: &str| s.labels.have(&[(name.to_owned(), value.to_owned())]);
        assert!(want("a", "x\\y") && want("b", "plain") && s.labels.have(&[]));
        assert!(!want("a", "x\\\\y") && !want("b", "plai") && !want("c", ""));
    }
}
