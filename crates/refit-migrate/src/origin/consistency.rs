//! Checks that what nodes have mapped of one memory is consistent (Katz 2014, §5.7.1). A node that
//! checks does so after each command of a coordinator, and kills the program if its memory is not.
//!
//! Of each page, a replica has either nothing mapped or what the origin has: the same page of the
//! same file, as private or as shared, with no more access than at the origin. A page that is
//! private and writable at the origin is mapped nowhere else (the special pages of §5.7.1:
//! copy-on-write is broken before a mapping leaves). A replica may have less access for a moment,
//! while a mapping is made.
//!
//! To see that the check finds something: `REFIT_MOVE_FAULT=forget` has nodes keep each third of
//! what they must invalidate.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

use refit_messages::InstanceId;
use refit_sys::maps::{self, Kind, Mapping};
use refit_tracer::placement::TOP;

use crate::frames::is_frames;

/// Returns whether this node checks, by its environment.
pub(crate) fn is_checked() -> bool {
    static CHECKED: OnceLock<bool> = OnceLock::new();
    *CHECKED.get_or_init(|| std::env::var_os("REFIT_MOVE_CHECK").is_some_and(|value| value != "0"))
}

/// The memory of a process at its origin, and of its replicas.
pub(crate) struct Memory<'a> {
    pub(crate) origin: u32,
    /// The replicas on this host, by their processes.
    pub(crate) replicas: &'a BTreeMap<InstanceId, u32>,
    /// The addresses that are refit's.
    pub(crate) window: &'a Range<u64>,
    /// Whether replicas have files of their own for frames.
    pub(crate) moves: bool,
}

impl Memory<'_> {
    /// Returns what is not consistent, if anything. The origin must change nothing meanwhile;
    /// mappings that replicas make meanwhile do no harm.
    pub(crate) fn violation(&self) -> Option<String> {
        // The replicas first: they show what the origin shows, or has shown longer.
        let replicas = self.replicas.iter().filter_map(|(at, &process)| {
            let all = maps::of(process).ok()?;
            Some((at, all))
        });
        let replicas: Vec<_> = replicas.collect();
        // A process that has ended has nothing mapped, and its replicas end soon.
        let origin = maps::of(self.origin).ok().filter(|all| !all.is_empty())?;
        replicas.iter().find_map(|(at, replica)| {
            let why = self.differs(&origin, replica)?;
            Some(format!("its memory is not the same at {at}: {why}"))
        })
    }

    /// Returns what a replica has mapped that the origin has not.
    fn differs(&self, origin: &[Mapping], replica: &[Mapping]) -> Option<String> {
        let ours = |one: &Mapping| self.window.contains(&one.range.start) || belongs_to_kernel(one);
        replica.iter().filter(|one| !ours(one)).find_map(|there| {
            let mut at = there.range.start;
            while at < there.range.end {
                let Some(here) = origin.iter().find(|one| one.range.contains(&at)) else {
                    return Some(format!("{at:#x} is mapped only there, as {}", text(there)));
                };
                if let Some(what) = self.conflict(here, there) {
                    return Some(format!(
                        "{at:#x} has {what}: it is {} there, {} here",
                        text(there),
                        text(here)
                    ));
                }
                at = here.range.end;
            }
            None
        })
    }

    /// Returns what differs between two mappings of the same addresses.
    fn conflict(&self, here: &Mapping, there: &Mapping) -> Option<&'static str> {
        let begin = |one: &Mapping| one.offset.wrapping_sub(one.range.start);
        let alike = here.file == there.file || self.moves && is_frames(here) && is_frames(there);
        let more = there.readable && !here.readable
            || there.writable && !here.writable
            || there.executable && !here.executable;
        match () {
            () if !alike || here.file == (0, 0) => Some("another backing"),
            () if begin(here) != begin(there) => Some("another page of it"),
            () if here.shared != there.shared => Some("another kind of sharing"),
            () if !here.shared && here.writable => Some("a private page that can be written to"),
            () if more => Some("more access"),
            () => None,
        }
    }
}

fn belongs_to_kernel(one: &Mapping) -> bool {
    matches!(one.kind(), Kind::KernelCode | Kind::KernelData) || one.range.start >= TOP
}

fn text(one: &Mapping) -> String {
    let may = |may: bool, letter: char| if may { letter } else { '-' };
    let (read, write) = (may(one.readable, 'r'), may(one.writable, 'w'));
    let (run, shared) = (may(one.executable, 'x'), if one.shared { 's' } else { 'p' });
    format!("{read}{write}{run}{shared} {:#x} of `{}`", one.offset, one.name.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Range<u64> = 0x9000..0xa000;

    fn frames(range: Range<u64>, access: &str) -> Mapping {
        let may = |letter| access.contains(letter);
        Mapping {
            readable: may('r'),
            writable: may('w'),
            executable: may('x'),
            shared: true,
            offset: range.start,
            file: (1, 7),
            name: "/memfd:refit-frames".into(),
            deleted: true,
            range,
        }
    }

    /// Returns what the check finds in these mappings of the origin and of a replica.
    fn found(moves: bool, origin: &[Mapping], replica: &[Mapping]) -> Option<String> {
        let replicas = BTreeMap::new();
        let memory = Memory { origin: 0, replicas: &replicas, window: &WINDOW, moves };
        memory.differs(origin, replica)
    }

    #[test]
    fn parts_of_what_is_there_are_consistent() {
        let origin = [frames(0x1000..0x3000, "rw"), frames(0x3000..0x5000, "r")];
        let replica = [frames(0x2000..0x4000, "r"), frames(0x9000..0xa000, "rwx")];
        assert_eq!(found(false, &origin, &replica), None);
        assert_eq!(found(false, &origin, &[]), None);
        let own = Mapping { file: (1, 8), ..frames(0x2000..0x3000, "") };
        assert_eq!(found(true, &origin, &[own]), None);
    }

    #[test]
    fn whatever_else_is_there_is_found() {
        let origin = [frames(0x1000..0x3000, "rw"), frames(0x3000..0x4000, "r")];
        let file = |shared, access| Mapping {
            shared,
            name: "/f".into(),
            offset: 0,
            ..frames(0x1000..0x2000, access)
        };
        let one = || frames(0x1000..0x2000, "rw");
        for (what, here, there) in [
            ("mapped only there", &origin[..], frames(0x3000..0x5000, "r")),
            ("more access", &origin, frames(0x1000..0x4000, "rw")),
            ("more access", &origin, frames(0x2000..0x3000, "rx")),
            ("another backing", &origin, Mapping { file: (1, 8), ..one() }),
            ("another page", &origin, Mapping { offset: 0, ..one() }),
            ("another kind of sharing", &[file(false, "r")], file(true, "r")),
            ("a private page", &[file(false, "rw")], file(false, "r")),
            ("another backing", &[Mapping { file: (0, 0), ..one() }], one()),
        ] {
            let found = found(false, here, &[there]);
            assert!(found.as_ref().is_some_and(|why| why.contains(what)), "{what}: {found:?}");
        }
    }
}
