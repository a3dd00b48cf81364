// SPDX-License-Identifier: GPL-2.0-only
//! Blocks: lengths, checksum, contents packed with LZ4.
//!
//! All numbers are little-endian. A block's checksum (CRC-32 as in gzip) is over everything in it
//! before and after the checksum itself, so that damaged lengths are noticed, too.

use super::decode;
use super::entry::Entry;
use std::io::{self, Read};

/// What a file begins with.
pub const MAGIC: [u8; 8] = *b"CORUNREC";
/// The version written, and the newest that is read.
const VERSION: u32 = 1;
/// The file's header: magic and version.
pub const HEADER: [u8; 12] = header();

/// What a block begins with.
const BLOCK: [u8; 4] = *b"BLK1";
/// Its head: magic, length packed, length unpacked, checksum.
const HEAD: usize = 16;
/// The longest block, unpacked, bytes.
const LONGEST: usize = 1 << 20;

const fn header() -> [u8; 12] {
    let mut bytes = [0; 12];
    let mut at = 0;
    while at < 8 {
        bytes[at] = MAGIC[at];
        at += 1;
    }
    bytes[8] = VERSION as u8;
    bytes
}

/// A block of these bytes, ready to be written.
pub(super) fn pack(bytes: &[u8]) -> Vec<u8> {
    let packed = lz4_flex::block::compress(bytes);
    let mut block = Vec::with_capacity(HEAD + packed.len());
    block.extend(BLOCK);
    block.extend((packed.len() as u32).to_le_bytes());
    block.extend((bytes.len() as u32).to_le_bytes());
    let sum = checksum(&block, &packed);
    block.extend(sum.to_le_bytes());
    block.extend(packed);
    block
}

fn checksum(lengths: &[u8], packed: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(lengths);
    sum.update(packed);
    sum.finalize()
}

/// Why reading a file stops.
#[derive(Debug)]
pub enum Damage {
    /// It is not a recording of corun, or is one of a later version.
    Header(String),
    /// It ends within a block: it was cut off there.
    Cut,
    /// The recording ended with the last block; so many bytes come after it.
    Behind(u64),
    /// A block differs from what was written.
    Block(&'static str),
    /// It could not be read.
    Io(io::Error),
}

/// The blocks of a file.
pub struct Blocks<R> {
    source: R,
    /// Bytes read, including those of an incomplete block.
    taken: u64,
    /// Blocks decoded.
    pub blocks: u64,
    /// Bytes of the file up to the end of the last whole block.
    pub bytes: u64,
    /// The entry that ends a recording has been read.
    pub whole: bool,
}

impl<R: Read> Blocks<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// [`Damage::Header`] or [`Damage::Io`].
    pub fn open(mut source: R) -> Result<Self, Damage> {
        let mut head = [0; 12];
        let found = fill(&mut source, &mut head)?;
        if head[..8] != MAGIC {
            let what = "it does not begin with CORUNREC";
            return Err(Damage::Header(what.to_string()));
        }
        if found < head.len() {
            let what = format!(
                "it ends within its header, after {found} of {} bytes",
                head.len()
            );
            return Err(Damage::Header(what));
        }
        let version = number(&head, 8);
        if version == 0 || version > VERSION {
            return Err(Damage::Header(format!(
                "it is of version {version}, this program reads up to {VERSION}"
            )));
        }
        Ok(Self {
            source,
            taken: head.len() as u64,
            blocks: 0,
            bytes: head.len() as u64,
            whole: false,
        })
    }

    /// Adds the next block's entries to `out`; false at the end of the file.
    ///
    /// # Errors
    /// [`Damage`]. Nothing after it can be read; of the damaged block, nothing is in `out`.
    pub fn next(&mut self, out: &mut Vec<Entry>) -> Result<bool, Damage> {
        match self.block(out) {
            Err(Damage::Cut | Damage::Block(_)) if self.whole => match self.behind()? {
                0 => Ok(false),
                bytes => Err(Damage::Behind(bytes)),
            },
            told => told,
        }
    }

