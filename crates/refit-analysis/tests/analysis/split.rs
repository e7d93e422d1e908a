//! Types are found in files of their own, in units of their own and in functions, and damaged or
//! missing files are told.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use refit_analysis::types::{Kind, NoParameter, NoUnit, Shape, TypeId, Types};

use crate::build::{analyse, function};
use crate::types::{SOURCE, check, compile, types};

fn run(program: &str, arguments: &[&str], folder: &Path) {
    let status = Command::new(program).args(arguments).current_dir(folder).status();
    assert!(status.is_ok_and(|status| status.success()), "{program} {arguments:?}");
}

/// Returns the files of a folder with an extension.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).expect("a folder").flatten().map(|file| file.path());
    all.filter(|path| path.extension().is_some_and(|own| own == extension)).collect()
}

fn split(folder: &Path, compiler: &str, options: &[&str]) -> PathBuf {
    let source = SOURCE.replace("const unsigned long", "extern \"C\" const unsigned long");
    let source = source.replace("long first", "extern \"C\" long first");
    let source = if compiler == "c++" { &source } else { SOURCE };
    let path = compile(compiler, source, &[&["-gsplit-dwarf"], options].concat(), folder);
    assert!(!files(folder, "dwo").is_empty(), "{compiler} {options:?}");
    path
}

const BUILDS: [(&str, &[&str]); 7] = [
    ("cc", &["-gdwarf-5", "-O2"]),
    ("cc", &["-gdwarf-4", "-O2"]),
    ("cc", &["-gdwarf-5", "-fdebug-types-section"]),
    ("cc", &["-gdwarf-4", "-fdebug-types-section"]),
    ("c++", &["-gdwarf-5", "-O1", "-gz"]),
    ("clang", &["-gdwarf-5", "-O2"]),
    ("clang", &["-gdwarf-4", "-fdebug-types-section"]),
];

#[test]
fn split_debug_information_is_that_of_one_file() {
    let mut packed = 0;
    for (compiler, options) in BUILDS {
        if Command::new(compiler).arg("--version").output().is_err() {
            println!("no {compiler}");
            continue;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = split(folder.path(), compiler, options);
        check(&types(&path), &analyse(&path), &format!("{compiler} {options:?}"));
        // Beside the program, if the folder in which it was compiled is another one.
        let moved = tempfile::tempdir().expect("a folder");
        for file in [files(folder.path(), "dwo"), vec![path.clone()]].concat() {
            let name = file.file_name().expect("a name");
            fs::rename(&file, moved.path().join(name)).expect("moved");
        }
        let path = moved.path().join("built.so");
        check(&types(&path), &analyse(&path), &format!("{compiler} {options:?}, moved"));
        // That of GNU makes empty files of DWARF 5.
        let gnu = compiler != "clang" && !options.contains(&"-gdwarf-5");
        let tool = if gnu { "dwp" } else { "llvm-dwp" };
        let parts = files(moved.path(), "dwo");
        let mut pack = Command::new(tool);
        pack.args(["-o", "built.so.dwp"]).args(&parts).current_dir(moved.path());
        if !pack.output().is_ok_and(|output| output.status.success()) {
            // Not all tools know all forms.
            println!("{tool} does not pack {compiler} {options:?}");
            continue;
        }
        packed += 1;
        parts.iter().for_each(|part| fs::remove_file(part).expect("removed"));
        check(&types(&path), &analyse(&path), &format!("{compiler} {options:?}, packed"));
    }
    let tools =
        ["dwp", "llvm-dwp"].map(|tool| Command::new(tool).arg("--version").output().is_ok());
    let wanted = tools.into_iter().filter(|there| *there).count();
    assert!(packed >= wanted, "{packed} packed");
}

#[test]
fn missing_and_other_files_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = split(folder.path(), "cc", &["-g", "-O2"]);
    let [part] = &files(folder.path(), "dwo")[..] else { panic!("one file") };
    let module = analyse(&path);
    let entry = module.function(function(&module, "first")).entry;
    let hidden = part.with_extension("hidden");
    fs::rename(part, &hidden).expect("renamed");
    let gone = types(&path);
    assert_eq!(gone.named(None, "list"), None);
    let [NoUnit::NoFile { name }] = &gone.missing()[..] else { panic!("{:?}", gone.missing()) };
    assert_eq!(name.file_name(), part.file_name());
    let why = gone.parameter(entry, "head").expect_err("gone");
    assert!(matches!(why, NoParameter::NoUnit(NoUnit::NoFile { .. })), "{why}");
    assert!(why.to_string().contains("which is not there (-gsplit-dwarf"), "{why}");
    // The same name, of another source.
    let other = SOURCE.replace("struct list *next;", "int more; struct list *next;");
    compile("cc", &other, &["-gsplit-dwarf", "-O2"], folder.path());
    assert!(part.exists());
    let stale = fs::read(part).expect("built");
    let path = split(folder.path(), "cc", &["-g", "-O2"]);
    fs::write(part, stale).expect("written");
    let other = types(&path);
    let why = other.parameter(entry, "head").expect_err("of another build");
    assert_eq!(why, NoParameter::NoUnit(NoUnit::Stale { path: part.clone() }));
    assert_eq!(other.named(None, "list"), None);
    for bytes in [&b""[..], b"no object file", &[0x7f; 4096]] {
        fs::write(part, bytes).expect("written");
        assert!(types(&path).parameter(entry, "head").is_err());
    }
    // A file with another ending is none that a compiler has written.
    fs::rename(&hidden, part).expect("renamed");
    assert!(types(&path).parameter(entry, "head").is_ok());
    let text = fs::read(&path).expect("built");
    let at = text.windows(5).position(|five| five == b".dwo\0").expect("its name");
    let renamed = [&text[..at], b".dwx\0", &text[at + 5..]].concat();
    fs::write(&path, renamed).expect("written");
    fs::rename(part, part.with_extension("dwx")).expect("renamed");
    assert!(types(&path).parameter(entry, "head").is_err());
}

