// SPDX-License-Identifier: GPL-2.0-only
//! From what was measured to verdicts: evaluates the formulas of a check for every seed.

use super::checks::{Check, Checks, Compared, Over, What};
use super::claims::Said;
use super::formula::{Condition, Number};
use super::measure::Reference;
use super::seen::Seen;
use super::work::Measured;
use corun_report::claims::{
    Claim, Figure, Judged, Kind, Status, Verdict, exact, over_seeds, quantitative,
};
use corun_report::{Spread, round};
use corun_scenario::Problem;
use std::collections::{BTreeMap, BTreeSet};

/// The claim with its verdict.
///
/// # Errors
/// If a measured value names what a run does not have.
pub fn judge(said: &Said, checks: &Checks, measured: &Measured) -> Result<Claim, Problem> {
    let Some(check) = checks.checks.get(&said.id) else {
        let note = match checks.takes(&said.id) {
            Some(takes) => format!("not implemented yet: needs {takes}"),
            None => "not implemented yet: has no check".to_string(),
        };
        return Ok(unchecked(said, Status::NotImplemented, note));
    };
    let missing = lacking(check, checks);
    if !missing.is_empty() {
        let note = format!("not implemented yet: needs policy {}", missing.join(", "));
        return Ok(unchecked(said, Status::NotImplemented, note));
    }
    let seen = Seen::new(&check.terms, measured)?;
    let mut claim = unchecked(said, Status::Checked, check.note.filled(&seen));
    claim.seeds = seen.seeds.len();
    claim.experiments = experiments(check);
    match &check.what {
        What::OutOfReach(reason) => {
            return Ok(unchecked(said, Status::OutOfReach, reason.clone()));
        }
        What::Holds(conditions) => hold(&mut claim, conditions, &seen),
        What::Values {
            values,
            order,
            unjudged,
        } => {
            compare(&mut claim, values, order, &seen);
            leave_out(&mut claim, unjudged, &seen);
        }
    }
    Ok(claim)
}

/// The check of a claim, if there is one and it lacks nothing.
pub fn possible<'a>(said: &Said, checks: &'a Checks) -> Option<&'a Check> {
    let check = checks.checks.get(&said.id)?;
    lacking(check, checks).is_empty().then_some(check)
}

/// Policies that the check needs and that are only planned.
fn lacking(check: &Check, checks: &Checks) -> Vec<String> {
    let policies = check.terms.references.values().map(|of| of.policy.as_str());
    let policies: BTreeSet<&str> = policies.collect();
    let is_there = |name: &str| crate::compare::schedulers::known_policy(name).is_ok();
    let lacking = policies
        .into_iter()
        .filter(|name| !is_there(name) && checks.planned.contains_key(*name));
    lacking.map(String::from).collect()
}

/// The claim, without any values of ours.
fn unchecked(said: &Said, status: Status, note: String) -> Claim {
    Claim {
        id: said.id.clone(),
        kind: said.kind,
        verdict: Verdict::OutOfScope,
        paper: said.value.clone(),
        ours: None,
        spread: None,
        note,
        status,
        system: said.system.clone(),
        source: said.source.clone(),
        setting: said.setting.clone(),
        metric: said.metric.clone(),
        direction: said.direction.clone(),
        experiments: Vec::new(),
        seeds: 0,
        values: Vec::new(),
    }
}

/// Experiments and cases, for people.
fn experiments(check: &Check) -> Vec<String> {
    let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for Reference {
        experiment, case, ..
    } in check.terms.references.values()
    {
        let cases = all.entry(experiment).or_default();
        cases.extend(case.as_deref());
    }
    let show = |(name, cases): (&str, BTreeSet<&str>)| match cases.len() {
        0 => name.to_string(),
        1..=3 => format!(
            "{name}: {}",
            cases.into_iter().collect::<Vec<_>>().join(", ")
        ),
        more => format!("{name}: {more} cases"),
    };
    all.into_iter().map(show).collect()
}

/// The verdict that a claim of this kind reaches if it is true.
fn reached(kind: Kind) -> Verdict {
    match kind {
        Kind::Exact | Kind::Analytic => Verdict::Exact,
        Kind::Quantitative => Verdict::Direction,
        Kind::Qualitative => Verdict::Holds,
    }
}

