//! Tests of the logs of a command and of an instance: filters, formats, and the last events of a
//! live instance.

mod stage;

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;

use rustix::process::Signal;
use serde_json::Value;

use stage::Stage;

/// Serves with these options and variables until it is interrupted; returns its standard error.
fn logged(options: &[&str]) -> Option<String> {
    let stage = Stage::new();
    let mut serving = stage.serve_with(options)?;
    serving.signal(Signal::INT);
    let mut said = String::new();
    let mut errors = serving.child.stderr.take().expect("it is piped");
    errors.read_to_string(&mut said).expect("text");
    assert_eq!(serving.wait(), 0, "{said}");
    Some(said)
}

#[test]
fn nothing_is_written_unless_asked_for() {
    if let Some(said) = logged(&[]) {
        assert_eq!(said, "");
    }
}

#[test]
fn a_filter_says_what_is_written() {
    let Some(said) = logged(&["--log", "off,refit_files=info"]) else { return };
    assert!(said.contains(" INFO  refit_files::mount [refit]: mounts source="), "{said}");
    assert!(said.lines().all(|line| line.contains("refit_files")), "{said}");
}

#[test]
fn programs_and_the_journal_read_it_too() {
    let Some(said) = logged(&["--log", "debug", "--log-format", "json"]) else { return };
    let mounts = said.lines().any(|line| {
        let event: Value = serde_json::from_str(line).expect("JSON");
        event["message"] == "mounts" && event["level"] == "INFO"
    });
    assert!(mounts, "{said}");
    let Some(said) = logged(&["--log", "info", "--log-format", "journal"]) else { return };
    // A priority, but no time, which the journal adds.
    assert!(said.lines().any(|line| line.starts_with("<6>INFO  refit_files::mount")), "{said}");
}

#[test]
fn what_is_no_filter_is_wrong_usage() {
    let stage = Stage::new();
    let (code, _, said) = stage.run(&["--log", "refit_migrate=loud", "ps"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("`refit_migrate=loud` is not a filter"), "{said}");
    for (variable, value) in [("REFIT_LOG", "a=b=c"), ("REFIT_LOG_FORMAT", "xml")] {
        let output = stage.refit(&["ps"]).env(variable, value).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        assert!(said.contains(value), "{said}");
    }
}

#[test]
fn the_steps_of_a_swap_are_among_the_last_events_under_one_number() {
    let stage = Stage::new();
    fs::write(stage.path("source").join("file"), "contents").expect("written");
    let Some(mut serving) = stage.serve_with(&[]) else { return };
    assert_eq!(fs::read(serving.mountpoint.join("file")).expect("read"), b"contents");
    let (code, _, said) = stage.run(&["swap", "fcm:*", "partitioned"]);
    assert_eq!(code, 0, "{said}");
    let (_, lines, _) = stage.run(&["debug-dump", "--json"]);
    let events: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let swap = |event: &Value| {
        let mut spans = event["spans"].as_array().into_iter().flatten().filter_map(Value::as_str);
        spans.find(|span| span.starts_with("swap{change=")).map(str::to_owned)
    };
    let steps: Vec<&Value> = events.iter().filter(|event| swap(event).is_some()).collect();
    let numbers: BTreeSet<String> = steps.iter().filter_map(|event| swap(event)).collect();
    assert_eq!(numbers.len(), 1, "{numbers:?}");
    let said = |event: &&Value| event["message"].as_str().unwrap_or_default().to_owned();
    let said: Vec<String> = steps.iter().map(said).collect();
    let expected =
        ["asked for", "forward:", "block:", "transfer:", "commit:", "retire:", "committed"];
    let fits = said.len() == expected.len()
        && said.iter().zip(expected).all(|(said, begin)| said.starts_with(begin));
    assert!(fits, "{said:?}");
    assert!(steps[0].to_string().contains("fcm:"), "{}", steps[0]);
    serving.signal(Signal::INT);
    assert_eq!(serving.wait(), 0);
}

#[test]
fn the_last_events_of_an_instance_can_be_read_whatever_the_filter() {
    let stage = Stage::new();
    let Some(mut serving) = stage.serve_with(&[]) else { return };
    let (code, text, said) = stage.run(&["debug-dump"]);
    assert_eq!((code, said.as_str()), (0, ""));
    assert!(text.starts_with(&format!("instance {}: the last ", serving.child.id())), "{text}");
    assert!(text.contains("refit_files::mount [refit]: mounts source="), "{text}");
    let (_, lines, _) = stage.run(&["debug-dump", "--json"]);
    let events: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let numbers: Vec<u64> = events.iter().filter_map(|event| event["number"].as_u64()).collect();
    assert!(numbers.windows(2).all(|two| two[1] == two[0] + 1), "{numbers:?}");
    // A requested change is recorded with its requester.
    stage.run(&["cache", "/*", "direct"]);
    let (_, text, _) = stage.run(&["debug-dump"]);
    assert!(text.contains("a request request=") && text.contains("method=POST"), "{text}");
    serving.signal(Signal::INT);
    assert_eq!(serving.wait(), 0);
    stage.refuses(&["debug-dump"], "no instance is running");
}
