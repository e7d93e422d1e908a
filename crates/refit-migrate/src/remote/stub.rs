//! A process that is nothing but a page of code of ours, for a replica to begin with.
//!
//! It is a program of one page, made here byte by byte (`elf.h`, elf(5)): a header, one segment to be loaded, and the code. It is loaded
//! at an address that is refit's in the program too, so that all others are free for what the program has there.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use refit_sys::shadow_stub;
use refit_sys::trace::{Options, Tracee, batch};

/// Where in its page the code is.
pub(crate) const CODE: u64 = HEADER + SEGMENT;

/// Where in its page nothing is: room for a name, or for a table of calls.
pub(crate) const BEHIND: u64 = 1024;

/// How many calls have room there.
pub(crate) const CALLS: usize = (PAGE - BEHIND) as usize / batch::ENTRY;

const HEADER: u64 = 64;
const SEGMENT: u64 = 56;
const PAGE: u64 = 4096;

/// Where in its page the code is that makes calls of a table.
pub(crate) fn batch() -> u64 {
    CODE + shadow_stub::code().len() as u64
}

/// Starts such a process, traced by the calling thread; it stands before its first instruction, a place of rest.
///
/// # Errors
/// It cannot be started.
pub(crate) fn start(page: u64, options: Options) -> io::Result<(Child, Tracee)> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::memfd_create(c"refit-replica", flags)?);
    file.write_all(&image(page))?;
    // A file that somebody may still write to cannot be run.
    let program = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    drop(file);
    let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
    command.arg0("refit replica").env_clear().current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    refit_sys::launch::at_exec(&mut command, options)
}

/// The bytes of the program.
fn image(page: u64) -> Vec<u8> {
    let code = [shadow_stub::code(), batch::code()].concat();
    let length = CODE + code.len() as u64;
    let mut image = Vec::with_capacity(PAGE as usize);
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
    // Entry; where segments are described, and sections.
    longs(&mut image, &[page + CODE + shadow_stub::rest(), HEADER, 0]);
    words(&mut image, &[0]);
    halves(&mut image, &[HEADER as u16, SEGMENT as u16, 1, 0, 0, 0]);
    // To be loaded, readable and executable; offset, addresses, lengths, alignment.
    words(&mut image, &[1, 5]);
    longs(&mut image, &[0, page, page, length, length, PAGE]);
    image.extend(code);
    image
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_begins_at_its_place_of_rest() {
        let page = 0x7000_0000_0000;
        let (mut child, held) = start(page, Options::EXIT_KILL).expect("started");
        let registers = held.registers().expect("it stands");
        assert_eq!(registers.rip, page + CODE + shadow_stub::rest());
        drop(held);
        child.kill().and_then(|()| child.wait()).expect("it ends");
    }
}
