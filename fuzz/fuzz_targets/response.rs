//! Fuzzes responses of engines as `epp bench` reads them: however the bytes are cut, the same comes out.
#![no_main]

use epp::bench::events::{Events, Kind, Told};
use libfuzzer_sys::fuzz_target;

fn read(kind: Kind, pieces: &[&[u8]]) -> Result<Told, String> {
    let mut events = Events::new(kind);
    pieces.iter().try_for_each(|piece| events.feed(piece))?;
    events.finish()
}

fuzz_target!(|data: &[u8]| {
    let Some((&at, body)) = data.split_first() else { return };
    let (begin, end) = body.split_at(usize::from(at).min(body.len()));
    for kind in [Kind::Events, Kind::Whole] {
        let whole = read(kind, &[body]);
        assert_eq!(read(kind, &[begin, end]), whole);
        if let Err(why) = whole {
            assert!(why.starts_with("expected ") && why.lines().count() == 1);
        }
    }
});
