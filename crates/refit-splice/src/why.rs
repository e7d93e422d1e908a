//! The error of splicing.

use crate::process::Refusal;

/// Why code cannot be spliced in at a place, or taken out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// The program cannot be changed.
    #[error(transparent)]
    Program(#[from] Refusal),
    /// There are too few bytes until the next target of a jump, and no springboard is near.
    #[error(
        "{} at {address:#x} can change, but a jump takes 5, and no unused place for a longer jump is near", bytes(*.room)
    )]
    Short {
        /// Address of the site.
        address: u64,
        /// Bytes that may change there.
        room: usize,
    },
    /// The same, where only one instruction may change.
    #[error(
        "some jumps of the function could not be resolved, so only one instruction at {address:#x} can change: it has {}, but a \
         jump takes 5; name another function, such as a caller", bytes(*.room)
    )]
    Alone {
        /// Address of the site.
        address: u64,
        /// Length of the instruction.
        room: usize,
    },
    /// An instruction cannot run elsewhere.
    #[error("the instruction at {address:#x} ({text}) cannot run at another address: {reason}")]
    Fixed {
        /// Address of the instruction.
        address: u64,
        /// The instruction as text.
        text: String,
        /// The obstacle.
        reason: &'static str,
    },
    /// Only a copy of the function allows it, and the function cannot be copied.
    #[error(
        "splicing at {address:#x} needs a copy of the whole function, which cannot be copied: some of its jumps could not be resolved"
    )]
    Uncopied {
        /// Address of the site.
        address: u64,
    },
    /// Only a copy of the function allows it, and the copy requires changes of several pages at
    /// once.
    #[error(
        "splicing at {address:#x} needs a copy of the whole function, and the code to change at once for it is not in one page of memory"
    )]
    Torn {
        /// Entry of the function.
        address: u64,
    },
    /// The actions make system calls, and the program limits its own.
    #[error(
        "the action at {address:#x} makes system calls, but a thread of the program limits its system calls (seccomp); leave out cpu, fields in memory, and numbers of threads and processes"
    )]
    Filtered {
        /// Address of the site.
        address: u64,
    },
    /// The bytes are no instruction.
    #[error("the bytes at {address:#x} are not an instruction")]
    NoCode {
        /// Address of the bytes.
        address: u64,
    },
    /// There is no free memory within reach of a jump.
    #[error("there is no free memory within 2 GiB of {address:#x}")]
    Far {
        /// Address of the site.
        address: u64,
    },
    /// The program's bytes differ from those that were analysed.
    #[error(
        "the code at {address:#x} differs from its file: another tool, or the program itself, has changed it"
    )]
    Changed {
        /// Address of the first difference.
        address: u64,
    },
    /// An immediate there has been replaced.
    #[error(
        "the immediate at {address:#x} has been replaced (`refit knob set`), and the instruction would run elsewhere with the number of its file; unset it first"
    )]
    Immediate {
        /// Address of the immediate.
        address: u64,
    },
    /// The instruction of an immediate runs elsewhere.
    #[error(
        "the instruction at {address:#x} runs in a copy, because of a probe or of `refit optimize`; take that out first"
    )]
    Elsewhere {
        /// Address of the instruction.
        address: u64,
    },
    /// Immediates that change together are not in one page.
    #[error(
        "the immediates from {address:#x} on are not in one page of memory: if refit were killed, some could have changed and others not"
    )]
    Pages {
        /// Address of the first one.
        address: u64,
    },
    /// A thread does not leave the patch area.
    #[error("thread {thread} is in spliced code and does not leave it; what it runs stays mapped")]
    InUse {
        /// Id of the thread.
        thread: u32,
    },
    /// So many patch areas could not be unmapped that unwinders would not learn of another one.
    #[error(
        "{count} patch areas are still mapped in it, and unwinders cannot learn of more; try again later, or restart it"
    )]
    Areas {
        /// Number of areas.
        count: usize,
    },
    /// The processor lacks an instruction that the action needs.
    #[error("this processor has no {instruction}, which {action} needs")]
    Processor {
        /// Name of the instruction.
        instruction: &'static str,
        /// The action.
        action: &'static str,
    },
    /// The actions need too many cells.
    #[error(
        "the probes need {cells} counters for each processor, which is too many; name fewer places, or leave `by` out"
    )]
    Cells {
        /// Number of cells.
        cells: u32,
    },
    /// The machine code could not be encoded.
    #[error("could not generate code for {address:#x}: {reason}")]
    Generate {
        /// Address of the site.
        address: u64,
        /// The error of the encoder.
        reason: String,
    },
}

fn bytes(count: usize) -> String {
    if count == 1 { "1 byte".to_owned() } else { format!("{count} bytes") }
}
