// SPDX-License-Identifier: GPL-2.0-only
//! Tracks, names and what is open: from events to packets.

use super::packets::Packets;
use crate::perfetto::EventKind;
use corun_model::Nanos;
use std::collections::HashMap;
use std::io::{self, Write};

/// The part of a run that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// From this time on, ns since the run began.
    pub from: Nanos,
    /// Until this time.
    pub until: Nanos,
}

impl Window {
    /// The whole run.
    pub const WHOLE: Self = Self {
        from: 0,
        until: Nanos::MAX,
    };
}

/// What a track looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// A track of its own, with slices and instants, or a group of tracks.
    Plain,
    /// One row of a track: siblings of one name are shown together.
    Row,
    /// Values of this unit.
    Counter(&'static str),
}

/// A track of a [`Timeline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackId(u32);

/// A name in a [`Timeline`], of slices and instants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NameId(u32);

struct TrackState {
    name: String,
    parent: Option<TrackId>,
    rank: u32,
    look: Look,
    /// Its number in the file, once it is used there.
    uuid: Option<u64>,
    /// Open slices, the innermost last.
    open: Vec<NameId>,
    /// A counter's value.
    value: Option<i64>,
}

struct Name {
    text: String,
    /// Has it been written to the file?
    told: bool,
}

/// Where the run is with respect to the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Before,
    Within,
    After,
}

/// Writes a timeline.
pub struct Timeline<W: Write> {
    packets: Packets<W>,
    window: Window,
    phase: Phase,
    tracks: Vec<TrackState>,
    names: Vec<Name>,
    by_text: HashMap<String, NameId>,
    last_uuid: u64,
}

impl<W: Write> Timeline<W> {
    /// Begins a timeline of this part of a run. `out` should be buffered.
    pub fn new(out: W, window: Window) -> Self {
        Self {
            packets: Packets::new(out),
            window,
            phase: Phase::Before,
            tracks: Vec::new(),
            names: Vec::new(),
            by_text: HashMap::new(),
            last_uuid: 0,
        }
    }

    /// Makes a track. It is in the file only if something happens on it or on one of its children.
    /// Siblings are shown in the order of their `rank`.
    pub fn track(
        &mut self,
        parent: Option<TrackId>,
        name: impl Into<String>,
        rank: u32,
        look: Look,
    ) -> TrackId {
        self.tracks.push(TrackState {
            name: name.into(),
            parent,
            rank,
            look,
            uuid: None,
            open: Vec::new(),
            value: None,
        });
        TrackId(self.tracks.len() as u32 - 1)
    }

    /// A name for slices and instants. Each is kept: use few.
    pub fn name(&mut self, text: &str) -> NameId {
        if let Some(known) = self.by_text.get(text) {
            return *known;
        }
        let id = NameId(self.names.len() as u32);
        self.by_text.insert(text.to_string(), id);
        self.names.push(Name {
            text: text.to_string(),
            told: false,
        });
        id
    }

    /// The text of a name.
    pub fn text(&self, name: NameId) -> &str {
        &self.names[name.0 as usize].text
    }

    /// Is the window over, so that nothing from now on matters?
    pub fn is_over(&self) -> bool {
        self.phase == Phase::After
    }

    /// A slice begins, inside those that are open on its track.
    ///
    /// # Errors
    /// Those of the output, as for all methods that take a time.
    pub fn begin(&mut self, now: Nanos, track: TrackId, name: NameId) -> io::Result<()> {
        let within = self.reach(now)?;
        self.tracks[track.0 as usize].open.push(name);
        if within {
            self.write_named(now, track, EventKind::SliceBegin, name)?;
        }
        Ok(())
    }

    /// The innermost slice of a track ends; nothing if none is open.
    ///
    /// # Errors
    /// See [`Timeline::begin`].
    pub fn end(&mut self, now: Nanos, track: TrackId) -> io::Result<()> {
        let within = self.reach(now)?;
        let closed = self.tracks[track.0 as usize].open.pop().is_some();
        if within && closed {
            let uuid = self.uuid(track)?;
            self.packets.end(now, uuid)?;
        }
        Ok(())
    }

