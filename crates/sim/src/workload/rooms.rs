// SPDX-License-Identifier: GPL-2.0-only
//! Renames what programs share, so that several workloads can live in one VM.

use super::{Statement, Timer};

/// The statements with each shared name replaced by what `inside` makes of it.
pub(super) fn list(body: &[Statement], inside: &impl Fn(&String) -> String) -> Vec<Statement> {
    body.iter().map(|one| statement(one, inside)).collect()
}

fn statement(statement: &Statement, inside: &impl Fn(&String) -> String) -> Statement {
    match statement {
        Statement::Lock(name, body) => Statement::Lock(inside(name), list(body, inside)),
        Statement::Mutex(name, body) => Statement::Mutex(inside(name), list(body, inside)),
        Statement::Loop(times, body) => Statement::Loop(*times, list(body, inside)),
        Statement::Group { name, work, spin } => Statement::Group {
            name: inside(name),
            work: *work,
            spin: *spin,
        },
        Statement::Barrier(name) => Statement::Barrier(inside(name)),
        Statement::SpinBarrier(name, spin) => Statement::SpinBarrier(inside(name), *spin),
        Statement::ConditionBarrier(name, spin) => Statement::ConditionBarrier(inside(name), *spin),
        Statement::Send(name) => Statement::Send(inside(name)),
        Statement::Recv(name) => Statement::Recv(inside(name)),
        Statement::Wait(name) => Statement::Wait(inside(name)),
        Statement::Signal(name) => Statement::Signal(inside(name)),
        Statement::Broadcast(name) => Statement::Broadcast(inside(name)),
        Statement::Append(name, bytes) => Statement::Append(inside(name), *bytes),
        Statement::Timer(timer) => Statement::Timer(Timer {
            name: inside(&timer.name),
            ..timer.clone()
        }),
        other => other.clone(),
    }
}
