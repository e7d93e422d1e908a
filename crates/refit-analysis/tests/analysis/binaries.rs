//! Analyses programs that others built, and compares with what other tools find in them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use refit_analysis::flow::Marks;
use refit_analysis::{FunctionId, Module};

use crate::build::{analyse, flow, function};

fn libc() -> &'static Path {
    Path::new("/lib/x86_64-linux-gnu/libc.so.6")
}

fn all(module: &Module) -> impl Iterator<Item = FunctionId> + use<> {
    (0..module.functions().len() as u32).map(FunctionId)
}

/// Returns the addresses of instructions according to objdump, each with the address of the next
/// one.
fn objdump(path: &Path) -> BTreeMap<u64, u64> {
    let output = Command::new("objdump")
        .args(["-d", "-w", "--no-show-raw-insn"])
        .arg(path)
        .output()
        .expect("objdump");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = BTreeMap::new();
    let mut before = None;
    for line in text.lines() {
        let Some((address, _)) = line.trim_start().split_once(":\t") else {
            before = None;
            continue;
        };
        let Ok(address) = u64::from_str_radix(address, 16) else { continue };
        if let Some(before) = before {
            lines.insert(before, address);
        }
        before = Some(address);
    }
    lines
}

#[test]
fn boundaries_are_those_of_objdump() {
    for path in [libc(), Path::new("/bin/bash")] {
        let module = analyse(path);
        let lines = objdump(path);
        let (mut same, mut other) = (0usize, Vec::new());
        for id in all(&module) {
            for instruction in module.flow(id).instructions() {
                // Of two that overlap, objdump shows the first one only.
                match lines.get(&instruction.address) {
                    Some(next) if *next == instruction.end() => same += 1,
                    _ => other.push(instruction.address),
                }
            }
        }
        assert!(same > 100_000, "{path:?}: {same}");
        // The last instruction before a heading has no next one, and prefixes that glibc jumps over
        // are instructions of their own.
        let known: Vec<&u64> =
            other.iter().filter(|a| !is_explained(&module, &lines, **a)).collect();
        assert!(known.is_empty(), "{path:?}: {known:x?}");
    }
}

fn is_explained(module: &Module, lines: &BTreeMap<u64, u64>, address: u64) -> bool {
    let last_before_heading = !lines.contains_key(&address)
        && lines.range(..address).next_back().is_some_and(|(_, next)| *next == address);
    let flow = module.function_at(address).map(|id| module.flow(id));
    let overlaps = flow.is_some_and(|flow| {
        flow.instructions().iter().any(|i| {
            i.marks.contains(Marks::OVERLAPPED) && i.address <= address && address < i.end()
        })
    });
    last_before_heading || overlaps
}

#[test]
fn functions_are_those_of_nm() {
    let module = analyse(libc());
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(libc()).output();
    let text = String::from_utf8(output.expect("nm").stdout).expect("text");
    let mut count = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [address, "T" | "W" | "i", name] = words[..] else { continue };
        let address = u64::from_str_radix(address, 16).expect("an address");
        let name = name.split('@').next().unwrap_or_default();
        let id = module.function_at(address).unwrap_or_else(|| panic!("nothing at {name}"));
        let function = module.function(id);
        if function.entry == address {
            assert!(function.names.iter().any(|n| &**n == name), "{name}: {function:?}");
            count += 1;
        }
    }
    assert!(count > 1500, "{count}");
}

#[test]
fn most_of_what_debian_ships_is_understood() {
    for path in [libc(), Path::new("/bin/bash"), Path::new("/usr/bin/git")] {
        let module = analyse(path);
        let flows: Vec<_> = all(&module).map(|id| module.flow(id)).collect();
        let known = flows.iter().filter(|f| f.targets_known()).count();
        assert!(known * 1000 >= flows.len() * 985, "{path:?}: {known} of {}", flows.len());
        for flow in &flows {
            let function = module.function(flow.function());
            assert!(flow.instructions().iter().all(|i| function.contains(i.address)));
            assert!(flow.blocks().windows(2).all(|w| w[0].start < w[1].start));
            let counted: usize =
                flow.blocks().iter().map(|b| flow.block_instructions(b).count()).sum();
            assert_eq!(counted, flow.instructions().len(), "{}", function.name());
        }
    }
}

#[test]
fn functions_of_libc_that_end_the_program_do_not_return() {
    let module = analyse(libc());
    for name in ["abort", "exit", "_exit"] {
        assert!(!module.returns(function(&module, name)), "{name}");
    }
    for name in ["malloc", "qsort", "printf"] {
        assert!(module.returns(function(&module, name)), "{name}");
    }
    assert!(!flow(&module, "qsort").blocks().is_empty());
}

#[test]
fn this_test_is_a_rust_program() {
    let module = analyse(&std::env::current_exe().expect("a path"));
    let found = module.find("*this_test_is_a_rust_program*");
    assert!(!found.is_empty());
    assert!(found.iter().all(|id| !module.flow(*id).blocks().is_empty()));
}
