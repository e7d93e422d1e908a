//! Walks the program's stack, and stores it: the value is the number of the stack.
//!
//! The code goes from frame to frame by the table in [`stacks`]. It calls nothing, allocates
//! nothing, and needs no buffer: it walks twice if the stack is new. The first walk hashes the
//! frames, and looks for the stack in the store. If the stack is not there, the thread that has
//! claimed a place for it walks once more and stores the frames.
//!
//! Frame descriptions can be wrong, and the walk must not fault: it reads only between the stack
//! pointer and a *limit* up to which the stack is known to be readable. That is the end of the page
//! of the stack pointer, or what the kernel has said for this page before. Beyond the limit, it
//! asks the kernel page by page: `rt_sigprocmask` with an unknown operation reads its argument and
//! does nothing else.
//!
//! Several threads and signal handlers may walk at once: [`intern`] says why the
//! store allows it, and a limit is one word, whoever stores it last.

use iced_x86::{Code, Instruction, MemoryOperand, Register};
use refit_sys::memory::PAGE_SIZE_U64;

use super::intern::{self, Finding, MIX};
use super::value::{FRAME_POINTER, STACK_POINTER};
use super::writer::{Label, Writer};
use crate::stacks::{self, Kind, Row, SAVED_BY_SIGNAL, Walk};
use crate::why::Why;

/// Temporary values; the kernel changes these registers in a call.
const ONE: Register = Register::RAX;
const OTHER: Register = Register::RCX;
const ROW: Register = Register::R11;
/// The address whose row is sought: the program counter, or the last byte of a call.
const COUNTER: Register = Register::RDX;
/// The stack pointer and the frame pointer in the current frame.
const TOP: Register = Register::RSI;
const BASE: Register = Register::RDI;
/// The address below which the stack is readable.
const LIMIT: Register = Register::R8;
/// Where the next frame is stored; 0 during the first walk.
const FRAME: Register = Register::R9;
/// The number of frames that are still allowed, in the lowest byte.
const LEFT: Register = Register::R10;
/// Bit of `LEFT` that is set once the walk has passed a signal's frame: the limit is then that of
/// another part of the stack, or of another stack.
const ELSEWHERE: i32 = 31;

/// Bits of an address within a page, and bytes of a page.
const PAGE: u32 = PAGE_SIZE_U64.ilog2();
const PAGE_BYTES: i32 = 1 << PAGE;
/// Bits of a kept limit that hold the number of readable pages; the page's number is above them.
const PAGES: u32 = 20;
/// Number of pages that may be asked for at once.
const FURTHER: i64 = 64;
/// The places that the parts of a walk jump to.
struct Labels {
    /// Begins a walk.
    begin: Label,
    /// Takes the next frame.
    next: Label,
    /// Follows the row at `ROW`.
    follow: Label,
    /// Asks the kernel for stack up to `OTHER`, and follows the row again.
    further: Label,
    /// Ends the walk because it is not known how to go on.
    unknown: Label,
    /// Ends the walk.
    end: Label,
}

fn at(register: Register, offset: i64) -> MemoryOperand {
    MemoryOperand::with_base_displ(register, offset)
}

fn word(register: Register, index: Register) -> MemoryOperand {
    MemoryOperand::with_base_index_scale_displ_size(register, index, 8, 0, 8)
}

