//! Installs a plan in a program, with two short stops.
//!
//! 1. First stop: the program makes the patch area, by system calls that refit has it run.
//! 2. While the program runs, refit generates the code and writes it into the area.
//! 3. Second stop: the bytes are checked and changed, and program counters inside them are moved.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Range;
use std::sync::OnceLock;
use std::time::Duration;

use refit_instruments::session::Session;
use refit_sys::memory::PAGE_SIZE_U64;
use tracing::{debug, warn};

use crate::area::{Area, Room, unmap};
use crate::assemble::assemble;
use crate::jump::JUMP;
use crate::kept;
use crate::moving::Moving;
use crate::plan::Plan;
use crate::process::{Program, Refusal, STOP_TIMEOUT, Still};
use crate::ready::Ready;
use crate::record::{Contents, Head, Record};
use crate::rules::Rules;
use crate::snippet::{Cells, Lane, Rings, Sequences, Setting};
use crate::stacks::{Stacks, Walk};
use crate::stops::Stops;
use crate::store::Store;
use crate::unchanged::refuse_changed;
use crate::unwind;
use crate::why::Why;
use crate::{generate, immediates, indices, remains, steady};

/// Modules at least this distance in bytes apart get patch areas of their own.
const SPREAD: u64 = 1 << 30;
/// Maximum number of lanes: more lanes than processors are useless, and more than these take too
/// much memory.
const MOST_LANES: u32 = 64;

/// Bytes of the tables for unwinders that do not depend on what they describe.
const TABLES: u64 = 4096;

/// Maximum number of bytes of a lane, whose cells are addressed by 32 bits.
const MOST_DATA: u64 = 1 << 28;

/// The two parts of the time for which the program was stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StopTimes {
    /// The time for making the patch areas.
    pub preparing: Duration,
    /// The time for changing the program's bytes, in one or several stops.
    pub changing: Duration,
    /// The longest time of a single stop.
    pub longest: Duration,
}

impl StopTimes {
    /// Returns the time of all stops together.
    pub fn all(&self) -> Duration {
        self.preparing + self.changing
    }
}

/// Sites installed in a program, and the cells that they count into.
#[derive(Debug)]
pub struct Installed {
    pub(crate) areas: Vec<Area>,
    pub(crate) shape: Shape,
    pub(crate) cells: u32,
    sites: usize,
    /// The stacks, and the keys of several items, that snippets have stored.
    pub(crate) stacks: Option<Store>,
    pub(crate) tuples: Option<Store>,
    /// Where values are kept: an offset from the first lane of the first area, as theirs.
    pub(crate) kept: Option<u64>,
    pub(crate) removable: Removable,
    /// Moves of program counters in the bytes that change.
    pub(crate) moves: BTreeMap<u64, u64>,
    /// The originals of instructions, by the addresses of the copies, of an arrangement.
    pub(crate) back: BTreeMap<u64, u64>,
    /// The rules of the program's frames, once return addresses have been taken back.
    pub(crate) rules: OnceLock<Rules>,
    /// Time for which the program was stopped for the installation.
    pub stood: StopTimes,
}

/// Sites that can be taken out by themselves.
#[derive(Debug, Default)]
pub(crate) struct Removable {
    /// The change at each site that is spliced in place, by address: at the site itself, without
    /// its springboard.
    pub(crate) places: Vec<Record>,
    /// Sites in copies that only set a flag, with the addresses of the stores; ascending.
    pub(crate) flags: Vec<(u64, u64)>,
}

/// The lanes of patch areas.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Number of lanes for processors, as a power of two.
    pub(crate) lanes: u32,
    /// Bytes of each: a power of two.
    pub(crate) stride: u64,
}

impl Shape {
    /// Returns the number of all lanes. The last one is for threads that have none of their own.
    pub(crate) fn all_lanes(self) -> u64 {
        (1 << self.lanes) + 1
    }

