// SPDX-License-Identifier: GPL-2.0-only
//! Writes blocks to a file, in a thread of its own, so that a slow disk does not keep events waiting.
//!
//! When a block cannot be written whole, the file is cut back to the block before: a full disk leaves a
//! recording that can be read. One that nothing could be written to is not left behind.

use super::RecordError;
use corun_model::Nanos;
use corun_recording::native::HEADER;
use corun_system::files::Fresh;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

/// Blocks that may wait for the disk.
const WAITING: usize = 256;

/// A block, and the time up to which it reports.
type Block = (Vec<u8>, Nanos);

/// What became of the file.
pub(super) struct Written {
    /// Its length.
    pub(super) bytes: u64,
    /// The time up to which it reports; 0: nothing was written.
    pub(super) until: Nanos,
    /// Why it could not be written on.
    pub(super) error: Option<io::Error>,
}

/// The file and the thread that writes it.
pub(super) struct Writer {
    blocks: SyncSender<Block>,
    thread: JoinHandle<Written>,
    bytes: Arc<AtomicU64>,
}

impl Writer {
    /// Makes the file, or takes an empty one: recordings are not replaced. Only its owner may read one that is made.
    pub(super) fn create(path: &Path) -> Result<Self, RecordError> {
        let failed = |error| RecordError::File {
            path: PathBuf::from(path),
            error,
        };
        let mut fresh = Fresh::at(path).map_err(failed)?;
        if let Err(error) = fresh.file.write_all(&HEADER) {
            fresh.take_back();
            return Err(failed(error));
        }
        let (blocks, waiting) = sync_channel(WAITING);
        let bytes = Arc::new(AtomicU64::new(HEADER.len() as u64));
        let progress = Arc::clone(&bytes);
        let thread = std::thread::Builder::new()
            .name("corun-writer".to_string())
            .spawn(move || write(fresh, &waiting, &progress))
            .map_err(failed)?;
        Ok(Self {
            blocks,
            thread,
            bytes,
        })
    }

    /// Hands over a block; false if nothing can be written any more.
    pub(super) fn write(&self, block: Vec<u8>, until: Nanos) -> bool {
        match self.blocks.try_send((block, until)) {
            Ok(()) => true,
            Err(TrySendError::Disconnected(_)) => false,
            // The disk is slow: events wait in their rings meanwhile, and are counted when lost there.
            Err(TrySendError::Full(block)) => self.blocks.send(block).is_ok(),
        }
    }

    /// Bytes written.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Waits until everything is written.
    pub(super) fn finish(self) -> Written {
        drop(self.blocks);
        let lost = || Written {
            bytes: 0,
            until: 0,
            error: Some(io::Error::other("the writing thread ended")),
        };
        self.thread.join().unwrap_or_else(|_| lost())
    }
}

fn write(mut fresh: Fresh, blocks: &Receiver<Block>, progress: &AtomicU64) -> Written {
    let mut written = Written {
        bytes: progress.load(Ordering::Relaxed),
        until: 0,
        error: None,
    };
    for (block, until) in blocks {
        if let Err(error) = fresh.file.write_all(&block) {
            // If not even that works, the reader finds the last whole block by itself.
            let _ = fresh.file.set_len(written.bytes);
            written.error = Some(error);
            break;
        }
        written.bytes += block.len() as u64;
        written.until = until;
        progress.store(written.bytes, Ordering::Relaxed);
    }
    if written.until == 0 {
        fresh.take_back();
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;

    #[test]
    fn never_over_another_recording() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.corun");
        let writer = Writer::create(&path).unwrap();
        assert!(writer.write(vec![1, 2, 3], 9));
        let written = writer.finish();
        assert_eq!((written.bytes, written.until), (15, 9));
        assert!(written.error.is_none());
        assert_eq!(std::fs::read(&path).unwrap().len(), 15);
        let again = Writer::create(&path).err().unwrap().to_string();
        assert!(again.contains("x.corun"), "{again}");
        assert!(
            again.contains("expected a new file, or an empty one"),
            "{again}"
        );
        let empty = folder.path().join("empty.corun");
        std::fs::write(&empty, "").unwrap();
        assert!(Writer::create(&empty).unwrap().write(vec![1], 9));
    }

    #[test]
    fn a_full_disk_leaves_whole_blocks() {
        // What is written there finds no space.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.corun");
        let mut file = Fresh::at(&path).unwrap();
        file.file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (send, blocks) = sync_channel(2);
        send.send((vec![0; 10], 5)).unwrap();
        drop(send);
        let written = write(file, &blocks, &AtomicU64::new(12));
        assert_eq!((written.bytes, written.until), (12, 0));
        let error = written.error.unwrap();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(!path.exists(), "what holds nothing is not left");
    }
}
