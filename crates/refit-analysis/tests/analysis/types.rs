//! Members of structures are where the compiler has put them, and parameters where the callers do.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use refit_analysis::Module;
use refit_analysis::image::Image;
use refit_analysis::types::{Kind, NoParameter, Shape, TypeId, Types, Whereabouts};

use crate::build::{analyse, function};

pub(super) const SOURCE: &str = r#"
#include <stddef.h>
enum color { RED, BLUE = 700 };
typedef unsigned char byte;
struct later;
struct list {
    struct list *next;
    char name[16];
    unsigned flag : 3;
    signed sign : 5;
    unsigned long wide : 40;
    short table[2][3];
    union {
        int number;
        struct { byte low, high; };
    };
    double d;
    enum color color;
    const byte *const text;
    struct later *later;
    int (*call)(int);
    void *any;
};
struct later { int x, y; };
typedef struct { struct list *first; } head_t;
const unsigned long offsets[] = {
    offsetof(struct list, next), offsetof(struct list, name), offsetof(struct list, table),
    offsetof(struct list, number), offsetof(struct list, high), offsetof(struct list, d),
    offsetof(struct list, color), offsetof(struct list, text), offsetof(struct list, later),
    offsetof(struct list, call), offsetof(struct list, any), sizeof(struct list),
};
long first(head_t *head, struct list *list) { return head->first->wide + list->later->y; }
"#;
pub(super) const MEMBERS: [&str; 11] =
    ["next", "name", "table", "number", "high", "d", "color", "text", "later", "call", "any"];

pub(super) fn compile(compiler: &str, source: &str, options: &[&str], folder: &Path) -> PathBuf {
    let name = if compiler == "c++" { "source.cc" } else { "source.c" };
    std::fs::write(folder.join(name), source).expect("written");
    let mut command = Command::new(compiler);
    command.args(["-w", "-shared", "-fPIC", "-Wl,--build-id", "-o", "built.so", name]);
    let status = command.args(options).current_dir(folder).status();
    assert!(status.expect("a compiler").success(), "{compiler} {options:?}");
    folder.join("built.so")
}

pub(super) fn types(path: &Path) -> Types {
    Types::of(&Image::open(path).expect("an ELF file")).expect("debug information")
}

pub(super) fn words(module: &Module, symbol: &str, count: usize) -> Vec<u64> {
    let bytes = std::fs::read(module.image().path()).expect("read");
    let output = Command::new("nm").arg(module.image().path()).output().expect("nm");
    let lines = String::from_utf8(output.stdout).expect("text");
    let line = lines.lines().find(|line| line.ends_with(&format!(" {symbol}"))).expect("symbol");
    let address = u64::from_str_radix(&line[..16], 16).expect("an address");
    let segments = module.image().segments();
    let segment = segments.iter().find(|one| one.addresses.contains(&address)).expect("mapped");
    let at = (address - segment.addresses.start + segment.offset) as usize;
    let (words, _) = bytes[at..at + 8 * count].as_chunks::<8>();
    words.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

#[test]
fn members_are_where_the_compiler_puts_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let alike = SOURCE.replace("const unsigned long", "extern \"C\" const unsigned long");
    let alike = alike.replace("long first", "extern \"C\" long first");
    for (compiler, options) in [
        ("cc", &["-g", "-O2"][..]),
        ("cc", &["-gdwarf-4", "-O0", "-gz"]),
        ("cc", &["-gdwarf-3", "-gstrict-dwarf"]),
        ("cc", &["-gdwarf-5", "-fdebug-types-section"]),
        ("cc", &["-gdwarf-4", "-fdebug-types-section"]),
        ("c++", &["-gdwarf-4", "-fdebug-types-section", "-O2", "-gz"]),
        ("c++", &["-g", "-O1"]),
    ] {
        let source = if compiler == "c++" { &alike } else { SOURCE };
        let path = compile(compiler, source, options, folder.path());
        let (types, module) = (types(&path), analyse(&path));
        check(&types, &module, &format!("{options:?}"));
    }
}

