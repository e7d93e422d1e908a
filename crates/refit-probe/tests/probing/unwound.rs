//! Unwinders find every frame while spliced code runs: at each instruction, out of faults, and out
//! of cancelled threads.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{OnceLock, mpsc};

use super::copies::blocks;
use super::stepped::steps;
use super::victim::{Built, Victim, build};
use refit_probe::drill::Files;
use refit_probe::spec::Spec;
use refit_probe::watch::{self, Watch};
use refit_probe::{finder, modules};
use refit_splice::process::Program;
use refit_splice::{Installed, Plan, remains};

const LIBUNWIND: &str = "/usr/include/x86_64-linux-gnu/libunwind.h";
const OPTIONS: [&str; 3] = ["-pthread", "-fwrapv", "-fnon-call-exceptions"];

fn moving() -> &'static Path {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| build("c++", "probing/unwound.cc", &OPTIONS)).path()
}

fn fixed() -> &'static Path {
    static BUILT: OnceLock<Built> = OnceLock::new();
    let options = [&OPTIONS[..], &["-static"]].concat();
    BUILT.get_or_init(|| build("c++", "probing/unwound.cc", &options)).path()
}

/// Returns a program with an unwinder of its own, which asks the dynamic loader.
fn own() -> &'static Path {
    static BUILT: OnceLock<Built> = OnceLock::new();
    let options = [&OPTIONS[..], &["-static-libgcc", "-static-libstdc++"]].concat();
    BUILT.get_or_init(|| build("c++", "probing/unwound.cc", &options)).path()
}

/// Returns programs that unwind with nongnu libunwind, as a library and linked into them; without
/// it, none.
fn libunwind() -> &'static [Built] {
    static BUILT: OnceLock<Vec<Built>> = OnceLock::new();
    BUILT.get_or_init(|| {
        if !Path::new(LIBUNWIND).exists() {
            println!("skipped: there is no libunwind");
            return Vec::new();
        }
        let within = ["-no-pie", "-Wl,--whole-archive", "-l:libunwind.a", "-Wl,--no-whole-archive"];
        let [dynamic, fixed] = [
            &["-Wl,--no-as-needed", "-lunwind"][..],
            &[&within[..], &["-Wl,--no-as-needed", "-llzma"]].concat(),
        ]
        .map(|library| {
            let options = [&OPTIONS[..], &["-DLIBUNWIND"], library].concat();
            build("c++", "probing/unwound.cc", &options)
        });
        vec![dynamic, fixed]
    })
}

/// Copies all functions, with a counter at each block.
fn copy(program: &Program, path: &Path) -> Installed {
    let wanted = blocks(program, path, false);
    let (mut plan, refused) = Plan::new(wanted.sites.clone());
    // Some jumps of two functions are not understood.
    assert!(refused.len() * 10 < wanted.sites.len(), "{refused:?}");
    let mut files = Files::new(program).expect("it runs");
    finder::add(program, &mut files, &mut plan);
    Installed::new(program, &plan, wanted.sites.len() as u32, None).expect("installed")
}

/// Watches the functions at their entries, with snippets that push and that need none.
fn watch(program: &Program, actions: &str) -> Watch {
    let spec: Spec = format!("uprobe:victim:*t_* {actions}").parse().expect("a spec");
    let prepared = watch::prepare(program, &[spec], None).expect("prepared");
    prepared.install(program).expect("installed")
}

/// Debug symbols, which a machine need not have, hide what is missing here.
#[test]
fn unwinders_are_found_by_names_that_every_machine_has() {
    for (path, wanted) in [
        (moving(), &[("libc.so.6", "_dl_find_object"), ("libgcc_s.so.1", "_Unwind_Find_FDE")][..]),
        (own(), &[("libc.so.6", "_dl_find_object")]),
    ] {
        let victim = Victim::of(path);
        let program = victim.program();
        let mut files = Files::new(&program).expect("it runs");
        let mut found = finder::add(&program, &mut files, &mut Plan::new(Vec::new()).0);
        found.sort();
        let found: Vec<_> = found.iter().map(|(file, function)| (&**file, *function)).collect();
        assert_eq!(found, wanted);
        for file in modules::of(&program).expect("it runs") {
            let module = file.open().expect("a program");
            let finders = wanted.iter().filter(|(name, _)| *name == file.name());
            for (_, function) in finders {
                let mut named = module.image().symbols().iter();
                assert!(named.any(|one| &*one.name == *function && one.dynamic), "{function}");
            }
        }
    }
}

