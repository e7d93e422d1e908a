//! Runs the commands that the documents show: the code blocks with commands of the README, of
//! `CONTRIBUTING.md` and of `docs/`, those of one document in order, by one shell, in a directory
//! and a world of their own.
//!
//! Comments of the document's source precede a block:
//!
//! ```text
//! <!-- before: COMMANDS -->     the commands that a reader has run already: the files exist, the
//!                               program runs; descriptors 8 and 9 are free, to keep files in use
//! <!-- not run: REASON -->      the reason that the block cannot be run here; it is counted
//! <!-- fails -->                the last command shows a refusal
//! ```
//!
//! All other blocks must exit 0. `PID`, `TID`, `FILE`, `COMMAND` and `4711` in a block stand for
//! the value that `before` has stored in a variable of that name (`PID` for 4711). In a block with
//! a prompt, all other lines are output, and are not compared.

mod stage;

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use stage::Stage;

/// The time that one block may take on a busy machine. A block that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// The knowledge that people have and a shell lacks: a background job is ready before the next
/// command is typed.
const PRELUDE: &str = r#"
mount --make-rprivate / && mount -t tmpfs none /mnt && mount -t tmpfs none /run \
    && mkdir /mnt/data || exit 1
export HOME=$PWD; unset REFIT_RUNTIME_DIR XDG_RUNTIME_DIR
exec 3>&1 1>>said 2>&1 </dev/null
serves() { until mountpoint -q "$1" || ! kill -0 $!; do sleep 0.02; done; }
# A job is a copy of this shell, which has a libc too, until it becomes its program.
loaded() {
    until ! [ /proc/$!/exe -ef /proc/$$/exe ] && grep -q "r-xp.*libc" /proc/$!/maps || ! kill -0 $!
    do sleep 0.02; done
}
follows() { until refit ps 2>/dev/null | grep -q " $! " || ! kill -0 $!; do sleep 0.02; done; }
tidy() {
    exec 8<&- 9<&-
    # What is begun in the background ignores SIGINT, and one that has ended is no failure.
    set +e
    kill $(jobs -p)
    refit shutdown --kill
} >/dev/null 2>&1
trap 'echo ended >&3; tidy' EXIT
"#;

/// A code block with commands.
struct Block {
    line: usize,
    text: String,
    before: String,
    not_run: Option<String>,
    fails: bool,
}

fn documents(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("it is part of the repository").flatten() {
        let path = entry.path();
        if path.is_dir() {
            documents(&path, found);
        } else if path.extension().is_some_and(|end| end == "md") {
            found.push(path);
        }
    }
}

/// Returns whether a line is a command that a person can type.
fn is_command(line: &str) -> bool {
    let begins = ["$ ", "refit ", "./", "cargo ", "curl "].iter().any(|one| line.starts_with(one));
    // Pictures of processes contain arrows.
    begins && !line.contains("──")
}

/// Returns the code blocks of a document that contain commands, and the number of those that
/// contain none.
fn blocks(text: &str) -> (Vec<Block>, usize) {
    let lines: Vec<&str> = text.lines().collect();
    let (mut found, mut others, mut remarks, mut at) = (Vec::new(), 0, String::new(), 0);
    while at < lines.len() {
        let begin = at;
        let mut block = Vec::new();
        let fence = lines[at].trim_start().strip_prefix("```");
        if let Some(language) = fence {
            at += 1;
            while at < lines.len() && !lines[at].trim_start().starts_with("```") {
                block.push(lines[at].trim_start_matches("    "));
                at += 1;
            }
            at += 1;
            if !["", "sh", "console"].contains(&language) {
                others += 1;
                continue;
            }
        } else if lines[at].starts_with("    ") && (at == 0 || lines[at - 1].is_empty()) {
            while at < lines.len() && (lines[at].starts_with("    ") || lines[at].is_empty()) {
                block.push(lines[at].strip_prefix("    ").unwrap_or_default());
                at += 1;
            }
        } else if lines[at].starts_with("<!--") {
            while let Some(line) = lines.get(at) {
                writeln!(remarks, "{line}").expect("text");
                at += 1;
                if line.ends_with("-->") {
                    break;
                }
            }
            continue;
        } else {
            if !lines[at].is_empty() {
                remarks.clear();
            }
            at += 1;
            continue;
        }
        let remarks = std::mem::take(&mut remarks);
        if !block.iter().any(|line| is_command(line)) {
            others += 1;
            continue;
        }
        let remark = |name: &str| {
            let parts = remarks.split("<!-- ").filter_map(|one| one.strip_prefix(name));
            let parts = parts.map(|one| one.trim().trim_end_matches("-->").trim().to_owned());
            parts.reduce(|all, one| all + "\n" + &one)
        };
        found.push(Block {
            line: begin + 1,
            text: block.join("\n"),
            before: remark("before:").unwrap_or_default(),
            not_run: remark("not run:"),
            fails: remark("fails").is_some(),
        });
    }
    (found, others)
}

/// Returns the typed lines of a block: all of them, or those behind prompts and their
/// continuations.
fn typed(text: &str) -> String {
    if !text.lines().any(|line| line.starts_with("$ ")) {
        return text.to_owned();
    }
    let (mut typed, mut open) = (String::new(), false);
    for line in text.lines() {
        let begins = line.strip_prefix("$ ");
        if begins.is_some() || open {
            let line = begins.unwrap_or(line);
            typed.push_str(line);
            typed.push('\n');
            // A quote that continues in the next line.
            open ^= line.matches('\'').count() % 2 == 1;
        }
    }
    typed
}

