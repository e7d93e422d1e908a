//! Values that are kept from one probe to the next, and what is computed of them, in a program that
//! nobody here has written.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use super::probes::objects;
use super::shell::{Shell, ended, refit, run, text, verified, watching};

const COMMAND: [&str; 4] = ["--", "sqlite3", ":memory:", "select 6 * 7; selec 1;"];

/// The pattern of bpftrace's tools: what was stored at the entry is used at the exit.
const SCRIPT: &str = r#"
BEGIN { printf("%-8s %-22s %s\n", "THREAD", "FUNCTION", "US") }
uprobe:libsqlite3:sqlite3_prepare_v2
{
    @start[tid] = nsecs;
    @text[tid] = arg1;
    @which[tid] = func;   // for the exit
}
uretprobe:libsqlite3:sqlite3_prepare_v2 /@start[tid] != 0/
{
    $us = (nsecs - @start[tid]) / 1000;
    if ((int32)retval == 0) {
        @fine[@which[tid]] = lhist($us, 0, 1000000, 100000);
        printf("%-8d %-22s %d %s\n", tid, @which[tid], $us < 60000000, str(@text[tid]));
    } else {
        @failed[str(@text[tid])] = stats($us < 0 ? 1 : 2);
    }
    @all++;
    delete(@start[tid]); delete(@text, tid);
}
uprobe:libsqlite3:sqlite3_step /comm == "sqlite3" && str(@text[tid]) != "select"/ { @steps += 10 }
END { clear(@start); clear(@text); }
"#;

#[test]
fn what_an_entry_stored_is_used_at_the_exit() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("prepare.bt");
    std::fs::write(&path, SCRIPT).expect("a file");
    let file = path.to_str().expect("a path");
    let output = run(&[&["probe", file], &COMMAND[..]].concat());
    let (shown, said) = (text(&output.stdout), text(&output.stderr));
    // sqlite3 itself fails, since that is no statement.
    let line = |line: &str| {
        let words: Vec<_> = line.split_whitespace().skip(1).collect();
        words.join(" ") == "sqlite3_prepare_v2 1 select 6 * 7; selec 1;"
    };
    assert!(shown.lines().any(line), "{shown}{said}");
    assert!(!shown.contains("@start") && !shown.contains("@text"), "{shown}");
    assert!(shown.contains("@which") && shown.contains("lhist($us, 0, 1000000, 100000) at @fine"));
    let output = run(&[&["--json", "probe", file], &COMMAND[..]].concat());
    let records = objects(&output.stdout);
    let map = |name: &str| records.iter().filter(|one| one["map"] == name).collect::<Vec<_>>();
    let [fine] = &map("fine")[..] else { panic!("{records:#?}") };
    assert_eq!(fine["key"], "sqlite3_prepare_v2");
    let buckets: Vec<_> = fine["buckets"].as_array().into_iter().flatten().collect();
    let sum: u64 = buckets.iter().filter_map(|count| count.as_u64()).sum();
    assert!(buckets.len() == 12 && sum > 0, "{buckets:?}");
    let failed = map("failed");
    let [failed] = &failed[..] else { panic!("{records:#?}") };
    assert_eq!(failed["key"].as_str().map(str::trim), Some("selec 1;"));
    assert_eq!((&failed["mean"], &failed["result"]), (&2.0.into(), &2.into()));
    let [all] = &map("all")[..] else { panic!("{records:#?}") };
    assert_eq!(all["result"].as_u64(), Some(sum + 1));
    let [steps] = &map("steps")[..] else { panic!("{records:#?}") };
    assert!(steps["result"].as_u64().is_some_and(|steps| steps >= 10 && steps % 10 == 0));
}

