//! Fuzzing of programs: their machine code, their debug information, the cached results of their
//! analysis, and their stored profiles.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use refit_analysis::image::Image;
use refit_analysis::lines::Lines;
use refit_analysis::types::{Kind, Shape, TypeId, Types};
use refit_analysis::{FunctionId, Module};
use refit_optimize::stored::StoredProfile;
use refit_probe::{body, sites};
use refit_splice::{Action, Plan, Step};

use crate::file;

/// Analyses the bytes as a program, and as the code of an otherwise valid program, with a probe at
/// every instruction.
pub(crate) fn analyse(bytes: &[u8]) {
    if let Ok(image) = Image::parse(Path::new("fuzzed"), bytes.to_vec()) {
        assert!(image.go_procedures().all(|one| !one.rows.is_empty()));
        exhaust(&Module::analyse(image));
    }
    static PROGRAM: OnceLock<Vec<u8>> = OnceLock::new();
    let program = PROGRAM.get_or_init(program);
    let mut spoilt = program.clone();
    let length = bytes.len().min(spoilt.len() - CODE);
    spoilt[CODE..CODE + length].copy_from_slice(&bytes[..length]);
    let image = Image::parse(Path::new("spoilt"), spoilt).expect("its headers are right");
    exhaust(&Module::analyse(image));
}

/// The offset of the code in [`program`].
const CODE: usize = 64 + 56;
/// The address at which it is loaded.
const BASE: u64 = 0x40_0000;

/// Returns a program with room for a page of code: a header and a segment.
fn program() -> Vec<u8> {
    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    bytes.resize(16, 0);
    for half in [2_u16, 62] {
        bytes.extend(half.to_le_bytes());
    }
    bytes.extend(1_u32.to_le_bytes());
    for long in [BASE + CODE as u64, 64, 0] {
        bytes.extend(long.to_le_bytes());
    }
    bytes.extend(0_u32.to_le_bytes());
    for half in [64_u16, 56, 1, 64, 0, 0] {
        bytes.extend(half.to_le_bytes());
    }
    // A segment to load, readable and executable.
    for word in [1_u32, 5] {
        bytes.extend(word.to_le_bytes());
    }
    for long in [0, BASE, BASE, 4096, 4096, 4096_u64] {
        bytes.extend(long.to_le_bytes());
    }
    assert_eq!(bytes.len(), CODE);
    // The rest of the page is `ret` instructions.
    bytes.resize(4096, 0xc3);
    bytes
}

/// Calls every query of a module except those that run it.
fn exhaust(module: &Module) {
    for number in 0..module.functions().len() as u32 {
        let id = FunctionId(number);
        let flow = module.flow(id);
        let addresses: Vec<u64> = flow.instructions().iter().map(|one| one.address).collect();
        for one in flow.instructions() {
            let _ = module.text(one);
        }
        let _ = body::body(module, &flow, 0, &Arc::default());
        let count = |cell| vec![Step::from(Action::Count { cell: cell as u32 })];
        let (plan, refused) = Plan::new(sites::before_each(module, id, 0, &addresses, count));
        assert!(plan.len() + refused.len() <= addresses.len());
        let _ = plan.lines().count();
    }
    let image = module.image();
    for frame in image.frames() {
        if let Some(procedure) = image.procedure_at(frame.addresses.start) {
            let moved = procedure.moved(1 << 40);
            let _ = moved.row(moved.addresses.start);
        }
    }
    let _ = (module.find("*a*"), module.near("main", 3));
}

/// Reads the bytes as a program with debug information.
pub(crate) fn lines(bytes: &[u8]) {
    let (_file, path) = file::holding(bytes);
    let Ok(image) = Image::open(&path) else { return };
    let Some(lines) = Lines::of(&image) else { return };
    for code in image.code().iter().take(4) {
        let length = code.addresses.end - code.addresses.start;
        for step in 0..64 {
            for origin in lines.at(code.addresses.start + length / 64 * step) {
                let _ = origin.to_string();
            }
        }
    }
}

/// Reads the bytes as a program with types.
pub(crate) fn types(bytes: &[u8]) {
    let (_file, path) = file::holding(bytes);
    let Ok(image) = Image::open(&path) else { return };
    let Some(types) = Types::of(&image) else { return };
    ask(&types, &image);
}

/// Reads a part of the bytes, of the length that the first four say, as a program, and the rest as
/// the debug information that it has in files of its own: all of it, and a single unit.
pub(crate) fn split_types(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk() else { return };
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    let (program, part) = rest.split_at(length.min(rest.len()));
    let Ok(folder) = tempfile::tempdir() else { return };
    let [path, all, unit] =
        ["program", "program.dwp", "part.dwo"].map(|one| folder.path().join(one));
    let written = [(&path, program), (&all, part), (&unit, part)];
    if written.iter().any(|(path, bytes)| std::fs::write(path, bytes).is_err()) {
        return;
    }
    let Ok(image) = Image::open(&path) else { return };
    for _ in 0..2 {
        let Some(types) = Types::of(&image) else { return };
        ask(&types, &image);
        let _ = types.missing();
        if std::fs::remove_file(&all).is_err() {
            return;
        }
    }
}

/// Asks for parameters and types by the names that some have.
fn ask(types: &Types, image: &Image) {
    for symbol in image.symbols().iter().take(8) {
        for name in ["n", "from", "list"] {
            if let Ok(parameter) = types.parameter(symbol.address, name) {
                follow(types, parameter.of, 8);
            }
        }
    }
    for kind in [None, Some(Kind::Structure), Some(Kind::Union), Some(Kind::Enumeration)] {
        for name in ["list", "Held", "ns::inner", "color", "int"] {
            let _ = types.named_at(0, kind, name).map(|of| follow(types, of, 8));
        }
    }
}

/// Asks everything about a type and those that it refers to, some steps far.
fn follow(types: &Types, of: TypeId, steps: u32) {
    let Some(steps) = steps.checked_sub(1) else { return };
    let _ = (types.size(of), types.tag(of));
    match types.shape(of) {
        Shape::Pointer(Some(inner)) | Shape::Array { of: inner, .. } => follow(types, inner, steps),
        Shape::Structure => {
            for name in types.members(of).iter().take(4) {
                let _ = types.member(of, name).map(|member| follow(types, member.of, steps));
            }
        }
        Shape::Pointer(None) | Shape::Number { .. } | Shape::Other(_) => {}
    }
}

/// Reads the bytes as the contents of a cache file with the right checksum.
pub(crate) fn remember(bytes: &[u8]) {
    static KEPT: OnceLock<Vec<u8>> = OnceLock::new();
    let image = || Image::parse(Path::new("known"), program()).expect("its headers are right");
    // As they are, and in place of the valid contents from some offset on.
    let kept = KEPT.get_or_init(|| Module::analyse(image()).kept().expect("it can be kept"));
    let [at, rest @ ..] = bytes else { return };
    let spoilt = [&kept[..kept.len().min(usize::from(*at))], rest].concat();
    for kept in [bytes, &spoilt] {
        if let Some(module) = Module::remembered(image(), kept) {
            exhaust(&module);
        }
    }
}

/// Reads the bytes as a stored profile, and as what follows its checksum, and adds it to itself.
pub(crate) fn profile(bytes: &[u8]) {
    let _ = StoredProfile::understood(bytes);
    if let Some(read) = StoredProfile::of_body(bytes) {
        let sum = read.clone().and(read).body().expect("it can be written");
        assert!(StoredProfile::of_body(&sum).is_some());
    }
}
