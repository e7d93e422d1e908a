//! The program of `knobs.c`.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use refit_analysis::Module;
use refit_splice::process::Program;
use refit_sys::maps::Mapping;

/// Builds the program once; it is deleted with the folder of the tests.
pub(crate) fn built() -> &'static Path {
    static BUILT: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("knobs");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/finding/knobs.c");
        let built = Command::new("cc")
            .args(["-O2", "-DNDEBUG", "-g0", "-Wall", "-Werror", "-o"])
            .args([&path, &source])
            .status();
        assert!(built.expect("a C compiler").success());
        (folder, path)
    });
    path
}

/// A running program; killed on drop.
pub(crate) struct Victim {
    child: Child,
    stdin: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Victim {
    pub(crate) fn start() -> Self {
        let mut child = Command::new(built())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the victim");
        let stdin = child.stdin.take().expect("a pipe");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut victim = Self { child, stdin, answers };
        assert_eq!(victim.ask("?"), "begun");
        victim
    }

    pub(crate) fn program(&self) -> Program {
        Program::open(self.child.id()).expect("a child of ours")
    }

    pub(crate) fn ask(&mut self, line: &str) -> String {
        writeln!(self.stdin, "{line}").expect("it listens");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("an answer");
        answer.trim_end().to_owned()
    }

    fn mapped(&self) -> Mapping {
        let mappings = self.program().mappings().expect("its mappings");
        let own = |one: &Mapping| one.executable && one.name == built();
        mappings.into_iter().find(own).expect("its code")
    }

    /// Returns the distance of addresses in the program from those in the file.
    pub(crate) fn bias(&self, module: &Module) -> u64 {
        let mapping = self.mapped();
        let begins = module.image().address_of_offset(mapping.offset).expect("its code");
        mapping.range.start.wrapping_sub(begins)
    }

    /// Returns the bytes of its code.
    pub(crate) fn code(&self) -> Vec<u8> {
        let range = self.mapped().range;
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.program().read(range.start, &mut bytes).expect("its code");
        bytes
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
