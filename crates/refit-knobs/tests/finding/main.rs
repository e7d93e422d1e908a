//! Constants of a compiled program are found with their uses and risks, and set while it runs.

mod victim;

use refit_analysis::Module;
use refit_knobs::arguments::Direction;
use refit_knobs::set::check;
use refit_knobs::{Error, Escape, Knob, Risk, Use, current, find, locate, set, unset};
use refit_splice::remains;

use victim::{Victim, built};

fn module() -> Module {
    Module::open(built()).expect("a program")
}

/// Returns the knobs of a function with this number.
fn with(module: &Module, function: &str, value: i64) -> Vec<Knob> {
    let mut found = find::find(module, &module.find(function));
    found.retain(|knob| knob.value == value);
    found
}

fn one(module: &Module, function: &str, value: i64) -> Knob {
    let mut found = with(module, function, value);
    assert_eq!(found.len(), 1, "{function}: {found:?}");
    found.remove(0)
}

#[test]
fn uses_and_risks_are_those_of_the_source() {
    let module = module();
    let spins = one(&module, "spins", 200);
    assert!(matches!(spins.usage, Use::Spin(_)), "{spins:?}");
    assert!(spins.risks.is_empty() && spins.escapes.is_empty(), "{spins:?}");
    // It leaves its counter in the same register as `waits`, but its caller uses that.
    assert_eq!(one(&module, "left", 900).risks, [Risk::Returned]);
    assert!(one(&module, "waits", 700).risks.is_empty());
    assert_eq!(one(&module, "walks", 96).risks, [Risk::Walks]);
    let rounds = one(&module, "rounds", 64);
    assert!(matches!(rounds.usage, Use::Loop(_)), "{rounds:?}");
    assert!(rounds.risks.is_empty() && spins.score > rounds.score, "{rounds:?}");
    let limited = one(&module, "limited", 5000);
    assert!(matches!(limited.usage, Use::Limit(_)) && limited.risks.is_empty(), "{limited:?}");
    let reads = one(&module, "reads", 4096);
    let (function, direction) = ("read".into(), Some(Direction::Less));
    let argument = Use::Argument { function, number: 3, direction };
    assert!(reads.usage == argument && reads.risks.is_empty(), "{reads:?}");
    assert_eq!(one(&module, "listens", 2500).risks, [Risk::Passed("listen".into())]);
    let four = with(&module, "four", 4);
    let passed = four.iter().find(|knob| matches!(knob.usage, Use::Argument { .. }));
    let risks = &passed.expect("an argument").risks;
    assert!(matches!(&risks[..], [Risk::Related(at)] if at.len() == 1), "{risks:?}");
    assert_eq!(one(&module, "stores", 77777).escapes, [Escape::Stored]);
    assert_eq!(one(&module, "returns", 4242).escapes, [Escape::Returned]);
    assert_eq!(one(&module, "equal", 314).risks, [Risk::Identity]);
    let bounded = one(&module, "bounded", 119);
    assert_eq!(bounded.risks, [Risk::Guards]);
    let related = one(&module, "related", 7000);
    assert!(matches!(&related.risks[..], [Risk::Related(at)] if at.len() == 1), "{related:?}");
}

#[test]
fn a_web_has_all_instructions_with_its_number() {
    let module = module();
    assert_eq!(one(&module, "chosen", 6400).risks, [Risk::Merged]);
    let twice = one(&module, "twice", 6400);
    assert_eq!(twice.immediates.len(), 2);
    assert!(twice.risks.is_empty() && twice.escapes.is_empty(), "{twice:?}");
}