#[test]
fn every_frame_is_found_at_every_instruction() {
    let usual = [moving(), fixed(), own()].map(|path| (path, 1));
    // The lookups of libunwind take longer.
    let others = libunwind().iter().map(|built| (built.path(), 4));
    for (path, nth) in usual.into_iter().chain(others) {
        let mut victim = Victim::of(path);
        let program = victim.program();
        let before = victim.traces();
        let plain = steps(&mut victim);
        assert_eq!((plain.1, plain.2), (0, 0));
        // Snippets that push nothing, that push and make calls, that read clocks, that write into
        // everything that is dead, that gather texts on the stack, and that compute there.
        let all = [
            "{ count }",
            "/ *(rsp + 8) != 1 / { count, histogram arg1, sum *(rsp), by tid }",
            "{ latency, cpu }",
            "{ histogram latency, histogram cpu, count }",
            "{ count, poison }",
            r#"{ @[str(arg0), str(*(rsp + 8), 9), comm, ustack(2)] = sum(*(rsp)) }"#,
            r#"{ $a = *(rsp + 8) / 3; if (comm == "victim" && $a) { @x[str(arg0), tid] += $a * nsecs } @y[arg0] = @x[str(arg0), tid] ? arg1 : -arg1 }"#,
            r#"{ printf("%s %d %s %s %d", str(arg1), tid, comm, ustack(3), *(rsp + 8)), count, by cpu }"#,
        ];
        for actions in all.into_iter().step_by(nth) {
            let watch = watch(&program, actions);
            let (sum, elsewhere, wrong) = steps(&mut victim);
            assert_eq!((sum, wrong), (plain.0.clone(), 0), "{actions}");
            assert!(elsewhere > 400, "{elsewhere}");
            watch.remove(&program).expect("removed");
        }
        let installed = copy(&program, path);
        let (sum, elsewhere, wrong) = steps(&mut victim);
        assert_eq!((sum, wrong), (plain.0.clone(), 0));
        assert!(elsewhere > 4000, "{elsewhere}");
        remains::repair(&program).expect("taken out");
        drop(installed);
        assert_eq!(steps(&mut victim), plain);
        assert_eq!(victim.traces(), before);
    }
}

/// With a C library that lacks `_dl_find_object`, GCC's unwinder is in the program itself.
#[test]
fn every_frame_is_found_with_another_c_library() {
    if Command::new("musl-gcc").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("skipped: there is no musl-gcc");
        return;
    }
    for linked in ["-pie", "-static"] {
        let options = [
            "-DNO_LOADER",
            "-fasynchronous-unwind-tables",
            "-Wl,--eh-frame-hdr",
            "-Wl,-u,_Unwind_Backtrace,-u,_Unwind_GetIP,-u,_Unwind_GetCFA",
            "-lgcc_eh",
            linked,
        ];
        let built = build("musl-gcc", "probing/handled.c", &options);
        let mut victim = Victim::of(built.path());
        let program = victim.program();
        let before = victim.traces();
        let plain = steps(&mut victim);
        assert_eq!((plain.1, plain.2), (0, 0));
        for actions in ["{ count }", "{ latency, histogram arg0 }", "{ count, poison }"] {
            let watch = watch(&program, actions);
            let (sum, elsewhere, wrong) = steps(&mut victim);
            assert_eq!((sum, wrong), (plain.0.clone(), 0), "{actions}");
            assert!(elsewhere > 400, "{elsewhere}");
            watch.remove(&program).expect("removed");
        }
        assert_eq!(victim.traces(), before);
    }
}

