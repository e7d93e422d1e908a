//! `refit probe` and `refit repair`, on programs that know nothing of it.

use std::io::BufRead;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::shell::{SUM, Shell, interrupt, refit, run, text, verified, watching};

pub(crate) fn objects(bytes: &[u8]) -> Vec<Value> {
    text(bytes).lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}

#[test]
fn a_function_of_a_running_program_is_counted_timed_and_left_as_it_was() {
    let mut shell = Shell::start();
    let probe = "uprobe:*:sqlite3_step { count, latency, histogram arg0, histogram latency, histogram cpu }";
    let mut child = refit(&["--json", "probe", "-p", &shell.id(), "-e", probe])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("refit");
    let _told = watching(&mut child);
    for number in 0..10 {
        assert_eq!(shell.ask(&format!("select {number};")), number.to_string());
    }
    interrupt(&child);
    let output = child.wait_with_output().expect("refit");
    assert!(output.status.success());
    let records = objects(&output.stdout);
    let by = |action: &str| {
        let found =
            records.iter().find(|one| one["action"].as_str().expect("text").starts_with(action));
        found.unwrap_or_else(|| panic!("{records:?}")).clone()
    };
    // Each question is one row, then the end.
    assert_eq!(by("count")["count"], 20);
    assert_eq!((&by("latency")["count"], &by("latency")["inside"]), (&20.into(), &0.into()));
    assert!(by("latency")["nanos"].as_u64().expect("a number") > 0);
    for histogram in ["histogram arg0", "histogram latency", "histogram cpu"] {
        let records = by(histogram);
        let bits = records["bits"].as_array().expect("cells").iter();
        assert_eq!(bits.map(|cell| cell.as_u64().expect("a number")).sum::<u64>(), 20);
    }
    assert!(by("histogram latency")["nanos"].as_u64().expect("a number") > 0);
    verified(&shell.id());
    assert_eq!(shell.ask("select 'well';"), "well");
}

/// Runs a program with probes; what it said itself, and what the probes told.
fn watched(probe: &str, command: &[&str]) -> (String, Vec<Value>) {
    let output = run(&[&["--json", "probe", "-e", probe, "--"], command].concat());
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    let lines = text(&output.stdout);
    let (records, own): (Vec<_>, Vec<_>) =
        lines.split_inclusive('\n').partition(|line| line.starts_with("{\"process\""));
    let records =
        records.iter().map(|line| serde_json::from_str(line).expect("an object")).collect();
    (own.concat(), records)
}

#[test]
fn a_program_is_watched_from_its_beginning_with_all_its_functions() {
    let (own, records) = watched("uprobe:*:* { count }", &["sqlite3", ":memory:", SUM]);
    assert_eq!(own, "200010000\n");
    let of = |name: &str| {
        let found = records.iter().find(|one| one["name"] == name);
        found.unwrap_or_else(|| panic!("no {name}"))["count"].as_u64().expect("a number")
    };
    // Stepped once for the row and once for the end.
    assert_eq!(of("sqlite3_step"), 2);
    assert!(records.len() > 3000, "{}", records.len());
}

#[test]
fn programs_say_the_same_with_every_entry_and_exit_watched() {
    let script = "import json, hashlib; print(len(json.dumps(list(range(9999)))), \
                  hashlib.sha256(b'x').hexdigest())";
    let loops = "for i in 1 2 3 4 5 6 7 8 9; do x=$x$((i * i)); done; echo ${x//1/one} | rev";
    for command in [
        &["sqlite3", ":memory:", SUM][..],
        &["/usr/bin/python3", "-c", script],
        &["bash", "-c", loops],
        &["git", "help", "-a"],
        &["c++", "--help"],
    ] {
        let plain = Command::new(command[0]).args(&command[1..]).output().expect("it runs");
        let (own, records) = watched("uprobe:*:* { latency, count }", command);
        assert_eq!(own, text(&plain.stdout), "{command:?}");
        let entered = records.iter().filter(|one| one["count"].as_u64() > Some(0)).count();
        assert!(entered > 100, "{command:?}: {entered}");
    }
}

