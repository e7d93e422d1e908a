//! Feeds the bytes that once broke a target to it again.

use std::fs;
use std::path::Path;

use refit_fuzz::{TARGETS, target};

#[test]
fn what_broke_a_reader_breaks_none_now() {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    let mut fed = 0;
    for folder in fs::read_dir(&all).expect("there are some").flatten() {
        let name = folder.file_name().into_string().expect("the name of a target");
        let target = target(&name).unwrap_or_else(|| panic!("no target is called {name}"));
        for file in fs::read_dir(folder.path()).expect("a folder").flatten() {
            let bytes = fs::read(file.path()).expect("a file");
            println!("{name} {}: {} bytes", file.file_name().display(), bytes.len());
            (target.feed)(&bytes);
            fed += 1;
        }
    }
    assert!(fed > 0, "{} holds none", all.display());
}

#[test]
fn nothing_and_noise_are_read_by_all() {
    let mut number = 0x9e37_79b9_7f4a_7c15_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        number as u8
    })
    .take(4096)
    .collect();
    for target in TARGETS {
        for bytes in [&[][..], &[0], b"{}", &noise] {
            (target.feed)(bytes);
        }
    }
}
