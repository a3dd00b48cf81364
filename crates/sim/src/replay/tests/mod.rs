// SPDX-License-Identifier: GPL-2.0-only
//! Tests of the replay: exact ones on hand-made recordings, properties, the committed recordings.

mod exact;
mod make;
mod properties;
mod recorded;
