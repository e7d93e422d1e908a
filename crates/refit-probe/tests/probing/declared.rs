//! Structures that a script declares are read as it says, and numbers that are added to addresses
//! count what these point to.

use std::path::Path;
use std::process::Command;

use super::members::{messages, programs, refused};

/// The structures of the program, in words of their own.
const DECLARED: &str = r#"
typedef unsigned char byte;
enum hue { NONE, BLUE = 700 };
struct chain {
    struct chain *next; char label[16]; unsigned flag : 3; int sign : 5; unsigned long wide : 40;
    short table[2][3]; union { int number; byte bytes[4]; }; double d; enum hue hue;
    const char *text; struct tail *tail;
};
struct tail { signed char small; unsigned short middle; struct chain *chains[3]; }
"#;

/// Calls `with` for the program with debug information, and without any.
fn with_and_without(with: impl Fn(&Path)) {
    let [program, _] = programs();
    with(program);
    let folder = tempfile::tempdir().expect("a folder");
    let bare = folder.path().join("victim");
    let strip = Command::new("strip").arg("-g").arg("-o").args([&bare, program]).status();
    assert!(strip.expect("binutils").success());
    with(&bare);
}

#[test]
fn declared_members_are_read_with_and_without_debug_information() {
    with_and_without(|program| {
        let wanted = |arguments: &str, wanted: [&str; 2]| {
            let conversions = vec!["%d"; arguments.split(", ").count()].join(" ");
            let probe = format!(
                "{DECLARED} uprobe:victim:t_list {{ $c = (struct chain *)arg0; printf(\"{conversions}\", {arguments}), poison }}"
            );
            assert_eq!(messages(program, &probe, "list"), wanted, "{arguments}");
        };
        wanted("$c->flag, $c->sign, $c->wide", ["2 15 1", "5 -7 78187493530"]);
        wanted(
            "$c->number, $c->bytes[3], $c->table[1][2], $c->hue",
            ["7 0 0 0", "-1000 255 -6 700"],
        );
        wanted("$c->hue == BLUE, (enum hue)arg3 == NONE, (byte)arg1", ["0 0 254", "1 1 1"]);
        wanted(
            "sizeof($c->table), sizeof(*$c), sizeof(struct chain), sizeof($c->tail)",
            ["12 80 80 8", "12 80 80 8"],
        );
        wanted(
            "sizeof(arg1), sizeof((u16)arg1), sizeof(arg1 + 1), sizeof($c->tail->middle)",
            ["8 2 8 2", "8 2 8 2"],
        );
        wanted(
            "offsetof(struct chain,table), offsetof(*$c,text) - offsetof(struct chain,number)",
            ["30 20", "30 20"],
        );
        wanted("$c->tail ? $c->tail->chains[2]->number : 3", ["-1000", "3"]);
    });
}

