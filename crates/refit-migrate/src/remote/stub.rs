//! A process that is nothing but a page of refit's code, with which a replica begins.
//!
//! The program is one page, made here byte by byte (`elf.h`, elf(5)): a header, one segment to
//! load, and the code. It is loaded at an address that is refit's in the moving program too, so
//! that all other addresses are free for what that program has there.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use refit_sys::shadow_stub;
use refit_sys::trace::{Options, Tracee, batch};

use crate::page::PAGE_SIZE;

/// The offset of the code in the page.
pub(crate) const CODE: u64 = HEADER + SEGMENT;

/// The offset of free room in the page, for a name or a table of calls.
pub(crate) const BEHIND: u64 = 1024;

/// The number of calls that fit there.
pub(crate) const CALLS: usize = (PAGE_SIZE - BEHIND) as usize / batch::ENTRY;

const HEADER: u64 = 64;
const SEGMENT: u64 = 56;

/// Returns the offset of the code that makes the calls of a table.
pub(crate) fn batch() -> u64 {
    CODE + shadow_stub::code().len() as u64
}

/// Starts such a process, traced by the calling thread. It is stopped before its first instruction,
/// a place of rest.
///
/// # Errors
/// It cannot be started.
pub(crate) fn start(page: u64, options: Options) -> io::Result<(Child, Tracee)> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::memfd_create(c"refit-replica", flags)?);
    file.write_all(&image(page))?;
    // A file that is still open for writing cannot be executed.
    let program = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    drop(file);
    let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
    command.arg0("refit replica").env_clear().current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    refit_sys::launch::at_exec(&mut command, options)
}

/// Returns the bytes of the program.
fn image(page: u64) -> Vec<u8> {
    let code = [shadow_stub::code(), batch::code()].concat();
    let length = CODE + code.len() as u64;
    let mut image = Vec::with_capacity(PAGE_SIZE as usize);
    // 64 bits, little-endian, version 1; an executable for x86-64.
    image.extend([0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let halves = |image: &mut Vec<u8>, all: &[u16]| {
        all.iter().for_each(|one| image.extend(one.to_le_bytes()));
    };
    let words = |image: &mut Vec<u8>, all: &[u32]| {
        all.iter().for_each(|one| image.extend(one.to_le_bytes()));
    };
    let longs = |image: &mut Vec<u8>, all: &[u64]| {
        all.iter().for_each(|one| image.extend(one.to_le_bytes()));
    };
    halves(&mut image, &[2, 62]);
    words(&mut image, &[1]);
    // Entry; the offsets of segment and section headers.
    longs(&mut image, &[page + CODE + shadow_stub::rest(), HEADER, 0]);
    words(&mut image, &[0]);
    halves(&mut image, &[HEADER as u16, SEGMENT as u16, 1, 0, 0, 0]);
    // To load, readable and executable; offset, addresses, lengths, alignment.
    words(&mut image, &[1, 5]);
    longs(&mut image, &[0, page, page, length, length, PAGE_SIZE]);
    image.extend(code);
    image
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_begins_at_its_place_of_rest() {
        let page = 0x7000_0000_0000;
        let (mut child, tracee) = start(page, Options::EXIT_KILL).expect("started");
        let registers = tracee.registers().expect("it is stopped");
        assert_eq!(registers.rip, page + CODE + shadow_stub::rest());
        drop(tracee);
        child.kill().and_then(|()| child.wait()).expect("it ends");
    }
}
