//! Putting sites into a program: what can be decided before, then two short stops.
//!
//! 1. *Plan*, while the program runs: which bytes change, which instructions are displaced.
//! 2. First stop: the patch area is made, by calls that the program makes for us.
//! 3. The code is generated and written into it, while the program runs.
//! 4. Second stop: the bytes are checked and changed, program counters inside them moved.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::time::Duration;

use iced_x86::{BlockEncoder, BlockEncoderOptions, Instruction, InstructionBlock};
use refit_instruments::session::Session;

use super::area::{Area, PAGE, Record};
use super::patches::{self, Now};
use super::snippet::{Cells, Lane, Rings, Setting, TIMER};
use super::{Displaced, Site, Springboard, Step, Why, frames, snippet};
use crate::process::{Program, Refusal, Still};

/// Bytes of a jump that reaches everything within 2 GiB, and of one that reaches 127 bytes.
const JUMP: usize = 5;
const HOP: usize = 2;
/// Modules further apart than this get patch areas of their own.
const SPREAD: u64 = 1 << 30;
/// How long threads have to stop.
const PATIENCE: Duration = Duration::from_secs(10);
/// More lanes than processors are of no use, and more than this many hold too much memory.
const MOST_LANES: u32 = 64;

/// The numbers of a timer.
pub const TIME: usize = 0;
/// See [`TIME`].
pub const ENTRIES: usize = 1;
/// See [`TIME`].
pub const EXITS: usize = 2;

/// What a lane holds at most: its cells are reached by 32 bits.
const MOST_DATA: u64 = 1 << 28;

/// How long the program stood still, in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stood {
    /// While the patch areas were made.
    pub preparing: Duration,
    /// While its bytes changed.
    pub changing: Duration,
}

/// Sites that are in a program; the cells that they count into.
#[derive(Debug)]
pub struct Installed {
    areas: Vec<Area>,
    lanes: u32,
    stride: u64,
    cells: u32,
    sites: usize,
    /// What has changed at each site, by address: the site itself, without the place that it jumps by.
    pub(super) changes: Vec<Record>,
    /// How long the program stood still for it.
    pub stood: Stood,
}

/// Sites that can be put into a program, and what they need.
#[derive(Debug, Default)]
pub struct Plan {
    ready: Vec<Ready>,
}

/// A site, decided.
#[derive(Debug)]
struct Ready {
    site: Site,
    displaced: Displaced,
    way: Way,
}

/// How control gets from a site to the patch area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Jump,
    /// By a short jump to a long one there.
    Hop(Springboard),
}

impl Ready {
    /// Bytes of the program from `site.address` on that change.
    fn changes(&self) -> usize {
        if self.way == Way::Jump { JUMP } else { HOP }
    }
}

impl Plan {
    /// Decides for each site how it is spliced; those that cannot be come back with the reason, and their place in `sites`.
    pub fn new(sites: Vec<Site>) -> (Self, Vec<(usize, Why)>) {
        let mut order: Vec<_> = sites.into_iter().enumerate().collect();
        order.sort_by_key(|(_, site)| site.address);
        // First those with room for a jump: what they change is no springboard for others any more.
        let (mut taken, mut short) = (Taken::default(), Vec::new());
        let mut plan = Self::default();
        for (index, site) in order {
            match straight(&site, &taken) {
                Some(Ok(displaced)) => plan.take(site, displaced, Way::Jump, &mut taken),
                Some(Err(why)) => short.push((index, site, Some(why))),
                None => short.push((index, site, None)),
            }
        }
        let mut refused = Vec::new();
        for (index, site, why) in short {
            match around(&site, &taken) {
                Ok((displaced, place)) => plan.take(site, displaced, Way::Hop(place), &mut taken),
                // Why a jump will not do says more.
                Err(other) => refused.push((index, why.unwrap_or(other))),
            }
        }
        plan.ready.sort_by_key(|ready| ready.site.address);
        refused.sort_by_key(|&(index, _)| index);
        (plan, refused)
    }

