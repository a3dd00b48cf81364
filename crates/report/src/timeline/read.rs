// SPDX-License-Identifier: GPL-2.0-only
//! Reading a timeline back, as strictly as its readers might be: for checks of what was written.

use crate::perfetto::{CLEARED, EventKind, NEEDS, Trace, TracePacket, TrackDescriptor};
use corun_model::Nanos;
use prost::Message;
use std::collections::BTreeMap;

/// What is wrong with a timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable(pub String);

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreadable {}

/// A slice, and how many others it lies in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// When it began, ns.
    pub begin: Nanos,
    /// When it ended, ns.
    pub end: Nanos,
    /// What it is called.
    pub name: String,
    /// 0: in none.
    pub depth: usize,
}

/// A track and all that happened on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Track {
    /// Its own name.
    pub name: String,
    /// Slices, in the order of their ends.
    pub slices: Vec<Slice>,
    /// Times and names.
    pub instants: Vec<(Nanos, String)>,
    /// Times and values, if it is a counter.
    pub values: Vec<(Nanos, i64)>,
    counter: bool,
    open: Vec<(Nanos, String)>,
}

/// Everything in a file.
#[derive(Clone, Debug, Default)]
pub struct Timelines {
    /// Tracks by their names, the ancestors' first, joined by ` > `; rows of one name are numbered
    /// from the second on (`vda#2`).
    pub tracks: BTreeMap<String, Track>,
    /// Number of events: begins, ends, instants and values.
    pub events: u64,
}

#[derive(Default)]
struct Reader {
    done: Timelines,
    paths: BTreeMap<u64, String>,
    names: BTreeMap<u64, String>,
    last: Nanos,
}

/// Reads a timeline.
///
/// # Errors
/// The first thing that a reader might not understand: bytes that are no trace, times that go back, tracks or names
/// used before they are described, tracks described twice, ends without a begin, slices left open, values on tracks
/// that are no counters.
pub fn read(bytes: &[u8]) -> Result<Timelines, Unreadable> {
    let trace = Trace::decode(bytes).map_err(|error| Unreadable(error.to_string()))?;
    let mut reader = Reader::default();
    for (index, packet) in trace.packet.into_iter().enumerate() {
        let flags = if index == 0 { CLEARED } else { NEEDS };
        let fault = |what: String| Unreadable(format!("packet {index}: {what}"));
        if packet.sequence_flags != Some(flags) || packet.trusted_packet_sequence_id.is_none() {
            return Err(fault("its sequence or the sequence's flags".to_string()));
        }
        reader.packet(packet).map_err(fault)?;
    }
    for (path, track) in &reader.done.tracks {
        if !track.open.is_empty() {
            return Err(Unreadable(format!("{path}: open slices {:?}", track.open)));
        }
    }
    Ok(reader.done)
}

impl Reader {
    fn packet(&mut self, packet: TracePacket) -> Result<(), String> {
        if let Some(track) = packet.track_descriptor {
            return self.describe(track);
        }
        let data = packet.interned_data.into_iter();
        for name in data.flat_map(|data| data.event_names) {
            let (iid, text) = name.iid.zip(name.name).ok_or("a name without its text")?;
            if self.names.insert(iid, text).is_some() {
                return Err(format!("name {iid} is told twice"));
            }
        }
        let event = packet.track_event.ok_or("it has no event")?;
        let now = packet.timestamp.ok_or("it has no time")?;
        if now < self.last {
            return Err(format!("time goes back from {} to {now}", self.last));
        }
        self.last = now;
        self.done.events += 1;
        let name = event.name_iid.map(|iid| self.names.get(&iid).cloned());
        let name = || name.flatten().ok_or("its name was not told");
        let path = event.track_uuid.and_then(|uuid| self.paths.get(&uuid));
        let path = path.ok_or("its track was not told")?;
        let track = self.done.tracks.entry(path.clone()).or_default();
        let kind = event.kind.and_then(|kind| EventKind::try_from(kind).ok());
        if track.counter != (kind == Some(EventKind::Counter)) {
            return Err(format!("{path} is the wrong kind of track for {kind:?}"));
        }
        match kind {
            Some(EventKind::SliceBegin) => track.open.push((now, name()?)),
            Some(EventKind::SliceEnd) => {
                let (begin, name) = track.open.pop().ok_or("an end without a begin")?;
                track.slices.push(Slice {
                    begin,
                    end: now,
                    name,
                    depth: track.open.len(),
                });
            }
            Some(EventKind::Instant) => track.instants.push((now, name()?)),
            Some(EventKind::Counter) => {
                track
                    .values
                    .push((now, event.counter_value.ok_or("no value")?));
            }
            _ => return Err("an event of no kind".to_string()),
        }
        Ok(())
    }

    fn describe(&mut self, told: TrackDescriptor) -> Result<(), String> {
        let (uuid, name) = told
            .uuid
            .zip(told.name)
            .ok_or("a track without number or name")?;
        if uuid == 0 || name.is_empty() {
            return Err(format!("track {uuid} {name:?}"));
        }
        let parent = match told.parent_uuid {
            None => String::new(),
            Some(parent) => {
                let parent = self.paths.get(&parent).ok_or("a track before its parent")?;
                format!("{parent} > ")
            }
        };
        let path = format!("{parent}{name}");
        let unused = |path: &String| !self.done.tracks.contains_key(path);
        let numbered = (2..).map(|n: u32| format!("{path}#{n}"));
        let mut paths = std::iter::once(path.clone()).chain(numbered);
        let path = paths.find(unused).unwrap_or(path);
        let track = Track {
            name,
            counter: told.counter.is_some(),
            ..Track::default()
        };
        self.done.tracks.insert(path.clone(), track);
        match self.paths.insert(uuid, path) {
            Some(path) => Err(format!("{path} is told twice")),
            None => Ok(()),
        }
    }
}