#[test]
fn conditions_keys_and_returned_values_are_told() {
    let mut shell = Shell::start();
    let id = shell.id();
    let probes = [
        "uprobe:*:sqlite3_finalize /tid != 1/ { count, latency, by tid }",
        "uprobe:*:sqlite3_value_type /retval == 3 || retval == 1/ { count, histogram retval, sum retval, avg retval, min retval, max retval }",
        "uprobe:*:sqlite3_malloc64 /arg0 < 0/ { count }",
    ];
    let mut child = refit(&["--json", "probe", "-p", &id]);
    for probe in probes {
        child.args(["-e", probe]);
    }
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("refit");
    let _told = watching(&mut child);
    // Three texts and two numbers.
    for value in ["'a'", "'b'", "'c'", "1", "2"] {
        assert!(!shell.ask(&format!("select typeof({value});")).is_empty());
    }
    interrupt(&child);
    let output = child.wait_with_output().expect("refit");
    assert!(output.status.success());
    let records = objects(&output.stdout);
    let of = |name: &str, action: &str| -> Vec<&Value> {
        let one = |records: &&Value| {
            records["name"] == name
                && records["action"].as_str().is_some_and(|a| a.starts_with(action))
        };
        records.iter().filter(one).collect()
    };
    let ends = of("sqlite3_finalize", "count");
    assert!(ends.len() == 1 && ends[0]["by"] == "tid", "{records:?}");
    assert_eq!(ends[0]["key"].to_string(), id);
    let calls = ends[0]["count"].as_u64().expect("a number");
    assert!(calls > 0 && of("sqlite3_finalize", "latency")[0]["count"] == calls, "{records:?}");
    let types = of("sqlite3_value_type", "count");
    let bits = of("sqlite3_value_type", "histogram")[0]["bits"].as_array().expect("cells");
    let bits: Vec<_> = bits.iter().map(|cell| cell.as_u64().expect("a number")).collect();
    // 1 has one bit, 3 has two; the shell asks for the type of what it shows too.
    assert!(bits[1] >= 2 && bits[2] >= 3, "{bits:?}");
    assert_eq!(types[0]["count"], bits[1] + bits[2]);
    assert_eq!(bits.iter().sum::<u64>(), bits[1] + bits[2]);
    let (sum, values) = (bits[1] + 3 * bits[2], bits[1] + bits[2]);
    for (action, result) in [("sum", sum), ("min", 1), ("max", 3)] {
        let folded = &of("sqlite3_value_type", action)[0];
        assert_eq!((&folded["result"], &folded["count"]), (&result.into(), &values.into()));
    }
    let mean = of("sqlite3_value_type", "avg")[0]["mean"].as_f64().expect("a number");
    assert!((mean - sum as f64 / values as f64).abs() < 1e-9, "{mean}");
    assert_eq!(of("sqlite3_malloc64", "count")[0]["count"], 0);
    verified(&shell.id());
}

#[test]
fn maps_add_up_all_places_of_all_programs() {
    let mut shells = [Shell::start(), Shell::start()];
    let ids = shells.each_ref().map(Shell::id);
    let probe = "uprobe:*:sqlite3_step, uprobe:*:sqlite3_finalize \
                 { @calls = count(); @by[pid] = count(); @least[pid] = min(pid), count; }";
    let mut child = refit(&["--json", "probe", "-p", &ids.join(","), "-e", probe])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("refit");
    let mut told = watching(&mut child);
    let mut line = String::new();
    told.read_line(&mut line).expect("a line");
    assert!(line.contains(&ids[1]), "{line}");
    for (times, shell) in (3..).zip(&mut shells) {
        (0..times).for_each(|number| drop(shell.ask(&format!("select {number};"))));
    }
    interrupt(&child);
    let output = child.wait_with_output().expect("refit");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let records = objects(&output.stdout);
    let number = |record: &Value| record["count"].as_u64().expect("a number");
    let of =
        |map: &str| -> Vec<&Value> { records.iter().filter(|one| one["map"] == map).collect() };
    let places: u64 = records.iter().filter(|one| one.get("map").is_none()).map(number).sum();
    // A step for the row, one for the end, and what the shell asks for itself.
    assert!(places >= 3 * (3 + 4), "{records:?}");
    assert_eq!(of("calls").into_iter().map(number).collect::<Vec<_>>(), [places]);
    let mut keys: Vec<String> = of("by").iter().map(|one| one["key"].to_string()).collect();
    keys.sort_by_key(|id| ids.iter().position(|known| known == id));
    assert_eq!((keys, of("by").into_iter().map(number).sum::<u64>()), (ids.to_vec(), places));
    assert!(of("least").iter().all(|one| one["key"] == one["result"]), "{records:?}");
    ids.iter().for_each(|id| verified(id));
}

