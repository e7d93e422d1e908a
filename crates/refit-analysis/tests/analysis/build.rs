//! Builds small libraries for tests.

use std::path::Path;
use std::process::Command;

use refit_analysis::flow::{Edge, Flow, Target};
use refit_analysis::image::Image;
use refit_analysis::{FunctionId, Module};

/// Builds `source` with the compiler `with` and these arguments, and analyses the result.
pub(crate) fn build(with: &str, suffix: &str, source: &str, args: &[&str]) -> Module {
    let folder = tempfile::tempdir().expect("a folder");
    let from = folder.path().join(format!("source.{suffix}"));
    let to = folder.path().join("built");
    std::fs::write(&from, source).expect("the source is written");
    let output = Command::new(with).args(args).arg("-o").args([&to, &from]).output();
    let output = output.expect("a compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    analyse(&to)
}

/// Assembles a shared object. Each `FUNC name` begins a function that `END name` ends.
pub(crate) fn assemble(source: &str) -> Module {
    build("cc", "s", &expand(source), &["-shared", "-nostdlib"])
}

/// Assembles a program at a fixed address.
pub(crate) fn assemble_fixed(source: &str) -> Module {
    let args = ["-static", "-no-pie", "-nostdlib", "-Wl,-e,begin"];
    build("cc", "s", &expand(source), &args)
}

fn expand(source: &str) -> String {
    let mut text = String::from(".text\n");
    for line in source.lines() {
        match line.trim().split_once(' ') {
            Some(("FUNC", name)) => {
                text += &format!(".p2align 4\n.globl {name}\n.hidden {name}\n");
                text += &format!(".type {name}, @function\n{name}: .cfi_startproc\n");
            }
            Some(("END", name)) => text += &format!(".cfi_endproc\n.size {name}, .-{name}\n"),
            _ => text += &format!("{line}\n"),
        }
    }
    text + ".section .note.GNU-stack,\"\",@progbits\n"
}

pub(crate) fn analyse(path: &Path) -> Module {
    Module::analyse(Image::open(path).expect("an ELF file"))
}

/// Returns the id of the function with this name.
pub(crate) fn function(module: &Module, name: &str) -> FunctionId {
    let [id] = module.find(name)[..] else { panic!("{name}: {:?}", module.find(name)) };
    id
}

pub(crate) fn flow(module: &Module, name: &str) -> Flow {
    module.flow(function(module, name))
}

/// Returns the addresses of blocks that edges of this kind lead to.
pub(crate) fn blocks_by(flow: &Flow, which: impl Fn(&Edge) -> bool) -> Vec<u64> {
    let chosen = flow.edges().iter().filter(|e| which(e));
    let block = |edge: &Edge| match edge.to {
        Target::Block(block) => Some(flow.blocks()[block as usize].start),
        _ => None,
    };
    chosen.filter_map(block).collect()
}