#[test]
fn own_definitions_are_meant_in_place_of_those_of_the_file() {
    let [program, _] = programs();
    // Other words for the same bytes, reached through the types of the file.
    let probe = "struct list { long first; char name[8], rest[8]; }
        uprobe:victim:t_list { printf(\"%s %s %d\", args->list->rest, args->list->name,
            (args->list + 1) - args->list) }";
    let said = messages(program, probe, "list");
    assert_eq!(said[0], "letters fifteen letters 24");
    let error = refused(
        program,
        "struct list { long first; } uprobe:victim:t_list { @ = sum(args->list->flag) }",
    );
    assert!(error.contains("no member `flag`; it has: first"), "{error}");
    // What is only named is the file's own.
    let probe = "struct holder { struct list *list; int (*call)(void); };
        uprobe:victim:t_list { $h = (struct holder *)arg0; printf(\"%s\", $h->list->name) }";
    assert_eq!(messages(program, probe, "list"), ["second", "(bad address 0x8)"]);
    let error = refused(program, &probe.replace("->name", "->nome"));
    assert!(error.contains("no member `nome`; it has: next, name"), "{error}");
    with_and_without(|program| {
        let probe =
            "struct a { struct b *b; }; uprobe:victim:t_list { @ = sum(((struct a *)arg0)->b->x) }";
        let error = refused(program, probe);
        assert!(error.contains("no type `struct b`") || error.contains("not declare"), "{error}");
    });
}

#[test]
fn maps_keep_the_types_of_addresses() {
    let probe =
        |text: &str| format!("uprobe:victim:t_list {{ @l[tid] = args->list; @n = arg1 }} {text}");
    for program in programs() {
        let wanted = |text: &str, wanted: [&str; 2]| {
            assert_eq!(messages(program, &probe(text), "list"), wanted, "{text}");
        };
        wanted(
            "uretprobe:victim:t_list { $l = @l[tid]; printf(\"%d %s %d %d\", @l[tid]->flag,
                @l[tid]->name, $l->color, (u64)(@l[tid] + 1) - (u64)$l), poison }",
            ["2 fifteen letters 0 80", "5 second 700 80"],
        );
        // Also from one map to another, and by what is added.
        wanted(
            "uretprobe:victim:t_list { @s[tid] = (short *)&@l[tid]->table; @s[tid] += 2; @s[tid]++;
                @s[tid] -= 1; @n++; @o = @s[tid];
                printf(\"%d %d %d %d\", *@o, sizeof(*@o), *(@s[tid] - 1), (i32)@n), poison }",
            ["0 2 0 -1", "3 2 2 2"],
        );
    }
    let [program, _] = programs();
    let error = refused(program, &probe("uretprobe:victim:t_list { @l[tid] = (short *)retval }"));
    let wanted =
        "cannot use the map @l: it keeps `struct list *` in one place, and `i16 *` in another";
    assert!(error.contains(wanted), "{error}");
}

#[test]
fn numbers_that_are_added_to_addresses_count_what_these_point_to() {
    for program in programs() {
        let wanted = |arguments: &str, wanted: [&str; 2]| {
            let conversions = vec!["%d"; arguments.split(", ").count()].join(" ");
            let probe = format!(
                "uprobe:victim:t_list {{ $l = args->list; $s = (short *)&$l->table; $n = $l + 2; $s++; $s += 2;
                    printf(\"{conversions}\", {arguments}), poison }}"
            );
            assert_eq!(messages(program, &probe, "list"), wanted, "{arguments}");
        };
        // `struct list` has 80 bytes.
        wanted("(u64)(args->list + 1) - arg0, (u64)(2 + $l) - arg0", ["80 160", "80 160"]);
        wanted("(u64)($l - 3) - arg0, $n - $l, (u64)$n - arg0", ["-240 160 160", "-240 160 160"]);
        wanted("(args->list + args->index) - $l", ["-160", "80"]);
        wanted("*$s, *($s - 1), *(1 + $s), *((short *)arg0 + 18)", ["0 0 0 0", "-4 3 5 -4"]);
        wanted("(&args->list[1] - 1)->table[1][2], ($n - 2)->flag", ["0 2", "-6 5"]);
        wanted("(u64)(arg1 ? $l + 1 : 0) - arg0, arg0 + 8 - arg0", ["80 8", "80 8"]);
        wanted("(u64)((void *)arg0 + 4) - arg0, (u64)&$l->color + 1 - arg0", ["4 57", "4 57"]);
        wanted("&$l->color + 1 - $l, &$l->table[1] + 1 - $l", ["60 42", "60 42"]);
    }
    let [program, _] = programs();
    let probe = "struct other; uprobe:victim:t_list { $l = args->list; printf(\"%d %d %d %d\",
        sizeof(struct list), sizeof($l->table[0]), offsetof(struct list, name), offsetof(*$l, color)) }";
    assert_eq!(messages(program, probe, "list"), ["80 6 8 56"; 2]);
    for (number, wanted) in [
        ("sizeof(struct other)", "no type `struct other`"),
        ("sizeof(args->list->flag)", "`sizeof(args->list->flag)`: it is a bit field"),
        ("offsetof(struct list, flag)", "`offsetof(struct list, flag)`: `flag` is a bit field"),
        ("offsetof(struct list, none)", "no member `none`; it has: next"),
        ("offsetof(struct list, name.x)", "it has no members such as `x`"),
    ] {
        let error = refused(program, &format!("uprobe:victim:t_list {{ @ = sum({number}) }}"));
        assert!(error.contains(wanted), "{error}");
    }
    let error = refused(program, "uprobe:victim:t_list { @ = sum((arg1 + args->index)->color) }");
    assert!(error.contains("nothing says what type (arg1 + args->index) has"), "{error}");
    // Types of variables that consist of each other are not followed for ever.
    let doubled: String =
        (1..20).map(|at| format!("$v{at} = $v{} + $v{}; ", at - 1, at - 1)).collect();
    let probe =
        format!("uprobe:victim:t_list {{ $v0 = args->index; {doubled} printf(\"%d\", $v19) }}");
    let said = messages(program, &probe, "list");
    assert_eq!(said, [(-2 << 19).to_string(), (1 << 19).to_string()]);
}
