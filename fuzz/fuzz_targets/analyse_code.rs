//! Anything as a program: as it is, and as the code of one that is right otherwise.

#![no_main]

use std::path::Path;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use refit_code::image::Image;
use refit_code::{FunctionId, Module};

fuzz_target!(|bytes: &[u8]| {
    analyse(bytes.to_vec());
    static PROGRAM: OnceLock<Vec<u8>> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| std::fs::read("/bin/true").expect("a program"));
    let Ok(image) = Image::parse(Path::new("true"), program.clone()) else { return };
    let mut spoilt = program.clone();
    let code = image.segments().iter().filter(|s| s.executable);
    for segment in code {
        let room = &mut spoilt[segment.offset as usize..];
        let length = bytes.len().min((segment.addresses.end - segment.addresses.start) as usize);
        room[..length].copy_from_slice(&bytes[..length]);
    }
    analyse(spoilt);
});

fn analyse(bytes: Vec<u8>) {
    let Ok(image) = Image::parse(Path::new("fuzzed"), bytes) else { return };
    let module = Module::analyse(image);
    for i in 0..module.functions().len() as u32 {
        let _ = module.flow(FunctionId(i));
    }
}