    /// Reads to the file's end; returns how many bytes come after the last whole block.
    fn behind(&mut self) -> Result<u64, Damage> {
        let mut rest = [0; 4096];
        loop {
            match self.fill(&mut rest) {
                Ok(0) | Err(Damage::Cut) => return Ok(self.taken - self.bytes),
                Ok(_) => {}
                Err(damage) => return Err(damage),
            }
        }
    }

    fn fill(&mut self, into: &mut [u8]) -> Result<usize, Damage> {
        let have = fill(&mut self.source, into)?;
        self.taken += have as u64;
        Ok(have)
    }

    fn block(&mut self, out: &mut Vec<Entry>) -> Result<bool, Damage> {
        let mut head = [0; HEAD];
        match self.fill(&mut head)? {
            0 => return Ok(false),
            HEAD => {}
            _ => return Err(Damage::Cut),
        }
        let (packed, length) = (number(&head, 4) as usize, number(&head, 8) as usize);
        if head[..4] != BLOCK {
            return Err(Damage::Block("it does not begin as blocks do"));
        }
        // Data that LZ4 cannot compress becomes at most this long.
        let longest = lz4_flex::block::get_maximum_output_size(LONGEST);
        if length > LONGEST || packed > longest {
            return Err(Damage::Block("it is longer than blocks may be"));
        }
        let mut bytes = vec![0; packed];
        if self.fill(&mut bytes)? < packed {
            return Err(Damage::Cut);
        }
        if checksum(&head[..12], &bytes) != number(&head, 12) {
            return Err(Damage::Block("its checksum is wrong"));
        }
        let bytes = lz4_flex::block::decompress(&bytes, length)
            .map_err(|_| Damage::Block("it cannot be unpacked"))?;
        let before = out.len();
        decode::entries(&bytes, out).map_err(|why| {
            out.truncate(before);
            Damage::Block(why)
        })?;
        let new = out.iter().skip(before);
        let ends = |entry: &Entry| matches!(entry, Entry::Edge { last: true, .. });
        self.whole |= new.rev().any(ends);
        self.blocks += 1;
        self.bytes += (HEAD + packed) as u64;
        Ok(true)
    }
}

/// Reads as much as there is and fits; returns how much that was.
fn fill(source: &mut impl Read, into: &mut [u8]) -> Result<usize, Damage> {
    let mut have = 0;
    while let Some(rest) = into.get_mut(have..).filter(|rest| !rest.is_empty()) {
        match source.read(rest) {
            Ok(0) => break,
            Ok(more) => have += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The error of a packed file that is cut off.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(Damage::Cut),
            Err(error) => return Err(Damage::Io(error)),
        }
    }
    Ok(have)
}

fn number(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..).and_then(<[u8]>::first_chunk);
    four.map_or(0, |four| u32::from_le_bytes(*four))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A block with a correct checksum may contain anything: decoding gives entries or says what is wrong.
        #[test]
        fn any_contents(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut file = HEADER.to_vec();
            file.extend(pack(&bytes));
            let mut out = Vec::new();
            let mut blocks = Blocks::open(&file[..]).unwrap();
            if let Err(damage) = blocks.next(&mut out) {
                let inside = matches!(damage, Damage::Block(_));
                prop_assert!(inside && out.is_empty());
            }
            // Whatever the result, importing it ends without a panic.
            let _ = crate::read_bytes("x", &file);
        }
    }

    #[test]
    fn lengths_that_no_block_has() {
        let mut head = HEADER.to_vec();
        head.extend(BLOCK);
        head.extend(u32::MAX.to_le_bytes());
        head.extend(u32::MAX.to_le_bytes());
        head.extend([0; 4]);
        let mut blocks = Blocks::open(&head[..]).unwrap();
        let damage = blocks.next(&mut Vec::new());
        assert!(matches!(damage, Err(Damage::Block(why)) if why.contains("longer")));
    }
}