    fn take(&mut self, site: Site, displaced: Displaced, way: Way, taken: &mut Taken) {
        let ready = Ready { site, displaced, way };
        let length = ready.displaced.length().max(ready.changes());
        taken.take(ready.site.address, length);
        if let Way::Hop(place) = way {
            taken.take(place.address, JUMP);
        }
        self.ready.push(ready);
    }

    /// How many sites it has.
    pub fn len(&self) -> usize {
        self.ready.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// What will change, a line per site: address, way, displaced bytes.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.ready.iter().map(|ready| {
            let way = match ready.way {
                Way::Jump => "jump".to_owned(),
                Way::Hop(place) => format!("short jump, then a jump at {:#x}", place.address),
            };
            let (at, displaced) = (ready.site.address, ready.displaced.length());
            format!("{at:#x}: {way}; {displaced} bytes of instructions run in the patch area")
        })
    }
}

/// Bytes of the program that change, or whose instructions run elsewhere: ends by beginnings.
#[derive(Default)]
struct Taken(BTreeMap<u64, u64>);

impl Taken {
    fn take(&mut self, begin: u64, length: usize) {
        self.0.insert(begin, begin + length as u64);
    }

    fn is_free(&self, begin: u64, length: usize) -> bool {
        let before = self.0.range(..begin + length as u64).next_back();
        before.is_none_or(|(_, &end)| end <= begin)
    }
}

/// The instructions that a jump takes the place of; `None`: it does not fit.
fn straight(site: &Site, taken: &Taken) -> Option<Result<Displaced, Why>> {
    let room = site.room.min(site.code.len());
    if room < JUMP {
        return None;
    }
    let displaced = match Displaced::new(site.address, &site.code, JUMP) {
        Ok(displaced) => displaced,
        Err(why) => return Some(Err(why)),
    };
    let length = displaced.length().max(JUMP);
    (length <= room && taken.is_free(site.address, length)).then_some(Ok(displaced))
}

/// The instructions that a short jump takes the place of, and where it leads.
fn around(site: &Site, taken: &Taken) -> Result<(Displaced, Springboard), Why> {
    let short = || Why::Short { address: site.address, room: site.room };
    let room = site.room.min(site.code.len());
    let displaced = Displaced::new(site.address, &site.code, HOP)?;
    let length = displaced.length().max(HOP);
    if length > room || !taken.is_free(site.address, length) {
        return Err(short());
    }
    let site_ends = site.address + length as u64;
    let usable = |place: &&Springboard| {
        let apart = place.address >= site_ends || place.address + JUMP as u64 <= site.address;
        apart && taken.is_free(place.address, JUMP) && hop(site.address, place.address).is_some()
    };
    let place = site.springboards.iter().find(usable).ok_or_else(short)?;
    Ok((displaced, *place))
}

/// What one site comes to, in one area.
struct Made {
    at: u64,
    code: Vec<u8>,
    records: Vec<Record>,
}

