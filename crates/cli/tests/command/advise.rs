// SPDX-License-Identifier: GPL-2.0-only
//! `corun advise` on recordings of a real KVM host, and on input that it cannot use.

use crate::common::{self, Place, corun};
use serde_json::Value;
use std::path::Path;
use std::process::Output;

const RECORDING: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../experiments/recordings/kvm-2pcpu-bursty-io-compute.ftrace.gz"
);

fn advise(args: &[&str]) -> Output {
    corun(&[&["advise", RECORDING, "--quiet"], args].concat())
}

/// Two policies, two beginnings: enough to see the structure.
const FEW: [&str; 4] = ["--policies", "balance,affinity", "--starts", "2"];

#[test]
fn json_is_one_object_as_the_schema_says() {
    let json = common::json(advise(&[&FEW[..], &["--most", "1", "--json"]].concat()));
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/schema/advise.schema.json"
    );
    let schema = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    if let Err(error) = jsonschema::validate(&schema, &json) {
        assert_eq!(error.to_string(), "", "the schema");
    }
    let policies = json["policies"].as_array().unwrap();
    assert_eq!(policies.len(), 3);
    let ready = |policy: &Value| policy["ready_share"]["median"].as_f64().unwrap();
    assert!(
        policies
            .windows(2)
            .all(|two| ready(&two[0]) <= ready(&two[1]))
    );
    let own = policies.iter().find(|policy| policy["verdict"] == "own");
    assert_eq!(own.unwrap()["policy"], "eevdf");
    assert_eq!(own.unwrap()["kernel"], "Linux 7.x", "the recorded host's");
    for policy in policies {
        assert_eq!(policy["vms"].as_array().unwrap().len(), 3);
        let range = &policy["ready_share"];
        let [least, median, most] =
            ["least", "median", "most"].map(|end| range[end].as_f64().unwrap());
        assert!(least <= median && median <= most, "{range}");
    }
    // Even without more VMs, three VMs of two vCPUs on two pCPUs lack pCPUs for more than a tenth of their time.
    assert_eq!(json["overcommit"][0]["policy"], "eevdf");
    assert_eq!(json["overcommit"][0]["holds_with"], Value::Null);
    assert_eq!(json["overcommit"][0]["steps"].as_array().unwrap().len(), 1);
}

/// With a line for each step, nothing else would be visible.
#[test]
fn what_is_done_is_said_once_and_not_for_each_step() {
    let more = ["--target", "100", "--most", "3", "--json"];
    let output = corun(&[&["advise", RECORDING], &FEW[..], &more].concat());
    let said = String::from_utf8(output.stderr).unwrap();
    let lines = said
        .lines()
        .filter(|line| line.contains("of virtual time, on"));
    // The check of the replay, and the policies.
    assert_eq!(lines.count(), 2, "{said}");
    let overruled = advise(&[
        "--policies",
        "balance",
        "--most",
        "0",
        "--starts",
        "1",
        "--recorded-under",
        "cfs",
    ]);
    let said = String::from_utf8(overruled.stderr).unwrap();
    assert!(
        said.contains("--recorded-under cfs: the recording says otherwise (EEVDF)"),
        "{said}"
    );
}

#[test]
fn the_page_has_the_json_and_what_it_says_in_words() {
    let place = Place::new("advise-page");
    let file = place.path("advice.html");
    let args = ["--target", "90", "--most", "1", "--json", "--report"];
    let args = [&FEW[..], &args, &[file.to_str().unwrap()]].concat();
    let json = common::json(advise(&args));
    let page = std::fs::read_to_string(&file).unwrap();
    // Numbers are bound to their units.
    let page = page.replace('\u{a0}', " ");
    let (_, rest) = page.split_once("id=\"results\">").unwrap();
    let (embedded, _) = rest.split_once("</script>").unwrap();
    assert_eq!(serde_json::from_str::<Value>(embedded).unwrap(), json);
    for sentence in json["summary"].as_array().unwrap() {
        let sentence = sentence.as_str().unwrap().replace('\'', "&#39;");
        assert!(page.contains(&sentence), "{sentence}");
    }
    for part in [
        "<h2>Policies, the least waiting first",
        "data-growth",
        "they have nothing more to do",
        "id=\"drawn\"",
    ] {
        assert!(page.contains(part), "{part}");
    }
    // The commands to go on with do.
    assert!(page.contains("corun compare kvm-2pcpu-bursty-io-compute.ftrace.gz --policies eevdf,"));
    // Both answers to each question, for the same two policies.
    let open = json["open"].as_array().unwrap();
    assert_eq!(open.len(), 2);
    for answer in open
        .iter()
        .flat_map(|open| open["answers"].as_array().unwrap())
    {
        assert_eq!(answer["policies"][0]["policy"], "eevdf", "{answer}");
        assert_eq!(answer["policies"].as_array().unwrap().len(), 2, "{answer}");
    }
    let unwritable = [&FEW[..], &["--most", "0", "--report", "/nowhere/x.html"]].concat();
    let failed = advise(&unwritable);
    assert_eq!(failed.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&failed.stderr).contains("/nowhere/x.html"));
}

