// SPDX-License-Identifier: GPL-2.0-only
//! Packets of a timeline on their way to the file.

use super::writer::Look;
use crate::perfetto::{
    CLEARED, ChildOrder, CounterDescriptor, EventKind, EventName, InternedData, NEEDS,
    SiblingMerge, TracePacket, TrackDescriptor, TrackEvent,
};
use corun_model::Nanos;
use std::io::{self, Write};

/// All packets are of one sequence.
const SEQUENCE: u32 = 1;

/// Encodes packets.
pub(super) struct Packets<W> {
    out: W,
    flags: u32,
    packet: Vec<u8>,
}

impl<W: Write> Packets<W> {
    pub fn new(out: W) -> Self {
        Self {
            out,
            // The first packet says that nothing was interned before.
            flags: CLEARED,
            packet: Vec::new(),
        }
    }

    /// Describes a track; its parent must have been described.
    pub fn track(
        &mut self,
        uuid: u64,
        parent: Option<u64>,
        name: &str,
        rank: u32,
        look: &Look,
    ) -> io::Result<()> {
        let counter = match look {
            Look::Counter(unit) => Some(CounterDescriptor {
                unit_name: Some((*unit).to_string()),
            }),
            _ => None,
        };
        let merge = match look {
            Look::Row => SiblingMerge::ByName,
            _ => SiblingMerge::Apart,
        };
        self.write(TracePacket {
            track_descriptor: Some(TrackDescriptor {
                uuid: Some(uuid),
                name: Some(name.to_string()),
                parent_uuid: parent,
                counter,
                child_ordering: Some(ChildOrder::Explicit.into()),
                sibling_order_rank: i32::try_from(rank).ok(),
                sibling_merge_behavior: Some(merge.into()),
            }),
            ..TracePacket::default()
        })
    }

    /// Something that has a name: a slice begins, or an instant. `new`: the name's text, if no packet has contained it
    /// yet.
    pub fn named(
        &mut self,
        now: Nanos,
        track: u64,
        kind: EventKind,
        iid: u64,
        new: Option<&str>,
    ) -> io::Result<()> {
        let interned_data = new.map(|name| InternedData {
            event_names: vec![EventName {
                iid: Some(iid),
                name: Some(name.to_string()),
            }],
        });
        let event = TrackEvent {
            name_iid: Some(iid),
            ..event(track, kind)
        };
        self.event(now, event, interned_data)
    }

    /// The innermost slice of a track ends.
    pub fn end(&mut self, now: Nanos, track: u64) -> io::Result<()> {
        self.event(now, event(track, EventKind::SliceEnd), None)
    }

    /// A counter's value.
    pub fn value(&mut self, now: Nanos, track: u64, value: i64) -> io::Result<()> {
        let event = TrackEvent {
            counter_value: Some(value),
            ..event(track, EventKind::Counter)
        };
        self.event(now, event, None)
    }

    fn event(
        &mut self,
        now: Nanos,
        event: TrackEvent,
        interned_data: Option<InternedData>,
    ) -> io::Result<()> {
        self.write(TracePacket {
            timestamp: Some(now),
            track_event: Some(event),
            interned_data,
            ..TracePacket::default()
        })
    }

    fn write(&mut self, mut packet: TracePacket) -> io::Result<()> {
        packet.trusted_packet_sequence_id = Some(SEQUENCE);
        packet.sequence_flags = Some(std::mem::replace(&mut self.flags, NEEDS));
        self.packet.clear();
        // Field 1 of `Trace`, length-delimited; writing to a `Vec` cannot fail.
        prost::encoding::message::encode(1, &packet, &mut self.packet);
        self.out.write_all(&self.packet)
    }

    /// Everything has been written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn event(track: u64, kind: EventKind) -> TrackEvent {
    TrackEvent {
        kind: Some(kind.into()),
        track_uuid: Some(track),
        ..TrackEvent::default()
    }
}
