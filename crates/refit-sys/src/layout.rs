//! The kernel's record of the addresses of a program's parts: `PR_SET_MM` of prctl(2).
//!
//! It determines where `brk` continues, and what `/proc/PID/cmdline` and `environ` show. A process
//! can change only its own record, so a tracer makes the call in the stopped program
//! ([`Layout::call`]). `PR_SET_MM_MAP` (Linux 3.18) sets all of it at once. That needs no
//! privilege, but a kernel with `CONFIG_CHECKPOINT_RESTORE` (`EINVAL` otherwise); setting the parts
//! one by one would need `CAP_SYS_RESOURCE`.

use std::io;
use std::ops::Range;

use linux_raw_sys::prctl as raw;

/// The parts of a program, as addresses in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The program's code.
    pub code: Range<u64>,
    /// The program's data.
    pub data: Range<u64>,
    /// The heap that `brk` has allocated; `brk` continues at its end. For another process the end
    /// is known in whole pages only.
    pub heap: Range<u64>,
    /// The stack pointer at the first instruction.
    pub stack: u64,
    /// The strings of the arguments.
    pub arguments: Range<u64>,
    /// The strings of the environment.
    pub environment: Range<u64>,
}

/// Size of [`Layout::image`] in bytes.
pub const IMAGE: usize = size_of::<raw::prctl_mm_map>();

impl Layout {
    /// Returns the layout of a process.
    ///
    /// # Errors
    /// `ENOENT`: no such process. `EPERM`: the caller may not trace it. `EINVAL`: the kernel's text
    /// cannot be parsed.
    pub fn of(process: u32) -> io::Result<Self> {
        let mut layout = Self::with_empty_heap(process)?;
        let maps = crate::maps::of(process)?;
        let ends = maps.iter().filter(|one| one.kind() == crate::maps::Kind::Heap);
        let end = ends.map(|one| one.range.end).max();
        layout.heap.end = end.unwrap_or(layout.heap.start);
        Ok(layout)
    }

    /// Returns the layout of a process but for the heap's end, which is its start here: only the
    /// list of mappings, or `brk` within the process, shows it.
    ///
    /// # Errors
    /// Those of [`of`](Self::of).
    pub fn with_empty_heap(process: u32) -> io::Result<Self> {
        let stat = std::fs::read(format!("/proc/{process}/stat"))?;
        let layout = parse(&stat).ok_or(io::ErrorKind::InvalidInput)?;
        // The kernel shows zeros to those who may not trace the process.
        if layout.stack == 0 {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        Ok(layout)
    }

    /// Returns the bytes that [`call`](Self::call) expects in the program's memory: a `struct
    /// prctl_mm_map` that leaves the auxiliary vector and the program's file unchanged.
    pub fn image(&self) -> [u8; IMAGE] {
        let words = [
            self.code.start,
            self.code.end,
            self.data.start,
            self.data.end,
            self.heap.start,
            self.heap.end,
            self.stack,
            self.arguments.start,
            self.arguments.end,
            self.environment.start,
            self.environment.end,
        ];
        let mut bytes = [0; IMAGE];
        for (at, word) in words.into_iter().enumerate() {
            bytes[8 * at..8 * at + 8].copy_from_slice(&word.to_ne_bytes());
        }
        // No descriptor: the program's file stays the same.
        bytes[IMAGE - 4..].copy_from_slice(&(-1_i32).to_ne_bytes());
        bytes
    }

    /// Returns the number and arguments of the system call that sets the layout to the image at
    /// `address`. The call fails with `EINVAL` where the parts lie in no mapping or are out of
    /// order.
    pub fn call(address: u64) -> (i64, [u64; 6]) {
        let (what, size) = (u64::from(raw::PR_SET_MM_MAP), IMAGE as u64);
        (libc::SYS_prctl, [u64::from(raw::PR_SET_MM), what, address, size, 0, 0])
    }
}

/// Parses the fields, numbered as in proc_pid_stat(5). The name, in parentheses, can contain
/// anything.
fn parse(stat: &[u8]) -> Option<Layout> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(name_end + 2..)?).ok()?;
    // The first field after the name is the third of all.
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let heap = field(47)?;
    Some(Layout {
        code: field(26)?..field(27)?,
        stack: field(28)?,
        data: field(45)?..field(46)?,
        heap: heap..heap,
        arguments: field(48)?..field(49)?,
        environment: field(50)?..field(51)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn the_image_is_laid_out_as_the_kernels_header_says() {
        let one = |start: u64| start..start + 1;
        let layout = Layout {
            code: one(10),
            data: one(20),
            heap: one(30),
            stack: 40,
            arguments: one(50),
            environment: one(60),
        };
        let image = layout.image();
        let word = |at: usize| u64::from_ne_bytes(image[at..at + 8].try_into().expect("8 bytes"));
        assert_eq!(word(offset_of!(raw::prctl_mm_map, end_code)), 11);
        assert_eq!(word(offset_of!(raw::prctl_mm_map, brk)), 31);
        assert_eq!(word(offset_of!(raw::prctl_mm_map, start_stack)), 40);
        assert_eq!(word(offset_of!(raw::prctl_mm_map, env_end)), 61);
        assert_eq!(word(offset_of!(raw::prctl_mm_map, auxv)), 0);
        let fd = offset_of!(raw::prctl_mm_map, exe_fd);
        assert_eq!(image[fd..fd + 4], [0xff; 4]);
    }

    #[test]
    fn this_code_lies_in_the_code_of_this_program() {
        let layout = Layout::of(std::process::id()).expect("our own");
        let here = this_code_lies_in_the_code_of_this_program as fn() as usize as u64;
        assert!(layout.code.contains(&here), "{here:#x} {layout:#x?}");
        assert!(layout.stack > layout.code.end && layout.heap.end >= layout.heap.start);
    }

    #[test]
    fn the_layout_of_a_program_is_known_whatever_its_name() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;
        let directory = std::env::temp_dir().join(format!("refit-layout-{}", std::process::id()));
        std::fs::create_dir(&directory).expect("a directory");
        let program = directory.join(OsStr::from_bytes(b"sl) \xff"));
        std::os::unix::fs::symlink("/bin/sleep", &program).expect("it is linked");
        let mut child =
            std::process::Command::new(&program).arg("1000").spawn().expect("it starts");
        // The kernel lets the parent go on before it has recorded the child's layout.
        while crate::process::arguments(child.id()).is_empty() {
            std::thread::yield_now();
        }
        let found = Layout::of(child.id());
        child.kill().and_then(|()| child.wait()).expect("it can be ended");
        std::fs::remove_dir_all(&directory).expect("it can be removed");
        let code = found.expect("it runs").code;
        assert!(code.start != 0 && code.end > code.start);
    }
}
