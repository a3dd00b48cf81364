// SPDX-License-Identifier: GPL-2.0-only
//! The calibration files of vSMT-IO's symbiosis, as `corun calibrate --symbiosis` writes them: coefficients of
//! its model, and the events of `perf` that divide cycles, by the kernel's names or by numbers.

use crate::calibration::{Calibrated, within};
use crate::policy::setting;
use crate::reader::Reader;
use crate::tree::Value;
use corun_policies::Settings;
use corun_policies::pmu::{Event, Events, KINDS};
use corun_policies::vsmtio::calibration::Calibration;
pub(crate) use corun_policies::vsmtio::calibration::FORMAT;

pub(crate) const COEFFICIENTS: [&str; 5] = ["base", "wait", "wait_wait", "miss", "miss_miss"];

/// Everything except format and machine.
pub(crate) fn of_symbiosis(top: &Reader<'_>) -> Option<Calibrated> {
    top.required("source", "where the numbers come from, in quotes")?;
    let coefficients = within(top, "coefficient", &COEFFICIENTS)?;
    let mut settings = Settings::default();
    for key in COEFFICIENTS {
        setting(&coefficients, &mut settings, "vsmtio", key);
    }
    coefficients.finish();
    let events = match top.has("event") {
        true => Some(events(&within(top, "event", &["cycles", "stalls"])?)?),
        false => None,
    };
    Some(Calibrated::VsmtIo(Calibration {
        coefficients: settings.vsmtio.coefficients,
        events,
    }))
}

fn events(table: &Reader<'_>) -> Option<Events> {
    let cycles = event(table, "cycles");
    let stalls = event(table, "stalls");
    let misses = match table.has("misses") {
        true => Some(event(table, "misses")),
        false => None,
    };
    table.finish();
    Some(Events {
        cycles: cycles?,
        stalls: stalls?,
        misses: match misses {
            Some(misses) => Some(misses?),
            None => None,
        },
    })
}

fn event(table: &Reader<'_>, key: &'static str) -> Option<Event> {
    let table = within_event(table, key)?;
    let kind = kind(&table);
    let config = kind.and_then(|kind| config(&table, kind));
    if kind.is_none() {
        // Reported already; what it should be depends on the type.
        table.find("config");
    }
    table.finish();
    Some(Event {
        kind: kind?,
        config: config?,
    })
}

fn within_event<'a>(table: &Reader<'a>, key: &'static str) -> Option<Reader<'a>> {
    within(table, key, &["type", "config"])
}

/// `type`: a name, or a number as in /sys/bus/event_source/devices/*/type.
fn kind(table: &Reader<'_>) -> Option<u32> {
    let value = &table.find("type")?.value;
    let found = match value {
        Value::Text(name) => Event::kind_named(name),
        Value::Whole(number) => u32::try_from(*number).ok(),
        _ => None,
    };
    let found = found.filter(|kind| Event::is_kind(*kind));
    if found.is_none() {
        let names = KINDS.map(|(name, _)| format!("{name:?}")).join(", ");
        let message = format!(
            "found {}, expected {names}, or the number of a PMU as /sys/bus/event_source/devices/*/type has it",
            value.show()
        );
        table.problem("type", message);
    }
    found
}

/// `config`: for generic types a name or its number, for others a number.
fn config(table: &Reader<'_>, kind: u32) -> Option<u64> {
    let value = &table.find("config")?.value;
    let generic = Event::generic(kind);
    let known = |number: &u64| generic.is_empty() || generic.iter().any(|(_, is)| is == number);
    let found = match value {
        Value::Text(name) => generic.iter().find(|(is, _)| is == name).map(|(_, is)| *is),
        Value::Whole(number) => u64::try_from(*number).ok().filter(known),
        _ => None,
    };
    if found.is_none() {
        let expected = match generic {
            [] => "a whole number from 0 to 9223372036854775807 such as 0x40004a3".to_string(),
            _ => format!("one of {}", names_of(generic)),
        };
        let found = value.show();
        table.problem("config", format!("found {found}, expected {expected}"));
    }
    found
}

