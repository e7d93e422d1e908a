//! `refit cover` and `refit drill`, on a database program that knows nothing of it.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::shell::{SUM, Shell, interrupt, refit, run, text, verified, watching};

/// Goes on for ever.
const ENDLESS: &str = "with recursive c(x) as (select 1 union all select x + 1 from c) \
                       select sum(x) from c;";

fn number(object: &Value, key: &str) -> u64 {
    object[key].as_u64().unwrap_or_else(|| panic!("no number {key} in {object}"))
}

#[test]
fn a_program_says_the_same_with_all_blocks_of_all_its_files_watched() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("run.drcov");
    let file = file.to_str().expect("a path");
    let command = ["cover", "--json", "--module", "*", "--functions", "--drcov", file, "--"];
    let output = run(&[&command[..], &["sqlite3", ":memory:", SUM]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    let (records, own): (Vec<&str>, Vec<&str>) =
        lines.lines().partition(|line| line.starts_with("{\"module\""));
    assert_eq!(own, ["200010000"]);
    let records: Vec<Value> =
        records.iter().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let (functions, files): (Vec<_>, Vec<_>) =
        records.iter().partition(|object| object.get("function").is_some());
    assert!(files.len() > 3, "{files:?}");
    for object in &records {
        let counts = ["reached", "watched", "blocks"].map(|key| number(object, key));
        assert!(counts.is_sorted(), "{object}");
    }
    let reached = |name: &str| {
        let of = functions.iter().find(|object| object["function"] == name);
        number(of.unwrap_or_else(|| panic!("no {name}")), "reached")
    };
    assert!(reached("sqlite3_step") > 0 && reached("sqlite3_backup_init") == 0);
    let library = files.iter().find(|object| {
        object["module"].as_str().is_some_and(|name| name.starts_with("libsqlite3"))
    });
    let library = library.expect("its library");
    let all = functions.iter().filter(|object| object["module"] == library["module"]);
    let sum: u64 = all.map(|object| number(object, "reached")).sum();
    assert_eq!(number(library, "reached"), sum);
    assert!(text(&std::fs::read(file).expect("written")).starts_with("DRCOV VERSION: 2\n"));
}

#[test]
fn lines_of_source_are_counted() {
    const SOURCE: &str = "\
int odd, even;
static void one(int number)
{
	if (number % 2)
		odd++;
	else
		even++;
}
int main(int count, char **words)
{
	for (int i = 0; i < 1000; i++)
		one(i);
	if (count > 1)
		odd = words[1][0];
	return odd - even;
}
";
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a path").to_owned();
    let (source, program, tracefile) = (path("lines.c"), path("lines"), path("lines.info"));
    std::fs::write(&source, SOURCE).expect("written");
    let built = Command::new("cc").args(["-O0", "-g", "-o", &program, &source]).status();
    assert!(built.expect("a C compiler").success());
    let options = ["cover", "--counts", "--all", "--lcov", &tracefile, "--hottest", "1"];
    let output = run(&[&options[..], &["--json", "--", &program]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    let lines: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let [file, block] = &lines[..] else { panic!("{lines:?}") };
    assert!(number(file, "runs") > 5000 && number(file, "watched") > number(file, "reached"));
    assert_eq!((number(block, "runs"), &block["function"]), (1001, &Value::from("main")));
    let told = std::fs::read_to_string(&tracefile).expect("written");
    let own = told.split("end_of_record\n").find(|part| part.contains("/lines.c\n"));
    let own = own.expect("the source");
    for line in [
        "FNDA:1000,one",
        "FNDA:1,main",
        "FN:3,one",
        "FNF:2",
        "FNH:2",
        "DA:4,1000",
        "DA:5,500",
        "DA:7,500",
        "DA:8,1000",
        "DA:11,1001",
        "DA:12,1000",
        "DA:13,1",
        "DA:14,0",
        "DA:15,1",
    ] {
        assert!(own.lines().any(|one| one == line), "{line}: {own}");
    }
    let output = run(&[&options[..6], &["1", "--", &program]].concat());
    let lines = text(&output.stdout);
    assert!(lines.contains("RUNS") && lines.contains("1 001") && lines.contains("lines:main+0x"));
    for arguments in [&["cover", "--hottest", "1", "--", "true"][..], &["cover", "--hottest", "x"]]
    {
        assert_eq!(run(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_program_that_runs_is_watched_until_ctrl_c_and_left_as_it_was() {
    let mut shell = Shell::start();
    let mut child = refit(&["cover", "-p", &shell.id(), "--module", "libsqlite3*"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("refit");
    let _told = watching(&mut child);
    assert_eq!(shell.ask(&format!("{SUM};")), "200010000");
    interrupt(&child);
    let output = child.wait_with_output().expect("refit");
    assert!(output.status.success());
    let lines = text(&output.stdout);
    let lines: Vec<&str> = lines.lines().collect();
    assert!(lines[0].starts_with("SHARE") && lines[1].contains("libsqlite3"), "{lines:?}");
    assert!(!lines[1].starts_with("0.0 %"), "{lines:?}");
    verified(&shell.id());
    assert_eq!(shell.ask("select 'well';"), "well");
}

#[test]
fn what_a_killed_refit_left_is_taken_out() {
    let mut shell = Shell::start();
    let mut child = refit(&["cover", "-p", &shell.id(), "--module", "libsqlite3*"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("refit");
    let _told = watching(&mut child);
    assert_eq!(shell.ask(&format!("{SUM};")), "200010000");
    child.kill().expect("killed");
    child.wait().expect("its end");
    assert_eq!(shell.ask("select 1;"), "1");
    assert!(!run(&["repair", "-p", &shell.id(), "--verify"]).status.success());
    let output = run(&["repair", "-p", &shell.id()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    verified(&shell.id());
    assert_eq!(shell.ask("select 2;"), "2");
}

#[test]
fn the_callees_of_a_function_that_goes_on_are_measured() {
    let mut shell = Shell::start();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("exec.svg");
    let svg = file.to_str().expect("a path");
    shell.say(ENDLESS);
    let arguments = ["drill", "-p", &shell.id(), "sqlite3VdbeExec", "--for", "200ms"];
    let output =
        run(&[&arguments[..], &["--share", "0%", "--depth", "2", "--svg", svg, "--json"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let level: Value = serde_json::from_slice(&output.stdout).expect("an object");
    assert!(level["name"].as_str().expect("a name").ends_with(":sqlite3VdbeExec"));
    assert_eq!(level["share"], 1.0);
    let callees = level["callees"].as_array().expect("callees");
    assert!(callees.iter().any(|callee| number(callee, "calls") > 0), "{level}");
    let times: u64 = callees.iter().map(|callee| number(callee, "nanos")).sum();
    assert_eq!(number(&level, "nanos"), times + number(&level, "own_nanos"));
    assert!(text(&std::fs::read(&file).expect("drawn")).contains("sqlite3VdbeExec"));
    let table = run(&arguments);
    assert!(text(&table.stdout).starts_with("  SHARE"), "{}", text(&table.stdout));
    verified(&shell.id());
}

#[test]
fn what_cannot_be_done_is_said_in_a_line() {
    let shell = Shell::start();
    let id = shell.id();
    for (arguments, code, said) in [
        (&["cover", "-p", &id, "--module", "nothing"][..], 1, "no code of a file called nothing"),
        (&["cover", "-p", "4194303"], 1, "there is no process 4194303"),
        (&["cover"], 2, "--pid"),
        (&["drill", "-p", &id, "sqlite3_stepp"], 1, "sqlite3_step"),
        (&["drill", "-p", &id, "sqlite3_*"], 1, "several functions are called sqlite3_*"),
        (&["drill", "-p", &id, "sqlite3_step", "--for", "100ms"], 1, "was not called"),
        (&["drill", "-p", &id, "sqlite3_step", "--share", "101%"], 2, "101%"),
    ] {
        let output = run(arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
    verified(&id);
}
