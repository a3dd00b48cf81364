// SPDX-License-Identifier: GPL-2.0-only
//! Writes the dispatcher's recording to a file, for the replay in crates/dispatcher.
//!
//! "CORUNLK1", u32 version, u32 length and bytes of `struct knobs`; then each record as u32 length
//! and bytes (`struct record`, without the entries not used); last a trailer, a record with the
//! operation 0xffffffff and the number of lost records as its argument. A record with the operation
//! 0xfffffffe is a mark: from here on a policy is in force, whose name has as many bytes as the
//! argument says, eight in each entry's value. All little-endian. A file without trailer, left by a
//! daemon that was killed, is good up to its last whole record.

use crate::skel::types;
use crate::tables::bytes_of;
use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::rc::Rc;

const MAGIC: &[u8; 8] = b"CORUNLK1";
const VERSION: u32 = 1;
/// `struct record` up to its entries.
const HEAD: usize = 32;
/// `struct record_entry`.
const ENTRY: usize = 16;
const TRAILER: u32 = u32::MAX;
const MARK: u32 = u32::MAX - 1;

/// What a recording holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Callbacks in the file.
    pub records: u64,
    /// Callbacks for which there was no room.
    pub lost: u64,
}

/// A file that is being written.
struct Sink<W> {
    out: W,
    records: u64,
    failed: Option<io::Error>,
}

impl<W: Write> Sink<W> {
    fn begin(mut out: W, knobs: &types::knobs) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        let mut sink = Self {
            out,
            records: 0,
            failed: None,
        };
        sink.put(bytes_of(knobs))?;
        Ok(sink)
    }

    /// Bytes after their length.
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(bytes)
    }

    /// A record; after a failure (disk full) nothing more is written.
    fn record(&mut self, bytes: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        match self.put(bytes) {
            Ok(()) => self.records += 1,
            Err(error) => self.failed = Some(error),
        }
    }

    /// From here on this policy is in force.
    fn mark(&mut self, policy: &str) -> io::Result<()> {
        let words = policy.as_bytes().chunks(8);
        let mut mark = vec![0; HEAD + words.len() * ENTRY];
        mark[..4].copy_from_slice(&MARK.to_le_bytes());
        mark[24..32].copy_from_slice(&(policy.len() as u64).to_le_bytes());
        for (entry, word) in mark[HEAD..].chunks_mut(ENTRY).zip(words) {
            entry[..word.len()].copy_from_slice(word);
        }
        self.put(&mark)
    }

    fn end(&mut self, lost: u64) -> io::Result<Recorded> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut trailer = [0; HEAD];
        trailer[..4].copy_from_slice(&TRAILER.to_le_bytes());
        trailer[24..].copy_from_slice(&lost.to_le_bytes());
        self.put(&trailer)?;
        self.out.flush()?;
        Ok(Recorded {
            records: self.records,
            lost,
        })
    }
}

/// Drains the kernel's ring buffer into a file.
pub(crate) struct Recorder {
    ring: RingBuffer<'static>,
    sink: Rc<RefCell<Sink<BufWriter<File>>>>,
}

impl Recorder {
    /// Creates the file and listens to `records`.
    pub(crate) fn new(
        path: &Path,
        knobs: &types::knobs,
        records: &dyn MapCore,
    ) -> io::Result<Self> {
        let out = BufWriter::with_capacity(1 << 20, File::create(path)?);
        let sink = Rc::new(RefCell::new(Sink::begin(out, knobs)?));
        let into = Rc::clone(&sink);
        let mut builder = RingBufferBuilder::new();
        let take = move |bytes: &[u8]| {
            into.borrow_mut().record(bytes);
            0
        };
        builder.add(records, take).map_err(io::Error::other)?;
        let ring = builder.build().map_err(io::Error::other)?;
        Ok(Self { ring, sink })
    }

    /// Writes what is there.
    pub(crate) fn drain(&self) -> io::Result<()> {
        self.ring.consume().map_err(io::Error::other)?;
        match self.sink.borrow_mut().failed.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Notes that this policy is in force from here on; what was drained before was another's.
    pub(crate) fn mark(&self, policy: &str) -> io::Result<()> {
        self.sink.borrow_mut().mark(policy)
    }

    /// Writes the rest and the trailer. The dispatcher must be out of the kernel's way by then.
    pub(crate) fn finish(self, lost: u64) -> io::Result<Recorded> {
        self.drain()?;
        self.sink.borrow_mut().end(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_as_the_replay_expects_it() {
        let knobs = types::knobs {
            slice: 7,
            ..types::knobs::default()
        };
        let mut file = Vec::new();
        let mut sink = Sink::begin(&mut file, &knobs).unwrap();
        sink.record(&[9; 48]);
        sink.mark("balance-load").unwrap();
        let recorded = sink.end(3).unwrap();
        assert_eq!((recorded.records, recorded.lost), (1, 3));
        assert_eq!(&file[..8], b"CORUNLK1");
        assert_eq!(
            file[8..16],
            [1, 0, 0, 0, size_of::<types::knobs>() as u8, 0, 0, 0]
        );
        assert_eq!(file[16..24], [7, 0, 0, 0, 0, 0, 0, 0]);
        let record = 16 + size_of::<types::knobs>();
        assert_eq!(file[record..record + 4], [48, 0, 0, 0]);
        let mark = record + 4 + 48;
        assert_eq!(file[mark..mark + 8], [64, 0, 0, 0, 254, 255, 255, 255]);
        assert_eq!(file[mark + 28..mark + 36], [12, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&file[mark + 36..mark + 44], b"balance-");
        assert_eq!(&file[mark + 52..mark + 60], b"load\0\0\0\0");
        let trailer = mark + 4 + 64;
        assert_eq!(
            file[trailer..trailer + 8],
            [32, 0, 0, 0, 255, 255, 255, 255]
        );
        assert_eq!(file[trailer + 28..], [3, 0, 0, 0, 0, 0, 0, 0]);
    }
}
