//! Profiles on disk, one for each binary, by its build id.
//!
//! A profile is keyed by the build id of the file, or a hash of its content if it has none. It has
//! the count of each block of the functions that were counted, by the entry of the function, and
//! the functions that calls through pointers mostly lead to. A process of the same binary that is
//! profiled later adds its counts.
//!
//! *Why counts are added.* They are exact, so their sum is what one profile of all these processes
//! would have found: a process that did more counts for more. What is older than the newest profile
//! counts as at most 2³⁴ runs of blocks, so that a load of another kind prevails after some
//! profiles, and no sum overflows.
//!
//! *Trust.* The file belongs to this user alone ([`private_file`]) and has a checksum. Its content
//! need not be true, since it decides only what is copied, and in which order. A function is left
//! out if the analysis has other blocks for it now than when it was counted. A profile of which
//! less than half is left is of another file, and not used.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use refit_analysis::cache::name_of;
use refit_analysis::flow::Flow;
use refit_analysis::{FunctionId, Module};
use refit_sys::private_file::{self, Base};
use serde::{Deserialize, Serialize};

use crate::calls::{COMPARED, Targets};
use crate::profile::{Called, Profile, Profiled};

/// The first bytes of such a file; the number is that of the format.
const MAGIC: &[u8] = b"refit-profile 2\n";
/// Bytes of the checksum that follows.
const CHECKSUM: usize = 32;
/// Largest size in bytes of such a file. A block takes two to six bytes.
const LARGEST: u64 = 64 << 20;
/// The unit of parts of calls.
const MILLION: f64 = 1e6;
/// Runs of blocks, all together, that older profiles count at most: what one processor runs in
/// about half a minute.
const OLDER: f64 = (1_u64 << 34) as f64;

/// The sum of all profiles of a binary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredProfile {
    /// Number of profiles that have been added up.
    profiles: u32,
    /// The entry of the function whose calls were the most even measure of progress.
    progress: Option<u64>,
    /// Number of calls of functions, by entry.
    calls: BTreeMap<u64, u64>,
    /// The functions whose blocks were counted, by entry.
    functions: BTreeMap<u64, Counts>,
    /// Where calls through pointers lead, by the address of the call: functions, and the millionths
    /// of the calls that lead there. They are those of the last profile that has the call.
    targets: BTreeMap<u64, Vec<(u64, u32)>>,
}

/// The counts of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Counts {
    /// A hash of where its blocks begin and end.
    shape: u64,
    /// The count of each block, in the order of its flow; `None` where it is unknown.
    blocks: Vec<Option<u64>>,
}

/// A stored profile of a file, as far as it suits the analysis of the file.
#[derive(Clone, Debug)]
pub struct Restored {
    /// The counts.
    pub profile: Profile,
    /// Where calls through pointers lead.
    pub targets: Targets,
    /// The function by whose calls progress is measured best, if one was found.
    pub progress: Option<FunctionId>,
    /// Number of profiles that it is the sum of.
    pub profiles: u32,
    /// Number of functions that were called.
    pub called: usize,
    /// Number of functions that are left out, since they have other blocks now.
    pub left_out: usize,
}

/// Why no stored profile can be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoProfile {
    /// There is no directory for profiles.
    #[error("there is no directory for profiles: neither XDG_STATE_HOME nor HOME is set")]
    NoDirectory,
    /// The binary has not been profiled.
    #[error("no profile of {file} (build id {build}) is stored")]
    Never {
        /// The file.
        file: String,
        /// Its build id, or a hash of its content.
        build: String,
    },
    /// The file cannot be read.
    #[error("the profile {} cannot be used", path.display())]
    Unreadable {
        /// Path of the profile.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Its content makes no sense.
    #[error("the profile {} is damaged, or of another version of refit", path.display())]
    Unsound {
        /// Path of the profile.
        path: PathBuf,
    },
    /// The analysis differs from the one with which it was recorded.
    #[error(
        "the profile {} does not fit: {left_out} of its {functions} functions have other blocks now",
        path.display()
    )]
    Unfit {
        /// Path of the profile.
        path: PathBuf,
        /// Number of functions in it.
        functions: usize,
        /// Number of functions that do not fit.
        left_out: usize,
    },
}

/// Returns the directory in which this user's profiles are stored: `refit/profiles` in
/// `$XDG_STATE_HOME` or `~/.local/state`.
pub fn directory() -> Option<PathBuf> {
    private_file::directory(Base::State, "profiles")
}