/// Compares members and parameters of a built source with what it says itself.
pub(super) fn check(types: &Types, module: &Module, said: &str) {
    let list = types
        .named(Some(Kind::Structure), "list")
        .unwrap_or_else(|| panic!("{said}: no structure, {:?}", types.missing()));
    assert_eq!(types.shape(list), Shape::Structure);
    let offsets = MEMBERS.map(|name| {
        let member = types.member(list, name).unwrap_or_else(|| panic!("{said}: {name}"));
        assert_eq!(member.bits, None);
        member.offset
    });
    let size = types.size(list).expect("a size");
    assert_eq!([&offsets[..], &[size]].concat(), words(module, "offsets", 12), "{said}");
    shapes(types, list);
    let entry = module.function(function(module, "first")).entry;
    let head = types.parameter(entry, "head").expect("a parameter");
    assert_eq!(head.at, Whereabouts::Register(7), "{said}");
    let Shape::Pointer(Some(head)) = types.shape(head.of) else { panic!("no pointer") };
    let first = types.member(head, "first").expect("a member of a structure without name");
    assert!(matches!(types.shape(first.of), Shape::Pointer(Some(_))));
}

/// Compares what is known of `struct list` with its source.
pub(super) fn shapes(types: &Types, list: TypeId) {
    let member = |name: &str| types.member(list, name).expect("a member");
    let shape = |name: &str| types.shape(member(name).of);
    assert_eq!(shape("number"), Shape::Number { bytes: 4, signed: true });
    assert_eq!(shape("high"), Shape::Number { bytes: 1, signed: false });
    assert_eq!(shape("color"), Shape::Number { bytes: 4, signed: false });
    assert_eq!(shape("d"), Shape::Other("a floating-point number"));
    assert_eq!(shape("any"), Shape::Pointer(None));
    let Shape::Pointer(Some(text)) = shape("text") else { panic!("{:?}", shape("text")) };
    assert_eq!(types.shape(text), Shape::Number { bytes: 1, signed: false });
    let Shape::Array { of: row, stride: 6 } = shape("table") else {
        panic!("{:?}", shape("table"))
    };
    let Shape::Array { of, stride: 2 } = types.shape(row) else { panic!("{:?}", types.shape(row)) };
    assert_eq!(types.shape(of), Shape::Number { bytes: 2, signed: true });
    assert_eq!((types.size(row), types.size(member("table").of)), (Some(6), Some(12)));
    let Shape::Pointer(Some(later)) = shape("later") else { panic!("{:?}", shape("later")) };
    assert_eq!(types.member(later, "y").expect("it is declared later").offset, 4);
    assert!(types.member(list, "flags").is_none());
    assert!(types.members(list).iter().any(|name| name == "flag"));
    // The bits as they are in memory: flag and sign share a unit, and so may wide.
    let place = |name: &str| {
        let member = member(name);
        let bits = member.bits.expect("bits");
        (member.offset * 8 + u64::from(bits.first), bits.count)
    };
    assert_eq!((place("flag"), place("sign"), place("wide")), ((192, 3), (195, 5), (200, 40)));
}

#[test]
fn names_in_namespaces_and_members_of_bases_are_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = r#"
namespace one { inline namespace v2 { struct base { int a, b; static int all; }; } }
namespace { struct hidden { char c; }; }
namespace one { namespace two {
    struct derived : base { long own; struct inner { short x, y; } in; static long s; };
} }
struct later { long q; };
extern "C" long use(one::two::derived &d, hidden *h, later *l) { return d.own + h->c + l->q; }
long method(one::two::derived d) { return d.in.y; }
"#;
    let path = compile("c++", source, &["-g", "-O0"], folder.path());
    let (types, module) = (types(&path), analyse(&path));
    let derived = types.named(None, "one::two::derived").expect("the class");
    assert_eq!(types.member(derived, "b").expect("of its base").offset, 4);
    assert_eq!(types.member(derived, "own").expect("its own").offset, 8);
    assert!(types.member(derived, "s").is_none());
    let inner = types.named(None, "one::two::derived::inner").expect("a class of a class");
    assert_eq!(types.member(inner, "y").expect("a member").offset, 2);
    assert!(types.named(None, "one::base").is_some());
    assert!(types.named(None, "hidden").is_some());
    assert!(types.named(Some(Kind::Union), "later").is_none());
    assert!(types.named(None, "derived").is_none());
    let entry = module.function(function(&module, "use")).entry;
    let l = types.parameter(entry, "l").expect("a parameter");
    assert_eq!(l.at, Whereabouts::Register(2));
    let why = types.parameter(entry, "x").expect_err("none");
    assert_eq!(why.to_string(), "the function has no parameter of this name; it has: d, h, l");
    assert_eq!(types.parameter(entry + 1, "l"), Err(NoParameter::NoFunction));
}

