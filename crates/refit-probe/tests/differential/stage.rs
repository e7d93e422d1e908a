//! A program that waits before its `main`, and runs functions of itself or of a library on command.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use refit_analysis::Module;
use refit_analysis::image::{Image, Kind};
use refit_probe::modules::{self, Mapped};
use refit_splice::process::Program;

use crate::end::{self, End};

/// `MOST` of `stage.c`: most functions in one pass.
pub(crate) const MOST: usize = 4096;
const ENDS: u64 = MOST as u64 * 16;
const PASSES: u64 = 4;
/// Bytes of a file's own memory that are compared.
const COMPARED: u64 = 1 << 20;

/// A loaded file whose functions can be run.
pub(crate) struct Stage {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    board: File,
    _folder: tempfile::TempDir,
    pub(crate) program: Program,
    pub(crate) mapped: Mapped,
    pub(crate) module: Module,
    pub(crate) bias: u64,
}

/// Builds the library of the stage once for all tests of a binary.
fn library() -> &'static Path {
    static BUILT: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("stage.so");
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../refit-probe/tests/differential/stage.c");
        let built = Command::new("cc")
            .args(["-O2", "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-shared", "-fPIC"])
            // Without calls that the source does not make.
            .args(["-fno-tree-loop-distribute-patterns", "-fno-stack-protector", "-o"])
            .args([&path, &source])
            .status()
            .expect("a C compiler");
        assert!(built.success());
        (folder, path)
    });
    path
}

impl Stage {
    /// Returns the ranges of patch areas.
    pub(crate) fn areas(&self) -> Vec<Range<u64>> {
        let mappings = self.program.mappings().expect("it runs").into_iter();
        let own = |name: &Path| name.to_string_lossy().starts_with("/memfd:refit-splice");
        mappings.filter(|one| own(&one.name)).map(|one| one.range).collect()
    }

    /// Loads a program or library; the error says why it cannot be loaded.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let image = Image::open(path).map_err(|why| why.to_string())?;
        let is_library = match image.kind() {
            Kind::Shared => true,
            Kind::Fixed | Kind::Pie => false,
            // It would run without loading the stage.
            Kind::Static | Kind::StaticPie => return Err("it loads nothing".to_owned()),
        };
        let mode = path.metadata().map_err(|error| error.to_string())?.mode();
        if mode & 0o6000 != 0 {
            return Err("it runs as somebody else".to_owned());
        }
        let folder = tempfile::tempdir().expect("a folder");
        let board_path = folder.path().join("board");
        let board = File::options().read(true).write(true).create_new(true).open(&board_path);
        let board = board.expect("a file");
        board.set_len(ENDS + PASSES * (MOST * end::BYTES) as u64).expect("its size");
        let mut command = Command::new(if is_library { Path::new("/bin/true") } else { path });
        command
            .env("LD_PRELOAD", library())
            .env("LD_BIND_NOW", "1")
            .env("REFIT_STAGE_BOARD", &board_path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if is_library {
            command.env("REFIT_STAGE_LIBRARY", path);
        }
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let stdin = child.stdin.take().expect("a pipe");
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        stdout.read_line(&mut line).map_err(|error| error.to_string())?;
        let ready = if line.trim() == "ready" { Ok(()) } else { Err(line) };
        let found = ready.and_then(|()| found(child.id(), path));
        let (program, mapped, module) = match found {
            Ok(found) => found,
            Err(why) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(why);
            }
        };
        let bias = mapped.bias(module.image()).expect("what is mapped is the file");
        let mut stage =
            Self { child, stdin, stdout, board, _folder: folder, program, mapped, module, bias };
        for (begin, end) in stage.memory() {
            stage.tell(&format!("memory {begin} {end}"));
        }
        Ok(stage)
    }

    /// Returns the writable memory of the file.
    fn memory(&self) -> Vec<(u64, u64)> {
        let mappings = self.program.mappings().expect("it runs");
        let own = |at: usize| mappings[at].name == self.mapped.path;
        let mut found = Vec::new();
        for (at, mapping) in mappings.iter().enumerate().filter(|(_, one)| one.writable) {
            let behind = at > 0 && own(at - 1) && mapping.name.as_os_str().is_empty();
            if own(at) || behind && mappings[at - 1].range.end == mapping.range.start {
                let range = &mapping.range;
                found.push((range.start, range.end.min(range.start + COMPARED)));
            }
        }
        found
    }

    /// Formats an address as file and offset.
    pub(crate) fn place(&self, address: u64) -> String {
        let mappings = self.program.mappings().expect("it runs");
        match mappings.iter().find(|one| one.range.contains(&address)) {
            Some(one) => {
                format!("{}+{:#x}", one.name.display(), address - one.range.start + one.offset)
            }
            None => format!("{address:#x}"),
        }
    }

    /// Runs functions from seeded states: address in the program and seed of each.
    pub(crate) fn run(&mut self, pass: u64, requests: &[(u64, u64)], fill: u64) -> Vec<End> {
        assert!(requests.len() < MOST);
        let words = requests.iter().flat_map(|&(address, seed)| [address, seed]).chain([0, 0]);
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        self.board.write_all_at(&bytes, 0).expect("written");
        self.tell(&format!("run {pass} {fill}"));
        let mut ends = vec![0; requests.len() * end::BYTES];
        let at = ENDS + pass * (MOST * end::BYTES) as u64;
        self.board.read_exact_at(&mut ends, at).expect("read");
        ends.chunks_exact(end::BYTES).map(End::from_bytes).collect()
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").expect("it listens");
        let mut answer = String::new();
        self.stdout.read_line(&mut answer).expect("an answer");
        assert_eq!(answer, "done\n", "{:?}: {:?}", self.mapped.path, self.child.try_wait());
    }
}

fn found(id: u32, path: &Path) -> Result<(Program, Mapped, Module), String> {
    let program = Program::open(id).map_err(|why| why.to_string())?;
    let path = path.canonicalize().map_err(|error| error.to_string())?;
    let all = modules::of(&program).map_err(|why| why.to_string())?;
    let mapped = all.into_iter().find(|one| one.path == path).ok_or("it is not mapped")?;
    let module = mapped.open().map_err(|why| why.to_string())?;
    Ok((program, mapped, module))
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
