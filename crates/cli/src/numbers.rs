// SPDX-License-Identifier: GPL-2.0-only
//! Whole numbers on the command line: for anything else the message says what is accepted, where clap itself would say
//! "invalid digit found in string".

use std::ops::RangeInclusive;

/// Reads a whole number of this range.
pub fn within<T>(accepted: RangeInclusive<u64>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: TryFrom<u64>,
{
    move |text| {
        let number = text
            .parse()
            .ok()
            .filter(|number| accepted.contains(number))
            .and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| expected(&accepted))
    }
}

/// What is accepted, in words.
fn expected(accepted: &RangeInclusive<u64>) -> String {
    match (accepted.start(), accepted.end()) {
        (least, &u64::MAX) => format!("expected a whole number from {least} on"),
        (least, most) => format!("expected a whole number from {least} to {most}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_numbers_of_the_range_are_read() {
        let few = within::<u32>(1..=1000);
        assert_eq!((few("1"), few("1000")), (Ok(1), Ok(1000)));
        for text in [
            "0",
            "1001",
            "-1",
            "1.5",
            "three",
            "",
            "99999999999999999999",
        ] {
            let told = few(text).unwrap_err();
            assert_eq!(told, "expected a whole number from 1 to 1000", "{text}");
        }
        let told = within::<u64>(1..=u64::MAX)("-1").unwrap_err();
        assert_eq!(told, "expected a whole number from 1 on");
    }
}
