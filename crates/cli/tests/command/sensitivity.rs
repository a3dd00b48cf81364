// SPDX-License-Identifier: GPL-2.0-only
//! `corun sensitivity` as users meet it.

use crate::common;
use serde_json::Value;

const HOST: &str = r#"
[host]
pcpus = 2
[run]
duration = "100ms"
warm_up = "20ms"
policies = ["cfs", "balance"]
[vm.a]
vcpus = 2
[[vm.a.thread]]
count = 2
program = "loop { compute 100us ±50%; lock l { compute 20us }; count 1 rounds }"
[vm.b]
count = 1
vcpus = 2
workload = "cpu"
"#;

/// A directory of its own with the scenario in it.
struct Place(common::Place);

impl Place {
    fn new(test: &str) -> Self {
        let name = format!("sensitivity-{test}");
        Self(common::Place::with(&name, "host.toml", HOST))
    }

    fn prints(&self, args: &[&str]) -> String {
        let args = [&["sensitivity", "host.toml"], args].concat();
        self.0.prints(&args)
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.prints(&[args, &["--json", "-q"]].concat())).unwrap()
    }

    fn refused(&self, args: &[&str]) -> String {
        let args = [&["sensitivity", "host.toml"], args].concat();
        self.0.refused(&args)
    }
}

const SWITCH: [&str; 4] = ["--param", "host.costs.switch", "--range", "1us..100us:3"];

#[test]
fn json_is_one_object_as_the_schema_says() {
    let place = Place::new("schema");
    let json = place.json(&[&SWITCH[..], &["--log", "--seeds", "1,2"]].concat());
    common::fits_schema("sensitivity", &json);
    let points = json["points"].as_array().unwrap();
    let numbers: Vec<_> = points
        .iter()
        .map(|point| point["number"].as_f64())
        .collect();
    assert_eq!(numbers, [Some(1e3), Some(1e4), Some(1e5)]);
    assert_eq!(
        (&json["unit"], &json["logarithmic"]),
        (&"ns".into(), &true.into())
    );
    for point in points {
        assert_eq!(
            point["runs"].as_array().unwrap().len(),
            2 * 2,
            "policies, seeds"
        );
    }
    let lines = json["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 2 * 2, "VMs, policies");
    assert_eq!(
        (&lines[0]["of"], &lines[0]["unit"]),
        (&"a".into(), &"rounds/s".into())
    );
    assert_eq!(lines[1]["unit"], "×");
}

#[test]
fn each_value_is_what_compare_finds_for_it() {
    let place = Place::new("compare");
    let json = place.json(&SWITCH);
    for point in json["points"].as_array().unwrap() {
        let set = format!("host.costs.switch={}", point["value"].as_str().unwrap());
        let compare = ["compare", "host.toml", "--json", "-q", "--set", &set];
        let compared = place.0.json(&compare);
        assert_eq!(compared["runs"], point["runs"], "{set}");
    }
}

#[test]
fn a_dearer_switch_leaves_less_and_elasticity_says_so() {
    let place = Place::new("direction");
    let measure = ["--measure", "throughput", "--vm", "b1", "--policies", "cfs"];
    let json = place.json(&[&SWITCH[..], &measure].concat());
    let line = &json["lines"][0];
    let median = |at: usize| line["results"][at]["median"].as_f64().unwrap();
    assert!(median(0) > median(1) && median(1) > median(2), "{line}");
    let elasticity = line["elasticity"].as_f64().unwrap();
    let expected = libm::log(median(2) / median(0)) / libm::log(100.0);
    assert!(
        (elasticity - expected).abs() < 1e-5 && elasticity < 0.0,
        "{line}"
    );
    let text = place.prints(&[&SWITCH[..], &measure].concat());
    assert!(text.contains("█") && text.contains("▁"), "{text}");
}

#[test]
fn choices_and_changing_numbers_of_vms() {
    let place = Place::new("choices");
    let lock = ["--param", "vm.a.guest.lock", "--values", "ticket,unfair"];
    let json = place.json(&[&lock[..], &["--measure", "lock-wait-p99"]].concat());
    assert_eq!(
        (&json["points"][0]["number"], &json["unit"]),
        (&Value::Null, &"".into())
    );
    assert_eq!(json["lines"][0]["elasticity"], Value::Null);
    let count = ["--param", "vm.b.count", "--range", "1..3", "--vm", "b3"];
    let json = place.json(&[&count[..], &["--measure", "wakeup-p99"]].concat());
    let line = &json["lines"][0];
    assert_eq!(
        (&line["of"], &line["results"][0]),
        (&"b3".into(), &Value::Null)
    );
    assert!(line["results"][2]["median"].as_f64() > Some(0.0), "{line}");
    let text = place.prints(&[&count[..], &["--measure", "ready"]].concat());
    assert!(
        text.contains("–") && text.contains("b3: each VM's share"),
        "{text}"
    );
}

#[test]
fn tables_and_report() {
    let place = Place::new("report");
    let page = ["--log", "--seeds", "1,2,3", "--report", "r.html"];
    let text = place.prints(&[&SWITCH[..], &page].concat());
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(80) && text.contains("trend"), "{text}");
    let page = place.0.read("r.html");
    assert!(page.contains("corun sensitivity host.toml --param host.costs.switch"));
    assert!(page.contains("Models: cfs as in Linux 2.6.33"));
    assert!(!page.contains(env!("CARGO_TARGET_TMPDIR")));
    for foreign in ["http:", "https:", "<script", "@import", "url("] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    assert_eq!(
        page.matches("<polyline").count(),
        2 * 2,
        "the reference, too"
    );
    assert!(!page.contains("NaN") && !page.contains("inf,"));
}