#[test]
fn stacks_are_keys_of_maps_in_all_programs() {
    let mut shells = [Shell::start(), Shell::start()];
    let ids = shells.each_ref().map(Shell::id);
    let probe = "uprobe:*:sqlite3_step { @steps[ustack(3)] = count(); count }";
    let folder = tempfile::tempdir().expect("a folder");
    let [svg, folded] = ["svg", "folded"].map(|name| folder.path().join(name));
    let files = [&svg, &folded].map(|file| file.to_str().expect("a path"));
    for json in [true, false] {
        let files = ["--svg", files[0], "--folded", files[1]];
        let options: &[&str] = if json { &["--json"] } else { &[] };
        let options = &[options, &files].concat();
        let mut child =
            refit(&[&["probe", "-p", &ids.join(","), "-e", probe], &options[..]].concat())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("refit");
        let mut told = watching(&mut child);
        let mut line = String::new();
        told.read_line(&mut line).expect("a line");
        shells.iter_mut().for_each(|shell| drop(shell.ask("select 1;")));
        interrupt(&child);
        let output = child.wait_with_output().expect("refit");
        assert!(output.status.success(), "{}", text(&output.stderr));
        if json {
            let records = objects(&output.stdout);
            let stacks: Vec<_> = records.iter().filter(|one| one["map"] == "steps").collect();
            let sum = |records: &[&Value]| -> u64 {
                records.iter().map(|one| one["count"].as_u64().expect("a number")).sum()
            };
            let places: Vec<_> = records.iter().filter(|one| one.get("map").is_none()).collect();
            assert_eq!(sum(&stacks), sum(&places));
            let lines = std::fs::read_to_string(&folded).expect("it is written");
            let sizes = lines.lines().filter(|line| line.contains(";sqlite3_step "));
            let sizes = sizes.map(|line| line.rsplit_once(' ').expect("a size").1);
            let sizes: u64 = sizes.map(|size| size.parse::<u64>().expect("a number")).sum();
            assert_eq!(sizes, sum(&stacks), "{lines}");
            assert!(std::fs::read_to_string(&svg).expect("it is drawn").contains("sqlite3_step"));
            for one in stacks {
                let frames = one["stack"].as_array().expect("frames");
                let outer = frames.iter().filter(|frame| frame["inlined"] == false).count();
                assert_eq!((outer, &frames[0]["offset"]), (3, &Value::from(0)), "{one}");
                assert_eq!(frames[0]["function"], "sqlite3_step");
                assert_eq!(frames[outer - 1]["module"], "sqlite3");
            }
        } else {
            let shown = text(&output.stdout);
            assert!(shown.contains("COUNT  PLACE\n"), "{shown}");
            assert!(shown.contains("\n    sqlite3_step+0 (libsqlite3.so."), "{shown}");
        }
    }
    ids.iter().for_each(|id| verified(id));
}

