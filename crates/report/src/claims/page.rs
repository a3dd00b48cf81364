// SPDX-License-Identifier: GPL-2.0-only
//! The scoreboard as one page that needs nothing else, in the style of the comparison's report.

use super::{Claim, Scoreboard, Status};
use crate::html::{About, bound};
use askama::Template;

#[derive(Template)]
#[template(path = "claims.html")]
struct Page<'a> {
    board: &'a Scoreboard,
    about: &'a About,
    sums: Vec<String>,
    systems: Vec<System<'a>>,
}

struct System<'a> {
    name: &'a str,
    checked: Vec<&'a Claim>,
    others: Vec<&'a Claim>,
}

/// The page.
///
/// # Errors
/// If the template fails, which would be a defect of this crate.
pub fn page(board: &Scoreboard, about: &About) -> askama::Result<String> {
    let systems = board.systems().into_iter().map(|name| {
        let claims = board.claims.iter().filter(|claim| claim.system == name);
        let is_checked = |claim: &&Claim| claim.status == Status::Checked;
        let (checked, others) = claims.partition(is_checked);
        System {
            name,
            checked,
            others,
        }
    });
    let page = Page {
        board,
        about,
        sums: board.sums(),
        systems: systems.collect(),
    };
    Ok(bound(&page.render()?))
}
