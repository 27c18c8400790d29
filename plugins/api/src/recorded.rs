//! How the values that producers fill stand in a recording, so that whoever reads them can be run on it again.
//!
//! A column is a text of words. A word is the value of all rows, `ROW=WORD` the value of one of them. Without a word for
//! all, the rows that are not named have the values of the text before.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::{Attribute, ColumnKey, Columns, RequestKey};

/// How values of one kind stand in a recording.
pub struct Recorded<T> {
    /// Appends a value. In a column: ASCII without blanks, controls, `=`, `"` and `\`; as a request's value: any text.
    pub write: fn(&T, &mut Vec<u8>),
    /// Reads what `write` wrote; `None`: it did not write that.
    pub read: fn(&str) -> Option<T>,
    /// Whether both are written alike.
    pub same: fn(&T, &T) -> bool,
}

/// The values of one kind from one producer, which a recording keeps.
#[derive(Clone)]
pub struct RecordedValue {
    pub data: &'static str,
    pub producer: String,
    slot: u32,
    how: How,
}

/// What is done with the values of one Rust type.
#[derive(Clone, Copy)]
enum How {
    Column { write: fn(&Columns, u32, &mut Told, &mut Vec<u8>) -> bool, read: fn(&mut Columns, u32, &Words) -> bool },
    Request { write: fn(&Columns, u32, &mut Vec<u8>) -> bool, read: fn(&mut Columns, u32, &str) -> bool },
}

impl RecordedValue {
    /// A column, if its kind is recorded.
    pub(crate) fn column<T: Attribute>(producer: &str, slot: u32) -> Option<Self> {
        T::RECORDED?;
        let how = How::Column { write: write_column::<T>, read: read_column::<T> };
        Some(Self { data: T::NAME, producer: producer.to_owned(), slot, how })
    }

    /// A value of a request, if its kind is recorded.
    pub(crate) fn request<T: Attribute>(producer: &str, slot: u32) -> Option<Self> {
        T::RECORDED?;
        let how = How::Request { write: write_request::<T>, read: read_request::<T> };
        Some(Self { data: T::NAME, producer: producer.to_owned(), slot, how })
    }

    /// `DATA/PRODUCER`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.data, self.producer)
    }

    /// Whether it is one value a request, and so may be any text.
    pub fn is_of_request(&self) -> bool {
        matches!(self.how, How::Request { .. })
    }

    /// Appends what the producer wrote for this request; false if it wrote nothing.
    pub fn write(&self, columns: &Columns, told: &mut Told, out: &mut Vec<u8>) -> bool {
        match self.how {
            How::Column { write, .. } => write(columns, self.slot, told, out),
            How::Request { write, .. } => write(columns, self.slot, out),
        }
    }

    /// Fills in what was written; `text` is that of a request's value, `words` what all texts of a column came to. False
    /// if it cannot have been written.
    pub fn read(&self, columns: &mut Columns, text: &str, words: &Words) -> bool {
        match self.how {
            How::Column { read, .. } => read(columns, self.slot, words),
            How::Request { read, .. } => read(columns, self.slot, text),
        }
    }
}

impl fmt::Debug for RecordedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordedValue({}/{})", self.data, self.producer)
    }
}

/// The values of a column that were written last.
#[derive(Default)]
pub struct Told(Option<Box<dyn Any + Send + Sync>>);

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Told")
    }
}

/// What the texts of a column have come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    all: Option<Arc<str>>,
    rows: BTreeMap<usize, Arc<str>>,
}

impl Words {
    /// Takes the next text, of so many rows.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn take(&mut self, text: &str, rows: usize) -> Result<(), String> {
        for word in text.split_ascii_whitespace() {
            let Some((row, word)) = word.split_once('=') else {
                self.rows.clear();
                self.all = Some(word.into());
                continue;
            };
            let row: usize = row.parse().map_err(|_| format!("expected a row, found {row:.20?}"))?;
            if row >= rows {
                return Err(format!("expected rows below {rows}, found {row}"));
            }
            self.rows.insert(row, word.into());
        }
        Ok(())
    }

    /// The word of a row, if any text named it.
    pub fn of(&self, row: usize) -> Option<&str> {
        self.rows.get(&row).or(self.all.as_ref()).map(|word| &**word)
    }

    /// Makes a value of each row's word; `None` if a row has none, or one that cannot be read.
    pub fn read<T: Clone>(&self, rows: usize, read: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
        let mut values = match &self.all {
            Some(all) => vec![Some(read(all)?); rows],
            None => vec![None; rows],
        };
        for (row, word) in &self.rows {
            *values.get_mut(*row)? = Some(read(word)?);
        }
        values.into_iter().collect()
    }
}

/// Appends the text of a column and remembers the values in `before`: the rows that have changed, or, if those are more
/// than half and it is shorter, the value of all and the rows that have another one. Nothing, where nothing has changed.
pub fn tell<T: Clone>(
    now: &[T],
    before: &mut Vec<T>,
    same: impl Fn(&T, &T) -> bool,
    mut write: impl FnMut(&T, &mut Vec<u8>),
    out: &mut Vec<u8>,
) {
    let (begin, mut n_told) = (out.len(), usize::MAX);
    if before.len() == now.len() {
        n_told = 0;
        for (row, (now, then)) in now.iter().zip(&mut *before).enumerate() {
            if !same(now, then) {
                tell_row(row, now, n_told == 0, &mut write, out);
                then.clone_from(now);
                n_told += 1;
            }
        }
        if n_told <= now.len() / 2 {
            return;
        }
    } else {
        before.clear();
        before.extend_from_slice(now);
    }
    let Some(all) = most_of(now, &same) else { return };
    let others = || now.iter().enumerate().filter(|(_, value)| !same(value, all));
    if others().count() < n_told {
        out.truncate(begin);
        write(all, out);
        others().for_each(|(row, value)| tell_row(row, value, false, &mut write, out));
    }
}