#[test]
fn events_and_spans_are_in_a_trace_that_is_read_as_any() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("probe.trace");
    let file = path.to_str().expect("a path");
    let probe = "uprobe:*:sqlite3_malloc64 { event arg0, tid, count }";
    let span = "uprobe:*:sqlite3_step { span, latency }";
    let command = ["sqlite3", ":memory:", SUM];
    let none = run(&[&["probe", "-e", span, "--"], &command[..]].concat());
    assert!(text(&none.stderr).contains("--output"), "{}", text(&none.stderr));
    for how in [&["probe", "-o", file][..], &["record", "--no-switches", "-o", file]] {
        let output = run(&[how, &["-e", probe, "-e", span, "--"], &command[..]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains("200010000\n"), "{}", text(&output.stdout));
        let report = run(&["export", file, "--to", "ndjson"]);
        assert!(report.status.success(), "{}", text(&report.stderr));
        let records = objects(&report.stdout);
        let of = |name: &str, phase: &str| {
            let named = |one: &&Value| {
                let event = one["event"].as_str().unwrap_or_default();
                event.ends_with(name) && one["phase"] == phase
            };
            records.iter().filter(named).count()
        };
        assert!(of(":sqlite3_malloc64", "point") > 10, "{how:?}: {:?}", records.first());
        assert_eq!((of(":sqlite3_step", "begin"), of(":sqlite3_step", "end")), (2, 2));
        let sampled = how[0] == "record";
        assert_eq!(of(":sqlite3_malloc64 count", "sample") > 0, sampled, "{how:?}");
        std::fs::remove_file(&path).expect("a trace");
    }
}

#[test]
fn metrics_are_told_as_text() {
    let shell = Shell::start();
    let probe = "uprobe:*:sqlite3_step { count, latency, concurrency, histogram latency }";
    let output = run(&["probe", "-p", &shell.id(), "-e", probe, "--openmetrics", "--for", "1ms"]);
    let lines = text(&output.stdout);
    assert!(lines.ends_with("# EOF\n"), "{lines}{}", text(&output.stderr));
    for name in ["hits_total{", "calls_total{", "time_seconds_total{", "threads{"] {
        let line = format!("refit_probe_{name}process=\"{}\"", shell.id());
        assert!(lines.contains(&line), "{name}: {lines}");
    }
    assert!(lines.contains("# TYPE refit_probe_duration_seconds histogram"), "{lines}");
    assert!(lines.contains("refit_probe_duration_seconds_bucket{le=\"+Inf\","), "{lines}");
}

#[test]
fn the_sum_and_the_mean_of_a_value_count_it_once() {
    let probe = "uprobe:libc:malloc { count, sum arg0, avg arg0 }";
    let output = run(&["probe", "--openmetrics", "-e", probe, "--", "ls", "-d", "/"]);
    let lines = text(&output.stdout);
    let number = |name: &str| -> u64 {
        let line = lines.lines().find(|line| line.starts_with(name)).expect(name);
        line.rsplit_once(' ').and_then(|(_, number)| number.parse().ok()).expect("a number")
    };
    assert_eq!(number("refit_probe_folded{"), number("refit_probe_hits_total{"), "{lines}");
    assert!(number("refit_probe_hits_total{") > 0, "{lines}");
}

#[test]
fn events_of_a_session_and_of_its_splices_name_the_session() {
    let shell = Shell::start();
    let probe = "uprobe:*:sqlite3_step { count }";
    let filter = "refit_probe=debug,refit_splice=debug";
    let command = ["--log", filter, "probe", "-p", &shell.id(), "-e", probe, "--for", "1ms"];
    let said = text(&run(&command).stderr);
    let session = format!("probes{{probe=1 process={} kind=watch}}", shell.id());
    let events: Vec<&str> = said.lines().filter(|line| line.contains(" refit_")).collect();
    assert!(!events.is_empty(), "{said}");
    for event in &events {
        assert!(event.contains(&session), "{event}");
    }
    for step in ["probes are being installed", "probes installed", "probes removed"] {
        assert!(events.iter().any(|event| event.contains(step)), "{step}: {said}");
    }
    assert!(events.iter().any(|event| event.contains("refit_splice")), "{said}");
}

