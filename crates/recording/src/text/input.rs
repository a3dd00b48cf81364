// SPDX-License-Identifier: GPL-2.0-only
//! A file's lines, one at a time and none longer than [`MAX_LINE`], unpacked on the way.
//!
//! gzip is recognised by its first two bytes. If a stream breaks off, the lines end there and it is
//! reported; what came before is still good.

use flate2::bufread::MultiGzDecoder;
use std::io::{self, BufRead, BufReader, Read};

/// Longest line that is read, bytes. ftrace's lines are bounded by a page.
pub(crate) const MAX_LINE: usize = 16 * 1024;

/// How much of a file is looked at to find out what it is, bytes.
const HEAD: usize = 4096;

/// One step through a file.
#[derive(Debug)]
pub(crate) enum Step<'a> {
    /// A line without its line end.
    Line(&'a [u8]),
    /// A line longer than [`MAX_LINE`].
    TooLong,
    /// The file ends in the middle of a line.
    Unfinished,
    /// The file ends here because of this error.
    Broken(io::Error),
    /// The file ends.
    End,
}

/// The lines of a file.
pub(crate) struct Lines<'a> {
    source: BufReader<Unpacked<'a>>,
    line: Vec<u8>,
    /// Number of the last line, from 1.
    pub number: u64,
}

/// Opens a file's contents, unpacked.
pub(crate) fn open<'a>(source: impl Read + 'a) -> io::Result<Unpacked<'a>> {
    let mut raw = Unpacked::new(Box::new(source));
    if raw.head.is_empty()
        && let Some(error) = raw.error.take()
    {
        return Err(error);
    }
    Ok(match raw.head.starts_with(b"\x1f\x8b") {
        true => Unpacked::new(Box::new(MultiGzDecoder::new(BufReader::new(raw)))),
        false => raw,
    })
}

impl<'a> Lines<'a> {
    /// The lines of what was opened.
    pub(crate) fn new(source: Unpacked<'a>) -> Self {
        Self {
            source: BufReader::new(source),
            line: Vec::new(),
            number: 0,
        }
    }
}

impl Lines<'_> {
    /// The next line.
    pub(crate) fn next(&mut self) -> Step<'_> {
        self.line.clear();
        let mut too_long = false;
        loop {
            let chunk = match self.source.fill_buf() {
                Ok(chunk) => chunk,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Step::Broken(e),
            };
            if chunk.is_empty() {
                return if self.line.is_empty() {
                    Step::End
                } else {
                    Step::Unfinished
                };
            }
            let end = chunk.iter().position(|&b| b == b'\n');
            let part = chunk.get(..end.unwrap_or(chunk.len())).unwrap_or(chunk);
            let room = MAX_LINE - self.line.len();
            too_long |= part.len() > room;
            self.line.extend(part.iter().take(room));
            let used = part.len() + usize::from(end.is_some());
            self.source.consume(used);
            if end.is_some() {
                break;
            }
        }
        self.number += 1;
        if too_long {
            return Step::TooLong;
        }
        let line = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        Step::Line(line)
    }
}

/// A file's contents, the beginning of which has been read already, perhaps with an error.
pub(crate) struct Unpacked<'a> {
    head: Vec<u8>,
    given: usize,
    error: Option<io::Error>,
    rest: Box<dyn Read + 'a>,
}

impl<'a> Unpacked<'a> {
    fn new(mut rest: Box<dyn Read + 'a>) -> Self {
        let mut head = Vec::new();
        let read = rest.by_ref().take(HEAD as u64).read_to_end(&mut head);
        Self {
            head,
            given: 0,
            error: read.err(),
            rest,
        }
    }

    /// How it begins.
    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }
}

impl Read for Unpacked<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut left = self.head.get(self.given..).unwrap_or(&[]);
        if !left.is_empty() {
            let n = left.read(buffer)?;
            self.given += n;
            return Ok(n);
        }
        match self.error.take() {
            Some(error) => Err(error),
            None => self.rest.read(buffer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    /// Complete lines, and how the file ended.
    fn all(bytes: &[u8]) -> (Vec<Vec<u8>>, String) {
        let mut lines = Lines::new(open(bytes).unwrap());
        let mut out = Vec::new();
        loop {
            match lines.next() {
                Step::Line(line) => out.push(line.to_vec()),
                Step::TooLong => out.push(b"too long".to_vec()),
                Step::Broken(_) => return (out, "broken".into()),
                Step::Unfinished => return (out, "unfinished".into()),
                Step::End => return (out, "end".into()),
            }
        }
    }

    #[test]
    fn lines_plain_and_packed() {
        let text = b"one\ntwo\r\n\nfour\n";
        let want: Vec<Vec<u8>> = ["one", "two", "", "four"].map(|l| l.into()).into();
        assert_eq!(all(text), (want.clone(), "end".into()));
        assert_eq!(all(&gzip(text)), (want.clone(), "end".into()));
        let two_members = [gzip(b"one\ntwo\n"), gzip(b"\nfour\n")].concat();
        assert_eq!(all(&two_members), (want, "end".into()));
    }

    #[test]
    fn an_end_in_the_middle() {
        assert_eq!(
            all(b"one\ntw"),
            (vec![b"one".to_vec()], "unfinished".into())
        );
        let packed = gzip(&b"a line\n".repeat(9999));
        let (_, end) = all(&packed[..packed.len() / 2]);
        assert_eq!(end, "broken");
    }

    #[test]
    fn long_lines_are_skipped() {
        let text = [vec![b'x'; 5 * MAX_LINE], b"\nshort\n".to_vec()].concat();
        let want = vec![b"too long".to_vec(), b"short".to_vec()];
        assert_eq!(all(&text), (want, "end".into()));
    }
}
