//! Writes messages and frames for the tests of the parsers of gRPC.

/// The value of a field.
pub enum Put<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Packed(&'a [u32]),
}

fn varint(mut n: u64, into: &mut Vec<u8>) {
    while n > 0x7f {
        into.push(n as u8 | 0x80);
        n >>= 7;
    }
    into.push(n as u8);
}

/// A message of these fields.
pub fn message(fields: &[(u64, Put<'_>)]) -> Vec<u8> {
    let mut out = Vec::new();
    let bytes = |number: u64, bytes: &[u8], out: &mut Vec<u8>| {
        varint(number << 3 | 2, out);
        varint(bytes.len() as u64, out);
        out.extend_from_slice(bytes);
    };
    for (number, value) in fields {
        match value {
            Put::Number(n) => {
                varint(number << 3, &mut out);
                varint(*n, &mut out);
            }
            Put::Bytes(value) => bytes(*number, value, &mut out),
            Put::Packed(values) => {
                let mut packed = Vec::new();
                values.iter().for_each(|&n| varint(n.into(), &mut packed));
                bytes(*number, &packed, &mut out);
            }
        }
    }
    out
}

/// A frame around a message.
pub fn frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("messages of tests are short");
    [&[0], &length.to_be_bytes()[..], message].concat()
}