    /// Ends this slice of a track, wherever it is: what began inside it is cut in two. Nothing if it
    /// is not open.
    ///
    /// # Errors
    /// See [`Timeline::begin`].
    pub fn end_named(&mut self, now: Nanos, track: TrackId, name: NameId) -> io::Result<()> {
        let open = &self.tracks[track.0 as usize].open;
        let Some(place) = open.iter().rposition(|open| *open == name) else {
            return Ok(());
        };
        let inner = open[place + 1..].to_vec();
        for _ in 0..=inner.len() {
            self.end(now, track)?;
        }
        inner
            .into_iter()
            .try_for_each(|name| self.begin(now, track, name))
    }

    /// Is a slice of this name open on a track?
    pub fn is_open(&self, track: TrackId, name: NameId) -> bool {
        self.tracks[track.0 as usize].open.contains(&name)
    }

    /// How many slices are open on a track.
    pub fn depth(&self, track: TrackId) -> usize {
        self.tracks[track.0 as usize].open.len()
    }

    /// Something happened.
    ///
    /// # Errors
    /// See [`Timeline::begin`].
    pub fn instant(&mut self, now: Nanos, track: TrackId, name: NameId) -> io::Result<()> {
        if self.reach(now)? {
            self.write_named(now, track, EventKind::Instant, name)?;
        }
        Ok(())
    }

    /// A counter has this value from now on; nothing if it has it already.
    ///
    /// # Errors
    /// See [`Timeline::begin`].
    pub fn value(&mut self, now: Nanos, track: TrackId, value: i64) -> io::Result<()> {
        let within = self.reach(now)?;
        let slot = &mut self.tracks[track.0 as usize].value;
        if slot.replace(value) != Some(value) && within {
            let uuid = self.uuid(track)?;
            self.packets.value(now, uuid, value)?;
        }
        Ok(())
    }

    /// The run is over: ends all slices.
    ///
    /// # Errors
    /// See [`Timeline::begin`].
    pub fn finish(&mut self, now: Nanos) -> io::Result<()> {
        if self.reach(now)? {
            self.close(now)?;
        }
        self.packets.flush()
    }

    /// The run has come to `now`: is that within the window?
    fn reach(&mut self, now: Nanos) -> io::Result<bool> {
        if self.phase == Phase::Before && now >= self.window.from {
            self.phase = Phase::Within;
            self.open()?;
        }
        if self.phase == Phase::Within && now >= self.window.until {
            self.close(self.window.until)?;
        }
        Ok(self.phase == Phase::Within)
    }

    /// The window begins: what is open begins there.
    fn open(&mut self) -> io::Result<()> {
        let from = self.window.from;
        for index in 0..self.tracks.len() {
            let track = TrackId(index as u32);
            for depth in 0..self.tracks[index].open.len() {
                let name = self.tracks[index].open[depth];
                self.write_named(from, track, EventKind::SliceBegin, name)?;
            }
            if let Some(value) = self.tracks[index].value {
                let uuid = self.uuid(track)?;
                self.packets.value(from, uuid, value)?;
            }
        }
        Ok(())
    }

    /// The window ends, and all slices with it.
    fn close(&mut self, now: Nanos) -> io::Result<()> {
        self.phase = Phase::After;
        for index in 0..self.tracks.len() {
            while self.tracks[index].open.pop().is_some() {
                let uuid = self.uuid(TrackId(index as u32))?;
                self.packets.end(now, uuid)?;
            }
        }
        Ok(())
    }

    fn write_named(
        &mut self,
        now: Nanos,
        track: TrackId,
        kind: EventKind,
        name: NameId,
    ) -> io::Result<()> {
        let uuid = self.uuid(track)?;
        let slot = &mut self.names[name.0 as usize];
        let new = (!std::mem::replace(&mut slot.told, true)).then_some(slot.text.as_str());
        let iid = u64::from(name.0) + 1;
        self.packets.named(now, uuid, kind, iid, new)
    }

    /// A track's number in the file; it is described there with its parents at its first use.
    fn uuid(&mut self, track: TrackId) -> io::Result<u64> {
        if let Some(uuid) = self.tracks[track.0 as usize].uuid {
            return Ok(uuid);
        }
        let parent = self.tracks[track.0 as usize].parent;
        let parent = parent.map(|parent| self.uuid(parent)).transpose()?;
        self.last_uuid += 1;
        let slot = &mut self.tracks[track.0 as usize];
        slot.uuid = Some(self.last_uuid);
        self.packets
            .track(self.last_uuid, parent, &slot.name, slot.rank, &slot.look)?;
        Ok(self.last_uuid)
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
