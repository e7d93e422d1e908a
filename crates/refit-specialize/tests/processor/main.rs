//! Instructions are evaluated as the processor runs them: thousands of instructions with
//! registers of which all, or some, bits are known.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use iced_x86::{
    Decoder, DecoderOptions, Encoder, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpKind, Register,
};
use refit_analysis::live::{effects, flag};
use refit_specialize::bits::Bits;
use refit_specialize::constants::Constants;
use refit_specialize::evaluate::Evaluator;
use refit_specialize::fold;
use refit_specialize::set::Set;
use refit_specialize::state::State;

/// Registers and flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Registers {
    general: [u64; 16],
    flags: u64,
}

/// A program that runs single instructions.
struct Processor {
    child: Child,
    stdin: RefCell<ChildStdin>,
    stdout: RefCell<BufReader<ChildStdout>>,
    memory: u64,
    _folder: tempfile::TempDir,
}

impl Processor {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cpu");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/processor/cpu.c");
        let built = Command::new("cc")
            .args(["-O1", "-Wall", "-Werror", "-fcf-protection=none", "-o"])
            .args([&path, &source])
            .status();
        assert!(built.expect("a C compiler").success());
        let mut child = Command::new(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        let stdin = RefCell::new(child.stdin.take().expect("a pipe"));
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("an address");
        let memory = line.trim().parse().expect("an address");
        Self { child, stdin, stdout: RefCell::new(stdout), memory, _folder: folder }
    }

    /// Runs an instruction; `None` if it cannot be encoded.
    fn run(&self, instruction: &Instruction, before: &Registers) -> Option<Registers> {
        let mut encoder = Encoder::new(64);
        encoder.encode(instruction, 0).ok()?;
        let mut line = String::new();
        for byte in encoder.take_buffer() {
            write!(line, "{byte:02x}").expect("text");
        }
        for word in before.general.iter().chain([&before.flags]) {
            write!(line, " {word}").expect("text");
        }
        writeln!(self.stdin.borrow_mut(), "{line}").expect("it listens");
        let mut answer = String::new();
        self.stdout.borrow_mut().read_line(&mut answer).expect("an answer");
        let words: Vec<u64> =
            answer.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        let general = words[..16].try_into().expect("sixteen");
        Some(Registers { general, flags: words[16] })
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The memory of that program.
#[derive(Debug)]
struct Memory(u64);

impl Constants for Memory {
    fn read(&self, address: u64, bytes: u64) -> Option<u64> {
        let from = address.checked_sub(self.0).filter(|from| from + bytes <= 4096)?;
        let byte = |at: u64| u64::from((at * 167 + (at >> 8) * 13 + 5) as u8);
        Some((0..bytes).map(|at| byte(from + at) << (8 * at)).sum())
    }
}

struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// Returns a number that is often at the edge of a width.
    fn number(&mut self) -> u64 {
        const EDGES: [u64; 12] = [
            0,
            1,
            0x7f,
            0x80,
            0xff,
            0x7fff,
            0x8000,
            0x7fff_ffff,
            0x8000_0000,
            0xffff_ffff,
            u64::MAX,
            1 << 63,
        ];
        match self.below(5) {
            0 => EDGES[self.below(EDGES.len())],
            1 => self.next() % 100,
            2 => i64::from(self.next() as i8).cast_unsigned(),
            3 => i32::from(self.next() as i16).cast_unsigned().into(),
            _ => self.next(),
        }
    }
}

/// Opcodes whose instructions are modelled, most of them; those above 255 follow the byte 0x0f.
fn opcodes() -> Vec<u16> {
    let sums = (0..64).filter(|opcode| opcode % 8 < 6);
    let moves = [0x63, 0x69, 0x6b, 0x80, 0x81, 0x83, 0x84, 0x85, 0x88, 0x89, 0x8a, 0x8b, 0x8d];
    let others =
        [0x98, 0x99, 0xc0, 0xc1, 0xc6, 0xc7, 0xd0, 0xd1, 0xd2, 0xd3, 0xf6, 0xf7, 0xfe, 0xff];
    let long = [0xa3, 0xaf, 0xb6, 0xb7, 0xba, 0xbe, 0xbf];
    let conditional = (0x140..0x150).chain(0x190..0x1a0);
    let long = long.into_iter().map(|opcode| opcode + 0x100).chain(conditional);
    sums.chain(moves).chain(others).chain(0xb0..0xc0).chain(long).collect()
}

