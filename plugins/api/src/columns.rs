//! The typed columns that producers fill and filters and scorers read: one value an endpoint, or one value a request.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::Ledger;
use crate::recorded::{Recorded, RecordedValue};

/// A kind of data that one plugin writes and another reads. The Rust type is the key.
pub trait Attribute: Any + Clone + Default + Send + Sync {
    /// The name of the data in messages and in the config's errors.
    const NAME: &'static str;
    /// The plugin type that is made to produce it when a reader has no producer; `None` if there is no such type.
    const DEFAULT_PRODUCER: Option<&'static str>;
    /// How values stand in a recording of decisions; `None`: they are not recorded, and whoever reads them cannot be run
    /// on a recording.
    const RECORDED: Option<Recorded<Self>> = None;
}

/// Data of one kind from one producer; what is matched between readers and writers when a config is checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DataKey {
    /// [`Attribute::NAME`], or the name of a scraped value.
    pub data: &'static str,
    /// The name of the producing plugin instance.
    pub producer: String,
    /// The plugin type that can be made to produce it, under its own name.
    pub default_producer: Option<&'static str>,
}

impl fmt::Display for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.data, self.producer)
    }
}

/// Where a column of `T`, a value an endpoint, is kept. Resolved when a plugin is built.
pub struct ColumnKey<T> {
    slot: u32,
    of: PhantomData<fn() -> T>,
}

/// Where a single value of `T`, one a request, is kept. Resolved when a plugin is built.
pub struct RequestKey<T> {
    slot: u32,
    of: PhantomData<fn() -> T>,
}

impl<T> ColumnKey<T> {
    pub(crate) fn of_slot(slot: u32) -> Self {
        Self { slot, of: PhantomData }
    }
}

impl<T> RequestKey<T> {
    pub(crate) fn of_slot(slot: u32) -> Self {
        Self { slot, of: PhantomData }
    }
}

impl<T> Clone for ColumnKey<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for ColumnKey<T> {}
impl<T> Clone for RequestKey<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for RequestKey<T> {}
impl<T> fmt::Debug for ColumnKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ColumnKey({})", self.slot)
    }
}
impl<T> fmt::Debug for RequestKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestKey({})", self.slot)
    }
}

/// Gives every data key its slot, the same one for the life of the process, so that a plugin instance that outlives a
/// reload keeps valid keys. Grows by one for each data key ever configured.
#[derive(Debug, Default)]
pub struct Slots {
    keys: Mutex<Vec<Known>>,
    ledgers: Mutex<Vec<(String, Arc<Ledger>)>>,
}

/// A data key that has its slot.
#[derive(Debug)]
struct Known {
    data: &'static str,
    producer: String,
    recorded: Option<RecordedValue>,
}

/// Makes what is known of a key's recording from its producer and its slot.
type MakeRecorded = fn(&str, u32) -> Option<RecordedValue>;

impl Slots {
    fn slot(&self, data: &'static str, producer: &str, recorded: MakeRecorded) -> u32 {
        let mut known = self.keys.lock();
        let place = |at| u32::try_from(at).expect("fewer than 2^32 data keys are ever configured");
        let at = known.iter().position(|k| k.data == data && k.producer == producer).unwrap_or_else(|| {
            let recorded = recorded(producer, place(known.len()));
            known.push(Known { data, producer: producer.to_owned(), recorded });
            known.len() - 1
        });
        place(at)
    }

    /// How values of this key are recorded, if they are.
    pub fn recorded(&self, key: &DataKey) -> Option<RecordedValue> {
        let known = self.keys.lock();
        known.iter().find(|k| k.data == key.data && k.producer == key.producer)?.recorded.clone()
    }

    /// Whether this key has a slot, and so is no scraped value.
    pub fn knows(&self, key: &DataKey) -> bool {
        self.keys.lock().iter().any(|k| k.data == key.data && k.producer == key.producer)
    }

    /// The column of `T` that the instance `producer` fills.
    pub fn column<T: Attribute>(&self, producer: &str) -> ColumnKey<T> {
        ColumnKey::of_slot(self.slot(T::NAME, producer, RecordedValue::column::<T>))
    }

    /// The value of `T`, one a request, that the instance `producer` fills.
    pub fn request<T: Attribute>(&self, producer: &str) -> RequestKey<T> {
        RequestKey::of_slot(self.slot(T::NAME, producer, RecordedValue::request::<T>))
    }

