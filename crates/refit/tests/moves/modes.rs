//! The modes, and the programs that are run in each.

use crate::programs::{self, Program};

/// The hosts of the instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hosts {
    /// Both on this host: memory is shared.
    One,
    /// Each in a network namespace of its own, joined over TCP: pages are moved.
    Tcp,
}

impl Hosts {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::One => "one-host",
            Self::Tcp => "tcp",
        }
    }
}

/// The way in which a program is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// The program is run without refit.
    Alone,
    /// The program is run so that it could be moved.
    Stays,
    /// The instance moves its threads, by `--roam`.
    Roams(&'static str),
    /// The program is moved from outside, without a pause.
    Pushed,
    /// The program roams, and this step of moves fails.
    Fails(String),
}

/// A row of the matrix.
#[derive(Clone, Debug)]
pub(crate) struct Mode {
    pub(crate) name: String,
    pub(crate) how: How,
    /// The hosts for which it is part of the tests.
    on: &'static [Hosts],
}

/// The known differences of programs that move (`docs/guide/move.md`): such a program is run and
/// reported, but is no failure.
pub(crate) const KNOWN: [(&str, &str); 6] = [
    ("memory_of_system_v", "attachments of replicas are counted"),
    ("process_environment", "what is written over the arguments is not seen by others"),
    ("process_orphan", "a reaper of children is handed ended tasks of refit's"),
    ("regs_protection_keys", "frames have no protection keys"),
    ("time_profiling_timer", "processor time is counted where a thread runs"),
    ("signal_single_step", "a move takes steps of its own"),
];

/// The known differences between hosts only.
const KNOWN_BETWEEN_HOSTS: [(&str, &str); 1] =
    [("process_self", "`/proc/self/mem` does not show pages that are elsewhere")];

/// Returns the known difference of a program that moves.
pub(crate) fn known(mode: &Mode, hosts: Hosts, program: &str) -> Option<&'static str> {
    if matches!(mode.how, How::Alone | How::Stays) {
        return None;
    }
    let name = program.split('.').next();
    let between = KNOWN_BETWEEN_HOSTS.iter().filter(|_| hosts == Hosts::Tcp);
    let mut all = KNOWN.iter().chain(between);
    all.find(|(known, _)| name == Some(known)).map(|(_, why)| *why)
}

/// All modes except those with faults, with the hosts for which each of them is part of the tests.
pub(crate) const MODES: [(&str, How, &[Hosts]); 6] = [
    ("alone", How::Alone, &[]),
    ("never", How::Stays, &[Hosts::One]),
    ("once", How::Roams("once"), &[]),
    ("10ms", How::Roams("10ms"), &[]),
    ("pingpong", How::Pushed, &[]),
    ("syscall", How::Roams("syscall"), &[]),
];

fn modes() -> impl Iterator<Item = Mode> {
    MODES.into_iter().map(|(name, how, on)| Mode { name: name.to_owned(), how, on })
}

fn mode(word: &str) -> Option<Mode> {
    if let Some(step) = word.strip_prefix("faults=") {
        return Some(Mode { name: word.to_owned(), how: How::Fails(step.to_owned()), on: &[] });
    }
    modes().find(|mode| mode.name == word)
}

/// The selected part of the matrix.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) cells: Vec<(Mode, Hosts)>,
    pub(crate) programs: Vec<Program>,
}

impl Choice {
    /// Parses modes, hosts, and programs or prefixes of their names. A category without a word is
    /// the part that the tests run.
    pub(crate) fn parse(words: &str) -> Result<Self, String> {
        let (mut named, mut hosts, mut programs) = (Vec::new(), Vec::new(), Vec::new());
        let all = programs::all();
        for word in words.split_whitespace() {
            if let Some(mode) = mode(word) {
                named.push(mode);
            } else if let Some(one) =
                [Hosts::One, Hosts::Tcp].into_iter().find(|h| h.name() == word)
            {
                hosts.push(one);
            } else {
                let before = programs.len();
                programs.extend(all.iter().filter(|one| one.name.starts_with(word)).cloned());
                if programs.len() == before {
                    return Err(format!("`{word}` is no mode, no place and no program"));
                }
            }
        }
        let cells: Vec<_> = if named.is_empty() && hosts.is_empty() {
            modes()
                .flat_map(|mode| mode.on.iter().map(move |&hosts| (mode.clone(), hosts)))
                .collect()
        } else {
            let named = if named.is_empty() { vec![mode("never").expect("a mode")] } else { named };
            let hosts = if hosts.is_empty() { vec![Hosts::One] } else { hosts };
            let cell = |mode: Mode| hosts.iter().map(move |&hosts| (mode.clone(), hosts));
            named.into_iter().flat_map(cell).collect()
        };
        Ok(Self { cells, programs: if programs.is_empty() { all } else { programs } })
    }
}

#[test]
fn words_choose_cells_and_programs() {
    let names = |words: &str| {
        let choice = Choice::parse(words).expect("a choice");
        let cells = choice.cells.iter().map(|(mode, hosts)| (mode.name.clone(), *hosts));
        (cells.collect::<Vec<_>>(), choice.programs.len())
    };
    let all = programs::all().len();
    assert_eq!(names(""), (vec![("never".into(), Hosts::One)], all));
    assert_eq!(names("once tcp"), (vec![("once".into(), Hosts::Tcp)], all));
    assert_eq!(names("10ms one-host tcp regs_avx.c").0.len(), 2);
    assert_eq!(names("regs_avx.c:").1, 1);
    assert!(Choice::parse("regs_avx nothing").is_err());
    let faults = Choice::parse("faults=stop").expect("a choice");
    assert_eq!(faults.cells[0].0.how, How::Fails("stop".into()));
}