    fn bytes(self) -> u64 {
        self.stride * self.all_lanes()
    }
}

/// The result of [`put_in`].
pub(crate) struct PutIn {
    pub(crate) areas: Vec<Area>,
    pub(crate) removable: Removable,
    pub(crate) moves: BTreeMap<u64, u64>,
    pub(crate) back: BTreeMap<u64, u64>,
    pub(crate) stood: StopTimes,
    /// Number of calls that have changed.
    pub(crate) calls: usize,
}

/// Changes of the program, and the moves of program counters that go with them.
#[derive(Default)]
struct Changes {
    records: Vec<Record>,
    /// Number of them that are calls.
    calls: usize,
    removable: Removable,
    moves: BTreeMap<u64, u64>,
    /// The originals of the instructions of arrangements, by the addresses of the copies.
    back: BTreeMap<u64, u64>,
}

impl Installed {
    /// Installs all sites of the plan in one stop. `cells` is the number of cells that their
    /// actions count into; `session` receives their records, and without it none are written.
    ///
    /// # Errors
    /// [`Why`]; the program is unchanged then.
    pub fn new(
        program: &Program,
        plan: &Plan,
        cells: u32,
        session: Option<&Session>,
    ) -> Result<Self, Why> {
        let stride = (u64::from(cells) * 8).next_power_of_two().max(64);
        if stride > MOST_DATA {
            return Err(Why::Cells { cells });
        }
        let shape = Shape { lanes: lanes(), stride };
        let PutIn { areas, removable, moves, back, stood, .. } =
            put_in(program, plan, shape, session, &Moving::default())?;
        let Stored { walk, tuples, kept, .. } = Stored::new(plan, 0, shape.bytes());
        let (stacks, sites) = (walk.map(|walk| walk.store), plan.len());
        let rules = OnceLock::new();
        Ok(Self {
            areas,
            shape,
            cells,
            sites,
            stacks,
            tuples,
            kept,
            removable,
            moves,
            back,
            rules,
            stood,
        })
    }

    /// Takes everything out that has been installed with it, as [`remains::repair`] does.
    ///
    /// # Errors
    /// As [`remains::repair`].
    pub fn take_out(&self, program: &Program) -> Result<remains::Removed, Why> {
        let heads: Vec<u64> = self.areas.iter().map(|area| area.head.address).collect();
        remains::give_back(program, &heads)
    }

    /// Returns the originals of copied instructions, by the addresses of the copies. For tests.
    #[doc(hidden)]
    pub fn originals(&self) -> &BTreeMap<u64, u64> {
        &self.back
    }

    /// Returns the number of sites.
    pub fn sites(&self) -> usize {
        self.sites
    }
}

/// Makes patch areas for the sites of a plan, and has control go there. If this fails, the program
/// is unchanged.
pub(crate) fn put_in(
    program: &Program,
    plan: &Plan,
    shape: Shape,
    session: Option<&Session>,
    moving: &Moving<'_>,
) -> Result<PutIn, Why> {
    debug!(process = program.id(), sites = plan.len(), "splices");
    let found = remains::find(program)?;
    refuse_copied(program, plan, &found)?;
    refuse_set(program, plan, &found)?;
    refuse_changed(program, plan, moving, &found)?;
    let groups = groups(&plan.ready);
    let count = found.iter().filter(|one| !one.holds_immediates()).count();
    if count + groups.len() > indices::MOST {
        return Err(Why::Areas { count });
    }
    let steady = steady::keeps_thread_pointers(program)?;
    let session_file = session.map(|session| open(program, session)).transpose()?;
    let session = session.zip(session_file.as_ref());
    let rooms = rooms(plan, &groups, shape.bytes(), moving);
    let ((mut areas, setting), preparing) = program.stand_still(STOP_TIMEOUT, |still| {
        make_areas(still, &rooms, session, |still| setting(still, shape, steady))
    })?;
    let generated = generate(program, plan, &groups, &mut areas, (setting, shape), moving);
    let changed = generated.and_then(|changes| {
        let stops = Stops {
            records: &changes.records,
            moves: &changes.moves,
            in_parts: plan.only_counts(),
            cells: moving.from.is_empty().then(|| shape.bytes()),
        };
        let stood = stops.make(program, &areas)?;
        Ok((changes, stood))
    });
    match changed {
        Ok((Changes { removable, calls, moves, back, .. }, (changing, longest))) => {
            let longest = longest.max(preparing);
            let stood = StopTimes { preparing, changing, longest };
            debug!(process = program.id(), sites = plan.len(), ?stood, "spliced");
            Ok(PutIn { areas, removable, moves, back, stood, calls })
        }
        Err(why) => {
            let heads: Vec<u64> = areas.iter().map(|area| area.head.address).collect();
            match remains::give_back(program, &heads) {
                Ok(removed) if removed.kept == 0 => {}
                // The first error says more.
                left => warn!(process = program.id(), ?left, "a part is left; repair it later"),
            }
            Err(why)
        }
    }
}

