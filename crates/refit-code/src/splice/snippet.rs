//! The code of actions: what is done at a site, in registers that nobody needs.

use iced_x86::{Code, Instruction, MemoryOperand, Register};

use super::Why;
use super::relocate::made;
use crate::live::{Live, flag};

/// The flags that arithmetic changes; snippets touch no other.
const STATUS: u8 =
    flag::CARRY | flag::PARITY | flag::AUXILIARY | flag::ZERO | flag::SIGN | flag::OVERFLOW;

/// Something that is done at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Adds one to a cell.
    Count {
        /// Its number.
        cell: u32,
    },
    /// Adds one to the cell of a value's size: the first for 0, the next for 1, then 2–3, 4–7, … 65 cells.
    Histogram {
        /// The number of the first one.
        cell: u32,
        /// The general register that holds the value, by its number.
        register: u8,
    },
    /// Writes garbage into all that is said to be dead, after everything else: a program that then says the same has been understood.
    Poison,
    /// Adds the time (of the time-stamp counter, in cycles) to a cell where control leaves, takes it away where it enters, and counts either.
    /// So the cell holds the time that was spent inside, once as many have left as have entered: by any thread, at any depth,
    /// with nothing kept per thread. Three cells: time, entries, exits.
    Time {
        /// The number of the first one.
        cell: u32,
        /// Whether control enters here; else it leaves.
        enters: bool,
    },
}

impl Action {
    /// How many cells it counts into.
    pub fn cells(self) -> u32 {
        match self {
            Self::Count { .. } => 1,
            Self::Histogram { .. } => 65,
            Self::Poison => 0,
            Self::Time { .. } => 3,
        }
    }
}

/// How a thread finds the cells of its processor. Wrong guesses cost time, never a count: adding is atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// The kernel keeps the processor's number in the thread's restartable-sequence area: this far from the
    /// thread pointer.
    Area(i32),
    /// `rdpid` tells it.
    Asked,
    /// All threads share one lane.
    One,
}

/// Where cells are in the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cells {
    pub(super) lane: Lane,
    /// Address of a word that holds the address of the first lane.
    pub(super) base: u64,
    /// Address of the first lane.
    pub(super) first: u64,
    /// Lanes, and bytes from one to the next, as powers of two.
    pub(super) lanes: u32,
    pub(super) stride: u32,
}

/// Registers that a snippet takes, in the order of preference: none that needs a longer encoding by itself (`rsp`, `r12`).
const CHOICE: [u8; 14] = [11, 10, 0, 1, 2, 6, 7, 8, 9, 3, 5, 13, 14, 15];

const WIDE: [Register; 16] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RBX,
    Register::RSP,
    Register::RBP,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// Bytes below the stack pointer that belong to a leaf (System V ABI §3.2.2).
const RED_ZONE: i64 = 128;

/// Adds the code of `actions` to `to`.
pub(super) fn write(
    address: u64,
    actions: &[Action],
    live: Live,
    cells: Cells,
    to: &mut Vec<Instruction>,
) -> Result<(), Why> {
    let fixed = actions.iter().map(|action| action.takes()).fold(0, |all, one| all | one);
    let wanted = actions.iter().map(|action| action.scratch(cells.lane, live)).max().unwrap_or(0);
    let free = |&&register: &&u8| (live.general | fixed) >> register & 1 == 0;
    let mut scratch: Vec<u8> = CHOICE.iter().filter(free).take(wanted).copied().collect();
    let spare = |&&register: &&u8| fixed >> register & 1 == 0 && !scratch.contains(&register);
    let saved: Vec<u8> =
        CHOICE.iter().filter(spare).take(wanted - scratch.len()).copied().collect();
    scratch.extend(&saved);

    let mut writer = Writer { address, to };
    writer.save(&saved, live)?;
    for action in actions {
        writer.action(*action, &scratch, live, cells)?;
    }
    writer.restore(&saved, live)?;
    if actions.contains(&Action::Poison) { writer.poison(live) } else { Ok(()) }
}