impl Installed {
    /// Puts the plan's sites into the program, all in one stop. `cells`: how many cells their actions count into; `session`: where their
    /// records go, without which none are written.
    ///
    /// # Errors
    /// [`Why`]. The program is as before then.
    pub fn new(
        program: &Program,
        plan: &Plan,
        cells: u32,
        session: Option<&Session>,
    ) -> Result<Self, Why> {
        let groups = groups(&plan.ready);
        let lanes = lanes();
        let stride = (u64::from(cells) * 8).next_power_of_two().max(64);
        if stride > MOST_DATA {
            return Err(Why::Cells { cells });
        }
        let session_file = session.map(|session| open(program, session)).transpose()?;
        let ((mut areas, mut setting), preparing) = program.stand_still(PATIENCE, |still| {
            let mut areas = Vec::new();
            let made = groups.iter().try_for_each(|group| {
                let (records, data) = (2 * group.len(), PAGE + (stride << lanes));
                areas.push(Area::make(still, &reach(group), records, code_bytes(group), data)?);
                Ok::<_, Why>(())
            });
            let setting = made.and_then(|()| {
                let mut setting = setting(still, lanes, stride);
                if let (Some(session), Some(file), Some(area)) =
                    (session, &session_file, areas.first_mut())
                {
                    let address = area.map_session(still, file)?;
                    setting.rings = Some(Rings { address, geometry: session.geometry() });
                }
                Ok(setting)
            });
            if setting.is_err() {
                super::remains::unmap(still, areas.iter().map(|area| area.head))?;
            }
            Ok::<_, Why>((areas, setting?))
        })?;
        let changed =
            Self::generate(program, &groups, &mut areas, &mut setting).and_then(|mut records| {
                let work = |still: &mut Still<'_>| change(still, &records);
                let ((), changing) = program.stand_still(PATIENCE, work)?;
                records.retain(|record| !record.copies.is_empty());
                records.sort_by_key(|record| record.address);
                Ok((records, changing))
            });
        match changed {
            Ok((changes, changing)) => {
                let stood = Stood { preparing, changing };
                Ok(Self { areas, lanes, stride, cells, sites: plan.len(), changes, stood })
            }
            Err(why) => {
                let heads: Vec<_> = areas.iter().map(|area| area.head).collect();
                let gone = program
                    .stand_still(PATIENCE, |still| super::remains::unmap(still, heads.into_iter()));
                // Why it failed says more than that the empty area could not be given back.
                drop(gone);
                Err(why)
            }
        }
    }

    fn generate(
        program: &Program,
        groups: &[&[Ready]],
        areas: &mut [Area],
        setting: &mut Setting,
    ) -> Result<Vec<Record>, Why> {
        let mut all = Vec::new();
        for (group, area) in groups.iter().zip(areas) {
            (setting.cells.base, setting.cells.first) = (area.base_word(), area.first_lane());
            let (mut code, mut records) = (Vec::new(), Vec::new());
            for ready in *group {
                let made = make(ready, area.head.code_range().start + code.len() as u64, *setting)?;
                let begin = made.at - area.head.code_range().start;
                // What is between two snippets stops whoever gets there by mistake.
                code.resize(begin as usize, 0xcc);
                code.extend(made.code);
                records.extend(made.records);
            }
            if code.len() as u64 > area.head.data - area.head.code {
                let reason = "the patch area is too small for it".to_owned();
                return Err(Why::Generate { address: group[0].site.address, reason });
            }
            area.put(program, area.head.code, &code)?;
            area.note(program, &records)?;
            all.extend(records);
        }
        Ok(all)
    }

    /// How many sites there are.
    pub fn sites(&self) -> usize {
        self.sites
    }

    /// Which cells hold anything in the first lane, which is where [`Action::Flag`](super::Action::Flag) stores.
    ///
    /// # Errors
    /// What reading the memory says.
    pub fn flags(&self) -> io::Result<Vec<bool>> {
        let mut set = vec![false; self.cells as usize];
        for area in &self.areas {
            for (flag, word) in set.iter_mut().zip(area.words(0, self.cells as usize)?) {
                *flag |= word != 0;
            }
        }
        Ok(set)
    }

    /// The timers of all threads: time, entries and exits by thread; and how many calls were not timed.
    ///
    /// # Errors
    /// What reading the memory says.
    pub fn timers(&self, step: &Step, first: u32) -> io::Result<(BTreeMap<u64, [u64; 3]>, u64)> {
        let (mut threads, mut lost) = (BTreeMap::<u64, [u64; 3]>::new(), 0);
        for area in &self.areas {
            // Exits before the time before entries: who comes or goes meanwhile is inside, for no time.
            for number in [EXITS, TIME, ENTRIES] {
                let words = area.words(u64::from(first) * 8, step.cells() as usize)?;
                let (lines, _) = words.as_chunks::<{ TIMER as usize }>();
                let Some((rest, lines)) = lines.split_first() else { continue };
                lost += if number == EXITS { rest[0] } else { 0 };
                for line in lines.iter().filter(|line| line[0] != 0) {
                    let timer = threads.entry(line[0]).or_default();
                    timer[number] = timer[number].wrapping_add(line[1 + number]);
                }
            }
        }
        Ok((threads, lost))
    }

