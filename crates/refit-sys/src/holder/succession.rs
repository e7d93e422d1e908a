//! The part of the new server in a hand-over.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::{Duration, Instant};

use super::board::Board;
use super::handover::{HOLDER_BOARD, Handover, LOOK, Phase};
use crate::descriptors::{Descriptors, OtherProcess};

/// The time for which a new server may keep the descriptors of the one before out of reach, until
/// its holder permits it to take them.
const PERMISSION_TIMEOUT: Duration = Duration::from_secs(1);

/// A hand-over by which this process becomes the server.
#[derive(Debug)]
pub struct Succession {
    handover: Handover,
    number: u64,
    /// The descriptors of the server before.
    pub descriptors: OtherProcess,
    /// The board of the server before.
    pub board: Board,
    /// The holder of this server, and its board.
    holder: (u32, RawFd),
}

impl Succession {
    /// Begins to take over as the server of this holder, which has this board.
    pub(super) fn new(handover: &Handover, holder: u32, board: &Board) -> io::Result<Self> {
        let (number, _) = handover.phase();
        let (descriptors, predecessors) = predecessor(handover)?;
        let holder = (holder, board.as_fd().as_raw_fd());
        Ok(Self { handover: handover.clone(), number, descriptors, board: predecessors, holder })
    }

    /// Says that this server is prepared, and waits until the one before has ended. Returns whether
    /// it has; otherwise the hand-over has failed.
    pub fn wait_for_end(&self) -> bool {
        let waits = [Phase::Ready, Phase::Switching];
        self.handover.advance(self.number, Phase::Ready)
            && self.handover.wait_while(self.number, &waits) == Phase::Stopped
    }

    /// Commits the hand-over. Returns whether this server may execute requests; otherwise the
    /// hand-over has failed.
    pub fn commit(&self) -> bool {
        let committed = self.handover.advance(self.number, Phase::Committed);
        if committed {
            let (holder, board) = self.holder;
            self.handover.held_by(holder, board);
        }
        committed
    }

    /// Gives the hand-over up.
    pub fn fail(&self, reason: &str) {
        self.handover.fail(self.number, reason);
    }
}

/// Returns the descriptors of the server before and its board.
fn predecessor(handover: &Handover) -> io::Result<(OtherProcess, Board)> {
    let began = Instant::now();
    let process = OtherProcess::open(handover.holder())?;
    loop {
        match process.take(handover.get(HOLDER_BOARD) as RawFd) {
            Err(error)
                if error.kind() == io::ErrorKind::PermissionDenied
                    && began.elapsed() < PERMISSION_TIMEOUT =>
            {
                // Polled: the holder permits it when it has received its signal.
                std::thread::sleep(LOOK);
            }
            board => return Ok((process, Board::open(board?)?)),
        }
    }
}
