//! Stores analyses on disk, keyed by the content of the analysed file.
//!
//! A cache file is a header followed by the analysis as postcard. The header has a magic number,
//! the state of the analysing code, a hash of the analysed file and a hash of what follows; a file
//! in which any of them is wrong is ignored and rewritten. The file lies in a directory that
//! belongs to this user and that nobody else can write to, and is written under another name first.
//! Its content is checked to be *sound* before it is used: numbers are in range, ranges lie in the
//! file's code and do not overlap. It is not checked to be *true*: a process that can write to this
//! user's cache can write to this user's programs as well.

use std::io;
use std::path::{Path, PathBuf};

use refit_sys::private_file::{self, Base};

use crate::beginning::{Beginning, MOST};
use crate::functions::Function;
use crate::functions::map::Map;
use crate::image::Image;
use crate::survey::Knowledge;

const MAGIC: &[u8] = b"refit-analysis ";
/// Identifies the analysing code. `build.rs` changes it with every change of this crate, since
/// another version may produce a different analysis of the same file.
const STATE: &[u8] = env!("REFIT_ANALYSIS_STATE").as_bytes();
/// Size in bytes above which a cache file is ignored: this crate writes none that is larger.
const LARGEST: u64 = 1 << 30;

/// Key of a cached analysis: identifies a file by its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    hash: [u8; 32],
    name: String,
}

impl Key {
    /// Returns the key of a file.
    pub fn of(image: &Image) -> Self {
        // Separate debug symbols change the result of the analysis.
        let mut hasher = blake3::Hasher::new();
        for (begin, piece) in image.contents() {
            hasher.update(&(begin as u64).to_le_bytes()).update_rayon(piece);
        }
        for symbol in image.symbols() {
            hasher.update(&symbol.address.to_le_bytes());
        }
        let hash = *hasher.finalize().as_bytes();
        let id = if image.build_id().is_empty() { &hash[..20] } else { image.build_id() };
        Self { hash, name: digits(id) }
    }

    fn file(&self, directory: &Path) -> PathBuf {
        directory.join(&self.name)
    }
}

/// Returns a name for files about a file: its build id in hexadecimal digits, or a part of the hash
/// of its content if it has none.
pub fn name_of(image: &Image) -> String {
    match image.build_id() {
        [] => Key::of(image).name,
        id => digits(id),
    }
}