#[test]
fn copies_are_of_the_vms_that_were_chosen() {
    let chosen = advise(&[
        "--policies",
        "balance",
        "--starts",
        "1",
        "--target",
        "100",
        "--most",
        "2",
        "--add",
        "vm2-io",
    ]);
    let said = String::from_utf8(chosen.stdout).unwrap();
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("at least 2 more VMs like vm2-io ("), "{said}");
    let none = advise(&["--add", "vm2-io", "--most", "0"]);
    assert_eq!(none.status.code(), Some(2));
    let unknown = advise(&["--add", "vm4"]);
    assert_eq!(unknown.status.code(), Some(2));
    let said = String::from_utf8_lossy(&unknown.stderr);
    assert!(said.contains("--add vm4: no VM of this name"), "{said}");
}

/// Under affinity vCPUs would wait less, but one VM would get less done than now; a policy that goes by I/O events
/// would be the same as no policy at all.
#[test]
fn who_would_pay_and_what_a_recording_does_not_tell_is_said() {
    let args = ["--policies", "affinity,balance,aql,vsmtio", "--most", "0"];
    let json = common::json(advise(&[&args[..], &["--json"]].concat()));
    assert_eq!(json["recommended"], "balance");
    let policies = json["policies"].as_array().unwrap();
    // The first two are equals: which of them waits least is chance.
    assert_eq!(policies[2]["policy"], "eevdf");
    let affinity = policies.iter().find(|it| it["policy"] == "affinity");
    let affinity = affinity.unwrap();
    let bursty = &affinity["vms"][0];
    assert_eq!(bursty["name"], "vm1-bursty");
    assert_eq!(
        (&bursty["verdict"], &bursty["work_verdict"]),
        (&"better".into(), &"worse".into())
    );
    assert_eq!(affinity["costs"].as_array().unwrap().len(), 1);
    let left_out = json["left_out"].as_array().unwrap();
    let why = |at: usize| left_out[at]["why"].as_str().unwrap();
    assert_eq!(left_out[0]["policy"], "aql");
    assert!(
        why(0).starts_with("a recording does not have what "),
        "{}",
        why(0)
    );
    assert_eq!(left_out[1]["policy"], "vsmtio");
    assert!(why(1).contains("it does what fair does"), "{}", why(1));
    let text = common::printed(advise(&args));
    assert!(text.contains("Work of each VM"), "{text}");
    assert!(text.contains(" less 0.5"), "{text}");
    // The answer ends with what to do.
    let last = "  sudo corun host --policy balance --only vm1-bursty --max-ready 60 --for 10min\n";
    assert!(
        text.contains("  sudo corun preflight\n") && text.ends_with(last),
        "{text}"
    );
    assert_eq!(json["next"][1]["command"], last.trim());
}

/// What is set is tried, and in the end also set on the host.
#[test]
fn parameters_of_a_policy_can_be_tried() {
    let args = [
        "--policies",
        "microsliced",
        "--starts",
        "1",
        "--most",
        "0",
        "--json",
    ];
    let set = ["--set", "policy.microsliced.slice=2ms"];
    let json = common::json(advise(&[&args[..], &set].concat()));
    let other = common::json(advise(&args));
    assert_ne!(json["policies"], other["policies"]);
    let replay = [
        "compare",
        RECORDING,
        "--quiet",
        "--seed",
        "0",
        "--policies",
        "microsliced,aql",
    ];
    let replay = corun(&[&replay[..], &set].concat());
    let stderr = String::from_utf8_lossy(&replay.stderr).into_owned();
    assert!(
        replay.status.success() && stderr.contains("aql: a recording does not have what"),
        "{stderr}"
    );
}

#[test]
fn the_answer_comes_first_and_is_the_same_on_any_number_of_threads() {
    let text = |jobs| {
        let args = [&FEW[..], &["--most", "2", "--target", "90", "--jobs", jobs]].concat();
        common::printed(advise(&args))
    };
    let one = text("1");
    assert_eq!(one, text("3"));
    assert!(one.starts_with("• "), "{one}");
    assert!(one.contains("Confidence: "), "{one}");
    assert!(one.contains("\nModels: eevdf as in Linux "), "{one}");
    assert!(one.contains("More VMs under eevdf, target 90.0 %"), "{one}");
    assert!(one.contains("at least 2 more VMs"), "{one}");
    assert!(one.lines().all(|line| line.chars().count() <= 80), "{one}");
}

#[test]
fn what_it_cannot_use_is_refused() {
    let place = Place::new("advise");
    place.write("host.toml", b"[host]\npcpus = 2\n[vm.a]\n");
    let said = common::refused(corun(&[
        "advise",
        place.path("host.toml").to_str().unwrap(),
    ]));
    assert!(said.contains("this is a scenario"), "{said}");
    let none = Path::new("no-such-file");
    let said = common::refused(corun(&["advise", none.to_str().unwrap()]));
    assert!(said.contains("no-such-file"), "{said}");
    let said = common::refused(advise(&["--target", "120"]));
    assert!(said.contains("from 0 to 100"), "{said}");
    for starts in ["0", "1001"] {
        let said = common::refused(advise(&[&format!("--starts={starts}")]));
        assert!(
            said.contains("--starts") && said.contains("from 1 to 1000"),
            "{said}"
        );
    }
    let said = common::refused(advise(&["--policies", "balanced"]));
    assert!(said.contains("balance"), "{said}");
    let said = common::refused(advise(&["--set", "vm.a.vcpus=3"]));
    assert!(said.contains("host.…, scheduler.… and policy.…"), "{said}");
}