#[test]
fn the_same_bytes_whatever_the_number_of_threads() {
    let place = Place::new("threads");
    let of = |jobs| place.prints(&[&SWITCH[..], &["--json", "--jobs", jobs]].concat());
    assert_eq!(of("1"), of("8"));
}

#[test]
fn what_is_wrong_with_the_command_line() {
    let place = Place::new("usage");
    let param = |key: &'static str, rest: &[&'static str]| {
        place.refused(&[&["--param", key, "-q"], rest].concat())
    };
    let two = ["--values", "1,2"];
    for (key, rest, expected) in [
        (
            "host.costs.swich",
            vec!["--values", "1us,2us"],
            "corun: --param host.costs.swich=1us: host.costs.swich: unknown key, did you mean \
             \"switch\"? ",
        ),
        (
            "vm.aa.count",
            two.to_vec(),
            "corun: --param vm.aa.count: host.toml has no VM \"aa\", accepted are a, b\n",
        ),
        (
            "vm.a.guest.lock",
            vec!["--values", "ticket,tikcet"],
            "corun: --param vm.a.guest.lock=tikcet: vm.a.guest.lock: found \"tikcet\", did you \
             mean \"ticket\"? ",
        ),
        (
            "host.hz",
            vec!["--range", "1000..90000"],
            "corun: --param host.hz=23250: host.hz: found 23250, expected a whole number from 100",
        ),
        (
            "run.seeds",
            two.to_vec(),
            "corun: --param run.seeds: this is what --seeds is for\n",
        ),
        (
            "title",
            vec!["--values", "x,y"],
            "corun: --param title: this is for readers, no result depends on it\n",
        ),
        (
            "host.hz",
            vec!["--range", "200..100"],
            "corun: --range 200..100: 200 is not below 100: the smaller end comes first\n",
        ),
        (
            "vm.b.count",
            vec!["--range", "1..100:100", "--seeds", "1,2,3"],
            "corun: 100 values make 600 runs, more than 500: take fewer values, policies, seeds or \
             cases, or say --yes\n",
        ),
        (
            "host.hz",
            vec!["--values", "100,200", "--vm", "c"],
            "corun: --vm \"c\": there is no such VM, accepted are a, b",
        ),
        (
            "host.hz",
            vec!["--values", "100,200", "--vm", "a", "--measure", "idle"],
            "corun: --vm \"a\": this measure is of the whole host",
        ),
        ("", two.to_vec(), "corun: --param : expected a key such as "),
    ] {
        let error = param(key, &rest);
        assert!(error.starts_with(expected), "{error}");
    }
    assert!(param("host.hz", &[]).contains("<--range"), "one of the two");
    param("host.hz", &["--values", "1,2", "--range", "1..2"]);
    param("host.hz", &["--values", "1,2", "--log"]);
    assert!(param("host.hz", &["--values", "1,2", "--measure", "idel"]).contains("'idle'"));
}

/// Names in quotes may have dots and spaces in them.
#[test]
fn keys_of_names_in_quotes() {
    let text = "host.pcpus = 2\nrun = { duration = \"20ms\", warm_up = \"0ms\" }\n[vm.\"web.1\"]\nvcpus = 1\nworkload = \"cpu\"\n\
        [task.\"t.1\"]\nprogram = \"loop { compute 1ms }\"\n[vm.\"a b.c\"]\nvcpus = 1\n[[vm.\"a b.c\".thread]]\n\
        program = \"loop { compute 1ms }\"\n";
    let place = common::Place::with("sensitivity-names", "host.toml", text);
    for (key, values) in [
        ("vm.\"web.1\".vcpus", "1,2"),
        ("vm.'web.1'.vcpus", "1,2"),
        ("task.\"t.1\".weight", "100,200"),
        ("vm.\"a b.c\".thread.1.count", "1,2"),
    ] {
        let args = ["--param", key, "--values", values, "--policies", "cfs"];
        let args = [
            &["sensitivity", "host.toml", "-q", "--seeds", "1"],
            &args[..],
        ]
        .concat();
        place.prints(&args);
        let set = format!("{key}=1");
        let twice = place.refused(&[&args[..], &["--set", &set]].concat());
        assert!(twice.contains("says what it is, too"), "{twice}");
    }
    let args = ["sensitivity", "host.toml", "--values", "1,2", "--param"];
    let unknown = place.refused(&[&args[..], &["vm.\"web.2\".vcpus"]].concat());
    assert!(
        unknown.contains("has no VM \"web.2\", did you mean \"web.1\"?"),
        "{unknown}"
    );
}

