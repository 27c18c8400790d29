//! A response that is one JSON document: kept up to a bound and read at its end.

use epp_plugin_api::{ResponseParser, Usage};

/// Of a longer document no usage is read.
const MAX_DOCUMENT: usize = 8 << 20;

/// Keeps the document.
pub struct Whole {
    document: Vec<u8>,
    given_up: bool,
    read: fn(&[u8]) -> Option<Usage>,
}

impl Whole {
    /// Makes a reader that hands the whole document to `read`.
    pub fn new(read: fn(&[u8]) -> Option<Usage>) -> Self {
        Self { document: Vec::new(), given_up: false, read }
    }
}

impl ResponseParser for Whole {
    fn feed(&mut self, chunk: &[u8]) -> Option<Usage> {
        if self.given_up {
            return None;
        }
        // What does not begin like an object is compressed, or text, or a list.
        let starts_wrong = self.document.is_empty() && !matches!(chunk.trim_ascii_start().first(), None | Some(b'{'));
        if starts_wrong || self.document.len() + chunk.len() > MAX_DOCUMENT {
            self.given_up = true;
            self.document = Vec::new();
            return None;
        }
        self.document.extend_from_slice(chunk);
        None
    }

    fn finish(&mut self) -> Option<Usage> {
        let document = std::mem::take(&mut self.document);
        if self.given_up || document.is_empty() {
            return None;
        }
        self.given_up = true;
        (self.read)(&document)
    }
}
