//! Width and height of an image in a data URL, from its first bytes alone: PNG, JPEG and GIF.

use super::estimate::Resolution;
use crate::base64;

/// How much of the text of a data URL may precede its data.
const MOST_BEFORE_DATA: usize = 128;
/// How many segments of a JPEG are looked at.
const MOST_SEGMENTS: usize = 64;

/// Reads the size of the image in `data:image/…;base64,…`; `None` for anything else.
pub fn of_data_url(url: &[u8]) -> Option<Resolution> {
    let rest = url.strip_prefix(b"data:image/")?;
    let head = &rest[..rest.len().min(MOST_BEFORE_DATA)];
    let at = memchr::memmem::find(head, b"base64,")?;
    let data = Base64(&rest[at + b"base64,".len()..]);
    png(data).or_else(|| gif(data)).or_else(|| jpeg(data))
}

fn png(data: Base64<'_>) -> Option<Resolution> {
    if data.array(0)? != *b"\x89PNG\r\n\x1a\n" || data.array(12)? != *b"IHDR" {
        return None;
    }
    sized(u32::from_be_bytes(data.array(16)?), u32::from_be_bytes(data.array(20)?))
}

fn gif(data: Base64<'_>) -> Option<Resolution> {
    let version: [u8; 6] = data.array(0)?;
    if version != *b"GIF87a" && version != *b"GIF89a" {
        return None;
    }
    sized(u16::from_le_bytes(data.array(6)?).into(), u16::from_le_bytes(data.array(8)?).into())
}

/// Hops from segment to segment until the one that begins a frame.
fn jpeg(data: Base64<'_>) -> Option<Resolution> {
    if data.array(0)? != [0xff, 0xd8] {
        return None;
    }
    let mut at: usize = 2;
    for _ in 0..MOST_SEGMENTS {
        let [0xff, marker] = data.array(at)? else { return None };
        match marker {
            0xff => at += 1,
            0x01 | 0xd0..=0xd7 => at += 2,
            0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                return sized(
                    u16::from_be_bytes(data.array(at + 7)?).into(),
                    u16::from_be_bytes(data.array(at + 5)?).into(),
                );
            }
            0xd9 | 0xda => return None,
            _ => at += 2 + usize::from(u16::from_be_bytes(data.array(at + 2)?).max(2)),
        }
    }
    None
}

fn sized(width: u32, height: u32) -> Option<Resolution> {
    (width > 0 && height > 0).then(|| Resolution::new(width, height))
}

/// Base64 text of which single bytes are decoded where they are asked for.
#[derive(Clone, Copy)]
struct Base64<'a>(&'a [u8]);

impl Base64<'_> {
    fn array<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = self.byte(at.checked_add(i)?)?;
        }
        Some(bytes)
    }

    fn byte(self, at: usize) -> Option<u8> {
        let first = at.checked_mul(4)? / 3;
        let (a, b) = (self.digit(first)?, self.digit(first + 1)?);
        Some(match at % 3 {
            0 => a << 2 | b >> 4,
            1 => a << 4 | b >> 2,
            _ => a << 6 | b,
        })
    }

    fn digit(self, at: usize) -> Option<u8> {
        base64::digit(*self.0.get(at)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data_url(kind: &str, bytes: &[u8]) -> String {
        format!("data:image/{kind};base64,{}", base64::encode(bytes))
    }

    fn png_of(width: u32, height: u32) -> Vec<u8> {
        [b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".as_slice(), &width.to_be_bytes(), &height.to_be_bytes(), &[8, 2, 0, 0, 0]]
            .concat()
    }

    fn area(kind: &str, bytes: &[u8]) -> Option<u64> {
        of_data_url(data_url(kind, bytes).as_bytes()).map(Resolution::area)
    }

    #[test]
    fn reads_the_size_from_the_head() {
        assert_eq!(area("png", &png_of(64, 32)), Some(64 * 32));
        let gif = [b"GIF89a".as_slice(), &300u16.to_le_bytes(), &200u16.to_le_bytes(), &[0; 3]].concat();
        assert_eq!(area("gif", &gif), Some(300 * 200));
        let frame = [0xff, 0xc2, 0, 17, 8, 0x02, 0x80, 0x01, 0xe0, 3];
        let jpeg = [[0xff, 0xd8, 0xff, 0xe1, 0, 6, 1, 2, 3, 4, 0xff].as_slice(), frame.as_slice()].concat();
        assert_eq!(area("jpeg", &jpeg), Some(640 * 480));
    }

    #[test]
    fn what_cannot_be_read_has_no_size() {
        for bytes in [&b"\x89PNG\r\n\x1a\n"[..], b"GIF89a", &[0xff, 0xd8, 0xff, 0xda], &[0xff; 300], b"", &png_of(0, 5)]
        {
            assert_eq!(area("png", bytes), None, "{bytes:?}");
        }
        for url in ["https://host/a.png", "data:image/png,plain", "data:text/plain;base64,iVBO", "data:image/"] {
            assert!(of_data_url(url.as_bytes()).is_none(), "{url}");
        }
        assert!(of_data_url(format!("data:image/{}base64,", "x".repeat(500)).as_bytes()).is_none());
    }

    proptest::proptest! {
        #[test]
        fn takes_any_bytes(bytes: Vec<u8>) {
            for head in [&[][..], &[0xff, 0xd8, 0xff], b"GIF87a"] {
                area("jpeg", &[head, &bytes].concat());
            }
            of_data_url(&[b"data:image/png;base64,", bytes.as_slice()].concat());
        }
    }
}
