//! Static tracepoints are watched where the program has them, with their arguments.

use std::path::Path;
use std::sync::OnceLock;

use super::kept::{texts, watch};
use super::victim::{Built, Victim, build};
use refit_probe::script::Script;
use refit_probe::watch::prepare;
use refit_splice::remains;

fn program() -> &'static Path {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| build("cc", "probing/tracepoints.c", &["-g"])).path()
}

#[test]
fn arguments_are_where_the_tracepoint_says() {
    let mut victim = Victim::of(program());
    let watch = watch(
        &victim,
        r#"usdt:victim:app:plain /arg0 < 0 && (u8)arg1 == 42/ {
    printf("%d %d %d %s %d %d %d", arg0, arg1, arg2, str(arg3), arg4, arg5, arg7);
    printf("%s %d", probe, *(arg3 + 1) & 0xff), poison
}"#,
    );
    victim.ask("plain");
    let wanted = ["-5 42 -300 a text -3 -7 251", "usdt:victim:app:plain 32"];
    assert_eq!(texts(&watch), wanted);
    watch.remove(&victim.program()).expect("removed");
}

#[test]
fn a_semaphore_is_raised_while_somebody_listens() {
    let mut victim = Victim::of(program());
    let before = victim.traces();
    let probe = r#"usdt:victim:guarded { printf("%d %s", ((struct item *)arg0)->number, ((struct item *)arg0)->name) }"#;
    let first = watch(&victim, probe);
    assert_eq!(victim.ask("guarded").trim(), "1");
    assert_eq!(texts(&first), ["4711 an item"]);
    let second = watch(&victim, "usdt:victim:app:also, usdt:victim:twice { @ = count() }");
    assert_eq!(victim.ask("guarded").trim(), "2");
    drop(second);
    // Repair finds the areas of both, and lowers what each has raised.
    let removed = remains::repair(&victim.program()).expect("repaired");
    assert_eq!((removed.kept, victim.ask("guarded").trim()), (0, "0"));
    drop(first);
    assert_eq!(victim.traces(), before);
}

#[test]
fn every_place_of_a_tracepoint_is_watched() {
    let mut victim = Victim::of(program());
    let watch = watch(&victim, r#"usdt:victim:app:tw?ce { printf("%d", arg0) }"#);
    assert_eq!(watch.watched.len(), 2);
    victim.ask("twice");
    assert_eq!(texts(&watch), ["10", "11"]);
    watch.remove(&victim.program()).expect("removed");
}

#[test]
fn arguments_on_the_stack_have_numbers() {
    let mut victim = Victim::of(program());
    let watch = watch(&victim, r#"uprobe:victim:t_many { printf("%d %d", arg6, (i32)arg7) }"#);
    victim.ask("many");
    assert_eq!(texts(&watch), ["7 -8"]);
    watch.remove(&victim.program()).expect("removed");
}

#[test]
fn what_a_tracepoint_does_not_have_is_told() {
    let victim = Victim::of(program());
    for (probe, what) in [
        (
            "usdt:victim:app:none { count }",
            "no static tracepoint is called app:none; there is: app:also, app:guarded, app:plain, app:twice",
        ),
        ("usdt:victim:other:plain { count }", "no static tracepoint is called other:plain"),
        ("usdt:victim:plain { @ = sum(arg6) }", "`arg6`: it is in no general register"),
        ("usdt:victim:plain { @ = sum(arg9) }", "`arg9`: the tracepoint has 8 arguments"),
    ] {
        let script: Script = probe.parse().unwrap_or_else(|what| panic!("{what}"));
        let error = prepare(&victim.program(), &script.probes, None).expect_err(probe).to_string();
        assert!(error.contains(what), "{probe}: {error}");
    }
    for (probe, what) in [
        (
            "usdt:victim:plain, uprobe:victim:t_many { count }",
            "static tracepoints and other places",
        ),
        ("usdt:victim:plain { latency }", "needs functions"),
        ("usdt:victim:plain { @ = sum(retval) }", "needs functions"),
        ("usdt:victim:plain { @ = sum(args->x) }", "needs the entry of a function"),
    ] {
        let error = probe.parse::<Script>().expect_err(probe).to_string();
        assert!(error.contains(what), "{probe}: {error}");
    }
}
