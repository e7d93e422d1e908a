//! Messages that probes write, and keys with texts, of a program that nobody here has written.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use super::probes::objects;
use super::shell::{Shell, interrupt, refit, run, text, verified, watching};

#[test]
fn messages_are_printed_as_soon_as_they_are_written() {
    let mut shell = Shell::start();
    let id = shell.id();
    let probe =
        r#"uprobe:*:sqlite3_prepare_v2 { printf("%d %s: %.60s\n", tid, comm, str(arg1, 100)) }"#;
    let mut child = refit(&["probe", "-p", &id, "-e", probe])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("refit");
    let mut told = watching(&mut child);
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    for number in [17, 4] {
        let question = format!("select {number}, 'a\u{1b}[2Jb';");
        shell.ask(&question);
        let mut line = String::new();
        // Only this message ends the wait: refit prints nothing else before it ends.
        output.read_line(&mut line).expect("a message");
        assert_eq!(line, format!("{id} sqlite3: select {number}, 'a\\x1b[2Jb';\n"));
    }
    interrupt(&child);
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut output, &mut rest).expect("the end");
    assert!(child.wait().expect("refit").success() && rest.is_empty(), "{rest}");
    rest.clear();
    std::io::Read::read_to_string(&mut told, &mut rest).expect("the end");
    assert!(!rest.contains("lost"), "{rest}");
    verified(&id);
}

#[test]
fn a_script_has_messages_before_and_after_and_keys_with_texts() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("statements.bt");
    let script = r#"#!/usr/bin/env -S refit probe
/* Which statements are prepared, and what comes of it. */
BEGIN { printf("%-8s %s\n", "TIME", "STATEMENT"); }

uprobe:libnowhere:sqlite3_prepare_v2,
uprobe:libsqlite3:sqlite3_prepare_v2 // the API
{
    time("%H:%M:%S ");
    printf("%s\n", str(arg1));
    @statements[func, str(arg1)] = count();
}
uretprobe:libsqlite3:sqlite3_column_name { @names[probe, str(retval)] = count(); }
END { printf("over\n"); }
"#;
    std::fs::write(&path, script).expect("a file");
    let file = path.to_str().expect("a path");
    let command = ["sqlite3", ":memory:", "select 6 * 7; select 6 * 7 where 0;"];
    let output = run(&[&["probe", file, "--"], &command[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(said.contains("not watched: libnowhere:sqlite3_prepare_v2: "), "{said}");
    let shown = text(&output.stdout);
    let has = |line: &str| shown.lines().any(|one| one.trim() == line);
    assert!(shown.contains("TIME     STATEMENT\n"), "{shown}");
    let second = |line: &str| line.get(9..) == Some("select 6 * 7 where 0;") && &line[2..3] == ":";
    assert!(has("over") && shown.lines().any(second), "{shown}");
    let row = "1  sqlite3_prepare_v2  select 6 * 7 where 0; ";
    let row = |line: &str| line.trim().starts_with(row) && line.ends_with("  @statements");
    assert!(shown.lines().any(row), "{shown}");
    let output = run(&[&["--json", "probe", file, "--"], &command[..]].concat());
    let records = objects(&output.stdout);
    let names: Vec<_> = records.iter().filter(|one| one["map"] == "names").collect();
    let [name] = &names[..] else { panic!("{names:?}") };
    assert_eq!((&name["keys"][1], &name["count"]), (&"6 * 7".into(), &1.into()));
    let probe = name["keys"][0].as_str().expect("a text");
    assert!(probe.starts_with("uretprobe:libsqlite3") && probe.ends_with(":sqlite3_column_name"));
    let messages: Vec<_> = records.iter().filter_map(|one| one["text"].as_str()).collect();
    assert!(messages.contains(&"select 6 * 7 where 0;\n"), "{messages:?}");
    assert!(records.iter().all(|one| one["text"] == Value::Null || one["time"].is_u64()));
}

#[test]
fn what_is_wrong_with_a_script_is_marked_and_printf_stays_out_of_traces() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("wrong.bt");
    let file = path.to_str().expect("a path");
    std::fs::write(&path, "uprobe:a:b\n{\n  printf(\"%d\\n\", args);\n}\n").expect("a file");
    let command = ["--", "sqlite3", ":memory:", "select 1"];
    let wrong = run(&[&["probe", file], &command[..]].concat());
    let said = text(&wrong.stderr);
    assert!(!wrong.status.success() && said.contains("unknown value `args`"), "{said}");
    assert!(said.contains("printf(\"%d\\n\", args);\n") && said.contains(" ~~~~\n"), "{said}");
    let none = run(&[&["probe", "/nowhere.bt"], &command[..]].concat());
    assert!(text(&none.stderr).contains("name a file that can be read"));
    let printed = r#"uprobe:*:sqlite3_step { printf("%d\n", arg0) }"#;
    let trace = folder.path().join("trace");
    let trace = trace.to_str().expect("a path");
    let events = "uprobe:*:sqlite3_step { event }";
    for (arguments, what) in [
        (
            &["record", "--no-switches", "-o", trace, "-e", printed][..],
            "printf writes to a terminal",
        ),
        (&["probe", "-o", trace, "-e", printed, "-e", events], "cannot be combined"),
        (&["probe", "--openmetrics", "-e", printed], "printf writes between the metrics"),
    ] {
        let refused = run(&[arguments, &command[..]].concat());
        let said = text(&refused.stderr);
        assert!(!refused.status.success() && said.contains(what), "{said}");
    }
}
