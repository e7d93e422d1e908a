//! The files whose code a program runs, and where in its memory they are.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use refit_analysis::{Module, OpenError};
use refit_splice::process::{Program, Refusal};
use refit_sys::maps::Mapping;

/// A file that a program has mapped to run code of it.
#[derive(Clone, Debug)]
pub struct Mapped {
    /// Its path, as the program sees it.
    pub path: PathBuf,
    /// Where it can be read by us, although it may be deleted, replaced, or in another mount namespace.
    pub file: PathBuf,
    /// Where it can be read by us under its name: another file, if it has been replaced.
    pub by_name: PathBuf,
    mapping: Mapping,
}

/// The files whose code the program can run, by address; each once.
///
/// # Errors
/// [`Refusal`]: it has ended.
pub fn of(program: &Program) -> Result<Vec<Mapped>, Refusal> {
    Ok(among(program.face(), program.mappings()?))
}

/// The files whose code a process can run, among all that it has mapped.
pub fn among(process: u32, mappings: Vec<Mapping>) -> Vec<Mapped> {
    let mut found: Vec<Mapped> = Vec::new();
    for mapping in mappings {
        let code = mapping.executable && mapping.file.1 != 0 && mapping.name.is_absolute();
        // Memory that is a file by name only: what refit, or a compiler at run time, has put there.
        let made = mapping.name.as_os_str().as_encoded_bytes().starts_with(b"/memfd:");
        if code && !made && found.iter().all(|known| known.mapping.file != mapping.file) {
            found.push(Mapped::new(process, mapping));
        }
    }
    found
}

impl Mapped {
    fn new(process: u32, mapping: Mapping) -> Self {
        let range = &mapping.range;
        let exact = format!("/proc/{process}/map_files/{:x}-{:x}", range.start, range.end);
        let mut by_name = PathBuf::from(format!("/proc/{process}/root"));
        by_name.extend(mapping.name.components().skip(1));
        // The link resolves for those who may use it only; else the name has to do.
        let resolves = fs::metadata(&exact).is_ok();
        let file = if resolves { exact.into() } else { by_name.clone() };
        Self { path: mapping.name.clone(), file, by_name, mapping }
    }

    /// Whether the file has been deleted, or replaced, since it was mapped.
    pub fn is_deleted(&self) -> bool {
        self.mapping.deleted
    }

    /// Whether its code is at this address of the program.
    pub fn contains(&self, address: u64) -> bool {
        self.mapping.range.contains(&address)
    }

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
        let begins = module.address_of_offset(self.mapping.offset)?;
        Some(self.mapping.range.start.wrapping_sub(begins))
    }
}

/// How much is compared at once.
const PIECE: usize = 4096;
