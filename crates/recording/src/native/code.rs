// SPDX-License-Identifier: GPL-2.0-only
//! How numbers and texts are written: numbers in groups of seven bits, the lowest first, each but the
//! last with its highest bit set (LEB128, as in protocol buffers); texts with their length first.
//!
//! Not by way of prost, which reads Perfetto's: of a broken number it does not say whether the bytes end or the number is
//! too large, and its functions for single numbers are no documented part of it.

/// What is wrong with an entry's bytes.
pub(crate) type Wrong = &'static str;

/// The longest text, bytes.
pub(crate) const LONGEST_TEXT: usize = 1024;

/// Writes a number.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes a difference: small ones are short, whatever their sign.
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

/// Writes a text, cut at the end of a character to the length that may be read.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(LONGEST_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let bytes = text.as_bytes().get(..end).unwrap_or_default();
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Bytes that are being read.
pub(crate) struct Bytes<'a>(pub &'a [u8]);

impl Bytes<'_> {
    /// A byte.
    pub(crate) fn byte(&mut self) -> Result<u8, Wrong> {
        let (first, rest) = self.0.split_first().ok_or("it ends within an entry")?;
        self.0 = rest;
        Ok(*first)
    }

    /// A number.
    pub(crate) fn number(&mut self) -> Result<u64, Wrong> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number has more than 64 bits")
    }

    /// A difference.
    pub(crate) fn signed(&mut self) -> Result<i64, Wrong> {
        let value = self.number()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// A number of at most 32 bits.
    pub(crate) fn small(&mut self) -> Result<u32, Wrong> {
        u32::try_from(self.number()?).map_err(|_| "a number has more than 32 bits")
    }

    /// A text; whatever is not UTF-8 in it is replaced.
    pub(crate) fn text(&mut self) -> Result<String, Wrong> {
        let length = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        if length > LONGEST_TEXT {
            return Err("a text is longer than 1024 bytes");
        }
        let (text, rest) = self
            .0
            .split_at_checked(length)
            .ok_or("it ends within a text")?;
        self.0 = rest;
        Ok(String::from_utf8_lossy(text).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(number: u64, difference: i64, text in ".{0,40}") {
            let mut bytes = Vec::new();
            put(&mut bytes, number);
            put_signed(&mut bytes, difference);
            put_text(&mut bytes, &text);
            let mut read = Bytes(&bytes);
            prop_assert_eq!(read.number(), Ok(number));
            prop_assert_eq!(read.signed(), Ok(difference));
            prop_assert_eq!(read.text(), Ok(text));
            prop_assert!(read.0.is_empty());
        }
    }

    #[test]
    fn what_is_no_number() {
        assert!(Bytes(&[0x80]).number().is_err());
        assert!(Bytes(&[0xff; 10]).number().is_err());
        assert_eq!(
            Bytes(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]).number(),
            Ok(u64::MAX)
        );
        assert!(Bytes(&[0x80, 0x80, 0x80, 0x80, 0x10]).small().is_err());
        assert!(Bytes(&[5, b'a']).text().is_err());
        let mut long = Vec::new();
        put_text(&mut long, &"ü".repeat(600));
        assert_eq!(Bytes(&long).text().unwrap().len(), 1024);
    }
}