/// Asks everything about some types.
fn exhaust(types: &Types, entry: u64) {
    let _ = types.parameter(entry, "list").map(|found| types.shape(found.of));
    let Some(list) = types.named_at(entry, Some(Kind::Structure), "list") else { return };
    for name in types.members(list) {
        let Some(member) = types.member(list, &name) else { continue };
        let _ = (types.shape(member.of), types.size(member.of), types.tag(member.of));
    }
}

#[test]
fn damaged_parts_tell_less_and_harm_nobody() {
    for (options, packs) in
        [(["-gdwarf-5", "-O2"], true), (["-gdwarf-4", "-fdebug-types-section"], false)]
    {
        let folder = tempfile::tempdir().expect("a folder");
        let path = split(folder.path(), "cc", &options);
        let module = analyse(&path);
        let entry = module.function(function(&module, "first")).entry;
        let [part] = &files(folder.path(), "dwo")[..] else { panic!("one file") };
        let mut damaged = part.clone();
        if packs && Command::new("llvm-dwp").arg("--version").output().is_ok() {
            let name = part.to_str().expect("text");
            run("llvm-dwp", &["-o", "built.so.dwp", name], folder.path());
            fs::remove_file(part).expect("removed");
            damaged = folder.path().join("built.so.dwp");
        }
        let good = fs::read(&damaged).expect("built");
        for at in (0..good.len()).step_by(7) {
            let mut bad = good.clone();
            bad[at] ^= 0xa5;
            fs::write(&damaged, bad).expect("written");
            exhaust(&types(&path), entry);
        }
    }
}

#[test]
fn types_of_functions_are_found() {
    let source = r#"
struct both { long a, b, c; };
long one(void *p) { struct local { int x; long y; }; struct both q; return ((struct local *)p)->y; }
long two(void *p) {
    for (int i = 0;; i++) { struct local { char c; short y; }; if (((struct local *)p)[i].y) return i; }
}
static inline long three(void *p) { struct inlined { short a; int y; }; return ((struct inlined *)p)->y; }
long four(void *p) { return three(p); }
"#;
    let folder = tempfile::tempdir().expect("a folder");
    for options in [&["-g", "-O0"][..], &["-g", "-O2"], &["-gdwarf-4", "-fdebug-types-section"]] {
        let path = compile("cc", source, options, folder.path());
        let (types, module) = (types(&path), analyse(&path));
        let offset = |name: &str, of: &str| {
            let entry = module.function(function(&module, name)).entry;
            let of = types.named_at(entry, Some(Kind::Structure), of)?;
            types.member(of, "y").map(|member| member.offset)
        };
        assert_eq!(types.named(Some(Kind::Structure), "local"), None::<TypeId>);
        assert_eq!((offset("one", "local"), offset("two", "local")), (Some(8), Some(2)));
        assert_eq!(offset("four", "inlined"), Some(4));
        assert_eq!(offset("four", "nowhere"), None);
        let both = types.named_at(0, None, "both").expect("of the file");
        assert_eq!((types.shape(both), types.size(both)), (Shape::Structure, Some(24)));
        assert_eq!(types.tag(both), Some((Kind::Structure, "both".to_owned())));
        let entry = module.function(function(&module, "one")).entry;
        let local = types.named_at(entry, None, "local").expect("of a function");
        assert_eq!(types.tag(local), None);
    }
}
