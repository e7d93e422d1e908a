//! Members of structures are those that the program has.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use super::kept::{texts, watch};
use super::victim::{Built, Victim, build};
use refit_probe::script::Script;
use refit_probe::watch::prepare;

/// The program, with debug information of optimised code, and of code that is not.
pub(super) fn programs() -> [&'static Path; 2] {
    static BUILT: OnceLock<[Built; 2]> = OnceLock::new();
    let options = [&["-g"][..], &["-gdwarf-4", "-O0"]];
    let built = BUILT.get_or_init(|| options.map(|one| build("cc", "probing/members.c", one)));
    built.each_ref().map(Built::path)
}

/// Returns the messages of a probe while the program obeys a command.
pub(super) fn messages(program: &Path, probe: &str, command: &str) -> Vec<String> {
    let mut victim = Victim::of(program);
    let watch = watch(&victim, probe);
    victim.ask(command);
    let texts = texts(&watch);
    watch.remove(&victim.program()).expect("removed");
    texts
}

/// Returns why a probe is refused at its place.
pub(super) fn refused(program: &Path, probe: &str) -> String {
    let victim = Victim::of(program);
    let script: Script = probe.parse().unwrap_or_else(|what| panic!("{what}"));
    let prepared = prepare(&victim.program(), &script.probes, None);
    prepared.expect_err("refused").to_string()
}

#[test]
fn parameters_and_members_have_their_values() {
    for program in programs() {
        let wanted = |arguments: &str, wanted: [&str; 2]| {
            let conversions = vec!["%d"; arguments.split(", ").count()].join(" ");
            let probe = format!(
                "uprobe:victim:t_list {{ printf(\"{conversions}\", {arguments}), poison }}"
            );
            assert_eq!(messages(program, &probe, "list"), wanted, "{arguments}");
        };
        wanted("args->index, args->narrow, args.list->color", ["-2 -100 0", "1 100 700"]);
        wanted(
            "args->list->flag, args->list->sign, args->list->wide",
            ["2 15 1", "5 -7 78187493530"],
        );
        wanted("args->list->number + 1, args->list->bytes[3]", ["8 0", "-999 255"]);
        wanted("args->list->table[1][0], args->list->table[0][args->index & 1]", ["0 0", "-4 2"]);
        let list = "((struct list *)arg0)->table[1][2]";
        wanted(list, ["0", "-6"]);
        wanted("*(short *)(arg0 + 36), ((int16_t *)arg0)[18]", ["0 0", "-4 -4"]);
        wanted("args->later ? args->list->next == &args->later->lists[0][0] : 0", ["1", "0"]);
        wanted("args->later ? args->later->middle - args->later->small : 1", ["60003", "1"]);
        wanted("(*args->list).color, (*args->list->name) == 115", ["0 0", "700 1"]);
    }
}

#[test]
fn variables_keep_types_and_texts_are_members() {
    let probe = r#"
uprobe:victim:t_list /args->index < 0/ {
    $list = args->list;
    $next = $list->next;
    $copy = $next;
    if ($copy->color > 1) {
        $name = $copy->text;
        printf("%s %s %s", $list->name, str($copy->name, 3), str($name));
    }
    @found[str($next->name)] = count();
}
uprobe:victim:t_list { @of[args->list->color] = count(); @last = (uint8)args->narrow; printf("%d", @last) }
"#;
    for program in programs() {
        let said = messages(program, probe, "list");
        assert_eq!(said, ["fifteen letters sec.. a text", "156", "100"]);
    }
}

#[test]
fn parameters_may_be_on_the_stack() {
    let probe = r#"uprobe:victim:t_many {
    printf("%d %d %d %d %d %d %d %d %s", args->a, args->c, args->d, args->e, args->f, args->g, args->h,
        args->big.words[1], args->list->name)
}"#;
    for program in programs() {
        let said = messages(program, probe, "many");
        assert_eq!(said, ["-1 -2 -3 4000000000 -5 250 65000 -20 fifteen letters"]);
        // The room for the result is passed before them.
        let probe =
            "uprobe:victim:t_result { printf(\"%d %d\", args->number, args->list->number) }";
        assert_eq!(messages(program, probe, "result"), ["9 7"]);
    }
}

#[test]
fn what_cannot_be_read_does_no_harm() {
    let [program, _] = programs();
    let probe = r#"uprobe:victim:t_list {
    printf("%s", args->list->name);
    printf("%d", args->list->next->color);
    printf("%d", args->list->later->middle);
    printf("%d", args->list->table[args->index][0]);
    printf("over")
}"#;
    let said = messages(program, probe, "bad");
    assert_eq!(said, ["broken", "over", "(bad address 0x18)", "over"]);
}

#[test]
fn what_is_not_known_is_told() {
    let [program, _] = programs();
    let told = |argument: &str, what: &str| {
        let probe = format!("uprobe:victim:t_list {{ @ = sum({argument}) }}");
        let error = refused(program, &probe);
        assert!(error.contains(what), "{argument}: {error}");
    };
    told("args->lists", "`args->lists`: the function has no parameter of this name; it has: list,");
    told("args->list->colour", "no member `colour`; it has: next, name, flag");
    told("args->list.color", "`.color` needs a structure, and it is an address");
    told("args->list->next.color", "(write `->`)");
    told("(*args->list)->color", "(write `.` for `->`)");
    told("args->list->name", "it is an array (write str(…)");
    told("*args->list", "it is a structure; it has: next");
    told("args->list->d", "it is a floating-point number");
    told("args->d", "in a vector register");
    told("((struct lists *)arg0)->a", "has no type `struct lists`");
    told("args->index->a", "it is no pointer");
    told("args->index[0]", "it is no array and no pointer");
    told("&args->index", "a value in a register has no address");
    let error = refused(program, "uprobe:victim:t_list { $p = arg0; printf(\"%d\", $p->color) }");
    assert!(error.contains("nothing says what $p points to"), "{error}");
    let bare = tempfile::tempdir().expect("a folder");
    let bare = bare.path().join("victim");
    let strip = Command::new("strip").arg("-g").arg("-o").args([&bare, program]).status();
    assert!(strip.expect("binutils").success());
    let error = refused(&bare, "uprobe:victim:t_list { @ = sum(args->index) }");
    assert!(error.contains("victim has no debug information (install"), "{error}");
    // Numbers of C need none.
    let probe = "uprobe:victim:t_list { printf(\"%d\", *(short *)(arg0 + 36)) }";
    assert_eq!(messages(&bare, probe, "list"), ["0", "-4"]);
}
