// SPDX-License-Identifier: GPL-2.0-only
//! Random programs that are accepted, alone and together.

use crate::rng::Rng;

/// Program number `index` of a VM drawn from `seed`. The programs of one seed fit together: locks
/// nest in one order, queues have senders and receivers, barriers more than one party.
pub(crate) fn random_program(seed: u64, index: u64) -> String {
    let mut all = Rng::of(seed, "programs", 0);
    let mut writer = Writer {
        rng: Rng::of(seed, "program", index),
        text: String::from("queue q0 3; "),
    };
    if all.chance(500) {
        let bytes = 1024 << writer.rng.between(0, 15);
        let lines = writer.rng.between(1, 1000);
        writer.text += &format!("memory {bytes}B {lines}/us; mix 40/40/20; ");
    }
    writer.text += "loop { ";
    writer.time("compute");
    writer.list(0, 0, false);
    if all.chance(300) {
        writer.text += "barrier b; ";
    }
    if all.chance(300) {
        writer.text +=
            ["spin-barrier sb; ", "spin-barrier sb 20us; "][writer.rng.between(0, 1) as usize];
    }
    if all.chance(300) {
        writer.text += ["condition-barrier cb; ", "condition-barrier cb 20us; "]
            [writer.rng.between(0, 1) as usize];
    }
    if all.chance(300) {
        // A broadcast in each round, so that no wait is for ever.
        writer.text += if index.is_multiple_of(2) {
            "broadcast c; "
        } else {
            "mutex m9 { wait c }; "
        };
    }
    for statement in ["shootdown; ", "yield; ", "every 3ms; ", "timer t 2ms; "] {
        if writer.rng.chance(200) {
            writer.text += statement;
        }
    }
    if all.chance(500) {
        // Half of the threads put in what the other half takes out.
        writer.text += if index.is_multiple_of(2) {
            "send q0; "
        } else {
            "recv q0; "
        };
        writer.text += if index.is_multiple_of(2) {
            "recv q1; "
        } else {
            "send q1; "
        };
    }
    if all.chance(300) {
        writer.text += ["write-group g 20us exp; ", "write-group g 20us 10us; "]
            [writer.rng.between(0, 1) as usize];
    }
    writer.text += "count }";
    writer.text
}

struct Writer {
    rng: Rng,
    text: String,
}

impl Writer {
    fn time(&mut self, what: &str) {
        let length = 1 << self.rng.between(8, 21);
        let vary = ["", " ±10%", " ±100%", " exp"][self.rng.between(0, 3) as usize];
        self.text += &format!("{what} {length}ns{vary}; ");
    }

    /// Locks with numbers from `free` on may be taken.
    fn list(&mut self, depth: u32, free: u64, spin: bool) {
        for _ in 0..self.rng.between(0, 3) {
            match self.rng.between(0, 6) {
                0 => self.time("compute"),
                1 => self.time("busy"),
                2 if !spin => self.time("sleep"),
                3 if depth < 3 => {
                    self.text += &format!("loop {} {{ ", self.rng.between(1, 4));
                    self.time("compute");
                    self.list(depth + 1, free, spin);
                    self.text += "}; ";
                }
                4 | 5 if depth < 3 && free < 3 => self.lock("lock", depth, free, true),
                6 if depth < 3 && free < 3 && !spin => self.lock("mutex", depth, free, false),
                _ => self.text += "count 3; ",
            }
        }
    }

    fn lock(&mut self, kind: &str, depth: u32, free: u64, spin: bool) {
        let lock = self.rng.between(free, 2);
        self.text += &format!("{kind} {}{lock} {{ ", &kind[..1]);
        self.list(depth + 1, lock + 1, spin);
        self.text += "} ";
    }
}