impl Action {
    /// Registers that are no scratch: what it reads, and what an instruction of it writes.
    fn takes(self) -> u16 {
        match self {
            Self::Count { .. } | Self::Poison => 0,
            Self::Histogram { register, .. } => 1 << register,
            Self::Time { .. } => TOLD,
        }
    }

    /// Registers that it needs for itself.
    fn scratch(self, lane: Lane, live: Live) -> usize {
        match self {
            Self::Poison => 0,
            Self::Count { .. } if lane == Lane::One => 0,
            Self::Count { .. } => 1,
            Self::Histogram { .. } => 2,
            Self::Time { .. } => 1 + (live.general & TOLD).count_ones() as usize,
        }
    }
}

/// `rax` and `rdx`, in which `rdtsc` tells the time.
const TOLD: u16 = 1 << 0 | 1 << 2;

fn needs_flags(live: Live) -> bool {
    live.flags & STATUS != 0
}

struct Writer<'t> {
    address: u64,
    to: &'t mut Vec<Instruction>,
}

impl Writer<'_> {
    fn put(&mut self, instruction: Result<Instruction, iced_x86::IcedError>) -> Result<(), Why> {
        self.to.push(made(self.address, instruction)?);
        Ok(())
    }

    /// Moves the stack pointer without touching a flag.
    fn move_stack(&mut self, by: i64) -> Result<(), Why> {
        let to = MemoryOperand::with_base_displ(Register::RSP, by);
        self.put(Instruction::with2(Code::Lea_r64_m, Register::RSP, to))
    }

    fn save(&mut self, saved: &[u8], live: Live) -> Result<(), Why> {
        if live.red_zone && (needs_flags(live) || !saved.is_empty()) {
            self.move_stack(-RED_ZONE)?;
        }
        for &register in saved {
            self.put(Instruction::with1(Code::Push_r64, WIDE[usize::from(register)]))?;
        }
        if needs_flags(live) {
            self.to.push(Instruction::with(Code::Pushfq));
        }
        Ok(())
    }

    fn restore(&mut self, saved: &[u8], live: Live) -> Result<(), Why> {
        if needs_flags(live) {
            self.to.push(Instruction::with(Code::Popfq));
        }
        for &register in saved.iter().rev() {
            self.put(Instruction::with1(Code::Pop_r64, WIDE[usize::from(register)]))?;
        }
        if live.red_zone && (needs_flags(live) || !saved.is_empty()) {
            self.move_stack(RED_ZONE)?;
        }
        Ok(())
    }

    fn action(
        &mut self,
        action: Action,
        scratch: &[u8],
        live: Live,
        cells: Cells,
    ) -> Result<(), Why> {
        let wide = |n: usize| WIDE[usize::from(scratch[n])];
        match action {
            Action::Count { cell } if cells.lane == Lane::One => {
                let place = MemoryOperand::with_base_displ(
                    Register::RIP,
                    (cells.first + u64::from(cell) * 8).cast_signed(),
                );
                self.increment(place)
            }
            Action::Count { cell } => {
                self.lane(wide(0), cells)?;
                self.increment(MemoryOperand::with_base_displ(wide(0), i64::from(cell) * 8))
            }
            // When the registers are the program's again.
            Action::Poison => Ok(()),
            Action::Time { cell, enters } => self.time(cell, enters, scratch, live, cells),
            Action::Histogram { cell, register } => {
                let (size, lane) = (wide(1), wide(0));
                let value = WIDE[usize::from(register)];
                // 64 less the zeros above: 0 for 0, else the number of bits.
                self.put(Instruction::with2(Code::Lzcnt_r64_rm64, size, value))?;
                self.put(Instruction::with1(Code::Neg_rm64, size))?;
                self.lane(lane, cells)?;
                let first = i64::from(cell) * 8 + 64 * 8;
                self.increment(MemoryOperand::with_base_index_scale_displ_size(
                    lane, size, 8, first, 8,
                ))
            }
        }
    }

    fn poison(&mut self, live: Live) -> Result<(), Why> {
        for (number, register) in WIDE.into_iter().enumerate() {
            if live.general >> number & 1 == 0 && register != Register::RSP {
                let garbage = 0x0bad_beef_dead_0000 + number as u64;
                self.put(Instruction::with2(Code::Mov_r64_imm64, register, garbage))?;
            }
        }
        for number in 0..16 {
            if live.vectors >> number & 1 == 0 {
                // All bits set: no number.
                let register = Register::XMM0 + number;
                self.put(Instruction::with2(Code::Pcmpeqd_xmm_xmmm128, register, register))?;
            }
        }
        if !needs_flags(live) {
            // Carry; neither zero nor sign nor overflow.
            self.put(Instruction::with2(Code::Cmp_rm64_imm8, Register::RSP, -1))?;
        }
        Ok(())
    }

    /// Adds the time to a cell, or takes it away, and counts it in one of the next two.
    fn time(
        &mut self,
        cell: u32,
        enters: bool,
        scratch: &[u8],
        live: Live,
        cells: Cells,
    ) -> Result<(), Why> {
        let lane = WIDE[usize::from(scratch[0])];
        let needed = [0, 2].into_iter().filter(|register| live.general >> register & 1 == 1);
        let kept: Vec<_> = needed
            .zip(&scratch[1..])
            .map(|(told, &at)| (WIDE[told], WIDE[usize::from(at)]))
            .collect();
        for &(told, at) in &kept {
            self.put(Instruction::with2(Code::Mov_r64_rm64, at, told))?;
        }
        self.to.push(Instruction::with(Code::Rdtsc));
        self.put(Instruction::with2(Code::Shl_rm64_imm8, Register::RDX, 32))?;
        self.put(Instruction::with2(Code::Or_r64_rm64, Register::RDX, Register::RAX))?;
        self.lane(lane, cells)?;
        let place =
            |number: u32| MemoryOperand::with_base_displ(lane, i64::from(cell + number) * 8);
        let code = if enters { Code::Sub_rm64_r64 } else { Code::Add_rm64_r64 };
        let mut add = made(self.address, Instruction::with2(code, place(0), Register::RDX))?;
        add.set_has_lock_prefix(true);
        self.to.push(add);
        self.increment(place(if enters { 1 } else { 2 }))?;
        for &(told, at) in &kept {
            self.put(Instruction::with2(Code::Mov_r64_rm64, told, at))?;
        }
        Ok(())
    }

    fn increment(&mut self, place: MemoryOperand) -> Result<(), Why> {
        let mut add = made(self.address, Instruction::with1(Code::Inc_rm64, place))?;
        add.set_has_lock_prefix(true);
        self.to.push(add);
        Ok(())
    }

    /// The address of this processor's lane.
    fn lane(&mut self, into: Register, cells: Cells) -> Result<(), Why> {
        let narrow = into.full_register32();
        match cells.lane {
            Lane::Area(offset) => {
                // `cpu_id`, which is -1 in a thread that has not registered yet: any lane will do.
                let number = i64::from(offset) + 4;
                let place = MemoryOperand::new(
                    Register::None,
                    Register::None,
                    1,
                    number,
                    8,
                    false,
                    Register::FS,
                );
                self.put(Instruction::with2(Code::Mov_r32_rm32, narrow, place))?;
            }
            Lane::Asked => self.put(Instruction::with1(Code::Rdpid_r64, into))?,
            Lane::One => {
                let place = MemoryOperand::with_base_displ(Register::RIP, cells.base.cast_signed());
                return self.put(Instruction::with2(Code::Mov_r64_rm64, into, place));
            }
        }
        self.put(Instruction::with2(Code::And_rm32_imm32, narrow, (1_u32 << cells.lanes) - 1))?;
        self.put(Instruction::with2(Code::Shl_rm64_imm8, into, cells.stride))?;
        let base = MemoryOperand::with_base_displ(Register::RIP, cells.base.cast_signed());
        self.put(Instruction::with2(Code::Add_r64_rm64, into, base))
    }
}
