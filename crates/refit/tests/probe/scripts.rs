//! Scripts with constants, sizes and types, whose places are patterns over files.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::probes::objects;
use super::shell::{ended, refit, run, text, verified, watching};

/// Handles a request for each line: of the length of the line, and with this line as its name.
const SERVER: &str = r#"
#include <stdio.h>
#include <string.h>
struct request { struct request *next; char uri[32]; int sizes[4]; };
__attribute__((noinline)) long handle(struct request *request)
{
	return request->sizes[0] + printf("handled %s\n", request->uri);
}
int main(void)
{
	struct request request = { 0 };
	setvbuf(stdout, 0, _IOLBF, 0);
	for (char line[32]; fgets(line, sizeof line, stdin);) {
		line[strcspn(line, "\n")] = 0;
		strcpy(request.uri, line);
		request.sizes[1] = strlen(line);
		handle(&request);
	}
	return 0;
}
"#;

/// Builds the program; `options` are those of the compiler.
fn build(options: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, program) = (folder.path().join("a.c"), folder.path().join("server-1.2"));
    std::fs::write(&source, SERVER).expect("a file");
    let cc = Command::new("cc").args(options).arg("-o").args([&program, &source]).status();
    assert!(cc.expect("a C compiler").success());
    (folder, program)
}

