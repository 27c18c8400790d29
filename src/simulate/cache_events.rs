//! What an engine says of its cache, as the message that vLLM would publish, and its way to the picker.

use std::time::Duration;

use epp_sim::model::CacheChange;

use super::live::Said;
use super::run::{Run, What};

/// What stands for the memory of the accelerator in events.
const TIER: &str = "GPU";

impl Run<'_, '_> {
    /// Lets engines tell of their caches, if the picker listens.
    pub(super) fn listen(&mut self) {
        let Some(picker) = self.chooser.picker().filter(|picker| picker.listens()) else { return };
        self.pool.tell_of_caches();
        for row in self.pool.listed() {
            if let Some(id) = self.pool.id(*row) {
                picker.came(id, &self.pool.meta(*row).name);
            }
        }
    }

    /// What has changed in the cache of an engine is published. An endpoint that the picker does not know is not heard.
    pub(super) fn tell_of_cache(&mut self, row: usize) {
        let changes = self.pool.engines[row].take_cache_changes();
        let Some(from) = self.pool.id(row).filter(|_| !changes.is_empty()) else { return };
        let block_tokens = self.pool.engines[row].settings().block_size;
        let payload = payload(self.now, &changes, block_tokens, &self.stage.traffic.models);
        self.heard.push_back(Said { row, from, payload });
        self.at(self.now + self.stage.event_delay, What::Hear);
    }

    /// The picker hears the message that was published first, unless the endpoint has left.
    pub(super) fn hear(&mut self) {
        let Some(Said { row, from, payload }) = self.heard.pop_front() else { return };
        if let Some(picker) = self.chooser.picker().filter(|_| self.pool.id(row) == Some(from)) {
            let topic = format!("kv@{}@{}", self.pool.meta(row).host_port, self.stage.traffic.models[0]);
            picker.hear(from, &topic, &payload);
        }
    }
}

/// Writes a batch of events in MessagePack. Prompts with the salt 0 are of the model that the topic names, others of the
/// adapter of that number.
fn payload(at: Duration, changes: &[CacheChange], block_tokens: usize, models: &[String]) -> Vec<u8> {
    let mut out = Vec::new();
    array(&mut out, 3);
    out.push(0xcb);
    out.extend(at.as_secs_f64().to_be_bytes());
    array(&mut out, changes.len());
    for change in changes {
        match change {
            CacheChange::Stored { blocks, parent, tokens, salt } => {
                array(&mut out, 8);
                text(&mut out, "BlockStored");
                list(&mut out, blocks.iter().copied());
                match parent {
                    Some(parent) => number(&mut out, *parent),
                    None => nil(&mut out),
                }
                list(&mut out, tokens.iter().map(|token| u64::from(*token)));
                number(&mut out, block_tokens as u64);
                nil(&mut out);
                text(&mut out, TIER);
                match models.get(*salt as usize).filter(|_| *salt > 0) {
                    Some(adapter) => text(&mut out, adapter),
                    None => nil(&mut out),
                }
            }
            CacheChange::Removed { blocks } => {
                array(&mut out, 3);
                text(&mut out, "BlockRemoved");
                list(&mut out, blocks.iter().copied());
                text(&mut out, TIER);
            }
            CacheChange::Cleared => {
                array(&mut out, 1);
                text(&mut out, "AllBlocksCleared");
            }
        }
    }
    number(&mut out, 0);
    out
}

fn list(out: &mut Vec<u8>, items: impl ExactSizeIterator<Item = u64>) {
    array(out, items.len());
    items.for_each(|item| number(out, item));
}

fn array(out: &mut Vec<u8>, len: usize) {
    out.push(0xdd);
    out.extend((len as u32).to_be_bytes());
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.push(0xdb);
    out.extend((text.len() as u32).to_be_bytes());
    out.extend(text.as_bytes());
}

fn number(out: &mut Vec<u8>, number: u64) {
    match number {
        0..0x80 => out.push(number as u8),
        0x80..=0xffff_ffff => {
            out.push(0xce);
            out.extend((number as u32).to_be_bytes());
        }
        _ => {
            out.push(0xcf);
            out.extend(number.to_be_bytes());
        }
    }
}

fn nil(out: &mut Vec<u8>) {
    out.push(0xc0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_laid_out_as_engines_do() {
        let stored = CacheChange::Stored { blocks: vec![1 << 40], parent: None, tokens: vec![7, 300], salt: 1 };
        let models = ["m".to_owned(), "a".to_owned()];
        let bytes = payload(Duration::from_secs(1), &[stored, CacheChange::Cleared], 2, &models);
        let expected = [
            &b"\xdd\0\0\0\x03\xcb\x3f\xf0\0\0\0\0\0\0\xdd\0\0\0\x02"[..],
            b"\xdd\0\0\0\x08\xdb\0\0\0\x0bBlockStored\xdd\0\0\0\x01\xcf\0\0\x01\0\0\0\0\0\xc0",
            b"\xdd\0\0\0\x02\x07\xce\0\0\x01\x2c\x02\xc0\xdb\0\0\0\x03GPU\xdb\0\0\0\x01a",
            b"\xdd\0\0\0\x01\xdb\0\0\0\x10AllBlocksCleared",
            b"\0",
        ];
        assert_eq!(bytes, expected.concat());
    }
}