fn digits(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns this user's cache directory: `refit/code` in `$XDG_CACHE_HOME` or `~/.cache`; `None` if
/// there is neither, or if `REFIT_CODE_CACHE` is `off`.
pub fn directory() -> Option<PathBuf> {
    if std::env::var_os("REFIT_CODE_CACHE").is_some_and(|v| v == "off") {
        return None;
    }
    private_file::directory(Base::Cache, "code")
}

/// Returns the cached analysis for `key`, if it is there and usable.
pub(crate) fn load(directory: &Path, key: &Key, image: &Image) -> Option<Knowledge> {
    let bytes = private_file::read(&key.file(directory), LARGEST).ok()?;
    let body = bytes.strip_prefix(MAGIC)?.strip_prefix(STATE)?.strip_prefix(&key.hash)?;
    let (hash, body) = body.split_at_checked(32)?;
    if blake3::hash(body).as_bytes() != hash {
        return None;
    }
    understood(body, image)
}

/// Decodes the analysis of `image` from the part of a cache file after its header; `None` if it is
/// not sound.
pub(crate) fn understood(body: &[u8], image: &Image) -> Option<Knowledge> {
    let knowledge: Knowledge = postcard::from_bytes(body).ok()?;
    is_sound(&knowledge, image).then_some(knowledge)
}

/// Encodes an analysis as the part of a cache file after its header.
pub(crate) fn written(knowledge: &Knowledge) -> Option<Vec<u8>> {
    postcard::to_stdvec(knowledge).ok()
}

/// Stores the analysis for `key`.
pub(crate) fn store(directory: &Path, key: &Key, knowledge: &Knowledge) -> io::Result<()> {
    let body = written(knowledge).ok_or(io::ErrorKind::InvalidData)?;
    let check = blake3::hash(&body);
    private_file::replace(&key.file(directory), &[MAGIC, STATE, &key.hash, check.as_bytes(), &body])
}

/// Whether every number and every range in the analysis is within its list or within the file.
fn is_sound(knowledge: &Knowledge, image: &Image) -> bool {
    let functions = &knowledge.functions;
    let count = functions.len();
    let lists = [knowledge.returns.len(), knowledge.summaries.len(), knowledge.exits.len()];
    let in_code = |range: &std::ops::Range<u64>| {
        range.start < range.end
            && image.code_at(range.start).is_some_and(|c| range.end <= c.addresses.end)
    };
    lists.iter().all(|length| *length == count)
        && functions.iter().all(|f| f.ranges.iter().all(in_code))
        && functions.iter().all(|f| f.ranges.first().is_some_and(|r| r.start == f.entry))
        && functions.windows(2).all(|w| w[0].entry < w[1].entry)
        && are_sound(&knowledge.beginnings, functions)
        && knowledge.inner.windows(2).all(|w| w[0] < w[1])
        && Map::new(functions.iter()).is_sound()
}

/// Whether each function has a beginning at most, which lies in its first range.
fn are_sound(beginnings: &[Option<Beginning>], functions: &[Function]) -> bool {
    let within = |function: &Function, beginning: &Beginning| {
        let length = function.ranges.first().map_or(0, |range| range.end - range.start);
        u64::from(beginning.room) <= length.min(MOST.into())
    };
    let mut all = functions.iter().zip(beginnings);
    (beginnings.is_empty() || beginnings.len() == functions.len())
        && all.all(|(function, one)| one.as_ref().is_none_or(|one| within(function, one)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;
    use crate::functions::{Convention, Sources};
    use crate::live::Live;
    use crate::live::outline::Summary;
    use crate::live::set::Set;

    fn image() -> Image {
        Image::open(Path::new("/bin/true")).expect("a program")
    }

    fn knowledge(image: &Image) -> Knowledge {
        let code = image.code().last().expect("code").addresses.clone();
        let function = |entry, end| Function {
            entry,
            ranges: std::iter::once(entry..end).collect(),
            names: vec!["f".into()],
            sources: Sources::SYMBOL,
            convention: Convention::SystemV,
        };
        Knowledge {
            functions: vec![
                function(code.start, code.start + 1),
                function(code.start + 2, code.start + 3),
            ],
            returns: vec![true, false],
            inner: vec![code.start],
            summaries: vec![Summary::ABI, Summary::ANY],
            exits: vec![Set::ALL, Set::NONE],
            beginnings: vec![Some(Beginning { room: 1, live: Live::ALL }), None],
        }
    }

    #[test]
    fn what_is_kept_comes_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let directory = folder.path().join("refit/code");
        let (image, key) = (image(), Key::of(&image()));
        assert!(load(&directory, &key, &image).is_none());
        let kept = knowledge(&image);
        store(&directory, &key, &kept).expect("kept");
        store(&directory, &key, &kept).expect("kept again");
        let back = load(&directory, &key, &image).expect("there");
        assert_eq!(back.functions, kept.functions);
        assert_eq!((back.returns, back.exits), (kept.returns, kept.exits));
        assert_eq!(back.beginnings, kept.beginnings);
        assert_eq!(fs::read_dir(&directory).expect("a folder").count(), 1, "nothing else is left");
        let mode = fs::metadata(key.file(&directory)).expect("a file").mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn damage_is_noticed_wherever_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let (image, key) = (image(), Key::of(&image()));
        store(folder.path(), &key, &knowledge(&image)).expect("kept");
        let path = key.file(folder.path());
        let good = fs::read(&path).expect("a file");
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            fs::write(&path, bad).expect("written");
            assert!(load(folder.path(), &key, &image).is_none(), "byte {at}");
        }
        fs::write(&path, &good[..good.len() - 1]).expect("written");
        assert!(load(folder.path(), &key, &image).is_none());
        fs::write(&path, &good).expect("written");
        assert!(load(folder.path(), &key, &image).is_some());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).expect("permissions");
        assert!(load(folder.path(), &key, &image).is_none(), "others could have written it");
    }

    #[test]
    fn what_would_lead_astray_is_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let (image, key) = (image(), Key::of(&image()));
        let spoil: [fn(&mut Knowledge); 9] = [
            |k| k.returns.truncate(1),
            |k| k.summaries.truncate(1),
            |k| k.functions[0].ranges[0].end = u64::MAX,
            |k| k.functions[0].ranges[0].end = k.functions[1].ranges[0].end,
            |k| k.functions[0].ranges.clear(),
            |k| k.functions.swap(0, 1),
            |k| k.inner = vec![2, 1],
            |k| k.beginnings.truncate(1),
            |k| k.beginnings[0] = Some(Beginning { room: 2, live: Live::ALL }),
        ];
        for (i, spoil) in spoil.into_iter().enumerate() {
            let mut bad = knowledge(&image);
            spoil(&mut bad);
            store(folder.path(), &key, &bad).expect("kept");
            assert!(load(folder.path(), &key, &image).is_none(), "{i}");
        }
    }
}
