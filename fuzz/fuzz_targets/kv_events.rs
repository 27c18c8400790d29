//! Feeds messages to the producer that follows engines' KV caches, as SGLang and as vLLM write them.

#![no_main]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use epp_plugin_api::{BuildContext, EndpointId, Instance, MetricHub, Slots};
use epp_plugins::producers::precise::TYPE;
use epp_plugins::producers::precise::events::{Batch, Dialect, Event};
use libfuzzer_sys::fuzz_target;

static INSTANCE: LazyLock<Instance> = LazyLock::new(|| {
    static HOME: OnceLock<(Slots, MetricHub)> = OnceLock::new();
    let (slots, metrics) = HOME.get_or_init(Default::default);
    (TYPE.build)(&mut BuildContext::new(TYPE.name, None, slots, metrics, Duration::from_secs(2))).unwrap()
});
static SERIAL: AtomicU32 = AtomicU32::new(1);

fuzz_target!(|bytes: &[u8]| {
    let mut batch = Batch::default();
    for dialect in [Dialect::Sglang, Dialect::Vllm] {
        if batch.decode(dialect, bytes).is_ok() {
            read(&batch);
        }
    }
    let (producer, kv) = (INSTANCE.producer.as_ref().unwrap(), INSTANCE.kv.as_ref().unwrap());
    let id = EndpointId::new(0, SERIAL.fetch_add(1, Ordering::Relaxed));
    // Twice, so that what is stored is found again.
    kv.sink.message(id, b"kv@a@m", bytes);
    kv.sink.message(id, b"kv@a@m", bytes);
    producer.forget(id);
});

/// Follows every part of a batch.
fn read(batch: &Batch) {
    for event in batch.events() {
        match event {
            Event::Stored(event) => {
                assert_eq!(batch.tokens(event).len() % 4, 0);
                let texts = batch.extras(event).flatten().map(|&at| batch.text(at).len()).sum::<usize>();
                let names = [batch.stored_tier(event), batch.lora(event), batch.kind(event)];
                std::hint::black_box((batch.stored_hashes(event), texts, names));
            }
            Event::Removed(event) => {
                std::hint::black_box((batch.removed_hashes(event), batch.removed_tier(event)));
            }
            Event::Cleared => {}
        }
    }
}
