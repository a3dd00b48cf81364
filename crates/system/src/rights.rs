// SPDX-License-Identifier: GPL-2.0-only
//! What people are told when the system refuses something because they lack a right.

use std::io;

/// What the system said; for users other than root also that it takes root, where that is why it refused.
pub fn in_words(refusal: &io::Error) -> String {
    // SAFETY: takes nothing and always works.
    let is_root = unsafe { libc::geteuid() } == 0;
    to(is_root, refusal)
}

fn to(is_root: bool, refusal: &io::Error) -> String {
    // Our own refusals have no number, and say what is needed.
    let lacks_rights = matches!(refusal.raw_os_error(), Some(libc::EACCES | libc::EPERM));
    match lacks_rights && !is_root {
        true => format!("{refusal}: run this as root"),
        false => refusal.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_root_is_told_that_it_takes_root() {
        let system = io::Error::from_raw_os_error;
        for number in [libc::EACCES, libc::EPERM] {
            assert!(to(false, &system(number)).ends_with("run this as root"));
            assert!(!to(true, &system(number)).contains("root"));
        }
        assert!(!to(false, &system(libc::ENOENT)).contains("root"));
        let own = io::Error::new(io::ErrorKind::PermissionDenied, "belongs to user 7");
        assert_eq!(to(false, &own), "belongs to user 7");
    }
}
