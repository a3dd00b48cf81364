// SPDX-License-Identifier: GPL-2.0-only
//! The file: a header with the knobs, then one record per callback, little-endian.
//!
//! ```text
//! "CORUNLK1"  u32 version = 1  u32 length  knobs (struct knobs)
//! u32 length  record (struct record of platform/bpf.h, entries cut to those used)   …
//! u32 length  mark: a record with op = 0xfffffffe; a policy is in force from here on, arg = bytes of
//!             its name, eight in the value of each entry
//! u32 length  trailer: a record with op = 0xffffffff, arg = records the kernel lost
//! ```
//! The file may be gzip'ed. One without a trailer was cut short: its records still count.

use crate::conf::Knobs;
use crate::layout::MAX_PCPUS;
use corun_model::{PcpuSet, harmless};
use flate2::read::GzDecoder;
use std::io::{self, Read, Write};

const MAGIC: &[u8; 8] = b"CORUNLK1";
const VERSION: u32 = 1;
const TRAILER: u32 = u32::MAX;
const MARK: u32 = u32::MAX - 1;
const HEAD: usize = 32;
const ENTRY: usize = 16;
/// Longest record: 512 entries and the head (`RECORD_ENTRIES` in platform/bpf.h).
const LONGEST: usize = HEAD + 512 * ENTRY;
const KNOBS: usize = size_of::<Knobs>();
/// More bytes of records than this, unpacked, need more memory than is reasonable; two busy pCPUs record 3 MB a second.
const MAX_BYTES: u64 = 1 << 31;

/// One thing that passed the tap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// `enum tap_kind`.
    pub kind: u32,
    /// What it was.
    pub value: u64,
}

/// One callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// `enum tap_op`.
    pub op: u32,
    /// The pCPU it ran on.
    pub cpu: i32,
    /// The task's id; 0 if it concerns none.
    pub task: u32,
    /// The number of this callback among those for this task, from 1.
    pub seq: u64,
    /// The callback's argument.
    pub arg: u64,
    /// How many entries it had; more than `entries` holds if it was cut.
    pub counted: u32,
    /// What passed the tap, in order.
    pub entries: Vec<Entry>,
}

/// A recording in memory.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The knobs of the host.
    pub knobs: Knobs,
    /// Callbacks in the order in which they ended.
    pub records: Vec<Record>,
    /// Which policy was in force from which record on; empty in files older than these marks.
    pub policies: Vec<(usize, String)>,
    /// Callbacks the kernel had no room for; `None` if the file was cut short.
    pub lost: Option<u64>,
}

/// Why a file is no lockstep recording.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// Reading failed.
    #[error("cannot read: {0}")]
    Io(#[from] io::Error),
    /// There is nothing in it.
    #[error("the file is empty: expected a lockstep recording (made by: corun host --record FILE)")]
    Empty,
    /// It ends before the first record could come.
    #[error("the file was cut short within its first {0} bytes, which say what host it is of")]
    Short(usize),
    /// It does not begin as a recording does.
    #[error(
        "not a lockstep recording: it begins with \"{}\", expected \"CORUNLK1\" \
         (made by: corun host --record FILE)",
        .0.escape_ascii()
    )]
    Magic(Vec<u8>),
    /// Another version's.
    #[error(
        "version {0} of the format, this corun reads version 1: use the corun that recorded it"
    )]
    Version(u32),
    /// Its knobs have another size.
    #[error("the knobs take {0} bytes, this dispatcher's take {KNOBS}: another corun recorded it")]
    Knobs(u32),
    /// A host larger than the dispatcher's tables: every callback would walk over pCPUs that cannot
    /// be.
    #[error("the knobs say {0} pCPUs, at most {max} are supported", max = corun_model::Topology::MAX_PCPUS)]
    Pcpus(u32),
    /// A record whose length is impossible.
    #[error("record {index} has a length of {length} bytes, accepted are {HEAD} to {LONGEST}")]
    Length {
        /// Which record, from 0.
        index: usize,
        /// The length it claims.
        length: u32,
    },
    /// There is too much in it to keep in memory.
    #[error(
        "record {index}: too many bytes of records (at most {max}, unpacked); record for a shorter time"
    )]
    TooLarge {
        /// The first record that is too much, from 0.
        index: usize,
        /// The limit.
        max: u64,
    },
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes
        .get(at..at + 2)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at + 4)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..at + 8)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}

