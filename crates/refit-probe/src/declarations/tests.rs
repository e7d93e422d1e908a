//! Declarations are understood as a compiler does, and what is wrong with them is told where it is.

use std::fmt::Write as _;
use std::process::Command;

use refit_analysis::image::Image;
use refit_analysis::types::{Kind, Types};

use super::declared::{Declarations, Type};
use super::parse::parse;
use super::tokens::Wrong;

fn parsed(text: &str) -> Declarations {
    parse(text).unwrap_or_else(|Wrong { at, what }| panic!("{}: {what}", &text[at])).0
}

/// Compares all members of structures with what a compiler says in its debug information.
fn compare(source: &str, names: &[String]) {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = format!("{source}\nstatic char x; char *use = &x;\n");
    let used = names.iter().map(|name| format!("struct {name} *use_{name};\n"));
    let whole = used.fold(whole, |whole, line| whole + &line);
    std::fs::write(folder.path().join("a.c"), whole).expect("written");
    let mut cc = Command::new("cc");
    cc.args(["-w", "-g", "-shared", "-o", "a.so", "a.c"]).current_dir(folder.path());
    assert!(cc.status().expect("a compiler").success(), "{source}");
    let image = Image::open(&folder.path().join("a.so")).expect("an ELF file");
    let types = Types::of(&image).expect("debug information");
    let declared = parsed(source);
    for name in names {
        let known = types.named(Some(Kind::Structure), name).expect("known to the compiler");
        let Some(of @ Type::Structure(index)) = declared.named(Some(Kind::Structure), name) else {
            panic!("{name} is declared");
        };
        assert_eq!(declared.size(&of), types.size(known), "{name} of {source}");
        for member in declared.members(index) {
            let found = declared.member(index, &member).expect("a member");
            let Some(there) = types.member(known, &member) else {
                // A packed bit field in two units, which debug information is not read for.
                assert!(found.bits.is_some(), "{name}.{member} of {source}");
                continue;
            };
            let bit = |offset: u64, bits: Option<refit_analysis::types::Bits>| {
                (offset * 8 + bits.map_or(0, |bits| bits.first.into()), bits.map(|bits| bits.count))
            };
            let places = (bit(found.offset, found.bits), bit(there.offset, there.bits));
            assert_eq!(places.0, places.1, "{name}.{member} of {source}");
            if found.bits.is_none() {
                let size = types.size(there.of).unwrap_or(0);
                assert_eq!(declared.size(&found.of), Some(size), "{name}.{member}");
            }
        }
    }
}

#[test]
fn members_are_where_a_compiler_puts_them() {
    let source = r#"
        typedef unsigned char byte, *bytes;
        enum color { RED, BLUE = 1 << 9, LAST };
        struct later;
        struct request {
            int a; char *uri; struct { short x; byte y; } b; int arr[LAST - 510];
            const struct request *volatile next; struct later *later;
            int (*call)(int, char *), (*table[2])[3];
            union { long number; struct { byte low, high; }; };
            enum color color; double d; long double wide; _Bool yes; unsigned long long int big;
            char matrix[2][3]; bytes text; enum { A = -1, B } e; unsigned short int tail[];
        };
        struct packed { char a; int b; struct request *c; } __attribute__((__packed__));
        struct mixed { char a; int b __attribute__((packed)); char c __attribute__((aligned(32))); };
        struct __attribute__((aligned(64))) line { char a; };
        struct within { char a; struct line b; union { char c; long d; } u[3]; };
        struct empty { };
        struct bits { unsigned a : 3; int : 0; signed b : 5; unsigned long c : 40, d : 40; char e; short f : 9; };
        struct alone { int : 5; char c; };
    "#;
    let names = "request packed mixed line within empty bits alone";
    let names: Vec<String> = names.split(' ').map(str::to_owned).collect();
    compare(source, &names);
    let declared = parsed(source);
    assert_eq!(declared.replace_constants("arg0 == BLUE"), "arg0 == 512");
    assert_eq!(declared.named(None, "color"), Some(Type::Number { bytes: 4, signed: false }));
    assert_eq!(declared.named(Some(Kind::Union), "request"), None);
    assert_eq!(declared.named(Some(Kind::Structure), "later"), None);
    let byte = Type::Number { bytes: 1, signed: false };
    assert_eq!(declared.named(None, "bytes"), Some(Type::Pointer(Box::new(byte))));
}

#[test]
fn constants_and_sizes_are_known_before_a_program_runs() {
    let source = r#"
        #define BITS 3 /* none */
        #define SIZE (1 << BITS \
            | 1)
        #define _GNU_SOURCE
        #define SIZE 9
        typedef struct { char tag[SIZE]; struct { int code; unsigned low : BITS; } in; } item;
        #define IN offsetof(item, in)
        struct list { item *first; char rest[64 - sizeof(item *) - IN]; };
    "#;
    let declared = parsed(source);
    for (text, replaced) in [
        ("SIZE + sizeof(struct list) * 2 ", "9 + 56 * 2 "),
        ("offsetof( item , in.code )+IN", "12+12"),
        ("sizeof(item) sizeof (item *) sizeof(unsigned long)", "20 8 8"),
    ] {
        assert_eq!(declared.replace_constants(text), replaced);
    }
    for same in [
        "sizeof(struct other)",
        "sizeof(arg0)",
        "offsetof(item, in.low)",
        "offsetof(item, none)",
        "offsetof(item)",
        "\"sizeof(int)\"",
        "$sizeof(int)",
        "sizeof(int",
        "sizeof int",
    ] {
        assert_eq!(declared.replace_constants(same), same);
    }
}