#[test]
fn a_recording_is_no_scenario() {
    let place = Place::new("recording");
    place.0.write("host.toml", b"\x1f\x8b");
    let error = place.refused(&SWITCH);
    assert!(
        error.starts_with("corun: host.toml: this is no scenario"),
        "{error}"
    );
}

#[test]
fn whole_numbers_are_all_there() {
    let place = Place::new("whole");
    let json = place.json(&["--param", "vm.b.count", "--range", "1..6"]);
    let values = json["points"].as_array().unwrap().iter();
    let values: Vec<&str> = values.map(|at| at["value"].as_str().unwrap()).collect();
    assert_eq!(values, ["1", "2", "3", "4", "5", "6"]);
}

#[test]
fn response_times_are_those_of_clients() {
    let place = Place::new("response");
    let served = "
        host.pcpus = 2
        run = { duration = \"200ms\", warm_up = \"20ms\", policies = [\"cfs\", \"balance\"] }
        [vm.web]
        count = 1
        vcpus = 1
        [[vm.web.thread]]
        program = \"loop { request http; compute 1ms; reply http 1KB; count pages }\"
        [client.users]
        vm = \"web\"
        kind = \"open\"
        port = \"http\"
        rate = 500
        ";
    place.0.write("host.toml", served.as_bytes());
    let sweep = ["--param", "vm.web.count", "--range", "1..3"];
    let p99 = [&sweep[..], &["--measure", "response-p99"]].concat();
    let json = place.json(&p99);
    let lines = json["lines"].as_array().unwrap();
    let of = |at: usize| lines[at]["of"].as_str().unwrap();
    assert_eq!(
        [of(0), of(2), of(4)],
        ["users web1", "users web2", "users web3"]
    );
    for (at, point) in json["points"].as_array().unwrap().iter().enumerate() {
        let run = &point["runs"][0]["clients"][0]["response_p99_us"];
        assert_eq!(&lines[0]["results"][at]["median"], run);
        assert!(run.as_f64() > Some(1000.0), "no less than the work: {run}");
    }
    let one = place.json(&[&p99[..], &["--vm", "web2"]].concat());
    let one = one["lines"].as_array().unwrap();
    assert_eq!((one.len(), &one[0]["of"]), (2, &"users web2".into()));
    place.0.write("host.toml", HOST.as_bytes());
    let nobody = ["--param", "vm.b.count", "--range", "1..3", "-q"];
    let error = place.refused(&[&nobody[..], &["--measure", "response-p99"]].concat());
    assert!(error.contains("nobody waits for replies"), "{error}");
}

#[test]
fn csv_has_what_the_json_has() {
    let place = Place::new("csv");
    let json = place.json(&[&SWITCH[..], &["--seeds", "1..2", "--csv", "all.csv"]].concat());
    let csv = place.0.read("all.csv");
    for point in json["points"].as_array().unwrap() {
        for run in point["runs"].as_array().unwrap() {
            let line = format!(
                "{},,{},{},vm,a,ready_share,{}",
                point["value"].as_str().unwrap(),
                run["policy"].as_str().unwrap(),
                run["seed"],
                run["vms"][0]["ready_share"],
            );
            assert!(csv.lines().any(|it| it == line), "{line}");
        }
    }
    let columns = csv.lines().map(|line| line.split(',').count());
    assert!(columns.eq(csv.lines().map(|_| 8)), "no name has a comma");
    let error = place.refused(&[&SWITCH[..], &["-q", "--csv", "host.toml"]].concat());
    assert!(
        error.starts_with("corun: --csv host.toml: this would overwrite"),
        "{error}"
    );
}

#[test]
fn measures_of_what_nobody_does_are_said_instead_of_shown() {
    let place = common::Place::with("sensitivity-unseen", "host.toml", &locks("lock"));
    let line = [
        "sensitivity",
        "host.toml",
        "--param",
        "host.costs.switch",
        "--values",
        "1us,2us",
    ];
    let more = ["--measure", "lock-wait-p99", "--duration", "100ms", "-q"];
    let line = [&line[..], &more].concat();
    let (code, text, told) = common::left(place.corun(&line));
    assert_eq!(code, Some(0), "{told}");
    assert!(
        told.contains("nothing to show of b: nobody waited for a spin lock"),
        "{told}"
    );
    assert!(text.contains("\na: ") && !text.contains("\nb: "), "{text}");
    place.write("host.toml", locks("mutex"));
    let (code, text, told) = common::left(place.corun(&line));
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("so there is nothing to show"), "{told}");
    assert_eq!(text, "host.costs.switch\n\nNothing to show.\n");
}

/// A VM with a lock of this kind, and one without.
fn locks(kind: &str) -> String {
    format!(
        "[host]\npcpus = 2\n[run]\nwarm_up = \"10ms\"\npolicies = [\"cfs\"]\n[vm.a]\nvcpus = 2\n[[vm.a.thread]]\n\
         count = 2\nprogram = \"loop {{ {kind} l {{ compute 20us }}; count 1 rounds }}\"\n[vm.b]\nvcpus = 1\n\
         workload = \"cpu\"\n"
    )
}
