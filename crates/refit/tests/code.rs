//! `refit funcs` and `refit cfg`, as a user runs them.

use std::process::{Command, Output};

fn refit(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_refit"));
    command.args(args).env("REFIT_CODE_CACHE", "off").output().expect("refit runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn functions_of_files_and_processes_are_listed() {
    let listed = refit(&["funcs", "-p", "/bin/bash", "execute_command*"]);
    assert!(listed.status.success());
    assert!(text(&listed.stdout).contains("execute_command_internal"));
    let own = std::process::id().to_string();
    let listed = refit(&["funcs", "-p", &own, "qsort", "--module", "libc.so*", "--json"]);
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    let line: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("one object");
    assert_eq!(line["name"], "qsort");
    assert!(line["loaded_at"].as_u64().is_some_and(|at| at % 4096 == 0 && at > 0));
}

#[test]
fn a_graph_is_text_json_and_a_picture() {
    let shown = refit(&["cfg", "-p", "/bin/bash", "execute_command", "--live"]);
    let shown = text(&shown.stdout);
    assert!(shown.contains("block 0  ← entry") && shown.contains("→ the caller"), "{shown}");
    assert!(shown.contains("; dead:"));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("graph.svg");
    let path = path.to_str().expect("a path");
    let drawn = refit(&["cfg", "-p", "/bin/bash", "execute_command", "--svg", path, "--json"]);
    let graph: serde_json::Value = serde_json::from_slice(&drawn.stdout).expect("one object");
    let blocks = graph["blocks"].as_array().expect("blocks").len();
    let svg = std::fs::read_to_string(path).expect("a picture");
    assert_eq!(svg.matches("<rect ").count(), blocks);
}

#[test]
fn what_is_not_there_is_told_with_what_is_near() {
    let failed = refit(&["cfg", "-p", "/bin/bash", "execute_comand"]);
    assert_eq!(failed.status.code(), Some(1));
    let why = text(&failed.stderr);
    assert!(why.contains("did you mean") && why.contains("execute_command"), "{why}");
    let several = text(&refit(&["cfg", "-p", "/bin/bash", "execute_*"]).stderr);
    assert!(several.contains("functions match execute_*"), "{several}");
    assert!(text(&refit(&["funcs", "-p", "/etc/passwd"]).stderr).contains("not an ELF"));
    assert!(text(&refit(&["funcs", "-p", "4294967295"]).stderr).contains("4294967295"));
}

#[test]
fn lines_of_source_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = "static inline __attribute__((always_inline)) int inner(int x)\n{ return x * 13; }\n\
                  int main(int n, char **v)\n{ volatile int to = inner(n); return to & (v == 0); }\n";
    std::fs::write(folder.path().join("lined.c"), source).expect("written");
    let path = folder.path().join("lined");
    let built = Command::new("cc")
        .args(["-g", "-O2", "-o", "lined", "lined.c"])
        .current_dir(folder.path())
        .status();
    assert!(built.expect("a C compiler").success());
    let path = path.to_str().expect("a path");
    let listed = text(&refit(&["funcs", "-p", path, "main", "--lines"]).stdout);
    assert!(listed.contains("lined.c:") && listed.contains("(inner)"), "{listed}");
    let shown = text(&refit(&["cfg", "-p", path, "main", "--lines"]).stdout);
    assert!(shown.contains("lined.c:2 inner, inlined at "), "{shown}");
    let object = refit(&["funcs", "-p", path, "main", "--lines", "--json"]);
    let object: serde_json::Value = serde_json::from_slice(&object.stdout).expect("one object");
    assert_eq!(
        (&object["inlined"][0], &object["source"]["function"]),
        (&"inner".into(), &"main".into())
    );
    let none = refit(&["funcs", "-p", "/bin/true", "sub_*", "--lines"]);
    assert!(text(&none.stderr).contains("no debug information"), "{}", text(&none.stderr));
}
