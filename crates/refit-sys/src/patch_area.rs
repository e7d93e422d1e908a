//! Patch areas, which hold the code that refit has put into a program: recognised among the
//! program's mappings and files.

use std::ffi::CStr;

use crate::maps::Mapping;

/// Name of the memfd; in `/proc/PID/maps` it has `/memfd:` before it and ` (deleted)` after it.
pub const NAME: &CStr = c"refit-splice";

/// Whether `name` is that of a patch area, as the kernel shows it.
pub fn is_name(name: &[u8]) -> bool {
    let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
    name.strip_prefix(b"/memfd:") == Some(NAME.to_bytes())
}

/// Whether this mapping is part of a patch area.
pub fn is_area(mapping: &Mapping) -> bool {
    is_name(mapping.name.as_os_str().as_encoded_bytes())
}
