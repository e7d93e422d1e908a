//! Stacks that snippets walk are those that the unwinder of GCC's library finds.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use super::victim::{Built, Victim, build};
use refit_probe::reading::Reading;
use refit_probe::script::Script;
use refit_probe::spec::Spec;
use refit_probe::watch::{self, Watch};
use refit_splice::UNKNOWN_FRAME;

const SOURCE: &str = "probing/stacks.c";

fn without_frame_pointers() -> &'static Path {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| build("cc", SOURCE, &["-pthread", "-fomit-frame-pointer"])).path()
}

fn with_frame_pointers() -> &'static Path {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| build("cc", SOURCE, &["-pthread", "-fno-omit-frame-pointer"])).path()
}

fn fixed() -> &'static Path {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| build("cc", SOURCE, &["-pthread", "-static"])).path()
}

/// Watches `t_leaf`.
fn watch(victim: &Victim, key: &str) -> Watch {
    let program = victim.program();
    let spec: Spec =
        format!("uprobe:victim:t_leaf {{ @[{key}] = count() }}").parse().expect("a spec");
    let prepared = watch::prepare(&program, &[spec], None).expect("prepared");
    prepared.install(&program).expect("installed")
}

/// Returns the stacks with their counts, and the count of those without room.
fn stacks(watch: &Watch) -> (Vec<(Vec<u64>, u64)>, u64) {
    let counts = watch.read(&watch.watched[0].actions[0]).expect("read");
    let Reading::Count(others) = counts.all else { panic!("{:?}", counts.all) };
    let stacks = counts.keys.into_iter().map(|(number, reading)| {
        let Reading::Count(count) = reading else { panic!("{reading:?}") };
        (watch.stack(number).expect("read").unwrap_or_default(), count)
    });
    (stacks.collect(), others)
}

/// Has the program call `t_leaf`; returns the number of calls, and the return addresses.
fn ask(victim: &mut Victim, line: &str) -> (u64, Vec<u64>) {
    let answer = victim.ask(line);
    let mut words = answer.split_whitespace();
    let calls = words.next().and_then(|word| word.parse().ok()).expect("a number");
    (calls, words.map(|word| u64::from_str_radix(word, 16).expect("an address")).collect())
}

#[test]
fn stacks_are_those_that_unwinders_find() {
    for path in [without_frame_pointers(), with_frame_pointers(), fixed()] {
        let mut victim = Victim::of(path);
        let program = victim.program();
        let before = victim.traces();
        for line in ["down 20", "aligned 0", "sort 0", "signal 0", "elsewhere 0", "thread 0"] {
            let watch = watch(&victim, "ustack");
            let (calls, wanted) = ask(&mut victim, line);
            // What was found of the stack is kept.
            assert_eq!(ask(&mut victim, line), (calls, wanted.clone()));
            let (stacks, others) = stacks(&watch);
            watch.remove(&program).expect("removed");
            let [(stack, count)] = &stacks[..] else { panic!("{line}: {stacks:#?}") };
            assert_eq!((*count, others), (2 * calls, 0));
            let frames = watch.name_frames(stack);
            assert_eq!(frames[0].to_string(), "t_leaf+0 (victim)");
            let found = &stack[1..];
            // Those that a signal has interrupted are at the next instruction itself.
            let same = |(found, wanted): (&u64, &u64)| found == wanted || found + 1 == *wanted;
            let all = found.iter().zip(&wanted).all(same);
            assert!(all && found.len() == wanted.len(), "{line}: {stack:x?} {wanted:x?}");
            let main = frames.iter().any(|one| one.function.as_deref() == Some("main"));
            assert!(main || line.starts_with("thread"), "{frames:#?}");
        }
        assert_eq!(victim.traces(), before);
    }
}

/// Return addresses of a function that runs as a copy are those of the original.
#[test]
fn stacks_lead_through_functions_that_run_as_copies() {
    for path in [without_frame_pointers(), with_frame_pointers()] {
        let mut victim = Victim::of(path);
        let program = victim.program();
        // Some instructions have no room for a jump.
        let places = ["t_down", "t_aligned"].map(|name| {
            let each: Vec<_> =
                (1..60).map(|offset| format!("insn:victim:{name}+{offset}")).collect();
            each.join(",")
        });
        let script = format!(
            "uprobe:victim:t_leaf {{ @[ustack] = count() }} {} {{ count }} {} {{ count }}",
            places[0], places[1]
        );
        let script: Script = script.parse().expect("understood");
        let prepared = watch::prepare(&program, &script.probes, None).expect("prepared");
        let copies = prepared.lines().filter(|line| line.contains("copy of the function"));
        assert_eq!(copies.count(), 2);
        let watch = prepared.install(&program).expect("installed");
        for line in ["down 20", "aligned 0", "sort 0", "signal 0"] {
            let before = stacks(&watch).0;
            let (calls, wanted) = ask(&mut victim, line);
            let now = stacks(&watch).0.into_iter();
            let new: Vec<_> = now.filter(|one| !before.contains(one)).collect();
            let [(stack, count)] = &new[..] else { panic!("{line}: {new:x?}") };
            let same = |(found, wanted): (&u64, &u64)| found == wanted || found + 1 == *wanted;
            let all = stack[1..].iter().zip(&wanted).all(same);
            assert!(all && stack.len() == wanted.len() + 1, "{line}: {stack:x?} {wanted:x?}");
            assert_eq!(*count, calls, "{line}");
        }
        watch.remove(&program).expect("removed");
    }
}