/// Fills `buffer`; false if the input ends first.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match input.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// The next `most` bytes, fewer if the input ends first.
fn up_to(most: usize, input: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(most);
    input.take(most as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl Recording {
    /// Reads a recording, plain or gzip'ed.
    ///
    /// # Errors
    /// [`FormatError`] if it is none, or of another version.
    pub fn read(mut input: impl Read) -> Result<Self, FormatError> {
        let start = up_to(2, &mut input)?;
        let packed = start == [0x1f, 0x8b];
        let input = start.as_slice().chain(input);
        match packed {
            true => Self::read_plain(GzDecoder::new(input), MAX_BYTES),
            false => Self::read_plain(input, MAX_BYTES),
        }
    }

    /// Reads records of at most `max` bytes in all.
    fn read_plain(mut input: impl Read, max: u64) -> Result<Self, FormatError> {
        const HEADER: usize = 16;
        let head = up_to(HEADER, &mut input)?;
        let magic = &head[..head.len().min(MAGIC.len())];
        if magic.is_empty() {
            return Err(FormatError::Empty);
        }
        if !MAGIC.starts_with(magic) {
            return Err(FormatError::Magic(magic.to_vec()));
        }
        if head.len() < HEADER {
            return Err(FormatError::Short(HEADER + KNOBS));
        }
        if u32_at(&head, 8) != VERSION {
            return Err(FormatError::Version(u32_at(&head, 8)));
        }
        if u32_at(&head, 12) as usize != KNOBS {
            return Err(FormatError::Knobs(u32_at(&head, 12)));
        }
        let mut knobs = [0; KNOBS];
        if !fill(&mut input, &mut knobs)? {
            return Err(FormatError::Short(HEADER + KNOBS));
        }
        let knobs = decode_knobs(&knobs);
        if knobs.pcpus > corun_model::Topology::MAX_PCPUS {
            return Err(FormatError::Pcpus(knobs.pcpus));
        }
        let mut recording = Recording {
            knobs,
            records: Vec::new(),
            policies: Vec::new(),
            lost: None,
        };
        let mut read = 0;
        while let Some((length, record)) = read_record(&mut input, recording.records.len())? {
            read += u64::from(length);
            if read > max {
                let index = recording.records.len();
                return Err(FormatError::TooLarge { index, max });
            }
            match record.op {
                TRAILER => {
                    recording.lost = Some(record.arg);
                    break;
                }
                MARK => {
                    let from = recording.records.len();
                    recording.policies.push((from, marked(&record)));
                }
                _ => recording.records.push(record),
            }
        }
        Ok(recording)
    }
}

/// The next record and its length; `None` at the end of the file, wherever that is.
fn read_record(input: &mut impl Read, index: usize) -> Result<Option<(u32, Record)>, FormatError> {
    let mut length = [0; 4];
    if !fill(input, &mut length)? {
        return Ok(None);
    }
    let length = u32::from_le_bytes(length);
    if !(HEAD..=LONGEST).contains(&(length as usize))
        || !(length as usize - HEAD).is_multiple_of(ENTRY)
    {
        return Err(FormatError::Length { index, length });
    }
    let mut bytes = vec![0; length as usize];
    if !fill(input, &mut bytes)? {
        return Ok(None);
    }
    let entries = bytes[HEAD..].chunks_exact(ENTRY);
    let record = Record {
        op: u32_at(&bytes, 0),
        cpu: u32_at(&bytes, 4) as i32,
        task: u32_at(&bytes, 8),
        counted: u32_at(&bytes, 12),
        seq: u64_at(&bytes, 16),
        arg: u64_at(&bytes, 24),
        entries: entries
            .map(|e| Entry {
                value: u64_at(e, 0),
                kind: u32_at(e, 8),
            })
            .collect(),
    };
    Ok(Some((length, record)))
}

/// The name in a mark, as a terminal may show it: recordings are sent from host to host.
fn marked(record: &Record) -> String {
    let values = record
        .entries
        .iter()
        .flat_map(|entry| entry.value.to_le_bytes());
    let length = usize::try_from(record.arg).unwrap_or(usize::MAX);
    let bytes: Vec<u8> = values.take(length).collect();
    String::from_utf8_lossy(&bytes)
        .chars()
        .map(harmless)
        .collect()
}

fn decode_knobs(bytes: &[u8; KNOBS]) -> Knobs {
    let word = |index: usize| u64_at(bytes, index * 8);
    Knobs {
        slice: word(0),
        wakeup_gran: word(1),
        sleeper_credit: word(2),
        max_lead: word(3),
        balance_interval: word(4),
        online: PcpuSet::from_words(std::array::from_fn(|at| word(5 + at))),
        pcpus: u32_at(bytes, 104),
        placement: u32_at(bytes, 108),
        // Two halves each; in older files one word, whose upper half was never used.
        slice_timer: u32_at(bytes, 112) as u16,
        groups: (u32_at(bytes, 112) >> 16) as u16,
        gangs: u32_at(bytes, 116) as u16,
        cores: (u32_at(bytes, 116) >> 16) as u16,
        tasks: u32_at(bytes, 120) as u16,
        micro: (u32_at(bytes, 120) >> 16) as u16,
        llcs: u32_at(bytes, 124),
        online_pcpus: u32_at(bytes, 128),
        pad: 0,
        sibling: std::array::from_fn(|at| u16_at(bytes, 136 + 2 * at)),
        llc: std::array::from_fn(|at| u16_at(bytes, 136 + 2 * (MAX_PCPUS + at))),
    }
}

/// Writes a recording as it is made.
pub struct Writer<W: Write> {
    out: W,
}

impl<W: Write> Writer<W> {
    /// Begins a file. `knobs` are the bytes of the dispatcher's `struct knobs`.
    ///
    /// # Errors
    /// What `out` reports.
    pub fn new(mut out: W, knobs: &[u8]) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        out.write_all(&(knobs.len() as u32).to_le_bytes())?;
        out.write_all(knobs)?;
        Ok(Self { out })
    }

    /// Adds a record as the kernel handed it over.
    ///
    /// # Errors
    /// What `out` reports.
    pub fn raw(&mut self, record: &[u8]) -> io::Result<()> {
        self.out.write_all(&(record.len() as u32).to_le_bytes())?;
        self.out.write_all(record)
    }

    /// Adds a record.
    ///
    /// # Errors
    /// What `out` reports.
    pub fn record(&mut self, record: &Record) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(HEAD + record.entries.len() * ENTRY);
        bytes.extend(record.op.to_le_bytes());
        bytes.extend(record.cpu.to_le_bytes());
        bytes.extend(record.task.to_le_bytes());
        bytes.extend(record.counted.to_le_bytes());
        bytes.extend(record.seq.to_le_bytes());
        bytes.extend(record.arg.to_le_bytes());
        for entry in &record.entries {
            bytes.extend(entry.value.to_le_bytes());
            bytes.extend(entry.kind.to_le_bytes());
            bytes.extend([0; 4]);
        }
        self.raw(&bytes)
    }

    /// Notes that this policy is in force from here on.
    ///
    /// # Errors
    /// What `out` reports.
    pub fn mark(&mut self, policy: &str) -> io::Result<()> {
        let word = |bytes: &[u8]| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        };
        let words = policy.as_bytes().chunks(8).map(word);
        self.record(&Record {
            op: MARK,
            cpu: 0,
            task: 0,
            seq: 0,
            arg: policy.len() as u64,
            counted: 0,
            entries: words.map(|value| Entry { kind: 0, value }).collect(),
        })
    }

    /// Ends the file, saying how many records the kernel lost. Nothing may be added after that.
    ///
    /// # Errors
    /// What `out` reports.
    pub fn end(&mut self, lost: u64) -> io::Result<()> {
        let trailer = Record {
            op: TRAILER,
            cpu: 0,
            task: 0,
            seq: 0,
            arg: lost,
            counted: 0,
            entries: Vec::new(),
        };
        self.record(&trailer)?;
        self.out.flush()
    }

    /// Ends the file and gives the output back.
    ///
    /// # Errors
    /// What `out` reports.
    pub fn finish(mut self, lost: u64) -> io::Result<W> {
        self.end(lost)?;
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(records: usize) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), &[0; KNOBS]).unwrap();
        for n in 0..records {
            let entries = vec![
                Entry {
                    kind: 1,
                    value: n as u64,
                },
                Entry { kind: 64, value: 7 },
            ];
            let record = Record {
                op: 4,
                cpu: 1,
                task: 42,
                seq: n as u64 + 1,
                arg: 0,
                counted: 2,
                entries,
            };
            writer.record(&record).unwrap();
        }
        writer.finish(3).unwrap()
    }

    #[test]
    fn policies_are_told_apart() {
        let mut writer = Writer::new(Vec::new(), &[0; KNOBS]).unwrap();
        let record = Recording::read(&sample(1)[..]).unwrap().records.remove(0);
        writer.mark("cosched-relaxed").unwrap();
        writer.record(&record).unwrap();
        writer.mark("fair").unwrap();
        let recording = Recording::read(&writer.finish(0).unwrap()[..]).unwrap();
        let expected = [(0, "cosched-relaxed".to_string()), (1, "fair".to_string())];
        assert_eq!(recording.policies, expected);
        assert_eq!(recording.records, [record]);
    }

    #[test]
    fn no_terminal_obeys_the_name_of_a_policy() {
        let mut writer = Writer::new(Vec::new(), &[0; KNOBS]).unwrap();
        writer.mark("fair\u{1b}[2J\n").unwrap();
        let recording = Recording::read(&writer.finish(0).unwrap()[..]).unwrap();
        let shown = "fair\u{fffd}[2J\u{fffd}".to_string();
        assert_eq!(recording.policies, [(0, shown)]);
    }

    #[test]
    fn what_is_written_is_read() {
        let recording = Recording::read(&sample(5)[..]).unwrap();
        assert_eq!((recording.records.len(), recording.lost), (5, Some(3)));
        assert_eq!(recording.records[4].entries[0].value, 4);
    }

    #[test]
    fn foreign_files_are_named() {
        let read = |bytes: &[u8]| Recording::read(bytes).unwrap_err().to_string();
        assert!(read(b"").contains("the file is empty"));
        for short in [3, 8, 15, 16, 20] {
            let said = read(&sample(1)[..short]);
            assert!(said.contains("cut short within its first"), "{said}");
        }
        assert!(read(b"{\"json\": true, \"more\": 1}").contains("not a lockstep recording"));
        let mut other = sample(1);
        other[8] = 9;
        assert!(read(&other).contains("version 9"));
    }

    /// A few kilobytes of gzip may unpack to any number of records.
    #[test]
    fn what_would_take_all_memory_is_refused() {
        let one = HEAD as u64 + 2 * ENTRY as u64;
        let all = Recording::read_plain(&sample(5)[..], 5 * one + HEAD as u64).unwrap();
        assert_eq!((all.records.len(), all.lost), (5, Some(3)));
        let error = Recording::read_plain(&sample(5)[..], 4 * one).unwrap_err();
        assert_eq!(
            error.to_string(),
            "record 4: too many bytes of records (at most 256, unpacked); record for a shorter time"
        );
    }

    #[test]
    fn a_host_of_two_thousand_million_pcpus_is_refused() {
        let mut huge = sample(1);
        huge[16 + 104..16 + 108].copy_from_slice(&i32::MAX.to_le_bytes());
        let error = Recording::read(&huge[..]).unwrap_err().to_string();
        assert_eq!(
            error,
            "the knobs say 2147483647 pCPUs, at most 512 are supported"
        );
    }

    proptest! {
        #[test]
        fn a_cut_file_gives_what_was_whole(cut in 0usize..400) {
            let bytes = sample(5);
            let cut = cut.min(bytes.len());
            if let Ok(recording) = Recording::read(&bytes[..cut]) {
                prop_assert!(recording.records.len() <= 5);
                prop_assert_eq!(recording.lost.is_some(), cut == bytes.len());
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Recording::read(&bytes[..]);
            let _ = Recording::read(&[&sample(0)[..16 + KNOBS], &bytes].concat()[..]);
        }
    }
}
