// SPDX-License-Identifier: GPL-2.0-only
//! Drains the dispatcher's recording from the kernel into a file, for `corun lockstep` ([`corun_dispatcher::lockstep`],
//! which also has the format). If the daemon is killed, the file is good up to its last whole record.

use crate::skel::types;
use crate::tables::bytes_of;
use corun_dispatcher::lockstep::Writer;
use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::rc::Rc;

/// What a recording holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Callbacks in the file.
    pub records: u64,
    /// Callbacks for which there was no room.
    pub lost: u64,
}

/// A file that is being written.
struct Sink<W: Write> {
    file: Writer<W>,
    records: u64,
    failed: Option<io::Error>,
    /// Bytes of the ring buffer that this drain still takes.
    left: usize,
}

/// Bytes of each record besides its data (`struct ringbuf_hdr` of the kernel).
const RING_HEADER: usize = 8;

impl<W: Write> Sink<W> {
    fn begin(out: W, knobs: &types::knobs) -> io::Result<Self> {
        Ok(Self {
            file: Writer::new(out, bytes_of(knobs))?,
            records: 0,
            failed: None,
            left: 0,
        })
    }

    /// A record from the ring buffer; below 0, an errno for libbpf, if this drain is over.
    fn take(&mut self, bytes: &[u8]) -> i32 {
        self.record(bytes);
        self.left = self.left.saturating_sub(bytes.len() + RING_HEADER);
        match self.left {
            0 => -libc::ECANCELED,
            _ => 0,
        }
    }

    /// A record; after a failure (disk full) nothing more is written.
    fn record(&mut self, bytes: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        match self.file.raw(bytes) {
            Ok(()) => self.records += 1,
            Err(error) => self.failed = Some(error),
        }
    }

    fn end(&mut self, lost: u64) -> io::Result<Recorded> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.file.end(lost)?;
        Ok(Recorded {
            records: self.records,
            lost,
        })
    }
}

/// Drains the kernel's ring buffer into a file.
pub(crate) struct Recorder {
    ring: RingBuffer<'static>,
    /// Of the ring buffer, bytes.
    size: usize,
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
        let take = move |bytes: &[u8]| into.borrow_mut().take(bytes);
        builder.add(records, take).map_err(io::Error::other)?;
        let ring = builder.build().map_err(io::Error::other)?;
        let size = records.max_entries() as usize;
        Ok(Self { ring, size, sink })
    }

    /// Writes all that is there, and of what comes meanwhile no more than the ring buffer holds: a daemon that reads
    /// more slowly than a busy host writes has other things to do, too, and a lease to renew.
    pub(crate) fn drain(&self) -> io::Result<()> {
        self.sink.borrow_mut().left = self.size;
        let read = self.ring.consume_raw();
        if read < 0 && read != -libc::ECANCELED {
            return Err(io::Error::from_raw_os_error(-read));
        }
        match self.sink.borrow_mut().failed.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Notes that this policy is in force from here on; what was drained before was another's.
    pub(crate) fn mark(&self, policy: &str) -> io::Result<()> {
        self.sink.borrow_mut().file.mark(policy)
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
    use corun_dispatcher::lockstep::Recording;

    /// The last record that a drain has room for is written, too.
    #[test]
    fn a_drain_ends_after_as_much_as_the_ring_buffer_holds() {
        let mut file = Vec::new();
        let mut sink = Sink::begin(&mut file, &types::knobs::default()).unwrap();
        for drain in 1..=2 {
            sink.left = 2 * (48 + RING_HEADER);
            assert_eq!(sink.take(&[9; 48]), 0);
            assert_eq!(sink.take(&[9; 48]), -libc::ECANCELED);
            assert_eq!(sink.records, 2 * drain);
        }
    }

    #[test]
    fn a_file_as_the_replay_expects_it() {
        let knobs = types::knobs {
            slice: 7,
            ..types::knobs::default()
        };
        let mut file = Vec::new();
        let mut sink = Sink::begin(&mut file, &knobs).unwrap();
        sink.file.mark("balance-load").unwrap();
        sink.record(&[9; 48]);
        let recorded = sink.end(3).unwrap();
        assert_eq!((recorded.records, recorded.lost), (1, 3));
        let read = Recording::read(&file[..]).unwrap();
        assert_eq!((read.knobs.slice, read.lost), (7, Some(3)));
        assert_eq!(read.policies, [(0, "balance-load".to_string())]);
        assert_eq!(read.records.len(), 1);
        assert_eq!(read.records[0].seq, 0x0909_0909_0909_0909);
    }

    /// Files of daemons with the same knobs are read, and those read ours: byte for byte.
    #[test]
    fn the_bytes_of_a_file() {
        let mut file = Vec::new();
        let mut sink = Sink::begin(&mut file, &types::knobs::default()).unwrap();
        sink.file.mark("balance-load").unwrap();
        sink.end(3).unwrap();
        let knobs = size_of::<types::knobs>();
        assert_eq!(&file[..8], b"CORUNLK1");
        assert_eq!(file[8..12], [1, 0, 0, 0]);
        assert_eq!(file[12..16], (knobs as u32).to_le_bytes());
        let mark = 16 + knobs;
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
