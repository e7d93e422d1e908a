//! The files whose code a program runs, and where in its memory they are.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use refit_sys::maps::Mapping;

use crate::process::{Program, Refusal};
use crate::{Module, OpenError};

/// A file that a program has mapped to run code of it.
#[derive(Clone, Debug)]
pub struct Mapped {
    /// Its path, as the program sees it.
    pub path: PathBuf,
    /// Where it can be read by us.
    pub file: PathBuf,
    mapping: Mapping,
}

/// The files whose code the program can run, by address; each once.
///
/// # Errors
/// [`Refusal`]: it has ended.
pub fn of(program: &Program) -> Result<Vec<Mapped>, Refusal> {
    let mut found: Vec<Mapped> = Vec::new();
    for mapping in program.mappings()? {
        let code = mapping.executable && mapping.file.1 != 0 && mapping.name.is_absolute();
        // Memory that is a file by name only: what refit, or a compiler at run time, has put there.
        let made = mapping.name.as_os_str().as_encoded_bytes().starts_with(b"/memfd:");
        if code && !made && found.iter().all(|known| known.mapping.file != mapping.file) {
            let file = program.file_of(&mapping);
            found.push(Mapped { path: mapping.name.clone(), file, mapping });
        }
    }
    Ok(found)
}

impl Mapped {
    /// Its file name.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// Whether `wanted` names it: by path, by file name, or by the file name up to its first `.so` or version.
    pub fn is_called(&self, wanted: &str) -> bool {
        let name = self.name();
        let stem = name.split(".so").next().unwrap_or(&name);
        wanted == "*" || wanted == name || wanted == stem || Path::new(wanted) == self.path
    }

    /// Its code, analysed.
    ///
    /// # Errors
    /// [`OpenError`]: it cannot be read, or is none of ours.
    pub fn open(&self) -> Result<Module, OpenError> {
        Module::open(&self.file)
    }

    /// Addresses in the program where its code is not what the file says: the first byte of each run that differs.
    ///
    /// # Errors
    /// The file or the program cannot be read.
    pub fn differences(&self, program: &Program) -> io::Result<Vec<u64>> {
        let file = File::open(&self.file)?;
        let Mapping { range, offset, .. } = &self.mapping;
        let (mut found, mut same) = (Vec::new(), true);
        for begin in range.clone().step_by(PIECE) {
            let (mut here, mut there) = ([0; PIECE], [0; PIECE]);
            let length = PIECE.min((range.end - begin) as usize);
            program.read(begin, &mut here[..length])?;
            // Behind the end of the file there are zeros, up to the end of the page.
            let mut read = 0;
            while read < length {
                match file.read_at(
                    &mut there[read..length],
                    offset + (begin - range.start) + read as u64,
                )? {
                    0 => break,
                    more => read += more,
                }
            }
            for (at, (one, other)) in here.iter().zip(&there).enumerate() {
                if one != other && same {
                    found.push(begin + at as u64);
                }
                same = one == other;
            }
        }
        Ok(found)
    }

    /// What to add to an address of the file for the address in the program; `None` if the file is not the one that is mapped.
    pub fn bias(&self, module: &Module) -> Option<u64> {
        let at = self.mapping.offset;
        let segment = module.image().segments().iter().find(|segment| {
            let length = segment.addresses.end - segment.addresses.start;
            // The kernel maps whole pages: a mapping may begin some bytes before its segment.
            segment.executable && at <= segment.offset + length && segment.offset < at + PAGE
        })?;
        let begins = segment.addresses.start.wrapping_sub(segment.offset).wrapping_add(at);
        Some(self.mapping.range.start.wrapping_sub(begins))
    }
}

const PAGE: u64 = 4096;
/// How much is compared at once.
const PIECE: usize = 4096;
