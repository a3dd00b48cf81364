// SPDX-License-Identifier: GPL-2.0-only
//! Guessing what was meant by an unknown name.

use corun_model::nearest;

/// Keys that people know from elsewhere (libvirt, Docker, QEMU, OpenStack), and their equivalents here.
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

/// The known key that is the equivalent of `key` as used elsewhere, or is spelt nearly like it.
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
    fn a_guess_comes_before_what_is_accepted() {
        assert_eq!(
            or_nearest("balence", &["affinity", "balance"]),
            "did you mean \"balance\"? Accepted are affinity, balance"
        );
    }
}
