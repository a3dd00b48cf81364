// SPDX-License-Identifier: GPL-2.0-only
//! Jupiter as its timelines show it: the picture in `docs/jupiter.md`, and when it is off and on in
//! the experiment of Figure 4.14.

use crate::common::{Place, in_tree, is_fresh};
use corun_report::timeline::{Timelines, read};
use std::fmt::Write;

/// The timeline of a scenario under a policy.
fn timeline(test: &str, scenario: &str, policy: &str, more: &[&str]) -> Timelines {
    let place = Place::new(test);
    let scenario = in_tree(scenario);
    let args = [
        "compare",
        scenario.to_str().unwrap(),
        "--policies",
        policy,
        "--seeds",
        "1",
        "--trace",
        "trace.pftrace",
    ];
    place.prints(&[&args, more].concat());
    read(&std::fs::read(place.path("trace.pftrace")).unwrap()).unwrap()
}

/// The values of a counter of a VM: seconds, and how much.
fn values(timelines: &Timelines, vm: &str, counter: &str) -> Vec<(f64, f64)> {
    let path = format!("VM {vm} > {counter}");
    let track = &timelines.tracks[&path];
    let told = track.values.iter();
    told.map(|&(at, value)| (at as f64 / 1e9, value as f64))
        .collect()
}

/// A counter's value at a time.
fn at(values: &[(f64, f64)], time: f64) -> f64 {
    let before = values.iter().take_while(|(told, _)| *told <= time);
    before.last().unwrap().1
}

/// A field of the picture: its place from above, its height, and the value at its upper edge.
struct Field {
    title: &'static str,
    top: f64,
    most: f64,
    marks: [f64; 3],
    /// How long it is.
    seconds: f64,
}

const WIDTH: f64 = 640.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 600.0;
const HEIGHT: f64 = 130.0;
const SECONDS: f64 = 8.0;
const COLOURS: [&str; 4] = ["#0072b2", "#999999", "#d55e00", "#56b4e9"];

impl Field {
    fn y(&self, value: f64) -> f64 {
        self.top + HEIGHT * (1.0 - value / self.most)
    }

    /// Its axes, and a line for each of these counters, which keep their values until they change.
    fn draw(&self, svg: &mut String, curves: &[Vec<(f64, f64)>]) {
        let x = |time: f64| LEFT + (RIGHT - LEFT) * time / self.seconds;
        let bottom = self.y(0.0);
        writeln!(
            svg,
            "<text x=\"{LEFT}\" y=\"{:.0}\">{}</text>",
            self.top - 8.0,
            self.title
        )
        .unwrap();
        for mark in self.marks {
            let y = self.y(mark);
            writeln!(
                svg,
                "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{mark}</text>",
                LEFT - 6.0,
                y + 4.0
            )
            .unwrap();
        }
        for second in 0..=self.seconds as u32 {
            writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{second} s</text>",
                x(f64::from(second)),
                bottom + 16.0
            )
            .unwrap();
        }
        for (curve, colour) in curves.iter().zip(COLOURS) {
            let mut points = String::new();
            let mut last = None;
            for &(time, value) in curve {
                if let Some(before) = last {
                    write!(points, "{:.1},{:.1} ", x(time), self.y(before)).unwrap();
                }
                write!(points, "{:.1},{:.1} ", x(time), self.y(value)).unwrap();
                last = Some(value);
            }
            let end = format!("{:.1},{:.1}", x(self.seconds), self.y(last.unwrap()));
            writeln!(
                svg,
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\" \
                 points=\"{points}{end}\"/>"
            )
            .unwrap();
        }
    }
}