fn generate(
    program: &Program,
    plan: &Plan,
    groups: &[&[Ready]],
    areas: &mut [Area],
    (mut setting, shape): (Setting, Shape),
    moving: &Moving<'_>,
) -> Result<Changes, Why> {
    let (mut all, mut removable, mut moves) =
        (Changes::default(), Removable::default(), Vec::new());
    // Unwinders learn of spliced code before any runs.
    let mut finding = Vec::new();
    if let Some(area) = areas.first() {
        let stored = Stored::new(plan, area.first_lane(), shape.bytes());
        setting.walk = stored.walk.map(|walk| Walk { asks: !program.is_filtered(), ..walk });
        (setting.tuples, setting.kept) = (stored.tuples, stored.kept);
        if let (Some(stacks), Some(walk)) = (&plan.stacks, stored.walk) {
            area.put(program, walk.granules - area.head.address, &stacks.encode())?;
        }
    }
    let mut semaphores: Vec<_> =
        plan.semaphores.iter().map(|address| Record::semaphore(*address)).collect();
    for (group, area) in groups.iter().zip(areas.iter_mut()) {
        (setting.cells.base, setting.cells.first) = (area.base_word(), area.first_lane());
        setting.indices = area.base_word() + indices::AT;
        let begin = area.head.code_range().start;
        let mut made = assemble(program, group, begin, setting)?;
        area.head.finders = made.finders;
        area.head.generation = moving.generation;
        // Also of an area that only has the finders for it: they are taken out together.
        let mut contents = plan.ready.iter().map(Ready::contents);
        let other = contents.find(|one| *one != Contents::Snippets);
        area.head.contents = other.unwrap_or(Contents::Snippets);
        made.records.append(&mut semaphores);
        let mut redirected = moving.redirected(&made.records);
        all.calls += redirected.len();
        made.records.append(&mut redirected);
        if made.records.len() as u64 > area.head.most_records() {
            let address = group[0].reach().start;
            let reason = "the patch area is too small for its records".to_owned();
            return Err(Why::Generate { address, reason });
        }
        for (at, code) in &made.code {
            area.put(program, at - area.head.address, code)?;
        }
        let used = made.code.iter().map(|(at, code)| at - begin + code.len() as u64).max();
        area.collapse_code(used.unwrap_or(0));
        area.describe(program, &made.unwinding, plan.dynamic_list.as_ref())?;
        area.note(program, &made.records)?;
        let rest = made.records.split_off(made.finding);
        finding.append(&mut made.records);
        all.records.extend(rest.into_iter().map(|record| moving.as_it_is(record)));
        removable.places.append(&mut made.places);
        removable.flags.append(&mut made.flags);
        moves.append(&mut made.moves);
        if area.head.calls() {
            let copies = all.records.iter().flat_map(|record| &record.copies);
            all.back.extend(copies.map(|&(from, copy)| (copy, from)));
        }
    }
    finding.append(&mut all.records);
    all.records = finding;
    // From now on unwinders read the descriptions.
    let heads: Vec<Head> = areas.iter().map(|area| area.head).collect();
    for other in remains::find(program)? {
        other.list(program, &heads)?;
    }
    areas.iter().try_for_each(|area| area.list(program, &heads))?;
    removable.places.sort_by_key(|record| record.address);
    removable.flags.sort_unstable();
    all.removable = removable;
    all.moves = moves.into_iter().collect();
    Ok(all)
}