/// Adds a profile to what is stored of the same file, and returns the sum. A stored profile that
/// cannot be used is replaced.
///
/// # Errors
/// The sum cannot be written.
pub fn add(directory: &Path, module: &Module, new: StoredProfile) -> io::Result<StoredProfile> {
    let path = directory.join(name_of(module.image()));
    let _lock = private_file::lock(directory)?;
    let old = private_file::read(&path, LARGEST).ok();
    let sum = match old.and_then(|bytes| StoredProfile::understood(&bytes)) {
        Some(old) => old.and(new),
        None => new,
    };
    let body = sum.body()?;
    private_file::replace(&path, &[MAGIC, blake3::hash(&body).as_bytes(), &body])?;
    Ok(sum)
}

/// Returns what is stored of a file, as far as it suits the analysis of the file.
///
/// # Errors
/// [`NoProfile`].
pub fn load(directory: &Path, module: &Module) -> Result<Restored, NoProfile> {
    let build = name_of(module.image());
    let path = directory.join(&build);
    let bytes = match private_file::read(&path, LARGEST) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let file = module.image().path().display().to_string();
            return Err(NoProfile::Never { file, build });
        }
        Err(source) => return Err(NoProfile::Unreadable { path, source }),
    };
    let Some(stored) = StoredProfile::understood(&bytes) else {
        return Err(NoProfile::Unsound { path });
    };
    let (functions, restored) = (stored.functions.len(), stored.restored(module));
    restored.map_err(|left_out| NoProfile::Unfit { path, functions, left_out })
}

impl StoredProfile {
    /// Makes a profile ready to be stored.
    pub fn new(
        module: &Module,
        called: &Called,
        (profile, targets): (&Profile, &Targets),
        progress: Option<FunctionId>,
    ) -> Self {
        let entry = |id: FunctionId| module.function(id).entry;
        let counts = |one: &Profiled| {
            let shape = shape(&module.flow(one.id));
            (entry(one.id), Counts { shape, blocks: one.blocks.clone() })
        };
        let parts = |parts: &Vec<(u64, f64)>| {
            let most = parts.iter().take(COMPARED);
            most.map(|&(target, part)| (target, (part * MILLION).round() as u32)).collect()
        };
        Self {
            profiles: 1,
            progress: progress.map(entry),
            calls: called.calls.iter().map(|(&id, &calls)| (entry(id), calls)).collect(),
            functions: profile.functions.par_iter().map(counts).collect(),
            targets: targets.iter().map(|(&call, all)| (call, parts(all))).collect(),
        }
    }

    /// Returns the number of profiles that have been added up.
    pub fn profiles(&self) -> u32 {
        self.profiles
    }

    /// Reads what [`add`] has written; `None` if it is not sound. Accepts any bytes.
    pub fn understood(bytes: &[u8]) -> Option<Self> {
        let (checksum, body) = bytes.strip_prefix(MAGIC)?.split_at_checked(CHECKSUM)?;
        (blake3::hash(body).as_bytes() == checksum).then(|| Self::of_body(body))?
    }

    /// Reads what follows the checksum. Accepts any bytes.
    #[doc(hidden)]
    pub fn of_body(body: &[u8]) -> Option<Self> {
        postcard::from_bytes(body).ok()
    }