    /// The ledger that the instance `owner` charges. Others may read it; what is in flight there outlives a reload.
    pub fn ledger(&self, owner: &str) -> Arc<Ledger> {
        let mut known = self.ledgers.lock();
        if let Some((_, ledger)) = known.iter().find(|(name, _)| name == owner) {
            return ledger.clone();
        }
        let ledger = Arc::<Ledger>::default();
        known.push((owner.to_owned(), ledger.clone()));
        ledger
    }
}

#[derive(Default)]
struct Slot {
    written: bool,
    values: Option<Box<dyn Any + Send + Sync>>,
}

/// The columns of one request. Kept from request to request so that no memory is taken once warm.
#[derive(Default)]
pub struct Columns {
    slots: Vec<Slot>,
    rows: usize,
}

impl Columns {
    /// Forgets what was written and makes ready for a snapshot of `rows` rows; keeps its memory.
    pub fn reset(&mut self, rows: usize) {
        self.rows = rows;
        for slot in &mut self.slots {
            slot.written = false;
        }
    }

    /// How many rows a column has.
    pub fn rows(&self) -> usize {
        self.rows
    }

    fn slot(&mut self, at: u32) -> &mut Slot {
        let at = at as usize;
        if self.slots.len() <= at {
            self.slots.resize_with(at + 1, Slot::default);
        }
        &mut self.slots[at]
    }

    /// The column to write: as many values as the snapshot has rows, all `T::default()`.
    pub fn write<T: Attribute>(&mut self, key: ColumnKey<T>) -> &mut [T] {
        let rows = self.rows;
        let slot = self.slot(key.slot);
        slot.written = true;
        let values = slot.values.get_or_insert_with(|| Box::new(Vec::<T>::new()));
        let values = values.downcast_mut::<Vec<T>>().expect("a slot belongs to one type");
        values.clear();
        values.resize(rows, T::default());
        values
    }

    /// The column, if its producer wrote it for this request.
    pub fn read<T: Attribute>(&self, key: ColumnKey<T>) -> Option<&[T]> {
        let slot = self.slots.get(key.slot as usize).filter(|s| s.written)?;
        slot.values.as_ref()?.downcast_ref::<Vec<T>>().map(Vec::as_slice)
    }

    /// The request's value to write. Holds whatever the last request left, so that its memory can be used again.
    pub fn write_request<T: Attribute>(&mut self, key: RequestKey<T>) -> &mut T {
        let slot = self.slot(key.slot);
        slot.written = true;
        let value = slot.values.get_or_insert_with(|| Box::new(T::default()));
        value.downcast_mut::<T>().expect("a slot belongs to one type")
    }

    /// The request's value, if its producer wrote it for this request.
    pub fn read_request<T: Attribute>(&self, key: RequestKey<T>) -> Option<&T> {
        let slot = self.slots.get(key.slot as usize).filter(|s| s.written)?;
        slot.values.as_ref()?.downcast_ref::<T>()
    }
}

impl fmt::Debug for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Columns({} slots, {} rows)", self.slots.len(), self.rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, Default, PartialEq)]
    struct Heat(f64);
    impl Attribute for Heat {
        const NAME: &'static str = "heat";
        const DEFAULT_PRODUCER: Option<&'static str> = None;
    }

    #[test]
    fn a_column_reads_as_missing_until_it_is_written() {
        let slots = Slots::default();
        let (a, b) = (slots.column::<Heat>("a"), slots.column::<Heat>("b"));
        let mut columns = Columns::default();
        columns.reset(2);
        assert_eq!(columns.read(a), None);
        columns.write(a)[1] = Heat(2.0);
        assert_eq!(columns.read(a), Some([Heat(0.0), Heat(2.0)].as_slice()));
        assert_eq!(columns.read(b), None);
        columns.reset(3);
        assert_eq!(columns.read(a), None);
        assert_eq!(columns.write(a).len(), 3);
    }

    #[test]
    fn a_key_keeps_its_slot() {
        let slots = Slots::default();
        let first = slots.column::<Heat>("a").slot;
        slots.column::<Heat>("b");
        assert_eq!(slots.column::<Heat>("a").slot, first);
    }
}