fn names_of(generic: &[(&str, u64)]) -> String {
    let names: Vec<String> = generic
        .iter()
        .map(|(name, is)| format!("{name:?} ({is})"))
        .collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use crate::{Calibrated, calibration};
    use corun_policies::pmu::{Event, Events};
    use corun_policies::vsmtio::calibration::{Calibration, write};

    const GOOD: &str = "format = \"corun-symbiosis-1\"\nsource = \"measured\"\n\
        [machine]\ntopology = \"1n1l4c2t\"\nl2 = \"256KB\"\nllc = \"8MB\"\n\
        [coefficient]\nbase = 1500\nwait = 900\nwait_wait = 300\nmiss = 1400\nmiss_miss = 800\n\
        [event.cycles]\ntype = \"hardware\"\nconfig = \"cpu-cycles\"\n\
        [event.stalls]\ntype = \"raw\"\nconfig = 0x040004a3\n\
        [event.misses]\ntype = 17\nconfig = 5\n";

    fn found(text: &str) -> Calibration {
        match calibration("s.toml", text).unwrap().found {
            Calibrated::VsmtIo(found) => found,
            other => panic!("of another kind: {other:?}"),
        }
    }

    #[test]
    fn a_whole_file_is_read_and_written_as_it_is_read() {
        let read = found(GOOD);
        assert_eq!(read.coefficients.wait_wait, 300);
        let events = Events {
            cycles: Event::CYCLES,
            stalls: Event::raw(0x0400_04a3),
            misses: Some(Event {
                kind: 17,
                config: 5,
            }),
        };
        assert_eq!(read.events, Some(events));
        let machine = calibration("s.toml", GOOD).unwrap().machine;
        for found_there in [
            read,
            Calibration::default(),
            Calibration {
                events: Some(Events {
                    misses: None,
                    ..events
                }),
                ..read
            },
        ] {
            let written = write(&found_there, &machine, "a \"test\"");
            assert_eq!(found(&written), found_there, "{written}");
            assert_eq!(calibration("s.toml", &written).unwrap().machine, machine);
        }
    }

    #[test]
    fn events_may_be_left_to_the_host_and_misses_to_nobody() {
        let (without, _) = GOOD.split_once("[event.cycles]").unwrap();
        assert_eq!(found(without).events, None);
        let (no_misses, _) = GOOD.split_once("[event.misses]").unwrap();
        assert_eq!(found(no_misses).events.unwrap().misses, None);
    }

    /// The problems reported for a broken file.
    fn problems(from: &str, to: &str) -> String {
        assert!(GOOD.contains(from));
        calibration("s.toml", &GOOD.replace(from, to))
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn a_broken_one_is_refused_with_its_reasons() {
        for (from, to, said) in [
            ("wait = 900\n", "", "s.toml:7: coefficient.wait: is missing"),
            (
                "wait = 900",
                "wait = 10001",
                "s.toml:9: coefficient.wait: found 10001, expected a whole number from 0 to 10000",
            ),
            (
                "[coefficient]\n",
                "[coefficient]\nx = 1\n",
                "coefficient.x: unknown key",
            ),
            ("source = \"measured\"\n", "", "source: is missing"),
            (
                "[event.stalls]",
                "[event.stall]",
                "event.stalls: is missing",
            ),
            (
                "\"hardware\"",
                "\"hardwired\"",
                "event.cycles.type: found \"hardwired\", expected \"hardware\", \"software\"",
            ),
            (
                "type = 17",
                "type = 2",
                "event.misses.type: found 2, expected",
            ),
            (
                "type = 17",
                "type = -1",
                "event.misses.type: found -1, expected",
            ),
            (
                "\"cpu-cycles\"",
                "\"cpu-cycle\"",
                "event.cycles.config: found \"cpu-cycle\", expected one of \"cpu-cycles\" (0), ",
            ),
            (
                "\"cpu-cycles\"",
                "10",
                "event.cycles.config: found 10, expected one of \"cpu-cycles\" (0), ",
            ),
            (
                "0x040004a3",
                "\"r040004a3\"",
                "event.stalls.config: found \"r040004a3\", expected a whole number from 0 to",
            ),
            (
                "config = 5",
                "config = -5",
                "event.misses.config: found -5, expected",
            ),
            ("config = 5\n", "", "event.misses.config: is missing"),
            (
                "config = 5\n",
                "config = 5\nperiod = 1\n",
                "event.misses.period: unknown key",
            ),
            ("l2 = \"256KB\"", "l2 = \"1B\"", "machine.l2: found"),
        ] {
            let problems = problems(from, to);
            assert!(problems.contains(said), "{from} → {to}: {problems}");
        }
        let other = calibration("s.toml", "format = \"corun-symbiosis-2\"\n").unwrap_err();
        let other = other.to_string();
        assert!(
            other.contains("expected \"corun-calibration-1\" or \"corun-symbiosis-1\""),
            "{other}"
        );
    }

    /// Whatever is wrong with it is reported.
    #[test]
    fn no_line_is_passed_over() {
        let lines: Vec<&str> = GOOD.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let key = line.split(" = ").next().unwrap();
            let others = [
                "true",
                "[]",
                "{}",
                "-1",
                "\"\"",
                "1e3",
                "99999999999999999999",
            ];
            let mut instead: Vec<String> = others.map(|value| format!("{key} = {value}")).into();
            instead.push(String::new());
            for instead in instead {
                let mut broken = lines.clone();
                broken[at] = &instead;
                let text = broken.join("\n");
                if let Err(problems) = calibration("s.toml", &text) {
                    assert!(problems.iter().count() > 0, "{text}");
                }
            }
        }
    }

    #[test]
    fn a_file_is_for_policies_of_its_kind() {
        let symbiosis = Calibrated::VsmtIo(Calibration::default());
        let why = symbiosis.is_for("aql").unwrap_err();
        assert!(
            why.starts_with(
                "found a calibration for vsmtio, written by `corun calibrate --symbiosis`"
            ),
            "{why}"
        );
        assert!(symbiosis.is_for("vsmtio").is_ok() && symbiosis.is_for("fair").is_ok());
        let of_types = Calibrated::Aql(Default::default());
        let why = of_types.is_for("vsmtio").unwrap_err();
        assert!(
            why.ends_with("expected one for vsmtio: `corun calibrate --symbiosis` writes it"),
            "{why}"
        );
        assert!(of_types.is_for("vturbo").is_ok());
        // The other settings of vsmtio stay as they are.
        let values = symbiosis.values();
        assert_eq!(values.len(), 5, "{values:?}");
        assert_eq!(values["miss"], "1436");
    }
}
