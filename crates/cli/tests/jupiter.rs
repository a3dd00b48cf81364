// SPDX-License-Identifier: GPL-2.0-only
//! Jupiter as its timelines show it: the picture in `docs/jupiter.md`.

// Helpers of tests, too, say what they expect by panicking.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Place, in_tree, is_fresh};
use corun_report::timeline::{Timelines, read};
use std::fmt::Write;

/// The timeline of a scenario under Jupiter.
fn timeline(test: &str, scenario: &str, more: &[&str]) -> Timelines {
    let place = Place::new(test);
    let scenario = in_tree(scenario);
    let args = [
        "compare",
        scenario.to_str().unwrap(),
        "--policies",
        "jupiter",
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
        let x = |time: f64| LEFT + (RIGHT - LEFT) * time / SECONDS;
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
        for second in 0..=SECONDS as u32 {
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
            let end = format!("{:.1},{:.1}", x(SECONDS), self.y(last.unwrap()));
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
    };
    let latencies = Field {
        title: "rescheduling latency, ms",
        top: 220.0,
        most: 6.0,
        marks: [0.0, 2.0, 4.0],
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} 410\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <!-- SPDX-License-Identifier: GPL-2.0-only -->\n\
         <!-- Written by crates/cli/tests/jupiter.rs. -->\n\
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

/// The vCPU that its siblings wait for gets weight, and gives it up when another one is that.
#[test]
fn the_picture_shows_who_the_others_wait_for() {
    let timelines = timeline("jupiter-picture", "experiments/jupiter/picture.toml", &[]);
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