/// Makes an instruction with this opcode by chance. If it has an operand in memory, that is the
/// `base` register with a displacement, and perhaps r9 as its index. `None` if it is another one
/// than can be run here.
fn make(opcode: u16, chance: &mut Chance, base: Register) -> Option<Instruction> {
    let mut code = Vec::new();
    if chance.below(4) == 0 {
        code.push(0x66);
    }
    let memory = chance.below(3) == 0;
    let mut rex = 0x40 | (chance.next() as u8 & 0xf);
    let mut modrm = chance.next() as u8 | 0xc0;
    let mut rest = Vec::new();
    if memory {
        let number = base.number() as u8;
        rex = rex & !3 | number >> 3;
        modrm = modrm & 0x38 | 0x80;
        if chance.below(2) == 0 && number & 7 != 4 {
            modrm |= number & 7;
        } else {
            // A scaled index.
            rex |= 2;
            modrm |= 4;
            rest.push((chance.next() as u8 & 0xc0) | 1 << 3 | number & 7);
        }
        rest.extend((chance.next() as u32 % 900).to_le_bytes());
    }
    if memory || chance.below(2) == 0 {
        code.push(rex);
    }
    if opcode > 0xff {
        code.push(0x0f);
    }
    code.push(opcode as u8);
    if !(0xb0..0xc0).contains(&opcode) && !matches!(opcode, 0x98 | 0x99) {
        code.push(modrm);
    }
    code.extend(rest);
    code.extend(chance.number().to_le_bytes());
    let one = Decoder::with_ip(64, &code, 0, DecoderOptions::NONE).decode();
    let mut info = InstructionInfoFactory::new();
    let used = info.info(&one);
    let stack =
        used.used_registers().iter().any(|one| one.register().full_register() == Register::RSP);
    let reads = [Mnemonic::Cmp, Mnemonic::Test].contains(&one.mnemonic());
    let writes = one.op_count() > 0 && one.op0_kind() == OpKind::Memory && !reads;
    let far = one.mnemonic() == Mnemonic::Bt
        && (0..one.op_count()).any(|operand| one.op_kind(operand) == OpKind::Memory);
    let odd = one.is_invalid() || one.flow_control() != FlowControl::Next || one.has_lock_prefix();
    let divides = [Mnemonic::Div, Mnemonic::Idiv].contains(&one.mnemonic());
    (!odd && !stack && !writes && !far && !divides).then_some(one)
}

/// The flags by the bits of `flag`, and their bits in the register.
const FLAGS: [(u8, u32); 6] = [
    (flag::CARRY, 0),
    (flag::PARITY, 2),
    (flag::AUXILIARY, 4),
    (flag::ZERO, 6),
    (flag::SIGN, 7),
    (flag::OVERFLOW, 11),
];

/// Returns a state in which these bits of the registers, and these flags, are known.
fn known(before: &Registers, masks: &[u64; 16], flags: u8) -> State {
    let mut state = State::default();
    for (number, (&value, &mask)) in before.general.iter().zip(masks).enumerate() {
        let bits = Bits::partly(mask, value);
        // The knowledge that the upper bits are copies of one, if they are.
        let extended = [
            bits.sign_extended(8),
            bits.sign_extended(16),
            bits.sign_extended(8).zero_extended(32),
            bits.sign_extended(16).zero_extended(32),
        ];
        let possible = extended.into_iter().find(|&bits| excluded(bits, value).is_none());
        state.write(WHOLE[number], possible.filter(|_| mask & 1 == 1).unwrap_or(bits));
    }
    for (one, bit) in FLAGS.into_iter().filter(|(one, _)| flags & one != 0) {
        let set = if before.flags >> bit & 1 == 1 { u64::from(one) } else { 0 };
        state.set_flags(one, Bits::partly(one.into(), set));
    }
    state
}