    /// What the cells of each key of a step have counted up to now: cells by key, and those of all other keys together.
    ///
    /// # Errors
    /// What reading the memory says.
    pub fn keyed(
        &self,
        step: &Step,
        first: u32,
    ) -> io::Result<(BTreeMap<u64, Vec<u64>>, Vec<u64>)> {
        let (each, table) = (step.action.cells() as usize, step.table(first));
        let (mut keys, mut others) = (BTreeMap::new(), vec![0; each]);
        let add = |to: &mut Vec<u64>, cells: &[u64]| {
            to.resize(each, 0);
            to.iter_mut().zip(cells).for_each(|(sum, part)| *sum = sum.wrapping_add(*part));
        };
        for area in &self.areas {
            for lane in 0..1_u64 << self.lanes {
                let at = lane * self.stride + u64::from(first) * 8;
                let words = area.words(at, (table.end - first) as usize)?;
                let (rest, entries) = words.split_at(each);
                add(&mut others, rest);
                for entry in entries.chunks_exact(1 + each).filter(|entry| entry[0] != 0) {
                    add(keys.entry(entry[0] - 1).or_default(), &entry[1..]);
                }
            }
        }
        Ok((keys, others))
    }

    /// What a cell has counted up to now. Never less than what was read before.
    ///
    /// # Errors
    /// What reading the memory says.
    pub fn cell(&self, cell: u32) -> io::Result<u64> {
        let mut sum = 0_u64;
        for area in &self.areas {
            for lane in 0..1_u64 << self.lanes {
                // A lane's part of a time is below zero while a thread that entered there leaves elsewhere.
                let part = area.word(lane * self.stride + u64::from(cell) * 8)?;
                sum = sum.wrapping_add(part);
            }
        }
        Ok(sum)
    }
}

/// Sites that one patch area can serve, each group in order of addresses.
fn groups(ready: &[Ready]) -> Vec<&[Ready]> {
    let mut groups = Vec::new();
    let mut rest = ready;
    while let Some(first) = rest.first() {
        let end = rest.partition_point(|one| one.site.address < first.site.address + SPREAD);
        let (group, others) = rest.split_at(end);
        groups.push(group);
        rest = others;
    }
    groups
}

fn reach(group: &[Ready]) -> Range<u64> {
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return 0..0 };
    first.site.address..last.site.address + JUMP as u64
}

/// More than the code of a group takes.
fn code_bytes(group: &[Ready]) -> u64 {
    let of = |ready: &Ready| ready.site.actions.iter().map(Step::most_bytes).sum::<u64>();
    group.iter().map(|ready| 512 + of(ready)).sum()
}

fn lanes() -> u32 {
    let processors = u32::try_from(refit_sys::processor::count()).unwrap_or(MOST_LANES);
    processors.clamp(1, MOST_LANES).next_power_of_two().trailing_zeros()
}

/// The session's memory, as a file.
fn open(program: &Program, session: &Session) -> Result<File, Refusal> {
    File::options().read(true).write(true).open(session.path()).map_err(|source| Refusal::System {
        id: program.id(),
        what: "open the instruments' buffers for it",
        source,
    })
}

/// What all snippets find; where an area's cells are is set for each.
fn setting(still: &Still<'_>, lanes: u32, stride: u64) -> Setting {
    let (lane, stride) = (lane(still), stride.trailing_zeros());
    let cells = Cells { lane, base: 0, first: 0, lanes, stride };
    let pointers = processor_has("fsgsbase");
    Setting { cells, thread: still.thread_offset(), pointers, rings: None }
}

fn lane(still: &Still<'_>) -> Lane {
    match still.rseq_offset() {
        Some(offset) => Lane::Area(offset),
        None if processor_has("rdpid") => Lane::Asked,
        None => Lane::One,
    }
}

