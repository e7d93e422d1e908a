//! The files whose code a program runs, and where they are mapped.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use memchr::memmem;
use refit_analysis::image::Image;
use refit_analysis::{Module, OpenError};
use refit_splice::process::{Program, Refusal};
use refit_sys::mapped_file::{KeptFile, path_by_name};
use refit_sys::maps::Mapping;

/// A file that a program has mapped to run its code.
#[derive(Clone, Debug)]
pub struct Mapped {
    /// Path, as the program sees it.
    pub path: PathBuf,
    /// Path under which refit can read it, although it may be deleted, replaced, or in another
    /// mount namespace.
    pub file: PathBuf,
    /// Path under which refit can read the file that has the name now: a different file, if the
    /// mapped one has been replaced.
    pub by_name: PathBuf,
    mapping: Mapping,
    kept: Option<KeptFile>,
}

/// Returns the files whose code the program can run, by address; each once.
///
/// # Errors
/// [`Refusal`]: the program has ended.
pub fn of(program: &Program) -> Result<Vec<Mapped>, Refusal> {
    Ok(among(program.face(), program.mappings()?))
}

/// Returns the path of the program's own file, as the program sees it.
pub fn own_path(program: &Program) -> String {
    let own = fs::read_link(format!("/proc/{}/exe", program.face())).unwrap_or_default();
    let own = own.to_string_lossy();
    own.strip_suffix(" (deleted)").unwrap_or(&own).to_owned()
}

/// Returns the files whose code a process can run, among its mappings.
pub fn among(process: u32, mappings: Vec<Mapping>) -> Vec<Mapped> {
    let mut found: Vec<Mapped> = Vec::new();
    for mapping in mappings {
        let code = mapping.executable && mapping.file.1 != 0 && mapping.name.is_absolute();
        // A memfd is a file by name only: refit has made it, or a compiler at run time.
        let made = mapping.name.as_os_str().as_encoded_bytes().starts_with(b"/memfd:");
        if code && !made && found.iter().all(|known| known.mapping.file != mapping.file) {
            found.push(Mapped::new(process, mapping));
        }
    }
    found
}

impl Mapped {
    fn new(process: u32, mapping: Mapping) -> Self {
        let by_name = path_by_name(process, &mapping);
        let kept = KeptFile::of(process, &mapping);
        let file = kept.as_ref().map_or_else(|| by_name.clone(), |kept| kept.path.clone());
        Self { path: mapping.name.clone(), file, by_name, mapping, kept }
    }

    /// Returns what keeps [`file`](Self::file) readable.
    pub(crate) fn kept(&self) -> Option<KeptFile> {
        self.kept.clone()
    }

    /// Whether the file has been deleted or replaced since it was mapped.
    pub fn is_deleted(&self) -> bool {
        self.mapping.deleted
    }

    /// Whether it is the file of the program itself, not of a library, and has this name of a
    /// function in it. An analysis would take longer.
    pub(crate) fn is_program_with(&self, program: &Program, name: &str) -> bool {
        let identity = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
        let own = identity(Path::new(&format!("/proc/{}/exe", program.face())));
        let has =
            || fs::read(&self.file).is_ok_and(|all| memmem::find(&all, name.as_bytes()).is_some());
        own.is_some() && own == identity(&self.file) && has()
    }

    /// Whether this address of the program is in its code.
    pub fn contains(&self, address: u64) -> bool {
        self.mapping.range.contains(&address)
    }

    /// Returns its file name.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// Analyses its code.
    ///
    /// # Errors
    /// [`OpenError`]: the file cannot be read, or is not for x86-64.
    pub fn open(&self) -> Result<Module, OpenError> {
        Module::open(&self.file)
    }

    /// Compares its code in the program with the file; returns the address of the first byte of
    /// each run that differs.
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
            // Behind the end of the file, the page is filled with zeros.
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

    /// Returns the distance of addresses in the program from those in the file; `None` if the file
    /// is not the one that is mapped.
    pub fn bias(&self, image: &Image) -> Option<u64> {
        let begins = image.address_of_offset(self.mapping.offset)?;
        Some(self.mapping.range.start.wrapping_sub(begins))
    }
}

/// Bytes that are compared at once.
const PIECE: usize = 4096;
