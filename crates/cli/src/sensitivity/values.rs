// SPDX-License-Identifier: GPL-2.0-only
//! The values of a parameter: spelled out, or steps of a range.

use corun_model::time;

/// Steps of a range that names none.
const STEPS: usize = 5;
/// A range that names no steps has all its whole numbers if there are no more than this: with so few, five would be
/// unequally far apart, and the one that matters might be left out.
const WHOLE: usize = 20;
/// The most values; nobody would read a longer table.
pub const MOST: usize = 200;

/// A value of the parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// As `--set KEY=` takes it.
    pub text: String,
    /// For people.
    pub shown: String,
    /// What it stands for, in ns if it is a duration; `None` for a choice.
    pub number: Option<f64>,
}

/// All values in order, each once.
#[derive(Clone, Debug, PartialEq)]
pub struct Values {
    /// At least two.
    pub all: Vec<Value>,
    /// "ns" for durations, else nothing.
    pub unit: &'static str,
    /// How many were asked for.
    asked: usize,
}

impl Values {
    /// Says that there are fewer than were asked for, if so.
    pub fn fewer(&self) -> Option<String> {
        let (there, asked) = (self.all.len(), self.asked);
        (there < asked)
            .then(|| format!("--range: there are only {there} different values in it, not {asked}"))
    }
}

/// Reads `--values a,b,c`: numbers or durations if all of them are, else choices.
///
/// # Errors
/// What is wrong with them.
pub fn listed(texts: &[String]) -> Result<Values, String> {
    if texts.iter().any(|text| text.trim().is_empty()) {
        return Err("one of the values is empty; expected such as 1ms,3ms,9ms".to_string());
    }
    let texts = || texts.iter().map(|text| text.trim());
    let durations: Option<Vec<u64>> = texts().map(time::parse).collect();
    let finite = |number: &f64| number.is_finite();
    let numbers: Option<Vec<f64>> = texts()
        .map(|text| text.parse().ok().filter(finite))
        .collect();
    let numbers = match &durations {
        Some(all) => Some(all.iter().map(|ns| *ns as f64).collect()),
        None => numbers,
    };
    let value = |(at, text): (usize, &str)| Value {
        text: text.to_string(),
        shown: text.to_string(),
        number: numbers.as_ref().map(|all| all[at]),
    };
    let all: Vec<Value> = texts().enumerate().map(value).collect();
    for (at, value) in all.iter().enumerate() {
        let same = |other: &Value| {
            other.text == value.text || (value.number.is_some() && other.number == value.number)
        };
        if let Some(other) = all[..at].iter().find(|other| same(other)) {
            return Err(format!(
                "{} and {} are the same value",
                other.text, value.text
            ));
        }
    }
    let unit = if durations.is_some() { "ns" } else { "" };
    let asked = all.len();
    counted(Values { all, unit, asked })
}

/// Reads `--range A..B[:STEPS]`, in equal steps or (`log`) in equal factors.
///
/// # Errors
/// What is wrong with it.
pub fn range(text: &str, log: bool) -> Result<Values, String> {
    let expected = "expected FROM..TO or FROM..TO:STEPS, such as 1ms..16ms:5, 1..8 or 0.5..2.5";
    let Some((from, rest)) = text.split_once("..") else {
        return Err(format!("found {text:?}, {expected}"));
    };
    let (to, steps) = match rest.split_once(':') {
        Some((to, steps)) => (to.trim(), Some(steps.trim())),
        None => (rest.trim(), None),
    };
    let from = from.trim();
    let said = steps.is_some();
    let kind = Kind::of(from, to).ok_or_else(|| {
        format!(
            "{from:?} and {to:?} are no range: expected two durations such as 1ms..16ms, or two \
             numbers such as 1..8"
        )
    })?;
    let (low, high) = (kind.number(from), kind.number(to));
    let (Some(low), Some(high)) = (low, high) else {
        return Err(format!("found {text:?}, {expected}"));
    };
    if low >= high {
        return Err(format!(
            "{from} is not below {to}: the smaller end comes first"
        ));
    }
    if log && low <= 0.0 {
        return Err(format!(
            "--log takes equal factors, which {from} has none of: begin above 0"
        ));
    }
    let steps = match steps {
        None => kind.steps(low, high, log),
        Some(steps) => match steps.parse::<usize>() {
            Ok(steps @ 2..=MOST) => steps,
            _ => return Err(format!("found {steps:?} steps, expected 2 to {MOST}")),
        },
    };
    let mut all: Vec<Value> = (0..steps)
        .map(|step| {
            let share = step as f64 / (steps - 1) as f64;
            kind.value(match (step, log) {
                (0, _) => low,
                (step, _) if step == steps - 1 => high,
                (_, true) => low * libm::pow(high / low, share),
                (_, false) => low + (high - low) * share,
            })
        })
        .collect();
    // Whole numbers may meet.
    all.dedup_by(|a, b| a.text == b.text);
    tell_apart(&mut all);
    let unit = if kind == Kind::Duration { "ns" } else { "" };
    let asked = if said { steps } else { all.len() };
    counted(Values { all, unit, asked })
}

fn counted(values: Values) -> Result<Values, String> {
    match values.all.len() {
        2..=MOST => Ok(values),
        1 => Err(format!("1 value: expected 2 to {MOST}")),
        count => Err(format!("{count} values: expected 2 to {MOST}")),
    }
}

/// Values that look the same in three digits are shown in full.
fn tell_apart(all: &mut [Value]) {
    let twice = |shown: &str| all.iter().filter(|value| value.shown == shown).count() > 1;
    if all.iter().any(|value| twice(&value.shown)) {
        all.iter_mut()
            .for_each(|value| value.shown.clone_from(&value.text));
    }
}

