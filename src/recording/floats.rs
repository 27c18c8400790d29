//! Writes numbers with a fraction so that they are read as exactly what they were. The same ones come again and again, so
//! the texts of some are remembered.

/// As many texts are remembered.
const REMEMBERED: usize = 256;
/// The longest text of a number as JSON has it.
const LONGEST: usize = 24;

/// Texts of numbers, each in a place of its own.
#[derive(Debug, Default)]
pub struct Floats {
    /// Empty until the first number comes.
    known: Vec<Known>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    bits: u64,
    /// 0: nothing is known.
    len: u8,
    text: [u8; LONGEST],
}

impl Floats {
    /// Appends the number.
    pub fn push(&mut self, number: f64, out: &mut Vec<u8>) {
        let bits = number.to_bits();
        if bits == 0 || number == 1.0 {
            out.push(if bits == 0 { b'0' } else { b'1' });
            return;
        }
        if !number.is_finite() {
            // JSON knows no such numbers; they stand in texts.
            out.extend_from_slice(number.to_string().as_bytes());
            return;
        }
        if self.known.is_empty() {
            self.known = vec![Known { bits: 0, len: 0, text: [0; LONGEST] }; REMEMBERED];
        }
        let place = (bits.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as usize % REMEMBERED;
        let known = &mut self.known[place];
        if known.len == 0 || known.bits != bits {
            let mut rest = &mut known.text[..];
            if serde_json::to_writer(&mut rest, &number).is_err() {
                known.len = 0;
                out.extend_from_slice(number.to_string().as_bytes());
                return;
            }
            known.len = (LONGEST - rest.len()) as u8;
            known.bits = bits;
        }
        out.extend_from_slice(&known.text[..usize::from(known.len)]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(floats: &mut Floats, number: f64) -> String {
        let mut out = Vec::new();
        floats.push(number, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn whole_numbers_and_odd_ones_are_short() {
        let mut floats = Floats::default();
        let texts = [0.0, 1.0, 0.25, 3.0, f64::INFINITY, f64::NAN].map(|number| written(&mut floats, number));
        assert_eq!(texts, ["0", "1", "0.25", "3.0", "inf", "NaN"]);
    }

    proptest! {
        #[test]
        fn a_number_is_read_as_it_was_however_often_it_comes(numbers in prop::collection::vec(any::<f64>(), 1..600)) {
            let mut floats = Floats::default();
            for number in numbers.iter().chain(&numbers) {
                let read: f64 = written(&mut floats, *number).parse().unwrap();
                prop_assert!(read.to_bits() == number.to_bits() || number.is_nan() && read.is_nan());
            }
        }
    }
}
