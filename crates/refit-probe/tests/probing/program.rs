//! The program that is probed, built with the C compiler.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use refit_probe::modules;
use refit_splice::process::Program;

/// The running program; killed on drop.
pub(crate) struct Routes {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

/// Builds it once for all tests.
fn binary() -> &'static Path {
    static BUILT: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("routes");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/probing/routes.c");
        let built = Command::new("cc")
            .args(["-O1", "-g0", "-Wall", "-Werror", "-o"])
            .args([&path, &source])
            .status()
            .expect("a C compiler");
        assert!(built.success());
        (folder, path)
    });
    path
}

impl Routes {
    pub(crate) fn start() -> Self {
        let mut child = Command::new(binary())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program");
        let stdin = child.stdin.take().expect("a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut routes = Self { child, stdin, stdout };
        assert_eq!(routes.line(), "ready");
        routes
    }

    pub(crate) fn program(&self) -> Program {
        Program::open(self.child.id()).expect("a child of ours")
    }

    pub(crate) fn ask(&mut self, what: &str) -> String {
        self.say(what);
        self.line()
    }

    pub(crate) fn say(&mut self, what: &str) {
        writeln!(self.stdin, "{what}").expect("it listens");
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("an answer");
        line.trim_end().to_owned()
    }

    /// Returns once the program waits for its next line.
    pub(crate) fn waits(&self) {
        let call = format!("/proc/{}/syscall", self.child.id());
        let ends = Instant::now() + Duration::from_secs(60);
        let reads = format!("{} 0x0 ", libc::SYS_read);
        while !std::fs::read_to_string(&call).expect("it runs").starts_with(&reads) {
            assert!(Instant::now() < ends, "it does not read");
            std::thread::yield_now();
        }
    }

    /// Asserts that all its code is as on disk.
    pub(crate) fn is_untouched(&self) {
        let program = self.program();
        for file in modules::of(&program).expect("its files") {
            let differences = file.differences(&program).expect("its code");
            assert!(differences.is_empty(), "{}: {differences:x?}", file.name());
        }
    }
}

impl Drop for Routes {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