impl Writer<'_> {
    /// Leaves the number of the stack, of at most `depth` frames, in `hash`; 0 if there was no room
    /// for it.
    pub(super) fn stack(&mut self, walk: Walk, depth: u8, hash: Register) -> Result<(), Why> {
        let labels = Labels {
            begin: self.label(),
            next: self.label(),
            follow: self.label(),
            further: self.label(),
            unknown: self.label(),
            end: self.label(),
        };
        let frame = FRAME.full_register32();
        self.put(Instruction::with2(Code::Xor_r32_rm32, frame, frame))?;
        self.bind(labels.begin);
        self.begin_walk(walk, depth, hash)?;
        self.bind(labels.next);
        self.take_frame(hash, &labels)?;
        self.find_row(walk, &labels)?;
        self.bind(labels.follow);
        self.follow_row(&labels)?;
        self.bind(labels.further);
        self.ask_further(walk, &labels)?;
        self.bind(labels.unknown);
        self.take_unknown(hash)?;
        self.bind(labels.end);
        self.find_stack(walk, hash, &labels)
    }

    fn address(&mut self, into: Register, address: u64) -> Result<(), Why> {
        self.put(Instruction::with2(Code::Mov_r64_imm64, into, address.cast_signed()))
    }

    /// Begins at the site, with the limit that is kept for the page of the stack pointer.
    fn begin_walk(&mut self, walk: Walk, depth: u8, hash: Register) -> Result<(), Why> {
        let (absent, known) = (self.label(), self.label());
        self.program_value(STACK_POINTER, TOP)?;
        self.program_value(FRAME_POINTER, BASE)?;
        self.address(COUNTER, self.address)?;
        self.address(hash, MIX)?;
        self.put(Instruction::with2(
            Code::Mov_r32_imm32,
            LEFT.full_register32(),
            u32::from(depth) + 1,
        ))?;
        self.kept_limit(walk)?;
        self.put(Instruction::with2(Code::Mov_r64_rm64, LIMIT, at(OTHER, 0)))?;
        self.copy(OTHER, LIMIT)?;
        self.put(Instruction::with2(Code::Shr_rm64_imm8, OTHER, PAGES))?;
        self.put(Instruction::with2(Code::Cmp_r64_rm64, OTHER, ONE))?;
        self.jump(Code::Jne_rel32_64, absent)?;
        let narrow = LIMIT.full_register32();
        self.put(Instruction::with2(Code::And_rm32_imm32, narrow, (1 << PAGES) - 1))?;
        self.jump(Code::Jmp_rel32_64, known)?;
        self.bind(absent);
        self.put(Instruction::with2(Code::Mov_r32_imm32, narrow, 1))?;
        self.bind(known);
        // Pages of readable stack, from that of the stack pointer on.
        self.put(Instruction::with2(Code::Add_r64_rm64, LIMIT, ONE))?;
        self.put(Instruction::with2(Code::Shl_rm64_imm8, LIMIT, PAGE))
    }

    /// Leaves the number of the stack pointer's page in `ONE`, and the address of its limit in
    /// `OTHER`.
    fn kept_limit(&mut self, walk: Walk) -> Result<(), Why> {
        self.program_value(STACK_POINTER, ONE)?;
        self.put(Instruction::with2(Code::Shr_rm64_imm8, ONE, PAGE))?;
        self.address(ROW, walk.limits)?;
        self.copy(OTHER, ONE)?;
        let mask = stacks::LIMITS as i32 - 1;
        self.put(Instruction::with2(Code::And_rm32_imm32, OTHER.full_register32(), mask))?;
        self.put(Instruction::with2(Code::Lea_r64_m, OTHER, word(ROW, OTHER)))
    }

    /// Hashes or stores the frame at `COUNTER`; ends the walk after the last one that is allowed.
    fn take_frame(&mut self, hash: Register, labels: &Labels) -> Result<(), Why> {
        let first = self.label();
        self.put(Instruction::with1(Code::Dec_rm8, Register::R10L))?;
        self.jump(Code::Je_rel32_64, labels.end)?;
        self.put(Instruction::with2(Code::Test_rm64_r64, FRAME, FRAME))?;
        self.jump(Code::Je_rel32_64, first)?;
        self.put(Instruction::with2(Code::Mov_rm64_r64, at(FRAME, 0), COUNTER))?;
        self.put(Instruction::with2(Code::Add_rm64_imm8, FRAME, 8))?;
        self.bind(first);
        self.address(ONE, MIX)?;
        self.mix(hash, COUNTER, ONE)
    }

    /// Leaves the address of the row for `COUNTER` in `ROW`.
    fn find_row(&mut self, walk: Walk, labels: &Labels) -> Result<(), Why> {
        let (again, found, scan) = (self.label(), self.label(), self.label());
        let (one, other) = (ONE.full_register32(), OTHER.full_register32());
        self.copy(ONE, COUNTER)?;
        self.put(Instruction::with2(Code::Shr_rm64_imm8, ONE, stacks::GRANULE))?;
        let spread = stacks::SPREAD.cast_signed();
        self.put(Instruction::with3(Code::Imul_r32_rm32_imm32, other, one, spread))?;
        self.put(Instruction::with2(Code::Shr_rm32_imm8, other, u32::BITS - walk.places))?;
        self.bind(again);
        self.address(ROW, walk.granules)?;
        self.put(Instruction::with2(Code::Mov_r64_rm64, ROW, word(ROW, OTHER)))?;
        self.put(Instruction::with2(Code::Test_rm64_r64, ROW, ROW))?;
        self.jump(Code::Je_rel32_64, labels.unknown)?;
        self.put(Instruction::with2(Code::Rol_rm64_imm8, ROW, 32))?;
        self.put(Instruction::with2(Code::Cmp_r32_rm32, ROW.full_register32(), one))?;
        self.jump(Code::Je_rel32_64, found)?;
        self.put(Instruction::with1(Code::Inc_rm32, other))?;
        let mask = (1 << walk.places) - 1;
        self.put(Instruction::with2(Code::And_rm32_imm32, other, mask))?;
        self.jump(Code::Jmp_rel32_64, again)?;
        self.bind(found);
        // The rank plus one, then the place of its list after that of the first.
        let list = stacks::BLOCKS * 4;
        self.put(Instruction::with2(Code::Shr_rm64_imm8, ROW, 32))?;
        self.put(Instruction::with2(Code::Shl_rm64_imm8, ROW, list.trailing_zeros()))?;
        self.address(ONE, walk.blocks.wrapping_sub(list))?;
        self.put(Instruction::with2(Code::Add_r64_rm64, ROW, ONE))?;
        // Bits 8 to 15: the block.
        self.put(Instruction::with2(Code::Movzx_r32_rm8, other, Register::DH))?;
        let index = MemoryOperand::with_base_index_scale(ROW, OTHER, 4);
        self.put(Instruction::with2(Code::Mov_r32_rm32, other, index))?;
        self.address(ONE, walk.rows)?;
        self.put(Instruction::with2(Code::Lea_r64_m, ROW, word(ONE, OTHER)))?;
        self.put(Instruction::with2(Code::Movzx_r32_rm8, one, Register::DL))?;
        self.bind(scan);
        self.put(Instruction::with2(Code::Add_rm64_imm8, ROW, 8))?;
        self.put(Instruction::with2(Code::Movzx_r32_rm16, other, at(ROW, 0)))?;
        self.put(Instruction::with2(Code::Cmp_r32_rm32, other, one))?;
        self.jump(Code::Jbe_rel32_64, scan)?;
        self.put(Instruction::with2(Code::Sub_rm64_imm8, ROW, 8))
    }

    /// Goes to the caller's frame by the row at `ROW`, and takes it.
    fn follow_row(&mut self, labels: &Labels) -> Result<(), Why> {
        let (by_stack, by_frame, known) = (self.label(), self.label(), self.label());
        let (unsaved, signal) = (self.label(), self.label());
        let kind = ONE.full_register32();
        self.put(Instruction::with2(Code::Movzx_r32_rm8, kind, at(ROW, Row::KIND)))?;
        self.put(Instruction::with2(Code::Movsx_r64_rm16, OTHER, at(ROW, Row::CFA)))?;
        self.put(Instruction::with2(Code::Cmp_rm32_imm8, kind, Kind::StackPointer as i32))?;
        self.jump(Code::Je_rel32_64, by_stack)?;
        self.put(Instruction::with2(Code::Cmp_rm32_imm8, kind, Kind::FramePointer as i32))?;
        self.jump(Code::Je_rel32_64, by_frame)?;
        self.put(Instruction::with2(Code::Cmp_rm32_imm8, kind, Kind::Signal as i32))?;
        self.jump(Code::Je_rel32_64, signal)?;
        self.put(Instruction::with2(Code::Cmp_rm32_imm8, kind, Kind::End as i32))?;
        self.jump(Code::Je_rel32_64, labels.end)?;
        self.jump(Code::Jb_rel32_64, labels.unknown)?;
        self.find_stored(unsaved, labels)?;
        self.bind(by_frame);
        self.put(Instruction::with2(Code::Lea_r64_m, OTHER, word(BASE, OTHER)))?;
        self.put(Instruction::with2(Code::Cmp_r64_rm64, BASE, TOP))?;
        self.jump(Code::Jb_rel32_64, labels.unknown)?;
        self.jump(Code::Jmp_rel32_64, known)?;
        self.bind(by_stack);
        self.put(Instruction::with2(Code::Lea_r64_m, OTHER, word(TOP, OTHER)))?;
        self.bind(known);
        self.check(OTHER, labels)?;
        self.put(Instruction::with2(Code::Movsx_r64_rm16, ONE, at(ROW, Row::FRAME_POINTER)))?;
        self.put(Instruction::with2(Code::Test_rm64_r64, ONE, ONE))?;
        self.jump(Code::Je_rel32_64, unsaved)?;
        self.put(Instruction::with2(Code::Mov_r64_rm64, BASE, word(OTHER, ONE)))?;
        self.bind(unsaved);
        self.put(Instruction::with2(Code::Mov_r64_rm64, COUNTER, at(OTHER, -8)))?;
        self.copy(TOP, OTHER)?;
        self.put(Instruction::with2(Code::Test_rm64_r64, COUNTER, COUNTER))?;
        self.jump(Code::Je_rel32_64, labels.end)?;
        // A call can be the last instruction of its function.
        self.put(Instruction::with1(Code::Dec_rm64, COUNTER))?;
        self.jump(Code::Jmp_rel32_64, labels.next)?;
        self.bind(signal);
        self.leave_signal(labels)
    }

    /// Checks that the words below `address` are above the stack pointer and readable.
    fn check(&mut self, address: Register, labels: &Labels) -> Result<(), Why> {
        self.put(Instruction::with2(Code::Cmp_r64_rm64, address, TOP))?;
        self.jump(Code::Jbe_rel32_64, labels.unknown)?;
        self.put(Instruction::with2(Code::Cmp_r64_rm64, address, LIMIT))?;
        self.jump(Code::Ja_rel32_64, labels.further)
    }

    /// Finds the caller's frame of a function that has aligned its stack: its address is stored
    /// `OTHER` words from the frame pointer, which points to the caller's.
    fn find_stored(&mut self, found: Label, labels: &Labels) -> Result<(), Why> {
        self.put(Instruction::with2(Code::Lea_r64_m, ONE, word(BASE, OTHER)))?;
        self.put(Instruction::with2(Code::Cmp_r64_rm64, ONE, TOP))?;
        self.jump(Code::Jb_rel32_64, labels.unknown)?;
        self.put(Instruction::with2(Code::Lea_r64_m, OTHER, at(BASE, 8)))?;
        self.check(OTHER, labels)?;
        self.put(Instruction::with2(Code::Mov_r64_rm64, OTHER, at(ONE, 0)))?;
        self.check(OTHER, labels)?;
        self.put(Instruction::with2(Code::Mov_r64_rm64, BASE, at(BASE, 0)))?;
        self.jump(Code::Jmp_rel32_64, found)
    }

    /// Goes to the frame that a signal has interrupted.
    fn leave_signal(&mut self, labels: &Labels) -> Result<(), Why> {
        let [base, top, counter] = SAVED_BY_SIGNAL;
        self.put(Instruction::with2(Code::Lea_r64_m, OTHER, at(TOP, counter + 8)))?;
        self.check(OTHER, labels)?;
        self.put(Instruction::with2(Code::Mov_r64_rm64, BASE, at(TOP, base)))?;
        self.put(Instruction::with2(Code::Mov_r64_rm64, COUNTER, at(TOP, counter)))?;
        self.put(Instruction::with2(Code::Mov_r64_rm64, TOP, at(TOP, top)))?;
        // Nothing is known of the stack there.
        self.copy(LIMIT, TOP)?;
        self.put(Instruction::with2(Code::And_rm64_imm32, LIMIT, -PAGE_BYTES))?;
        let left = LEFT.full_register32();
        self.put(Instruction::with2(Code::Bts_rm32_imm8, left, ELSEWHERE))?;
        self.jump(Code::Jmp_rel32_64, labels.next)
    }

    /// Raises the limit to `OTHER` or beyond, and keeps it for the page of the stack pointer.
    fn ask_further(&mut self, walk: Walk, labels: &Labels) -> Result<(), Why> {
        if !walk.asks {
            return Ok(());
        }
        let (again, unreadable) = (self.label(), self.label());
        let most = FURTHER * i64::from(PAGE_BYTES);
        self.put(Instruction::with2(Code::Lea_r64_m, ONE, at(LIMIT, most)))?;
        self.put(Instruction::with2(Code::Cmp_r64_rm64, OTHER, ONE))?;
        self.jump(Code::Ja_rel32_64, labels.unknown)?;
        let saved = [COUNTER, TOP, BASE, LEFT, ROW, OTHER];
        for register in saved {
            self.put(Instruction::with1(Code::Push_r64, register))?;
            self.depth += 8;
        }
        self.bind(again);
        let (old, operation) = (Register::EDX, Register::EDI);
        self.put(Instruction::with2(Code::Mov_r32_imm32, operation, -1))?;
        self.copy(Register::RSI, LIMIT)?;
        self.put(Instruction::with2(Code::Xor_r32_rm32, old, old))?;
        self.put(Instruction::with2(Code::Mov_r32_imm32, Register::R10D, 8))?;
        self.call(libc::SYS_rt_sigprocmask)?;
        // Otherwise it is EFAULT, or the call is not allowed.
        self.put(Instruction::with2(Code::Cmp_rm64_imm8, Register::RAX, -libc::EINVAL))?;
        self.jump(Code::Jne_rel32_64, unreadable)?;
        self.put(Instruction::with2(Code::Add_rm64_imm32, LIMIT, PAGE_BYTES))?;
        self.put(Instruction::with2(Code::Cmp_rm64_r64, at(Register::RSP, 0), LIMIT))?;
        self.jump(Code::Ja_rel32_64, again)?;
        let depth = self.depth;
        self.restore_saved(saved)?;
        self.keep_limit(walk)?;
        self.jump(Code::Jmp_rel32_64, labels.follow)?;
        self.depth = depth;
        self.bind(unreadable);
        self.restore_saved(saved)
    }

    fn restore_saved(&mut self, saved: [Register; 6]) -> Result<(), Why> {
        for register in saved.into_iter().rev() {
            self.put(Instruction::with1(Code::Pop_r64, register))?;
            self.depth -= 8;
        }
        Ok(())
    }

    /// Keeps the limit, unless it is that of another part of the stack. Leaves `ROW` as it is.
    fn keep_limit(&mut self, walk: Walk) -> Result<(), Why> {
        let over = self.label();
        let left = LEFT.full_register32();
        self.put(Instruction::with2(Code::Test_rm32_r32, left, left))?;
        self.jump(Code::Js_rel32_64, over)?;
        self.put(Instruction::with1(Code::Push_r64, ROW))?;
        self.depth += 8;
        self.kept_limit(walk)?;
        self.copy(ROW, LIMIT)?;
        self.put(Instruction::with2(Code::Shr_rm64_imm8, ROW, PAGE))?;
        self.put(Instruction::with2(Code::Sub_r64_rm64, ROW, ONE))?;
        self.put(Instruction::with2(Code::Shl_rm64_imm8, ONE, PAGES))?;
        self.put(Instruction::with2(Code::Add_r64_rm64, ONE, ROW))?;
        self.put(Instruction::with2(Code::Mov_rm64_r64, at(OTHER, 0), ONE))?;
        self.put(Instruction::with1(Code::Pop_r64, ROW))?;
        self.depth -= 8;
        self.bind(over);
        Ok(())
    }

    /// Hashes or stores the frame that says that it is not known how to go on.
    fn take_unknown(&mut self, hash: Register) -> Result<(), Why> {
        let first = self.label();
        self.put(Instruction::with1(Code::Not_rm64, hash))?;
        self.put(Instruction::with2(Code::Test_rm64_r64, FRAME, FRAME))?;
        self.jump(Code::Je_rel32_64, first)?;
        let unknown = stacks::UNKNOWN_FRAME as i32;
        self.put(Instruction::with2(Code::Mov_rm64_imm32, at(FRAME, 0), unknown))?;
        self.bind(first);
        Ok(())
    }

    /// Finds the stack in the store by its hash, and leaves its number in `hash`. A stack that is
    /// not there gets a place, and the walk begins again.
    fn find_stack(&mut self, walk: Walk, hash: Register, labels: &Labels) -> Result<(), Why> {
        let place = ROW;
        let (found, new, done) = (self.label(), self.label(), self.label());
        let registers = Finding { hash, place, other: OTHER, left: Register::R8D };
        self.find_place(walk.store, registers, found, new)?;
        let none = hash.full_register32();
        self.put(Instruction::with2(Code::Xor_r32_rm32, none, none))?;
        self.jump(Code::Jmp_rel32_64, done)?;
        self.bind(new);
        self.put(Instruction::with2(Code::Test_rm64_r64, FRAME, FRAME))?;
        self.jump(Code::Jne_rel32_64, found)?;
        let first = at(place, intern::FIRST as i64);
        self.put(Instruction::with2(Code::Lea_r64_m, FRAME, first))?;
        self.jump(Code::Jmp_rel32_64, labels.begin)?;
        self.bind(found);
        let known = self.label();
        self.put(Instruction::with2(Code::Test_rm64_r64, FRAME, FRAME))?;
        self.jump(Code::Je_rel32_64, known)?;
        self.complete(place)?;
        self.bind(known);
        self.number_of(walk.store, place, hash, OTHER)?;
        self.bind(done);
        Ok(())
    }
}
