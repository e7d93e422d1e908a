//! Finds the debug information that a compiler has left in files of its own (`-gsplit-dwarf`): a
//! `.dwo` file for each unit, or a `.dwp` file with all of them beside the program.
//!
//! The unit in the program, the *skeleton*, names the file and has a number that the other part has
//! as well: a part of another build is not used.

use std::cell::{OnceCell, RefCell};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use gimli::{DwarfFileType, SectionId};

use super::part::{Dwarf, Part, Reader, Sections, Unit};
use crate::image::DEBUG_ROOT;

/// The most errors that are kept.
const MOST_ERRORS: usize = 16;

/// Why the debug information of a unit is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoUnit {
    /// The file that has it is not there.
    #[error(
        "a part of the debug information is in {name}, which is not there (-gsplit-dwarf; restore it, or make a .dwp file)"
    )]
    NoFile {
        /// Name of the file.
        name: PathBuf,
    },
    /// The file is of another build.
    #[error(
        "a part of the debug information is in {path}, which is of another build (-gsplit-dwarf)"
    )]
    Stale {
        /// Path of the file.
        path: PathBuf,
    },
    /// The unit does not say in which file it is.
    #[error("a part of the debug information is in a file that it does not name (-gsplit-dwarf)")]
    NoName,
}

/// The files that units of a program may be in.
pub(super) struct Split {
    /// Paths of the program, and of the file that has its debug information.
    paths: Vec<PathBuf>,
    package: OnceCell<Option<Package>>,
    errors: RefCell<Vec<NoUnit>>,
}

/// A file with all units.
struct Package {
    package: gimli::DwarfPackage<Reader>,
}

impl Split {
    pub(super) fn new(paths: Vec<PathBuf>) -> Self {
        Self { paths, package: OnceCell::new(), errors: RefCell::default() }
    }

    /// Returns the first reasons for which parts are missing.
    pub(super) fn errors(&self) -> Vec<NoUnit> {
        self.errors.borrow().clone()
    }

    /// Reads the part that continues a skeleton, as the part with a number.
    pub(super) fn part(
        &self,
        number: u32,
        dwarf: &Dwarf,
        skeleton: &Rc<Unit>,
    ) -> Result<(Part, usize), NoUnit> {
        let found = self.find(number, dwarf, skeleton);
        if let Err(why) = &found {
            let mut errors = self.errors.borrow_mut();
            if errors.len() < MOST_ERRORS {
                errors.push(why.clone());
            }
        }
        found
    }

    fn find(
        &self,
        number: u32,
        dwarf: &Dwarf,
        skeleton: &Rc<Unit>,
    ) -> Result<(Part, usize), NoUnit> {
        let id = skeleton.dwo_id.ok_or(NoUnit::NoName)?;
        let chosen = |part: Dwarf| {
            let part = Part::new(number, part, Some(Rc::clone(skeleton)))?;
            let unit = part.split_unit(id)?;
            Some((part, unit))
        };
        let packed = self.package().and_then(|one| one.package.find_cu(id, dwarf).ok().flatten());
        if let Some(found) = packed.and_then(chosen) {
            return Ok(found);
        }
        let text = |value| dwarf.attr_string(skeleton, value).ok();
        let name = skeleton.dwo_name().ok().flatten().and_then(text).ok_or(NoUnit::NoName)?;
        let folder = skeleton.comp_dir.as_ref().map(path);
        let name = path(&name);
        let mut stale = None;
        for path in self.candidates(&name, folder.as_deref()) {
            let Some(sections) = Sections::read(&path) else { continue };
            let part = sections.load(SectionId::dwo_name, |section| Dwarf::load(section));
            let part = part.map(|mut part: Dwarf| {
                part.make_dwo(dwarf);
                part.file_type = DwarfFileType::Dwo;
                part
            });
            match part.and_then(chosen) {
                Some(found) => return Ok(found),
                None => stale = stale.or(Some(path)),
            }
        }
        Err(stale.map_or(NoUnit::NoFile { name }, |path| NoUnit::Stale { path }))
    }

    /// Returns the paths at which a part may be: where the compiler wrote it, then at the same
    /// place from the folder of the program on, and in that folder.
    fn candidates(&self, name: &Path, folder: Option<&Path>) -> Vec<PathBuf> {
        // Any other file is no part, and a program must not choose which ones are read.
        if name.extension().is_none_or(|extension| extension != "dwo") {
            return Vec::new();
        }
        let mut found: Vec<PathBuf> = folder.map(|folder| folder.join(name)).into_iter().collect();
        for beside in self.paths.iter().filter_map(|path| path.parent()) {
            found.push(beside.join(name));
            found.extend(name.file_name().map(|name| beside.join(name)));
        }
        found.retain(|path| path.is_absolute());
        found.dedup();
        found
    }

    fn package(&self) -> Option<&Package> {
        self.package.get_or_init(|| self.packages().iter().find_map(|path| open(path))).as_ref()
    }

    /// Returns the paths at which all parts may be together.
    fn packages(&self) -> Vec<PathBuf> {
        let with = |path: &Path| {
            let mut name = path.as_os_str().to_owned();
            name.push(".dwp");
            PathBuf::from(name)
        };
        let mut found: Vec<PathBuf> = self.paths.iter().map(|path| with(path)).collect();
        for path in &self.paths {
            let inside = path.strip_prefix("/").unwrap_or(path);
            found.push(with(&Path::new(DEBUG_ROOT).join(inside)));
            if path.extension().is_some_and(|extension| extension == "debug") {
                found.push(path.with_extension("dwp"));
            }
        }
        found
    }

    /// Returns the number of types that have a unit of their own in the file with all parts.
    pub(super) fn packed_types(&self) -> u32 {
        self.package().map_or(0, |one| one.package.tu_index.unit_count())
    }

    /// Reads the type with this number, from 1 on, in the file with all parts.
    pub(super) fn packed_type(&self, number: u32, index: u32, dwarf: &Dwarf) -> Option<Part> {
        let part = self.package()?.package.tu_sections(index, dwarf).ok()?;
        Part::new(number, part, None)
    }

    /// Returns the number of a type in the file with all parts, by its signature.
    pub(super) fn packed_signature(&self, signature: u64) -> Option<u32> {
        self.package()?.package.tu_index.find(signature)
    }
}

fn open(path: &Path) -> Option<Package> {
    let empty = Reader::new(std::sync::Arc::from([]), gimli::LittleEndian);
    let sections = Sections::read(path)?;
    let package = sections
        .load(SectionId::dwo_name, |section| gimli::DwarfPackage::load(section, empty.clone()));
    package.map(|package| Package { package })
}

fn path(text: &Reader) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(text.bytes()))
}