fn told(name: &str, says: &str, verdict: Verdict) -> Judged {
    Judged {
        name: name.to_string(),
        paper: None,
        ours: None,
        spread: None,
        verdict,
        says: Some(says.to_string()),
    }
}

/// Says that a formula comes to nothing.
fn not_measured(text: &str) -> String {
    format!("nothing was measured for {text}, or it divides by 0")
}

fn add_note(claim: &mut Claim, note: &str) {
    let separator = if claim.note.is_empty() { "" } else { "; " };
    claim.note += &format!("{separator}{note}");
}

/// Judges what must be true, seed by seed.
fn hold(claim: &mut Claim, conditions: &[(String, Condition)], seen: &Seen<'_>) {
    let mut all = vec![true; seen.times()];
    let count = |truths: &[bool]| match seen.values.is_empty() {
        true => if truths == [true] { "true" } else { "false" }.to_string(),
        false => {
            let so = truths.iter().filter(|so| **so).count();
            format!("{so}/{} seeds", truths.len())
        }
    };
    let best = reached(claim.kind);
    claim.values.clear();
    for (text, condition) in conditions {
        let truths = seen.truths(condition);
        let unknown = truths.iter().filter(|so| so.is_none()).count();
        // What depends on something not measured counts as false.
        let truths: Vec<bool> = truths.iter().map(|so| *so == Some(true)).collect();
        all.iter_mut().zip(&truths).for_each(|(all, so)| *all &= so);
        let verdict = over_seeds(&truths, best);
        if unknown > 0 && verdict == Verdict::Missed {
            let seeds = match unknown == truths.len() {
                true => String::new(),
                false => format!("in {unknown} of {} seeds ", truths.len()),
            };
            add_note(claim, &format!("{seeds}{}", not_measured(text)));
        }
        claim.values.push(told(text, &count(&truths), verdict));
    }
    claim.verdict = over_seeds(&all, best);
    let in_seeds = if seen.values.is_empty() {
        ""
    } else {
        "true in "
    };
    claim.ours = Some(Figure::Text(format!("{in_seeds}{}", count(&all))));
    if let (1, Some(value)) = (conditions.len(), claim.values.first_mut()) {
        value.verdict = claim.verdict;
    }
}

/// Judges numbers beside the paper's.
fn compare(claim: &mut Claim, values: &[Compared], order: &[(String, Condition)], seen: &Seen<'_>) {
    let of_order = |so: Option<bool>| {
        let these = order
            .iter()
            .filter(move |(_, it)| seen.over_seeds(it) == so);
        these.map(|(text, _)| text.as_str()).collect::<Vec<&str>>()
    };
    let (broken, unknown) = (of_order(Some(false)), of_order(None));
    let ordered = broken.is_empty() && unknown.is_empty();
    let mut notes: Vec<String> = Vec::new();
    let (mut ours, mut spreads) = (BTreeMap::new(), BTreeMap::new());
    for (value, (judged, reading)) in values.iter().zip(read(claim.kind, values, ordered, seen)) {
        if let Some(reading) = reading {
            let subject = if value.name.is_empty() {
                String::new()
            } else {
                format!("{}: ", value.name)
            };
            notes.push(format!("{subject}judged by another reading, {reading}"));
        }
        if let (Some(median), Some(half)) = (judged.ours, judged.spread) {
            ours.insert(value.name.clone(), Figure::Number(median));
            spreads.insert(value.name.clone(), Figure::Number(half));
        }
        claim.values.push(judged);
    }
    let verdicts = claim.values.iter().map(|value| value.verdict);
    claim.verdict = verdicts.reduce(Verdict::worse).unwrap_or(Verdict::Missed);
    claim.ours = figure(ours);
    claim.spread = figure(spreads);
    if seen.terms.over == Over::Mean && seen.times() > 1 {
        notes.push("means, not medians, over the seeds".to_string());
    }
    if !broken.is_empty() {
        notes.push(format!("not so: {}", broken.join("; ")));
    }
    notes.extend(unknown.into_iter().map(not_measured));
    for (value, judged) in values.iter().zip(&claim.values) {
        if judged.ours.is_none() {
            notes.push(not_measured(&value.text));
        }
    }
    notes.iter().for_each(|note| add_note(claim, note));
}

