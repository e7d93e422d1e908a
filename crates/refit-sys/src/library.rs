//! Shared libraries from memory, mapped for as long as the process lives.
//!
//! The library is given as bytes and opened through an anonymous file: it has no path that could be replaced between a
//! check and the load, and no name under which the dynamic linker could know it already. The file stays open, so that
//! its number names no other library later. The library is never unmapped: threads may have destructors of it to run.

use std::ffi::{CStr, CString, c_void};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

/// A library that is mapped, and stays so.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    handle: NonNull<c_void>,
}

// SAFETY: a handle of `dlopen` may be used from every thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// Maps a library and runs its constructors. `name` is shown in `/proc/PID/maps`.
///
/// # Errors
/// What the host or the dynamic linker says.
pub fn open(bytes: &[u8], name: &str) -> Result<Library, String> {
    let name: String = name.chars().filter(|c| *c != '\0').take(100).collect();
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Hosts that forbid programs in anonymous files by default allow them to who says so; old kernels do not know it.
    let file = memfd_create(&*name, flags | MemfdFlags::EXEC)
        .or_else(|_| memfd_create(&*name, flags))
        .map_err(|error| format!("no anonymous file: {error}"))?;
    let mut file = File::from(file);
    file.write_all(bytes).map_err(|error| format!("the anonymous file: {error}"))?;
    let sealed = fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW);
    sealed.map_err(|error| format!("the anonymous file: {error}"))?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let path = CString::new(path).map_err(|error| error.to_string())?;
    let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE;
    // SAFETY: the path is a C string. What constructors do is what the caller asked for.
    let handle = unsafe { libc::dlopen(path.as_ptr(), flags) };
    let Some(handle) = NonNull::new(handle) else { return Err(last_error()) };
    let _stays_open = file.into_raw_fd();
    Ok(Library { handle })
}

impl Library {
    /// The address of a symbol.
    pub fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle is never closed; the name is a C string.
        NonNull::new(unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) })
    }
}

fn last_error() -> String {
    // SAFETY: gives a C string that is valid until the next call of this thread, or null.
    let text = unsafe { libc::dlerror().as_ref().map(|text| CStr::from_ptr(text)) };
    text.map_or_else(|| "no reason given".into(), |text| text.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_library_is_refused_with_the_linkers_words() {
        let error = open(b"not a library", "name\0with zero").expect_err("no ELF");
        assert!(error.contains("invalid ELF header") || error.contains("too short"), "{error}");
    }
}