fn tell_row<T>(row: usize, value: &T, is_first: bool, write: &mut impl FnMut(&T, &mut Vec<u8>), out: &mut Vec<u8>) {
    if !is_first {
        out.push(b' ');
    }
    push_number(row as u64, out);
    out.push(b'=');
    write(value, out);
}

/// The value that more than half of the rows have, if there is one; otherwise any.
fn most_of<T>(values: &[T], same: impl Fn(&T, &T) -> bool) -> Option<&T> {
    let (mut most, mut lead) = (values.first()?, 0_usize);
    for value in values {
        if lead == 0 {
            most = value;
        }
        lead = if same(value, most) { lead + 1 } else { lead - 1 };
    }
    Some(most)
}

/// Appends a number in digits.
pub fn push_number(number: u64, out: &mut Vec<u8>) {
    if number < 10 {
        out.push(b'0' + number as u8);
        return;
    }
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends whole numbers as one word, with slashes between them.
pub fn push_numbers<const N: usize>(numbers: [i64; N], out: &mut Vec<u8>) {
    for (i, number) in numbers.into_iter().enumerate() {
        if i > 0 {
            out.push(b'/');
        }
        if number < 0 {
            out.push(b'-');
        }
        push_number(number.unsigned_abs(), out);
    }
}

/// Reads what [`push_numbers`] wrote.
pub fn numbers<const N: usize>(word: &str) -> Option<[i64; N]> {
    let mut words = word.split('/');
    let mut numbers = [0; N];
    for number in &mut numbers {
        *number = words.next()?.parse().ok()?;
    }
    words.next().is_none().then_some(numbers)
}

fn write_column<T: Attribute>(columns: &Columns, slot: u32, told: &mut Told, out: &mut Vec<u8>) -> bool {
    let (Some(recorded), Some(values)) = (T::RECORDED, columns.read(ColumnKey::<T>::of_slot(slot))) else {
        return false;
    };
    let before = told.0.get_or_insert_with(|| Box::new(Vec::<T>::new()));
    let before = before.downcast_mut::<Vec<T>>().expect("a column has one type");
    tell(values, before, recorded.same, recorded.write, out);
    true
}

fn read_column<T: Attribute>(columns: &mut Columns, slot: u32, words: &Words) -> bool {
    let read = T::RECORDED.and_then(|recorded| words.read(columns.rows(), recorded.read));
    if let Some(values) = &read {
        columns.write(ColumnKey::<T>::of_slot(slot)).clone_from_slice(values);
    }
    read.is_some()
}

fn write_request<T: Attribute>(columns: &Columns, slot: u32, out: &mut Vec<u8>) -> bool {
    let (Some(recorded), Some(value)) = (T::RECORDED, columns.read_request(RequestKey::<T>::of_slot(slot))) else {
        return false;
    };
    (recorded.write)(value, out);
    true
}

fn read_request<T: Attribute>(columns: &mut Columns, slot: u32, text: &str) -> bool {
    let read = T::RECORDED.and_then(|recorded| (recorded.read)(text));
    let is_read = read.is_some();
    if let Some(value) = read {
        *columns.write_request(RequestKey::<T>::of_slot(slot)) = value;
    }
    is_read
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told of lists of numbers, one after the other; each is checked to be read as it was.
    fn told(lists: &[&[u64]]) -> Vec<String> {
        let (mut before, mut words) = (Vec::new(), Words::default());
        let texts = lists.iter().map(|now| {
            let mut out = Vec::new();
            tell(now, &mut before, PartialEq::eq, |number, out| push_number(*number, out), &mut out);
            let text = String::from_utf8(out).unwrap();
            words.take(&text, now.len()).unwrap();
            assert_eq!(words.read(now.len(), |word| word.parse().ok()).as_deref(), Some(*now), "{text}");
            text
        });
        texts.collect()
    }

    #[test]
    fn the_shorter_form_is_told_and_read_as_it_was() {
        let lists: [&[u64]; 8] = [
            &[7, 7, 7],
            &[7, 7, 7],
            &[7, 8, 7],
            &[7, 8, 9],
            &[9, 9, 9],
            &[1, 2, 3, 4],
            &[1, 12345, 3, 10],
            &[1, 5, 6, 7],
        ];
        assert_eq!(told(&lists), ["7", "", "1=8", "2=9", "9", "3 0=1 1=2 3=4", "1=12345 3=10", "1=5 2=6 3=7"]);
    }

    #[test]
    fn what_no_text_says_is_not_read() {
        let mut words = Words::default();
        words.take("1=5", 2).unwrap();
        assert_eq!(words.read(2, |word| word.parse::<u64>().ok()), None, "of row 0 nothing is known");
        assert_eq!(words.take("2=5", 2).unwrap_err(), "expected rows below 2, found 2");
        assert_eq!(words.take("x=5", 2).unwrap_err(), "expected a row, found \"x\"");
    }

    #[test]
    fn numbers_are_read_as_they_were_written() {
        for number in (0..1100).chain([9_999, 10_000, 10_001, 123_456, u64::MAX, u64::MAX / 10]) {
            let mut out = Vec::new();
            push_number(number, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), number.to_string());
        }
        for written in [[0, -1, 9], [10, i64::MAX, i64::MIN]] {
            let mut out = Vec::new();
            push_numbers(written, &mut out);
            assert_eq!(numbers(std::str::from_utf8(&out).unwrap()), Some(written));
        }
        for word in ["", "1/2", "1/2/3/4", "1/x/3", "1//3"] {
            assert_eq!(numbers::<3>(word), None, "{word}");
        }
    }
}