fn picture(timelines: &Timelines) -> String {
    let of = |what: &str, scale: f64| -> Vec<Vec<(f64, f64)>> {
        let vcpu = |n| {
            let told = values(timelines, "steps", &format!("steps/{n}: {what}"));
            told.into_iter()
                .map(|(at, value)| (at, value * scale))
                .collect()
        };
        (0..4).map(vcpu).collect()
    };
    let weights = Field {
        title: "weight, % of the default",
        top: 30.0,
        most: 350.0,
        marks: [0.0, 100.0, 300.0],
        seconds: SECONDS,
    };
    let latencies = Field {
        title: "rescheduling latency, ms",
        top: 220.0,
        most: 6.0,
        marks: [0.0, 2.0, 4.0],
        seconds: SECONDS,
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} 410\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <!-- SPDX-License-Identifier: GPL-2.0-only -->\n\
         <!-- Written by crates/cli/tests/command/jupiter.rs. -->\n\
         <rect width=\"{WIDTH}\" height=\"410\" fill=\"#fff\"/>\n"
    );
    weights.draw(&mut svg, &of("weight", 0.1));
    latencies.draw(&mut svg, &of("latency", 1e-6));
    for (number, colour) in COLOURS.iter().enumerate() {
        let x = LEFT + 90.0 * number as f64;
        writeln!(
            svg,
            "<rect x=\"{x}\" y=\"388\" width=\"16\" height=\"4\" fill=\"{colour}\"/>\
             <text x=\"{:.0}\" y=\"395\">vCPU {number}</text>",
            x + 22.0
        )
        .unwrap();
    }
    svg + "</svg>\n"
}

/// The vCPU that its siblings wait for gets weight, and gives it up when they wait for another one.
#[test]
fn the_picture_shows_which_vcpu_the_others_wait_for() {
    let timelines = timeline(
        "jupiter-picture",
        "experiments/jupiter/picture.toml",
        "jupiter",
        &[],
    );
    let weight = |vcpu: u32| values(&timelines, "steps", &format!("steps/{vcpu}: weight"));
    let [first, second, third] = [0, 1, 2].map(weight);
    assert!(at(&first, 2.0) > 1.5 * at(&second, 2.0));
    assert!(at(&third, 7.9) > 1.5 * at(&second, 7.9));
    let total = |time| (0..4).map(|vcpu| at(&weight(vcpu), time)).sum::<f64>();
    assert!((1..80).all(|tenth| (total(f64::from(tenth) / 10.0) - 4000.0).abs() <= 4.0));
    let drawn = picture(&timelines);
    // XML has no comments with two dashes in them: browsers would show an error instead.
    let mut comments = drawn.split("<!--").skip(1);
    assert!(comments.all(|it| it.split("-->").next().is_some_and(|it| !it.contains("--"))));
    is_fresh("docs/images/jupiter.svg", &drawn, "jupiter");
}

/// Operations that all VMs served, per second, in every tenth of a second of ten. Each waits once for the network:
/// for its request.
fn operations(timelines: &Timelines) -> Vec<(f64, f64)> {
    let mut tenths = [0.0; 100];
    let tracks = timelines.tracks.values();
    for slice in tracks.flat_map(|track| &track.slices) {
        let at = (slice.end / 100_000_000) as usize;
        if slice.name == "wait: I/O of wire" && at < tenths.len() {
            tenths[at] += 10.0;
        }
    }
    let at = |(tenth, per_second): (usize, f64)| (tenth as f64 / 10.0, per_second);
    tenths.into_iter().enumerate().map(at).collect()
}

/// When Jupiter was off for a VM: from when until when.
fn off(timelines: &Timelines, vm: &str) -> Vec<(f64, f64)> {
    let told = values(timelines, vm, "policy enforced");
    let until = told.iter().skip(1).map(|told| told.0).chain([10.0]);
    let spans = told.iter().zip(until);
    let off = spans.filter(|((_, on), _)| *on < 0.5);
    let mut joined: Vec<(f64, f64)> = Vec::new();
    for (&(from, _), until) in off {
        match joined.last_mut() {
            Some(last) if (last.1 - from).abs() < 1e-6 => last.1 = until,
            _ => joined.push((from, until)),
        }
    }
    joined
}

