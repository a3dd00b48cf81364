// SPDX-License-Identifier: GPL-2.0-only
//! How far to trust what-ifs on a recording: as far as the replay under the host's own scheduler matches it, and no
//! further than the recording itself can be trusted. The limits are choices.

use super::{Confidence, Level};
use crate::format::{amount, percent};
use crate::replay::unknown;
use crate::results::ReplayCheck;

/// Up to these errors of ready time and switches a replay is trusted much, or somewhat.
const HIGH: (f64, f64) = (0.05, 0.15);
const MEDIUM: (f64, f64) = (0.15, 0.30);

/// Shorter recordings, s, are not trusted: guests' timers, balancing and the policies' own periods come to a second,
/// and what happens once cannot be distinguished from what happens always.
const SHORT: f64 = 1.0;

/// How complete a recording is.
#[derive(Clone, Debug, PartialEq)]
pub struct Basis {
    /// Its length, s.
    pub seconds: f64,
    /// What is missing or contradictory in it, in words.
    pub gaps: Vec<String>,
}

/// How far to trust what-ifs on a recording whose replay fits this well.
pub fn confidence(replay: &ReplayCheck, basis: &Basis) -> Confidence {
    let (mut level, why) = fit(replay);
    let mut because = vec![why];
    let mut no_more_than = |most: Level, why: String| {
        level = level.min(most);
        because.push(why);
    };
    if replay.ready_error.is_none() {
        let why = "no vCPU was ready in the recording, so that waits cannot be compared";
        no_more_than(Level::Low, why.to_string());
    }
    if basis.seconds < SHORT {
        let why = format!("the recording has only {} s", amount(basis.seconds));
        no_more_than(Level::Low, why);
    }
    if !basis.gaps.is_empty() {
        let why = format!("the recording has gaps: {}", basis.gaps.join("; "));
        no_more_than(Level::Medium, why);
    }
    if !replay.scheduler_is_recorded {
        let why = format!("{} is assumed: {}", replay.scheduler, unknown(replay));
        no_more_than(Level::Medium, why);
    }
    Confidence { level, because }
}

/// Judges by the replay's errors alone.
fn fit(replay: &ReplayCheck) -> (Level, String) {
    let errors = (
        replay.ready_error.unwrap_or(0.0),
        replay.switches_error.unwrap_or(0.0),
    );
    let within = |most: (f64, f64)| errors.0 <= most.0 && errors.1 <= most.1;
    let level = match () {
        () if within(HIGH) => Level::High,
        () if within(MEDIUM) => Level::Medium,
        () => Level::Low,
    };
    let why = format!(
        "replayed under {}, ready times are off by {} and switches by {} (up to {} and {}: high, up \
         to {} and {}: medium)",
        replay.scheduler,
        percent(errors.0),
        percent(errors.1),
        percent(HIGH.0),
        percent(HIGH.1),
        percent(MEDIUM.0),
        percent(MEDIUM.1),
    );
    (level, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_fit_is_not_enough() {
        let replay = ReplayCheck {
            scheduler: "eevdf".to_string(),
            scheduler_is_recorded: true,
            ready_error: Some(0.02),
            switches_error: Some(0.1),
            ..ReplayCheck::default()
        };
        let whole = Basis {
            seconds: 8.0,
            gaps: Vec::new(),
        };
        assert_eq!(confidence(&replay, &whole).level, Level::High);
        let short = Basis {
            seconds: 0.2,
            ..whole.clone()
        };
        assert_eq!(confidence(&replay, &short).level, Level::Low);
        let gaps = Basis {
            gaps: vec!["7 events lost".to_string()],
            ..whole.clone()
        };
        let found = confidence(&replay, &gaps);
        assert_eq!(found.level, Level::Medium);
        assert!(found.sentence().contains("7 events lost"));
        let foreign = ReplayCheck {
            scheduler_is_recorded: false,
            recorded_scheduler: Some("scx_other".to_string()),
            ..replay.clone()
        };
        let found = confidence(&foreign, &whole);
        assert_eq!(found.level, Level::Medium);
        assert!(found.sentence().contains("recorded under \"scx_other\""));
        let idle = ReplayCheck {
            ready_error: None,
            ..replay
        };
        assert_eq!(confidence(&idle, &whole).level, Level::Low);
    }
}