#[test]
fn knobs_are_found_by_name_and_by_address() {
    let module = module();
    let spins = one(&module, "spins", 200);
    let name = spins.name.parse().expect("a name");
    assert_eq!(locate(&module, &name).expect("there"), spins);
    let short = spins.name.strip_suffix(":spin").expect("a use").parse().expect("a name");
    assert_eq!(locate(&module, &short).expect("there"), spins);
    let address = format!("{:#x}", spins.address()).parse().expect("an address");
    assert_eq!(locate(&module, &address).expect("there"), spins);
    let wanted = spins.name.replace(":spin", ":limit").parse().expect("a name");
    let told = locate(&module, &wanted).expect_err("another use").to_string();
    assert!(told.contains(&spins.name), "{told}");
    let wanted = "spin+0x1".parse().expect("a name");
    let told = locate(&module, &wanted).expect_err("no function").to_string();
    assert!(told.contains("no function spin; there are spins"), "{told}");
}

#[test]
fn numbers_that_do_not_fit_are_refused() {
    let module = module();
    let refused = |function, value, number, unchecked| {
        check(&one(&module, function, value), number, unchecked).expect_err("refused")
    };
    assert!(matches!(refused("small", 50, 500, true), Error::Range { greatest: 127, .. }));
    assert!(matches!(refused("rounds", 64, 0, true), Error::Endless { .. }));
    assert!(matches!(refused("threes", 3000, 3001, true), Error::Endless { .. }));
    assert!(matches!(refused("stores", 77777, 1, true), Error::Escapes { .. }));
    assert!(matches!(refused("bounded", 119, 125, false), Error::Unchecked { .. }));
    assert!(matches!(refused("reads", 4096, 8192, false), Error::Direction { .. }));
    for (function, value, number, unchecked) in [
        ("rounds", 64, 127, false),
        ("threes", 3000, 3003, false),
        ("bounded", 119, 100, true),
        ("reads", 4096, 1024, false),
        ("stores", 77777, 77777, false),
    ] {
        let checked = check(&one(&module, function, value), number, unchecked);
        assert!(checked.is_ok() || function == "stores", "{function}: {checked:?}");
    }
}

#[test]
fn a_running_program_does_what_is_set_and_is_as_before_afterwards() {
    let module = module();
    let mut victim = Victim::start();
    let (program, bias) = (victim.program(), victim.bias(&module));
    let before = victim.code();
    for (ask, function, value, number, plain, changed) in [
        ("p", "waits", 700, 33, "700", "33"),
        ("r", "rounds", 64, 100, "64", "100"),
        ("t", "threes", 3000, 30, "1498500", "135"),
        ("l 6000", "limited", 5000, 6000, "1", "-1"),
        ("w 6500", "twice", 6400, 7000, "10", "11"),
        ("w 6501", "twice", 6400, 7000, "10", "11"),
    ] {
        let knob = one(&module, function, value);
        assert_eq!(victim.ask(ask), plain);
        assert_eq!(current(&program, bias, &knob), Some(value));
        let done = set(&program, (&module, bias), &knob, number, false).expect("set");
        assert_eq!(done.before, Some(value));
        assert_eq!(victim.ask(ask), changed);
        assert_eq!(current(&program, bias, &knob), Some(number));
        // What is set already is not set again; what the file has is unset.
        set(&program, (&module, bias), &knob, number, false).expect("set");
        assert_eq!(remains::find(&program).expect("one").len(), 1);
        set(&program, (&module, bias), &knob, value, false).expect("unset");
        assert!(!unset(&program, bias, &knob).expect("nothing"));
        assert_eq!(victim.ask(ask), plain);
    }
    assert_eq!(victim.code(), before);
    assert!(remains::find(&program).expect("none").is_empty());
}

#[test]
fn all_functions_of_large_files_are_read() {
    for path in ["/bin/bash", "/proc/self/exe"] {
        let module = Module::open(path).expect("a program");
        let all: Vec<_> =
            (0..module.functions().len() as u32).map(refit_analysis::FunctionId).collect();
        let found = find::find(&module, &all);
        assert!(found.len() > 100, "{}", found.len());
        for knob in &found {
            assert!(knob.score <= 100 && !knob.immediates.is_empty(), "{knob:?}");
            let first = knob.immediates[0];
            let bytes = module.bytes(first.address, usize::from(first.bytes)).expect("its bytes");
            assert_eq!(first.decode(bytes), Some(knob.value), "{knob:?}");
        }
    }
}