/// A handler that has interrupted spliced code has found its description, and may read it at any
/// time until it returns, also when the code is being taken out.
#[test]
fn a_handler_that_unwinds_keeps_what_it_reads() {
    let mut victim = Victim::of(moving());
    let program = victim.program();
    let before = victim.traces();
    let result = format!("{}: 0 other descriptions", steps(&mut victim).0);
    // At the long half of a jump, and in the code that finds descriptions.
    for place in ["stay 1", "stay 3"] {
        let watch = watch(&program, "{ count }");
        assert_eq!(victim.ask(place), "there");
        watch.remove(&program).expect("removed");
        assert_eq!(victim.line(), result);
        assert_eq!(victim.traces(), before);
    }
    let installed = copy(&program, moving());
    assert_eq!(victim.ask("stay 2"), "there");
    remains::repair(&program).expect("taken out");
    drop(installed);
    assert_eq!(victim.line(), result);
    assert_eq!(victim.traces(), before);
}

/// So does a thread that has reached an area in libunwind's list, whatever it looks for.
#[test]
fn a_search_of_libunwind_keeps_what_it_reads() {
    for built in libunwind() {
        let mut victim = Victim::of(built.path());
        let program = victim.program();
        let before = victim.traces();
        let result = format!("{}: 0 other descriptions", steps(&mut victim).0);
        let watch = watch(&program, "{ count }");
        assert_eq!(victim.ask("stay 4"), "there");
        watch.remove(&program).expect("removed");
        assert_eq!(victim.line(), result);
        assert_eq!(victim.traces(), before);
    }
}

#[test]
fn faults_and_cancellations_unwind_copies() {
    for path in [moving(), fixed(), own()].into_iter().chain(libunwind().iter().map(Built::path)) {
        let mut victim = Victim::of(path);
        let program = victim.program();
        let plain = ["throw 100", "cancel 50"].map(|what| victim.ask(what));
        let installed = copy(&program, path);
        assert_eq!(["throw 100", "cancel 50"].map(|what| victim.ask(what)), plain);
        remains::repair(&program).expect("taken out");
        drop(installed);
        assert_eq!(["throw 100", "cancel 50"].map(|what| victim.ask(what)), plain);
    }
}

/// Has gdb step through the program; returns its last line, and the program's result.
fn walked(victim: &mut Victim) -> (Vec<u64>, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/probing/walk.py");
    let mut gdb = Command::new("gdb")
        .args(["-nx", "-batch", "-p", &victim.program().id().to_string(), "-x"])
        .arg(script)
        .stdout(Stdio::piped())
        .spawn()
        .expect("gdb");
    let output = BufReader::new(gdb.stdout.take().expect("a pipe"));
    // gdb tells of each step, also while this test waits for the program.
    let (told, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in output.lines() {
            // The test has found what it waits for.
            let _ = told.send(line.expect("text"));
        }
    });
    let mut said = Vec::new();
    let mut line = |wanted: &str| loop {
        let Ok(line) = lines.recv() else { panic!("{wanted}: {said:#?}") };
        if line.contains(wanted) {
            break line;
        }
        said.push(line);
    };
    line("ready");
    let result = victim.ask("walk 3");
    let steps = line(" steps, ");
    assert!(gdb.wait().expect("it ends").success());
    (steps.split_whitespace().filter_map(|word| word.parse().ok()).collect(), result)
}

#[test]
fn debuggers_find_every_frame_by_name() {
    let mut victim = Victim::of(moving());
    let program = victim.program();
    let before = victim.traces();
    let (plain, result) = walked(&mut victim);
    let [_, 0, 0] = plain[..] else { panic!("{plain:?}") };
    let watch = watch(&program, "/ arg0 != 5 / { count, histogram arg0 }");
    let (counted, same) = walked(&mut victim);
    assert_eq!((counted[2], &same), (0, &result));
    assert!(counted[1] > 200, "{counted:?}");
    watch.remove(&program).expect("removed");
    let installed = copy(&program, moving());
    let (copied, same) = walked(&mut victim);
    assert_eq!((copied[2], &same), (0, &result));
    assert!(copied[1] > 200, "{copied:?}");
    // As it is when refit has been killed: nothing of it has the files of the areas open.
    drop(installed);
    let (left, same) = walked(&mut victim);
    assert_eq!(same, result);
    if rustix::process::geteuid().is_root() {
        assert_eq!(left, copied);
    } else {
        println!("skipped: only root can open what is mapped into the program");
    }
    remains::repair(&program).expect("taken out");
    assert_eq!(walked(&mut victim), (plain, result));
    assert_eq!(victim.traces(), before);
}