fn adversary_picture(balance: &[(f64, f64)], jupiter: &[(f64, f64)], off: (f64, f64)) -> String {
    let field = Field {
        title: "operations served per second, all VMs",
        top: 30.0,
        most: 45_000.0,
        marks: [0.0, 15_000.0, 30_000.0],
        seconds: 10.0,
    };
    let x = |time: f64| LEFT + (RIGHT - LEFT) * time / field.seconds;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} 230\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <!-- SPDX-License-Identifier: GPL-2.0-only -->\n\
         <!-- Written by crates/cli/tests/command/jupiter.rs. -->\n\
         <rect width=\"{WIDTH}\" height=\"230\" fill=\"#fff\"/>\n"
    );
    for ((from, until), colour, top, label) in [
        ((6.0, 7.0), "#f3d9c4", 30.0, "adversary"),
        (off, "#dddddd", 42.0, "Jupiter off"),
    ] {
        let (left, width) = (x(from), x(until) - x(from));
        writeln!(
            svg,
            "<rect x=\"{left:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"12\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"end\">{label}</text>",
            left - 4.0,
            top + 10.0
        )
        .unwrap();
    }
    field.draw(&mut svg, &[jupiter.to_vec(), balance.to_vec()]);
    // One on top of the other: both must be visible.
    let over = format!("stroke=\"{}\"", COLOURS[1]);
    svg = svg.replace(&over, &format!("{over} stroke-dasharray=\"6 6\""));
    for (number, name) in ["jupiter", "balance"].into_iter().enumerate() {
        let left = LEFT + 90.0 * number as f64;
        writeln!(
            svg,
            "<rect x=\"{left}\" y=\"203\" width=\"16\" height=\"4\" fill=\"{}\"/>\
             <text x=\"{:.0}\" y=\"210\">{name}</text>",
            COLOURS[number],
            left + 22.0
        )
        .unwrap();
    }
    svg + "</svg>\n"
}

/// Figure 4.14: five or six periods after the adversary began Jupiter is off for all VMs, and within a second after
/// it ended it is on again. Meanwhile they get as much done as under balance.
#[test]
fn an_adversary_turns_it_off_and_costs_nothing() {
    let run = |policy: &str| {
        let test = format!("jupiter-adversary-{policy}");
        let case = ["--case", "adversary"];
        timeline(&test, "experiments/jupiter/fig4-14.toml", policy, &case)
    };
    let [balance, jupiter] = ["balance", "jupiter"].map(run);
    let spans = ["db1", "db2", "db3", "db4"].map(|vm| off(&jupiter, vm));
    // A VM whose period the adversary's beginning falls into may be a period later.
    for span in &spans {
        let [(from, until)] = span[..] else {
            panic!("off once: {spans:?}");
        };
        let later = from - 6.5;
        assert!((-1e-6..0.1 + 1e-6).contains(&later), "{spans:?}");
        assert!((7.2..=8.0).contains(&until), "{spans:?}");
    }
    let firsts = spans.iter().map(|span| span[0]);
    let (from, until) = firsts.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
    let [balance, jupiter] = [&balance, &jupiter].map(operations);
    let sum = |of: &[(f64, f64)]| of.iter().map(|(_, operations)| operations).sum::<f64>();
    assert!((sum(&jupiter) / sum(&balance) - 1.0).abs() < 0.03);
    let drawn = adversary_picture(&balance, &jupiter, (from, until));
    is_fresh("docs/images/jupiter-adversary.svg", &drawn, "jupiter");
}

/// VMs that only compute get what their vCPUs weigh, whatever that is: none lacks anything, and none is hurried.
#[test]
fn a_vm_of_light_vcpus_is_not_expected_to_have_more_than_they_weigh() {
    let place = Place::new("jupiter-weights");
    let scenario = "[host]\npcpus = 2\n[run]\nduration = \"2s\"\nwarm_up = \"0s\"\nseeds = [1]\n\
        policies = [\"jupiter\"]\n[vm.heavy]\nvcpus = 2\nvcpu_weight = 200\nworkload = \"cpu\"\n\
        [vm.light]\nvcpus = 2\nworkload = \"cpu\"\n";
    place.write("weights.toml", scenario);
    place.prints(&["compare", "weights.toml", "--trace", "trace.pftrace"]);
    let timelines = read(&std::fs::read(place.path("trace.pftrace")).unwrap()).unwrap();
    for (vm, vcpu) in [("heavy", 0), ("heavy", 1), ("light", 0), ("light", 1)] {
        let told = values(&timelines, vm, &format!("{vm}/{vcpu}: latency"));
        let first = told.first().unwrap().1;
        assert!(
            told.iter().all(|(_, value)| *value == first),
            "{vm}/{vcpu}: {told:?}"
        );
    }
}