/// Makes the patch areas, and maps the session for records into the program.
fn make_areas(
    still: &mut Still<'_>,
    rooms: &[(Range<u64>, Room)],
    session: Option<(&Session, &File)>,
    setting: impl FnOnce(&Still<'_>) -> Setting,
) -> Result<(Vec<Area>, Setting), Why> {
    let mut areas = Vec::new();
    let made = rooms.iter().try_for_each(|(near, room)| {
        areas.push(Area::make(still, near, *room)?);
        Ok::<_, Why>(())
    });
    let setting = made.and_then(|()| {
        let mut setting = setting(still);
        if let (Some((session, file)), Some(area)) = (session, areas.first_mut()) {
            let address = area.map_session(still, file)?;
            setting.rings = Some(Rings { address, geometry: session.geometry() });
        }
        Ok(setting)
    });
    if setting.is_err() {
        unmap(still, areas.iter().map(|area| area.head))?;
        crate::process::clean(still)?;
    }
    Ok((areas, setting?))
}

/// Divides sites into groups that one patch area can serve, each in order of addresses.
fn groups(ready: &[Ready]) -> Vec<&[Ready]> {
    let mut groups = Vec::new();
    let mut rest = ready;
    while let Some(first) = rest.first() {
        let limit = first.reach().start + SPREAD;
        let end = rest.partition_point(|one| one.reach().start < limit);
        let (group, others) = rest.split_at(end);
        groups.push(group);
        rest = others;
    }
    groups
}

/// Returns the code that the areas of these groups have to be near, and their room. Each area has
/// lanes of this many bytes; what snippets store is in the first one.
fn rooms(
    plan: &Plan,
    groups: &[&[Ready]],
    lanes: u64,
    moving: &Moving<'_>,
) -> Vec<(Range<u64>, Room)> {
    let room = |group: &&[Ready]| Room {
        records: group.iter().map(generate::most_records).sum::<usize>() + moving.calls.len(),
        tables: TABLES + group.iter().map(unwind::most_bytes).sum::<u64>(),
        code: group.iter().map(generate::most_bytes).sum(),
        data: PAGE_SIZE_U64 + lanes,
    };
    let mut rooms: Vec<_> = groups.iter().map(|group| (reach(group), room(group))).collect();
    if let Some((_, room)) = rooms.first_mut() {
        room.records += plan.semaphores.len();
        room.data = PAGE_SIZE_U64 + Stored::new(plan, 0, lanes).end;
    }
    rooms
}

fn reach(group: &[Ready]) -> Range<u64> {
    let begin = group.iter().map(|ready| ready.reach().start).min();
    let end = group.iter().map(|ready| ready.reach().end).max();
    begin.unwrap_or(0)..end.unwrap_or(0)
}

fn lanes() -> u32 {
    let processors = u32::try_from(refit_sys::processor::count()).unwrap_or(MOST_LANES);
    processors.clamp(1, MOST_LANES).next_power_of_two().trailing_zeros()
}

/// Opens the memory of the session as a file.
fn open(program: &Program, session: &Session) -> Result<File, Refusal> {
    File::options().read(true).write(true).open(session.path()).map_err(|source| Refusal::System {
        id: program.id(),
        what: "open the instruments' buffers for it",
        source,
    })
}

/// Returns the surroundings of all snippets in the program; `steady` says whether they may read
/// memory through thread pointers. The caller sets the addresses of cells for each area.
fn setting(still: &Still<'_>, shape: Shape, steady: bool) -> Setting {
    let Shape { lanes, stride } = shape;
    let rseq = still.rseq().filter(|_| steady);
    let lane = match rseq {
        Some((area, _)) => Lane::Area(area),
        None if processor_has("rdpid") => Lane::Asked,
        None => Lane::One,
    };
    // Where processors share lanes, most threads would have none of their own.
    let sequences = rseq.filter(|_| refit_sys::processor::count() <= 1 << lanes);
    let sequences =
        sequences.map(|(area, signature)| Sequences { area, signature, descriptors: 0 });
    let cells = Cells { lane, base: 0, first: 0, lanes, stride: stride.trailing_zeros() };
    let pointers = processor_has("fsgsbase");
    let thread = if steady { still.thread_offset() } else { None };
    let lahf = processor_has("lahf_lm");
    let (walk, tuples, kept, rings) = (None, None, None, None);
    let indices = 0;
    Setting { cells, sequences, thread, pointers, lahf, indices, walk, tuples, kept, rings }
}

/// The parts of the data behind the lanes of the first area, at addresses of the program or at
/// offsets.
struct Stored {
    walk: Option<Walk>,
    tuples: Option<Store>,
    /// Address of the first map of kept values.
    kept: Option<u64>,
    /// The address after all of it.
    end: u64,
}

impl Stored {
    /// Returns it for lanes of this many bytes, the first of which is at `first`.
    fn new(plan: &Plan, first: u64, lanes: u64) -> Self {
        let stacks = first + lanes;
        let walk = plan.stacks.as_ref().map(|table| table.walk(stacks));
        let behind = stacks + plan.stacks.as_ref().map_or(0, Stacks::bytes);
        let tuples = plan.tuple_words().map(|words| Store::new(behind, words));
        let end = tuples.map_or(behind, Store::end);
        let (begin, maps) = (end.next_multiple_of(kept::ALIGNMENT), plan.kept_maps());
        let kept = (maps > 0).then_some(begin);
        Self { walk, tuples, kept, end: begin + u64::from(maps) * kept::MAP }
    }
}

/// Whether the processor has the feature with this name of the kernel's.
pub(crate) fn processor_has(name: &str) -> bool {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags")).unwrap_or_default();
    flags.split_whitespace().any(|flag| flag == name)
}

/// Refuses a site in a function that another patch area has copied: the original bytes would
/// change, but control no longer passes there.
fn refuse_copied(program: &Program, plan: &Plan, found: &[remains::Remains]) -> Result<(), Why> {
    let copied: BTreeSet<u64> = found.iter().flat_map(|one| one.copied(program)).collect();
    let places = plan.ready.iter().filter_map(|ready| match ready {
        Ready::Place(place) => Some(place.site.address),
        // A copied function is compared as a whole.
        Ready::Copied(_) | Ready::Arranged(_) | Ready::Versions(_) => None,
    });
    let there = places.into_iter().find(|address| copied.contains(address));
    there.map_or(Ok(()), |address| Err(Why::Changed { address }))
}

/// Refuses a site whose instructions, or whose function, have an immediate that has been replaced:
/// they would run elsewhere with the number that the file has.
fn refuse_set(program: &Program, plan: &Plan, found: &[remains::Remains]) -> Result<(), Why> {
    let set = immediates::in_place(program, found);
    let within = |begin: u64, length: usize| {
        let mut inside = set.range(begin..begin + length as u64);
        inside.next().map_or(Ok(()), |&address| Err(Why::Immediate { address }))
    };
    for ready in &plan.ready {
        if let Ready::Place(place) = ready {
            within(place.site.address, place.displaced.length().max(JUMP))?;
        }
        for part in ready.bodies().into_iter().flat_map(|body| &body.parts) {
            within(part.address, part.code.len())?;
        }
    }
    Ok(())
}
