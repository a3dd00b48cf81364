// SPDX-License-Identifier: GPL-2.0-only
//! Guessing what was meant by an unknown name.

/// The known name that `name` most likely stands for, if one is close enough.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    if name.len() > 100 {
        return None;
    }
    let distance = |known: &str| strsim::damerau_levenshtein(&name, &known.to_lowercase());
    let scored = known.into_iter().map(|known| (distance(known), known));
    let length = name.chars().count();
    let limit = (length / 3).max(1);
    // More must be alike than not: otherwise any name of one letter would do for any other.
    let alike = |distance, known: &str| 2 * distance < length.max(known.chars().count());
    scored
        .filter(|(distance, known)| *distance <= limit && alike(*distance, known))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_slips_are_guessed_and_no_more() {
        assert_eq!(nearest("topolgy", ["hz", "topology"]), Some("topology"));
        assert_eq!(nearest("CFS", ["cfs", "eevdf"]), Some("cfs"));
        assert_eq!(nearest("banana", ["cfs", "eevdf"]), None);
        assert_eq!(nearest("", ["cfs"]), None);
        for (name, known) in [
            ("b", "a"),
            ("b", "bc"),
            ("db", "io"),
            ("db", "do"),
            ("a1", "a2"),
        ] {
            assert_eq!(nearest(name, [known]), None, "{name}");
        }
        for (name, known) in [("A", "a"), ("db", "dbs"), ("dbs", "db"), ("wbe", "web")] {
            assert_eq!(nearest(name, [known]), Some(known), "{name}");
        }
    }
}