/// Shows the claim's numbers with which nothing is compared, and why.
fn leave_out(claim: &mut Claim, unjudged: &[(String, String)], seen: &Seen<'_>) {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, reason) in unjudged {
        claim.values.push(Judged {
            name: name.clone(),
            paper: seen.terms.paper.get(&format!("paper.{name}")).copied(),
            ours: None,
            spread: None,
            verdict: Verdict::OutOfScope,
            says: None,
        });
        match reasons.iter_mut().find(|(known, _)| known == reason) {
            Some((_, names)) => names.push(name),
            None => reasons.push((reason, vec![name])),
        }
    }
    for (reason, names) in reasons {
        add_note(claim, &format!("{} not judged: {reason}", names.join(", ")));
    }
}

/// Several by name, or the only one.
fn figure(mut all: BTreeMap<String, Figure>) -> Option<Figure> {
    match all.remove("") {
        Some(only) => Some(only),
        None if all.is_empty() => None,
        None => Some(Figure::Several(all)),
    }
}

/// All values, judged by the readings that the claim is nearest to, with those readings that are not its own. A reading
/// that several values have applies to all of these, or to none.
fn read<'v>(
    kind: Kind,
    values: &'v [Compared],
    ordered: bool,
    seen: &Seen<'_>,
) -> Vec<(Judged, Option<&'v str>)> {
    let ours: Vec<Option<Spread>> = values
        .iter()
        .map(|value| seen.spread(&seen.each(&value.ours)))
        .collect();
    let names = || {
        values
            .iter()
            .flat_map(|value| value.readings.iter())
            .map(|(name, _)| name.as_str())
    };
    let shared: BTreeSet<&str> = names()
        .filter(|name| names().filter(|it| it == name).count() > 1)
        .collect();
    let judged = |common: Option<&str>| -> Vec<_> {
        let each = values.iter().zip(&ours);
        each.map(|(value, ours)| {
            let readings = value
                .readings
                .iter()
                .filter(|(name, _)| !shared.contains(name.as_str()));
            let fixed = value.readings.iter().find(|(name, _)| common == Some(name));
            match fixed {
                Some(reading) => one(
                    kind,
                    value,
                    *ours,
                    ordered,
                    None,
                    std::iter::once(reading),
                    seen,
                ),
                None => {
                    let own = Some(&value.paper);
                    one(kind, value, *ours, ordered, own, readings, seen)
                }
            }
        })
        .collect()
    };
    let mut best = judged(None);
    let rank = |of: &[(Judged, Option<&str>)]| {
        let ranks = || of.iter().map(|(judged, _)| judged.verdict.rank());
        (ranks().min(), ranks().map(u32::from).sum::<u32>())
    };
    for common in &shared {
        let other = judged(Some(common));
        if rank(&other) > rank(&best) {
            best = other;
        }
    }
    best
}

/// One value, judged by the nearest of its own reading, if there is one, and the others; and which of these that is.
fn one<'v>(
    kind: Kind,
    value: &'v Compared,
    ours: Option<Spread>,
    ordered: bool,
    own: Option<&Number>,
    readings: impl Iterator<Item = &'v (String, Number)>,
    seen: &Seen<'_>,
) -> (Judged, Option<&'v str>) {
    let median = ours.map_or(f64::NAN, |spread| spread.median);
    let verdict = |paper: f64| match kind {
        Kind::Exact | Kind::Analytic => exact(paper, median),
        _ => quantitative(value.meaning, paper, median, ordered),
    };
    let mut best = own.map(|own| {
        let paper = seen.of_paper(own);
        (verdict(paper), paper, None)
    });
    for (name, reading) in readings {
        let paper = seen.of_paper(reading);
        if best
            .as_ref()
            .is_none_or(|best| verdict(paper).rank() > best.0.rank())
        {
            best = Some((verdict(paper), paper, Some(name.as_str())));
        }
    }
    let (verdict, paper, reading) = best.unwrap_or((Verdict::Missed, f64::NAN, None));
    let judged = Judged {
        name: value.name.clone(),
        paper: paper.is_finite().then(|| round(paper)),
        ours: ours.map(|spread| round(spread.median)),
        spread: ours.map(|spread| round(spread.half_range)),
        verdict,
        says: None,
    };
    (judged, reading)
}