#[test]
fn random_structures_have_the_layout_of_a_compiler() {
    let mut state = 4711_u64;
    let mut random = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let types = ["char", "short", "int", "long", "unsigned char", "unsigned short", "unsigned"];
    let (mut source, mut names) = (String::new(), Vec::new());
    for number in 0..150 {
        let word = ["struct", "union"][usize::from(random(8) == 0)];
        write!(source, "struct s{number} {{ {word} {{ ").expect("text");
        for member in 0..1 + random(7) {
            let of = types[random(types.len())];
            let most =
                8 * [1, 2, 4, 8, 1, 2, 4][types.iter().position(|one| *one == of).unwrap_or(0)];
            match random(10) {
                0..4 => write!(source, "{of} m{member} : {}; ", 1 + random(most)),
                4 => write!(source, "{of} : {}; ", random(most + 1)),
                5 => write!(source, "{of} m{member}[{}]; ", 1 + random(4)),
                6 if number > 0 => write!(source, "struct s{} m{member}; ", random(number)),
                7 => write!(source, "double *m{member}; "),
                _ => write!(source, "{of} m{member}; "),
            }
            .expect("text");
        }
        let packed = ["", " __attribute__((packed))"][usize::from(random(5) == 0)];
        writeln!(source, "}}{packed}; char end; }}{packed};").expect("text");
        names.push(format!("s{number}"));
    }
    compare(&source, &names);
}

#[test]
fn the_rest_begins_behind_the_declarations() {
    for (text, rest) in [
        ("struct a { int x } uprobe:a:b { count }", "uprobe:a:b { count }"),
        (" enum { A, B, }; ; typedef int t; BEGIN {}", "BEGIN {}"),
        ("struct a; struct a { int x; /* } */ };\n// c\n  x", "x"),
        ("structure:b", "structure:b"),
        ("", ""),
    ] {
        let (_, begin) = parse(text).unwrap_or_else(|wrong| panic!("{text}: {wrong:?}"));
        assert_eq!(&text[begin..], rest);
    }
}

#[test]
fn what_is_wrong_is_told_where_it_is() {
    for (text, part, said) in [
        ("struct a { foo x; };", "foo", "unknown type `foo`"),
        ("struct a { int x; char x; };", "x", "the member `x` is there twice"),
        ("struct a { int x; union { char y, x; }; };", "union", "the member `x` is there twice"),
        (
            "struct a { struct a b; };",
            "b",
            "`b` is the structure that contains it; write a pointer",
        ),
        ("struct b; struct a { struct b c[2]; };", "c", "define `struct b` before it"),
        ("struct a { void x; };", "x", "`x` has no type (void)"),
        ("struct a { int f(void); };", "f", "`f` is a function; write a pointer"),
        ("struct a { int x; }; struct a { int x; };", "a", "`struct a` is defined twice"),
        ("struct a { int x; }; union a *b;", "a", "`a` is no union already"),
        ("enum e { A, A };", "A", "the constant `A` is there twice"),
        ("enum e { A = B };", "B", "`B` is no constant"),
        ("struct a { enum e x; };", "e", "`e` is no enum that is known"),
        ("struct a { int x : 33; };", "33", "a number of bits from 1 to 32"),
        ("struct a { int x : 0; };", "0", "a number of bits from 1 to 32"),
        ("struct a { char *x : 3; };", "3", "bits of a type that is no number"),
        ("struct a { int x[-1]; };", "[", "the length is not possible"),
        ("struct a { long x[1 << 40]; };", "x", "`x` is too large"),
        ("struct a { short double x; };", "short double", "these words are no type together"),
        ("struct a { int x; ", ";", "no `}` at the end"),
        ("struct a { int x y; };", "y", "`y` where `;` has to be"),
        ("struct a { int; };", "int", "a member without a name"),
        ("struct { int x } __attribute__((weak));", "weak", "unknown attribute `weak`"),
        ("typedef int u64;", "u64", "`u64` is another type already"),
        ("typedef int;", ";", "`;` where name has to be"),
        ("struct;", "struct", "no name and no `{` after `struct`"),
        ("#include <linux/fs.h>", "include", "`#include` is not possible: types are those of"),
        ("#undef A", "undef", "`undef` is not possible (known: #define)"),
        ("#\nstruct", "#", "`#` is not possible"),
        ("#define MAX(a, b) a", "MAX", "`MAX` is a macro with parameters"),
        ("#define A B", "B", "`B` is no constant; `#define` can name a constant only"),
        ("#define A \"text\"", "\"", "`\"` is no number; `#define`"),
        ("#define A 1 2", "2", "`2` after a number; `#define`"),
        ("#define A 1 +\n2", "+", "no number at the end; `#define`"),
        ("#define A 1\n#define A 2", "A", "`A` is another constant already"),
        ("#define 1", "1", "`1` where name of a constant has to be"),
        ("#define A 1\nenum { A };", "A", "the constant `A` is there twice"),
        ("struct a { char x[sizeof(struct b)]; };", "sizeof", "says `sizeof(struct b)`"),
    ] {
        let wrong = parse(text).expect_err(text);
        assert!(wrong.what.contains(said), "{text}: {}", wrong.what);
        assert_eq!(&text[wrong.at], part, "{text}");
    }
    for deep in ["struct { ", "struct a { int *(", "struct a { int x["] {
        parse(&deep.repeat(100_000)).expect_err("too deep");
    }
    let stars = format!("struct a {{ int {}x; }};", "*".repeat(100_000));
    parse(&stars).expect_err("too deep");
    let chain: String = (1..4000).map(|at| format!("typedef t{} *t{at}; ", at - 1)).collect();
    parse(&format!("typedef int t0; {chain}")).expect_err("too deep");
}
