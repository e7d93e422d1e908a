//! A C program is built with make on the mount, and run there and on the host, while the caches of
//! its files are swapped.
//!
//! The test has a file of its own, and the builds run one after the other. A program cannot be
//! executed while it is open for writing, and a process that another test starts inherits all
//! descriptors of this one until it executes its own program.

use refit_acceptance::{CacheMode, Limit, Pace, Random, Served, possible, run, tool};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const LIMIT: Limit = Limit(std::time::Duration::from_secs(180));

fn make_in(make: &Path, directory: &Path, arguments: &[&str]) -> String {
    run(Command::new(make).current_dir(directory).args(arguments), "", LIMIT).success()
}

fn output_of(program: &Path) -> String {
    run(&mut Command::new(program), "", LIMIT).success()
}

const SOURCES: u64 = 60;

/// Returns the files below a directory that this process has open.
fn open_below(directory: &Path) -> Vec<PathBuf> {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let files = descriptors.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
    files.filter(|file| file.starts_with(directory)).collect()
}

/// Creates a program of many sources whose output depends on each of them; returns the output.
fn project(directory: &Path) -> String {
    fs::create_dir_all(directory).unwrap();
    let mut random = Random::new(3);
    let (mut header, mut calls, mut expected) = (String::new(), String::new(), String::new());
    let mut value = 1u32;
    for source in 0..SOURCES {
        let (factor, addend) = (random.below(1000) as u32 | 1, random.below(1000) as u32);
        let body = format!(
            "#include \"all.h\"\n#include <stdio.h>\n#include <stdlib.h>\n\
             uint32_t step{source}(uint32_t x) {{ return x * {factor}u + {addend}u; }}\n"
        );
        fs::write(directory.join(format!("step{source}.c")), body).unwrap();
        writeln!(header, "uint32_t step{source}(uint32_t);").unwrap();
        writeln!(calls, "  x = step{source}(x); printf(\"%u\\n\", x);").unwrap();
        value = value.wrapping_mul(factor).wrapping_add(addend);
        writeln!(expected, "{value}").unwrap();
    }
    fs::write(directory.join("all.h"), format!("#include <stdint.h>\n{header}")).unwrap();
    let main = format!(
        "#include \"all.h\"\n#include <stdio.h>\nint main(void) {{\n  uint32_t x = 1;\n{calls}  return 0;\n}}\n"
    );
    fs::write(directory.join("main.c"), main).unwrap();
    let makefile = "OBJECTS := $(patsubst %.c,%.o,$(wildcard *.c))\n\
        program: libsteps.a main.o\n\tcc -o $@ main.o -L. -lsteps\n\
        libsteps.a: $(filter-out main.o,$(OBJECTS))\n\tar rcs $@ $^\n\
        %.o: %.c all.h\n\tcc -O1 -g -c -o $@ $<\n";
    fs::write(directory.join("Makefile"), makefile).unwrap();
    expected
}

fn build(name: &str, cache: CacheMode) {
    let tools = || Some((tool("make")?, tool("cc")?, tool("ar")?));
    let Some((make, _, _)) = possible().then(tools).flatten() else { return };
    let mut served = Served::new(name, cache, 2 << 20);
    let storm = served.storm(Pace::EachMillisecond);
    let directory = served.path("project");
    let expected = project(&directory);
    make_in(&make, &directory, &["--silent", "-j2"]);
    let program = directory.join("program");
    assert_eq!(output_of(&program), expected);
    // The times are right: make has nothing to do, and after one change it has.
    assert!(make_in(&make, &directory, &["-j2"]).contains("up to date"));
    let changed = fs::read_to_string(directory.join("step7.c")).unwrap() + "/* changed */\n";
    fs::write(directory.join("step7.c"), changed).unwrap();
    let output = make_in(&make, &directory, &["-j2"]);
    assert!(output.contains("step7.c") && !output.contains("step8.c"), "{output}");
    assert_eq!(output_of(&program), expected);
    storm.stop();
    served.unmount();
    let open = open_below(served.scratch());
    assert!(open.is_empty(), "still open after unmounting: {open:?}");
    assert_eq!(output_of(&served.host("project/program")), expected);
}

#[test]
fn make_builds_a_program() {
    build("build-kernel", CacheMode::Kernel);
    build("build-direct", CacheMode::Direct);
}