/// Returns a block in the form in which the shell gets it.
fn script(block: &Block) -> String {
    let mut script = format!("echo 'begun {}' >&3\n{}\n", block.line, block.before);
    if block.fails {
        script.push_str("if {\n");
    }
    for line in typed(&block.text).lines() {
        let mut line = line.replace("4711", "$PID");
        for word in ["PID", "TID", "FILE", "COMMAND"] {
            let stands = |before: &str, after: &str| {
                !before.ends_with(|c: char| c == '$' || c == '_' || c.is_alphanumeric())
                    && !after.starts_with(|c: char| c == '=' || c == '_' || c.is_alphanumeric())
            };
            let places: Vec<usize> = line.match_indices(word).map(|(at, _)| at).collect();
            for at in places.into_iter().rev() {
                if stands(&line[..at], &line[at + word.len()..]) {
                    line.insert(at, '$');
                }
            }
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let last = match words[..] {
            ["refit", "mount", _, to, .., "&"] => format!("serves {to}"),
            ["refit", "run", .., "&"] => "follows".to_owned(),
            _ => String::new(),
        };
        writeln!(script, "{line}\n{last}").expect("text");
    }
    if block.fails {
        script.push_str("}; then echo it succeeds; exit 1; fi\n");
    }
    script
}

/// Runs the blocks of a document; returns the failures.
fn run(document: &str, blocks: &[Block]) -> Result<(), String> {
    let stage = Stage::new();
    let parts = blocks.iter().filter(|block| block.not_run.is_none()).map(script);
    let whole = format!("{PRELUDE}\nset -e\n{}\necho all >&3\n", parts.collect::<String>());
    let file = stage.path("script");
    fs::write(&file, whole).expect("written");
    let bin = Path::new(env!("CARGO_BIN_EXE_refit")).parent().expect("a folder").to_owned();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "bash"]).arg(&file).env("PATH", path).current_dir(stage.top.path());
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    let mut shell = shell.spawn().expect("unshare");
    let (tell, lines) = mpsc::channel();
    let from = BufReader::new(shell.stdout.take().expect("a pipe"));
    std::thread::spawn(move || {
        for line in from.lines().map_while(Result::ok) {
            // The receiver stops listening after the end.
            let _ = tell.send(line);
        }
    });
    let mut at = "before the first block".to_owned();
    let ended = loop {
        match lines.recv_timeout(LIMIT) {
            Ok(line) if line == "all" => break Ok(()),
            Ok(line) if line == "ended" => break Err("it failed"),
            Ok(line) => at = line,
            Err(_) => break Err("it takes too long"),
        }
    };
    if ended == Err("it takes too long") {
        // The shell may be ending by itself.
        let _ = kill_process_group(Pid::from_child(&shell), Signal::INT);
    }
    if lines.recv_timeout(LIMIT).is_err() || shell.try_wait().is_err() {
        let _ = kill_process_group(Pid::from_child(&shell), Signal::KILL);
    }
    shell.wait().expect("its end");
    stage.forget_losses();
    let said = fs::read_to_string(stage.path("said")).unwrap_or_default();
    let tail: Vec<&str> = said.lines().rev().take(15).collect();
    let tail: Vec<&str> = tail.into_iter().rev().collect();
    ended.map_err(|why| format!("{document}: {at}: {why}\n{}", tail.join("\n")))
}

#[test]
fn every_code_block_that_can_be_run_does_what_it_says() {
    if !stage::can_mount() {
        println!("skipped: no /dev/fuse, or no permission to mount");
        return;
    }
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("there");
    let mut files = ["README.md", "CONTRIBUTING.md"].map(|name| top.join(name)).to_vec();
    documents(&top.join("docs"), &mut files);
    let only = std::env::var("REFIT_DOCUMENT").unwrap_or_default();
    let (mut run_count, mut faults) = (0, Vec::new());
    files.sort();
    for file in files.iter().filter(|file| file.to_string_lossy().contains(&only)) {
        let name = file.strip_prefix(&top).expect("inside").display().to_string();
        let (blocks, others) = blocks(&fs::read_to_string(file).expect("text"));
        for block in &blocks {
            if let Some(why) = &block.not_run {
                println!("{name}:{}: not run: {why}", block.line);
            }
        }
        let runs = blocks.iter().filter(|block| block.not_run.is_none()).count();
        println!("{name}: {runs} run, {} not run, {others} without commands", blocks.len() - runs);
        run_count += runs;
        if runs > 0 {
            faults.extend(run(&name, &blocks).err());
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
    assert!(run_count >= 15 || !only.is_empty(), "only {run_count} were run");
}

#[test]
fn blocks_and_what_is_typed_are_found() {
    let text = "a\n\n<!-- before: x=1 -->\n<!-- fails -->\n\n    $ refit ls 'a\n    b'\n    output\n\
                \nb\n\n<!-- not run: why -->\n\n    refit top\n\n```json\n{}\n```\n\n    a ── b\n";
    let (found, others) = blocks(text);
    assert_eq!((found.len(), others), (2, 2));
    assert_eq!((found[0].before.as_str(), found[0].fails, found[0].line), ("x=1", true, 6));
    assert_eq!(typed(&found[0].text), "refit ls 'a\nb'\n");
    assert_eq!(found[1].not_run.as_deref(), Some("why"));
    let block = |text: &str| Block {
        line: 1,
        text: text.to_owned(),
        before: String::new(),
        not_run: None,
        fails: false,
    };
    let script = script(&block("refit mount a b &\nrefit show PID/TID --x $PIDS 4711"));
    assert!(script.contains("refit mount a b &\nserves b\n"), "{script}");
    assert!(script.contains("refit show $PID/$TID --x $PIDS $PID\n"), "{script}");
}