#[test]
fn constants_sizes_and_types_of_maps_are_known() {
    let script = r#"
#define WORDS (1 << 2)
struct request { struct request *next; char uri[32]; int sizes[WORDS]; };
BEGIN { printf("%d %d\n", WORDS, sizeof(struct request)); }
uprobe:server*:handle { @request[tid] = (struct request *)arg0; }
uretprobe:server*:handle /@request[tid]->sizes[1] > 2/
{
    printf("%s %d %d\n", @request[tid]->uri, @request[tid]->sizes[1],
        offsetof(struct request, sizes) / sizeof(int));
    delete(@request[tid]);
}
"#;
    let (folder, program) = build(&["-O1"]);
    let path = folder.path().join("requests.bt");
    std::fs::write(&path, script).expect("a file");
    let mut child = refit(&["probe", path.to_str().expect("a path"), "--"])
        .arg(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("refit");
    child.stdin.take().expect("a pipe").write_all(b"/a\n/index\n").expect("it reads");
    let output = child.wait_with_output().expect("refit");
    let (shown, said) = (text(&output.stdout), text(&output.stderr));
    let has = |line: &str| shown.lines().any(|one| one == line);
    assert!(has("4 56") && has("/index 6 10") && !has("/a 2 10"), "{shown}{said}");
    for (directive, wanted) in [
        ("#include <linux/fs.h>", "`#include` is not possible"),
        ("#define MAX(a, b) a", "`MAX` is a macro with parameters"),
    ] {
        let script = format!("{directive}\nuprobe:server*:handle {{ count }}");
        let refused = run(&["probe", "-e", &script, "--", "true"]);
        let said = text(&refused.stderr);
        assert!(refused.status.code() == Some(2) && said.contains(wanted), "{said}");
        assert!(said.contains(&format!("{directive}\n")) && said.contains("~~~"), "{said}");
    }
}

#[test]
fn files_are_meant_by_patterns() {
    let (folder, program) = build(&["-g"]);
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(folder.path(), &link).expect("a link");
    let in_folder = |pattern: &str| format!("{}/{pattern}", folder.path().display());
    let mut child = Command::new(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut input = child.stdin.take().expect("a pipe");
    let mut line = String::new();
    writeln!(input, "one").expect("it reads");
    output.read_line(&mut line).expect("an answer");
    let id = child.id().to_string();
    for file in ["server-?.2", &in_folder("ser*"), &in_folder("lin*/server-1.*"), "*"] {
        let place = format!("uprobe:{file}:handle {{ count }}");
        let listed = run(&["probe", "-p", &id, "-e", &place, "-l"]);
        let (shown, said) = (text(&listed.stdout), text(&listed.stderr));
        assert!(shown.contains("handle") && shown.contains("server-1.2"), "{file}: {shown}{said}");
        let listed = run(&["funcs", "-p", &id, "--module", file, "handle"]);
        assert!(text(&listed.stdout).contains("handle"), "{file}: {}", text(&listed.stderr));
        if file != "*" {
            let cover = run(&["cover", "-p", &id, "--module", file, "--for", "1ms", "--json"]);
            assert!(cover.status.success(), "{file}: {}", text(&cover.stderr));
        }
    }
    for file in ["erver*", &in_folder("none*/server-1.2")] {
        let place = format!("uprobe:{file}:handle {{ count }}");
        let refused = run(&["probe", "-p", &id, "-e", &place]);
        assert!(text(&refused.stderr).contains("no code of a file called"), "{file}");
    }
    drop(input);
    assert!(child.wait().expect("its end").success());
}

#[test]
fn keys_can_be_deleted_at_intervals_and_at_the_end() {
    let (_folder, program) = build(&["-O1"]);
    let mut server = Command::new(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program");
    let mut answers = BufReader::new(server.stdout.take().expect("a pipe"));
    let mut input = server.stdin.take().expect("a pipe");
    let id = server.id().to_string();
    let script = r#"
uprobe:server*:handle
{
    $uri = arg0 + 8;
    @counts[str($uri)] = count(); @kept[str($uri)] += 2; @top[str($uri), 3] = max(7);
    @all = count(); @sizes[*(int *)(arg0 + 44)] += 1; @fixed["x"] = max(5);
}
interval:ms:20 { print(@counts); delete(@counts["aa"]); print(@kept); delete(@kept["aa"]); }
interval:ms:20 { print(@top); delete(@top["aa", 1 + 2]); print(@fixed); delete(@fixed["x"]); }
END { delete(@sizes, 2); delete(@none[7]); }"#;
    let mut child = refit(&["--json", "probe", "-p", &id, "-e", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("refit");
    let mut told = watching(&mut child);
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let (mut number, mut printed, mut line) = (0, String::new(), String::new());
    // Until several intervals have passed.
    while printed.lines().filter(|line| line.contains("\"counts\"")).count() < 6 {
        for name in ["aa", "bbb"] {
            writeln!(input, "{name}").expect("it reads");
            answers.read_line(&mut line).expect("an answer");
        }
        number += 1;
        output.read_line(&mut printed).expect("a result");
    }
    ended(child, &mut output, &mut told, &mut printed);
    let records = objects(printed.as_bytes());
    let of = |map: &str, key: &str| {
        let has = |one: &&serde_json::Value| {
            let keys = one["keys"].as_array().and_then(|keys| keys.first());
            one["map"] == map && (one["key"] == key || keys.is_some_and(|first| first == key))
        };
        records.iter().filter(has).cloned().collect::<Vec<_>>()
    };
    let sum = |map: &str, key: &str, field: &str| -> u64 {
        of(map, key).iter().filter_map(|one| one[field].as_u64()).sum()
    };
    // Each value of the deleted keys is in exactly one interval, and the others go on.
    assert_eq!(sum("counts", "aa", "count"), number, "{printed}");
    assert_eq!(sum("kept", "aa", "result"), 2 * number, "{printed}");
    assert_eq!(sum("top", "aa", "count"), number, "{printed}");
    assert_eq!(sum("fixed", "x", "count"), 2 * number, "{printed}");
    let last = of("counts", "bbb").last().and_then(|one| one["count"].as_u64());
    assert_eq!(last, Some(number), "{printed}");
    let sizes: Vec<_> = records.iter().filter(|one| one["map"] == "sizes").collect();
    let [size] = &sizes[..] else { panic!("{sizes:?}") };
    assert_eq!((&size["key"], size["result"].as_u64()), (&3.into(), Some(number)));
    verified(&id);
    drop(input);
    assert!(server.wait().expect("its end").success());
}