#[test]
fn stacks_are_cut_at_their_depth() {
    let mut victim = Victim::of(without_frame_pointers());
    let program = victim.program();
    for (key, depth) in [("ustack", 127), ("ustack(3)", 3), ("ustack(1)", 1)] {
        let watch = watch(&victim, key);
        let (_, wanted) = ask(&mut victim, "down 300");
        let (stacks, _) = stacks(&watch);
        watch.remove(&program).expect("removed");
        let [(stack, 1)] = &stacks[..] else { panic!("{stacks:#?}") };
        assert_eq!(stack.len(), depth);
        let found = stack[1..].iter().map(|frame| frame + 1);
        assert!(found.eq(wanted[..depth - 1].iter().copied()), "{stack:x?} {wanted:x?}");
    }
}

#[test]
fn threads_and_handlers_that_walk_at_once_lose_nothing() {
    let mut victim = Victim::of(without_frame_pointers());
    let program = victim.program();
    let watch = watch(&victim, "ustack");
    let (calls, _) = ask(&mut victim, "busy 40000");
    let (stacks, others) = stacks(&watch);
    watch.remove(&program).expect("removed");
    assert!(calls >= 80_000, "{calls}");
    assert_eq!(stacks.iter().map(|(_, count)| count).sum::<u64>() + others, calls);
    let incomplete = stacks.iter().filter(|(stack, _)| stack.is_empty()).count();
    assert!(incomplete <= usize::from(others > 0), "a stack is complete once its thread goes on");
    for (stack, _) in stacks.iter().filter(|(stack, _)| !stack.is_empty()) {
        let lines: Vec<_> = watch.name_frames(stack).iter().map(ToString::to_string).collect();
        assert_eq!(lines[0], "t_leaf+0 (victim)");
        // A signal may arrive in code without frame descriptions.
        let whole = stack.last() != Some(&UNKNOWN_FRAME);
        assert!(whole || lines.iter().any(|line| line.starts_with("handle+")), "{lines:#?}");
    }
}

/// A program in Go; `None` if there is no compiler.
fn in_go() -> Option<Built> {
    if Command::new("go").arg("version").output().is_err() {
        println!("skipped: there is no go");
        return None;
    }
    Some(build("go", "probing/stacks.go", &["-ldflags=-s -w"]))
}

#[test]
fn nearly_every_function_of_go_is_counted() {
    let Some(built) = in_go() else { return };
    let mut victim = Victim::of(built.path());
    let program = victim.program();
    let plain = victim.ask("down 40");
    let spec: Spec = "uprobe:victim:* { count, poison }".parse().expect("a spec");
    let prepared = watch::prepare(&program, &[spec], None).expect("prepared");
    // A few of the runtime switch stacks, are no more than a breakpoint, or begin with a loop.
    let (watched, refused) = (prepared.watched.len(), &prepared.refused);
    assert!(refused.len() * 150 <= watched, "{watched} watched, not {refused:#?}");
    let watch = prepared.install(&program).expect("installed");
    for _ in 0..20 {
        assert_eq!(victim.ask("down 40"), plain);
    }
    watch.remove(&program).expect("removed");
    assert_eq!(victim.ask("down 40"), plain);
}

#[test]
fn stacks_of_goroutines_are_those_that_go_finds() {
    let Some(built) = in_go() else { return };
    let mut victim = Victim::of(built.path());
    let program = victim.program();
    let before = victim.traces();
    let spec: Spec = "uprobe:victim:main.leaf { @[ustack] = count() }".parse().expect("a spec");
    let prepared = watch::prepare(&program, &[spec], None).expect("prepared");
    let watch = prepared.install(&program).expect("installed");
    let mut wanted = Vec::new();
    for depth in [0, 3, 90] {
        let (_, addresses) = ask(&mut victim, &format!("down {depth}"));
        wanted.push(addresses);
    }
    let (mut found, others) = stacks(&watch);
    found.sort_by_key(|(stack, _)| stack.len());
    assert_eq!((found.len(), others), (3, 0), "{found:x?}");
    for ((stack, count), wanted) in found.iter().zip(&wanted) {
        // A function whose stack grows begins once more.
        assert!((1..=2).contains(count), "{count}");
        let addresses: Vec<_> = stack[1..].iter().map(|address| address + 1).collect();
        assert_eq!(addresses, *wanted, "{:#?}", watch.name_frames(stack));
    }
    let names = watch.name_frames(&found[0].0).into_iter().filter_map(|frame| frame.function);
    let names: Vec<_> = names.collect();
    assert_eq!(names, ["main.leaf", "main.down", "main.main.func1", "runtime.goexit"]);
    watch.remove(&program).expect("removed");
    assert_eq!(victim.traces(), before);
}