    /// Returns what follows the checksum.
    ///
    /// # Errors
    /// `InvalidData`, which does not happen with this type.
    #[doc(hidden)]
    pub fn body(&self) -> io::Result<Vec<u8>> {
        postcard::to_stdvec(self).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))
    }

    /// Returns the sum of this profile and a newer one.
    #[must_use]
    pub fn and(mut self, newer: Self) -> Self {
        self.limit();
        for (entry, calls) in newer.calls {
            let sum = self.calls.entry(entry).or_default();
            *sum = sum.saturating_add(calls);
        }
        for (entry, counts) in newer.functions {
            match self.functions.get_mut(&entry) {
                Some(older) if older.is_like(&counts) => older.add(&counts),
                // Its blocks are those that the present analysis has found.
                _ => drop(self.functions.insert(entry, counts)),
            }
        }
        self.targets.extend(newer.targets);
        self.progress = newer.progress.or(self.progress);
        self.profiles = self.profiles.saturating_add(newer.profiles);
        self
    }

    /// Reduces all counts in proportion if their sum exceeds `OLDER`.
    fn limit(&mut self) {
        let runs: f64 = self.functions.values().map(Counts::runs).sum();
        if runs <= OLDER {
            return;
        }
        let part = |count: &mut u64| *count = (*count as f64 * (OLDER / runs)).round() as u64;
        self.calls.values_mut().for_each(part);
        let blocks = self.functions.values_mut().flat_map(|counts| &mut counts.blocks);
        blocks.flatten().for_each(part);
    }

    /// Returns what suits an analysis, or the number of functions that do not if that is too much.
    fn restored(&self, module: &Module) -> Result<Restored, usize> {
        let known =
            |entry: u64| module.function_at(entry).filter(|&id| module.function(id).entry == entry);
        let all: Vec<(u64, &Counts)> =
            self.functions.iter().map(|(&entry, counts)| (entry, counts)).collect();
        let fits = |&(entry, counts): &(u64, &Counts)| {
            let id = known(entry)?;
            let flow = module.flow(id);
            let same = flow.blocks().len() == counts.blocks.len() && shape(&flow) == counts.shape;
            same.then(|| Profiled { id, blocks: counts.blocks.clone() })
        };
        let fitting: Vec<Option<Profiled>> = all.par_iter().map(fits).collect();
        let runs: f64 = all.iter().map(|(_, counts)| counts.runs()).sum();
        let fit = fitting.iter().zip(&all).filter(|(one, _)| one.is_some());
        let left: f64 = fit.map(|(_, (_, counts))| counts.runs()).sum();
        let functions: Vec<Profiled> = fitting.into_iter().flatten().collect();
        let left_out = all.len() - functions.len();
        if functions.is_empty() || left < runs / 2.0 {
            return Err(left_out);
        }
        Ok(Restored {
            // Entries and ids ascend together.
            profile: Profile { functions, ..Profile::default() },
            targets: self.targets(known),
            progress: self.progress.and_then(known),
            profiles: self.profiles,
            called: self.calls.len(),
            left_out,
        })
    }

    /// Returns where calls lead to functions that are known.
    fn targets(&self, known: impl Fn(u64) -> Option<FunctionId>) -> Targets {
        let parts = |parts: &Vec<(u64, u32)>| {
            let there = parts.iter().filter(|(target, _)| known(*target).is_some());
            there.map(|&(target, part)| (target, f64::from(part) / MILLION)).collect()
        };
        self.targets.iter().map(|(&call, all)| (call, parts(all))).collect()
    }
}

impl Counts {
    /// Returns how often its blocks ran, all together.
    fn runs(&self) -> f64 {
        self.blocks.iter().flatten().map(|&count| count as f64).sum()
    }

    /// Whether these are the counts of the same blocks.
    fn is_like(&self, other: &Self) -> bool {
        self.shape == other.shape && self.blocks.len() == other.blocks.len()
    }

    /// Adds other counts of the same blocks. What one of them does not know, the sum does not.
    fn add(&mut self, other: &Self) {
        for (sum, count) in self.blocks.iter_mut().zip(&other.blocks) {
            *sum = sum.zip(*count).map(|(sum, count)| sum.saturating_add(count));
        }
    }
}

