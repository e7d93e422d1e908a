//! Why something cannot be spliced.

use crate::process::Refusal;

/// Why nothing can be spliced in at a place, or taken out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// The program cannot be changed.
    #[error(transparent)]
    Program(#[from] Refusal),
    /// Too few bytes until the next place that code jumps to, and no unused ones near.
    #[error(
        "{} at {address:#x} can change, a jump takes 5, and there is no unused place near for a longer one", bytes(*.room)
    )]
    Short {
        /// The site.
        address: u64,
        /// Bytes that may change there.
        room: usize,
    },
    /// The same, where only one instruction may change.
    #[error(
        "the function's jumps are not all understood, so of the code at {address:#x} only one instruction may change: it has {} and a \
         jump takes 5; ask for another function, such as one that calls it", bytes(*.room)
    )]
    Alone {
        /// The site.
        address: u64,
        /// How long the instruction is.
        room: usize,
    },
    /// An instruction that cannot run elsewhere.
    #[error("the instruction at {address:#x} ({text}) cannot be run at another place: {reason}")]
    Fixed {
        /// The instruction.
        address: u64,
        /// How it reads.
        text: String,
        /// What stands in the way.
        reason: &'static str,
    },
    /// There is no way but a copy of the function, and none can be made.
    #[error(
        "at {address:#x} only a copy of the whole function would do, and it cannot be copied: some of its ways are not known"
    )]
    Uncopied {
        /// The site.
        address: u64,
    },
    /// A copy of the function would change it at several pages at once.
    #[error(
        "at {address:#x} only a copy of the whole function would do, and what has to change at once for it is not in one page of memory"
    )]
    Torn {
        /// The function.
        address: u64,
    },
    /// The program limits its system calls, and what is to be done makes some.
    #[error(
        "what is to be done at {address:#x} makes system calls, and a thread of the program limits its own (seccomp): leave out cpu, fields in memory, and numbers of threads and processes"
    )]
    Filtered {
        /// The site.
        address: u64,
    },
    /// The bytes are no instructions.
    #[error("the bytes at {address:#x} are no instruction")]
    NoCode {
        /// Where.
        address: u64,
    },
    /// No memory within reach of a jump.
    #[error("there is no free memory within 2 GiB of {address:#x}")]
    Far {
        /// The site.
        address: u64,
    },
    /// The program's bytes are not those that were analysed.
    #[error(
        "the code at {address:#x} is not what its file says: another tool has changed it, or the program itself"
    )]
    Changed {
        /// Where they differ.
        address: u64,
    },
    /// A thread cannot be brought out of the patch area.
    #[error("thread {thread} is in spliced code and does not leave it; what it runs stays mapped")]
    InUse {
        /// The thread.
        thread: u32,
    },
    /// The processor lacks an instruction that the action needs.
    #[error("this processor has no {instruction}, which {action} needs")]
    Processor {
        /// Its name.
        instruction: &'static str,
        /// What needs it.
        action: &'static str,
    },
    /// Too much would be kept.
    #[error(
        "{cells} numbers would have to be kept for each processor, which is too many: name fewer places, or leave `by` out"
    )]
    Cells {
        /// How many.
        cells: u32,
    },
    /// The machine code could not be made.
    #[error("could not generate code for {address:#x}: {reason}")]
    Generate {
        /// The site.
        address: u64,
        /// What the encoder says.
        reason: String,
    },
}

fn bytes(count: usize) -> String {
    if count == 1 { "1 byte".to_owned() } else { format!("{count} bytes") }
}