#[test]
fn what_a_killed_refit_left_is_taken_out() {
    let mut shell = Shell::start();
    let mut child = refit(&["probe", "-p", &shell.id(), "-e", "uprobe:*:sqlite3_step { count }"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("refit");
    let _told = watching(&mut child);
    child.kill().expect("killed");
    child.wait().expect("its end");
    assert_eq!(shell.ask("select 1;"), "1");
    let output = run(&["repair", "-p", &shell.id(), "--verify"]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("code differs"), "{}", text(&output.stderr));
    let output = run(&["repair", "-p", &shell.id()]);
    assert_eq!(text(&output.stdout), "1 site removed, 1 patch area unmapped\n");
    verified(&shell.id());
    let again = run(&["repair", "-p", &shell.id()]);
    assert_eq!(text(&again.stdout), "nothing of refit is in the process\n");
    assert_eq!(shell.ask("select 2;"), "2");
}

#[test]
fn nothing_changes_in_a_dry_run_or_a_list() {
    let shell = Shell::start();
    let list = run(&["probe", "-l", "-p", &shell.id(), "-e", "uprobe:*:sqlite3_st?p { count }"]);
    assert!(text(&list.stdout).contains(":sqlite3_step\n"), "{}", text(&list.stdout));
    let plan =
        run(&["probe", "--dry-run", "-p", &shell.id(), "-e", "uprobe:*:sqlite3_step { count }"]);
    assert!(text(&plan.stdout).contains("jump"), "{}{}", text(&plan.stdout), text(&plan.stderr));
    verified(&shell.id());
}

#[test]
fn what_cannot_be_watched_is_said_in_a_line() {
    let shell = Shell::start();
    for (arguments, code, said) in [
        (&["-p", &shell.id(), "-e", "uprobe:*:sqlite3_stepp { count }"][..], 1, "sqlite3_step"),
        (
            &["-p", &shell.id(), "-e", "uprobe:nothing:main { count }"],
            1,
            "no code of a file called nothing",
        ),
        (&["-p", &shell.id(), "-e", "insn:*:sqlite3_step+0x1 { latency }"], 2, "latency"),
        (&["-p", &shell.id(), "-e", "uprobe:main"], 2, "no `{ action }`"),
        (&["-p", "4194303", "-e", "uprobe:*:main { count }"], 1, "there is no process 4194303"),
        (&["-e", "uprobe:*:main { count }", "--", "/no/such/program"], 1, "/no/such/program"),
        (&["-e", "uprobe:*:main { count }"], 2, "--pid"),
    ] {
        let output = run(&[&["probe"], arguments].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(said), "{arguments:?}: {error}");
        assert!(code == 2 || error.lines().count() == 1, "{error}");
    }
    verified(&shell.id());
}

/// A function that begins with its loop: ten turns a call, a thousand calls.
const LOOP: &str = "
.globl main
.type main,@function
main: push %rbx
 mov $1000, %ebx
1: mov $10, %edi
 call walk
 dec %ebx
 jnz 1b
 pop %rbx
 xor %eax,%eax
 ret
.size main,.-main
.globl walk
.type walk,@function
walk: sub $1, %rdi
 test %rdi, %rdi
 jnz walk
 lea 1(%rdi), %rax
 ret
.size walk,.-walk
.section .note.GNU-stack,\"\",@progbits
";

#[test]
fn turns_of_a_loop_that_begins_with_its_function_are_no_calls() {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, path) = (folder.path().join("loop.s"), folder.path().join("loop"));
    std::fs::write(&source, LOOP).expect("written");
    let built = Command::new("cc").arg("-o").args([&path, &source]).status();
    assert!(built.expect("an assembler").success());
    let path = path.to_str().expect("a path");
    let (_, records) = watched("uprobe:loop:walk { latency, count, histogram latency }", &[path]);
    let of = |action: &str| {
        let found = records.iter().find(|one| one["action"] == action);
        found.unwrap_or_else(|| panic!("no {action}: {records:?}")).clone()
    };
    assert_eq!((&of("latency")["count"], &of("latency")["inside"]), (&1000.into(), &0.into()));
    assert_eq!(of("histogram latency")["count"], 1000);
    // Control has come by ten times as often.
    assert_eq!(of("count")["count"], 10_000);
}