/// Returns a hash of where the blocks of a function begin and end.
fn shape(flow: &Flow) -> u64 {
    let mut hasher = blake3::Hasher::new();
    for block in flow.blocks() {
        hasher.update(&block.start.to_le_bytes()).update(&block.end.to_le_bytes());
    }
    let mut first = [0; 8];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_le_bytes(first)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    fn module() -> Module {
        Module::open("/bin/bash").expect("a program")
    }

    /// Returns a profile in which each block of some functions ran `count` times.
    fn counted(module: &Module, count: u64) -> StoredProfile {
        let ids = (0..module.functions().len() as u32).map(FunctionId).step_by(40);
        let one = |id| {
            let mut blocks = vec![Some(count); module.flow(id).blocks().len()];
            if let Some(last) = blocks.last_mut() {
                *last = None;
            }
            Profiled { id, blocks }
        };
        let functions: Vec<Profiled> = ids.map(one).collect();
        let called = functions.iter().map(|one| (one.id, count)).collect();
        let called = Called { calls: called, ..Called::default() };
        let progress = functions.first().map(|one| one.id);
        let profile = Profile { functions, ..Profile::default() };
        StoredProfile::new(module, &called, (&profile, &targets(module)), progress)
    }

    /// Returns the targets of two calls, of which only the first leads to functions.
    fn targets(module: &Module) -> Targets {
        let [one, other] = [3, 4].map(|id| module.function(FunctionId(id)).entry);
        Targets::from([(one + 1, vec![(other, 0.75), (one, 0.25)]), (one + 2, vec![(1, 0.5)])])
    }

    #[test]
    fn profiles_of_one_binary_are_added_up() {
        let (folder, module) = (tempfile::tempdir().expect("a folder"), module());
        let none = load(folder.path(), &module).expect_err("nothing is stored");
        assert!(matches!(none, NoProfile::Never { .. }), "{none}");
        for (count, profiles) in [(3, 1), (4, 2)] {
            let sum = add(folder.path(), &module, counted(&module, count)).expect("stored");
            assert_eq!(sum.profiles(), profiles);
        }
        let restored = load(folder.path(), &module).expect("stored");
        let functions = &restored.profile.functions;
        assert_eq!((restored.profiles, restored.left_out), (2, 0));
        assert_eq!((restored.called, restored.progress), (functions.len(), Some(functions[0].id)));
        let mut known = targets(&module);
        known.values_mut().for_each(|parts| parts.retain(|(target, _)| *target != 1));
        assert_eq!(restored.targets, known);
        assert!(functions.len() > 20 && functions.is_sorted_by_key(|one| one.id));
        for one in functions {
            let (last, others) = one.blocks.split_last().expect("a block");
            assert!(others.iter().all(|&count| count == Some(7)) && last.is_none(), "{one:?}");
        }
    }

    #[test]
    fn what_is_older_counts_for_less_and_never_overflows() {
        let module = module();
        let (old, new) = (counted(&module, u64::MAX / 2), counted(&module, 1 << 20));
        let sum = old.clone().and(new.clone());
        let runs =
            |profile: &StoredProfile| profile.functions.values().map(Counts::runs).sum::<f64>();
        let expected = OLDER + runs(&new);
        assert!((runs(&sum) / expected - 1.0).abs() < 1e-3, "{} of {expected}", runs(&sum));
        assert!(sum.progress.is_some());
        // A second one weighs as much as the first.
        assert!((runs(&counted(&module, 5).and(counted(&module, 5))) / 10.0).fract() == 0.0);
    }

    #[test]
    fn a_function_with_other_blocks_is_left_out_and_a_profile_of_another_file_is_not_used() {
        let (folder, module) = (tempfile::tempdir().expect("a folder"), module());
        let good = counted(&module, 9);
        let spoilt = |every: usize| {
            let mut bad = good.clone();
            let entries: Vec<u64> = bad.functions.keys().copied().step_by(every).collect();
            for entry in &entries {
                let counts = bad.functions.get_mut(entry).expect("it is there");
                counts.blocks.push(Some(1));
            }
            (bad, entries.len())
        };
        for (bad, spoilt) in [spoilt(10), spoilt(1)] {
            let body = bad.body().expect("written");
            let path = folder.path().join(name_of(module.image()));
            let checksum = blake3::hash(&body);
            let parts = [MAGIC, checksum.as_bytes(), &body];
            private_file::replace(&path, &parts).expect("written");
            match load(folder.path(), &module) {
                Ok(restored) => assert_eq!((restored.left_out, spoilt < 40), (spoilt, true)),
                Err(NoProfile::Unfit { left_out, functions, .. }) => {
                    assert_eq!((left_out, functions), (spoilt, spoilt));
                }
                Err(other) => panic!("{other}"),
            }
        }
        // What is added has the blocks of the present analysis.
        let (bad, _) = spoilt(1);
        assert_eq!(bad.and(good.clone()).functions, good.functions);
    }

    #[test]
    fn damage_is_noticed_wherever_it_is_and_repaired_by_the_next_profile() {
        let (folder, module) = (tempfile::tempdir().expect("a folder"), module());
        add(folder.path(), &module, counted(&module, 5)).expect("stored");
        let path = folder.path().join(name_of(module.image()));
        let good = fs::read(&path).expect("a file");
        for at in (0..good.len()).step_by(97).chain([good.len() - 1]) {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert_eq!(StoredProfile::understood(&bad), None, "byte {at}");
        }
        fs::write(&path, &good[..good.len() - 1]).expect("written");
        let unsound = load(folder.path(), &module).expect_err("cut off");
        assert!(matches!(unsound, NoProfile::Unsound { .. }), "{unsound}");
        let sum = add(folder.path(), &module, counted(&module, 5)).expect("stored");
        assert_eq!(sum.profiles(), 1);
        load(folder.path(), &module).expect("sound again");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_added_and_restored_without_a_panic(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
            cut in any::<prop::sample::Index>(),
            cuts in any::<bool>(),
        ) {
            use std::sync::OnceLock;
            static KNOWN: OnceLock<(Module, StoredProfile, Vec<u8>)> = OnceLock::new();
            let (module, good, body) = KNOWN.get_or_init(|| {
                let module = module();
                let good = counted(&module, 1000);
                let body = good.body().expect("written");
                (module, good, body)
            });
            let mut bytes = body.clone();
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            if cuts {
                bytes.truncate(cut.index(bytes.len()));
            }
            if let Some(read) = StoredProfile::of_body(&bytes) {
                let _ = read.restored(module);
                let sum = read.and(good.clone());
                prop_assert!(sum.restored(module).is_ok());
                prop_assert!(StoredProfile::of_body(&sum.body().expect("written")).is_some());
            }
        }
    }
}
