// SPDX-License-Identifier: GPL-2.0-only
//! From a file to packets, and what they say besides events.

use super::events::Events;
use super::proto::{ProcessTree, TracePacket};
use crate::error::ImportError;
use crate::event;
use crate::gather::Gather;
use crate::import::Import;
use crate::model::{Fact, Format};
use crate::note::{Note, Place};
use corun_model::harmless;
use flate2::read::ZlibDecoder;
use prost::Message;
use std::io::{self, Read};

/// What each packet of a file begins with: field 1 of `Trace`, with its length.
const TAG: u8 = 0x0a;
/// The longest packet, bytes: Perfetto's buffers are smaller.
const LONGEST: u64 = 64 << 20;
/// Events held back to be put in order.
const WINDOW: usize = 1 << 21;

/// Does a file that begins like this look like a trace of Perfetto?
pub(crate) fn looks_like(head: &[u8]) -> bool {
    let printable = |byte: &u8| *byte >= 0x20 || matches!(byte, b'\n' | b'\r' | b'\t');
    if head.first() != Some(&TAG) || head.iter().all(printable) {
        return false;
    }
    let mut rest = head;
    while let Some((&tag, after)) = rest.split_first() {
        let Some((length, packet)) = length(after) else {
            return tag == TAG;
        };
        // A packet's first field: a number from 1, and one of the kinds of values there are.
        let field = packet.first().is_none_or(|&first| {
            first >> 3 != 0 && matches!(first & 7, 0 | 1 | 2 | 5) || length == 0
        });
        if tag != TAG || length > LONGEST || !field {
            return false;
        }
        rest = packet.get(length as usize..).unwrap_or_default();
    }
    true
}

/// A length, and what follows it.
fn length(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut rest = bytes;
    let length = prost::encoding::decode_varint(&mut rest).ok()?;
    Some((length, rest))
}

/// Reads a trace.
pub(crate) fn import(file: &str, mut source: impl Read) -> Result<Import, ImportError> {
    let mut gather = Gather::new(file, Place::Packet).with_window(WINDOW);
    gather.format = Some(Format::Perfetto);
    let (mut events, mut byte, mut number) = (Events::default(), 0, 0);
    loop {
        gather.place = number + 1;
        let (packet, length) = match next(&mut source) {
            Ok(Some(packet)) => packet,
            Ok(None) => break,
            Err(Stop::Io(source)) => {
                let file = file.to_string();
                return Err(ImportError::Io { file, source });
            }
            Err(Stop::Damage(why)) => {
                let at = Place::Packet(number + 1);
                gather.notes.push(Note::Cut { at, byte, why });
                break;
            }
        };
        take(&mut gather, &mut events, packet)?;
        number += 1;
        byte += length;
    }
    gather.finish()
}

/// Why reading a file stops.
enum Stop {
    Damage(&'static str),
    Io(io::Error),
}

/// The next packet, and its length in the file.
fn next(source: &mut impl Read) -> Result<Option<(TracePacket, u64)>, Stop> {
    let Some(tag) = byte(source)? else {
        return Ok(None);
    };
    if tag != TAG {
        return Err(Stop::Damage("a packet does not begin as packets do"));
    }
    let (mut length, mut head) = (0u64, 1);
    loop {
        let next = byte(source)?.ok_or(Stop::Damage("the file ends there, within a packet"))?;
        length |= u64::from(next & 0x7f) << (7 * (head - 1));
        head += 1;
        if next & 0x80 == 0 {
            break;
        }
        if head > 5 {
            return Err(Stop::Damage("a packet is longer than 64 MiB"));
        }
    }
    if length > LONGEST {
        return Err(Stop::Damage("a packet is longer than 64 MiB"));
    }
    let mut bytes = Vec::new();
    match source.by_ref().take(length).read_to_end(&mut bytes) {
        Ok(read) if read as u64 == length => {}
        Ok(_) => return Err(Stop::Damage("the file ends there, within a packet")),
        Err(error) => return Err(stop(error)),
    }
    let packet = TracePacket::decode(&bytes[..]);
    let packet = packet.map_err(|_| Stop::Damage("a packet is no TracePacket"))?;
    Ok(Some((packet, head + length)))
}

fn byte(source: &mut impl Read) -> Result<Option<u8>, Stop> {
    let mut one = [0];
    loop {
        match source.read(&mut one) {
            Ok(0) => return Ok(None),
            Ok(_) => return Ok(Some(one[0])),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(stop(error)),
        }
    }
}

fn stop(error: io::Error) -> Stop {
    match error.kind() {
        // The errors of unpackers for files that are cut off or damaged.
        io::ErrorKind::UnexpectedEof => Stop::Damage("the packed file breaks off there"),
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
            Stop::Damage("the packed file is damaged there")
        }
        _ => Stop::Io(error),
    }
}

fn take(
    gather: &mut Gather<'_>,
    events: &mut Events,
    packet: TracePacket,
) -> Result<(), ImportError> {
    if let Some(tree) = packet.process_tree {
        threads(gather, tree);
    }
    let release = packet.system_info.and_then(|info| info.utsname?.release);
    if let Some(release) = release {
        gather.stated.kernel = Some(Fact {
            value: event::comm(&release),
            source: "the trace's system info",
        });
    }
    if let Some(packed) = packet.compressed_packets {
        unpack(gather, events, &packed)?;
    }
    match packet.ftrace_events {
        Some(bundle) => events.take(gather, bundle),
        None => Ok(()),
    }
}

/// Takes in packets that are packed into one, up to the first damaged one.
fn unpack(gather: &mut Gather<'_>, events: &mut Events, packed: &[u8]) -> Result<(), ImportError> {
    let mut source = ZlibDecoder::new(packed).take(LONGEST);
    loop {
        match next(&mut source) {
            Ok(Some((packet, _))) => {
                // Packed packets are not packed again.
                let packet = TracePacket {
                    compressed_packets: None,
                    ..packet
                };
                take(gather, events, packet)?;
            }
            Ok(None) => return Ok(()),
            Err(_) => {
                gather.unusable();
                return Ok(());
            }
        }
    }
}

/// Names and processes of threads.
fn threads(gather: &mut Gather<'_>, tree: ProcessTree) {
    let tid = |number: Option<i32>| {
        let number = u32::try_from(number?).ok()?;
        (1..=event::MAX_TID).contains(&number).then_some(number)
    };
    let stated = &mut gather.stated;
    for process in tree.processes {
        let Some(tgid) = tid(process.pid) else {
            continue;
        };
        let cmdline = process.cmdline.join(" ");
        // The kernel's own threads have their name there.
        let name = process.cmdline.first().map_or("", String::as_str);
        let name = name.rsplit('/').next().unwrap_or_default();
        let comm = name.chars().map(harmless).take(15).collect::<String>();
        stated.threads.entry(tgid).or_insert((Some(tgid), comm));
        let cmdline = cmdline.chars().map(harmless).take(4096).collect();
        stated.processes.insert(tgid, cmdline);
    }
    for thread in tree.threads {
        let (Some(number), tgid) = (tid(thread.tid), tid(thread.tgid)) else {
            continue;
        };
        let comm = event::comm(&thread.name.unwrap_or_default());
        stated.threads.insert(number, (tgid, comm));
    }
}