#[test]
fn maps_that_do_not_fit_are_refused_before_anything_changes() {
    for (probe, what) in [
        ("uprobe:*:sqlite3_step { @x = count(); @x = 1 }", "cannot use the map @x: it counts"),
        ("uprobe:*:sqlite3_step { printf(\"%d\", @x[tid]) }", "nothing is assigned to it"),
        ("uprobe:*:sqlite3_step { @x[tid] = 1; @y = @x }", "its keys are"),
    ] {
        let refused = run(&[&["probe", "-e", probe], &COMMAND[..]].concat());
        let said = text(&refused.stderr);
        assert!(refused.status.code() == Some(1) && said.contains(what), "{said}");
    }
    for (probe, what) in [
        ("uprobe:*:sqlite3_step { @x = lhist(arg0, 0, 10, 0) }", "has not 1 to 1000 ranges"),
        ("uprobe:*:sqlite3_step { @x = lhist(arg0, 10) }", "needs a value, from, to, and step"),
        ("uprobe:*:sqlite3_step { if arg0 { count } }", "no `(condition)` after `if`"),
        ("uprobe:*:sqlite3_step { printf(\"%d\", $x) }", "`$x` was assigned nothing"),
    ] {
        let wrong = run(&[&["probe", "-e", probe], &COMMAND[..]].concat());
        let said = text(&wrong.stderr);
        assert!(wrong.status.code() == Some(2) && said.contains(what), "{said}");
    }
}

#[test]
fn a_path_may_have_symbolic_links() {
    let folder = tempfile::tempdir().expect("a folder");
    let link = folder.path().join("bin");
    std::os::unix::fs::symlink("/usr/bin", &link).expect("a link");
    let place =
        |function: &str| format!("uprobe:{}/sqlite3:{function} {{ @ = count() }}", link.display());
    let probe = place("main");
    let output = run(&[&["--json", "probe", "-e", &probe], &COMMAND[..]].concat());
    let records = objects(&output.stdout);
    let counted = records.iter().any(|one| one["map"] == "" && one["count"] == 1);
    // Without symbols, the file has no function of this name.
    let found = counted || text(&output.stderr).contains("no function is called main");
    assert!(found, "{}", text(&output.stderr));
    let other = place("main").replace("sqlite3", "sqlite4");
    let refused = run(&[&["probe", "-e", &other], &COMMAND[..]].concat());
    assert!(text(&refused.stderr).contains("no code of a file called"));
}

#[test]
fn what_is_printed_and_cleared_at_intervals_adds_up() {
    let mut shell = Shell::start();
    let id = shell.id();
    let script = r#"
uprobe:*:sqlite3_prepare_v2 { @all = count(); @by[str(arg1)] = count(); @twice = sum(2); @last = nsecs;
    @n++; @texts[str(arg1)] += 3; @top = max(arg0 != 0); @low[comm] = min(7); @keeps[tid] = count(); }
interval:ms:20 { print(@all); clear(@all); print(@by); print(@twice); clear(@by); clear(@twice) }
interval:ms:20 { print(@n); delete(@n); print(@texts); print(@top); clear(@texts); zero(@top) }
interval:ms:20 { print(@low); clear(@low); print(@low); print(@keeps); zero(@keeps) }
END { clear(@last) }"#;
    let mut child = refit(&["--json", "probe", "-p", &id, "-e", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("refit");
    let mut told = watching(&mut child);
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let (mut number, mut printed) = (0, String::new());
    // Until several intervals have passed.
    while printed.lines().filter(|line| line.contains("\"all\"")).count() < 3 {
        shell.ask("select 1;");
        number += 1;
        output.read_line(&mut printed).expect("a result");
    }
    ended(child, &mut output, &mut told, &mut printed);
    let records = objects(printed.as_bytes());
    let sum = |map: &str, field: &str| -> u64 {
        let of = records.iter().filter(|one| one["map"] == map);
        of.filter_map(|one| one[field].as_u64()).sum()
    };
    assert_eq!((sum("all", "count"), sum("by", "count")), (number, number), "{printed}");
    assert_eq!((sum("twice", "result"), sum("last", "result")), (2 * number, 0), "{printed}");
    // Numbers that are kept, and extremes with the numbers of their values.
    assert_eq!((sum("n", "result"), sum("texts", "result")), (number, 3 * number), "{printed}");
    assert_eq!((sum("top", "count"), sum("low", "count")), (number, number), "{printed}");
    let extremes = |map: &str, other: u64| {
        let of = records.iter().filter(|one| one["map"] == map && one["count"] != 0);
        of.into_iter().all(|one| one["result"] == other)
    };
    assert!(extremes("top", 1) && extremes("low", 7), "{printed}");
    // The key stays.
    let keeps = records.iter().filter(|one| one["map"] == "keeps" && one["count"] == 0).count();
    assert_eq!((sum("keeps", "count"), keeps > 0), (number, true), "{printed}");
    verified(&id);
}
