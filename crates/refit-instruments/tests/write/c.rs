//! Tests of `include/refit.h`: its numbers equal those of the Rust side, it compiles without a
//! warning as C and C++, and records of C and Rust on one processor are in one order.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use refit_instruments::instrument::Event;
use refit_instruments::session::layout::{self, definition, header, ring};
use refit_instruments::write::{Options, Recorder};

use super::Turn;
use super::helper::bind_here;
use super::trace::Trace;

static TURNS: Event = Event::new("c", "rust");

fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include")
}

/// Compiles a program as C and as C++, without warnings.
fn compile(dir: &Path, name: &str, text: &str) -> [PathBuf; 2] {
    [("cc", "c11", "c"), ("c++", "c++17", "cc")].map(|(compiler, standard, suffix)| {
        let source = dir.join(format!("{name}.{suffix}"));
        std::fs::write(&source, text).expect("it can be written");
        let program = dir.join(format!("{name}-{suffix}"));
        let mut command = Command::new(compiler);
        command.args(["-O2", "-Wall", "-Wextra", "-Werror", &format!("-std={standard}")]);
        command.arg("-I").arg(include()).arg(&source).arg("-o").arg(&program);
        let status = command.status().expect("there is a compiler");
        assert!(status.success(), "{command:?}");
        program
    })
}

#[test]
fn the_numbers_of_the_header_are_those_of_the_layout() {
    let numbers = [
        ("HEADER", layout::HEADER),
        ("DEFINITION", layout::DEFINITION),
        ("CELL", layout::CELL),
        ("RING", layout::RING),
        ("SLOT", layout::SLOT),
        ("VERSION", layout::VERSION as usize),
        ("AT_MAGIC", header::MAGIC),
        ("AT_VERSION", header::VERSION),
        ("AT_CLOCK", header::CLOCK),
        ("AT_PROCESSORS", header::PROCESSORS),
        ("AT_RECORDS", header::RECORDS),
        ("AT_DEFINITIONS", header::DEFINITIONS),
        ("AT_DEFINED", header::DEFINED),
        ("AT_STATE", header::STATE),
        ("AT_RECORDER", header::RECORDER),
        ("AT_RECORDER_BEGAN", header::RECORDER_BEGAN),
        ("AT_DUMPS", header::DUMPS),
        ("AT_ASKED", header::ASKED),
        ("AT_STOOD", header::STOOD),
        ("AT_SYSTEM", header::SYSTEM),
        ("RING_RESERVED", ring::RESERVED),
        ("RING_LOST", ring::LOST),
        ("RING_LIMIT", ring::LIMIT),
        ("DEF_STATE", definition::STATE),
        ("DEF_SWITCH", definition::SWITCH),
        ("DEF_ROLE", definition::ROLE),
        ("DEF_PARENT", definition::PARENT),
        ("DEF_NAME", definition::NAME),
        ("DEF_NAME_WORDS", definition::NAME_WORDS),
        ("DEF_MANAGER", definition::MANAGER),
        ("DEF_MANAGER_WORDS", definition::MANAGER_WORDS),
        ("DEF_FIELDS", definition::FIELDS),
        ("DEF_FIELD_COUNT", definition::FIELD_COUNT),
        ("DEF_FIELD_WORDS", definition::FIELD_WORDS),
    ];
    let mut text = String::from("#include \"refit.h\"\n#include <assert.h>\n");
    for (name, value) in numbers {
        writeln!(text, "static_assert(REFIT_{name} == {value}, \"{name}\");").expect("memory");
    }
    let magic = u64::from_le_bytes(*b"rf-sessn");
    writeln!(text, "static_assert(REFIT_MAGIC == {magic}ull, \"magic\");").expect("memory");
    text.push_str("int main(void) { return 0; }\n");
    let dir = tempfile::tempdir().expect("a directory can be made");
    compile(dir.path(), "numbers", &text);
}

/// A program that waits for a line and then records; both processes are on one processor and take
/// turns.
const PROGRAM: &str = r#"
#include "refit.h"
#include <stdio.h>
static refit_event mine = REFIT_EVENT("c", "c", REFIT_U64("turn"), REFIT_U32("half"));
static refit_event plain = REFIT_EVENT_OF(REFIT_WAIT, "c", "plain");
int main(void)
{
	int c;
	unsigned long turn = 0;
	if (!refit_attach())
		return 1;
	refit_register(&mine);
	refit_begin(&plain, 1, 2);
	while ((c = getchar()) != EOF) {
		if (c != '\n')
			continue;
		refit_record(&mine, ++turn, 7);
		putchar('\n');
		fflush(stdout);
	}
	refit_sample(&plain, 3);
	refit_end(&plain, 1, 2);
	return 0;
}
"#;

#[test]
fn records_of_c_and_rust_on_one_processor_are_in_one_order() {
    const ROUNDS: u64 = 50;
    let dir = tempfile::tempdir().expect("a directory can be made");
    for program in compile(dir.path(), "program", PROGRAM) {
        let path = dir.path().join("trace");
        let turn = Turn::begin(1 << 20);
        let recorder = Recorder::start(turn.session, &path, Options::default()).expect("it starts");
        take_turns(&program, turn.session.path().as_path(), ROUNDS);
        let end = recorder.stop().end;
        assert_eq!((end.lost_full, end.lost_torn), (0, 0));

        let trace = Trace::read(&path);
        trace.check();
        let [ours, theirs] = [trace.id("rust"), trace.id("c")];
        let expected = (1..=ROUNDS).flat_map(|turn| [(ours, turn), (theirs, turn)]);
        let both = trace.records().into_iter().filter(|r| [ours, theirs].contains(&r.what.id()));
        // In the order of the file, since neither side is sorted by time.
        assert!(both.clone().map(|r| (r.what.id(), r.payload[0])).eq(expected), "{program:?}");
        let threads: std::collections::BTreeSet<u32> = both.map(|r| r.thread).collect();
        assert_eq!(threads.len(), 2);
        let of_c = trace.definitions.iter().find(|d| d.name == "c").expect("it is there");
        let fields: Vec<&str> = of_c.fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!((of_c.manager.as_str(), fields), ("c", vec!["turn", "half"]));
        let plain = trace.id("plain");
        let plain = trace.records().into_iter().filter(|r| r.what.id() == plain);
        assert_eq!(plain.count(), 3);
    }
}

/// Lets both run on the processor to which a separate thread binds itself.
fn take_turns(program: &Path, session: &Path, rounds: u64) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use std::io::{BufRead, BufReader, Write};
            bind_here();
            let mut child = Command::new(program)
                .env(refit_instruments::session::VARIABLE, session)
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .expect("it can be run");
            let mut to = child.stdin.take().expect("it is a pipe");
            let mut from = BufReader::new(child.stdout.take().expect("it is a pipe"));
            for turn in 1..=rounds {
                TURNS.record([turn, 0]);
                writeln!(to).expect("it reads");
                from.read_line(&mut String::new()).expect("it writes");
            }
            drop(to);
            assert!(child.wait().expect("it ends").success());
        });
    });
}
