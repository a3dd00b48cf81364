// SPDX-License-Identifier: GPL-2.0-only
//! A thread of its own prints statistics: the reader may stall (a pager, a terminal after Ctrl-S, a full pipe), but the
//! daemon has to go on, and to end when asked to. Reports for which there is no room are left out, and their number is
//! printed.
//!
//! The thread is started with the first report: a daemon that gives up its rights has done so by then, so the thread
//! has no more rights than the daemon.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// Reports that may wait for their reader.
const WAITING: usize = 64;
/// How long the end waits for the last reports to be read.
const PATIENCE: Duration = Duration::from_secs(1);

/// A report, and how many before it were left out.
type Report = (Vec<u8>, u64);

/// Where statistics go.
pub(crate) struct Output {
    /// Until the thread has it.
    to: Option<Box<dyn Write + Send>>,
    writer: Option<Writer>,
    /// Where omissions are noted.
    notes: fn(&str),
    /// Reports left out since the last that was not.
    skipped: u64,
}

struct Writer {
    reports: SyncSender<Report>,
    /// How it ended, once it has.
    end: Receiver<io::Result<()>>,
}

impl Output {
    pub(crate) fn new(to: Box<dyn Write + Send>, notes: fn(&str)) -> Self {
        Self {
            to: Some(to),
            writer: None,
            notes,
            skipped: 0,
        }
    }

    /// Writes a report, or leaves it out if too many wait already; never waits itself.
    ///
    /// # Errors
    /// Why one before could not be written, or there is no thread for it.
    pub(crate) fn put(&mut self, report: Vec<u8>) -> io::Result<()> {
        self.check()?;
        if let Some(to) = self.to.take() {
            self.writer = Some(Writer::start(to, self.notes)?);
        }
        let Some(writer) = &self.writer else {
            return Ok(());
        };
        match writer.reports.try_send((report, self.skipped)) {
            Ok(()) => self.skipped = 0,
            Err(TrySendError::Full(_)) => self.skipped += 1,
            Err(TrySendError::Disconnected(_)) => self.check()?,
        }
        Ok(())
    }

    /// Can it go on?
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check(&mut self) -> io::Result<()> {
        let ended = self.writer.as_ref().map(|writer| writer.end.try_recv());
        match ended {
            Some(Ok(ended)) => {
                self.writer = None;
                ended
            }
            _ => Ok(()),
        }
    }

    /// Waits until everything is written, but not for long: what nobody reads by then is lost, without a note, since
    /// notes may go to the same reader.
    ///
    /// # Errors
    /// Why it could not be written.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        let Some(writer) = self.writer.take() else {
            return Ok(());
        };
        let Writer { reports, end } = writer;
        drop(reports);
        let Ok(ended) = end.recv_timeout(PATIENCE) else {
            return Ok(());
        };
        if ended.is_ok() && self.skipped > 0 {
            (self.notes)(&left_out(self.skipped));
        }
        ended
    }
}

impl Writer {
    fn start(to: Box<dyn Write + Send>, notes: fn(&str)) -> io::Result<Self> {
        let (reports, waiting) = sync_channel(WAITING);
        let (ended, end) = sync_channel(1);
        let body = move || drop(ended.send(write(to, &waiting, notes)));
        std::thread::Builder::new()
            .name("corun-printer".to_string())
            .spawn(body)?;
        Ok(Self { reports, end })
    }
}

fn write(
    mut to: Box<dyn Write + Send>,
    reports: &Receiver<Report>,
    notes: fn(&str),
) -> io::Result<()> {
    for (report, skipped) in reports {
        // Noted here, since a reader that does not read the reports may not read this, either.
        if skipped > 0 {
            notes(&left_out(skipped));
        }
        to.write_all(&report).and_then(|()| to.flush())?;
    }
    Ok(())
}

fn left_out(reports: u64) -> String {
    match reports {
        1 => "statistics of one interval were left out: nobody read them in time".to_string(),
        more => format!("statistics of {more} intervals were left out: nobody read them in time"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::sync::Mutex;
    use std::time::Instant;

    /// A pipe that is full, and its reader, who does not read.
    pub(crate) fn full_pipe() -> (File, File) {
        let mut ends = [0; 2];
        // SAFETY: `ends` has room for two descriptors, which belong to nobody else then.
        let (reader, mut writer) = unsafe {
            assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
            (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
        };
        // SAFETY: takes and gives numbers.
        let size = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
        writer.write_all(&vec![b'.'; size as usize]).unwrap();
        (reader, writer)
    }

    fn lines(count: usize) -> Vec<Vec<u8>> {
        (0..count).map(|at| format!("{at}\n").into()).collect()
    }

    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

    #[test]
    fn who_does_not_read_keeps_nobody_waiting_and_is_told_what_was_left_out() {
        let (mut reader, writer) = full_pipe();
        let notes = |note: &str| SAID.lock().unwrap().push(note.to_string());
        let mut output = Output::new(Box::new(writer), notes);
        for line in lines(1000) {
            output.put(line).unwrap();
        }
        let skipped = output.skipped;
        assert!(skipped >= 1000 - WAITING as u64 - 1, "{skipped}");
        // A reader that goes on gets the reports that waited, and what comes then.
        let mut text = vec![0; 4096 + 4];
        reader.read_exact(&mut text).unwrap();
        assert!(text.ends_with(b"0\n1\n"));
        let end = Instant::now() + Duration::from_secs(30);
        while output.skipped > 0 && Instant::now() < end {
            output.put(b"again\n".to_vec()).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        output.finish().unwrap();
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert!(rest.ends_with("again\n"), "{rest}");
        let said = SAID.lock().unwrap();
        let counts = said
            .iter()
            .filter_map(|note| note.split(' ').nth(2)?.parse::<u64>().ok());
        assert!(counts.sum::<u64>() >= skipped, "{said:?}");
    }

    #[test]
    fn the_end_does_not_wait_for_who_does_not_read() {
        let (_reader, writer) = full_pipe();
        let mut output = Output::new(Box::new(writer), |_| {});
        lines(3)
            .into_iter()
            .for_each(|line| output.put(line).unwrap());
        let began = Instant::now();
        output.finish().unwrap();
        assert!(began.elapsed() < 10 * PATIENCE);
    }

    #[test]
    fn all_is_in_a_file_at_the_end() {
        let mut file = tempfile::tempfile().unwrap();
        let mut output = Output::new(Box::new(file.try_clone().unwrap()), |_| {});
        let wanted = lines(WAITING).concat();
        lines(WAITING)
            .into_iter()
            .for_each(|line| output.put(line).unwrap());
        output.finish().unwrap();
        io::Seek::rewind(&mut file).unwrap();
        let mut text = Vec::new();
        file.read_to_end(&mut text).unwrap();
        assert_eq!(text, wanted);
    }

    #[test]
    fn what_cannot_be_written_is_an_error_soon() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut output = Output::new(Box::new(full), |_| {});
        output.put(b"text".to_vec()).unwrap();
        let end = Instant::now() + Duration::from_secs(30);
        let failed = loop {
            match output.check() {
                Err(failed) => break failed,
                Ok(()) => assert!(Instant::now() < end),
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(failed.kind(), io::ErrorKind::StorageFull);
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut output = Output::new(Box::new(full), |_| {});
        output.put(b"text".to_vec()).unwrap();
        assert!(output.finish().is_err(), "of the last one, too");
    }
}
