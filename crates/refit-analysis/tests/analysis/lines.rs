//! Lines of source and inlined functions, from the file itself and from a separate one.

use std::path::Path;
use std::process::Command;

use refit_analysis::image::Image;
use refit_analysis::lines::{Lines, Origin};

use crate::build::{analyse, function};

const SOURCE: &str = "\
static inline __attribute__((always_inline)) int twice(int x)
{
    return x * 13 + 2;
}

int outer(int a, volatile int *to)
{
    *to = a;
    *to = twice(*to);
    return a;
}
";

fn run(program: &str, arguments: &[&str], folder: &Path) {
    let status = Command::new(program).args(arguments).current_dir(folder).status();
    assert!(status.expect("it is there").success(), "{program} {arguments:?}");
}

/// Returns the origins of all instructions of `outer`.
fn origins(path: &Path) -> Vec<Vec<Origin>> {
    let lines = Lines::open(path).expect("an ELF file").expect("debug information");
    let module = analyse(path);
    let flow = module.flow(function(&module, "outer"));
    flow.instructions().iter().map(|one| lines.at(one.address)).collect()
}

#[test]
fn lines_and_inlined_functions_are_told_wherever_they_are_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let (folder, path) = (folder.path(), folder.path().join("built.so"));
    std::fs::write(folder.join("source.c"), SOURCE).expect("written");
    let options = ["-g", "-O2", "-shared", "-fPIC", "-Wl,--build-id", "-o", "built.so", "source.c"];
    run("cc", &options, folder);
    let all = origins(&path);
    let line = |origin: &Origin| (origin.function.clone().unwrap_or_default(), origin.line);
    assert!(all.iter().all(|origins| origins.last().is_some_and(|one| line(one).0 == "outer")));
    let inlined = all.iter().find(|origins| origins.len() == 2).expect("twice is inlined");
    assert_eq!(line(&inlined[0]), ("twice".to_owned(), Some(3)));
    assert_eq!(line(&inlined[1]), ("outer".to_owned(), Some(9)));
    assert!(inlined[0].file.as_ref().is_some_and(|file| file.ends_with("source.c")));
    // Laid out as distributions do it.
    std::fs::create_dir(folder.join(".debug")).expect("a folder");
    let apart = ".debug/built.so.debug";
    run("objcopy", &["--only-keep-debug", "--compress-debug-sections", "built.so", apart], folder);
    run("objcopy", &["--strip-debug", "built.so", "bare.so"], folder);
    assert!(Lines::of(&Image::open(&folder.join("bare.so")).expect("an ELF file")).is_none());
    let link = format!("--add-gnu-debuglink={apart}");
    run("objcopy", &["--strip-debug", &link, "built.so", "bare.so"], folder);
    assert_eq!(origins(&folder.join("bare.so")), all);
}

#[test]
fn damaged_debug_information_tells_less_and_harms_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("built.so");
    std::fs::write(folder.path().join("source.c"), SOURCE).expect("written");
    run("cc", &["-g", "-O2", "-shared", "-fPIC", "-o", "built.so", "source.c"], folder.path());
    let good = std::fs::read(&path).expect("built");
    let module = analyse(&path);
    let entry = module.function(function(&module, "outer")).entry;
    // Behind the loaded bytes, and not in the table of sections at the end.
    let loaded = module.image().segments().iter();
    let loaded = loaded.map(|one| one.offset + (one.addresses.end - one.addresses.start));
    let first = loaded.max().expect("segments") as usize;
    for at in (first..good.len()).step_by(7) {
        let mut bad = good.clone();
        bad[at] ^= 0xa5;
        std::fs::write(&path, bad).expect("written");
        if let Ok(Some(lines)) = Lines::open(&path) {
            let _ = lines.at(entry);
        }
    }
}

#[test]
fn sections_that_say_they_are_huge_when_unpacked_are_not() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/regressions/read_lines/huge-when-unpacked");
    assert!(Lines::open(&path).expect("a library").is_none());
}
