// SPDX-License-Identifier: GPL-2.0-only
//! What a recording does not show, as questions with two extreme answers, and what depends on them: the ready time
//! under the host's own scheduler and under the policy compared with it.

use super::judge::ready_share;
use super::{Advice, Answer, Open, PolicyReady, Range, Replayed, Spun};
use crate::format::percent;
use crate::results::Run;

/// The questions, as far as they were tried.
pub(super) fn questions(
    advice: &Advice,
    tried: &[(String, Vec<Replayed>)],
    spinning: Option<&Spun>,
) -> Vec<Open> {
    let beside = [advice.own(), advice.rival()];
    let beside: Vec<&str> = beside
        .into_iter()
        .flatten()
        .map(|it| &it.policy[..])
        .collect();
    let pairs = beside.iter().filter_map(|name| {
        let (name, replays) = tried.iter().find(|(tried, _)| tried == name)?;
        Some((name.as_str(), &replays[..]))
    });
    let pairs: Vec<_> = pairs.collect();
    let mut open = vec![afterwards(&pairs)];
    open.extend(spinning.map(|spun| running(&pairs, spun)));
    open.retain(|open| {
        open.answers
            .iter()
            .all(|answer| !answer.policies.is_empty())
    });
    open
}

/// What follows the recorded demand.
fn afterwards(pairs: &[(&str, &[Replayed])]) -> Open {
    let answer = |assumed: &str, goes_on: bool| Answer {
        assumed: assumed.to_string(),
        policies: pairs
            .iter()
            .filter_map(|(name, replays)| {
                let fits = replays.iter().filter(|replay| replay.goes_on == goes_on);
                let shares: Vec<f64> = fits.map(|replay| ready_share(&replay.run)).collect();
                (!shares.is_empty()).then(|| under(name, Range::of(shares)))
            })
            .collect(),
    };
    Open {
        question: "what VMs do that get more done than was recorded".to_string(),
        answers: vec![
            answer("they go on as before", true),
            answer("they have nothing more to do", false),
        ],
    }
}

/// What vCPUs did while they ran; both answers begin as recorded, and go on as before.
fn running(pairs: &[(&str, &[Replayed])], spun: &Spun) -> Open {
    let recorded = pairs.iter().filter_map(|(name, replays)| {
        let first = replays.iter().find(|replay| replay.goes_on)?;
        Some(of(name, &first.run))
    });
    let share = percent(spun.share);
    Open {
        question: "what vCPUs did while a sibling was kept from running".to_string(),
        answers: vec![
            Answer {
                assumed: "all of it was work".to_string(),
                policies: recorded.collect(),
            },
            Answer {
                assumed: format!(
                    "{share} of their CPU time was spinning, and none of it comes again"
                ),
                policies: vec![
                    of(&spun.own.policy, &spun.own),
                    of(&spun.best.policy, &spun.best),
                ],
            },
        ],
    }
}

fn of(policy: &str, run: &Run) -> PolicyReady {
    under(policy, Range::of([ready_share(run)]))
}

fn under(policy: &str, ready_share: Range) -> PolicyReady {
    PolicyReady {
        policy: policy.to_string(),
        ready_share,
    }
}

/// Does the recommendation depend on any of it?
pub(super) fn words(advice: &Advice) -> Option<String> {
    let (own, best) = (advice.own()?, advice.recommended.as_ref()?);
    let median = |answer: &Answer, name: &str| {
        let found = answer.policies.iter().find(|it| it.policy == name);
        found.map(|it| it.ready_share.median)
    };
    let turned = |answer: &&Answer| {
        let both = median(answer, &own.policy).zip(median(answer, best));
        both.is_some_and(|(own, best)| best >= own)
    };
    let answers = advice.open.iter().flat_map(|open| &open.answers);
    let turned: Vec<&str> = answers.filter(turned).map(|it| &it.assumed[..]).collect();
    Some(match turned.is_empty() {
        true => format!(
            "vCPUs lack a pCPU less under {best} than under {} at either extreme of what the recording \
             cannot tell.",
            own.policy
        ),
        false => format!(
            "This depends on what the recording cannot tell: vCPUs would not lack a pCPU less under {best} if {}.",
            turned.join(", or if ")
        ),
    })
}