/// Whether the processor has what the kernel calls so.
pub(super) fn processor_has(name: &str) -> bool {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags")).unwrap_or_default();
    flags.split_whitespace().any(|flag| flag == name)
}

/// The code and the changes for one site; the code stands at the next multiple of 16 from `from` on.
fn make(ready: &Ready, from: u64, setting: Setting) -> Result<Made, Why> {
    let address = ready.site.address;
    let failed = |reason: String| Why::Generate { address, reason };
    let at = from.next_multiple_of(16);
    let mut instructions = Vec::new();
    snippet::write(address, &ready.site.actions, ready.site.live, setting, &mut instructions)?;
    let begins = ready.displaced.write(&mut instructions)?;
    let (code, places) = encode(&instructions, at).map_err(|error| failed(error.to_string()))?;
    let copies = begins.iter().map(|&(original, index)| {
        let place = places.get(index).copied().filter(|&place| place != u32::MAX);
        place.map(|place| (original, at + u64::from(place)))
    });
    let copies: Option<Vec<_>> = copies.collect();
    let copies = copies.ok_or_else(|| failed("an instruction grew when it was moved".into()))?;
    let old = &ready.site.code[..ready.changes()];
    let mut records = Vec::new();
    let new = match ready.way {
        Way::Jump => long_jump(address, at).ok_or(Why::Far { address })?.to_vec(),
        Way::Hop(place) => {
            let new = long_jump(place.address, at).ok_or(Why::Far { address })?.to_vec();
            let offset = hop(address, place.address).ok_or(Why::Far { address })?;
            let (at, old) = (place.address, place.code.to_vec());
            records.push(Record { address: at, old, new, copies: Vec::new() });
            vec![0xeb, offset.cast_unsigned()]
        }
    };
    records.push(Record { address, old: old.to_vec(), new, copies });
    Ok(Made { at, code, records })
}

/// The distance that a short jump takes.
fn hop(from: u64, to: u64) -> Option<i8> {
    i8::try_from(to.wrapping_sub(from + HOP as u64).cast_signed()).ok()
}

fn long_jump(from: u64, to: u64) -> Option<[u8; JUMP]> {
    let distance = to.wrapping_sub(from + JUMP as u64).cast_signed();
    let bytes = i32::try_from(distance).ok()?.to_le_bytes();
    Some([0xe9, bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn encode(
    instructions: &[Instruction],
    at: u64,
) -> Result<(Vec<u8>, Vec<u32>), iced_x86::IcedError> {
    let block = InstructionBlock::new(instructions, at);
    let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
    let made = BlockEncoder::encode(64, block, options)?;
    Ok((made.code_buffer, made.new_instruction_offsets))
}

/// Changes the program's bytes; nobody runs. Nothing has changed if it fails.
fn change(still: &mut Still<'_>, records: &[Record]) -> Result<(), Why> {
    patches::change(still.program(), records, |record, now| match now {
        Now::Old => Ok(Some(&*record.new)),
        Now::New | Now::Foreign => Err(Why::Changed { address: record.address }),
    })?;
    // Original to copy; the first instruction of a site stays where it is, at the jump.
    let inner = records.iter().flat_map(|record| record.copies.iter().skip(1).copied());
    move_counters(still, &inner.collect())?;
    Ok(())
}

/// Moves the program counters that are keys of `moves`, of threads and in frames of signals.
pub(super) fn move_counters(
    still: &mut Still<'_>,
    moves: &BTreeMap<u64, u64>,
) -> Result<(), Refusal> {
    let threads: Vec<_> = still.threads().collect();
    for thread in threads {
        let mut registers = still.registers(thread)?;
        if let Some(&to) = moves.get(&registers.rip) {
            registers.rip = to;
            still.set_registers(thread, &registers)?;
        }
    }
    let program = still.program();
    for frame in frames::saved(still)? {
        if let Some(&to) = moves.get(&frame.counter) {
            program.write(frame.at, &to.to_le_bytes()).map_err(|source| Refusal::System {
                id: program.id(),
                what: "change a signal frame",
                source,
            })?;
        }
    }
    Ok(())
}