/// Types of parameters, with their declarations.
const TYPES: [&str; 22] = [
    "char",
    "short",
    "int",
    "unsigned",
    "long",
    "void *",
    "enum color",
    "float",
    "double",
    "long double",
    "__int128",
    "struct i",
    "struct ll",
    "struct dd",
    "struct id",
    "struct c3",
    "struct l3",
    "struct ff",
    "struct fi",
    "struct packed",
    "union u",
    "struct nested",
];
const DECLARED: &str = "
enum color { RED };
struct i { int a; }; struct ll { long a, b; }; struct dd { double a, b; };
struct id { int a; double b; }; struct c3 { char a[3]; }; struct l3 { long a[3]; };
struct ff { float a, b; }; struct fi { float a; int b; };
struct packed { char a; int b; } __attribute__((packed)); union u { float a; long b; };
struct nested { struct i a; struct ff b; };
void use(void *);
";

#[test]
fn parameters_are_where_optimised_code_has_them() {
    let mut source = DECLARED.to_owned();
    for (number, of) in TYPES.iter().enumerate() {
        writeln!(source, "void use{number}({of});").expect("text");
    }
    let (mut state, mut functions) = (4711_u64, Vec::new());
    let mut random = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for number in 0..120 {
        let count = 1 + random(9);
        let own: Vec<usize> = (0..count).map(|_| random(TYPES.len())).collect();
        let result = ["void", "struct ll", "struct l3", "struct packed", "double"][random(5)];
        let list = own.iter().enumerate().map(|(at, of)| format!("{} p{at}", TYPES[*of]));
        let list: Vec<_> = list.collect();
        write!(source, "{result} f{number}({}) {{ ", list.join(", ")).expect("text");
        for (at, of) in own.iter().enumerate() {
            write!(source, "use{of}(p{at}); ").expect("text");
        }
        let back = format!("{result} r; use(&r); return r; ");
        let back = if result == "void" { "" } else { &back };
        writeln!(source, "{back}}}").expect("text");
        functions.push(own);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let optimised = compile("cc", &source, &["-g", "-O2"], folder.path());
    let (known, module) = (types(&optimised), analyse(&optimised));
    let entries: Vec<u64> = (0..functions.len())
        .map(|number| module.function(function(&module, &format!("f{number}"))).entry)
        .collect();
    let plain = compile("cc", &source, &["-g", "-O0"], folder.path());
    let (by_rules, module) = (types(&plain), analyse(&plain));
    let (mut compared, mut on_stack) = (0, 0);
    for (number, own) in functions.iter().enumerate() {
        let entry = module.function(function(&module, &format!("f{number}"))).entry;
        for (at, of) in own.iter().enumerate() {
            let name = format!("p{at}");
            let ruled = by_rules.parameter(entry, &name);
            let told = known.parameter(entries[number], &name);
            let (scalar, of) = (*of < 7, TYPES[*of]);
            assert!(!scalar || ruled.is_ok(), "f{number}: {name}: {of}: {ruled:?}");
            if let (Ok(ruled), Ok(told)) = (&ruled, &told) {
                assert_eq!(ruled.at, told.at, "f{number}: {name}: {of}");
                compared += 1;
                on_stack += u32::from(matches!(told.at, Whereabouts::Stack(_)));
            }
        }
    }
    assert!(compared > 150 && on_stack > 50, "{compared} compared, {on_stack} on the stack");
}

#[test]
fn damaged_types_tell_less_and_harm_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = compile("cc", SOURCE, &["-g", "-O2"], folder.path());
    let good = std::fs::read(&path).expect("built");
    let module = analyse(&path);
    let entry = module.function(function(&module, "first")).entry;
    // Behind the loaded bytes, and not in the table of sections at the end.
    let loaded = module.image().segments().iter();
    let loaded = loaded.map(|one| one.offset + (one.addresses.end - one.addresses.start));
    let first = loaded.max().expect("segments") as usize;
    for at in (first..good.len()).step_by(5) {
        let mut bad = good.clone();
        bad[at] ^= 0xa5;
        std::fs::write(&path, bad).expect("written");
        let Some(types) = Image::open(&path).ok().and_then(|image| Types::of(&image)) else {
            continue;
        };
        let _ = types.parameter(entry, "list");
        let Some(list) = types.named(Some(Kind::Structure), "list") else { continue };
        for name in types.members(list) {
            let Some(member) = types.member(list, &name) else { continue };
            let _ = (types.shape(member.of), types.size(member.of));
        }
    }
}