/// What the ends of a range are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Duration,
    Whole,
    Fraction,
}

impl Kind {
    fn of(from: &str, to: &str) -> Option<Self> {
        let both = |is: fn(&str) -> bool| is(from) && is(to);
        if both(|text| time::parse(text).is_some()) {
            return Some(Self::Duration);
        }
        if both(|text| text.parse::<u64>().is_ok()) {
            return Some(Self::Whole);
        }
        let finite = |text: &str| text.parse::<f64>().is_ok_and(f64::is_finite);
        both(finite).then_some(Self::Fraction)
    }

    /// Steps of a range that names none.
    fn steps(self, low: f64, high: f64, log: bool) -> usize {
        let numbers = high - low + 1.0;
        match self {
            Self::Whole if !log && numbers <= WHOLE as f64 => numbers as usize,
            _ => STEPS,
        }
    }

    fn number(self, text: &str) -> Option<f64> {
        match self {
            Self::Duration => time::parse(text).map(|ns| ns as f64),
            _ => text.parse().ok(),
        }
    }

    fn value(self, number: f64) -> Value {
        let (number, text) = match self {
            Self::Duration => (number.round(), format!("{}ns", number.round() as u64)),
            Self::Whole => (number.round(), format!("{}", number.round() as u64)),
            Self::Fraction => {
                // Six digits; the debug form always has a point, as TOML wants it.
                let text = format!("{number:.6}");
                let short: f64 = text.parse().unwrap_or(number);
                (short, format!("{short:?}"))
            }
        };
        let shown = match self {
            Self::Duration => time::show(number as u64),
            _ => text.clone(),
        };
        Value {
            text,
            shown,
            number: Some(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(values: Result<Values, String>) -> Vec<String> {
        values
            .unwrap()
            .all
            .into_iter()
            .map(|value| value.text)
            .collect()
    }

    fn list(texts: &[&str]) -> Result<Values, String> {
        listed(&texts.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn steps_between_the_ends() {
        let linear = range("1us..3us:3", false);
        assert_eq!(texts(linear), ["1000ns", "2000ns", "3000ns"]);
        let log = range("1ms..100ms:3", true);
        assert_eq!(texts(log), ["1000000ns", "10000000ns", "100000000ns"]);
        assert_eq!(
            texts(range("1..4", false)),
            ["1", "2", "3", "4"],
            "each once"
        );
        assert_eq!(
            texts(range("1..6", false)),
            ["1", "2", "3", "4", "5", "6"],
            "none left out"
        );
        assert_eq!(texts(range("1..20", false)).len(), 20);
        assert_eq!(texts(range("1..21", false)), ["1", "6", "11", "16", "21"]);
        assert_eq!(texts(range("1..16", true)), ["1", "2", "4", "8", "16"]);
        assert_eq!(
            texts(range("0.5..2:4", false)),
            ["0.5", "1.0", "1.5", "2.0"]
        );
        let shown = range("1ms..1.001ms:3", false).unwrap().all;
        assert_eq!(shown[1].shown, "1000500ns", "told apart");
        assert_eq!(range("0ns..8us", false).unwrap().unit, "ns");
        assert_eq!(range("1..4", false).unwrap().fewer(), None);
        let fewer = range("1..4:8", false).unwrap().fewer().unwrap();
        assert!(
            fewer.contains("only 4") && fewer.contains("not 8"),
            "{fewer}"
        );
    }

    #[test]
    fn lists_are_numbers_if_all_are() {
        let durations = list(&["1ms", "500us"]).unwrap();
        assert_eq!(
            (durations.unit, durations.all[1].number),
            ("ns", Some(500e3))
        );
        assert_eq!(list(&["1", "2.5"]).unwrap().all[1].number, Some(2.5));
        assert_eq!(list(&["ticket", "unfair"]).unwrap().all[0].number, None);
        assert_eq!(list(&["1", "x"]).unwrap().all[0].number, None);
        assert_eq!(list(&["true", "nan"]).unwrap().all[1].number, None);
    }

    #[test]
    fn what_is_no_range_or_list() {
        for (text, log, hint) in [
            ("1ms", false, "expected FROM..TO"),
            ("1ms..2", false, "are no range"),
            ("..", false, "are no range"),
            ("-1ms..2ms", false, "are no range"),
            ("2ms..1ms", false, "is not below"),
            ("1ms..1ms", false, "is not below"),
            ("0us..1ms", true, "begin above 0"),
            ("1..8:1", false, "expected 2 to 200"),
            ("1..8:many", false, "expected 2 to 200"),
            ("1..inf", false, "are no range"),
        ] {
            let error = range(text, log).unwrap_err();
            assert!(error.contains(hint), "{text}: {error}");
        }
        assert!(list(&["1ms"]).unwrap_err().contains("1 value: expected 2"));
        assert!(list(&["1ms", ""]).unwrap_err().contains("empty"));
        assert!(list(&["1ms", "1000us"]).unwrap_err().contains("the same"));
    }

    proptest! {
        #[test]
        fn no_range_panics_and_all_stay_within(text in "[0-9a-z.:-]{0,24}", log in any::<bool>()) {
            let _ = range(&text, log);
        }

        #[test]
        fn values_rise_from_end_to_end(a in 1u64..1 << 40, b in 1u64..1 << 40, log in any::<bool>()) {
            prop_assume!(a != b);
            let (a, b) = (a.min(b), a.max(b));
            let values = range(&format!("{a}ns..{b}ns:9"), log).unwrap();
            let numbers: Vec<f64> = values.all.iter().filter_map(|value| value.number).collect();
            prop_assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert_eq!((numbers[0], numbers[numbers.len() - 1]), (a as f64, b as f64));
        }
    }
}
