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
        "{} at {address:#x} can change, a jump takes 5, and there is no unused place near for a longer one", bytes(*.room)
    )]
    Short {
        /// Address of the site.
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
        /// Address of the site.
        address: u64,
        /// Length of the instruction.
        room: usize,
    },
    /// An instruction cannot run elsewhere.
    #[error("the instruction at {address:#x} ({text}) cannot be run at another place: {reason}")]
    Fixed {
        /// Address of the instruction.
        address: u64,
        /// The instruction as text.
        text: String,
        /// The obstacle.
        reason: &'static str,
    },
    /// Only a copy of the function would do, and it cannot be copied.
    #[error(
        "at {address:#x} only a copy of the whole function would do, and it cannot be copied: some of its ways are not known"
    )]
    Uncopied {
        /// Address of the site.
        address: u64,
    },
    /// Only a copy of the function would do, and it would have to change several pages at once.
    #[error(
        "at {address:#x} only a copy of the whole function would do, and what has to change at once for it is not in one page of memory"
    )]
    Torn {
        /// Entry of the function.
        address: u64,
    },
    /// The actions make system calls, and the program limits its own.
    #[error(
        "what is to be done at {address:#x} makes system calls, and a thread of the program limits its own (seccomp): leave out cpu, fields in memory, and numbers of threads and processes"
    )]
    Filtered {
        /// Address of the site.
        address: u64,
    },
    /// The bytes are no instruction.
    #[error("the bytes at {address:#x} are no instruction")]
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
        "the code at {address:#x} is not what its file says: another tool has changed it, or the program itself"
    )]
    Changed {
        /// Address of the first difference.
        address: u64,
    },
    /// A thread does not leave the patch area.
    #[error("thread {thread} is in spliced code and does not leave it; what it runs stays mapped")]
    InUse {
        /// Id of the thread.
        thread: u32,
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
        "{cells} numbers would have to be kept for each processor, which is too many: name fewer places, or leave `by` out"
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
