//! The end of a function on the stage, and whether two ends are the same as far as any caller can
//! tell.

use refit_analysis::live::{Live, flag};

/// Bytes of an end on the board, as `stage.c` writes it.
pub(crate) const BYTES: usize = 1024;
/// Return address of a function.
pub(crate) const BACK: u64 = 0x06ba_cbac_bac0;

/// The registers that functions preserve.
pub(crate) const KEPT: Live = Live {
    general: 0xf038,
    flags: flag::DIRECTION,
    vectors: 0,
    upper: 0,
    masks: 0,
    x87: false,
    red_zone: false,
};

const SIGSEGV: u64 = libc::SIGSEGV as u64;
const SIGVTALRM: u64 = libc::SIGVTALRM as u64;
const SIGSYS: u64 = libc::SIGSYS as u64;
const SIGTRAP: u64 = libc::SIGTRAP as u64;

/// The end of a function.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct End {
    ended: bool,
    /// Whether the stack pointer was invalid.
    astray: bool,
    signal: u64,
    pub(crate) fault: u64,
    pub(crate) rip: u64,
    flags: u64,
    /// The word at the stack pointer.
    pub(crate) top: u64,
    /// Checksums of the memory that functions were given, and of their caller's stack.
    memory: u64,
    above: u64,
    pub(crate) general: [u64; 16],
    low: [u128; 16],
    high: [u128; 16],
    x87: Vec<u8>,
}

impl End {
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let word =
            |n: usize| u64::from_le_bytes(bytes[n * 8..n * 8 + 8].try_into().expect("eight bytes"));
        let vector = |n: usize| u128::from(word(n)) | u128::from(word(n + 1)) << 64;
        Self {
            ended: word(0) > 0,
            astray: word(0) == 2,
            signal: word(1),
            fault: word(2),
            rip: word(3),
            flags: word(4),
            top: word(5),
            memory: word(6),
            above: word(7),
            general: std::array::from_fn(|n| word(8 + n)),
            low: std::array::from_fn(|n| vector(24 + 2 * n)),
            high: std::array::from_fn(|n| vector(56 + 2 * n)),
            x87: bytes[704..840].to_vec(),
        }
    }

    /// Whether it can be compared: it did not take too long, and had a stack.
    pub(crate) fn tells(&self) -> bool {
        !(self.astray || self.ended && self.signal == SIGVTALRM)
    }

    /// Whether a push found the end of the stack.
    pub(crate) fn overflowed(&self) -> bool {
        let below = self.general[4].wrapping_sub(self.fault);
        self.ended && self.signal == SIGSEGV && (1..=256).contains(&below)
    }

    /// Whether the function returned to its caller.
    pub(crate) fn returned(&self) -> bool {
        self.ended && self.signal == SIGSEGV && self.rip == BACK
    }

    /// Whether control went where no code is.
    pub(crate) fn jumped_away(&self) -> bool {
        self.ended && self.signal == SIGSEGV && self.rip == self.fault
    }

    /// Returns a word for it, for statistics.
    pub(crate) fn kind(&self) -> &'static str {
        match self.signal {
            _ if !self.ended => "ended",
            _ if self.returned() => "returned",
            SIGVTALRM => "took too long",
            SIGSYS => "asked the kernel",
            SIGTRAP => "trapped",
            _ => "faulted",
        }
    }

    /// Returns the address of the instruction that it ended at, or was about to run.
    pub(crate) fn at(&self) -> u64 {
        match self.signal {
            SIGSYS => self.rip.wrapping_sub(2),
            _ => self.rip,
        }
    }
}

/// The parts of an end that have to be the same.
#[derive(Clone, Copy)]
pub(crate) struct Needed {
    pub(crate) live: Live,
    /// Whether the instruction ran in the patch area, as it may.
    pub(crate) moved: bool,
    /// A call through memory: its copy has pushed the return address before it reads the pointer.
    pub(crate) pushes: bool,
    /// Whether a called function is about to begin.
    pub(crate) called: bool,
}

/// Returns the difference between the ends without and with sites, if there is one.
pub(crate) fn difference(plain: &End, spliced: &End, needed: Needed) -> Option<String> {
    if (plain.ended, plain.signal) != (spliced.ended, spliced.signal) {
        return Some(format!(
            "{} {} / {} {}",
            plain.kind(),
            plain.signal,
            spliced.kind(),
            spliced.signal
        ));
    }
    if !plain.ended {
        return None;
    }
    // A register that is live in the middle of a function is needed by one of its callers, perhaps
    // not by this one. It may then hold the poison itself, from a place where this caller no longer
    // needed it, but never a value computed from the poison.
    let strict = plain.returned();
    let mut found = Vec::new();
    let mut word = |name: &str, one: u64, other: u64| {
        if one != other {
            found.push(format!("{name}: {one:#x} / {other:#x}"));
        }
    };
    if !needed.moved {
        word("instruction", plain.rip, spliced.rip);
    }
    // Some signals report the instruction itself.
    if !(needed.moved && plain.fault == plain.rip && spliced.fault == spliced.rip) {
        word("fault", plain.fault, spliced.fault);
    }
    word("memory", plain.memory, spliced.memory);
    word("the caller's stack", plain.above, spliced.above);
    if needed.called {
        word("return address", plain.top, spliced.top);
    }
    for (number, (&one, &other)) in plain.general.iter().zip(&spliced.general).enumerate() {
        if needed.live.general >> number & 1 == 1 {
            let pushed = needed.pushes && number == 4 && one == other.wrapping_add(8);
            let excused = pushed || is_left(other) || !strict && other == POISON + number as u64;
            word(REGISTERS[number], one, if excused { one } else { other });
        }
    }
    let flags = [
        (flag::CARRY, 0),
        (flag::PARITY, 2),
        (flag::AUXILIARY, 4),
        (flag::ZERO, 6),
        (flag::SIGN, 7),
        (flag::DIRECTION, 10),
        (flag::OVERFLOW, 11),
    ];
    // Carry and auxiliary carry; neither zero nor sign nor overflow.
    let poisoned = !strict && spliced.flags & 0x8d1 == 0x11;
    for (_, bit) in flags
        .into_iter()
        .filter(|&(_, bit)| bit == 10 || !poisoned)
        .filter(|(flag, _)| needed.live.flags & flag != 0)
    {
        word(&format!("flag {bit}"), plain.flags >> bit & 1, spliced.flags >> bit & 1);
    }
    for number in 0..16 {
        let (one, other) = (plain.low[number], spliced.low[number]);
        let left = is_left(other as u64) || is_left((other >> 64) as u64);
        let excused = one == other || left || !strict && other == u128::MAX;
        if needed.live.vectors >> number & 1 == 1 && !excused {
            found.push(format!("xmm{number}: {one:#x} / {other:#x}"));
        }
        if needed.live.upper >> number & 1 == 1 && plain.high[number] != spliced.high[number] {
            found.push(format!("ymm{number}"));
        }
    }
    if needed.live.x87 && plain.x87 != spliced.x87 {
        found.push("x87".to_owned());
    }
    (!found.is_empty()).then(|| found.join(", "))
}

/// Value that sites leave in unused stack.
pub(crate) const LEFT: i32 = 0x0bad_cafe;

/// Whether a word may come from a slot of the stack that was not written since a site was passed.
fn is_left(word: u64) -> bool {
    word == LEFT as u64
}

/// Value that poison writes into general registers, to which it adds their number.
const POISON: u64 = 0x0bad_beef_dead_0000;
const REGISTERS: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];
