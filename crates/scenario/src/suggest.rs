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
    // More is alike than not: else any name of one letter would do for any other.
    let alike = |distance, known: &str| 2 * distance < length.max(known.chars().count());
    scored
        .filter(|(distance, known)| *distance <= limit && alike(*distance, known))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// Keys that people know from elsewhere (libvirt, Docker, QEMU, OpenStack), and what says the same here.
const ELSEWHERE: [(&[&str], &str); 8] = [
    (&["cores", "sockets", "threads_per_core"], "topology"),
    (&["cpus", "vcpu", "smp", "cores"], "vcpus"),
    (&["program", "programs", "code"], "thread"),
    (&["cpu_quota", "quota", "cpu_limit", "limit"], "cpu_max"),
    (
        &["shares", "cpu_shares", "cpu_weight", "priority"],
        "weight",
    ),
    (&["affinity", "cpuset", "cpus_allowed", "pin"], "allowed"),
    (&["vcpupin", "pinning", "vcpu_pin"], "vcpu_allowed"),
    (&["iops", "bandwidth", "io_limit"], "io_quota"),
];

/// The known key that says what `key` says elsewhere, or is spelt nearly like it.
pub fn meant<'a>(key: &str, known: &[&'a str]) -> Option<&'a str> {
    let here = |(others, ours): &(&[&str], &str)| {
        let ours = known.iter().find(|known| *known == ours)?;
        others.contains(&key).then_some(*ours)
    };
    let elsewhere = ELSEWHERE.iter().find_map(here);
    elsewhere.or_else(|| nearest(key, known.iter().copied()))
}

/// For messages about an unknown name: the guess, if there is one, and all that is accepted.
pub fn or_nearest(name: &str, known: &[&str]) -> String {
    let accepted = match known {
        [] => "nothing is accepted here".to_string(),
        _ => format!("accepted are {}", known.join(", ")),
    };
    match nearest(name, known.iter().copied()) {
        Some(guess) => format!(
            "did you mean {guess:?}? {}{}",
            accepted[..1].to_uppercase(),
            &accepted[1..]
        ),
        None => accepted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_elsewhere_are_understood_where_they_mean_something() {
        let vm = [
            "allowed", "cpu_max", "io_quota", "thread", "vcpus", "weight",
        ];
        for (key, ours) in [
            ("cpu_quota", Some("cpu_max")),
            ("cpus", Some("vcpus")),
            ("program", Some("thread")),
            ("shares", Some("weight")),
            ("weigth", Some("weight")),
            ("memory", None),
        ] {
            assert_eq!(meant(key, &vm), ours, "{key}");
        }
        assert_eq!(meant("cpus", &["pcpus", "topology"]), Some("pcpus"));
        assert_eq!(meant("sockets", &["pcpus", "topology"]), Some("topology"));
        assert_eq!(meant("cpu_quota", &["hz"]), None);
    }

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
        assert_eq!(
            or_nearest("balence", &["affinity", "balance"]),
            "did you mean \"balance\"? Accepted are affinity, balance"
        );
    }
}