const WHOLE: [Register; 16] = [
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

/// Says why a value would not be possible by what is known of it.
fn excluded(bits: Bits, value: u64) -> Option<String> {
    let (ones, zeros) = bits.split();
    if ones & !value != 0 || zeros & value != 0 {
        return Some(format!("it is {value:#x}, not {ones:#x} and {zeros:#x}"));
    }
    if bits.differ(Bits::known(value), 64) {
        return Some(format!("it is {value:#x}, which differs from {bits:?}"));
    }
    [8, 16, 32, 64].into_iter().find_map(|width| {
        let low = Bits::known(value).zero_extended(width);
        let (signed, unsigned) = (low.signed_range(width).0, low.unsigned_range(width).0);
        let ((least, greatest), (lower, upper)) =
            (bits.signed_range(width), bits.unsigned_range(width));
        let within =
            least <= signed && signed <= greatest && lower <= unsigned && unsigned <= upper;
        (!within).then(|| format!("{value:#x} is not in the ranges of {bits:?}"))
    })
}

/// Returns what of a state is not as the registers are.
fn wrong(state: &State, registers: &Registers) -> Option<String> {
    for (number, &value) in registers.general.iter().enumerate().filter(|(at, _)| *at != 4) {
        if let Some(why) = excluded(state.whole(number), value) {
            return Some(format!("{:?}: {why}", WHOLE[number]));
        }
    }
    FLAGS.into_iter().find_map(|(one, bit)| {
        let set = registers.flags >> bit & 1 == 1;
        let known = state.flag(one).filter(|known| *known != set);
        known.map(|known| format!("flag {bit} is {set}, not {known}"))
    })
}

/// Returns the difference that a form makes that is used in place of an instruction, whose results
/// in `compared` are needed. Everything that the form does not read has other values.
fn difference(
    processor: &Processor,
    form: &Instruction,
    (before, after): (&Registers, &Registers),
    compared: Set,
    chance: &mut Chance,
) -> Option<String> {
    let mut info = InstructionInfoFactory::new();
    let effect = effects(&mut info, form);
    let mut scrambled = *before;
    for (number, value) in scrambled.general.iter_mut().enumerate() {
        // What is changed in part only is needed.
        let kept = effect.reads.general(number as u8)
            || effect.writes.general(number as u8) && !effect.kills.general(number as u8);
        if !kept {
            *value = chance.next();
        }
    }
    let end = processor.run(form, &scrambled)?;
    for number in (0..16).filter(|&number| compared.has(number) && number != 4) {
        let (one, other) = (after.general[number], end.general[number]);
        if one != other {
            return Some(format!("{:?}: {one:#x} / {other:#x}", WHOLE[number]));
        }
    }
    FLAGS.into_iter().find_map(|(one, bit)| {
        let differs = (after.flags ^ end.flags) >> bit & 1 == 1;
        (differs && compared.flag_bits() & one != 0).then(|| format!("flag {bit}"))
    })
}

#[test]
fn instructions_are_evaluated_and_folded_as_the_processor_runs_them() {
    let processor = Processor::start();
    let constants = Memory(processor.memory);
    let mut evaluator = Evaluator::new(&constants);
    let mut info = InstructionInfoFactory::new();
    let mut chance = Chance(7);
    let (mut ran, mut determined, mut folded) = (0, 0, 0);
    for opcode in opcodes() {
        for round in 0..80 {
            // The stack pointer is no base, and r9 is the index.
            let base = WHOLE[[0, 1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15][chance.below(14)]];
            let Some(one) = make(opcode, &mut chance, base) else { continue };
            let mut before = Registers {
                general: std::array::from_fn(|_| chance.number()),
                flags: chance.next(),
            };
            before.general[9] %= 64;
            before.general[base.number()] = processor.memory + chance.next() % 512;
            before.flags = before.flags & 0x8d5 | 0x202;
            let Some(after) = processor.run(&one, &before) else { continue };
            ran += 1;
            let masks: [u64; 16] = match round % 3 {
                0 => [u64::MAX; 16],
                1 => std::array::from_fn(|_| if chance.below(2) == 0 { 0 } else { u64::MAX }),
                _ => std::array::from_fn(|_| chance.next() | chance.next()),
            };
            let state =
                known(&before, &masks, if round % 2 == 0 { 0xff } else { chance.next() as u8 });
            let mut behind = state.clone();
            evaluator.step(&one, &mut behind);
            assert_eq!(wrong(&behind, &after), None, "{one} ({opcode:#x}) from {before:x?}");
            determined += usize::from(behind != state);
            let effect = effects(&mut info, &one);
            let writes = Set::of(&effect.writes);
            let pure = fold::is_pure(&one, &state, &constants);
            let mut check = |form: &Instruction, compared: Set, what: &str| {
                folded += 1;
                let found = difference(&processor, form, (&before, &after), compared, &mut chance);
                assert_eq!(found, None, "{one} ({opcode:#x}) {what} {form} from {before:x?}");
            };
            let put = fold::folded(&one, &state, &constants);
            if put != one {
                check(&put, writes, "with its operands is");
            }
            let only = |form: &Instruction| {
                let target = form.op0_register().full_register().number();
                writes.difference(Set::flags(u8::MAX)) == Set::general(1 << target)
            };
            if let Some(form) = fold::constant(&one, &behind).filter(|form| pure && only(form)) {
                check(&form, writes.difference(Set::flags(u8::MAX)), "is the constant");
            }
        }
    }
    println!("{ran} instructions ran, {determined} told something, {folded} were folded");
    assert!(ran > 2000 && determined > 1000 && folded > 300, "{ran} {determined} {folded}");
}
