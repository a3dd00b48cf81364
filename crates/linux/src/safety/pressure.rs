// SPDX-License-Identifier: GPL-2.0-only
//! Pressure stall information: how much of the time tasks waited for a resource
//! (Documentation/accounting/psi.rst).

use corun_model::Nanos;
use corun_model::time::US;
use std::fs;

/// Time for which some task has waited for a pCPU so far, ns; `None` where the kernel does not say.
pub(crate) fn cpu_total() -> Option<Nanos> {
    let text = fs::read_to_string("/proc/pressure/cpu").ok()?;
    total(&text, "some").map(|time| time * US)
}

/// `avg10` of a line, percent.
pub(crate) fn share(text: &str, line: &str) -> Option<f64> {
    field(text, line, "avg10=")?.parse().ok()
}

/// `total` of a line, µs.
fn total(text: &str, line: &str) -> Option<u64> {
    field(text, line, "total=")?.parse().ok()
}

fn field<'a>(text: &'a str, line: &str, key: &str) -> Option<&'a str> {
    let fields = text.lines().find_map(|found| found.strip_prefix(line))?;
    fields
        .split_whitespace()
        .find_map(|field| field.strip_prefix(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_as_the_kernel_writes_them() {
        let text = "some avg10=8.03 avg60=8.69 avg300=8.10 total=21736\n\
                    full avg10=0.50 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(share(text, "some"), Some(8.03));
        assert_eq!(share(text, "full"), Some(0.5));
        assert_eq!(total(text, "full"), Some(7));
        assert_eq!(share("", "some"), None);
        assert_eq!(share("some avg10=x", "some"), None);
    }
}
